//! MachineRecord: which machine a host is, by what the machine itself has shown, and what the host's provisioner must remember of its work.
//!
//! Everything stands in the spec, so that it survives whatever a status does not: restores, `clusterctl move` (the definition has its
//! label), and the host itself, which does not own it.

use inventory::{BmcPin, MachineEvidence};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HostReference;
use crate::Time;

/// Which machine a host is.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metamorph.metal3.io",
    version = "v1alpha1",
    kind = "MachineRecord",
    plural = "machinerecords",
    shortname = "machine",
    category = "metal3",
    namespaced,
    derive = "PartialEq",
    label("clusterctl.cluster.x-k8s.io", ""),
    label("clusterctl.cluster.x-k8s.io/move", ""),
    printcolumn = r#"{"name":"Serial","type":"string","jsonPath":".spec.bmc.serialNumber"}"#,
    printcolumn = r#"{"name":"UUID","type":"string","jsonPath":".spec.bmc.systemUUID"}"#,
    printcolumn = r#"{"name":"BMC","type":"string","jsonPath":".spec.bmcAddress"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct MachineRecordSpec {
    /// The host, in the same namespace and of the same name.
    pub host: HostReference,
    /// `spec.bmc.address` under which the machine was found.
    #[serde(default)]
    pub bmc_address: String,
    /// By what the BMC itself is known, before a password is sent to it.
    #[serde(default)]
    pub pin: BmcPin,
    /// What the BMC tells of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<MachineEvidence>,
    /// What the agent has found in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<MachineEvidence>,
    /// Another machine was accepted in place of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedMachine>,
    /// What the host's provisioner must remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<ProvisionerRecord>,
    /// That the server wrote all of this but the provisioner's part. An edit breaks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<RecordSeal>,
}

/// The server's seal on a record. Of two hosts that show one machine, the one whose record was sealed first has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordSeal {
    /// Since when the server has vouched for the record.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Time,
    /// HMAC-SHA256 with a key of the server's, hexadecimal.
    pub value: String,
}

/// What a provisioner remembers of a host; nobody else reads or writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerRecord {
    /// Name of the provisioner.
    pub name: String,
    /// Version of the format of the data.
    #[serde(default)]
    pub version: u32,
    /// Counts the writes.
    #[serde(default)]
    pub revision: u64,
    /// The provisioner's own.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub data: serde_json::Value,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Consent by annotation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptedMachine {
    /// What the message showed and the annotation named.
    pub fingerprint: String,
    /// When it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub time: Option<Time>,
    /// Nothing is wiped from this machine until it has shown a disk with this host's mark, or has been provisioned: accepting a machine
    /// is no consent to empty it.
    #[serde(rename = "requiresMark", default)]
    pub requires_mark: bool,
}
