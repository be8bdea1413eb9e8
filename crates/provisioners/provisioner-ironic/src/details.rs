//! Hardware details of what Ironic keeps of an inspection (`pkg/provisioner/ironic/hardwaredetails` of baremetal-operator).

use inventory::{
    Bios, Cpu, Devices, DiskType, Firmware, HardwareDetails, Inspected, Lldp, Nic, NumaNode, Part, PciDevice, Started,
    Storage, SystemVendor, Vlan,
};
use serde_json::{Map, Value};

/// Most disks, and most interfaces, that are taken.
const MOST: usize = 256;
/// Most PCI devices, and most processors.
const MOST_PCI: usize = 2048;
const MOST_THREADS: usize = 8192;
/// Longest text, characters.
const LONGEST: usize = 256;

fn text(value: &Value) -> Option<String> {
    let text: String = value.as_str()?.trim().chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// What an inspection has found: `inventory`, and what plugins have made of it. Without an inventory, what the node's properties say.
pub fn details(found: &Value, properties: &Map<String, Value>) -> Inspected {
    let inventory = &found["inventory"];
    if !inventory.is_object() {
        return listed(properties);
    }
    let plugins = &found["plugin_data"];
    let hardware = HardwareDetails {
        cpu: Some(cpu(&inventory["cpu"])),
        firmware: firmware(&inventory["system_vendor"]["firmware"]),
        hostname: text(&inventory["hostname"]),
        nics: nics(inventory, plugins),
        ram_mebibytes: inventory["memory"]["physical_mb"].as_i64(),
        storage: inventory["disks"].as_array().into_iter().flatten().take(MOST).map(disk).collect(),
        system_vendor: vendor(&inventory["system_vendor"]),
    };
    // A BMC's list is not a system's.
    let not_listed = if hardware.is_from_system() { Vec::new() } else { gaps(&hardware) };
    Inspected { hardware, not_listed, devices: devices(inventory, plugins), ..Inspected::default() }
}

/// What the collectors `pci-devices` and `numa-topology` of ironic-python-agent have found, where they were asked for, and how the machine was booted. What they
/// did not look for is not known.
fn devices(inventory: &Value, plugins: &Value) -> Devices {
    let pci = plugins["pci_devices"].as_array().map(|all| all.iter().take(MOST_PCI).filter_map(pci).collect());
    let topology = &plugins["numa_topology"];
    let numa =
        topology["ram"].as_array().map(|ram| ram.iter().take(MOST).filter_map(|ram| node(ram, topology)).collect());
    let started = match inventory["boot"]["current_boot_mode"].as_str() {
        Some("uefi") => Some(Started { uefi: true, secure_boot: None }),
        Some("bios") => Some(Started { uefi: false, secure_boot: None }),
        _ => None,
    };
    Devices { pci, numa, started, ..Devices::default() }.bounded()
}

/// A function of a PCI device; ids are hexadecimal digits without prefix, the class four or six of them.
fn pci(found: &Value) -> Option<PciDevice> {
    let id = |name: &str| Some(text(&found[name])?.to_ascii_lowercase());
    let class = id("class")?;
    let class = if class.len() == 4 { format!("{class}00") } else { class };
    let numa_node = found["numa_node_id"].as_u64().and_then(|node| u32::try_from(node).ok());
    let (address, vendor, device) = (id("bus")?, id("vendor_id")?, id("product_id")?);
    Some(PciDevice { address, class, vendor, device, numa_node, ..PciDevice::default() })
}

/// A NUMA node: its memory, and the processors that the topology has for it.
fn node(ram: &Value, topology: &Value) -> Option<NumaNode> {
    let node = u32::try_from(ram["numa_node"].as_u64()?).ok()?;
    let cores = topology["cpus"].as_array().into_iter().flatten().take(MOST_THREADS);
    let own = cores.filter(|core| core["numa_node"].as_u64() == Some(u64::from(node)));
    let threads = own.flat_map(|core| core["thread_siblings"].as_array().into_iter().flatten().take(MOST));
    let mut threads: Vec<u64> = threads.filter_map(Value::as_u64).take(MOST_THREADS).collect();
    threads.sort_unstable();
    threads.dedup();
    let cpus = topology["cpus"].is_array().then(|| ranges(&threads));
    Some(NumaNode { node, cpus, memory_mebibytes: ram["size_kb"].as_i64().map(|kib| kib / 1024) })
}

/// Numbers in their order as the kernel writes lists: `0-3,8`.
fn ranges(numbers: &[u64]) -> String {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match all.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => all.push((*number, *number)),
        }
    }
    let words: Vec<String> = all
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    words.join(",")
}

