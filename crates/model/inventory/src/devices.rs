//! What a machine has that upstream's `HardwareDetails` has no fields for: PCI devices and with them GPUs, a TPM, NUMA nodes, and how its firmware has started it.
//!
//! It is an annotation of the HardwareData, as JSON. **What nobody has looked for is absent, and never empty**: an inspection by an earlier agent, or by the BMC alone, says
//! nothing of PCI devices, and that is no machine without GPUs. What has no room is counted, and whoever needs the whole list has none then.
//!
//! A PCI device is a line, as people know them from `lspci -n`: address, class, vendor and device, the same of its subsystem, driver, NUMA node; `-` is what it does not have.
//!
//! ```text
//! 0000:3b:00.0 030200 10de:2330 10de:16c1 nvidia 1
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use terms::clean;

/// Most PCI devices that are told of. Machines with two sockets have some hundred, most of them parts of the processors.
const MAX_PCI: usize = 512;
/// Most bytes of their lines.
const MAX_PCI_BYTES: usize = 48 << 10;
/// Most NUMA nodes, and most GPUs that a BMC lists.
const MAX_NODES: usize = 64;
const MAX_LISTED: usize = 64;
/// Longest list of a node's processors, longest name of a driver, longest other text; characters.
const MAX_CPUS: usize = 1024;
const MAX_DRIVER: usize = 32;
const MAX_TEXT: usize = 64;
/// Most bytes of an annotation that are read.
const MAX_READ: usize = 160 << 10;

/// Display controllers that show a management controller's or a hypervisor's screen, and compute nothing: vendor, and device where the vendor makes others, too (pci-ids.ucw.cz).
const SCREENS: [(&str, Option<&str>); 11] = [
    ("1a03", None),
    ("102b", None),
    ("19e5", Some("1711")),
    ("18ca", None),
    ("1002", Some("515e")),
    ("1013", None),
    ("1234", Some("1111")),
    ("1b36", None),
    ("1af4", None),
    ("15ad", None),
    ("1414", None),
];

/// A function of a PCI device. Numbers are lower-case hexadecimal digits without prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciDevice {
    /// `0000:3b:00.0`.
    pub address: String,
    /// Class, subclass and programming interface: `030200`.
    pub class: String,
    /// Vendor: `10de`.
    pub vendor: String,
    /// Device, a number of the vendor's.
    pub device: String,
    /// Vendor and device of the subsystem: who has made the card.
    pub subsystem: Option<(String, String)>,
    /// The driver that the inspecting system has for it.
    pub driver: Option<String>,
    /// NUMA node that it is near to.
    pub numa_node: Option<u32>,
}

impl PciDevice {
    /// Whether it computes: a display controller (class 03) or a processing accelerator (class 12), and not the screen of a management controller or a virtual machine.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        let is_screen =
            || SCREENS.iter().any(|(v, d)| self.vendor == *v && d.is_none_or(|device| self.device == device));
        self.class.starts_with("12") || self.class.starts_with("03") && !is_screen()
    }

    /// How soon it is left out where there is no room: bridges and the processors' own parts first, GPUs last.
    fn rank(&self) -> u8 {
        match self.class.get(..2) {
            _ if self.is_gpu() => 0,
            Some("01" | "02" | "03" | "0b" | "10") => 1,
            Some("05" | "06" | "08" | "11") => 3,
            _ => 2,
        }
    }

    fn is_sound(&self) -> bool {
        let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let hex = |text: &str, length| text.len() == length && text.bytes().all(digit);
        let address = |text: &str| {
            let parts: Vec<&str> = text.split([':', '.']).collect();
            matches!(parts[..], [domain, bus, device, function]
                if (4..=8).contains(&domain.len()) && hex(domain, domain.len()) && hex(bus, 2) && hex(device, 2) && hex(function, 1))
        };
        let subsystem = self.subsystem.as_ref().is_none_or(|(vendor, device)| hex(vendor, 4) && hex(device, 4));
        address(&self.address) && hex(&self.class, 6) && hex(&self.vendor, 4) && hex(&self.device, 4) && subsystem
    }
}

impl fmt::Display for PciDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, class, vendor, device, .. } = self;
        write!(f, "{address} {class} {vendor}:{device} ")?;
        match &self.subsystem {
            Some((vendor, device)) => write!(f, "{vendor}:{device}")?,
            None => f.write_str("-")?,
        }
        write!(f, " {} ", self.driver.as_deref().unwrap_or("-"))?;
        match self.numa_node {
            Some(node) => write!(f, "{node}"),
            None => f.write_str("-"),
        }
    }
}

impl From<PciDevice> for String {
    fn from(device: PciDevice) -> Self {
        device.to_string()
    }
}

