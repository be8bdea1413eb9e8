//! Writes an operating system: chooses the disk and checks its owner before it changes anything.

use agent_protocol::{ConfigDrive, DiskMark, ErrorCode, Outcome, Phase, Progress};
use agent_protocol::{WriteImage, WriteSummary};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disk_image::{
    BootArch, ConfigDriveFiles, Disk, Mark, MarkPlaced, WriteRequest, find_config_volumes, neutralise_config_volume,
    read_boot_info, write_config_drive, write_config_volume, write_image_then, write_mark,
};
use inventory::choose_root_disk;

use super::download::{Download, Opened, is_of_source};
use super::failure::Failure;
use super::marks::{Found, OpenDisk, all_may_go, check_disk};
use super::runner::Runner;
use super::shared::{Tell, goes_on, left_alone};
use super::wipe::partition_guids;
use crate::efi::device_path::{FilePath, HardDrive};
use crate::efi::{EfiVariables, boot, owner};
use crate::facts;
use crate::report::tls;

const ACTION: &str = "writing the image";

/// What a write begins with, when nothing has been changed yet.
struct Ready<'a> {
    drive: Option<Drive>,
    variables: EfiVariables,
    disk: OpenDisk,
    others: Vec<facts::Disk>,
    /// The image; none if this very operation has written the disk before.
    image: Option<(WriteRequest, Download<'a>, Opened)>,
}

/// Writes the image of a command; with `volume` as its config drive, if there is one.
pub(super) fn write(
    runner: &Runner,
    command: &WriteImage,
    volume: Option<Vec<u8>>,
    report: Tell<'_>,
) -> Result<Outcome, Failure> {
    let ready = ready(runner, command, volume, report).map_err(Failure::untouched)?;
    let Ready { drive, variables, disk, others, image } = ready;
    let Some((request, mut download, mut opened)) = image else {
        return written_before(runner, &disk, &others, (&command.mark, drive.is_some()), report);
    };
    let name = disk.facts.name();
    let mut warnings = Vec::new();
    // before the disk changes, so that a half-written machine already names its owner
    if variables.available()
        && let Err(error) = owner::write(&variables, &command.mark)
    {
        warnings.push(format!("the firmware did not take the owner's mark: {}", crate::text::chain(&error)));
    }
    tracing::info!("writes {} to {name}", addresses::text_without_secrets(&command.image.url));
    let mut edit_warnings = Vec::new();
    let (written, source) = loop {
        let from = opened.told.clone();
        let written = write_image_then(
            Box::new(opened.source),
            &request,
            disk.disk.as_ref(),
            &mut |progress| report(Progress { source: from.clone(), ..to_report(progress, &name) }),
            &mut |held| edit(held, drive.as_ref(), &command.mark, &mut edit_warnings),
        );
        let error = match written {
            Ok(written) => break (written, opened.told),
            Err(error) => error,
        };
        let failure = download.failed(&format!("{ACTION} to {name}"), &opened.address, &error);
        if !is_of_source(&error) {
            return Err(failure);
        }
        // What is on the disk is nothing yet: it has no partition table, and is begun anew.
        edit_warnings.clear();
        opened = download.next_after(failure)?;
        goes_on(report, Progress { phase: Phase::Starting, disk: name.clone(), ..Progress::default() })?;
    };
    warnings.append(&mut download.told());
    warnings.extend(written.warnings);
    warnings.append(&mut edit_warnings);
    if drive.is_some() {
        clean_others(runner, &disk, &others, &command.mark, &mut warnings);
    }
    goes_on(report, Progress { phase: Phase::BootEntry, percent: 100, disk: name.clone(), ..Progress::default() })?;
    let boot_entry = boot_entry(runner, &disk, &mut warnings)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(Outcome::Written(WriteSummary {
        disk: name,
        bytes_read: written.downloaded,
        image_bytes: written.image_size,
        digest: written.digest.to_string(),
        boot_entry,
        source,
        warnings,
    }))
}