fn listed(properties: &Map<String, Value>) -> Inspected {
    let number = |name: &str| {
        let value = properties.get(name)?;
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    };
    let cpu = Cpu { arch: properties.get("cpu_arch").and_then(text), count: number("cpus"), ..Cpu::default() };
    let cpu = (cpu != Cpu::default()).then_some(cpu);
    let hardware = HardwareDetails { cpu, ram_mebibytes: number("memory_mb"), ..HardwareDetails::default() };
    let not_listed = gaps(&hardware);
    Inspected { hardware, not_listed, ..Inspected::default() }
}

fn gaps(hardware: &HardwareDetails) -> Vec<Part> {
    let count = hardware.cpu.as_ref().and_then(|cpu| cpu.count);
    let mut parts = vec![
        (Part::Processors, count.is_none()),
        (Part::Memory, hardware.ram_mebibytes.is_none()),
        // There may be more than a BMC lists.
        (Part::Disks, true),
        (Part::Interfaces, true),
        (Part::Firmware, hardware.firmware.is_none()),
        (Part::Vendor, hardware.system_vendor.is_none()),
    ];
    parts.retain(|(_, missing)| *missing);
    let mut parts: Vec<Part> = parts.into_iter().map(|(part, _)| part).collect();
    parts.sort_unstable();
    parts
}

fn cpu(cpu: &Value) -> Cpu {
    let frequency = match &cpu["frequency"] {
        Value::String(text) => text.split(' ').next().and_then(|number| number.parse::<f64>().ok()),
        other => other.as_f64(),
    };
    let mut flags: Vec<String> = cpu["flags"].as_array().into_iter().flatten().take(1024).filter_map(text).collect();
    flags.sort_unstable();
    Cpu {
        arch: text(&cpu["architecture"]),
        clock_megahertz: frequency.map(f64::round).filter(|mhz| mhz.is_finite() && *mhz > 0.0),
        count: cpu["count"].as_i64(),
        flags,
        model: text(&cpu["model_name"]),
    }
}

fn firmware(firmware: &Value) -> Option<Firmware> {
    let bios = Bios {
        date: text(&firmware["build_date"]),
        vendor: text(&firmware["vendor"]),
        version: text(&firmware["version"]),
    };
    (bios != Bios::default()).then_some(Firmware { bios: Some(bios) })
}

fn vendor(vendor: &Value) -> Option<SystemVendor> {
    let found = SystemVendor {
        manufacturer: text(&vendor["manufacturer"]),
        product_name: text(&vendor["product_name"]),
        serial_number: text(&vendor["serial_number"]),
    };
    (found != SystemVendor::default()).then_some(found)
}

