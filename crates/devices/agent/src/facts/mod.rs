//! Hardware facts in Metal³'s terms, read from `/sys` and `/proc`: no lshw, no udev, no external program.

pub mod by_path;
mod cpu;
mod devices;
pub mod disks;
mod host_interface;
mod memory;
mod nics;
pub mod raid;
mod smbios;

pub(crate) use nics::{is_usb, permanent_mac};

use std::net::IpAddr;

use inventory::{Bios, Devices, Firmware, HardwareDetails, MachineEvidence, Nic, SystemVendor};

pub use disks::{Disk, disks};
pub use host_interface::redfish_interface;

use crate::machine::Facts;
use crate::tree::Tree;

/// Longest text taken from a device or the firmware, in characters.
const MAX_FACT: usize = 256;

/// Everything inspection learns about the machine. `addresses` are those of the running system, by interface name.
#[must_use]
pub fn collect(tree: &Tree, addresses: &[(String, IpAddr)]) -> HardwareDetails {
    HardwareDetails {
        cpu: Some(cpu::cpu(tree)),
        firmware: firmware(tree),
        hostname: tree.text("proc/sys/kernel/hostname").filter(|name| name != "(none)"),
        nics: nics::nics(tree, addresses),
        ram_mebibytes: memory::mebibytes(tree),
        storage: disks(tree).into_iter().map(|disk| disk.storage).collect(),
        system_vendor: system_vendor(tree),
    }
}

/// Evidence of the machine's identity.
#[must_use]
pub fn evidence(tree: &Tree) -> MachineEvidence {
    let is_permanent = |nic: &Nic| !nic.name.as_deref().is_some_and(|name| nics::is_usb(tree, name));
    let mut macs: Vec<String> =
        nics::nics(tree, &[]).into_iter().filter(is_permanent).filter_map(|nic| nic.mac).collect();
    macs.sort();
    macs.dedup();
    let names = |disk: Disk| [disk.storage.serial_number, disk.storage.wwn_with_extension.or(disk.storage.wwn)];
    MachineEvidence {
        manufacturer: dmi(tree, "sys_vendor"),
        system_uuid: dmi(tree, "product_uuid"),
        serial_number: dmi(tree, "product_serial"),
        macs,
        disks: disks(tree).into_iter().flat_map(names).flatten().collect(),
    }
}

/// What inspection learns beyond upstream's facts.
#[must_use]
pub fn devices(machine: &(impl Facts + ?Sized)) -> Devices {
    devices::collect(machine, is_uefi(machine.tree()))
}

/// Whether the machine was started by UEFI.
#[must_use]
pub fn is_uefi(tree: &Tree) -> bool {
    tree.exists("sys/firmware/efi")
}

/// A fact of `/sys/class/dmi/id`, shortened to a sane length.
fn dmi(tree: &Tree, name: &str) -> Option<String> {
    tree.text(&format!("sys/class/dmi/id/{name}")).map(|text| short(&text))
}

fn short(text: &str) -> String {
    text.chars().take(MAX_FACT).collect()
}

fn firmware(tree: &Tree) -> Option<Firmware> {
    let bios =
        Bios { date: dmi(tree, "bios_date"), vendor: dmi(tree, "bios_vendor"), version: dmi(tree, "bios_version") };
    (bios != Bios::default()).then_some(Firmware { bios: Some(bios) })
}

/// Maker, model and serial number; the model carries its SKU in parentheses, as lshw (and with it Ironic's agent) prints it.
fn system_vendor(tree: &Tree) -> Option<SystemVendor> {
    let product_name = match (dmi(tree, "product_name"), dmi(tree, "product_sku")) {
        (Some(name), Some(sku)) => Some(format!("{name} ({sku})")),
        (name, _) => name,
    };
    let vendor = SystemVendor {
        manufacturer: dmi(tree, "sys_vendor"),
        product_name,
        serial_number: dmi(tree, "product_serial"),
    };
    (vendor != SystemVendor::default()).then_some(vendor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;

    #[test]
    fn vendor_and_firmware_come_from_dmi() {
        let folder = tempfile::tempdir().unwrap();
        let id = "sys/class/dmi/id";
        plant(
            folder.path(),
            &[
                (&format!("{id}/product_name"), "R640\n"),
                (&format!("{id}/product_sku"), "0715\n"),
                (&format!("{id}/product_serial"), "S1\n"),
                (&format!("{id}/bios_vendor"), "V\n"),
            ],
        );
        let details = collect(&Tree::new(folder.path()), &[]);
        let vendor = details.system_vendor.unwrap();
        assert_eq!(vendor.product_name.as_deref(), Some("R640 (0715)"));
        assert_eq!(vendor.serial_number.as_deref(), Some("S1"));
        assert_eq!(details.firmware.unwrap().bios.unwrap().vendor.as_deref(), Some("V"));
    }

    #[test]
    fn evidence_is_what_tells_machines_apart() {
        let folder = tempfile::tempdir().unwrap();
        let id = "sys/class/dmi/id";
        plant(
            folder.path(),
            &[
                (&format!("{id}/sys_vendor"), "Maker\n"),
                (&format!("{id}/product_serial"), "S1\n"),
                (&format!("{id}/product_uuid"), "4c4c4544-0047-3710-8051-b4c04f4a3132\n"),
                (&format!("{id}/chassis_serial"), "C1\n"),
                (&format!("{id}/board_serial"), "B1\n"),
                ("sys/class/net/eth0/type", "1\n"),
                ("sys/class/net/eth0/address", "00:1b:21:aa:bb:01\n"),
                ("sys/class/net/eth0/device/vendor", "0x8086\n"),
                ("sys/class/net/bond0/type", "1\n"),
                ("sys/class/net/bond0/address", "00:1b:21:aa:bb:09\n"),
                ("sys/block/sda/size", "1000\n"),
                ("sys/block/sda/device/model", "M\n"),
                ("sys/block/sda/device/wwid", "naa.5000c500a1b2c3d4\n"),
                ("sys/block/sda/serial", "WD-1\n"),
            ],
        );
        let found = evidence(&Tree::new(folder.path()));
        assert_eq!(found.manufacturer.as_deref(), Some("Maker"));
        assert_eq!(found.system_uuid.as_deref(), Some("4c4c4544-0047-3710-8051-b4c04f4a3132"));
        assert_eq!(found.serial_number.as_deref(), Some("S1"), "neither the chassis' nor the board's");
        assert_eq!(found.macs, ["00:1b:21:aa:bb:01"], "a bond is no card");
        assert_eq!(found.disks.len(), 2, "{:?}", found.disks);
        assert_eq!(found.disks[0], "WD-1");
    }
}
