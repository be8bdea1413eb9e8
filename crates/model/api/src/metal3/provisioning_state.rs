//! The values of `status.provisioning.state`.

use serde::{Deserialize, Serialize};

/// Where a host is in its life (baremetal-operator `apis/metal3.io/v1alpha1/baremetalhost_types.go`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProvisioningState {
    /// Not looked at yet.
    #[default]
    #[serde(rename = "")]
    None,
    /// Has no BMC details.
    #[serde(rename = "unmanaged")]
    Unmanaged,
    /// BMC access is being checked.
    #[serde(rename = "registering")]
    Registering,
    /// Legacy state between inspecting and preparing.
    #[serde(rename = "match profile")]
    MatchProfile,
    /// Being prepared (RAID, firmware settings).
    #[serde(rename = "preparing")]
    Preparing,
    /// Legacy name of `available`.
    #[serde(rename = "ready")]
    Ready,
    /// Can be provisioned.
    #[serde(rename = "available")]
    Available,
    /// An image is being written.
    #[serde(rename = "provisioning")]
    Provisioning,
    /// An image is on it.
    #[serde(rename = "provisioned")]
    Provisioned,
    /// Provisioned by someone else.
    #[serde(rename = "externally provisioned")]
    ExternallyProvisioned,
    /// The image is being removed.
    #[serde(rename = "deprovisioning")]
    Deprovisioning,
    /// The hardware is being looked at.
    #[serde(rename = "inspecting")]
    Inspecting,
    /// Going off before it is deleted.
    #[serde(rename = "powering off before delete")]
    PoweringOffBeforeDelete,
    /// Being deleted.
    #[serde(rename = "deleting")]
    Deleting,
}

impl ProvisioningState {
    /// All states, in declaration order.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Unmanaged,
        Self::Registering,
        Self::MatchProfile,
        Self::Preparing,
        Self::Ready,
        Self::Available,
        Self::Provisioning,
        Self::Provisioned,
        Self::ExternallyProvisioned,
        Self::Deprovisioning,
        Self::Inspecting,
        Self::PoweringOffBeforeDelete,
        Self::Deleting,
    ];

    /// The text in the object; empty for [`Self::None`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Unmanaged => "unmanaged",
            Self::Registering => "registering",
            Self::MatchProfile => "match profile",
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Available => "available",
            Self::Provisioning => "provisioning",
            Self::Provisioned => "provisioned",
            Self::ExternallyProvisioned => "externally provisioned",
            Self::Deprovisioning => "deprovisioning",
            Self::Inspecting => "inspecting",
            Self::PoweringOffBeforeDelete => "powering off before delete",
            Self::Deleting => "deleting",
        }
    }
}

impl std::fmt::Display for ProvisioningState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
