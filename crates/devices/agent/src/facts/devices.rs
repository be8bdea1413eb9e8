//! PCI devices, the TPM and NUMA nodes, from `/sys`.
//!
//! Sources: Linux `Documentation/ABI/testing/sysfs-bus-pci` and `sysfs-class-tpm`, `Documentation/ABI/stable/sysfs-devices-node`; TCG TPM 2.0 Library, part 2 (6.13
//! `TPM_PT`) and part 3 (30.2 `TPM2_GetCapability`); TCG ACPI specification (tables `TPM2` and `TCPA`).

use inventory::{Devices, NumaNode, PciDevice, Started, Tpm};

use super::by_path::is_pci_address;
use crate::efi::EfiVariables;
use crate::machine::Facts;
use crate::tree::{Tree, clean};

const PCI: &str = "sys/bus/pci/devices";
const NODES: &str = "sys/devices/system/node";
const TABLES: &str = "sys/firmware/acpi/tables";
/// Most functions and nodes that are looked at.
const MAX_FUNCTIONS: usize = 2048;
const MAX_NODES: usize = 512;
/// Most bytes of a list of processors.
const MAX_LIST: u64 = 4096;

/// `TPM2_GetCapability` of one property, `TPM_PT_MANUFACTURER`, without a session.
const ASK_MANUFACTURER: [u8; 22] = [
    0x80, 0x01, 0, 0, 0, 22, 0, 0, 0x01, 0x7A, // tag, size, command
    0, 0, 0, 0x06, 0, 0, 0x01, 0x05, 0, 0, 0, 1, // TPM_CAP_TPM_PROPERTIES, the property, one of them
];

/// What there is beside upstream's facts, of a machine that was started by UEFI or not. What cannot be looked for is absent.
#[must_use]
pub(super) fn collect(machine: &(impl Facts + ?Sized), uefi: bool) -> Devices {
    let tree = machine.tree();
    let variables: EfiVariables = machine.variables();
    Devices {
        pci: pci(tree),
        tpm: tpm(machine),
        numa: numa(tree),
        started: Some(Started { uefi, secure_boot: Some(uefi && variables.secure_boot()) }),
        ..Devices::default()
    }
    .bounded()
}

/// PCI functions by address; `None` where the kernel has no such bus.
fn pci(tree: &Tree) -> Option<Vec<PciDevice>> {
    if !tree.exists(PCI) {
        return None;
    }
    let names = tree.names(PCI).into_iter().filter(|name| is_pci_address(name)).take(MAX_FUNCTIONS);
    Some(names.filter_map(|name| function(tree, name)).collect())
}

fn function(tree: &Tree, address: String) -> Option<PciDevice> {
    let base = format!("{PCI}/{address}");
    let id = |name: &str| {
        let text = tree.text(&format!("{base}/{name}"))?.to_ascii_lowercase();
        text.strip_prefix("0x").map(ToOwned::to_owned)
    };
    // A bridge has no subsystem, and some firmware leaves it at zero.
    let subsystem = id("subsystem_vendor").zip(id("subsystem_device")).filter(|(vendor, _)| vendor != "0000");
    let driver = tree.resolve(&format!("{base}/driver"));
    let (class, vendor, device) = (id("class")?, id("vendor")?, id("device")?);
    let numa_node = tree.number(&format!("{base}/numa_node")).and_then(|node| u32::try_from(node).ok());
    let driver = driver.and_then(|path| Some(path.rsplit('/').next()?.to_owned()));
    Some(PciDevice { address, class, vendor, device, subsystem, driver, numa_node })
}

/// The TPM: by its driver, or where there is none by the firmware's ACPI tables, which also tell that there is none.
fn tpm(machine: &(impl Facts + ?Sized)) -> Option<Tpm> {
    let tree = machine.tree();
    if let Some(name) = tree.names("sys/class/tpm").into_iter().next() {
        let version = match tree.number(&format!("sys/class/tpm/{name}/tpm_version_major")) {
            Some(1) => Some("1.2"),
            Some(2) => Some("2.0"),
            _ => None,
        };
        let manufacturer = match version {
            Some("1.2") => tree.text(&format!("sys/class/tpm/{name}/device/caps")).as_deref().and_then(of_caps),
            _ => machine.tpm_answer(&name, &ASK_MANUFACTURER).as_deref().and_then(of_answer),
        };
        return Some(Tpm { present: true, version: version.map(ToOwned::to_owned), manufacturer });
    }
    let version = [("TPM2", "2.0"), ("TCPA", "1.2")].into_iter();
    let version = version.filter(|(table, _)| tree.exists(&format!("{TABLES}/{table}"))).map(|(_, version)| version);
    match version.map(ToOwned::to_owned).next() {
        Some(version) => Some(Tpm { present: true, version: Some(version), manufacturer: None }),
        // Without any table it is no firmware that would tell of one.
        None => tree.exists(&format!("{TABLES}/FACP")).then(Tpm::default),
    }
}

