//! What upstream's fixture finds in every machine.

use inventory::{Cpu, DiskType, HardwareDetails, Lldp, Nic, Storage, SystemVendor};

const TIB: i64 = 1 << 40;

fn nic(name: &str, mac: String, ip: &str, pxe: bool) -> Nic {
    Nic {
        name: Some(name.to_owned()),
        model: Some("virt-io".to_owned()),
        mac: Some(mac),
        ip: Some(ip.to_owned()),
        speed_gbps: Some(1),
        pxe: Some(pxe),
        lldp: Some(Lldp {
            switch_id: Some("a0:b1:c2:d3:e4:f5".to_owned()),
            port_id: Some(format!("Ethernet1/{name}")),
            switch_system_name: Some("fixture-switch".to_owned()),
        }),
        ..Nic::default()
    }
}

fn disk(number: u32, serial: &str, rotational: bool) -> Storage {
    Storage {
        name: Some(format!("/dev/disk/by-path/pci-0000:00:0{number}.0")),
        model: Some("Fixture".to_owned()),
        vendor: Some("Fixture".to_owned()),
        serial_number: Some(format!("{serial}-disk{number}")),
        rotational: Some(rotational),
        size_bytes: Some(93 * TIB),
        disk_type: Some(if rotational { DiskType::HDD } else { DiskType::SSD }),
        ..Storage::default()
    }
}

/// The details of the machine with this serial number, which boots from this interface.
pub fn details(serial: &str, boot_mac: Option<&str>) -> HardwareDetails {
    let boot_mac = boot_mac.unwrap_or("00:00:00:00:00:01").to_ascii_lowercase();
    HardwareDetails {
        cpu: Some(Cpu {
            arch: Some("x86_64".to_owned()),
            model: Some("FancyPants CPU".to_owned()),
            clock_megahertz: Some(3000.0),
            count: Some(1),
            flags: vec!["fpu".to_owned(), "hypervisor".to_owned(), "sse".to_owned(), "vmx".to_owned()],
        }),
        ram_mebibytes: Some(128 << 10),
        nics: vec![
            nic("nic-1", boot_mac, "192.168.100.1", true),
            nic("nic-2", "02:00:00:00:00:02".to_owned(), "192.168.100.2", false),
        ],
        storage: vec![disk(1, serial, true), disk(2, serial, false)],
        system_vendor: Some(SystemVendor {
            manufacturer: Some("Metamorph".to_owned()),
            product_name: Some("Fixture".to_owned()),
            serial_number: Some(serial.to_owned()),
        }),
        ..HardwareDetails::default()
    }
}

/// The same as a BMC lists it: without what only a system knows that runs on the machine.
pub fn listed(details: HardwareDetails) -> HardwareDetails {
    let nic = |nic: Nic| Nic { mac: nic.mac, speed_gbps: nic.speed_gbps, ..Nic::default() };
    HardwareDetails {
        cpu: details.cpu.map(|cpu| Cpu { flags: Vec::new(), ..cpu }),
        hostname: None,
        nics: details.nics.into_iter().map(nic).collect(),
        storage: details.storage.into_iter().map(|disk| Storage { name: None, ..disk }).collect(),
        ..details
    }
}
