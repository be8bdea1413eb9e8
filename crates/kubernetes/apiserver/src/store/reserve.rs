//! Disk space reserved for deletions: a file of fixed size beside the store. When the disk is full the file is
//! removed, and only writes that end objects use its space until it can be created again.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Size of the reserve in bytes: enough to delete some thousand objects and to checkpoint the log.
const SIZE: u64 = 16 << 20;
/// Bytes that must be free besides the reserve.
const SPARE: u64 = 1 << 20;

/// The reserve file.
pub(super) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// Beside `store`; reserves nothing yet.
    pub(super) fn new(store: &Path) -> Self {
        Self { path: store.with_extension("reserve"), held: false }
    }

    /// Creates the reserve if necessary. True if it exists and spare bytes are free besides.
    pub(super) fn take(&mut self) -> bool {
        match self.try_take() {
            Ok(()) => self.held = true,
            Err(error) => {
                tracing::debug!(%error, "no room for the reserve of the store");
                if !self.held {
                    let _ = std::fs::remove_file(&self.path);
                }
                return false;
            }
        }
        true
    }

    fn try_take(&self) -> std::io::Result<()> {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let outcome = match fallocate(&file, FallocateFlags::empty(), 0, SIZE + SPARE) {
            // Some file systems do not support `fallocate`: write the file instead.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&mut file),
            other => other.map_err(std::io::Error::from),
        };
        let length = file.metadata()?.len();
        file.set_len(length.min(SIZE))?;
        outcome
    }

    /// Removes the reserve. False if there was none.
    pub(super) fn release(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        held && std::fs::remove_file(&self.path).is_ok()
    }
}

/// Writes random data, which no file system stores as a hole.
fn fill(file: &mut std::fs::File) -> std::io::Result<()> {
    let block: Vec<u8> = (0..64 << 10).map(|_| rand::random()).collect();
    let mut written = file.metadata()?.len();
    std::io::Seek::seek(file, std::io::SeekFrom::Start(written))?;
    while written < SIZE + SPARE {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn room_is_really_kept_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::new(&dir.path().join("store.db"));
        let file = dir.path().join("store.reserve");
        assert!(!reserve.release() && !file.exists());
        for _ in 0..2 {
            assert!(reserve.take());
            let found = std::fs::metadata(&file).unwrap();
            assert_eq!(found.len(), SIZE);
            assert!(found.blocks() * 512 >= SIZE, "{} blocks", found.blocks());
        }
        assert!(reserve.release() && !file.exists() && !reserve.release());
        // A file system without `fallocate`.
        let mut other = std::fs::File::create(&file).unwrap();
        fill(&mut other).unwrap();
        assert!(other.metadata().unwrap().len() >= SIZE);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(!reserve.take());
    }
}