/// Looks whether the image may and can be written; changes nothing, neither disk nor firmware.
fn ready<'a>(
    runner: &Runner,
    command: &'a WriteImage,
    volume: Option<Vec<u8>>,
    report: Tell<'_>,
) -> Result<Ready<'a>, Failure> {
    goes_on(report, Progress { phase: Phase::Starting, ..Progress::default() })?;
    let drive = match volume {
        Some(volume) => Some(Drive::Volume(volume)),
        None => command.config_drive.as_ref().map(config_drive).transpose()?.map(Drive::Files),
    };
    let variables = runner.machine.variables();
    let in_firmware = Found::in_firmware(&variables)?;
    let (disk, others) = choose(runner, command)?;
    all_may_go(in_firmware.into_iter().chain(Found::on(&disk)?), &command.mark, ACTION)?;
    let image = if disk.is_written_by(&command.mark)? {
        None
    } else {
        let tls = match runner.trusts_any {
            true => tls::unverified().map(|tls| (tls, 0)),
            false => tls::for_images(&runner.image_ca_pem, runner.clock.clone()),
        };
        let (tls, unusable) = tls.map_err(|error| Failure::internal(error.to_string()))?;
        if unusable > 0 {
            tracing::warn!("{unusable} of the certificate authorities for images cannot be used");
        }
        let mut download = Download::new(&command.image, tls, runner.handle.clone())?;
        let (request, opened) = download.open()?;
        goes_on(report, Progress { phase: Phase::Starting, disk: disk.facts.name(), ..Progress::default() })?;
        Some((request, download, opened))
    };
    Ok(Ready { drive, variables, disk, others, image })
}

/// The same operation has already written the disk completely, and the server does not know it, for example after a restore from a backup. A system
/// may have run from the disk since: its data stays.
fn written_before(
    runner: &Runner,
    disk: &OpenDisk,
    others: &[facts::Disk],
    (mark, needed): (&DiskMark, bool),
    report: Tell<'_>,
) -> Result<Outcome, Failure> {
    let name = disk.facts.name();
    goes_on(report, Progress { phase: Phase::BootEntry, percent: 100, disk: name.clone(), ..Progress::default() })?;
    let mut warnings = vec![format!(
        "{name} carries the mark of this very operation: it has been written before, and is left as it is"
    )];
    if needed {
        clean_others(runner, disk, others, mark, &mut warnings);
    }
    let boot_entry = boot_entry(runner, disk, &mut warnings)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(Outcome::Written(WriteSummary { disk: name, boot_entry, warnings, ..WriteSummary::default() }))
}

/// Chooses a disk by the hints; also returns the others. A disk that other machines may use is chosen only if the hints identify that very disk.
fn choose(runner: &Runner, command: &WriteImage) -> Result<(OpenDisk, Vec<facts::Disk>), Failure> {
    let hints = &command.root_device_hints;
    let mut disks = facts::disks(runner.machine.tree());
    let (mut others, mut left) = (Vec::new(), String::new());
    loop {
        let storage: Vec<_> = disks.iter().map(|disk| disk.storage.clone()).collect();
        let chosen = choose_root_disk(hints, &storage)
            .map_err(|error| Failure::new(ErrorCode::NoDisk, format!("{ACTION}: {error}{left}")))?;
        let index = storage.iter().position(|disk| std::ptr::eq(disk, chosen));
        let index =
            index.ok_or_else(|| Failure::new(ErrorCode::NoDisk, format!("{ACTION}: the chosen disk is gone")))?;
        let named = hints.names(chosen, &command.known);
        let disk = OpenDisk::open(runner.machine.as_ref(), disks.remove(index))?;
        let why = if named { None } else { left_alone(&disk, &command.mark.owner)? };
        let Some(why) = why else {
            others.append(&mut disks);
            return Ok((disk, others));
        };
        if left.is_empty() {
            left.push_str(
                "; left out, unless a hint names it by serial number, WWN or place (/dev/disk/by-path/…), or by the name or address that it had when it was inspected:",
            );
        }
        left.push_str(&format!(" {} ({why})", disk.facts.name()));
        others.push(disk.facts);
    }
}

