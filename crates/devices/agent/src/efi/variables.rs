//! UEFI variables through efivarfs: one file each, four bytes of attributes, then the value.
//!
//! In a plain folder (a simulator's), the files are replaced by a rename. On efivarfs, exactly one write sets a variable, and most variables carry
//! the immutable flag, which is cleared first (Linux, `Documentation/filesystems/efivarfs.rst`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::IFlags;
use thiserror::Error;

/// GUID of the variables that the UEFI specification itself defines (3.3).
pub const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Non-volatile, and visible to boot services and to the running system.
pub const ATTRIBUTES: u32 = 7;

/// Longest value that is read, in bytes.
const MAX_VALUE: u64 = 64 << 10;

/// Most variables listed.
const MAX_VARIABLES: usize = 4096;

/// Magic number of efivarfs (Linux `include/uapi/linux/magic.h`).
const EFIVARFS_MAGIC: i64 = 0xDE5E_81E4;

/// A variable could not be read, written or removed.
#[derive(Debug, Error)]
#[error("{action} the UEFI variable {name} failed")]
pub struct VariableError {
    /// What was attempted.
    pub action: &'static str,
    /// File name of the variable.
    pub name: String,
    /// Why.
    pub source: io::Error,
}

/// The machine's variables.
#[derive(Clone, Debug)]
pub struct EfiVariables {
    folder: PathBuf,
}

impl EfiVariables {
    /// Variables in `folder`: a mounted efivarfs, or a plain folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Whether the machine has variables: one started by BIOS has none.
    #[must_use]
    pub fn available(&self) -> bool {
        self.folder.is_dir()
    }

    /// A variable's value without its attributes; `None` when there is no such variable.
    ///
    /// # Errors
    /// [`VariableError`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, VariableError> {
        let error = |source| VariableError { action: "reading", name: name.to_owned(), source };
        let file = match File::open(self.folder.join(name)) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(error)?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_VALUE).read_to_end(&mut bytes).map_err(error)?;
        // efivarfs shows a variable that is being removed as an empty file
        Ok(bytes.split_at_checked(4).map(|(_, value)| value.to_vec()))
    }

    /// Names of all variables, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MAX_VARIABLES).collect();
        names.sort();
        names
    }

    /// Sets a variable, new or not. Writes nothing if it has that value already: firmware memory wears out.
    ///
    /// # Errors
    /// [`VariableError`] with the firmware's error (no room, write protected, …).
    pub fn write(&self, name: &str, value: &[u8]) -> Result<(), VariableError> {
        if self.read(name)?.as_deref() == Some(value) {
            return Ok(());
        }
        let mut bytes = ATTRIBUTES.to_le_bytes().to_vec();
        bytes.extend_from_slice(value);
        let path = self.folder.join(name);
        let result = if self.is_efivarfs() { set(&path, &bytes) } else { replace(&path, &bytes) };
        result.map_err(|source| VariableError { action: "writing", name: name.to_owned(), source })
    }

    /// Removes a variable; succeeds if it does not exist.
    ///
    /// # Errors
    /// [`VariableError`].
    pub fn remove(&self, name: &str) -> Result<(), VariableError> {
        let path = self.folder.join(name);
        let result = make_mutable(&path).and_then(|()| fs::remove_file(&path));
        match result {
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(|source| VariableError { action: "removing", name: name.to_owned(), source }),
        }
    }

    /// Whether Secure Boot is on.
    #[must_use]
    pub fn secure_boot(&self) -> bool {
        self.is_one("SecureBoot")
    }

    /// Whether the firmware has no platform key yet: then it verifies nothing.
    #[must_use]
    pub fn setup_mode(&self) -> bool {
        self.is_one("SetupMode")
    }

    /// A variable of one byte that is 1.
    fn is_one(&self, name: &str) -> bool {
        matches!(self.read(&format!("{name}-{GLOBAL}")), Ok(Some(value)) if value.first() == Some(&1))
    }

    fn is_efivarfs(&self) -> bool {
        rustix::fs::statfs(&self.folder).is_ok_and(|stat| stat.f_type == EFIVARFS_MAGIC)
    }
}

/// Clears the immutable flag; succeeds on a file system without flags.
fn make_mutable(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    match rustix::fs::ioctl_getflags(&file) {
        Ok(flags) if flags.contains(IFlags::IMMUTABLE) => {
            Ok(rustix::fs::ioctl_setflags(&file, flags.difference(IFlags::IMMUTABLE))?)
        }
        _ => Ok(()),
    }
}

/// Sets a variable of efivarfs: one write.
fn set(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match make_mutable(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let written = file.write(bytes)?;
    if written == bytes.len() { Ok(()) } else { Err(io::Error::other("the firmware took a part only")) }
}

/// Writes a plain file beside and renames it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_read_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let variables = EfiVariables::new(folder.path());
        assert_eq!(variables.read("A-1").unwrap(), None);
        variables.write("A-1", b"longer").unwrap();
        variables.write("A-1", b"x").unwrap();
        assert_eq!(fs::read(folder.path().join("A-1")).unwrap(), [7, 0, 0, 0, b'x']);
        assert_eq!(variables.read("A-1").unwrap().as_deref(), Some(&b"x"[..]));
        assert_eq!(variables.names(), ["A-1"]);
        variables.remove("A-1").unwrap();
        variables.remove("A-1").unwrap();
        assert!(variables.names().is_empty());
    }

    #[test]
    fn secure_boot_is_one_byte() {
        let folder = tempfile::tempdir().unwrap();
        let variables = EfiVariables::new(folder.path());
        assert!(!variables.secure_boot());
        fs::write(folder.path().join(format!("SecureBoot-{GLOBAL}")), [6, 0, 0, 0, 1]).unwrap();
        assert!(variables.secure_boot() && !variables.setup_mode());
        fs::write(folder.path().join(format!("SetupMode-{GLOBAL}")), [6, 0, 0, 0, 1]).unwrap();
        assert!(variables.setup_mode());
        assert!(!EfiVariables::new(folder.path().join("none")).available());
    }
}