fn nics(inventory: &Value, plugins: &Value) -> Vec<Nic> {
    let mut all = Vec::new();
    for interface in inventory["interfaces"].as_array().into_iter().flatten().take(MOST) {
        let name = text(&interface["name"]);
        let key = name.clone().unwrap_or_default();
        let (seen, lldp) = (&plugins["all_interfaces"][&key], &plugins["parsed_lldp"][&key]);
        let model: Vec<String> = [&interface["vendor"], &interface["product"]].into_iter().filter_map(text).collect();
        let vlans = lldp["switch_port_vlans"].as_array().into_iter().flatten().take(MOST).map(|vlan| Vlan {
            id: vlan["id"].as_i64().and_then(|id| i32::try_from(id).ok()),
            name: text(&vlan["name"]),
        });
        let neighbour = Lldp {
            switch_id: text(&lldp["switch_chassis_id"]),
            port_id: text(&lldp["switch_port_id"]),
            switch_system_name: text(&lldp["switch_system_name"]),
        };
        let nic = Nic {
            ip: None,
            lldp: (neighbour != Lldp::default()).then_some(neighbour),
            mac: text(&interface["mac_address"]).map(|mac| mac.to_ascii_lowercase()),
            model: (!model.is_empty()).then(|| model.join(" ")),
            name,
            pci_address: text(&interface["pci_address"]),
            pxe: Some(seen["pxe_enabled"].as_bool().unwrap_or(false)),
            speed_gbps: interface["speed_mbps"].as_i64().map(|mbps| mbps / 1000),
            vlan_id: lldp["switch_port_untagged_vlan_id"].as_i64().and_then(|id| i32::try_from(id).ok()),
            vlans: vlans.collect(),
        };
        // One with two addresses stands there twice, and one without any once.
        let (v4, v6) = (text(&interface["ipv4_address"]), text(&interface["ipv6_address"]));
        if v4.is_some() || v6.is_none() {
            all.push(Nic { ip: v4, ..nic.clone() });
        }
        if v6.is_some() {
            all.push(Nic { ip: v6, ..nic });
        }
    }
    all
}

