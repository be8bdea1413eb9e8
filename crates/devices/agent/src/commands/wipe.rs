//! Metadata cleaning: signatures, partition tables, marks, boot entries.

use agent_protocol::{DiskMark, ErrorCode, Outcome, Phase, Progress, WipeDisks};
use disk_image::{read_partitions, wipe_metadata};

use super::Failure;
use super::marks::{OpenDisk, check_disk, check_firmware};
use crate::efi::boot::{self, LABEL_PREFIX};
use crate::efi::{device_path, owner};
use crate::facts;
use crate::machine::Machine;

const ACTION: &str = "wiping the disks";

/// Wipes every disk, or none: all are opened and looked at before the first is touched.
pub(super) fn wipe(machine: &dyn Machine, command: &WipeDisks, report: &dyn Fn(Progress)) -> Result<Outcome, Failure> {
    let variables = machine.variables();
    check_firmware(&variables, &command.mark, ACTION)?;
    let found = facts::disks(machine.tree()).into_iter();
    let disks: Vec<OpenDisk> = found.map(|facts| OpenDisk::open(machine, facts)).collect::<Result<_, _>>()?;
    disks.iter().try_for_each(|disk| check_disk(disk, &command.mark, ACTION))?;
    if command.requires_mark {
        shows_mark(&disks, &command.mark)?;
    }
    let (mut guids, mut names) = (Vec::new(), Vec::new());
    for (index, disk) in disks.iter().enumerate() {
        let percent = u8::try_from(100 * index / disks.len()).unwrap_or(100);
        report(Progress { phase: Phase::Wiping, percent, ..Progress::default() });
        guids.extend(partition_guids(disk).unwrap_or_default());
        let failed = |error| Failure::of_image(&format!("wiping {}", disk.facts.name()), &error);
        wipe_metadata(disk.disk.as_ref()).map_err(failed)?;
        tracing::info!("wiped {}", disk.facts.name());
        names.push(disk.facts.name());
    }
    // the firmware's mark goes last: an agent that is cut off before comes here again
    if variables.available() {
        let ours = |entry: &boot::BootEntry| {
            let partition = device_path::partition(&entry.option.path);
            entry.option.description.starts_with(LABEL_PREFIX)
                || partition.is_some_and(|partition| guids.contains(&partition.guid))
        };
        let gone = boot::remove(&variables, &ours).map_err(|error| Failure::of_firmware(&error))?;
        if !gone.is_empty() {
            tracing::info!("removed the boot entries {}", gone.join(", "));
        }
        owner::remove(&variables).map_err(|error| Failure::of_firmware(&error))?;
    }
    Ok(Outcome::Wiped { disks: names })
}

/// Fails unless one of the disks carries the owner's mark: then it is the machine that was provisioned.
fn shows_mark(disks: &[OpenDisk], mark: &DiskMark) -> Result<(), Failure> {
    for disk in disks {
        if disk.owner()?.is_some_and(|(owner, _)| owner == mark.owner) {
            return Ok(());
        }
    }
    let text = format!(
        "{ACTION} was refused: none of the {} disks carries the mark of this host, {}, so that this may be another machine; nothing was \
         changed",
        disks.len(),
        mark.owner
    );
    Err(Failure::new(ErrorCode::NoOwnMark, text))
}

/// Unique GUIDs of a disk's partitions, as boot entries name them; `None` when they cannot be read.
pub(super) fn partition_guids(disk: &OpenDisk) -> Option<Vec<[u8; 16]>> {
    let table = read_partitions(disk.disk.as_ref()).ok()?;
    let partitions = table.map(|table| table.partitions).unwrap_or_default();
    Some(partitions.iter().filter_map(|partition| partition.unique).map(|unique| unique.to_bytes_le()).collect())
}
