//! Ownership of the machine: marks on disks and in firmware, and which of them may be overwritten.

use agent_protocol::{DiskMark, ErrorCode};
use disk_image::{Disk, MarkFound, read_mark, read_partitions};

use super::failure::Failure;
use crate::efi::{EfiVariables, owner};
use crate::facts;
use crate::machine::Machine;

/// A disk opened exclusively.
pub(super) struct OpenDisk {
    pub(super) facts: facts::Disk,
    pub(super) disk: Box<dyn Disk>,
}

impl OpenDisk {
    pub(super) fn open(machine: &dyn Machine, facts: facts::Disk) -> Result<Self, Failure> {
        let attempt = format!("opening {} for this agent alone", facts.name());
        let disk = machine.open_disk(&facts.device).map_err(|error| Failure::of_image(&attempt, &error))?;
        Ok(Self { facts, disk })
    }

    /// Whether this very operation has written the disk to its end: the mark is made visible with the partition table, when the image is verified.
    pub(super) fn is_written_by(&self, mark: &DiskMark) -> Result<bool, Failure> {
        let attempt = || format!("reading the owner's mark of {}", self.facts.name());
        let found = read_mark(self.disk.as_ref()).map_err(|error| Failure::of_image(&attempt(), &error))?;
        // The table at the disk's beginning becomes visible last: a mark that only the backup table reveals belongs to an interrupted write.
        let table = read_partitions(self.disk.as_ref()).map_err(|error| Failure::of_image(&attempt(), &error))?;
        if table.is_none_or(|table| table.primary_damaged) {
            return Ok(false);
        }
        let is_own = |found: &disk_image::Mark| found.owner == mark.owner && found.operation == mark.operation;
        Ok(!mark.operation.is_empty() && matches!(found, MarkFound::Owner(found) if is_own(&found)))
    }

    /// Owner and host from the disk's mark; an unreadable mark counts as an unknown owner's.
    pub(super) fn owner(&self) -> Result<Option<(String, String)>, Failure> {
        let attempt = || format!("reading the owner's mark of {}", self.facts.name());
        match read_mark(self.disk.as_ref()).map_err(|error| Failure::of_image(&attempt(), &error))? {
            MarkFound::None => Ok(None),
            MarkFound::Owner(mark) => Ok(Some((mark.owner, mark.host))),
            MarkFound::Damaged { reason, .. } => {
                tracing::warn!("the owner's mark of {} cannot be read: {reason}", self.facts.name());
                Ok(Some((owner::UNREADABLE.to_owned(), String::new())))
            }
        }
    }
}

/// A mark that was found.
pub(super) struct Found {
    place: String,
    owner: String,
    host: String,
}

/// Most marks that a message names.
const MAX_NAMED: usize = 12;

impl Found {
    /// Any software on the machine may have written the mark. A name with other characters counts as unreadable: consent can still refer to it, and
    /// it cannot inject text into messages.
    fn new(place: String, owner: String, host: String) -> Self {
        let owner = if is_name(&owner) { owner } else { owner::UNREADABLE.to_owned() };
        let host = if is_name(&host) { host } else { String::new() };
        Self { place, owner, host }
    }

    /// The mark of a disk.
    pub(super) fn on(disk: &OpenDisk) -> Result<Option<Self>, Failure> {
        let found = disk.owner()?;
        Ok(found.map(|(owner, host)| Self::new(disk.facts.name(), owner, host)))
    }

    /// The mark in the firmware's variable.
    pub(super) fn in_firmware(variables: &EfiVariables) -> Result<Option<Self>, Failure> {
        let found = owner::read(variables).map_err(|error| Failure::of_firmware(&error))?;
        Ok(found.map(|mark| Self::new("the firmware".to_owned(), mark.owner, mark.host)))
    }

    /// Whether it may be overwritten: it is ours, or consent names it, by its owner or by its host, as messages show both.
    fn may_go(&self, mark: &DiskMark) -> bool {
        let named = |name: &str| name == self.owner || (!self.host.is_empty() && name == self.host);
        self.owner == mark.owner || consents(mark).any(named)
    }
}