impl FromStr for PciDevice {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("{:?} is no PCI device", clean(line, MAX_TEXT));
        let words: Vec<&str> = line.split(' ').take(7).collect();
        let [address, class, ids, subsystem, driver, node] = words[..] else { return Err(wrong()) };
        let pair = |text: &str| text.split_once(':').map(|(one, other)| (one.to_owned(), other.to_owned()));
        let (vendor, device) = pair(ids).ok_or_else(wrong)?;
        let known = |text: &str| (text != "-").then(|| text.to_owned());
        let found = Self {
            address: address.to_owned(),
            class: class.to_owned(),
            vendor,
            device,
            subsystem: if subsystem == "-" { None } else { Some(pair(subsystem).ok_or_else(wrong)?) },
            driver: known(driver),
            numa_node: known(node).map(|node| node.parse()).transpose().map_err(|_| wrong())?,
        };
        if found.is_sound() { Ok(found) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for PciDevice {
    type Error = String;

    fn try_from(line: String) -> Result<Self, String> {
        line.parse()
    }
}

/// A GPU as a BMC lists it (Redfish `Processor` of the type `GPU` or `Accelerator`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListedGpu {
    /// Maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Whether there is a TPM, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpm {
    /// There is one that the system can use.
    pub present: bool,
    /// `1.2` or `2.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The maker's letters as the TPM tells them (TCG TPM Vendor ID Registry): `IFX`, `STM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its processors by number, as the kernel writes lists: `0-15,32-47`; empty for one that has memory alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Memory that the kernel has there, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mebibytes: Option<i64>,
}

impl NumaNode {
    /// How many processors it has; `None` if that is not known.
    #[must_use]
    pub fn cpu_count(&self) -> Option<i64> {
        let mut count = 0_i64;
        for part in self.cpus.as_ref()?.split(',').filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (low.parse::<u32>().ok()?, high.parse::<u32>().ok()?);
            count += i64::from(high.checked_sub(low)?) + 1;
        }
        Some(count)
    }
}

/// How the firmware has started the machine that was inspected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// By UEFI, not by a BIOS.
    pub uefi: bool,
    /// Secure Boot was in force; `None` if the system could not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// PCI devices by address, if a system has looked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Vec<PciDevice>>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pci_left_out: u32,
    /// GPUs that a BMC lists. There may be more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed_gpus: Vec<ListedGpu>,
    /// The TPM, if it is known whether there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Tpm>,
    /// NUMA nodes by number, if a system has looked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<Vec<NumaNode>>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numa_left_out: u32,
    /// How the machine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Started>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Devices {
    /// The facts such as can be shown and written: of a bounded size and in one order, whoever tells them.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let (pci, pci_left_out) = match &self.pci {
            Some(all) => {
                let (kept, left) = bounded_pci(all);
                (Some(kept), self.pci_left_out.saturating_add(left))
            }
            None => (None, 0),
        };
        let (numa, numa_left_out) = match &self.numa {
            Some(all) => {
                let (kept, left) = bounded_nodes(all);
                (Some(kept), self.numa_left_out.saturating_add(left))
            }
            None => (None, 0),
        };
        let short =
            |text: &Option<String>| text.as_ref().map(|text| clean(text, MAX_TEXT)).filter(|text| !text.is_empty());
        let listed = self.listed_gpus.iter().take(MAX_LISTED);
        let mut listed_gpus: Vec<ListedGpu> =
            listed.map(|gpu| ListedGpu { manufacturer: short(&gpu.manufacturer), model: short(&gpu.model) }).collect();
        listed_gpus.sort();
        let tpm = self.tpm.as_ref().map(|tpm| Tpm {
            present: tpm.present,
            version: short(&tpm.version),
            manufacturer: short(&tpm.manufacturer),
        });
        Self { pci, pci_left_out, listed_gpus, tpm, numa, numa_left_out, started: self.started }
    }

    /// The annotation; `None` if nothing is known.
    #[must_use]
    pub fn annotation(&self) -> Option<String> {
        let known = self.bounded();
        if known == Self::default() { None } else { serde_json::to_string(&known).ok() }
    }

    /// What such an annotation says. One that is none says nothing: anybody may edit it.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let read = (text.len() <= MAX_READ).then(|| serde_json::from_str::<Self>(text).ok()).flatten();
        read.map(|read| read.bounded()).unwrap_or_default()
    }

    /// All GPUs and other accelerators; `None` if it is not known whether these are all.
    #[must_use]
    pub fn gpus(&self) -> Option<Vec<&PciDevice>> {
        let all = self.pci.as_ref()?;
        let gpus: Vec<&PciDevice> = all.iter().filter(|device| device.is_gpu()).collect();
        // They are the last to be left out.
        let is_whole = self.pci_left_out == 0 || gpus.len() < all.len();
        is_whole.then_some(gpus)
    }

    /// All of it in a few words; `None` if nothing is known.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let many = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let mut said = Vec::new();
        said.extend(self.gpus().map(|gpus| many(gpus.len(), "GPU")));
        if !self.listed_gpus.is_empty() {
            said.push(format!("{} listed", many(self.listed_gpus.len(), "GPU")));
        }
        said.extend(self.pci.as_ref().map(|all| {
            let more = match self.pci_left_out {
                0 => String::new(),
                more => format!(" ({more} more were left out)"),
            };
            format!("{}{more}", many(all.len(), "PCI device"))
        }));
        said.extend(self.tpm.as_ref().map(|tpm| match (&tpm.version, tpm.present) {
            (_, false) => "no TPM".to_owned(),
            (Some(version), true) => format!("TPM {version}"),
            (None, true) => "a TPM".to_owned(),
        }));
        said.extend(self.numa.as_ref().map(|nodes| many(nodes.len(), "NUMA node")));
        (!said.is_empty()).then(|| said.join(", "))
    }
}

