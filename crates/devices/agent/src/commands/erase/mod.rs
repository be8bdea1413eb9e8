//! Erasing disks, with a report of each: what was done, and what shows it.
//!
//! Nothing is touched before all disks that are meant have been looked at; another owner's mark on one of them, or in the firmware, stops everything. A disk
//! that cannot be opened, that other machines may use, or whose mark cannot be read is left and reported. Then the disks are erased side by side; the
//! namespaces of one NVMe controller together, as its commands may be of all of them. What a drive's own command has done is held against samples that were
//! read before: they cannot prove it, and they can disprove it.

mod overwrite;
mod samples;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_protocol::{EraseDisks, ErrorCode, Outcome, Phase, Progress};
use disk_image::wipe_metadata;
use inventory::{EraseMethod, EraseResult, ErasedDisk, RootDeviceHints};

use super::failure::Failure;
use super::marks::{Found, OpenDisk, all_may_go};
use super::runner::Runner;
use super::shared::{Tell, goes_on, left_alone, reached_by};
use super::wipe::{awaited, forget_boots, missing, partition_guids};
use crate::drive::ata::{self, Lock};
use crate::drive::{Drive, Ended, nvme, scsi};
use crate::facts::{self, raid};
use samples::Samples;

const ACTION: &str = "erasing the disks";
/// Most disks that are erased at once.
const AT_ONCE: usize = 32;
/// Pause between two looks at a drive that erases itself, and its pieces: after each of them the work may be stopped.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
const PIECE: Duration = Duration::from_millis(200);
/// Pause between two reports.
const REPORT: Duration = Duration::from_secs(1);

/// How a disk takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Nvme,
    Ata,
    Scsi,
    Nothing,
}

/// A disk that is to be erased.
struct Target {
    disk: OpenDisk,
    /// The controller whose drives are not seen, if it is a volume.
    volume: Option<String>,
    drive: Option<Box<dyn Drive>>,
    /// What else is to be said of it.
    note: Option<&'static str>,
}

impl Target {
    fn speaks(&self) -> Speaks {
        speaks(&self.disk.facts)
    }
}

fn speaks(facts: &facts::Disk) -> Speaks {
    let vendor = facts.storage.vendor.as_deref().map(str::trim);
    match () {
        () if facts.device.starts_with("nvme") => Speaks::Nvme,
        // libata and SAS controllers name so what they translate (SAT-4, 10.4.2).
        () if vendor == Some("ATA") => Speaks::Ata,
        () if facts.storage.hctl.is_some() => Speaks::Scsi,
        () => Speaks::Nothing,
    }
}

/// The NVMe controller, or the subsystem of several of them, that a disk belongs to.
fn controller(runner: &Runner, facts: &facts::Disk) -> Option<String> {
    let tree = runner.machine.tree();
    facts.device.starts_with("nvme").then(|| tree.resolve(&format!("sys/block/{}/device", facts.device)))?
}

/// Erases the disks that are meant.
pub(super) fn erase(runner: &Runner, command: &EraseDisks, report: Tell<'_>) -> Result<Outcome, Failure> {
    let machine = runner.machine.as_ref();
    goes_on(report, Progress { phase: Phase::Erasing, ..Progress::default() })?;
    let variables = machine.variables();
    let in_firmware = Found::in_firmware(&variables)?;
    let present = awaited(runner, ACTION, &|disks| match command.disks.as_slice() {
        [] => missing(command.expected.as_ref(), &RootDeviceHints::default(), disks),
        _ => unclear(runner, command, disks),
    })?;
    let is_meant = |disk: &facts::Disk| {
        command.disks.is_empty() || command.disks.iter().any(|selector| selector.names(&disk.storage))
    };
    let (mut targets, mut marks, mut disks) = (Vec::new(), Vec::new(), Vec::new());
    for facts in present.into_iter().filter(is_meant) {
        match looked_at(runner, command, facts.clone()) {
            Ok((target, mark)) => {
                marks.extend(mark);
                targets.push(target);
            }
            Err(why) => disks.push(ErasedDisk::not_done(&facts.storage, why)),
        }
    }
    all_may_go(in_firmware.into_iter().chain(marks), &command.mark, ACTION).map_err(Failure::untouched)?;
    let tables: Vec<(String, Vec<[u8; 16]>)> = targets
        .iter()
        .map(|target| {
            let guids = partition_guids(&target.disk).unwrap_or_default();
            (ErasedDisk::of(&target.disk.facts.storage).name, guids)
        })
        .collect();
    disks.extend(all(runner, command, units(runner, command.method, targets), report)?);
    if command.disks.is_empty() && command.method != EraseMethod::Metadata {
        disks.extend(raid::hiding(machine.tree()).into_iter().map(hidden));
        let unusable = facts::disks::unusable(machine.tree());
        disks.extend(unusable.into_iter().map(|(disk, why)| ErasedDisk::not_done(&disk, why)));
    }
    if disks.is_empty() {
        let text = format!("{ACTION} was refused: no disk was found; nothing was changed");
        return Err(Failure::new(ErrorCode::NoDisk, text));
    }
    let is_done = |disk: &ErasedDisk| disk.result != EraseResult::NotDone;
    let complete = command.disks.is_empty() && disks.iter().all(is_done);
    let is_gone = |name: &String| disks.iter().any(|disk| disk.name == *name && is_done(disk));
    let gone: Vec<[u8; 16]> =
        tables.into_iter().filter(|(name, _)| is_gone(name)).flat_map(|(_, guids)| guids).collect();
    if let Err(failure) = forget_boots(&variables, &gone, complete) {
        // What was done to the disks is done: the report must not be lost for that.
        for disk in disks.iter_mut().filter(|disk| is_done(disk)) {
            disk.evidence.push_str(&format!("; the firmware still has boot entries of it: {failure}"));
        }
    }
    for disk in &disks {
        match disk.result {
            EraseResult::NotDone => tracing::warn!("{}", disk.describe()),
            _ => tracing::info!("{}", disk.describe()),
        }
    }
    Ok(Outcome::Erased { disks })
}

