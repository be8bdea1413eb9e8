//! What the agent has found, in ironic-python-agent's words.

use inventory::{HardwareDetails, RootDeviceHints, choose_root_disk};
use ipa_protocol::{
    BootInfo, Configuration, Cpu, Disk, InspectionData, Interface, Inventory, ManagerVersion, Memory, Parameters,
    PciDevice, SystemFirmware, SystemVendor,
};

use crate::facts;
use crate::machine::Machine;
use crate::tree::Tree;

/// The inventory. The BMC's address is not asked for: Ironic finds the node by its MAC addresses.
pub(super) fn of(machine: &dyn Machine, parameters: &Parameters) -> Inventory {
    let tree = machine.tree();
    let found = facts::collect(tree, &machine.addresses());
    let mode = if facts::is_uefi(tree) { "uefi" } else { "bios" };
    Inventory {
        interfaces: interfaces(tree, &found),
        cpu: found.cpu.as_ref().map(|cpu| Cpu {
            model_name: cpu.model.clone(),
            frequency: cpu.clock_megahertz.map(|clock| format!("{clock:.4}")),
            count: cpu.count,
            architecture: cpu.arch.clone(),
            flags: cpu.flags.clone(),
            socket_count: None,
        }),
        memory: Some(Memory { total: total(tree), physical_mb: found.ram_mebibytes }),
        disks: facts::disks(tree).iter().map(|found| disk(tree, found)).collect(),
        system_vendor: found.system_vendor.as_ref().map(|vendor| SystemVendor {
            product_name: vendor.product_name.clone(),
            serial_number: vendor.serial_number.clone(),
            manufacturer: vendor.manufacturer.clone(),
            firmware: found.firmware.as_ref().and_then(|firmware| firmware.bios.as_ref()).map(|bios| SystemFirmware {
                vendor: bios.vendor.clone(),
                version: bios.version.clone(),
                build_date: bios.date.clone(),
            }),
        }),
        boot: Some(BootInfo { current_boot_mode: Some(mode.to_owned()), pxe_interface: parameters.boot_mac() }),
        hostname: found.hostname,
        ..Inventory::default()
    }
}

/// Collectors that this agent has.
const COLLECTORS: [&str; 3] = ["default", "logs", PCI_DEVICES];
const PCI_DEVICES: &str = "pci-devices";

/// What is sent after an inspection. Collectors that there are not are warned of.
pub(super) fn data(machine: &dyn Machine, parameters: &Parameters, logs: &dyn Fn() -> String) -> InspectionData {
    let asked = parameters.collectors();
    let (served, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|name| COLLECTORS.contains(&name.as_str()));
    for name in &others {
        tracing::warn!("this agent has no inspection collector {name:?}; what it would find is not sent");
    }
    let inventory = of(machine, parameters);
    let disks = facts::disks(machine.tree());
    let storage: Vec<_> = disks.iter().map(|disk| disk.storage.clone()).collect();
    let root = choose_root_disk(&RootDeviceHints::default(), &storage).ok();
    let root = root.and_then(|root| storage.iter().position(|disk| disk == root));
    InspectionData {
        root_disk: root.and_then(|at| inventory.disks.get(at).cloned()),
        boot_interface: parameters.boot_mac(),
        pci_devices: served.iter().any(|name| name == PCI_DEVICES).then(|| pci_devices(machine)),
        logs: served.iter().any(|name| name == "logs").then(logs),
        configuration: Some(Configuration {
            collectors: served,
            managers: vec![ManagerVersion {
                name: Some(super::name::MANAGER.to_owned()),
                version: Some(super::name::VERSION.to_owned()),
            }],
        }),
        inventory,
        ..InspectionData::default()
    }
}

/// PCI devices as that collector of ironic-python-agent's has them.
fn pci_devices(machine: &dyn Machine) -> Vec<PciDevice> {
    let tree = machine.tree();
    let found = facts::devices(machine).pci.unwrap_or_default().into_iter();
    let revision = |address: &str| tree.text(&format!("sys/bus/pci/devices/{address}/revision"));
    found
        .map(|device| PciDevice {
            revision: revision(&device.address).map(|text| text.trim_start_matches("0x").to_owned()),
            vendor_id: device.vendor,
            product_id: device.device,
            class: Some(device.class),
            numa_node_id: Some(device.numa_node.map_or(-1, i64::from)),
            bus: Some(device.address),
        })
        .collect()
}

fn total(tree: &Tree) -> Option<i64> {
    let text = tree.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

/// Ours has an interface once for each of its addresses.
fn interfaces(tree: &Tree, found: &HardwareDetails) -> Vec<Interface> {
    let mut all: Vec<Interface> = Vec::new();
    for nic in &found.nics {
        let (Some(name), Some(mac)) = (&nic.name, &nic.mac) else { continue };
        let at = match all.iter().position(|interface| interface.name == *name) {
            Some(at) => at,
            None => {
                let base = format!("sys/class/net/{name}");
                let ids = nic.model.as_deref().and_then(|model| model.split_once(' '));
                let driver = tree.resolve(&format!("{base}/device/driver"));
                all.push(Interface {
                    name: name.clone(),
                    mac_address: Some(mac.clone()),
                    has_carrier: tree.number(&format!("{base}/carrier")) == Some(1),
                    vendor: ids.map(|(vendor, _)| vendor.to_owned()),
                    product: ids.map(|(_, product)| product.to_owned()),
                    speed_mbps: tree.number(&format!("{base}/speed")).filter(|speed| *speed > 0),
                    pci_address: nic.pci_address.clone(),
                    driver: driver.and_then(|path| Some(path.rsplit('/').next()?.to_owned())),
                    ..Interface::default()
                });
                all.len() - 1
            }
        };
        match &nic.ip {
            Some(ip) if ip.contains(':') => all[at].ipv6_address = Some(ip.clone()),
            Some(ip) => all[at].ipv4_address = Some(ip.clone()),
            None => {}
        }
    }
    all
}

fn disk(tree: &Tree, found: &facts::Disk) -> Disk {
    let storage = &found.storage;
    let number = |name: &str| tree.number(&format!("sys/block/{}/queue/{name}", found.device));
    Disk {
        name: format!("/dev/{}", found.device),
        model: storage.model.clone(),
        size: storage.size_bytes,
        rotational: storage.rotational,
        wwn: storage.wwn.clone(),
        serial: storage.serial_number.clone(),
        vendor: storage.vendor.clone(),
        wwn_with_extension: storage.wwn_with_extension.clone(),
        wwn_vendor_extension: storage.wwn_vendor_extension.clone(),
        hctl: storage.hctl.clone(),
        by_path: storage.name.clone().filter(|name| name.contains("/by-path/")),
        logical_sectors: number("logical_block_size"),
        physical_sectors: number("physical_block_size"),
        tran: found.device.starts_with("nvme").then(|| "nvme".to_owned()),
    }
}
