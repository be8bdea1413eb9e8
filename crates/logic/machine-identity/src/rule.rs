//! The rule.

use std::collections::BTreeSet;

use inventory::{BmcPin, MachineEvidence};
use sha2::{Digest, Sha256};

use crate::{Common, normal};

/// What a comparison comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The machine that was recorded. `drift` says what differs nonetheless, a clause each.
    Match {
        /// Empty if nothing does.
        drift: Vec<String>,
    },
    /// Another machine; each difference is a clause: "serial number ABC, recorded DEF".
    Mismatch {
        /// At least one.
        differences: Vec<String>,
    },
    /// Nothing that both show can decide.
    Unknown,
}

/// One kind of evidence in both observations.
enum Pair {
    /// At least one does not show it.
    Unseen,
    Equal,
    Different(String),
}

impl Pair {
    fn of(
        what: &str,
        recorded: Option<&str>,
        seen: Option<&str>,
        normal: impl Fn(&str) -> Option<String>,
        common: &Common,
    ) -> Self {
        let usable = |text: Option<&str>| text.and_then(&normal).filter(|value| !common.contains(value));
        match (usable(recorded), usable(seen)) {
            (Some(before), Some(now)) if before == now => Self::Equal,
            (Some(_), Some(_)) => {
                Self::Different(format!("{what} {}, recorded {}", printable(seen), printable(recorded)))
            }
            _ => Self::Unseen,
        }
    }
}

/// A value for a message, whatever it holds.
fn printable(text: Option<&str>) -> String {
    text.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(64).collect()
}

fn macs(evidence: &MachineEvidence) -> BTreeSet<String> {
    evidence.macs.iter().filter_map(|mac| normal::mac(mac)).collect()
}

fn disks(evidence: &MachineEvidence) -> BTreeSet<String> {
    evidence.disks.iter().filter_map(|disk| normal::serial(disk)).collect()
}

/// Whether a source that showed `recorded` before shows the same machine now.
#[must_use]
pub fn compare(recorded: &MachineEvidence, seen: &MachineEvidence, common: &Common) -> Finding {
    let uuid = Pair::of("UUID", recorded.system_uuid.as_deref(), seen.system_uuid.as_deref(), normal::uuid, common);
    let serial = Pair::of(
        "serial number",
        recorded.serial_number.as_deref(),
        seen.serial_number.as_deref(),
        normal::serial,
        common,
    );
    let (before, now) = (macs(recorded), macs(seen));
    let visible = !before.is_empty() && !now.is_empty();
    let mut differences = Vec::new();
    let mut equal = false;
    for pair in [uuid, serial] {
        match pair {
            Pair::Equal => equal = true,
            Pair::Different(text) => differences.push(text),
            Pair::Unseen => {}
        }
    }
    let no_mac_left = visible && before.is_disjoint(&now);
    let foreign_macs = || format!("none of the {} MAC addresses recorded is there", before.len());
    match (equal, differences.is_empty()) {
        (true, true) => Finding::Match { drift: no_mac_left.then(foreign_macs).into_iter().collect() },
        (false, false) => Finding::Mismatch { differences },
        _ if !visible => Finding::Unknown,
        _ if no_mac_left => {
            differences.push(foreign_macs());
            Finding::Mismatch { differences }
        }
        _ => Finding::Match { drift: differences },
    }
}

/// Makers whose BMCs tell the serial number that SMBIOS has (for a Dell, the service tag in both: [`MachineEvidence::serial_number`]).
const SERIAL_IN_SMBIOS: [&str; 7] = ["dell", "hpe", "hewlett", "lenovo", "fujitsu", "cisco", "qemu"];

fn serial_in_smbios(evidence: &MachineEvidence) -> bool {
    let maker = evidence.manufacturer.as_deref().unwrap_or_default().to_lowercase();
    SERIAL_IN_SMBIOS.iter().any(|known| maker.starts_with(known))
}

/// What of one source's evidence may be held against another source's: MACs, and the serial number of makers that tell the same one in
/// both places.
#[must_use]
pub fn comparable(evidence: &MachineEvidence) -> MachineEvidence {
    MachineEvidence {
        serial_number: evidence.serial_number.clone().filter(|_| serial_in_smbios(evidence)),
        macs: evidence.macs.clone(),
        ..MachineEvidence::default()
    }
}

/// Whether what one source recorded speaks for what the other sees: `true` if a UUID, a MAC or, for makers known to tell the same one in
/// both places, a serial number is equal. `false` proves nothing.
#[must_use]
pub fn across(recorded: &MachineEvidence, seen: &MachineEvidence, common: &Common) -> bool {
    let mut seen = seen.clone();
    if !serial_in_smbios(recorded) && !serial_in_smbios(&seen) {
        seen.serial_number = None;
    }
    if !macs(recorded).is_disjoint(&macs(&seen)) {
        return true;
    }
    seen.macs.clear();
    let pairs = [
        Pair::of("", recorded.system_uuid.as_deref(), seen.system_uuid.as_deref(), normal::uuid, common),
        Pair::of("", recorded.serial_number.as_deref(), seen.serial_number.as_deref(), normal::serial, common),
    ];
    pairs.iter().any(|pair| matches!(pair, Pair::Equal))
}