/// Longest Kubernetes name, with a namespace before it.
const MAX_NAME: usize = 253 + 64;

/// Letters, digits, and the separators in ids and in `namespace/name`.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:/".contains(c);
    text == owner::UNREADABLE || (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_allowed)
}

/// The owners and hosts that consent names, separated by commas or blanks.
fn consents(mark: &DiskMark) -> impl Iterator<Item = &str> {
    let given = mark.consent.as_deref().unwrap_or_default();
    given.split([',', ' ', '\t', '\n']).filter(|name| !name.is_empty())
}

/// Fails when one of these marks is another owner's without consent; the message names all that are, so that one consent can.
pub(super) fn all_may_go(found: impl IntoIterator<Item = Found>, mark: &DiskMark, action: &str) -> Result<(), Failure> {
    let foreign: Vec<Found> = found.into_iter().filter(|found| !found.may_go(mark)).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    let whose = |found: &Found| {
        let host = if found.host.is_empty() { String::new() } else { format!(" (host {})", found.host) };
        format!("{} carries the mark of another owner, {}{host}", found.place, found.owner)
    };
    let named = foreign.iter().take(MAX_NAMED).map(whose).collect::<Vec<_>>().join("; ");
    let mut owners: Vec<&str> = foreign.iter().map(|found| found.owner.as_str()).collect();
    owners.sort_unstable();
    owners.dedup();
    let given = consents(mark).take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    let given = if given.is_empty() { given } else { format!("; the consent that was given names {given}") };
    Err(Failure::new(
        ErrorCode::ForeignOwner,
        format!(
            "{action} was refused: {named}; nothing was changed{given}. If such a machine is no longer in use, give consent that names this \
             owner: {}",
            owners.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(",")
        ),
    ))
}

/// Fails when the disk carries a foreign mark without consent.
pub(super) fn check_disk(disk: &OpenDisk, mark: &DiskMark, action: &str) -> Result<(), Failure> {
    all_may_go(Found::on(disk)?, mark, action)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(place: &str, owner: &str, host: &str) -> Found {
        Found { place: place.into(), owner: owner.into(), host: host.into() }
    }

    fn judged(consent: Option<&str>) -> Result<(), String> {
        let mark = DiskMark { owner: "me".into(), consent: consent.map(Into::into), ..DiskMark::default() };
        let all = [found("sda", "me", "ns/me"), found("sdb", "a", "ns/a"), found("the firmware", "b", "")];
        all_may_go(all, &mark, "writing").map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_mark_that_is_no_name_is_unreadable_and_consent_can_name_it() {
        for forged in ["a,b", "x y", "", "ä", "a\nb", &"x".repeat(400)] {
            let found = Found::new("sda".into(), forged.into(), forged.into());
            assert_eq!((found.owner.as_str(), found.host.as_str()), (owner::UNREADABLE, ""), "{forged}");
            let mark = DiskMark { owner: "me".into(), consent: Some(owner::UNREADABLE.into()), ..DiskMark::default() };
            assert!(all_may_go([found], &mark, "writing").is_ok());
        }
        let sound = Found::new("sda".into(), "4c4c4544-0047-3710".into(), "ns/node-0.rack".into());
        assert_eq!((sound.owner.as_str(), sound.host.as_str()), ("4c4c4544-0047-3710", "ns/node-0.rack"));
    }

    #[test]
    fn one_consent_names_all_foreign_marks_by_owner_or_host() {
        for consent in ["a,b", "b a", " ns/a,\tb,", "b,ns/a,c"] {
            assert_eq!(judged(Some(consent)), Ok(()), "{consent}");
        }
        let all = judged(None).unwrap_err();
        assert!(all.contains("sdb carries") && all.contains("(host ns/a)") && all.ends_with("owner: a,b"), "{all}");
        assert!(!all.contains("sda"), "{all}");
        let rest = judged(Some("a")).unwrap_err();
        assert!(rest.ends_with("owner: b") && rest.contains("consent that was given names a."), "{rest}");
        let wrong = judged(Some("ns/nobody")).unwrap_err();
        assert!(wrong.contains("names ns/nobody") && wrong.ends_with("owner: a,b"), "{wrong}");
    }
}
