//! How the machine differs from what its HardwareData says: pure.
//!
//! A list that says nothing of a kind of part is no sign that they are gone: only of a kind of which each part was read, and of which the BMC shows at least one that the host
//! had, are others missed. What a BMC does not list at all is left out: what the system sees of an array behind a RAID controller, and network cards by USB.

use diagnosis::{Change, Difference, Part, PartKind};
use inventory::{HardwareDetails, Storage};

/// What is missing, by serial numbers of disks and addresses of network ports.
pub fn differences(before: &HardwareDetails, parts: &[Part], whole: &[PartKind]) -> Vec<Difference> {
    let mut found = Vec::new();
    let drives: Vec<String> = of(parts, PartKind::Drive).filter_map(|part| plain(part.serial.as_deref()?)).collect();
    let had = |shown: &[String], text: Option<&str>| text.and_then(plain).is_some_and(|text| shown.contains(&text));
    if whole.contains(&PartKind::Drive) && before.storage.iter().any(|disk| had(&drives, disk.serial_number.as_deref()))
    {
        for disk in before.storage.iter().filter(|disk| !is_array(disk)) {
            let Some(serial) = disk.serial_number.as_deref().and_then(plain) else { continue };
            if !drives.contains(&serial) {
                let model = disk.model.clone().unwrap_or_default();
                found.push(missing(
                    PartKind::Drive,
                    disk.name.clone().unwrap_or_default(),
                    disk.serial_number.clone(),
                    model,
                ));
            }
        }
    }
    let ports: Vec<String> = of(parts, PartKind::NetworkPort).filter_map(|part| plain(part.mac.as_deref()?)).collect();
    if whole.contains(&PartKind::NetworkPort) && before.nics.iter().any(|nic| had(&ports, nic.mac.as_deref())) {
        let mut told: Vec<String> = Vec::new();
        let is_usb = |name: Option<&String>| name.is_some_and(|name| name.starts_with("usb") || name.contains("idrac"));
        for nic in before.nics.iter().filter(|nic| !is_usb(nic.name.as_ref())) {
            let Some(mac) = nic.mac.as_deref().and_then(plain) else { continue };
            if !ports.contains(&mac) && !told.contains(&mac) {
                found.push(missing(
                    PartKind::NetworkPort,
                    nic.name.clone().unwrap_or_default(),
                    nic.mac.clone(),
                    mac.clone(),
                ));
                told.push(mac);
            }
        }
    }
    found
}

/// What a RAID controller shows of several disks, by the words of makers.
fn is_array(disk: &Storage) -> bool {
    let words = [disk.model.as_deref(), disk.vendor.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let words = words.to_ascii_lowercase();
    ["perc", "raid", "logical volume", "virtual disk", "megaraid", "smart array", "avago", "broadcom"]
        .iter()
        .any(|word| words.contains(word))
}

fn missing(kind: PartKind, slot: String, serial: Option<String>, was: String) -> Difference {
    Difference { kind, change: Change::Missing, slot, serial, was, is: "not listed by the BMC".to_owned() }
}

fn of(parts: &[Part], kind: PartKind) -> impl Iterator<Item = &Part> {
    parts.iter().filter(move |part| part.kind == kind && part.state.as_deref() != Some("Absent"))
}

/// Letters and digits alone, in one case: makers write serial numbers and addresses with signs and blanks of their own.
fn plain(text: &str) -> Option<String> {
    let plain: String = text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    (!plain.is_empty()).then_some(plain)
}

#[cfg(test)]
mod tests {
    use inventory::Nic;

    use super::*;

    fn part(kind: PartKind, serial: &str) -> Part {
        match kind {
            PartKind::NetworkPort => Part { kind, mac: Some(serial.into()), ..Part::default() },
            _ => Part { kind, serial: Some(serial.into()), ..Part::default() },
        }
    }

    const BOTH: [PartKind; 2] = [PartKind::Drive, PartKind::NetworkPort];

    fn machine() -> HardwareDetails {
        let disk = |serial: &str| Storage {
            serial_number: Some(serial.into()),
            name: Some(format!("/dev/{serial}")),
            ..Storage::default()
        };
        let nic = |mac: &str| Nic { mac: Some(mac.into()), ..Nic::default() };
        HardwareDetails {
            storage: vec![disk("S-1"), disk("S-2"), Storage::default()],
            nics: vec![nic("52:54:00:00:00:01"), nic("52:54:00:00:00:02"), nic("52:54:00:00:00:02")],
            ..HardwareDetails::default()
        }
    }

    #[test]
    fn what_was_there_and_is_not_listed_among_others_is_missing() {
        let parts = [part(PartKind::Drive, "s1"), part(PartKind::NetworkPort, "52:54:00:00:00:01")];
        let found = differences(&machine(), &parts, &BOTH);
        let told: Vec<(PartKind, Option<&str>)> = found.iter().map(|one| (one.kind, one.serial.as_deref())).collect();
        assert_eq!(told, [(PartKind::Drive, Some("S-2")), (PartKind::NetworkPort, Some("52:54:00:00:00:02"))]);
    }

    #[test]
    fn a_list_that_says_nothing_is_no_loss() {
        assert_eq!(differences(&machine(), &[], &BOTH), []);
        assert_eq!(differences(&HardwareDetails::default(), &[part(PartKind::Drive, "x")], &BOTH), []);
    }

    #[test]
    fn what_was_not_read_or_is_shown_by_no_bmc_is_not_missing() {
        let parts = [part(PartKind::Drive, "s1"), part(PartKind::NetworkPort, "52:54:00:00:00:01")];
        assert_eq!(differences(&machine(), &parts, &[]), []);
        assert_eq!(differences(&machine(), &parts, &[PartKind::Drive]).len(), 1);
        // Behind a RAID controller the system sees other serial numbers than the BMC.
        let behind = [part(PartKind::Drive, "physical-1"), part(PartKind::Drive, "physical-2")];
        assert_eq!(differences(&machine(), &behind, &BOTH), []);
        let mut mixed = machine();
        mixed.storage[1].model = Some("PERC H740P Adapter".into());
        mixed.nics[1].name = Some("usb0".into());
        mixed.nics.truncate(2);
        assert_eq!(differences(&mixed, &parts, &BOTH), []);
    }

    #[test]
    fn a_place_that_is_empty_is_no_part() {
        let mut absent = part(PartKind::Drive, "S-2");
        absent.state = Some("Absent".into());
        assert_eq!(differences(&machine(), &[part(PartKind::Drive, "S-1"), absent], &BOTH).len(), 1);
    }
}