/// The config drive: files for a volume of ours, or a volume as it is.
enum Drive {
    Files(DriveFiles),
    Volume(Vec<u8>),
}

/// The config drive's files, decoded.
struct DriveFiles {
    meta_data: Vec<u8>,
    network_data: Option<Vec<u8>>,
    user_data: Option<Vec<u8>>,
}

/// Decodes the files of the config drive.
fn config_drive(drive: &ConfigDrive) -> Result<DriveFiles, Failure> {
    let decode = |file: &str, text: &str| {
        STANDARD.decode(text).map_err(|error| {
            Failure::new(ErrorCode::Refused, format!("the config drive's {file} is not base64: {error}"))
        })
    };
    let optional = |file: &str, text: Option<&String>| text.map(|text| decode(file, text)).transpose();
    Ok(DriveFiles {
        meta_data: decode("meta_data.json", &drive.meta_data)?,
        network_data: optional("network_data.json", drive.network_data.as_ref())?,
        user_data: optional("user_data", drive.user_data.as_ref())?,
    })
}

/// Progress in the protocol's terms: of the download if its length is known, else of the write.
fn to_report(progress: &disk_image::Progress, disk: &str) -> Progress {
    let (done, all) = match (progress.download_total, progress.write_total) {
        _ if progress.phase == disk_image::Phase::Metadata => (0, 0),
        (Some(total), _) => (progress.downloaded, total),
        (None, Some(total)) => (progress.written, total),
        (None, None) => (0, 0),
    };
    let percent = if all == 0 { 0 } else { u128::from(done) * 100 / u128::from(all) };
    Progress {
        phase: match progress.phase {
            disk_image::Phase::Metadata => Phase::Starting,
            disk_image::Phase::Zeroing | disk_image::Phase::Writing => Phase::Writing,
            disk_image::Phase::Finishing => Phase::Finishing,
        },
        percent: u8::try_from(percent.min(100)).unwrap_or(100),
        bytes: progress.downloaded,
        written: progress.written,
        seconds: 0,
        total_bytes: progress.download_total,
        disk: disk.to_owned(),
        source: String::new(),
    }
}

/// Mark and config drive, on the verified disk, before its partition table becomes visible.
fn edit(
    disk: &dyn Disk,
    drive: Option<&Drive>,
    mark: &DiskMark,
    warnings: &mut Vec<String>,
) -> Result<(), disk_image::Error> {
    let mark = Mark {
        owner: mark.owner.clone(),
        host: mark.host.clone(),
        operation: mark.operation.clone(),
        written: String::new(),
    };
    // first, so that it gets the space
    if let MarkPlaced::NoRoom { reason } = write_mark(disk, &mark)? {
        warnings.push(format!("the disk does not carry the owner's mark, only the firmware does: {reason}"));
    }
    let drive = match drive {
        None => return Ok(()),
        Some(Drive::Volume(volume)) => return write_config_volume(disk, volume).map(drop),
        Some(Drive::Files(files)) => files,
    };
    let files = ConfigDriveFiles {
        meta_data: &drive.meta_data,
        user_data: drive.user_data.as_deref(),
        network_data: drive.network_data.as_deref(),
        vendor_data: None,
    };
    write_config_drive(disk, &files).map(drop)
}

