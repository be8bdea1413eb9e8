//! The file: a tar archive (POSIX.1-2001 pax, "ustar" headers), compressed by gzip, that nobody else may read, with a limit for each file in it and for the whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Most bytes of one file in it.
pub const MAX_FILE: usize = 8 << 20;
/// Most bytes of all files in it, before they are compressed.
pub const MAX_WHOLE: u64 = 512 << 20;
/// Bytes that are kept for what is written last.
const RESERVE: u64 = 16 << 20;
/// Unit of a tar archive, bytes.
const BLOCK: usize = 512;
/// Longest name in a header, and its longest prefix, bytes.
const NAME: usize = 100;
const PREFIX: usize = 155;

/// Why a file was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is larger than [`MAX_FILE`].
    File,
    /// The whole would be larger than [`MAX_WHOLE`].
    Whole,
    /// Its name does not fit.
    Name,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "it is larger than 8 MiB",
            Self::Whole => "the bundle has 512 MiB already",
            Self::Name => "its name is too long",
        })
    }
}

/// The archive under way. Dropped before it is finished, it leaves no file.
pub struct Archive {
    path: PathBuf,
    out: Option<GzEncoder<BufWriter<File>>>,
    /// Name that the folder in it has.
    folder: String,
    time: u64,
    bytes: u64,
}

impl Archive {
    /// A new file; one that is there is left as it is. Times in it are `time`, seconds since 1970.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: &Path, folder: &str, time: u64) -> anyhow::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("make the new file {} (--out)", path.display()))?;
        let out = GzEncoder::new(BufWriter::new(file), Compression::default());
        Ok(Self { path: path.to_owned(), out: Some(out), folder: folder.to_owned(), time, bytes: 0 })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// Of the disk. What has no room is no error.
    pub fn add(&mut self, name: &str, content: &[u8]) -> io::Result<Result<(), Full>> {
        self.put(name, content, MAX_WHOLE - RESERVE)
    }

    /// Adds one of the last files, for which room is kept.
    ///
    /// # Errors
    /// As [`Archive::add`].
    pub fn add_last(&mut self, name: &str, content: &[u8]) -> io::Result<Result<(), Full>> {
        self.put(name, content, MAX_WHOLE)
    }

    fn put(&mut self, name: &str, content: &[u8], most: u64) -> io::Result<Result<(), Full>> {
        if content.len() > MAX_FILE {
            return Ok(Err(Full::File));
        }
        let padded = content.len().next_multiple_of(BLOCK);
        let size = u64::try_from(BLOCK + padded).unwrap_or(u64::MAX);
        if self.bytes.saturating_add(size) > most {
            return Ok(Err(Full::Whole));
        }
        let path = format!("{}/{}", self.folder, name);
        let Some(header) = header(&path, content.len(), self.time) else { return Ok(Err(Full::Name)) };
        let Some(out) = &mut self.out else { return Ok(Err(Full::Whole)) };
        out.write_all(&header)?;
        out.write_all(content)?;
        out.write_all(&vec![0; padded - content.len()])?;
        self.bytes += size;
        Ok(Ok(()))
    }

    /// Ends it; bytes of the file.
    ///
    /// # Errors
    /// Of the disk.
    pub fn finish(mut self) -> anyhow::Result<u64> {
        let attempt = || format!("write {}", self.path.display());
        let Some(mut out) = self.out.take() else { return Ok(0) };
        let written = (|| {
            out.write_all(&[0; 2 * BLOCK])?;
            let file = out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            file.metadata().map(|metadata| metadata.len())
        })();
        if written.is_err() {
            // Half of it is worth nothing, and says what it should not to whoever finds it.
            let _ = std::fs::remove_file(&self.path);
        }
        written.with_context(attempt)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A header ("ustar Interchange Format" of POSIX pax). `None` if the name does not fit.
fn header(path: &str, size: usize, time: u64) -> Option<[u8; BLOCK]> {
    let (prefix, name) = split(path)?;
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = block.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{:011o}\0", time & 0o77_777_777_777).as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    block.get_mut(148..156)?.copy_from_slice(sum.as_bytes());
    Some(block)
}

/// Prefix and name: a long path is divided at one of its slashes.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME {
        return Some(("", path));
    }
    let slashes = path.match_indices('/').map(|(at, _)| at);
    slashes
        .filter_map(|at| Some((path.get(..at)?, path.get(at + 1..)?)))
        .find(|(prefix, name)| prefix.len() <= PREFIX && !name.is_empty() && name.len() <= NAME)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_it_and_nobody_else_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.tar.gz");
        let mut archive = Archive::create(&path, "bundle", 1_772_362_800).unwrap();
        let long = format!("objects/{}/baremetalhosts/{}.json", "n".repeat(63), "h".repeat(60));
        archive.add("a.txt", b"words").unwrap().unwrap();
        archive.add(&long, &[b'x'; 512]).unwrap().unwrap();
        assert_eq!(archive.add(&"y".repeat(300), b"").unwrap(), Err(Full::Name));
        assert_eq!(archive.add("large", &vec![0; MAX_FILE + 1]).unwrap(), Err(Full::File));
        assert!(archive.finish().unwrap() > 0);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let listed = Command::new("tar").arg("-tzf").arg(&path).output().unwrap();
        assert!(listed.status.success());
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), format!("bundle/a.txt\nbundle/{long}\n"));
        let read = Command::new("tar").arg("-xzOf").arg(&path).arg("bundle/a.txt").output().unwrap();
        assert_eq!(read.stdout, b"words");
    }

    #[test]
    fn what_is_there_stays_and_half_of_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.tar.gz");
        drop(Archive::create(&path, "bundle", 0).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert!(Archive::create(&path, "bundle", 0).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn the_whole_has_a_limit_and_room_for_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::create(&folder.path().join("b.tar.gz"), "bundle", 0).unwrap();
        archive.bytes = MAX_WHOLE - RESERVE - 600;
        assert_eq!(archive.add("a", &[0; 513]).unwrap(), Err(Full::Whole));
        archive.add_last("manifest.json", &[0; 513]).unwrap().unwrap();
    }
}