fn bounded_pci(all: &[PciDevice]) -> (Vec<PciDevice>, u32) {
    let is_word = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
    let mut sound: Vec<PciDevice> = all.iter().filter(|device| device.is_sound()).cloned().collect();
    for device in &mut sound {
        let word = |text: String| text.chars().filter(is_word).take(MAX_DRIVER).collect::<String>();
        device.driver = device.driver.take().map(word).filter(|word| !word.is_empty() && word != "-");
    }
    sound.sort_by(|one, other| one.address.cmp(&other.address));
    sound.dedup_by(|one, other| one.address == other.address);
    let found = sound.len();
    sound.sort_by_key(PciDevice::rank);
    let mut room = MAX_PCI_BYTES;
    let fits = |device: &PciDevice| {
        // With its quotes and comma.
        let left = room.checked_sub(device.to_string().len() + 3);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let mut kept: Vec<PciDevice> = sound.into_iter().take(MAX_PCI).take_while(fits).collect();
    kept.sort_by(|one, other| one.address.cmp(&other.address));
    let left = u32::try_from(found - kept.len()).unwrap_or(u32::MAX);
    (kept, left)
}

fn bounded_nodes(all: &[NumaNode]) -> (Vec<NumaNode>, u32) {
    let mut nodes: Vec<NumaNode> = all.to_vec();
    nodes.sort_by_key(|node| node.node);
    nodes.dedup_by_key(|node| node.node);
    let left = u32::try_from(nodes.len().saturating_sub(MAX_NODES)).unwrap_or(u32::MAX);
    nodes.truncate(MAX_NODES);
    for node in &mut nodes {
        let is_list = |text: &String| {
            text.len() <= MAX_CPUS && text.bytes().all(|c| c.is_ascii_digit() || c == b',' || c == b'-')
        };
        node.cpus = node.cpus.take().filter(is_list);
        node.memory_mebibytes = node.memory_mebibytes.filter(|mebibytes| *mebibytes >= 0);
    }
    (nodes, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(at: usize, class: &str, vendor: &str) -> PciDevice {
        PciDevice {
            address: format!("0000:{:02x}:{:02x}.{}", at >> 8, (at >> 3) & 0x1f, at & 7),
            class: class.into(),
            vendor: vendor.into(),
            device: "2330".into(),
            ..PciDevice::default()
        }
    }

    #[test]
    fn a_device_is_a_line_and_back() {
        for line in [
            "0000:3b:00.0 030200 10de:2330 10de:16c1 nvidia 1",
            "0000:00:1f.3 0c0500 8086:a1a3 - i801_smbus -",
            "10000:e1:00.0 010802 144d:a80a 144d:a801 - 0",
        ] {
            assert_eq!(line.parse::<PciDevice>().unwrap().to_string(), line);
        }
        for wrong in [
            "",
            "0000:3b:00.0 030200 10de:2330 10de:16c1 nvidia",
            "0000:3b:00.0 030200 10de:2330 10de:16c1 nvidia 1 more",
            "0000:3b:00.0 030200 - - - -",
            "3b:00.0 030200 10de:2330 - - -",
            "0000:3b:00.0 0302 10de:2330 - - -",
            "0000:3b:00.0 030200 10dé:2330 - - -",
            "0000:3b:00.0 030200 10de:2330 16c1 - -",
            "0000:3b:00.0 030200 10de:2330 - - -1",
        ] {
            assert!(wrong.parse::<PciDevice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn gpus_are_what_computes() {
        for (class, vendor, expected) in [
            ("030200", "10de", true),
            ("030000", "10de", true),
            ("038000", "1002", true),
            ("120000", "1da3", true),
            ("030000", "1a03", false),
            ("030000", "102b", false),
            ("020000", "15b3", false),
        ] {
            assert_eq!(device(0, class, vendor).is_gpu(), expected, "{class} {vendor}");
        }
        let nothing = Devices::default();
        assert_eq!((nothing.gpus(), nothing.words(), nothing.annotation()), (None, None, None));
        let none = Devices { pci: Some(vec![device(0, "030000", "1a03")]), ..Devices::default() };
        assert_eq!(none.gpus(), Some(Vec::new()));
    }

    #[test]
    fn what_has_no_room_is_counted_and_gpus_go_last() {
        let bridges = (0..900).map(|at| device(at, "060400", "8086"));
        let gpus = (1000..1008).map(|at| device(at, "030200", "10de"));
        let all: Vec<PciDevice> = bridges.chain(gpus).collect();
        let found = Devices { pci: Some(all), ..Devices::default() };
        let kept = found.bounded();
        let (count, gpus) = (kept.pci.as_ref().unwrap().len(), kept.gpus().unwrap().len());
        assert_eq!((count, kept.pci_left_out, gpus), (MAX_PCI, 908 - MAX_PCI as u32, 8));
        let text = found.annotation().unwrap();
        assert!(text.len() < MAX_PCI_BYTES + 200, "{}", text.len());
        assert_eq!(Devices::read(&text), kept);
        assert_eq!(kept.bounded(), kept, "bounding it again changes nothing");
        assert!(kept.words().unwrap().starts_with("8 GPUs, 512 PCI devices (396 more were left out)"));
        // Of nothing but GPUs it is not known that these are all.
        let gpus: Vec<PciDevice> = (0..900).map(|at| device(at, "030200", "10de")).collect();
        assert_eq!(Devices { pci: Some(gpus), ..Devices::default() }.bounded().gpus(), None);
    }

    #[test]
    fn whatever_is_told_has_one_order_and_an_end() {
        let node = |node: u32, cpus: &str| NumaNode { node, cpus: Some(cpus.into()), memory_mebibytes: Some(-1) };
        let wild = Devices {
            pci: Some(vec![device(9, "020000", "8086"), device(1, "020000", "8086"), device(1, "020000", "8086"), {
                let mut odd = device(2, "020000", "8086");
                odd.driver = Some("a b\u{1b}[2J".repeat(99));
                odd
            }]),
            numa: Some((0..200).rev().map(|at| node(at, "0-3")).chain([node(5, "x;y")]).collect()),
            tpm: Some(Tpm { present: true, version: Some("2".repeat(999)), manufacturer: Some("\u{7}".into()) }),
            listed_gpus: vec![ListedGpu { model: Some("m".repeat(999)), manufacturer: None }; 999],
            ..Devices::default()
        };
        let kept = wild.bounded();
        let addresses: Vec<String> = kept.pci.iter().flatten().map(|device| device.address.clone()).collect();
        assert_eq!(addresses, ["0000:00:00.1", "0000:00:00.2", "0000:00:01.1"]);
        let driver = kept.pci.as_ref().unwrap()[1].driver.clone().unwrap();
        assert!(driver.len() == MAX_DRIVER && !driver.contains(' '), "{driver}");
        let numa = kept.numa.clone().unwrap();
        assert!(numa.len() == MAX_NODES && numa.is_sorted_by_key(|node| node.node) && kept.numa_left_out == 136);
        assert!(numa.iter().all(|node| node.memory_mebibytes.is_none()));
        assert_eq!((kept.listed_gpus.len(), kept.tpm.as_ref().unwrap().manufacturer.as_deref()), (MAX_LISTED, None));
        assert!(wild.annotation().unwrap().len() < MAX_READ);
        assert_eq!(kept.bounded(), kept);
        for nonsense in ["", "[]", "{\"pci\":[\"x\"]}", "{\"numa\":{}}", &"x".repeat(MAX_READ + 1)] {
            assert_eq!(Devices::read(nonsense), Devices::default());
        }
    }

    #[test]
    fn processors_of_a_node_are_counted() {
        let count = |cpus: &str| NumaNode { cpus: Some(cpus.into()), ..NumaNode::default() }.cpu_count();
        assert_eq!((count("0-15,32-47"), count("7"), count("")), (Some(32), Some(1), Some(0)));
        assert_eq!((count("9-1"), count("-"), count("0-4294967295,0-4294967295")), (None, None, Some(8_589_934_592)));
        assert_eq!(NumaNode::default().cpu_count(), None);
    }
}