/// Drives that nobody sees here.
fn hidden(controller: String) -> ErasedDisk {
    let text = "drives behind this RAID controller that are in no volume, its spares and its cache are not reached; erase them by the controller, or let it pass its drives through";
    ErasedDisk { name: controller, evidence: text.to_owned(), ..ErasedDisk::default() }
}

/// Which of the named disks is not there, or is not clear. Namespaces of one controller count as one disk: they have its serial number.
fn unclear(runner: &Runner, command: &EraseDisks, disks: &[facts::Disk]) -> Option<String> {
    command.disks.iter().find_map(|selector| {
        let named: Vec<&facts::Disk> = disks.iter().filter(|disk| selector.names(&disk.storage)).collect();
        let controllers: Vec<Option<String>> = named.iter().map(|disk| controller(runner, disk)).collect();
        let is_one = match controllers.as_slice() {
            [] => return Some(format!("no disk has {}", selector.describe())),
            [_] => true,
            [first, rest @ ..] => first.is_some() && rest.iter().all(|other| other == first),
        };
        (!is_one).then(|| format!("{} disks have {}", named.len(), selector.describe()))
    })
}

/// Opens a disk and reads its mark; fails with why it is left.
fn looked_at(runner: &Runner, command: &EraseDisks, facts: facts::Disk) -> Result<(Target, Option<Found>), String> {
    let machine = runner.machine.as_ref();
    if let Some(network) = facts.network {
        return Err(format!("{}, and other machines may use it", reached_by(network)));
    }
    let drive = machine.drive(&facts.device);
    let mut note = None;
    if let Some(drive) = drive.as_ref().filter(|_| speaks(&facts) == Speaks::Ata) {
        match ata::unlock(drive.as_ref(), command.password.0.as_bytes()) {
            Lock::Open => {}
            Lock::Opened => {
                tracing::info!("{} had been left locked: it is unlocked", facts.name());
                note = Some("an erase that was broken off had left it locked");
            }
            Lock::Shut(why) => return Err(why),
        }
    }
    let volume = raid::volume(machine.tree(), &facts.device);
    let disk = OpenDisk::open(machine, facts).map_err(|failure| failure.to_string())?;
    if let Some(why) = left_alone(&disk, &command.mark.owner).map_err(|failure| failure.to_string())? {
        return Err(format!("{why}, and other machines may use it"));
    }
    let mark = Found::on(&disk).map_err(|failure| format!("whose it is cannot be read: {failure}"))?;
    Ok((Target { disk, volume, drive, note }, mark))
}

/// What is erased by one command: a disk, or all namespaces of one controller.
fn units(runner: &Runner, method: EraseMethod, targets: Vec<Target>) -> Vec<Vec<Target>> {
    let (mut alone, mut together) = (Vec::new(), BTreeMap::<String, Vec<Target>>::new());
    for target in targets {
        match controller(runner, &target.disk.facts).filter(|_| method == EraseMethod::Purge) {
            Some(controller) => together.entry(controller).or_default().push(target),
            None => alone.push(vec![target]),
        }
    }
    alone.extend(together.into_values());
    alone
}

