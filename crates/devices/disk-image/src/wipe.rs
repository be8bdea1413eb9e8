//! Metadata cleaning: after it no tool finds a partition table, file system, RAID, LVM or encryption on a disk.

use crate::disk::Disk;
use crate::error::Error;
use crate::partition::Table;
use crate::volume::Extent;

/// Bytes cleared at the beginning of the disk and of each partition. The last signature that tools look for there is the
/// second LUKS2 header, at 4 MiB at most; btrfs has its own at 64 KiB, VMFS at 1 MiB.
const HEAD: u64 = 5 << 20;

/// Bytes cleared at the end: ZFS labels (512 KiB), RAID superblocks of Linux and of controllers, the backup GPT.
const TAIL: u64 = 2 << 20;

/// Zeroes the beginning and end of each partition, then of the disk itself. Finds partitions in tables for 512 and for 4096 byte sectors, including
/// the backup table. Also clears the ownership mark: callers must check before whether they may. Returns the number of partitions cleared.
///
/// The tables come last, so that a repeated run after an interruption finds the partitions again.
///
/// # Errors
/// [`Error::Disk`].
pub fn wipe_metadata(disk: &dyn Disk) -> Result<usize, Error> {
    let mut extents = Vec::new();
    for sector in [512, 4096] {
        let table = Table::read(disk, sector)?.map(|table| table.describe());
        let partitions = table.map(|table| table.partitions).unwrap_or_default();
        extents.extend(partitions.iter().map(|p| Extent { offset: p.offset, length: p.length }));
    }
    for extent in &extents {
        clear_ends(disk, *extent)?;
    }
    disk.flush()?;
    clear_ends(disk, Extent { offset: 0, length: disk.size() })?;
    disk.flush()?;
    disk.reread_partition_table()?;
    Ok(extents.len())
}

fn clear_ends(disk: &dyn Disk, extent: Extent) -> Result<(), Error> {
    let offset = extent.offset.min(disk.size());
    let length = extent.length.min(disk.size() - offset);
    let tail = length.saturating_sub(TAIL);
    disk.make_zero(offset + tail, length - tail)?;
    disk.make_zero(offset, length.min(HEAD))
}