/// The maker by a TPM 1.2's `caps`: `Manufacturer: 0x49465800`.
fn of_caps(caps: &str) -> Option<String> {
    let line = caps.lines().find_map(|line| line.trim().strip_prefix("Manufacturer:"))?;
    letters(u32::from_str_radix(line.trim().strip_prefix("0x")?, 16).ok()?)
}

/// The maker by the answer to [`ASK_MANUFACTURER`]: header of 10 bytes with the code 0, whether there is more, capability, count 1, property, value.
fn of_answer(answer: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u32::from_be_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let is_it = word(6)? == 0 && word(11)? == 6 && word(15)? >= 1 && word(19)? == 0x105;
    if is_it { letters(word(23)?) } else { None }
}

/// Four letters in a number.
fn letters(number: u32) -> Option<String> {
    let bytes = number.to_be_bytes();
    let text: String = bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    let text = text.trim().to_owned();
    (!text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())).then_some(text)
}

/// NUMA nodes by number; `None` where the kernel has none of it.
fn numa(tree: &Tree) -> Option<Vec<NumaNode>> {
    let names = tree.names(NODES).into_iter();
    let mut nodes: Vec<NumaNode> = names
        .filter_map(|name| {
            let node = name.strip_prefix("node")?.parse::<u32>().ok()?;
            // A node of memory alone has an empty one.
            let cpus = tree.bytes(&format!("{NODES}/{name}/cpulist"), MAX_LIST).map(|bytes| clean(&bytes));
            Some(NumaNode { node, cpus, memory_mebibytes: memory(tree, &name) })
        })
        .take(MAX_NODES)
        .collect();
    nodes.sort_by_key(|node| node.node);
    (!nodes.is_empty()).then_some(nodes)
}

