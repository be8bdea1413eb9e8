//! What ironic-python-agent's inventory says, in our terms.

use inventory::{
    Bios, Cpu, Devices, DiskType, Firmware, HardwareDetails, MachineEvidence, Nic, Started, Storage, SystemVendor,
};
use ipa_protocol::{Disk, Interface, Inventory};
use terms::is_printable;

/// Most interfaces and disks that are taken.
const MAX_ITEMS: usize = 512;
/// Most flags of a processor.
const MAX_FLAGS: usize = 512;
/// Longest text, in characters.
const MAX_TEXT: usize = 256;
const GIB_BITS: i64 = 1000;

fn text(given: Option<&String>) -> Option<String> {
    let plain: String = given?.trim().chars().filter(|c| is_printable(*c)).take(MAX_TEXT).collect();
    (!plain.is_empty()).then_some(plain)
}

/// What upstream's facts have no fields for: the inventory has the boot mode alone, as PCI devices and NUMA nodes are other collectors'.
pub fn devices(found: &Inventory) -> Devices {
    let started = Started { uefi: is_uefi(found), secure_boot: None };
    Devices { started: Some(started), ..Devices::default() }
}

/// The hardware, as an inspection tells it.
pub fn hardware(found: &Inventory) -> HardwareDetails {
    let cpu = found.cpu.as_ref().map(|cpu| Cpu {
        arch: text(cpu.architecture.as_ref()),
        clock_megahertz: cpu
            .frequency
            .as_ref()
            .and_then(|text| text.trim().parse().ok())
            .filter(|mhz: &f64| mhz.is_finite()),
        count: cpu.count,
        flags: {
            let mut flags: Vec<String> = cpu.flags.iter().take(MAX_FLAGS).filter_map(|flag| text(Some(flag))).collect();
            flags.sort();
            flags.dedup();
            flags
        },
        model: text(cpu.model_name.as_ref()),
    });
    let vendor = found.system_vendor.as_ref();
    let firmware = vendor.and_then(|vendor| vendor.firmware.as_ref()).map(|firmware| Firmware {
        bios: Some(Bios {
            date: text(firmware.build_date.as_ref()),
            vendor: text(firmware.vendor.as_ref()),
            version: text(firmware.version.as_ref()),
        }),
    });
    let memory = found.memory.as_ref();
    HardwareDetails {
        cpu,
        firmware,
        hostname: text(found.hostname.as_ref()),
        nics: found.interfaces.iter().take(MAX_ITEMS).flat_map(nics).collect(),
        ram_mebibytes: memory.and_then(|memory| memory.physical_mb.or(memory.total.map(|bytes| bytes >> 20))),
        storage: found.disks.iter().take(MAX_ITEMS).map(storage).collect(),
        system_vendor: vendor.map(|vendor| SystemVendor {
            manufacturer: text(vendor.manufacturer.as_ref()),
            product_name: text(vendor.product_name.as_ref()),
            serial_number: text(vendor.serial_number.as_ref()),
        }),
    }
}

/// An interface with two addresses is two entries, as upstream has it.
fn nics(interface: &Interface) -> Vec<Nic> {
    let ids = [text(interface.vendor.as_ref()), text(interface.product.as_ref())];
    let nic = Nic {
        mac: text(interface.mac_address.as_ref()).map(|mac| mac.to_ascii_lowercase()),
        model: match ids {
            [Some(vendor), Some(product)] => Some(format!("{vendor} {product}")),
            [one, other] => one.or(other),
        },
        name: text(Some(&interface.name)),
        pci_address: text(interface.pci_address.as_ref()),
        speed_gbps: interface.speed_mbps.filter(|speed| *speed > 0).map(|speed| speed / GIB_BITS),
        ..Nic::default()
    };
    let addresses = [text(interface.ipv4_address.as_ref()), text(interface.ipv6_address.as_ref())];
    let with = |ip| Nic { ip, ..nic.clone() };
    match addresses {
        [None, None] => vec![nic],
        addresses => addresses.into_iter().flatten().map(|ip| with(Some(ip))).collect(),
    }
}

/// A disk. Its name is the one by its place, where there is one.
pub fn storage(disk: &Disk) -> Storage {
    let kernel = text(Some(&disk.name));
    let place = text(disk.by_path.as_ref());
    let is_nvme = kernel.as_deref().is_some_and(|name| name.starts_with("/dev/nvme"));
    Storage {
        alternate_names: place.is_some().then(|| kernel.clone()).flatten().into_iter().collect(),
        hctl: text(disk.hctl.as_ref()),
        model: text(disk.model.as_ref()),
        name: place.or(kernel),
        rotational: disk.rotational,
        serial_number: text(disk.serial.as_ref()),
        size_bytes: disk.size,
        disk_type: match (is_nvme, disk.rotational) {
            (true, _) => Some(DiskType::NVME),
            (false, Some(true)) => Some(DiskType::HDD),
            (false, Some(false)) => Some(DiskType::SSD),
            (false, None) => None,
        },
        vendor: text(disk.vendor.as_ref()),
        wwn: text(disk.wwn.as_ref()),
        wwn_vendor_extension: text(disk.wwn_vendor_extension.as_ref()),
        wwn_with_extension: text(disk.wwn_with_extension.as_ref()),
    }
}

