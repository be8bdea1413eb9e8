//! FAT and ISO 9660 volumes on disks: looking into them without mounting.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::disk::Disk;

/// Where reads start, in bytes.
const PAGE: u64 = 4096;

/// Bytes read ahead while looking into a volume.
const WINDOW: u64 = 32 << 10;

/// Most bytes read while looking into one volume: a hostile one may be a maze without end.
const READ_BUDGET: u64 = 64 << 20;

/// Most calls while looking into one volume.
const CALL_BUDGET: u32 = 2_000_000;

/// A part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u64,
}

/// The position after a seek; an error if it is negative.
fn seek_to(position: u64, length: u64, to: SeekFrom) -> io::Result<u64> {
    let target = match to {
        SeekFrom::Start(at) => Some(at),
        SeekFrom::End(by) => length.checked_add_signed(by),
        SeekFrom::Current(by) => position.checked_add_signed(by),
    };
    target.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "seek before the beginning"))
}

/// Reads a part of a disk as a stream, through a window, within a budget; writing fails.
pub(crate) struct VolumeReader<'a> {
    disk: &'a dyn Disk,
    extent: Extent,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
    bytes_left: u64,
    calls_left: u32,
}

impl<'a> VolumeReader<'a> {
    /// A reader limited to the extent.
    pub(crate) fn new(disk: &'a dyn Disk, extent: Extent) -> Self {
        let offset = extent.offset.min(disk.size());
        let length = extent.length.min(disk.size() - offset);
        Self {
            disk,
            extent: Extent { offset, length },
            position: 0,
            window: Vec::new(),
            window_at: 0,
            bytes_left: READ_BUDGET,
            calls_left: CALL_BUDGET,
        }
    }

    /// Reads exactly, at a place; `None` beyond the end or on any error.
    pub(crate) fn array_at<const N: usize>(&mut self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.position = at;
        self.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

impl Read for VolumeReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or_else(|| io::Error::other("the volume is a maze"))?;
        if self.position >= self.extent.length || buf.is_empty() {
            return Ok(0);
        }
        let window_end = self.window_at + self.window.len() as u64;
        if self.position < self.window_at || self.position >= window_end {
            let start = self.position - self.position % PAGE;
            let length = WINDOW.min(self.extent.length - start);
            self.bytes_left = self
                .bytes_left
                .checked_sub(length)
                .ok_or_else(|| io::Error::other("too much to read in the volume"))?;
            self.window.resize(length as usize, 0);
            self.disk.read_at(self.extent.offset + start, &mut self.window).map_err(io::Error::other)?;
            self.window_at = start;
        }
        let from = (self.position - self.window_at) as usize;
        let count = buf.len().min(self.window.len() - from);
        buf[..count].copy_from_slice(&self.window[from..from + count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for VolumeReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or_else(|| io::Error::other("the volume is a maze"))?;
        self.position = seek_to(self.position, self.extent.length, to)?;
        Ok(self.position)
    }
}

impl Write for VolumeReader<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "read only"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// File systems whose labels are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeKind {
    /// FAT12, FAT16, FAT32.
    Fat,
    /// ISO 9660.
    Iso9660,
}

/// Whether the extent holds a volume with this label, upper or lower case, and of which kind.
pub(crate) fn has_label(disk: &dyn Disk, extent: Extent, label: &str) -> Option<VolumeKind> {
    let mut reader = VolumeReader::new(disk, extent);
    let same = |bytes: &[u8]| bytes.trim_ascii_end().eq_ignore_ascii_case(label.as_bytes());
    // ECMA-119, 8.4: the primary volume descriptor is in sector 16 of 2048 bytes.
    if let Some(descriptor) = reader.array_at::<72>(16 * 2048)
        && descriptor[..7] == *b"\x01CD001\x01"
        && same(&descriptor[40..72])
    {
        return Some(VolumeKind::Iso9660);
    }
    let boot = reader.array_at::<512>(0)?;
    if !is_fat(&boot) {
        return None;
    }
    // The boot sector's label is at 43, or at 71 in FAT32; either it or the root directory's label may match.
    if same(&boot[43..54]) || same(&boot[71..82]) {
        return Some(VolumeKind::Fat);
    }
    reader.rewind().ok()?;
    let volume = fatfs::FileSystem::new(reader, fatfs::FsOptions::new()).ok()?;
    let found = volume.read_volume_label_from_root_dir_as_bytes().ok()??;
    same(&found).then_some(VolumeKind::Fat)
}

/// Whether 512 bytes can be the boot sector of a FAT volume.
pub(crate) fn is_fat(boot: &[u8; 512]) -> bool {
    let bytes = u16::from_le_bytes([boot[11], boot[12]]);
    let reserved = u16::from_le_bytes([boot[14], boot[15]]);
    boot[510..] == [0x55, 0xaa]
        && matches!(bytes, 512 | 1024 | 2048 | 4096)
        && boot[13].is_power_of_two()
        && reserved > 0
        && (1..=2).contains(&boot[16])
}
