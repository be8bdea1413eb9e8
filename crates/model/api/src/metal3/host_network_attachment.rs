//! HostNetworkAttachment: how the switch ports of hosts are to be set up.

use serde::{Deserialize, Serialize};

use super::kind::kind;

kind! {
    /// A configuration of switch ports, which interfaces of BareMetalHosts name.
    HostNetworkAttachment, "hostnetworkattachments", HostNetworkAttachmentSpec, HostNetworkAttachmentStatus
}

/// `spec` of a HostNetworkAttachment (baremetal-operator `apis/metal3.io/v1alpha1/hostnetworkattachment_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNetworkAttachmentSpec {
    /// VLANs that may be tagged, `100` or `100-200`.
    #[serde(rename = "allowedVLANs", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_vlans: Vec<String>,
    /// `access`, `trunk` or `hybrid`.
    #[serde(default)]
    pub mode: SwitchPortMode,
    /// Largest packet, 68 to 9216 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// The untagged VLAN, 1 to 4094.
    #[serde(rename = "nativeVLAN", default)]
    pub native_vlan: i64,
}

/// What a port carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchPortMode {
    /// One VLAN.
    #[default]
    Access,
    /// Several.
    Trunk,
    /// Both.
    Hybrid,
}

/// `status` of a HostNetworkAttachment, of which the schema has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNetworkAttachmentStatus {}
