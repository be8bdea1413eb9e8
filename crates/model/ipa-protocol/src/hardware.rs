//! The inventory, as the agent sends it (`A:hardware.py`, `serializable_fields` of each class). What is not known is null.

use serde::{Deserialize, Serialize};

use crate::api::or_default;

/// What the machine is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Network interfaces. Ironic wants at least one.
    #[serde(default, deserialize_with = "or_default")]
    pub interfaces: Vec<Interface>,
    /// Processors.
    #[serde(default)]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Disks.
    #[serde(default, deserialize_with = "or_default")]
    pub disks: Vec<Disk>,
    /// The BMC's IPv4 address.
    #[serde(default)]
    pub bmc_address: Option<String>,
    /// The BMC's IPv6 address.
    #[serde(default)]
    pub bmc_v6address: Option<String>,
    /// The BMC's hardware address.
    #[serde(default)]
    pub bmc_mac: Option<String>,
    /// Maker, model, serial number.
    #[serde(default)]
    pub system_vendor: Option<SystemVendor>,
    /// How the agent was booted.
    #[serde(default)]
    pub boot: Option<BootInfo>,
    /// Name of the agent's system.
    #[serde(default)]
    pub hostname: Option<String>,
}

/// A piece of LLDP: type, and value as hexadecimal digits.
pub type LldpRecord = (u16, String);

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's name.
    pub name: String,
    /// The address it was made with, lower case with colons.
    #[serde(default)]
    pub mac_address: Option<String>,
    /// An IPv4 address.
    #[serde(default)]
    pub ipv4_address: Option<String>,
    /// An IPv6 address.
    #[serde(default)]
    pub ipv6_address: Option<String>,
    /// Whether there is a link.
    #[serde(default, deserialize_with = "or_default")]
    pub has_carrier: bool,
    /// What its switch says.
    #[serde(default)]
    pub lldp: Option<Vec<LldpRecord>>,
    /// PCI vendor id, `0x8086`.
    #[serde(default)]
    pub vendor: Option<String>,
    /// PCI device id.
    #[serde(default)]
    pub product: Option<String>,
    /// InfiniBand's client id.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The firmware's name of it.
    #[serde(default)]
    pub biosdevname: Option<String>,
    /// Speed in Mbit/s.
    #[serde(default)]
    pub speed_mbps: Option<i64>,
    /// PCI address, `0000:00:03.0`.
    #[serde(default)]
    pub pci_address: Option<String>,
    /// The kernel's driver.
    #[serde(default)]
    pub driver: Option<String>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Model.
    #[serde(default)]
    pub model_name: Option<String>,
    /// Highest clock in MHz, as text: `3700.0000`.
    #[serde(default)]
    pub frequency: Option<String>,
    /// Logical processors.
    #[serde(default)]
    pub count: Option<i64>,
    /// `x86_64`, `aarch64`.
    #[serde(default)]
    pub architecture: Option<String>,
    /// Features.
    #[serde(default, deserialize_with = "or_default")]
    pub flags: Vec<String>,
    /// Sockets.
    #[serde(default)]
    pub socket_count: Option<i64>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the kernel has, in bytes.
    #[serde(default)]
    pub total: Option<i64>,
    /// What is plugged in, in MiB.
    #[serde(default)]
    pub physical_mb: Option<i64>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// `/dev/sda`.
    pub name: String,
    /// Model.
    #[serde(default)]
    pub model: Option<String>,
    /// Size in bytes.
    #[serde(default)]
    pub size: Option<i64>,
    /// Whether it rotates.
    #[serde(default)]
    pub rotational: Option<bool>,
    /// World wide name.
    #[serde(default)]
    pub wwn: Option<String>,
    /// Serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// Maker.
    #[serde(default)]
    pub vendor: Option<String>,
    /// World wide name with its extension.
    #[serde(default)]
    pub wwn_with_extension: Option<String>,
    /// The extension.
    #[serde(default)]
    pub wwn_vendor_extension: Option<String>,
    /// SCSI address host:channel:target:lun.
    #[serde(default)]
    pub hctl: Option<String>,
    /// `/dev/disk/by-path/…`.
    #[serde(default)]
    pub by_path: Option<String>,
    /// Bytes of a logical sector.
    #[serde(default)]
    pub logical_sectors: Option<i64>,
    /// Bytes of a physical sector.
    #[serde(default)]
    pub physical_sectors: Option<i64>,
    /// `sata`, `nvme`, `usb`.
    #[serde(default)]
    pub tran: Option<String>,
}

/// Maker, model, serial number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemVendor {
    /// Model, with its SKU in parentheses.
    #[serde(default)]
    pub product_name: Option<String>,
    /// Serial number.
    #[serde(default)]
    pub serial_number: Option<String>,
    /// Maker.
    #[serde(default)]
    pub manufacturer: Option<String>,
    /// The firmware.
    #[serde(default)]
    pub firmware: Option<SystemFirmware>,
}

/// The firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFirmware {
    /// Maker.
    #[serde(default)]
    pub vendor: Option<String>,
    /// Version.
    #[serde(default)]
    pub version: Option<String>,
    /// Date, as the firmware prints it.
    #[serde(default)]
    pub build_date: Option<String>,
}

/// How the agent was booted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootInfo {
    /// `uefi` or `bios`.
    #[serde(default)]
    pub current_boot_mode: Option<String>,
    /// Hardware address of the interface it was booted by.
    #[serde(default)]
    pub pxe_interface: Option<String>,
}
