//! Whose machine is it? Marks on disks and in firmware, and what may be done in the face of them.

use agent_protocol::{DiskMark, ErrorCode};
use disk_image::{Disk, MarkFound, read_mark};

use super::Failure;
use crate::efi::{EfiVariables, owner};
use crate::facts;
use crate::machine::Machine;

/// A disk opened for nobody else.
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

    /// Owner and host by the disk's mark; one that cannot be read is an unknown owner's.
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

/// Whether `found` may be overwritten: it is ours, or the one that consent names.
fn may_go(mark: &DiskMark, found: &str) -> bool {
    found == mark.owner || mark.consent.as_deref() == Some(found)
}

fn foreign(place: &str, owner: &str, host: &str, action: &str) -> Failure {
    let whose = if host.is_empty() { String::new() } else { format!(" (host {host})") };
    Failure::new(
        ErrorCode::ForeignOwner,
        format!(
            "{action} was refused: {place} carries the mark of another owner, {owner}{whose}; nothing was changed. \
             If that machine is no longer in use, give consent that names this owner"
        ),
    )
}

/// Fails when the disk carries a foreign mark without consent.
pub(super) fn check_disk(disk: &OpenDisk, mark: &DiskMark, action: &str) -> Result<(), Failure> {
    match disk.owner()? {
        Some((owner, host)) if !may_go(mark, &owner) => Err(foreign(&disk.facts.name(), &owner, &host, action)),
        _ => Ok(()),
    }
}

/// Fails when the firmware's variable carries a foreign mark without consent.
pub(super) fn check_firmware(variables: &EfiVariables, mark: &DiskMark, action: &str) -> Result<(), Failure> {
    match owner::read(variables).map_err(|error| Failure::of_firmware(&error))? {
        Some(found) if !may_go(mark, &found.owner) => Err(foreign("the firmware", &found.owner, &found.host, action)),
        _ => Ok(()),
    }
}
