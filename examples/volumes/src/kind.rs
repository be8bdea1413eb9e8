//! StorageVolume: storage of a name and a size.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The finalizer: the object stays until its volume is gone.
pub const FINALIZER: &str = "example.metamorph.metal3.io/volume";

/// What is wished.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.metamorph.metal3.io",
    version = "v1alpha1",
    kind = "StorageVolume",
    plural = "storagevolumes",
    shortname = "svol",
    namespaced,
    status = "StorageVolumeStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Provisioner","type":"string","jsonPath":".status.provisioner"}"#,
    printcolumn = r#"{"name":"MiB","type":"integer","jsonPath":".status.sizeMebibytes"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = serde_json::json!([{
    "rule": "has(self.provisioner) == has(oldSelf.provisioner) && (!has(self.provisioner) || self.provisioner == oldSelf.provisioner)",
    "message": "a volume stays with its provisioner",
}])))]
pub struct StorageVolumeSpec {
    /// MiB. It may be raised.
    #[schemars(range(min = 1, max = 1_048_576), extend("x-kubernetes-validations" = serde_json::json!([{
        "rule": "self >= oldSelf",
        "message": "a volume does not shrink",
    }])))]
    pub size_mebibytes: u64,
    /// Name of its provisioner; the server's default without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub provisioner: Option<String>,
}

/// Where a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing has been asked yet, or what was asked waits.
    #[default]
    Pending,
    /// It is being made, grown or removed.
    Working,
    /// It is there, with the size that is wished.
    Ready,
    /// The last attempt has failed, and the message says at what.
    Failed,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageVolumeStatus {
    /// Where it is.
    #[serde(default)]
    pub phase: Phase,
    /// What is being done, or waited for, or why it failed.
    #[serde(default)]
    pub message: String,
    /// Its provisioner, which it keeps.
    #[serde(default)]
    pub provisioner: String,
    /// What the provisioner knows it by; empty before it is made.
    #[serde(default)]
    pub id: String,
    /// MiB that there are.
    #[serde(default)]
    pub size_mebibytes: u64,
    /// What the provisioner remembers of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<VolumeRecord>,
}

/// What a provisioner remembers of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeRecord {
    /// Counts the writes.
    pub revision: u64,
    /// Name of the provisioner.
    pub provisioner: String,
    /// Version of the format of the data.
    pub version: u32,
    /// The provisioner's own.
    #[schemars(schema_with = "any_object")]
    pub data: serde_json::Value,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The definition.
#[must_use]
pub fn definition() -> CustomResourceDefinition {
    StorageVolume::crd()
}
