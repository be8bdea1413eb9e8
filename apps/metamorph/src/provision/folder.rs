//! The state folder: a given one, or a temporary one.

use std::cell::Cell;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

/// Attempts to find a free name.
const TRIES: u32 = 16;

/// The folder. It is removed at the end if this run made it and nothing in it is worth keeping.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is a temporary one, which the user did not name.
    pub temporary: bool,
    keep: Cell<bool>,
}

impl Folder {
    /// Opens the given folder, or makes one.
    pub fn open(given: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = given else { return Self::temporary() };
        if path.exists() {
            ensure!(path.is_dir(), "--state: {} is no folder", path.display());
            return Ok(Self { path: path.to_owned(), temporary: false, keep: Cell::new(true) });
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("make the state folder {}", path.display()))?;
        Ok(Self { path: path.to_owned(), temporary: false, keep: Cell::new(false) })
    }

    /// Creates a new folder for its owner alone: other users can write to the parent.
    fn temporary() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        for _ in 0..TRIES {
            let path = parent.join(format!("metamorph-provision-{:08x}", rand::random::<u32>()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, temporary: true, keep: Cell::new(false) }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("make a temporary folder for the state in {}; --state names another", parent.display())
                    });
                }
            }
        }
        bail!("make a temporary folder for the state in {}: no name is free", parent.display())
    }

    /// Keeps the folder: a later run needs its content.
    pub fn keep(&self) {
        self.keep.set(true);
    }

    /// Whether it will outlive the run.
    pub fn is_kept(&self) -> bool {
        self.keep.get()
    }

    /// Success: a temporary folder is no longer needed.
    pub fn is_done(&self) {
        if self.temporary {
            self.keep.set(false);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep.get() {
            // The system cleans up whatever remains in the temporary folder.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_was_there_stays_and_what_was_made_goes_unless_it_is_needed() {
        let outer = tempfile::tempdir().unwrap();
        let (there, new) = (outer.path().join("there"), outer.path().join("a/new"));
        std::fs::create_dir(&there).unwrap();
        drop(Folder::open(Some(&there)).unwrap());
        assert!(there.exists());
        drop(Folder::open(Some(&new)).unwrap());
        assert!(!new.exists());
        Folder::open(Some(&new)).unwrap().keep();
        let kept = Folder::open(Some(&new)).unwrap();
        kept.is_done();
        drop(kept);
        assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(outer.path().join("file"), "").unwrap();
        assert!(Folder::open(Some(&outer.path().join("file"))).is_err());
    }

    #[test]
    fn a_temporary_one_is_its_owners_alone_and_stays_until_all_went_well() {
        let folder = Folder::open(None).unwrap();
        let path = folder.path.clone();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        folder.keep();
        drop(folder);
        assert!(path.exists());
        let again = Folder { path: path.clone(), temporary: true, keep: Cell::new(true) };
        again.is_done();
        drop(again);
        assert!(!path.exists());
    }
}
