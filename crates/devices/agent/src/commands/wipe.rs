//! Metadata cleaning: signatures, partition tables, marks, boot entries.

use std::time::{Duration, Instant};

use agent_protocol::{DiskMark, ErrorCode, LeftDisk, Outcome, Phase, Progress, WipeDisks};
use disk_image::{read_partitions, wipe_metadata};
use inventory::{RootDeviceHints, Storage};

use super::failure::Failure;
use super::marks::{Found, OpenDisk, all_may_go};
use super::runner::Runner;
use super::shared::{Tell, goes_on, left_alone, reached_by};
use crate::efi::boot::{self, LABEL_PREFIX};
use crate::efi::{EfiVariables, device_path, owner};
use crate::facts;
use crate::machine::Machine;

const ACTION: &str = "wiping the disks";

/// Most disks that a message names.
const MAX_NAMED: usize = 12;

/// How often disks that are not there yet are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Wipes every disk of the machine's own, or none: all are opened and looked at before the first is touched.
pub(super) fn wipe(runner: &Runner, command: &WipeDisks, report: Tell<'_>) -> Result<Outcome, Failure> {
    let machine = runner.machine.as_ref();
    let variables = machine.variables();
    let in_firmware = Found::in_firmware(&variables)?;
    let present = awaited(runner, ACTION, &|disks| missing(command.expected.as_ref(), &command.named, disks))?;
    let (disks, left) = sort(machine, present, command)?;
    for disk in &left {
        tracing::warn!("leaves {} as it is: {}", disk.disk, disk.why);
    }
    let on_disks = disks.iter().filter_map(|disk| Found::on(disk).transpose()).collect::<Result<Vec<_>, _>>()?;
    all_may_go(in_firmware.into_iter().chain(on_disks), &command.mark, ACTION)?;
    let marked = owned(&disks, &command.mark)?;
    if command.requires_mark && !marked.contains(&true) {
        let witness = owner::read(&variables).map_err(|error| Failure::of_firmware(&error))?;
        if witness.is_none_or(|found| found.owner != command.mark.owner) {
            is_blank(&disks, &command.mark)?;
        }
    }
    // Marked disks come last: after an interruption, the next agent still finds a mark.
    let mut disks: Vec<(bool, OpenDisk)> = marked.into_iter().zip(disks).collect();
    disks.sort_by_key(|(marked, _)| *marked);
    let disks: Vec<OpenDisk> = disks.into_iter().map(|(_, disk)| disk).collect();
    let (mut guids, mut names) = (Vec::new(), Vec::new());
    for (index, disk) in disks.iter().enumerate() {
        let percent = u8::try_from(100 * index / disks.len()).unwrap_or(100);
        let name = disk.facts.name();
        goes_on(report, Progress { phase: Phase::Wiping, percent, disk: name.clone(), ..Progress::default() })?;
        guids.extend(partition_guids(disk).unwrap_or_default());
        let failed = |error| Failure::of_image(&format!("wiping {name}"), &error);
        wipe_metadata(disk.disk.as_ref()).map_err(failed)?;
        tracing::info!("wiped {name}");
        names.push(name);
    }
    // the firmware's mark comes last: after an interruption, the next wipe gets here again
    forget_boots(&variables, &guids, true)?;
    Ok(Outcome::Wiped { disks: names, left })
}

/// Removes this server's boot entries and those of these partitions, and, last, the firmware's mark.
pub(super) fn forget_boots(variables: &EfiVariables, guids: &[[u8; 16]], with_mark: bool) -> Result<(), Failure> {
    if !variables.available() {
        return Ok(());
    }
    let ours = |entry: &boot::BootEntry| {
        let partition = device_path::partition(&entry.option.path);
        with_mark && entry.option.description.starts_with(LABEL_PREFIX)
            || partition.is_some_and(|partition| guids.contains(&partition.guid))
    };
    let gone = boot::remove(variables, &ours).map_err(|error| Failure::of_firmware(&error))?;
    if !gone.is_empty() {
        tracing::info!("removed the boot entries {}", gone.join(", "));
    }
    if with_mark {
        owner::remove(variables).map_err(|error| Failure::of_firmware(&error))?;
    }
    Ok(())
}