/// By what the machine can be told from others: as our own agent tells it, without the SMBIOS UUID, which this one does not read.
pub fn evidence(found: &Inventory) -> MachineEvidence {
    let hardware = hardware(found);
    let vendor = hardware.system_vendor.unwrap_or_default();
    // A link without a device, a bond for instance, has an address of its own making.
    let devices = hardware.nics.into_iter().filter(|nic| nic.pci_address.is_some());
    let mut macs: Vec<String> = devices.filter_map(|nic| nic.mac).collect();
    macs.sort();
    macs.dedup();
    let names = |disk: Storage| [disk.serial_number, disk.wwn_with_extension.or(disk.wwn)];
    MachineEvidence {
        manufacturer: vendor.manufacturer,
        system_uuid: None,
        serial_number: vendor.serial_number,
        macs,
        disks: hardware.storage.into_iter().flat_map(names).flatten().collect(),
    }
}

/// Whether the machine was started by UEFI.
pub fn is_uefi(found: &Inventory) -> bool {
    found.boot.as_ref().and_then(|boot| boot.current_boot_mode.as_deref()) == Some("uefi")
}

/// Why other machines may use this disk, too.
pub fn shared(disk: &Disk) -> Option<&'static str> {
    match disk.tran.as_deref().unwrap_or_default() {
        "fc" => Some("it is reached by Fibre Channel"),
        "fcoe" => Some("it is reached by Fibre Channel over Ethernet"),
        "iscsi" => Some("it is reached by iSCSI"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn inventory() -> Inventory {
        serde_json::from_value(json!({
            "interfaces": [{"name": "eno1", "mac_address": "52:54:00:AB:CD:EF", "has_carrier": true, "vendor": "0x8086",
                "pci_address": "0000:01:00.0", "product": "0x1572", "ipv4_address": "192.0.2.7", "ipv6_address": "2001:db8::7", "speed_mbps": 25000},
                {"name": "bond0", "mac_address": "a6:f5:18:5b:55:9a", "has_carrier": false}],
            "cpu": {"model_name": "CPU", "frequency": "2400.5", "count": 4, "architecture": "x86_64", "flags": ["vmx", "aes", "vmx"]},
            "memory": {"total": 4_294_967_296_i64, "physical_mb": 4096},
            "disks": [
                {"name": "/dev/sda", "size": 10_737_418_240_i64, "rotational": true, "serial": " S1 ", "by_path": "/dev/disk/by-path/x", "tran": "sas"},
                {"name": "/dev/sdb", "size": 1, "rotational": false, "serial": "S2", "tran": "fc"}
            ],
            "system_vendor": {"manufacturer": "QEMU\u{1b}[31m", "product_name": "Q35", "serial_number": "SN"},
            "boot": {"current_boot_mode": "uefi"},
            "hostname": "metamorph"
        }))
        .unwrap()
    }

    #[test]
    fn an_inventory_in_metal3s_terms() {
        let hardware = hardware(&inventory());
        assert_eq!(hardware.ram_mebibytes, Some(4096));
        let cpu = hardware.cpu.unwrap();
        assert_eq!((cpu.clock_megahertz, cpu.flags), (Some(2400.5), vec!["aes".to_owned(), "vmx".to_owned()]));
        let ips: Vec<_> = hardware.nics.iter().filter_map(|nic| nic.ip.as_deref()).collect();
        assert_eq!(ips, ["192.0.2.7", "2001:db8::7"]);
        let nic = &hardware.nics[0];
        assert_eq!((nic.model.as_deref(), nic.speed_gbps), (Some("0x8086 0x1572"), Some(25)));
        let [one, other] = &hardware.storage[..] else { panic!("two disks") };
        assert_eq!(one.name.as_deref(), Some("/dev/disk/by-path/x"));
        assert_eq!((&one.alternate_names[..], one.disk_type), (&["/dev/sda".to_owned()][..], Some(DiskType::HDD)));
        assert_eq!((other.name.as_deref(), other.disk_type), (Some("/dev/sdb"), Some(DiskType::SSD)));
        assert_eq!(hardware.system_vendor.unwrap().manufacturer.as_deref(), Some("QEMU[31m"));
    }

    #[test]
    fn evidence_is_what_our_own_agent_would_tell() {
        let evidence = evidence(&inventory());
        assert_eq!(evidence.macs, ["52:54:00:ab:cd:ef"]);
        assert_eq!(evidence.disks, ["S1", "S2"]);
        assert_eq!((evidence.serial_number.as_deref(), evidence.system_uuid), (Some("SN"), None));
        assert!(is_uefi(&inventory()));
        assert_eq!(inventory().disks.iter().map(|disk| shared(disk).is_some()).collect::<Vec<_>>(), [false, true]);
    }
}