fn disk(disk: &Value) -> Storage {
    let (device, by_path) = (text(&disk["name"]), text(&disk["by_path"]));
    let rotational = disk["rotational"].as_bool().unwrap_or(false);
    let is_nvme = device.as_ref().is_some_and(|name| name.starts_with("/dev/nvme"));
    Storage {
        alternate_names: [device.clone(), by_path.clone()].into_iter().flatten().collect(),
        hctl: text(&disk["hctl"]),
        model: text(&disk["model"]),
        name: by_path.or(device),
        rotational: Some(rotational),
        serial_number: text(&disk["serial"]),
        size_bytes: disk["size"].as_i64(),
        disk_type: Some(match (rotational, is_nvme) {
            (true, _) => DiskType::HDD,
            (false, true) => DiskType::NVME,
            (false, false) => DiskType::SSD,
        }),
        vendor: text(&disk["vendor"]),
        wwn: text(&disk["wwn"]),
        wwn_vendor_extension: text(&disk["wwn_vendor_extension"]),
        wwn_with_extension: text(&disk["wwn_with_extension"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agents_inventory_becomes_what_baremetal_operator_makes_of_it() {
        let found = json!({
            "inventory": {
                "hostname": "node-0",
                "cpu": {"architecture": "x86_64", "frequency": "2593.4 MHz", "count": 4, "flags": ["vmx", "aes"], "model_name": "A CPU"},
                "memory": {"physical_mb": 8192},
                "system_vendor": {"manufacturer": "M", "product_name": "P", "serial_number": "S",
                    "firmware": {"vendor": "V", "version": "1", "build_date": "2026-01-01"}},
                "interfaces": [
                    {"name": "eno1", "mac_address": "52:54:00:AA:BB:01", "ipv4_address": "192.0.2.4", "ipv6_address": "2001:db8::4",
                     "vendor": "0x8086", "product": "0x1572", "speed_mbps": 25000, "pci_address": "0000:00:03.0"},
                    {"name": "eno2", "mac_address": "52:54:00:aa:bb:02"}],
                "disks": [
                    {"name": "/dev/nvme0n1", "by_path": "/dev/disk/by-path/pci-1", "size": 100, "rotational": false, "serial": "D1"},
                    {"name": "/dev/sda", "size": 200, "rotational": true}]},
            "plugin_data": {
                "all_interfaces": {"eno1": {"pxe_enabled": true}},
                "parsed_lldp": {"eno1": {"switch_chassis_id": "aa", "switch_port_id": "p1", "switch_port_untagged_vlan_id": 5,
                    "switch_port_vlans": [{"id": 5, "name": "five"}]}}}});
        let inspected = details(&found, &Map::new());
        assert!(inspected.not_listed.is_empty());
        let hardware = inspected.hardware;
        assert_eq!(hardware.cpu.as_ref().unwrap().clock_megahertz, Some(2593.0));
        assert_eq!(hardware.cpu.unwrap().flags, ["aes", "vmx"]);
        let ips: Vec<_> = hardware.nics.iter().map(|nic| nic.ip.as_deref()).collect();
        assert_eq!(ips, [Some("192.0.2.4"), Some("2001:db8::4"), None]);
        let nic = &hardware.nics[0];
        assert_eq!((nic.mac.as_deref(), nic.pxe, nic.speed_gbps), (Some("52:54:00:aa:bb:01"), Some(true), Some(25)));
        assert_eq!((nic.model.as_deref(), nic.vlan_id, nic.vlans.len()), (Some("0x8086 0x1572"), Some(5), 1));
        let disks: Vec<_> =
            hardware.storage.iter().map(|disk| (disk.name.as_deref().unwrap(), disk.disk_type.unwrap())).collect();
        assert_eq!(disks, [("/dev/disk/by-path/pci-1", DiskType::NVME), ("/dev/sda", DiskType::HDD)]);
    }

    #[test]
    fn without_an_inventory_the_gaps_are_named() {
        let properties = json!({"cpu_arch": "x86_64", "memory_mb": "4096", "cpus": 2});
        let inspected = details(&Value::Null, properties.as_object().unwrap());
        assert_eq!(inspected.hardware.ram_mebibytes, Some(4096));
        assert_eq!(inspected.not_listed, [Part::Disks, Part::Interfaces, Part::Firmware, Part::Vendor]);
    }

    #[test]
    fn what_collectors_have_found_is_taken_and_what_they_were_not_asked_for_is_not_known() {
        let mut found = json!({
            "inventory": {"hostname": "node-0", "boot": {"current_boot_mode": "uefi"}},
            "plugin_data": {
                "pci_devices": [
                    {"vendor_id": "10DE", "product_id": "2330", "class": "030200", "revision": "a1", "bus": "0000:3b:00.0", "numa_node_id": 1},
                    {"vendor_id": "8086", "product_id": "2030", "class": "0604", "bus": "0000:3a:00.0", "numa_node_id": -1},
                    {"vendor_id": "8086"}, 7],
                "numa_topology": {
                    "ram": [{"numa_node": 1, "size_kb": 67108864}, {"numa_node": 0, "size_kb": 33554432}, {}],
                    "cpus": [
                        {"cpu": 0, "numa_node": 0, "thread_siblings": [0, 4]}, {"cpu": 1, "numa_node": 0, "thread_siblings": [1, 5]},
                        {"cpu": 0, "numa_node": 1, "thread_siblings": [2, "x"]}]}}});
        let devices = details(&found, &Map::new()).devices;
        let lines: Vec<String> = devices.pci.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(lines, ["0000:3a:00.0 060400 8086:2030 - - -", "0000:3b:00.0 030200 10de:2330 - - 1"]);
        let numa = devices.numa.unwrap();
        let nodes: Vec<_> = numa.iter().map(|node| (node.node, node.cpus.as_deref(), node.memory_mebibytes)).collect();
        assert_eq!(nodes, [(0, Some("0-1,4-5"), Some(32768)), (1, Some("2"), Some(65536))]);
        assert_eq!(devices.started, Some(Started { uefi: true, secure_boot: None }));
        found["plugin_data"] = json!({});
        let devices = details(&found, &Map::new()).devices;
        assert_eq!((devices.pci, devices.numa, devices.tpm), (None, None, None));
    }

    #[test]
    fn nonsense_is_bounded() {
        let many: Vec<Value> =
            (0..5000).map(|n| json!({"name": "x".repeat(10_000), "size": n, "rotational": "perhaps"})).collect();
        let hardware =
            details(&json!({"inventory": {"disks": many, "cpu": 7, "interfaces": {}}}), &Map::new()).hardware;
        assert_eq!(hardware.storage.len(), MOST);
        assert!(hardware.storage[0].name.as_ref().unwrap().len() == LONGEST && hardware.nics.is_empty());
    }
}
