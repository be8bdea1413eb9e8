//! Disks as outside tools see them, and disks that have been used before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// First bytes of a GUID partition table's header (UEFI 2.10, 5.3.2).
pub const GPT: &[u8] = b"EFI PART";

/// Bytes of a disk file.
///
/// # Errors
/// When it is not that long.
pub fn bytes_at(disk: &Path, offset: u64, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let file = File::open(disk).with_context(|| format!("open {}", disk.display()))?;
    file.read_exact_at(&mut bytes, offset).with_context(|| format!("read {} at {offset}", disk.display()))?;
    Ok(bytes)
}

/// Runs a tool and gives what it prints.
///
/// # Errors
/// When it is missing or fails.
pub fn tool(name: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(name).args(arguments).output().with_context(|| format!("run {name}; make setup installs it"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{name} {arguments:?} ended with {}: {out}{err}", output.status);
    }
    Ok(out.into_owned())
}

/// The partitions of a disk with 512-byte sectors as `sgdisk` prints them: number, first byte, length, name.
///
/// # Errors
/// When sgdisk fails, or prints what is not understood.
pub fn partitions(disk: &Path) -> anyhow::Result<Vec<(u32, u64, u64, String)>> {
    let printed = tool("sgdisk", &["-p", &disk.to_string_lossy()])?;
    let table = printed.lines().skip_while(|line| !line.starts_with("Number")).skip(1);
    let mut found = Vec::new();
    for line in table.filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, first, last, ..] = words.as_slice() else { bail!("sgdisk printed {line:?}") };
        let (first, last): (u64, u64) = (first.parse()?, last.parse()?);
        let name = words.get(6..).unwrap_or_default().join(" ");
        found.push((number.parse()?, first * 512, (last - first + 1) * 512, name));
    }
    Ok(found)
}

/// A disk that has had another life: 0xFF all over, an old GPT, and in its one partition an old config drive.
#[derive(Clone, Debug)]
pub struct UsedDisk {
    /// The file.
    pub path: PathBuf,
    /// First byte of the old config drive.
    pub config_drive: u64,
}

impl UsedDisk {
    /// Makes one of `mib` MiB.
    ///
    /// # Errors
    /// When a tool is missing or fails.
    pub fn make(path: &Path, mib: u64) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path).context("make a disk")?;
        let piece = vec![0xFF; 1 << 20];
        for index in 0..mib {
            let written = file.write_all_at(&piece, index << 20);
            written.with_context(|| {
                format!("fill {} with {mib} MiB of 0xFF (written: {index} MiB; is there room?)", path.display())
            })?;
        }
        drop(file);
        let name = path.to_string_lossy().into_owned();
        tool("sgdisk", &["-o", "-n", "1:8192:+8M", "-t", "1:8300", "-c", "1:old-config", &name])?;
        let volume = format!("{name}@@4M");
        tool("mformat", &["-i", &volume, "-v", "config-2", "-T", "16384", "-h", "4", "-s", "32", "::"])?;
        Ok(Self { path: path.to_owned(), config_drive: 4 << 20 })
    }

    /// The disk as a simulated machine's.
    #[must_use]
    pub fn config(&self) -> Value {
        json!({ "path": self.path })
    }
}
