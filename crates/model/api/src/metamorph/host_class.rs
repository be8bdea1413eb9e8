//! HostClass: which hosts of a namespace have what its rules say, in CEL, over their hardware and what was diagnosed; they get its labels.
//!
//! `docs/classification.md` has the variables that rules may use.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;

/// What is asked for, and what comes of it.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metamorph.metal3.io",
    version = "v1alpha1",
    kind = "HostClass",
    plural = "hostclasses",
    shortname = "hclass",
    category = "metal3",
    namespaced,
    status = "HostClassStatus",
    derive = "PartialEq",
    label("clusterctl.cluster.x-k8s.io", ""),
    label("clusterctl.cluster.x-k8s.io/move", ""),
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Applied","type":"string","jsonPath":".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name":"Hosts","type":"integer","jsonPath":".status.matchedCount"}"#,
    printcolumn = r#"{"name":"Others","type":"integer","jsonPath":".status.unmatchedCount"}"#,
    printcolumn = r#"{"name":"Errors","type":"integer","jsonPath":".status.erroredCount"}"#,
    printcolumn = r#"{"name":"Preview","type":"integer","jsonPath":".status.previewCount","description":"Hosts whose labels would change if it were applied"}"#,
    printcolumn = r#"{"name":"Flavor","type":"string","jsonPath":".spec.result.flavor","priority":1}"#,
    printcolumn = r#"{"name":"Role","type":"string","jsonPath":".spec.result.role","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HostClassSpec {
    /// Rules: a host is of the class if all of them hold.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub rules: Vec<HostClassRule>,
    /// What hosts of the class get.
    #[serde(default)]
    pub result: HostClassResult,
    /// `Apply`, or `Preview`: nothing is written to hosts, and `status.preview` lists what would be.
    #[serde(default)]
    pub mode: HostClassMode,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClassRule {
    /// By what it is told from the others.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// An expression in CEL, true for hosts that are meant.
    #[schemars(length(min = 1, max = 1024))]
    pub expression: String,
}

/// What hosts of a class get. A label that somebody else has set is never overwritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClassResult {
    /// Labels. Keys of Kubernetes', of Metal³'s and of this program's own are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: BTreeMap<String, String>,
    /// Value of the label `metamorph.metal3.io/flavor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub flavor: Option<String>,
    /// Value of the label `metamorph.metal3.io/role`: what the host is suggested for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub role: Option<String>,
}

/// Whether hosts are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostClassMode {
    /// Hosts of the class get its labels, and lose them when they are not of it any more.
    #[default]
    Apply,
    /// Labels stay as they are; `status.preview` lists what would change.
    Preview,
}

/// What has come of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClassStatus {
    /// `metadata.generation` of the rules and the result by which all of this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether hosts are judged by it, `Accepted`, and bear its labels, `Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub conditions: Vec<HostClassCondition>,
    /// Hosts of the class, by name; `matchedCount` counts those that are not listed, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub hosts: Vec<String>,
    /// How many hosts of the namespace are of the class.
    #[serde(default)]
    pub matched_count: i64,
    /// How many are not.
    #[serde(default)]
    pub unmatched_count: i64,
    /// Of how many of these it is not known whether they are: a rule needs what is not known of them, or failed.
    #[serde(default)]
    pub unknown_count: i64,
    /// How many hosts of the class are in error.
    #[serde(default)]
    pub errored_count: i64,
    /// Hosts of the class that are in error, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub errored: Vec<ErroredHost>,
    /// Hosts that are not of the class, the first ones, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub unmatched: Vec<UnmatchedHost>,
    /// Of how many hosts labels would change if it were applied; 0 unless `spec.mode` is `Preview`.
    #[serde(default)]
    pub preview_count: i64,
    /// What would change if it were applied; only where `spec.mode` is `Preview`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preview: Vec<PreviewedHost>,
    /// How many hosts do not get a label of the class because somebody else has set it.
    #[serde(default)]
    pub conflict_count: i64,
    /// Labels that somebody else has set otherwise, the first ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub conflicts: Vec<LabelConflict>,
}

/// A condition, as Kubernetes has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostClassCondition {
    /// `Accepted` or `Applied`.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub kind: String,
    /// `True` or `False`.
    #[schemars(length(max = 16))]
    pub status: String,
    /// Why, CamelCase.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// `metadata.generation` that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Since when the status is that.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_transition_time: Time,
}

/// A host of the class that is in error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErroredHost {
    /// The host.
    pub name: String,
    /// Its `status.errorType`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Code of the first cause of its HostDiagnosis; none where it was not diagnosed, or nothing explains the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// How a rule has come out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuleVerdict {
    /// It does not hold.
    #[default]
    False,
    /// It needs what is not known of the host.
    NotKnown,
    /// It could not be evaluated.
    Failed,
}

/// A host that is not of the class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmatchedHost {
    /// The host.
    pub name: String,
    /// The first rule that does not hold.
    pub rule: String,
    /// How it has come out.
    pub verdict: RuleVerdict,
    /// What was found.
    #[schemars(length(max = 256))]
    pub reason: String,
}

/// A host whose labels would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedHost {
    /// The host.
    pub name: String,
    /// Labels that it would gain, or have with this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub gains: BTreeMap<String, String>,
    /// Labels that it would lose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub loses: Vec<String>,
}

/// A label that a host of the class does not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelConflict {
    /// The host.
    pub host: String,
    /// Key of the label.
    pub label: String,
    /// The value that the class gives it.
    pub wanted: String,
    /// The value that it has.
    #[schemars(length(max = 64))]
    pub found: String,
    /// The HostClass that gives it another value; none where somebody else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}
