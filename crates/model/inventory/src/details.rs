//! What inspection finds: `HardwareDetails` of `metal3.io/v1alpha1`, field by field.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything inspection learns about one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareDetails {
    /// Processor facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Firmware facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// Host name that the agent's system had during inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Network interfaces; an interface with two addresses appears twice, as upstream does for dual stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_mebibytes: Option<i64>,
    /// Disks a system could be installed on, in the kernel's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<Storage>,
    /// Maker, model and serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_vendor: Option<SystemVendor>,
}

/// Processor facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// `x86_64`, `aarch64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Highest clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_megahertz: Option<f64>,
    /// Logical processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Feature flags, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Firmware facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Firmware {
    /// System firmware (BIOS or UEFI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bios: Option<Bios>,
}

/// System firmware.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bios {
    /// Release date as the firmware prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// One of its addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// What its switch says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lldp: Option<Lldp>,
    /// Hardware address, lower case with colons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Vendor and device id, `0x8086 0x1572`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Kernel's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// PCI address, `0000:00:03.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Whether the machine boots from this interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pxe: Option<bool>,
    /// Link speed in Gbit/s, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_gbps: Option<i64>,
    /// Untagged VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<i32>,
    /// VLANs the switch offers on the port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
}

/// A switch port as LLDP describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lldp {
    /// Chassis id.
    #[serde(rename = "switchID", default, skip_serializing_if = "Option::is_none")]
    pub switch_id: Option<String>,
    /// Port id.
    #[serde(rename = "portID", default, skip_serializing_if = "Option::is_none")]
    pub port_id: Option<String>,
    /// System name.
    #[serde(rename = "switchSystemName", default, skip_serializing_if = "Option::is_none")]
    pub switch_system_name: Option<String>,
}

/// A VLAN on a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vlan {
    /// 0 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i32>,
    /// Name given by the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskType {
    /// Rotating.
    HDD,
    /// Flash behind SATA, SAS or virtio.
    SSD,
    /// NVMe.
    NVME,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Other names of the device (`/dev/sda`, other by-path links).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternate_names: Vec<String>,
    /// SCSI address host:channel:target:lun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
    /// Model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name that stays: `/dev/disk/by-path/…` where there is one, else `/dev/…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it rotates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Kind of disk.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<DiskType>,
    /// Maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// World wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Vendor extension of the world wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn_vendor_extension: Option<String>,
    /// World wide name with its extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn_with_extension: Option<String>,
}

/// Maker, model and serial number of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemVendor {
    /// Maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Model, with its SKU in parentheses where the firmware gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_name: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
}
