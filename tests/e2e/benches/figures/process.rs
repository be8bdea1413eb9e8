//! What a process has used, as the kernel counts it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Pid;

/// Unit of the times in `/proc/<pid>/stat`: fixed at 100 a second towards programs (proc(5), `USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process has used since it started.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Most resident memory at any time, in bytes (`VmHWM`).
    pub peak_memory: u64,
    /// Resident memory now, in bytes (`VmRSS`).
    pub memory: u64,
    /// Processor time, user and system.
    pub cpu: Duration,
}

impl Usage {
    /// Of a running process.
    ///
    /// # Errors
    /// When it has ended.
    pub fn of(pid: Pid) -> anyhow::Result<Self> {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        Self::read(Path::new(&folder))
    }

    /// Of this process.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> anyhow::Result<Self> {
        Self::read(Path::new("/proc/self"))
    }

    fn read(folder: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let status = read("status")?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            kib.map(|kib| kib * 1024).with_context(|| format!("find {name}"))
        };
        // The name in parentheses may hold anything: what follows its end is counted from there. utime and stime are the fields
        // 14 and 15 of proc(5), the state is field 3.
        let stat = read("stat")?;
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).context("read the process's times")?;
        let ticks: Vec<u64> = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
        let [user, system] = ticks[..] else { anyhow::bail!("the process's times are not numbers") };
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let seconds = (user + system) as f64 / TICKS_PER_SECOND;
        let (peak_memory, memory) = (bytes("VmHWM")?, bytes("VmRSS")?);
        Ok(Self { peak_memory, memory, cpu: Duration::from_secs_f64(seconds) })
    }
}

/// Bytes that the files below a folder take, `except` left out.
///
/// # Errors
/// When a folder cannot be read.
pub fn size_below(folder: &Path, except: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("look into {}", folder.display()))? {
            let path = entry?.path();
            // A file that is being replaced may be gone by now.
            let Ok(meta) = path.symlink_metadata() else { continue };
            if path == except {
            } else if meta.is_dir() {
                folders.push(path);
            } else {
                total += meta.len();
            }
        }
    }
    Ok(total)
}

/// Regular files that a process has open for writing, deleted ones included, with their sizes in bytes.
///
/// # Errors
/// When the process has ended.
pub fn files_open_for_writing(pid: Pid) -> anyhow::Result<Vec<(String, u64)>> {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("{folder}/fd")).context("look at the server's open files")? {
        let entry = entry?;
        let number = entry.file_name().to_string_lossy().into_owned();
        let (Ok(target), Ok(meta)) = (entry.path().read_link(), std::fs::metadata(entry.path())) else { continue };
        let info = std::fs::read_to_string(format!("{folder}/fdinfo/{number}")).unwrap_or_default();
        // open(2): the two lowest bits are the access mode, 0 is reading only.
        let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).map(str::trim).unwrap_or_default();
        let writes = u32::from_str_radix(flags, 8).is_ok_and(|flags| flags & 3 != 0);
        if meta.is_file() && writes {
            found.push((target.display().to_string(), meta.len()));
        }
    }
    Ok(found)
}