/// Erases all units side by side, and tells how far it is.
fn all(
    runner: &Runner,
    command: &EraseDisks,
    units: Vec<Vec<Target>>,
    report: Tell<'_>,
) -> Result<Vec<ErasedDisk>, Failure> {
    let count = units.len();
    let (stop, next, over) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let percents: Vec<AtomicU8> = (0..count).map(|_| AtomicU8::new(0)).collect();
    let results: Vec<Mutex<Vec<ErasedDisk>>> = (0..count).map(|_| Mutex::default()).collect();
    let (begun, (ended, news)) = (Instant::now(), std::sync::mpsc::channel());
    let work = || {
        let ended = ended.clone();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = units.get(at) else { break };
            let watch = Watch { stop: &stop, percent: &percents[at] };
            let done = unit_erased(runner, command, unit, &watch);
            *results[at].lock().unwrap_or_else(PoisonError::into_inner) = done;
            percents[at].store(100, Ordering::Relaxed);
            over.fetch_add(1, Ordering::Relaxed);
            // The receiver is there until all have ended.
            let _ = ended.send(());
        }
    };
    let stopped = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..count.min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
        let mut stopped = None;
        while over.load(Ordering::Relaxed) < count && !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let _ = news.recv_timeout(REPORT);
            let sum: usize = percents.iter().map(|percent| usize::from(percent.load(Ordering::Relaxed))).sum();
            let progress = Progress {
                phase: Phase::Erasing,
                percent: u8::try_from(sum / count.max(1)).unwrap_or(100),
                seconds: begun.elapsed().as_secs(),
                ..Progress::default()
            };
            if let Err(failure) = goes_on(report, progress)
                && !stop.swap(true, Ordering::Relaxed)
            {
                stopped = Some(failure);
            }
        }
        stopped
    });
    if let Some(failure) = stopped {
        return Err(failure);
    }
    if over.load(Ordering::Relaxed) < count {
        return Err(Failure::new(ErrorCode::Internal, format!("{ACTION}: a part of the agent has failed")));
    }
    Ok(results.into_iter().flat_map(|done| done.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

/// How a unit tells how far it is, and hears whether it goes on.
struct Watch<'a> {
    stop: &'a AtomicBool,
    percent: &'a AtomicU8,
}

impl Watch<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn tell(&self, percent: u8) -> bool {
        self.percent.store(percent.min(99), Ordering::Relaxed);
        self.goes_on()
    }

    /// Waits until a drive is to be asked again.
    fn pause(&self, percent: Option<u8>) -> bool {
        if let Some(percent) = percent {
            self.tell(percent);
            let begun = Instant::now();
            while begun.elapsed() < LOOK_AGAIN && self.goes_on() {
                std::thread::sleep(PIECE);
            }
        }
        self.goes_on()
    }
}

fn unit_erased(runner: &Runner, command: &EraseDisks, unit: &[Target], watch: &Watch<'_>) -> Vec<ErasedDisk> {
    let of = |target: &Target| ErasedDisk::of(&target.disk.facts.storage);
    let stopped = "the server has let the machine go before it was begun";
    let each: Vec<ErasedDisk> = match command.method {
        _ if !watch.goes_on() => {
            unit.iter().map(|target| ErasedDisk { evidence: stopped.to_owned(), ..of(target) }).collect()
        }
        EraseMethod::Metadata => unit.iter().map(|target| metadata_removed(target, of(target))).collect(),
        EraseMethod::Overwrite => unit.iter().map(|target| overwritten(target, of(target), watch)).collect(),
        EraseMethod::Purge => purged(runner, command, unit, watch),
    };
    each.into_iter().zip(unit).map(|(disk, target)| noted(disk, target)).collect()
}

/// The report with what else is to be said of the disk.
fn noted(mut disk: ErasedDisk, target: &Target) -> ErasedDisk {
    if let Some(driver) = target.volume.as_ref().filter(|_| disk.result != EraseResult::NotDone) {
        disk.evidence.push_str(&format!(
            "; it is a volume of a RAID controller ({driver}): of its drives only what the volume shows"
        ));
    }
    if let Some(note) = target.note {
        disk.evidence.push_str("; ");
        disk.evidence.push_str(note);
    }
    disk
}

