//! `spec` of a BareMetalHost.

use inventory::RootDeviceHints;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terms::{ChecksumType, DiskFormat};

use crate::Time;

/// What a person wants of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// CPU architecture; filled in from inspection when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// `metadata` (default) or `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<CleaningMode>,
    /// BMC access; without it the host is unmanaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// Hardware address of the interface it boots from.
    #[serde(rename = "bootMACAddress", default, skip_serializing_if = "Option::is_none")]
    pub boot_mac_address: Option<String>,
    /// Boot mode; empty means UEFI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Who uses the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// Custom deploy method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The host must never be powered off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    /// Someone else provisions it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub externally_provisioned: Option<bool>,
    /// Removed upstream; any use is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Deprecated profile; chooses default root device hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// Image to provision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// How to inspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<InspectionMode>,
    /// Secret with `metaData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// Secret with `networkData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Switch wiring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether the host should run.
    #[serde(default)]
    pub online: bool,
    /// Secret with the agent's network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preprovisioning_network_data_name: Option<String>,
    /// RAID wishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// Which disk the image goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// Deprecated, never implemented upstream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Secret with `userData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
}

/// BMC access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// `redfish-virtualmedia+https://host/redfish/v1/Systems/1` and the like.
    pub address: String,
    /// Secret with `username` and `password`.
    pub credentials_name: String,
    /// Do not verify the BMC's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
}

/// Cleaning when a host is deprovisioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CleaningMode {
    /// Remove partition tables and signatures.
    #[default]
    Metadata,
    /// Leave the disks.
    Disabled,
}

/// Boot modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BootMode {
    /// UEFI.
    #[default]
    #[serde(rename = "UEFI")]
    Uefi,
    /// UEFI with Secure Boot.
    #[serde(rename = "UEFISecureBoot")]
    UefiSecureBoot,
    /// BIOS.
    #[serde(rename = "legacy")]
    Legacy,
}

/// How to inspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InspectionMode {
    /// Not at all.
    Disabled,
    /// By the agent (default).
    Agent,
    /// By the BMC alone.
    Fast,
}

/// core/v1 ObjectReference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Path in the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// Kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Resource version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace; must be the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Custom deploy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomDeploy {
    /// Method's name.
    pub method: String,
}

/// Removed upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareConfig {
    /// SMT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simultaneous_multithreading_enabled: Option<bool>,
    /// SR-IOV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sriov_enabled: Option<bool>,
    /// Virtualization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization_enabled: Option<bool>,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Where from. Empty in a status that has no image.
    pub url: String,
    /// Digest, or the URL of a file with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Which digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<ChecksumType>,
    /// Format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// Secret for OCI registries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

/// Wiring of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network_attachment: Option<HostNetworkAttachmentRef>,
    /// Hardware address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Switch port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SwitchPort>,
}

/// A HostNetworkAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostNetworkAttachmentRef {
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A switch port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchPort {
    /// Port.
    #[serde(rename = "portID")]
    pub port_id: String,
    /// Switch's hardware address.
    #[serde(rename = "switchID")]
    pub switch_id: String,
}

/// RAID wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Raid {
    /// `None` keeps what is there, empty removes it.
    #[serde(rename = "hardwareRAIDVolumes", default, skip_serializing_if = "Option::is_none")]
    pub hardware_raid_volumes: Option<Vec<HardwareRaidVolume>>,
    /// Software RAID.
    #[serde(rename = "softwareRAIDVolumes", default, skip_serializing_if = "Option::is_none")]
    pub software_raid_volumes: Option<Vec<SoftwareRaidVolume>>,
}

/// A volume of a RAID controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareRaidVolume {
    /// Controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Level.
    pub level: String,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_of_physical_disks: Option<i64>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_disks: Vec<String>,
    /// Rotating or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Size in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<i64>,
}

/// A software RAID volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoftwareRaidVolume {
    /// Level.
    pub level: String,
    /// Disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_disks: Vec<RootDeviceHints>,
    /// Whether the image goes to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
    /// Size in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_gibibytes: Option<i64>,
}

/// core/v1 Taint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Effect.
    pub effect: String,
    /// Key.
    pub key: String,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
