//! What a group of processes has used, and what a folder holds at most: looked at twice a second while something goes on.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;

/// Unit of the times in `/proc/<pid>/stat` (proc(5), `USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// What is no file of a machine's: databases, logs, and what is linked to from elsewhere.
const LEFT_OUT: [&str; 7] =
    ["api", "audit.jsonl", "ironic.sqlite", "ironic.sqlite-journal", "ironic.log", "output", "logs"];

/// The processes of a group: parent's and children's times together, those included that have ended and were waited for. In seconds.
pub fn cpu_of_group(group: Pid) -> f64 {
    let ticks = members(group).map(|(_, fields)| {
        // utime, stime, cutime and cstime are the fields 14 to 17; the state, first here, is field 3.
        fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
    });
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let seconds = ticks.sum::<u64>() as f64 / TICKS_PER_SECOND;
    seconds
}

/// Memory of a group's processes in bytes, pages that they share counted once (`Pss`).
pub fn memory_of_group(group: Pid) -> u64 {
    let of = |folder: PathBuf| {
        // A process may have ended since it was listed.
        let text = std::fs::read_to_string(folder.join("smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    members(group).filter_map(|(folder, _)| of(folder)).sum::<u64>() * 1024
}

/// Folders in `/proc` of the processes of a group, and what their `stat` says from field 3 on.
fn members(group: Pid) -> impl Iterator<Item = (PathBuf, Vec<String>)> {
    let group = group.as_raw_nonzero().to_string();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter_map(move |folder| {
        folder.file_name()?.to_str()?.parse::<u32>().ok()?;
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        // The name in parentheses may hold anything.
        let fields: Vec<String> = stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect();
        (fields.get(2)? == &group).then_some((folder, fields))
    })
}

/// Bytes that a folder takes on its disk, without [`LEFT_OUT`]; a file with two names counts once.
pub fn disk_of(folder: &Path) -> u64 {
    let (mut total, mut folders, mut seen) = (0, vec![folder.to_owned()], HashSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            } else if meta.is_dir() {
                folders.push(entry.path());
            } else if seen.insert((meta.dev(), meta.ino())) {
                total += meta.blocks() * 512;
            }
        }
    }
    total
}

/// Looks until it is asked what it has seen.
pub struct Sampler {
    ends: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    memory: AtomicU64,
    disk: AtomicU64,
}

/// The most that was seen at any look.
#[derive(Clone, Copy, Debug)]
pub struct Peaks {
    /// Memory of the group, in bytes.
    pub memory: u64,
    /// The folder on its disk, in bytes.
    pub disk: u64,
}

impl Sampler {
    /// Begins.
    pub fn start(group: Option<Pid>, folder: PathBuf) -> Self {
        let (ends, ended) = mpsc::channel();
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            loop {
                shared.memory.fetch_max(group.map_or(0, memory_of_group), Ordering::Relaxed);
                shared.disk.fetch_max(disk_of(&folder), Ordering::Relaxed);
                if !matches!(ended.recv_timeout(PAUSE), Err(mpsc::RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        });
        Self { ends, thread: Some(thread), seen }
    }

    /// Ends, and tells.
    pub fn peaks(mut self) -> Peaks {
        // An error means that it has ended.
        let _ = self.ends.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        Peaks { memory: self.seen.memory.load(Ordering::Relaxed), disk: self.seen.disk.load(Ordering::Relaxed) }
    }
}
