//! How the machine differs from what its HardwareData says: pure.
//!
//! A list that says nothing of a kind of part is no sign that they are gone: only where the BMC lists some disks, or some ports with addresses, are others missed.

use diagnosis::{Change, Difference, Part, PartKind};
use inventory::HardwareDetails;

/// What is missing, by serial numbers of disks and addresses of network ports.
pub fn differences(before: &HardwareDetails, parts: &[Part]) -> Vec<Difference> {
    let mut found = Vec::new();
    let drives: Vec<String> = of(parts, PartKind::Drive).filter_map(|part| plain(part.serial.as_deref()?)).collect();
    if !drives.is_empty() {
        for disk in &before.storage {
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
    if !ports.is_empty() {
        let mut told: Vec<String> = Vec::new();
        for nic in &before.nics {
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
    use inventory::{Nic, Storage};

    use super::*;

    fn part(kind: PartKind, serial: &str) -> Part {
        match kind {
            PartKind::NetworkPort => Part { kind, mac: Some(serial.into()), ..Part::default() },
            _ => Part { kind, serial: Some(serial.into()), ..Part::default() },
        }
    }

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
        let found = differences(&machine(), &parts);
        let told: Vec<(PartKind, Option<&str>)> = found.iter().map(|one| (one.kind, one.serial.as_deref())).collect();
        assert_eq!(told, [(PartKind::Drive, Some("S-2")), (PartKind::NetworkPort, Some("52:54:00:00:00:02"))]);
    }

    #[test]
    fn a_list_that_says_nothing_is_no_loss() {
        assert_eq!(differences(&machine(), &[]), []);
        assert_eq!(differences(&HardwareDetails::default(), &[part(PartKind::Drive, "x")]), []);
    }

    #[test]
    fn a_place_that_is_empty_is_no_part() {
        let mut absent = part(PartKind::Drive, "S-2");
        absent.state = Some("Absent".into());
        assert_eq!(differences(&machine(), &[part(PartKind::Drive, "S-1"), absent]).len(), 1);
    }
}
