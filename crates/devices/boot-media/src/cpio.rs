//! The "newc" cpio archive, which the Linux kernel unpacks into its first root file system.
//!
//! Format: Linux `Documentation/driver-api/early-userspace/buffer-format.rst`. The writer is deterministic: no times,
//! owner 0, inode numbers counted from 1. The reader is bounded and expects hostile input.

use std::io::{self, Write};

use thiserror::Error;

const MAGIC: &[u8; 6] = b"070701";
const HEADER: usize = 110;
const TRAILER: &str = "TRAILER!!!";
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// Writes an archive entry by entry.
#[derive(Debug)]
pub struct Writer<W: Write> {
    inner: W,
    inode: u32,
}

struct Entry<'a> {
    name: &'a str,
    mode: u32,
    device: (u32, u32),
    data: &'a [u8],
}

impl<W: Write> Writer<W> {
    /// Starts an archive on `inner`, which must be at a multiple of four bytes of the whole.
    pub fn new(inner: W) -> Self {
        Self { inner, inode: 0 }
    }

    /// Adds a directory with the permission bits of `mode`.
    ///
    /// # Errors
    /// What the sink says; `InvalidInput` for a name that is empty, too long or has a zero byte.
    pub fn directory(&mut self, name: &str, mode: u32) -> io::Result<()> {
        self.entry(&Entry { name, mode: DIRECTORY | mode & 0o7777, device: (0, 0), data: &[] })
    }