fn metadata_removed(target: &Target, disk: ErasedDisk) -> ErasedDisk {
    match wipe_metadata(target.disk.disk.as_ref()) {
        Ok(_) => ErasedDisk {
            result: EraseResult::MetadataRemoved,
            method: Some("removing tables and signatures".to_owned()),
            evidence: "the data are there".to_owned(),
            ..disk
        },
        Err(error) => ErasedDisk { evidence: format!("removing tables and signatures: {error}"), ..disk },
    }
}

fn overwritten(target: &Target, disk: ErasedDisk, watch: &Watch<'_>) -> ErasedDisk {
    let size = target.disk.disk.size().max(1);
    let percent = |done: u64| u8::try_from(u128::from(done) * 100 / u128::from(size)).unwrap_or(99);
    let method = Some("overwriting".to_owned());
    match overwrite::overwrite(target.disk.disk.as_ref(), rand::random(), &|done| watch.tell(percent(done))) {
        Ok(said) => {
            // Never more: what a disk keeps in spare and replaced blocks is not written by that.
            let spare =
                if target.disk.facts.storage.rotational == Some(true) { "replaced sectors" } else { "spare area" };
            let evidence = format!("{said}; its {spare} cannot be reached so");
            ErasedDisk { result: EraseResult::Cleared, method, evidence, ..disk }
        }
        Err(why) => ErasedDisk { method, evidence: why, ..disk },
    }
}

/// By the drive's own command, for all disks of the unit.
fn purged(runner: &Runner, command: &EraseDisks, unit: &[Target], watch: &Watch<'_>) -> Vec<ErasedDisk> {
    let of = |target: &Target| ErasedDisk::of(&target.disk.facts.storage);
    let all = |why: &str| -> Vec<ErasedDisk> {
        unit.iter().map(|target| ErasedDisk { evidence: format!("{why}; nothing was changed"), ..of(target) }).collect()
    };
    let Some(first) = unit.first() else { return Vec::new() };
    if let Some(driver) = &first.volume {
        return all(&format!(
            "it is a volume of a RAID controller ({driver}), which does not let its drives be told to erase; erase them by the controller, or let it pass its drives through"
        ));
    }
    let Some(drive) = first.drive.as_deref().filter(|_| first.speaks() != Speaks::Nothing) else {
        return all("it takes no command to erase itself; ask for the method Overwrite");
    };
    let before: Vec<Samples> = unit.iter().map(|target| Samples::of(target.disk.disk.as_ref())).collect();
    let pause = |percent: Option<u8>| watch.pause(percent);
    let ended = match first.speaks() {
        Speaks::Nvme => match namespaces(runner, unit) {
            Ok(meant) => nvme::purge(drive, &meant, &pause),
            Err(why) => Ended::Refused(why),
        },
        Speaks::Ata => ata::purge(drive, command.password.0.as_bytes(), &pause),
        Speaks::Scsi | Speaks::Nothing => scsi::purge(drive, &pause),
    };
    match ended {
        Ended::Refused(why) => all(&format!("{why}; if no command helps, ask for the method Overwrite")),
        Ended::Broken { method, why } => unit
            .iter()
            .map(|target| ErasedDisk { method: Some(method.clone()), evidence: why.clone(), ..of(target) })
            .collect(),
        Ended::Done { result, method, evidence } => {
            let judged = |(target, before): (&Target, Samples)| {
                let method = Some(method.clone());
                let may_forget = first.speaks() == Speaks::Nvme;
                match before.compared(&Samples::of(target.disk.disk.as_ref()), may_forget) {
                    Ok(said) => {
                        // Whatever it reads as by now, nobody is to take it for a table.
                        if let Err(error) = wipe_metadata(target.disk.disk.as_ref()) {
                            tracing::warn!("{}: {error}", target.disk.facts.name());
                        }
                        ErasedDisk { result, method, evidence: format!("{said}; {evidence}"), ..of(target) }
                    }
                    Err(said) => {
                        let evidence = format!("the drive says that it is done, and {said} ({evidence})");
                        ErasedDisk { method, evidence, ..of(target) }
                    }
                }
            };
            unit.iter().zip(before).map(judged).collect()
        }
    }
}

/// The numbers of the unit's namespaces.
fn namespaces(runner: &Runner, unit: &[Target]) -> Result<Vec<u32>, String> {
    let tree = runner.machine.tree();
    let number = |target: &Target| {
        let device = &target.disk.facts.device;
        let number = tree.number(&format!("sys/block/{device}/nsid")).and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("the kernel does not tell which namespace {device} is"))
    };
    unit.iter().map(number).collect()
}
