//! The per-host files on a medium, and how the host finds them.

use std::collections::BTreeSet;
use std::io;

use thiserror::Error;

use crate::cpio::{self, CpioError};
use crate::iso::{self, IsoError};
use crate::read_at::ReadAt;

/// Name of the per-host archive in the medium's root; GRUB gives it to the kernel behind the shared initramfs.
pub const ARCHIVE: &str = "host.cpio";

/// Most files of a host.
pub const MAX_FILES: usize = 32;
/// Most bytes of a host's files together.
pub const MAX_BYTES: usize = 1 << 20;
/// Most bytes of additions to the kernel command line. The kernel takes 2048 in all (`COMMAND_LINE_SIZE` on x86).
pub const MAX_ARGUMENTS: usize = 1536;

/// A file that appears in the agent's root file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Path below the root, such as `metamorph/host.json`; no `/` in front.
    pub path: String,
    /// Permission bits, such as `0o600`.
    pub mode: u32,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Everything about a host that its medium depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFiles {
    /// Files; their order does not matter.
    pub files: Vec<HostFile>,
    /// Additions to the kernel command line, one argument each.
    pub kernel_arguments: Vec<String>,
}

/// Why something cannot be put on a medium.
#[derive(Debug, Error)]
pub enum HostFilesError {
    /// A path is not usable.
    #[error("{0:?} cannot be a file on the medium: components of letters, digits and `._-`, each used once")]
    Path(String),
    /// Too many files or bytes.
    #[error("a host's files are at most {MAX_FILES} with {MAX_BYTES} bytes together; found {files} with {bytes}")]
    TooMuch {
        /// How many files.
        files: usize,
        /// How many bytes.
        bytes: usize,
    },
    /// A kernel argument has a character that is special to GRUB or the kernel.
    #[error("{0:?} cannot be a kernel argument: letters, digits and `._-=:,/@+%[]` only")]
    Argument(String),
    /// Too many kernel arguments.
    #[error("the additions to the kernel command line have {0} bytes, {MAX_ARGUMENTS} are accepted")]
    Arguments(usize),
    /// The archive could not be made.
    #[error("writing the host's archive failed")]
    Write(#[from] io::Error),
}

impl HostFiles {
    /// The archive of the files with their parent folders, sorted by path.
    pub(crate) fn archive(&self) -> Result<Vec<u8>, HostFilesError> {
        let bytes = self.files.iter().map(|file| file.bytes.len()).sum();
        if self.files.len() > MAX_FILES || bytes > MAX_BYTES {
            return Err(HostFilesError::TooMuch { files: self.files.len(), bytes });
        }
        let mut files: Vec<&HostFile> = self.files.iter().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut known = BTreeSet::new();
        let mut writer = cpio::Writer::new(Vec::new());
        for file in &files {
            let bad = || HostFilesError::Path(file.path.clone());
            if file.path.len() > 200 || !file.path.split('/').all(plain_component) {
                return Err(bad());
            }
            for (at, _) in file.path.match_indices('/') {
                let folder = &file.path[..at];
                if files.iter().any(|other| other.path == folder) {
                    return Err(bad());
                }
                if known.insert(folder) {
                    writer.directory(folder, 0o755)?;
                }
            }
            if !known.insert(&file.path) {
                return Err(bad());
            }
            writer.file(&file.path, file.mode & 0o777, &file.bytes)?;
        }
        Ok(writer.finish()?)
    }