/// Whether a BMC shows, before anybody signs in, at least one part of what is recorded of it. Where nothing is recorded, any BMC does.
#[must_use]
pub fn holds(recorded: &BmcPin, seen: &BmcPin) -> bool {
    let before = parts(recorded);
    before.is_empty() || !before.is_disjoint(&parts(seen))
}

/// What is known of a BMC after it has shown itself once more.
#[must_use]
pub fn merged(recorded: &BmcPin, seen: &BmcPin) -> BmcPin {
    BmcPin {
        service_uuid: seen.service_uuid.clone().or_else(|| recorded.service_uuid.clone()),
        key_sha256: seen.key_sha256.clone().or_else(|| recorded.key_sha256.clone()),
    }
}

/// Whether any of it can tell the machine from others.
#[must_use]
pub fn tells(evidence: &MachineEvidence) -> bool {
    evidence.system_uuid.as_deref().and_then(normal::uuid).is_some()
        || evidence.serial_number.as_deref().and_then(normal::serial).is_some()
        || !macs(evidence).is_empty()
}

/// Whether the pin holds anything by which a BMC can be told from others of its kind.
#[must_use]
pub fn is_pinned(pin: &BmcPin) -> bool {
    !parts(pin).is_empty()
}

fn parts(pin: &BmcPin) -> BTreeSet<String> {
    let service = |text: &str| normal::uuid(text).or_else(|| normal::serial(text).filter(|_| !normal::is_uuid(text)));
    let uuid = pin.service_uuid.as_deref().and_then(service).map(|value| format!("service {value}"));
    let key = pin.key_sha256.as_ref().map(|value| format!("key {}", value.to_ascii_lowercase()));
    uuid.into_iter().chain(key).collect()
}

/// A short name of a BMC, for consent, like [`fingerprint`].
#[must_use]
pub fn fingerprint_of_bmc(seen: &BmcPin) -> String {
    short(&parts(seen).into_iter().collect::<Vec<_>>().join("\n"))
}

/// Whether `written` names anything by which a machine is told from others that `recorded` does not name.
#[must_use]
pub fn names_more(recorded: &MachineEvidence, written: &MachineEvidence) -> bool {
    let uuid = |evidence: &MachineEvidence| evidence.system_uuid.as_deref().and_then(normal::uuid);
    let serial = |evidence: &MachineEvidence| evidence.serial_number.as_deref().and_then(normal::serial);
    let is_new = |before: Option<String>, now: Option<String>| now.is_some() && before != now;
    is_new(uuid(recorded), uuid(written))
        || is_new(serial(recorded), serial(written))
        || !macs(written).is_subset(&macs(recorded))
}

/// The same of a BMC.
#[must_use]
pub fn pins_more(recorded: &BmcPin, written: &BmcPin) -> bool {
    !parts(written).is_subset(&parts(recorded))
}

/// How much of a machine is still there when its identity is not: a new mainboard keeps disks, a new machine keeps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// MAC addresses recorded, and how many of them are still there.
    pub macs: (usize, usize),
    /// Disks recorded, and how many of them are still there.
    pub disks: (usize, usize),
}

impl std::fmt::Display for Survivors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((macs, macs_left), (disks, disks_left)) = (self.macs, self.disks);
        write!(
            f,
            "{macs_left} of {macs} MAC addresses and {disks_left} of {disks} serial numbers and WWNs of disks recorded are there"
        )
    }
}

/// Counts what is left of the recorded machine.
#[must_use]
pub fn survivors(recorded: &MachineEvidence, seen: &MachineEvidence) -> Survivors {
    let count = |before: &BTreeSet<String>, now: &BTreeSet<String>| (before.len(), before.intersection(now).count());
    Survivors { macs: count(&macs(recorded), &macs(seen)), disks: count(&disks(recorded), &disks(seen)) }
}

/// A short name of what a machine shows, for consent: 16 hexadecimal digits in groups of four. It changes with the UUID, the serial number
/// and, where there is neither, the MACs; not with the order or the writing of any of them.
#[must_use]
pub fn fingerprint(seen: &MachineEvidence) -> String {
    let mut lines = Vec::new();
    lines.extend(seen.system_uuid.as_deref().and_then(normal::uuid).map(|value| format!("uuid {value}")));
    lines.extend(seen.serial_number.as_deref().and_then(normal::serial).map(|value| format!("serial {value}")));
    if lines.is_empty() {
        lines.extend(macs(seen).into_iter().map(|value| format!("mac {value}")));
    }
    short(&lines.join("\n"))
}

/// The first 64 bits of a digest, in groups.
fn short(text: &str) -> String {
    let digits = hex::encode(&Sha256::digest(text.as_bytes())[..8]);
    digits.as_bytes().chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join("-")
}
