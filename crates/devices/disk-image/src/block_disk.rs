//! A Linux block device as a disk: opened exclusively, with direct I/O. (Or a regular file in the same way.)

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::buffer::AlignedBuf;
use crate::disk::{Disk, check_range, disk_error, zero_file_range};
use crate::error::Error;

/// `BLKRRPART`, Linux `include/uapi/linux/fs.h`: `_IO(0x12, 95)`.
const BLKRRPART: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 95);

/// How often a busy partition table is tried again, and how long to wait between (a device manager that has just
/// seen the disk change holds its partitions open for a moment).
const REREAD_ATTEMPTS: u32 = 40;
const REREAD_PAUSE: Duration = Duration::from_millis(50);

/// Largest piece per copy through a bounce buffer, in bytes.
const BOUNCE: usize = 1 << 20;

/// A whole block device.
#[derive(Debug)]
pub struct BlockDisk {
    file: File,
    name: String,
    size: u64,
    sector: u32,
    /// Locks the read-modify-write of a sector: another thread may write another part of it.
    partial: Mutex<()>,
}

impl BlockDisk {
    /// Opens the device for reading and writing, exclusively: fails while it or one of its partitions is mounted or
    /// part of RAID, LVM or the like.
    ///
    /// # Errors
    /// [`Error::Disk`] with operation `open`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::EXCL | OFlags::DIRECT | OFlags::CLOEXEC;
        Self::open_with(path, true, flags).or_else(|error| match &error {
            // A device without direct I/O.
            Error::Disk { source, .. } if source.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                Self::open_with(path, true, OFlags::EXCL | OFlags::CLOEXEC)
            }
            _ => Err(error),
        })
    }

    /// Opens the device for reading only, in use or not.
    ///
    /// # Errors
    /// [`Error::Disk`] with operation `open`.
    pub fn open_read_only(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, false, OFlags::CLOEXEC)
    }

    /// Opens a regular file as if it were a device, with direct I/O if its file system supports that. `sector` is 512 or 4096.
    ///
    /// # Errors
    /// [`Error::Disk`] with operation `open`.
    pub fn open_file(path: &Path, sector: u32) -> Result<Self, Error> {
        let name = path.display().to_string();
        let fail = |reason| disk_error(&name, "open", 0, 0, reason);
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        let file = open(OFlags::DIRECT | OFlags::CLOEXEC).or_else(|_| open(OFlags::CLOEXEC)).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() || (sector != 512 && sector != 4096) {
            return Err(fail(io::Error::other(format!("not a regular file with sectors of {sector} bytes"))));
        }
        Ok(Self {
            file,
            name: name.clone(),
            size: meta.len() - meta.len() % u64::from(sector),
            sector,
            partial: Mutex::new(()),
        })
    }

    fn open_with(path: &Path, write: bool, flags: OFlags) -> Result<Self, Error> {
        let name = path.display().to_string();
        let fail = |reason| disk_error(&name, "open", 0, 0, reason);
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(flags.bits().cast_signed());
        let mut file = options.open(path).map_err(fail)?;
        if !file.metadata().map_err(fail)?.file_type().is_block_device() {
            return Err(fail(io::Error::other("not a block device")));
        }
        let sector = rustix::fs::ioctl_blksszget(&file).map_err(|e| fail(e.into()))?;
        if sector != 512 && sector != 4096 {
            return Err(fail(io::Error::other(format!("a sector of {sector} bytes is not supported"))));
        }
        let size = file.seek(SeekFrom::End(0)).map_err(fail)?;
        Ok(Self { file, name: name.clone(), size: size - size % u64::from(sector), sector, partial: Mutex::new(()) })
    }

    fn is_aligned(&self, offset: u64, data: &[u8]) -> bool {
        let sector = self.sector as usize;
        offset.is_multiple_of(u64::from(self.sector))
            && data.len().is_multiple_of(sector)
            && (data.as_ptr() as usize).is_multiple_of(sector)
    }

    /// Calls `with` for every sector-aligned window over the range: its offset, the range's place in it, its length.
    fn windows(
        &self,
        offset: u64,
        length: usize,
        with: &mut dyn FnMut(u64, std::ops::Range<usize>, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let sector = u64::from(self.sector);
        let end = offset + length as u64;
        let mut at = offset;
        while at < end {
            let first = at - at % sector;
            let last = end.next_multiple_of(sector).min(first + BOUNCE as u64);
            let stop = end.min(last);
            with(first, (at - first) as usize..(stop - first) as usize, (last - first) as usize)?;
            at = stop;
        }
        Ok(())
    }

    fn read_bounced(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut bounce = AlignedBuf::new(BOUNCE.min(buf.len() + 2 * self.sector as usize));
        let mut done = 0;
        self.windows(offset, buf.len(), &mut |first, inside, window| {
            let room = &mut bounce.room()[..window];
            self.file.read_exact_at(room, first)?;
            let count = inside.len();
            buf[done..done + count].copy_from_slice(&room[inside]);
            done += count;
            Ok(())
        })
    }

    fn write_bounced(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bounce = AlignedBuf::new(BOUNCE.min(data.len() + 2 * self.sector as usize));
        let sector = self.sector as usize;
        let mut done = 0;
        let _partial = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
        self.windows(offset, data.len(), &mut |first, inside, window| {
            let room = &mut bounce.room()[..window];
            // Preserve the bytes around the range in its first and last sector.
            if inside.start != 0 {
                self.file.read_exact_at(&mut room[..sector], first)?;
            }
            if inside.end != window {
                let at = window - sector;
                self.file.read_exact_at(&mut room[at..], first + at as u64)?;
            }
            let count = inside.len();
            room[inside].copy_from_slice(&data[done..done + count]);
            done += count;
            self.file.write_all_at(room, first)
        })
    }

    fn put(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_aligned(offset, data) {
            self.file.write_all_at(data, offset)
        } else {
            self.write_bounced(offset, data)
        }
    }
}