/// Removes old config drives from the other disks, unless a foreign mark forbids it: cloud-init would find them. What is another path to the disk that was written
/// is none of them.
fn clean_others(
    runner: &Runner,
    written: &OpenDisk,
    others: &[facts::Disk],
    mark: &DiskMark,
    warnings: &mut Vec<String>,
) {
    for facts in others {
        let name = facts.name();
        let attempt = format!("removing old config drives from {name}");
        let clean = || -> Result<(), Failure> {
            let disk = OpenDisk::open(runner.machine.as_ref(), facts.clone())?;
            let failed = |error| Failure::of_image(&attempt, &error);
            let volumes = find_config_volumes(disk.disk.as_ref()).map_err(failed)?;
            if volumes.is_empty() {
                return Ok(());
            }
            let is_written = match disk.facts.is_same_as(&written.facts) {
                Some(is_same) => is_same,
                None => disk.is_written_by(mark)?,
            };
            if is_written {
                tracing::info!("{name} is another path to {}", written.facts.name());
                return Ok(());
            }
            check_disk(&disk, mark, &attempt)?;
            if let Some(why) = left_alone(&disk, &mark.owner)? {
                let text = format!("{name} has an old config drive, which is left as it is: {why}");
                return Err(Failure::new(ErrorCode::Refused, text));
            }
            for volume in &volumes {
                neutralise_config_volume(disk.disk.as_ref(), volume).map_err(failed)?;
            }
            tracing::info!("took {} old config drives off {name}", volumes.len());
            Ok(())
        };
        if let Err(failure) = clean() {
            warnings.push(failure.to_string());
        }
    }
}

/// Makes the boot entry of the new system; gives its name and label.
fn boot_entry(runner: &Runner, disk: &OpenDisk, warnings: &mut Vec<String>) -> Result<Option<String>, Failure> {
    let variables = runner.machine.variables();
    if !variables.available() {
        warnings.push("the machine was not started by UEFI: no boot entry was made".to_owned());
        return Ok(None);
    }
    let found = read_boot_info(disk.disk.as_ref(), BootArch::native());
    let found = found.map_err(|error| Failure::of_image("looking for the boot loader", &error))?;
    let loader = found.and_then(|found| Some((found.esp.unique?, found.esp, found.loader?)));
    let Some((unique, esp, loader)) = loader else {
        let text = "the image has no boot loader on an EFI system partition of a GPT: no boot entry was made";
        warnings.push(text.to_owned());
        return Ok(None);
    };
    let partition =
        HardDrive { number: esp.number, start: esp.first_lba, blocks: esp.sectors, guid: unique.to_bytes_le() };
    let target = boot::Target { path: FilePath { partition, file: loader.path }, options: loader.options };
    let present = present_partitions(runner, disk);
    let is_gone = |guid: &[u8; 16]| present.as_ref().is_some_and(|present| !present.contains(guid));
    let label = boot::label(loader.label.as_deref().unwrap_or_default());
    let entry = boot::install(&variables, &label, &target, &is_gone).map_err(|error| Failure::of_firmware(&error))?;
    let description = format!("{} \"{label}\"", entry.name());
    tracing::info!("boot entry {description}: {}", target.path.file);
    Ok(Some(description))
}

/// GUIDs of all partitions of the machine; `None` if a disk cannot be read, so that no partition counts as gone.
fn present_partitions(runner: &Runner, target: &OpenDisk) -> Option<Vec<[u8; 16]>> {
    let mut guids = partition_guids(target)?;
    for facts in facts::disks(runner.machine.tree()) {
        if facts.device != target.facts.device {
            guids.extend(partition_guids(&OpenDisk::open(runner.machine.as_ref(), facts).ok()?)?);
        }
    }
    Some(guids)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stall check must see progress while a disk is being zeroed, and while tables are read to which a server without ranges sends all that precedes them.
    #[test]
    fn what_is_written_or_read_without_a_download_is_told() {
        let reading = |downloaded| disk_image::Progress {
            phase: disk_image::Phase::Metadata,
            downloaded,
            download_total: Some(1 << 30),
            written: 0,
            write_total: None,
        };
        let (begun, later) = (to_report(&reading(0), "/dev/sda"), to_report(&reading(1 << 20), "/dev/sda"));
        assert_ne!(begun, later);
        assert_eq!((later.percent, later.phase), (0, Phase::Starting), "nothing of it is written yet");
        let at = |written| disk_image::Progress {
            phase: disk_image::Phase::Zeroing,
            downloaded: 0,
            download_total: Some(1 << 30),
            written,
            write_total: Some(1 << 40),
        };
        assert_ne!(to_report(&at(0), "/dev/sda"), to_report(&at(1 << 20), "/dev/sda"));
    }
}