/// `Node 0 MemTotal:       32768000 kB`, in MiB.
fn memory(tree: &Tree, name: &str) -> Option<i64> {
    let text = tree.text(&format!("{NODES}/{name}/meminfo"))?;
    let line = text.lines().find_map(|line| line.split_once("MemTotal:").map(|(_, rest)| rest.trim().to_owned()))?;
    Some(line.strip_suffix("kB")?.trim().parse::<i64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;

    /// A tree, and a TPM that answers.
    struct Machine(Tree, Option<Vec<u8>>);

    impl Facts for Machine {
        fn tree(&self) -> &Tree {
            &self.0
        }

        fn tpm_answer(&self, device: &str, command: &[u8]) -> Option<Vec<u8>> {
            assert_eq!((device, command.len(), command.get(5)), ("tpm0", 22, Some(&22)));
            self.1.clone()
        }
    }

    fn found(files: &[(&str, &str)], answer: Option<&[u8]>) -> Devices {
        let folder = tempfile::tempdir().unwrap();
        plant(folder.path(), files);
        collect(&Machine(Tree::new(folder.path()), answer.map(<[u8]>::to_vec)), false)
    }

    #[test]
    fn a_machine_without_any_of_it_tells_nothing_and_not_none() {
        let nothing = found(&[("proc/cmdline", "")], None);
        assert_eq!((nothing.pci.clone(), nothing.tpm.clone(), nothing.numa.clone()), (None, None, None));
        assert_eq!(nothing.started, Some(Started { uefi: false, secure_boot: Some(false) }));
        let bare = found(&[("sys/bus/pci/devices/x", ""), ("sys/firmware/acpi/tables/FACP", "")], None);
        assert_eq!((bare.pci, bare.tpm), (Some(Vec::new()), Some(Tpm::default())));
    }

    #[test]
    fn functions_are_lines_with_driver_and_node() {
        let folder = tempfile::tempdir().unwrap();
        let (gpu, bridge) = ("sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", "sys/devices/pci0000:3a/0000:3a:00.0");
        let file = |base: &str, name: &str, text: &str| plant(folder.path(), &[(&format!("{base}/{name}"), text)]);
        for (base, class, vendor, device) in
            [(gpu, "0x030200", "0x10DE", "0x2330"), (bridge, "0x060400", "0x8086", "0x2030")]
        {
            file(base, "class", &format!("{class}\n"));
            file(base, "vendor", &format!("{vendor}\n"));
            file(base, "device", &format!("{device}\n"));
        }
        file(gpu, "subsystem_vendor", "0x10de\n");
        file(gpu, "subsystem_device", "0x16c1\n");
        file(gpu, "numa_node", "1\n");
        file(bridge, "numa_node", "-1\n");
        file(bridge, "subsystem_vendor", "0x0000\n");
        file(bridge, "subsystem_device", "0x0000\n");
        file("sys/devices/pci0000:3a/0000:3a:01.0", "vendor", "0x8086\n");
        file("sys/bus/pci/drivers/nouveau", "new_id", "");
        std::fs::create_dir_all(folder.path().join(PCI)).unwrap();
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, folder.path().join(at)).unwrap();
        link("../../../../bus/pci/drivers/nouveau", &format!("{gpu}/driver"));
        for (name, place) in [
            ("0000:3b:00.0", "pci0000:3a/0000:3a:00.0/0000:3b:00.0"),
            ("0000:3a:00.0", "pci0000:3a/0000:3a:00.0"),
            ("0000:3a:01.0", "pci0000:3a/0000:3a:01.0"),
        ] {
            link(&format!("../../../devices/{place}"), &format!("{PCI}/{name}"));
        }
        let found = collect(&Machine(Tree::new(folder.path()), None), false);
        let lines: Vec<String> = found.pci.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["0000:3a:00.0 060400 8086:2030 - - -", "0000:3b:00.0 030200 10de:2330 10de:16c1 nouveau 1"],
            "sorted; one without a class is no function"
        );
        assert_eq!(found.gpus().map(|gpus| gpus.len()), Some(1));
    }

    #[test]
    fn a_tpm_tells_its_version_and_its_maker() {
        let answer = |code: u8, property: u8, letters: &[u8]| {
            let head = [0x80, 1, 0, 0, 0, 27, 0, 0, 0, code, 0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 1, property];
            [&head[..], letters].concat()
        };
        let two = [("sys/class/tpm/tpm0/tpm_version_major", "2\n")];
        let tpm = |version: &str, manufacturer: Option<&str>| {
            let manufacturer = manufacturer.map(ToOwned::to_owned);
            Some(Tpm { present: true, version: Some(version.to_owned()), manufacturer })
        };
        assert_eq!(found(&two, Some(&answer(0, 5, b"IFX\0"))).tpm, tpm("2.0", Some("IFX")));
        assert_eq!(found(&two, Some(&answer(0, 5, b"STM "))).tpm, tpm("2.0", Some("STM")));
        for wrong in [answer(1, 5, b"IFX\0"), answer(0, 6, b"IFX\0"), answer(0, 5, b"\x01\x02\0\0"), answer(0, 5, b"I")]
        {
            assert_eq!(found(&two, Some(&wrong)).tpm, tpm("2.0", None), "{wrong:?}");
        }
        assert_eq!(found(&two, None).tpm, tpm("2.0", None));
        let caps = "Manufacturer: 0x49465800\nTCG version: 1.2\nFirmware version: 3.17\n";
        let one = [("sys/class/tpm/tpm0/tpm_version_major", "1\n"), ("sys/class/tpm/tpm0/device/caps", caps)];
        assert_eq!(found(&one, None).tpm, tpm("1.2", Some("IFX")));
        // Without a driver the firmware's tables tell.
        assert_eq!(found(&[("sys/firmware/acpi/tables/TPM2", "x")], None).tpm, tpm("2.0", None));
        assert_eq!(found(&[("sys/firmware/acpi/tables/TCPA", "x")], None).tpm, tpm("1.2", None));
    }

    #[test]
    fn nodes_have_processors_and_memory() {
        let files = [
            ("sys/devices/system/node/node10/cpulist", "8-11\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/node2/meminfo", "\nNode 2 MemTotal:       65536000 kB\nNode 2 MemFree: 1 kB\n"),
            ("sys/devices/system/node/node3/distance", "10\n"),
            ("sys/devices/system/node/online", "0\n"),
            ("sys/devices/system/node/nodes", "x"),
        ];
        let node = |node, cpus: Option<&str>, memory_mebibytes| NumaNode {
            node,
            cpus: cpus.map(Into::into),
            memory_mebibytes,
        };
        assert_eq!(
            found(&files, None).numa,
            Some(vec![node(2, Some(""), Some(64000)), node(3, None, None), node(10, Some("8-11"), None)])
        );
    }
}
