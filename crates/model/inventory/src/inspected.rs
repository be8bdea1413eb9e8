//! The result of an inspection, and who has seen it.
//!
//! # Facts of a BMC, and facts of a system
//!
//! A machine is inspected by a system that runs on it (the agent), or only by its BMC (`spec.inspectionMode: fast`). Upstream's `HardwareDetails` has no
//! field that says which. The facts say it themselves: a system gives its host name, the processors' flags, and the kernel's names of disks and
//! interfaces; no BMC knows any of these ([`HardwareDetails::is_from_system`]). So nothing has to be remembered beside the facts, and nothing is lost
//! when they are moved, restored or copied.
//!
//! The rule for everybody who uses the facts: **what a BMC lists is there; what it does not list may be there all the same.** Many list neither disks nor
//! interfaces while the machine is off, and the drives behind a RAID controller are not the disks that a system sees. Therefore, of a BMC's facts:
//!
//! - a boot MAC address that no listed interface has is worth a warning, and keeps no host from being prepared (`host-lifecycle`, `boot_mac`);
//! - its disks are not what a wipe expects to find: that is what an agent has found before, if one has; otherwise a wipe on a machine that shows no disk at
//!   all fails, unless nothing but live ISOs has run there and the BMC lists no disk either (`provisioner-metamorph`, `deploy`);
//! - they are no evidence of what the agent has seen, and no agent is held against them (`provisioner-metamorph`, `identity`);
//! - an architecture, a maker and a model that are listed count as those of an agent do;
//! - `rootDeviceHints` are matched by the agent, on the disks that it finds.

use serde::{Deserialize, Serialize};

use crate::{Devices, HardwareDetails, LinkReport};

/// A part of the hardware that an inspection looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// `cpu`.
    Processors,
    /// `ramMebibytes`.
    Memory,
    /// `storage`.
    Disks,
    /// `nics`.
    Interfaces,
    /// `firmware`.
    Firmware,
    /// `systemVendor`.
    Vendor,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Processors => "processors",
            Self::Memory => "memory",
            Self::Disks => "disks",
            Self::Interfaces => "network interfaces",
            Self::Firmware => "firmware",
            Self::Vendor => "maker",
        })
    }
}

/// What an inspection has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspected {
    /// The facts.
    pub hardware: HardwareDetails,
    /// Parts that were not listed, or not completely: there may be more of them than `hardware` has. Sorted; empty for an agent, which sees all that its
    /// system has drivers for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_listed: Vec<Part>,
    /// What has become of listening for LLDP on the machine's ports; empty where nobody has listened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkReport>,
    /// What there is that upstream's facts have no fields for; nothing where nobody has looked for it.
    #[serde(default)]
    pub devices: Devices,
}

impl From<HardwareDetails> for Inspected {
    fn from(hardware: HardwareDetails) -> Self {
        Self { hardware, ..Self::default() }
    }
}

impl Inspected {
    /// The parts that were not listed completely, with commas; `None` if there are none.
    #[must_use]
    pub fn gaps(&self) -> Option<String> {
        let names: Vec<String> = self.not_listed.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl HardwareDetails {
    /// Whether a system that ran on the machine has seen this, and not only its BMC; see the module's rule. Facts that somebody has declared count as a
    /// system's if they name a disk or an interface. A disk's name is the kernel's if it is a path (`/dev/sda`), an interface's if it is a short
    /// word in lower case: baremetal-operator gives the Redfish names there ("Disk 0", "NIC.Slot.1-1") when it has inspected fast.
    #[must_use]
    pub fn is_from_system(&self) -> bool {
        let given = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
        given(&self.hostname)
            || self.cpu.as_ref().is_some_and(|cpu| !cpu.flags.is_empty())
            || self.nics.iter().any(|nic| nic.name.as_deref().is_some_and(is_interface))
            || self.storage.iter().any(|disk| disk.name.as_ref().is_some_and(|name| name.starts_with("/dev/")))
    }
}

/// Longest name of an interface (Linux `IFNAMSIZ` without its end).
const INTERFACE: usize = 15;

/// Whether a kernel may have named an interface so, and a BMC would hardly.
fn is_interface(name: &str) -> bool {
    let is_of_it = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.@:".contains(&c);
    name.len() <= INTERFACE && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(is_of_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Nic, Storage};

    #[test]
    fn facts_with_a_name_of_the_kernel_are_a_systems() {
        let bmc = HardwareDetails {
            cpu: Some(Cpu { arch: Some("x86_64".into()), count: Some(8), ..Cpu::default() }),
            nics: vec![Nic { mac: Some("00:1b:21:aa:bb:01".into()), ..Nic::default() }],
            storage: vec![Storage { serial_number: Some("S1".into()), ..Storage::default() }],
            ..HardwareDetails::default()
        };
        assert!(!bmc.is_from_system() && !HardwareDetails::default().is_from_system());
        let name = || Some("eno1".to_owned());
        let nic = |name: &str| Nic { name: Some(name.to_owned()), ..Nic::default() };
        let disk = |name: &str| Storage { name: Some(name.to_owned()), ..Storage::default() };
        let cpu = Cpu { flags: vec!["vmx".into()], ..Cpu::default() };
        for (what, system) in [
            ("host name", HardwareDetails { hostname: name(), ..bmc.clone() }),
            ("flags", HardwareDetails { cpu: Some(cpu), ..bmc.clone() }),
            ("interface", HardwareDetails { nics: vec![nic("eno1")], ..bmc.clone() }),
            ("disk", HardwareDetails { storage: vec![disk("/dev/sda")], ..bmc.clone() }),
        ] {
            assert!(system.is_from_system(), "{what}");
        }
        for redfish in ["Disk 0", "NIC.Slot.1-1", "1", "Ethernet Interface", ""] {
            let fast = HardwareDetails { storage: vec![disk(redfish)], nics: vec![nic(redfish)], ..bmc.clone() };
            assert!(!fast.is_from_system(), "baremetal-operator's name: {redfish}");
        }
        assert!(!HardwareDetails { hostname: Some(String::new()), ..bmc }.is_from_system(), "an empty name is none");
    }

    #[test]
    fn gaps_are_told_in_words() {
        let mut found = Inspected::from(HardwareDetails::default());
        assert_eq!(found.gaps(), None);
        found.not_listed = vec![Part::Disks, Part::Interfaces];
        assert_eq!(found.gaps().as_deref(), Some("disks, network interfaces"));
    }
}
