//! By what a machine can be told from others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one source tells of a machine, as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineEvidence {
    /// Maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// SMBIOS UUID.
    #[serde(rename = "systemUUID", default, skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// Serial number; of a Dell the service tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// Permanent addresses of network interfaces.
    #[serde(rename = "macAddresses", default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// Serial numbers and WWNs of disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<String>,
}

/// By what a BMC is known. A BMC that shows one of the two is the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcPin {
    /// `UUID` of the service root; of an iDRAC, which has none, the service tag there.
    #[serde(rename = "serviceUUID", default, skip_serializing_if = "Option::is_none")]
    pub service_uuid: Option<String>,
    /// SHA-256 of its certificate's public key (SubjectPublicKeyInfo), lower-case hex.
    #[serde(rename = "keySHA256", default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
}