impl Disk for BlockDisk {
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
        let result = if self.is_aligned(offset, buf) {
            self.file.read_exact_at(buf, offset)
        } else {
            self.read_bounced(offset, buf)
        };
        result.map_err(|e| disk_error(&self.name, "read", offset, length, e))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        check_range(self, "write", offset, data.len() as u64)?;
        self.put(offset, data).map_err(|e| disk_error(&self.name, "write", offset, data.len() as u64, e))
    }

    fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        check_range(self, "zero", offset, length)?;
        let sector = u64::from(self.sector);
        let end = offset + length;
        let first = offset.next_multiple_of(sector).min(end);
        let last = (end - end % sector).max(first);
        let edge = vec![0; sector as usize];
        self.put(offset, &edge[..(first - offset) as usize])
            .and_then(|()| zero_file_range(&self.file, first, last - first, &mut |at, zeros| self.put(at, zeros)))
            .and_then(|()| self.put(last, &edge[..(end - last) as usize]))
            .map_err(|e| disk_error(&self.name, "zero", offset, length, e))
    }

    fn flush(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|e| disk_error(&self.name, "flush", 0, self.size, e))
    }

    fn reread_partition_table(&self) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            // SAFETY: BLKRRPART takes no argument and touches no memory of this process.
            let result = unsafe { rustix::ioctl::ioctl(&self.file, rustix::ioctl::NoArg::<BLKRRPART>::new()) };
            match result {
                Ok(()) => return Ok(()),
                // A device that cannot have partitions (a loop device without scanning), or a file.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOTTY) => return Ok(()),
                Err(rustix::io::Errno::BUSY) if attempt < REREAD_ATTEMPTS => {
                    attempt += 1;
                    std::thread::sleep(REREAD_PAUSE);
                }
                Err(e) => {
                    let operation = "re-read the partition table of";
                    return Err(disk_error(&self.name, operation, 0, self.size, e.into()));
                }
            }
        }
    }
}