    /// Adds a regular file with the permission bits of `mode`.
    ///
    /// # Errors
    /// As [`Writer::directory`]; `InvalidInput` too for 4 GiB or more.
    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(&Entry { name, mode: REGULAR | mode & 0o7777, device: (0, 0), data })
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Writer::directory`].
    pub fn symbolic_link(&mut self, name: &str, target: &str) -> io::Result<()> {
        let entry = Entry { name, mode: SYMBOLIC_LINK | 0o777, device: (0, 0), data: target.as_bytes() };
        self.entry(&entry)
    }

    /// Adds a character device node.
    ///
    /// # Errors
    /// As [`Writer::directory`].
    pub fn character_device(&mut self, name: &str, mode: u32, major: u32, minor: u32) -> io::Result<()> {
        self.entry(&Entry { name, mode: CHARACTER_DEVICE | mode & 0o7777, device: (major, minor), data: &[] })
    }

    /// Writes the trailer and gives the sink back.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = u32::MAX; // the trailer carries inode 0
        self.entry(&Entry { name: TRAILER, mode: 0, device: (0, 0), data: &[] })?;
        Ok(self.inner)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", entry.name));
        if entry.name.is_empty() || entry.name.len() > 1023 || entry.name.contains('\0') {
            return Err(invalid("a name in a cpio archive has 1 to 1023 bytes and no zero byte"));
        }
        let size = u32::try_from(entry.data.len()).map_err(|_| invalid("a file in a cpio archive is below 4 GiB"))?;
        self.inode = self.inode.wrapping_add(1);
        let links = if entry.mode & TYPE_MASK == DIRECTORY { 2 } else { 1 };
        let name_size = u32::try_from(entry.name.len() + 1).map_err(|_| invalid("name too long"))?;
        let (major, minor) = entry.device;
        let mut header = Vec::with_capacity(HEADER + entry.name.len() + 4);
        header.extend_from_slice(MAGIC);
        for field in [self.inode, entry.mode, 0, 0, links, 0, size, 0, 0, major, minor, name_size, 0] {
            header.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        header.extend_from_slice(entry.name.as_bytes());
        header.push(0);
        header.resize(header.len().next_multiple_of(4), 0);
        self.inner.write_all(&header)?;
        self.inner.write_all(entry.data)?;
        let padding = entry.data.len().next_multiple_of(4) - entry.data.len();
        self.inner.write_all(&[0; 3][..padding])
    }
}

/// A regular file found in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name as stored.
    pub name: String,
    /// Permission bits.
    pub mode: u32,
    /// Contents.
    pub data: Vec<u8>,
}

/// Limits for [`read`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of any kind.
    pub entries: usize,
    /// Bytes of one name.
    pub name: usize,
    /// Bytes of all contents together.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 256, name: 255, bytes: 4 << 20 }
    }
}

/// Why an archive was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CpioError {
    /// Not a newc archive, or damaged.
    #[error("the cpio archive is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// More than the limits allow.
    #[error("the cpio archive has {what} beyond the limit of {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How much is accepted.
        limit: usize,
    },
}

/// Reads the regular files of an uncompressed archive, up to its trailer; directories and devices are passed over.
///
/// # Errors
/// [`CpioError`] for anything that is not a sound archive within `limits`.
pub fn read(archive: &[u8], limits: Limits) -> Result<Vec<File>, CpioError> {
    let mut files = Vec::new();
    let (mut offset, mut total) = (0_usize, 0_usize);
    for _ in 0..=limits.entries {
        let damaged = |what| CpioError::Damaged { offset, what };
        let header = take(archive, offset, HEADER).ok_or(damaged("the header is cut off"))?;
        if !header.starts_with(MAGIC) {
            return Err(damaged("no newc header"));
        }
        let field = |index: usize| hex_field(header, index).ok_or(damaged("a header field is not hexadecimal"));
        let (mode, size, name_size) = (field(1)?, field(6)? as usize, field(11)? as usize);
        if name_size == 0 || name_size > limits.name + 1 {
            return Err(CpioError::Limit { what: "a name length", limit: limits.name });
        }
        let name = take(archive, offset + HEADER, name_size).ok_or(damaged("the name is cut off"))?;
        let name = name.strip_suffix(&[0]).ok_or(damaged("the name is not terminated"))?;
        let name = std::str::from_utf8(name).map_err(|_| damaged("the name is not UTF-8"))?;
        if name == TRAILER {
            return Ok(files);
        }
        total = total.saturating_add(size);
        if total > limits.bytes {
            return Err(CpioError::Limit { what: "contents", limit: limits.bytes });
        }
        let start = (offset + HEADER + name_size).next_multiple_of(4);
        let data = take(archive, start, size).ok_or(damaged("the contents are cut off"))?;
        if mode & TYPE_MASK == REGULAR {
            files.push(File { name: name.to_owned(), mode: mode & 0o7777, data: data.to_vec() });
        }
        offset = (start + size).next_multiple_of(4);
    }
    Err(CpioError::Limit { what: "entries", limit: limits.entries })
}

fn take(bytes: &[u8], start: usize, len: usize) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(len)?)
}

fn hex_field(header: &[u8], index: usize) -> Option<u32> {
    let digits = take(header, 6 + index * 8, 8)?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.directory("metamorph", 0o755).unwrap();
        writer.file("metamorph/host.json", 0o600, b"{\"a\":1}").unwrap();
        writer.character_device("console", 0o600, 5, 1).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn files_come_back_and_only_files() {
        let files = read(&sample(), Limits::default()).unwrap();
        let expected = File { name: "metamorph/host.json".into(), mode: 0o600, data: b"{\"a\":1}".to_vec() };
        assert_eq!(files, [expected]);
    }

    #[test]
    fn limits_hold() {
        let archive = sample();
        let limits = Limits { entries: 2, ..Limits::default() };
        assert_eq!(read(&archive, limits), Err(CpioError::Limit { what: "entries", limit: 2 }));
        let limits = Limits { bytes: 6, ..Limits::default() };
        assert_eq!(read(&archive, limits), Err(CpioError::Limit { what: "contents", limit: 6 }));
        let limits = Limits { name: 10, ..Limits::default() };
        assert!(matches!(read(&archive, limits), Err(CpioError::Limit { what: "a name length", .. })));
    }

    #[test]
    fn every_truncation_is_refused() {
        let archive = sample();
        let end = archive.len() - 4; // the trailer's own padding may go
        for cut in 0..end {
            assert!(read(&archive[..cut], Limits::default()).is_err(), "cut at {cut} was accepted");
        }
    }

    #[test]
    fn a_plus_sign_is_no_hexadecimal_digit() {
        let mut archive = sample();
        archive[6] = b'+';
        assert!(read(&archive, Limits::default()).is_ok(), "the inode number is not used");
        let size_field = 6 + 6 * 8;
        archive[size_field] = b'+';
        assert!(matches!(read(&archive, Limits::default()), Err(CpioError::Damaged { .. })));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(0_u8.., 0..400), at in 0_usize..300) {
            let _ = read(&bytes, Limits::default());
            let mut archive = sample();
            let at = at.min(archive.len());
            archive.splice(at.., bytes.drain(..));
            let _ = read(&archive, Limits::default());
        }
    }
}