/// Waits for the disks that must be present, which may appear late, by what `missing` says of those that are; returns all disks.
pub(super) fn awaited(
    runner: &Runner,
    action: &str,
    missing: &dyn Fn(&[facts::Disk]) -> Option<String>,
) -> Result<Vec<facts::Disk>, Failure> {
    let begun = Instant::now();
    loop {
        let disks = facts::disks(runner.machine.tree());
        match missing(&disks) {
            None => return Ok(disks),
            Some(what) if begun.elapsed() >= runner.patience => {
                let text = format!("{action} was refused: {what}; nothing was changed");
                return Err(Failure::new(ErrorCode::NoDisk, text));
            }
            Some(_) => std::thread::sleep(LOOK_AGAIN.min(runner.patience)),
        }
    }
}

/// The absent disks, as text.
pub(super) fn missing(
    expected: Option<&Vec<Storage>>,
    named: &RootDeviceHints,
    present: &[facts::Disk],
) -> Option<String> {
    let present: Vec<Storage> = present.iter().map(|disk| disk.storage.clone()).collect();
    let Some(expected) = expected else {
        let text = "no disk was found, and no inspection says that the machine has none";
        return present.is_empty().then(|| text.to_owned());
    };
    let absent = inventory::absent(expected, &present, named);
    if absent.is_empty() {
        return None;
    }
    let found = if present.is_empty() { "none".to_owned() } else { list(present.iter()) };
    let (count, all) = (absent.len(), expected.len());
    let absent = list(absent.into_iter());
    Some(format!("{count} of the {all} disks that the inspection found are absent: {absent}; present: {found}"))
}

/// The disks' names, not too many of them.
fn list<'a>(disks: impl ExactSizeIterator<Item = &'a Storage>) -> String {
    let more = disks.len().saturating_sub(MAX_NAMED);
    let names: Vec<String> = disks.take(MAX_NAMED).map(Storage::describe).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// Splits the disks into those to wipe, opened, and those left untouched because other machines may use them and the hints do not name them.
fn sort(
    machine: &dyn Machine,
    found: Vec<facts::Disk>,
    command: &WipeDisks,
) -> Result<(Vec<OpenDisk>, Vec<LeftDisk>), Failure> {
    let (mut disks, mut left) = (Vec::new(), Vec::new());
    for facts in found {
        let (name, network) = (facts.name(), facts.network);
        let named = command.named.names(&facts.storage, command.expected.as_deref().unwrap_or_default());
        let looked = OpenDisk::open(machine, facts).and_then(|disk| {
            let why = if named { None } else { left_alone(&disk, &command.mark.owner)? };
            Ok((disk, why))
        });
        match (looked, network) {
            (Ok((disk, None)), _) => disks.push(disk),
            (Ok((_, Some(why))), _) => left.push(LeftDisk { disk: name, why }),
            // a shared disk need not open
            (Err(_), Some(network)) if !named => left.push(LeftDisk { disk: name, why: reached_by(network) }),
            (Err(failure), _) => return Err(failure),
        }
    }
    Ok((disks, left))
}

/// Which disks carry the owner's mark.
fn owned(disks: &[OpenDisk], mark: &DiskMark) -> Result<Vec<bool>, Failure> {
    disks.iter().map(|disk| Ok(disk.owner()?.is_some_and(|(owner, _)| owner == mark.owner))).collect()
}

/// How much of a disk's beginning must be zero for it to count as blank.
const LOOKED_AT: usize = 1 << 20;

/// Fails unless all disks are blank.
fn is_blank(disks: &[OpenDisk], mark: &DiskMark) -> Result<(), Failure> {
    for disk in disks {
        let size = usize::try_from(disk.disk.size()).unwrap_or(usize::MAX).min(LOOKED_AT);
        let mut start = vec![0; size];
        let failed = |error| Failure::of_image(&format!("reading {}", disk.facts.name()), &error);
        disk.disk.read_at(0, &mut start).map_err(failed)?;
        if start.iter().any(|byte| *byte != 0) {
            let text = format!(
                "{ACTION} was refused: none of the {} disks carries the mark of this host, {}, and {} is not blank, so that this may be \
                 another's machine; nothing was changed",
                disks.len(),
                mark.owner,
                disk.facts.name()
            );
            return Err(Failure::new(ErrorCode::NoOwnMark, text));
        }
    }
    Ok(())
}

/// Unique GUIDs of a disk's partitions, as boot entries name them; `None` when they cannot be read.
pub(super) fn partition_guids(disk: &OpenDisk) -> Option<Vec<[u8; 16]>> {
    let table = read_partitions(disk.disk.as_ref()).ok()?;
    let partitions = table.map(|table| table.partitions).unwrap_or_default();
    Some(partitions.iter().filter_map(|partition| partition.unique).map(|unique| unique.to_bytes_le()).collect())
}
