//! HardwareClassification: which hosts of a namespace have the hardware that is asked for; they get a label.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::kind;

kind! {
    /// A class of hosts, by their hardware.
    HardwareClassification, "hardwareclassifications", HardwareClassificationSpec, HardwareClassificationStatus
}

/// `spec` of a HardwareClassification (hardware-classification-controller `api/v1alpha1/hardwareclassification_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareClassificationSpec {
    /// What is asked for: all of it must hold.
    #[serde(default, skip_serializing_if = "HardwareCharacteristics::is_absent")]
    pub hardware_characteristics: HardwareCharacteristics,
}

/// What is asked for of a host's hardware. A block that is absent asks for nothing; ends of ranges count, and are open where they are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareCharacteristics {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuRule>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskRule>,
    /// Firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareRule>,
    /// Network interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicRule>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram: Option<RamRule>,
    /// Maker and model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_vendor: Option<SystemVendorRule>,
}

impl HardwareCharacteristics {
    /// Whether no block is there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        *self == Self::default()
    }
}

/// Processors that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuRule {
    /// `x86`, `x86_64`, `IAS` or `AMD64`, compared with what inspection has found as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Most logical processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_count: Option<i64>,
    /// Highest clock, MHz.
    #[serde(rename = "maximumSpeedMHz", default, skip_serializing_if = "Option::is_none")]
    pub maximum_speed_mhz: Option<i64>,
    /// Fewest logical processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_count: Option<i64>,
    /// Lowest clock, MHz.
    #[serde(rename = "minimumSpeedMHz", default, skip_serializing_if = "Option::is_none")]
    pub minimum_speed_mhz: Option<i64>,
}

/// Disks that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskRule {
    /// Which disks the rest is about: each selector must find one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disk_selector: Vec<DiskSelector>,
    /// Most disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_count: Option<i64>,
    /// Largest size of each disk, in GB of 10⁹ bytes.
    #[serde(rename = "maximumIndividualSizeGB", default, skip_serializing_if = "Option::is_none")]
    pub maximum_individual_size_gb: Option<i64>,
    /// Fewest disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_count: Option<i64>,
    /// Smallest size of each disk, in GB of 10⁹ bytes.
    #[serde(rename = "minimumIndividualSizeGB", default, skip_serializing_if = "Option::is_none")]
    pub minimum_individual_size_gb: Option<i64>,
}

/// Disks by their place and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSelector {
    /// SCSI address `host:channel:target:lun`, in which `N` is any number above 0; absent for disks without one (NVMe).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
    /// Whether they rotate; absent for `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

/// Network interfaces that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NicRule {
    /// Most entries of `nics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_count: Option<i64>,
    /// Fewest entries of `nics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_count: Option<i64>,
    /// Whose interfaces there must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_selector: Option<NicSelector>,
}

/// Makers of network interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSelector {
    /// PCI vendor ids, `0x8086`: of each there must be an interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<String>,
}

/// Memory that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RamRule {
    /// Most memory, in GB of 1,024 MiB.
    #[serde(rename = "maximumSizeGB", default, skip_serializing_if = "Option::is_none")]
    pub maximum_size_gb: Option<i64>,
    /// Least memory, in GB of 1,024 MiB.
    #[serde(rename = "minimumSizeGB", default, skip_serializing_if = "Option::is_none")]
    pub minimum_size_gb: Option<i64>,
}

/// Maker and model that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemVendorRule {
    /// The maker, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// A part of the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
}

/// Firmware that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareRule {
    /// System firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bios: Option<BiosRule>,
}

/// System firmware that is asked for. The two versions are the ends of a range, which counts only where both are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BiosRule {
    /// Highest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_version: Option<String>,
    /// Lowest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor_version: Option<String>,
    /// The maker, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
}

/// `status` of a HardwareClassification: how many hosts of its namespace match, and how many are in error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareClassificationStatus {
    /// Hosts with a `detach error`, which no definition of hosts admits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detach_error_hosts: Option<i64>,
    /// Hosts in error, of whatever type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_hosts: Option<i64>,
    /// What is wrong with the classification itself, or with writing its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The class of that: see [`classification_error`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Hosts with an inspection error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introspection_error_hosts: Option<i64>,
    /// Hosts that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_count: Option<i64>,
    /// Hosts with a power management error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mgmt_error_hosts: Option<i64>,
    /// Hosts with a preparation error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation_error_hosts: Option<i64>,
    /// Whether any host matches: see [`match_status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_match_status: Option<String>,
    /// Hosts with a provisioned registration error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned_registration_error_hosts: Option<i64>,
    /// Hosts with a provisioning error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_error_hosts: Option<i64>,
    /// Hosts with a registration error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_error_hosts: Option<i64>,
    /// Hosts that neither match nor are in error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmatched_count: Option<i64>,
}

/// Values of `status.profileMatchStatus`.
pub mod match_status {
    /// A host matches.
    pub const MATCHED: &str = "matched";
    /// None does.
    pub const UNMATCHED: &str = "unmatched";
    /// There are no hosts in the namespace.
    pub const NO_HOSTS: &str = "No BareMetalHosts Found";
}

/// Values of `status.errorType`.
pub mod classification_error {
    /// A label could not be put on a host.
    pub const LABEL_UPDATE: &str = "label update error";
    /// A label could not be removed from a host.
    pub const LABEL_DELETE: &str = "label delete error";
    /// Nothing is asked for.
    pub const EMPTY_PROFILE: &str = "Empty Profile Error";
    /// More is asked for than can be compared (ours).
    pub const LARGE_PROFILE: &str = "Profile Too Large Error";
}

impl HardwareClassification {
    /// Labels of the object; empty without any.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels: &BTreeMap<String, String> = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it carries the finalizer [`super::finalizer::CLASSIFICATION`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|name| name == super::finalizer::CLASSIFICATION)
    }
}