    /// The additions to the kernel command line, each with a blank in front.
    pub(crate) fn arguments(&self) -> Result<String, HostFilesError> {
        let mut line = String::new();
        for argument in &self.kernel_arguments {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-=:,/@+%[]".contains(&byte);
            if argument.is_empty() || !argument.bytes().all(plain) {
                return Err(HostFilesError::Argument(argument.clone()));
            }
            line.push(' ');
            line.push_str(argument);
            if line.len() > MAX_ARGUMENTS {
                return Err(HostFilesError::Arguments(line.len()));
            }
        }
        Ok(line)
    }
}

fn plain_component(component: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !component.is_empty() && component != "." && component != ".." && component.bytes().all(plain)
}

/// Why the host's files could not be read from a medium.
#[derive(Debug, Error)]
pub enum ReadHostFilesError {
    /// The medium is no image of ours, or could not be read.
    #[error("finding the host's files on the medium failed")]
    Image(#[from] IsoError),
    /// The archive is larger than any we write.
    #[error("the host's archive on the medium has {0} bytes, which is more than is accepted")]
    TooLarge(u64),
    /// The archive could not be read.
    #[error("reading the host's archive from the medium failed")]
    Read(#[source] io::Error),
    /// The archive is damaged.
    #[error("the host's archive on the medium is damaged")]
    Archive(#[from] CpioError),
}

/// Reads the host's files from a medium by ranges: the headers and the archive, never the whole. Folders are not listed.
///
/// # Errors
/// [`ReadHostFilesError`]; a hostile medium cannot make this read or keep more than a bounded number of bytes.
pub fn read_host_files<R: ReadAt + ?Sized>(medium: &R) -> Result<Vec<HostFile>, ReadHostFilesError> {
    let extent = iso::find_file(medium, ARCHIVE)?;
    // headers and padding of 32 files with their folders are far below 256 KiB
    let limit = MAX_BYTES + (256 << 10);
    let len = usize::try_from(extent.len).ok().filter(|len| *len <= limit);
    let mut archive = vec![0; len.ok_or(ReadHostFilesError::TooLarge(extent.len))?];
    medium.read_exact_at(extent.offset, &mut archive).map_err(ReadHostFilesError::Read)?;
    let limits = cpio::Limits { entries: 256, name: 255, bytes: MAX_BYTES };
    let files = cpio::read(&archive, limits)?;
    Ok(files.into_iter().map(|file| HostFile { path: file.name, mode: file.mode, bytes: file.data }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> HostFiles {
        let file = |path: &&str| HostFile { path: (*path).to_owned(), mode: 0o600, bytes: path.as_bytes().to_vec() };
        HostFiles { files: paths.iter().map(file).collect(), kernel_arguments: Vec::new() }
    }

    #[test]
    fn order_does_not_matter() {
        let (a, b) = (files(&["m/a", "m/n/b", "c"]), files(&["c", "m/n/b", "m/a"]));
        assert_eq!(a.archive().unwrap(), b.archive().unwrap());
    }

    #[test]
    fn unusable_paths_are_refused() {
        for paths in [&["/a"][..], &["a/../b"], &["a", "a"], &["a", "a/b"], &["a b"], &[""], &["a/"], &["."]] {
            assert!(matches!(files(paths).archive(), Err(HostFilesError::Path(_))), "{paths:?}");
        }
        let long = "x".repeat(201);
        assert!(matches!(files(&[&long]).archive(), Err(HostFilesError::Path(_))));
    }

    #[test]
    fn too_much_is_refused() {
        let mut host = files(&["a"]);
        host.files[0].bytes = vec![0; MAX_BYTES + 1];
        assert!(matches!(host.archive(), Err(HostFilesError::TooMuch { .. })));
        let names: Vec<String> = (0..=MAX_FILES).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(matches!(files(&names).archive(), Err(HostFilesError::TooMuch { .. })));
    }

    #[test]
    fn kernel_arguments_cannot_leave_their_line() {
        let line = |arguments: &[&str]| {
            let kernel_arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            HostFiles { files: Vec::new(), kernel_arguments }.arguments()
        };
        assert_eq!(
            line(&["console=ttyS1,115200n8", "ip=[fe80::1%eth0]"]).unwrap(),
            " console=ttyS1,115200n8 ip=[fe80::1%eth0]"
        );
        for bad in ["a b", "a;reboot", "a\nboot", "$root", "a{b", "a'b", "a\"b", "", "a\\b", "ü"] {
            assert!(matches!(line(&[bad]), Err(HostFilesError::Argument(_))), "{bad:?}");
        }
        assert!(matches!(line(&[&"a".repeat(MAX_ARGUMENTS)]), Err(HostFilesError::Arguments(_))));
    }
}
