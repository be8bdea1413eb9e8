//! HostDiagnosis: why a host is in error, by what its BMC, its agent and this server's own side have shown.
//!
//! The controller makes one for each host that it has diagnosed, of the host's name and owned by it; the next diagnosis takes its place. Nothing is decided by
//! it. `docs/diagnosis.md` lists the codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostReference;
use crate::Time;

/// Whom it is about.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metamorph.metal3.io",
    version = "v1alpha1",
    kind = "HostDiagnosis",
    plural = "hostdiagnoses",
    shortname = "hostdiag",
    category = "metal3",
    namespaced,
    status = "HostDiagnosisStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Error","type":"string","jsonPath":".status.errorType"}"#,
    printcolumn = r#"{"name":"Cause","type":"string","jsonPath":".status.causes[0].code"}"#,
    printcolumn = r#"{"name":"Certainty","type":"string","jsonPath":".status.causes[0].certainty"}"#,
    printcolumn = r#"{"name":"Fixer","type":"string","jsonPath":".status.causes[0].fixer"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#,
    printcolumn = r#"{"name":"Calls","type":"integer","jsonPath":".status.bmcCalls","priority":1}"#,
    printcolumn = r#"{"name":"Finished","type":"date","jsonPath":".status.finishTime"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HostDiagnosisSpec {
    /// The host, in the same namespace and of the same name.
    pub host: HostReference,
    /// Causes of which somebody knows already: they are told by no Event until then. Yours; the controller leaves it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub acknowledged: Vec<Acknowledgement>,
}

/// Somebody knows of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledgement {
    /// `fingerprint` of the cause.
    #[schemars(length(max = 64))]
    pub fingerprint: String,
    /// Until when nobody needs to be told of it.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub until: Time,
}

/// Where a diagnosis is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiagnosisPhase {
    /// A cause was found; the first of `causes` explains the error best.
    Found,
    /// Nothing that was read explains the error: `read` and `notRead` say what that was.
    #[default]
    NoCauseFound,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDiagnosisStatus {
    /// How it has ended.
    #[serde(default)]
    pub phase: DiagnosisPhase,
    /// `status.errorType` of the host; none where it shows no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Why it was made: `Error`, `TimeBudget`, `Fault` (of the machine of a host that is at rest) or `Request`.
    #[serde(default)]
    pub trigger: String,
    /// Digest of the error that it is about, hexadecimal: the same error is diagnosed once.
    #[serde(default)]
    pub error_digest: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub finish_time: Option<Time>,
    /// The first cause in a line, or that there is none.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Causes, the best explanation first; those in the background last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub causes: Vec<DiagnosedCause>,
    /// What was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub read: Vec<String>,
    /// What was not read, and why. It is no sign of health.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub not_read: Vec<UnreadSource>,
    /// Calls to the BMC that it has cost.
    #[serde(default)]
    pub bmc_calls: u32,
    /// Bytes that the BMC has answered.
    #[serde(default)]
    pub bytes: u64,
}

/// A source that was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadSource {
    /// Which.
    #[schemars(length(max = 128))]
    pub what: String,
    /// Why.
    #[schemars(length(max = 512))]
    pub why: String,
}

/// One cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosedCause {
    /// Its class, CamelCase (`docs/generated/diagnosis-codes.md`).
    #[schemars(length(max = 64))]
    pub code: String,
    /// What the class means, a sentence.
    #[schemars(length(max = 256))]
    pub meaning: String,
    /// The rule that was surest of it.
    #[schemars(length(max = 64))]
    pub rule: String,
    /// Who puts it right: `Configuration`, `Network`, `Image`, `BMC`, `Hardware` or `Metamorph`.
    #[schemars(length(max = 32))]
    pub fixer: String,
    /// `Certain`, `Likely` or `Possible`.
    #[schemars(length(max = 32))]
    pub certainty: String,
    /// `Critical` or `Warning`.
    #[schemars(length(max = 32))]
    pub severity: String,
    /// It does not explain the error: it was there before, or is about something else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The part that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<DiagnosedPart>,
    /// Oldest sign of it, by the clock of whoever wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_seen: Option<Time>,
    /// Newest sign of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<Time>,
    /// How many signs of it there are.
    #[serde(default)]
    pub count: u32,
    /// The same for the same class and part.
    #[schemars(length(max = 64))]
    pub fingerprint: String,
    /// Signs of it: calls with their answers, entries of logs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub evidence: Vec<String>,
    /// What to do.
    #[schemars(length(max = 1024))]
    pub advice: String,
    /// Until when somebody knows of it (`spec.acknowledged`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub acknowledged_until: Option<Time>,
}

/// A part of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiagnosedPart {
    /// What it is: `Memory`, `Drive`, `PowerSupply`.
    #[schemars(length(max = 32))]
    pub kind: String,
    /// Where it is, in the words that stand on the machine.
    #[schemars(length(max = 128))]
    pub slot: String,
    /// Part number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub part_number: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub serial: Option<String>,
}
