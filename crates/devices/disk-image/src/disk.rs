//! Disks: the trait, and a regular file as a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FallocateFlags;

use crate::error::Error;

/// Longest range that is zeroed in one call, in bytes: between two calls, the caller can cancel.
pub(crate) const ZERO_STEP: u64 = 256 << 20;

/// Zeroing stretches shorter than this is done by writing: a punched hole costs more.
const ZERO_BY_WRITING: u64 = 64 << 10;

/// A target for whole-disk images. Offsets and lengths are in bytes and may have any alignment; implementations deal with the device's requirements.
/// Calls from several threads may overlap in time.
///
/// Every failure is [`Error::Disk`]; a range beyond the end fails and writes nothing.
pub trait Disk: Send + Sync {
    /// Name for people: a path, usually.
    fn name(&self) -> &str;

    /// Size in bytes, a multiple of the sector size.
    fn size(&self) -> u64;

    /// Logical sector size in bytes: 512 or 4096.
    fn logical_sector_size(&self) -> u32;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Error::Disk`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [`Error::Disk`].
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error>;

    /// Makes a range read as zeros: by unmapping if the device guarantees zeros, by its own write-zeroes command, or by writing.
    ///
    /// # Errors
    /// [`Error::Disk`].
    fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error>;

    /// Everything written so far is on stable storage when this returns.
    ///
    /// # Errors
    /// [`Error::Disk`].
    fn flush(&self) -> Result<(), Error>;

    /// Makes the kernel read the disk's current partition table.
    ///
    /// # Errors
    /// [`Error::Disk`].
    fn reread_partition_table(&self) -> Result<(), Error>;
}

/// An [`Error::Disk`].
pub(crate) fn disk_error(disk: &str, operation: &'static str, offset: u64, length: u64, source: io::Error) -> Error {
    Error::Disk { disk: disk.to_owned(), operation, offset, length, source }
}

/// Fails unless the range lies on the disk.
pub(crate) fn check_range(disk: &dyn Disk, operation: &'static str, offset: u64, length: u64) -> Result<(), Error> {
    match offset.checked_add(length) {
        Some(end) if end <= disk.size() => Ok(()),
        _ => {
            let reason = io::Error::new(io::ErrorKind::InvalidInput, format!("the disk ends at byte {}", disk.size()));
            Err(disk_error(disk.name(), operation, offset, length, reason))
        }
    }
}

/// Makes a range zero in steps, calling `between` after each of them.
pub(crate) fn make_zero_in_steps(
    disk: &dyn Disk,
    offset: u64,
    length: u64,
    between: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = 0;
    while done < length {
        let step = ZERO_STEP.min(length - done);
        disk.make_zero(offset + done, step)?;
        done += step;
        between(step)?;
    }
    Ok(())
}

/// Zeroes a range by the file's own operations; `write` is the last resort and receives pieces of zeros.
pub(crate) fn zero_file_range(
    file: &File,
    offset: u64,
    length: u64,
    write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if length >= ZERO_BY_WRITING {
        // On a block device these are write-zeroes with unmapping (only where zeros are guaranteed), then without.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        for how in [punch, zero] {
            if rustix::fs::fallocate(file, how, offset, length).is_ok() {
                return Ok(());
            }
        }
    }
    let zeros = crate::buffer::AlignedBuf::new(length.min(1 << 20) as usize);
    let mut zeros = zeros;
    let room = zeros.room();
    let mut at = offset;
    let end = offset + length;
    while at < end {
        let step = (end - at).min(room.len() as u64);
        write(at, &room[..step as usize])?;
        at += step;
    }
    Ok(())
}

/// A regular file as a disk.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    name: String,
    size: u64,
    sector: u32,
}

impl FileDisk {
    /// Opens an existing file; ignores a partial sector at its end.
    ///
    /// # Errors
    /// [`Error::Disk`] if it cannot be opened or `sector` is neither 512 nor 4096.
    pub fn open(path: &Path, sector: u32) -> Result<Self, Error> {
        let name = path.display().to_string();
        let fail = |reason| disk_error(&name, "open", 0, 0, reason);
        if sector != 512 && sector != 4096 {
            return Err(fail(io::Error::other(format!("a sector of {sector} bytes is not supported"))));
        }
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return Err(fail(io::Error::other("not a regular file")));
        }
        let size = meta.len() - meta.len() % u64::from(sector);
        Ok(Self { file, name, size, sector })
    }

    /// Makes a sparse file of `size` bytes and opens it; an existing file is emptied.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn create(path: &Path, size: u64, sector: u32) -> Result<Self, Error> {
        File::create(path)
            .and_then(|file| file.set_len(size))
            .map_err(|reason| disk_error(&path.display().to_string(), "open", 0, size, reason))?;
        Self::open(path, sector)
    }
}

impl Disk for FileDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn logical_sector_size(&self) -> u32 {
        self.sector
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        check_range(self, "read", offset, buf.len() as u64)?;
        let length = buf.len() as u64;
        self.file.read_exact_at(buf, offset).map_err(|e| disk_error(&self.name, "read", offset, length, e))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        check_range(self, "write", offset, data.len() as u64)?;
        let length = data.len() as u64;
        self.file.write_all_at(data, offset).map_err(|e| disk_error(&self.name, "write", offset, length, e))
    }

    fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        check_range(self, "zero", offset, length)?;
        zero_file_range(&self.file, offset, length, &mut |at, zeros| self.file.write_all_at(zeros, at))
            .map_err(|e| disk_error(&self.name, "zero", offset, length, e))
    }

    fn flush(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|e| disk_error(&self.name, "flush", 0, self.size, e))
    }

    fn reread_partition_table(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Fails if an image of `image` bytes is larger than the disk.
pub(crate) fn check_capacity(image: u64, disk: u64, at_least: bool) -> Result<(), Error> {
    if image > disk { Err(Error::ImageTooLarge { image, disk, at_least }) } else { Ok(()) }
}
