//! Writes the initramfs: the agent as `/init`, the modules unchanged, their index; a zstd-compressed newc archive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::index::{FILE_NAME, ModuleIndex};
use crate::cpio::Writer;

/// Compression level: beyond it the time grows fast and the size hardly falls.
const LEVEL: i32 = 15;
/// Window of 2^23 bytes: the kernel accepts up to 2^27, and needs that much memory to unpack.
const WINDOW_LOG: u32 = 23;

/// Folders that process 1 mounts over or writes to.
const FOLDERS: &[(&str, u32)] = &[("dev", 0o755), ("proc", 0o755), ("run", 0o755), ("sys", 0o755), ("tmp", 0o1777)];

/// Returns the compressed archive.
///
/// # Errors
/// The compressor's error, or a module that the index names but `modules` lacks.
pub(super) fn write(agent: &[u8], index: &ModuleIndex, modules: &BTreeMap<String, Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    let mut archive = Writer::new(encoder);
    for (name, mode) in FOLDERS {
        archive.directory(name, *mode)?;
    }
    // the kernel opens it for process 1 before anything is mounted
    archive.character_device("dev/console", 0o600, 5, 1)?;
    archive.file("init", 0o755, agent)?;
    let root = format!("lib/modules/{}", index.release);
    let paths: BTreeSet<&str> = index.modules.values().map(|entry| entry.path.as_str()).collect();
    let mut folders = BTreeSet::new();
    for path in &paths {
        let path = format!("{root}/{path}");
        folders.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
    }
    folders.extend(["lib".to_owned(), "lib/modules".to_owned(), root.clone()]);
    for folder in &folders {
        archive.directory(folder, 0o755)?;
    }
    archive.file(&format!("{root}/{FILE_NAME}"), 0o644, &serde_json::to_vec(index)?)?;
    for path in paths {
        let bytes = modules.get(path).ok_or_else(|| io::Error::other(format!("the module {path} is missing")))?;
        archive.file(&format!("{root}/{path}"), 0o644, bytes)?;
    }
    let mut encoder = archive.finish()?;
    encoder.flush()?;
    encoder.finish()
}
