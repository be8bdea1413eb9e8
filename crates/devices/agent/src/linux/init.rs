//! Duties of process 1: file systems, consoles, the children of others.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, WaitOptions, wait};

use crate::tree::Tree;

/// The mounts at the start: kind, place, data.
const MOUNTS: [(&str, &str, &std::ffi::CStr); 5] = [
    ("proc", "/proc", c""),
    ("sysfs", "/sys", c""),
    ("devtmpfs", "/dev", c"mode=0755"),
    ("tmpfs", "/run", c"mode=0755"),
    ("tmpfs", "/tmp", c"mode=1777"),
];

/// Mounts the kernel's file systems. A failed mount does not stop the start: an agent that can report is better than none. Returns the errors as
/// text, since logging has not started yet.
#[must_use]
pub fn mount_all() -> Vec<String> {
    let mut complaints = Vec::new();
    for (kind, place, data) in MOUNTS {
        let result =
            std::fs::create_dir_all(place).and_then(|()| Ok(mount(kind, place, kind, MountFlags::empty(), data)?));
        match result {
            // the kernel may have mounted /dev itself
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {}
            Err(error) => complaints.push(format!("mounting {kind} on {place} failed: {error}")),
            Ok(()) => {}
        }
    }
    complaints
}

/// Mounts efivarfs, once its module is loaded; a machine started by BIOS has none.
///
/// # Errors
/// What the kernel says.
pub fn mount_efivars(tree: &Tree) -> io::Result<()> {
    let place = "/sys/firmware/efi/efivars";
    if !tree.exists(place) || !tree.names(place).is_empty() {
        return Ok(());
    }
    Ok(mount("efivarfs", place, "efivarfs", MountFlags::empty(), c"")?)
}

/// Reaps any child, as process 1 must, until `child` has ended; returns its status.
///
/// # Errors
/// What the kernel says, but for interruptions.
pub fn reap_until(child: u32) -> io::Result<ExitStatus> {
    use std::os::unix::process::ExitStatusExt;
    let child = i32::try_from(child).ok().and_then(Pid::from_raw);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == child => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// All consoles that the kernel knows: the agent's log appears on each of them.
#[derive(Clone, Debug)]
pub struct Consoles {
    files: Arc<Mutex<Vec<File>>>,
}

impl Consoles {
    /// Opens them; `/dev/console` where the kernel names none.
    #[must_use]
    pub fn open(tree: &Tree) -> Self {
        let active = tree.text("sys/class/tty/console/active").unwrap_or_default();
        let open = |name: &str| OpenOptions::new().write(true).open(tree.path(&format!("dev/{name}"))).ok();
        let mut files: Vec<File> = active.split_whitespace().filter_map(open).collect();
        if files.is_empty() {
            files.extend(open("console"));
        }
        Self { files: Arc::new(Mutex::new(files)) }
    }
}

impl Write for Consoles {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // a console that can no longer be written is dropped; the others continue
        files.retain_mut(|file| file.write_all(bytes).is_ok());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
