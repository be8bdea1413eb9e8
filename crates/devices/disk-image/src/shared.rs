//! Volumes that several machines use at once: cluster file systems, by their signatures.

use uuid::Uuid;

use crate::disk::Disk;
use crate::error::Error;
use crate::partition::{PartitionType, Table};
use crate::volume::Extent;

/// VMFS (VMware's table of partition types); its MBR type is 0xFB.
const VMFS_TYPE: Uuid = Uuid::from_u128(0xaa31e02a_400f_11db_9590_000c2911d1b8);
const VMFS_MBR_TYPE: u8 = 0xfb;
/// IBM's General Parallel File System.
const GPFS_TYPE: Uuid = Uuid::from_u128(0x37affc90_ef7d_4e96_91c3_2d7ae055b174);

/// Offset of a signature in a volume, in bytes; the signature; the file system's name.
type Signature = (u64, &'static [u8], &'static str);

/// VMFS: of a volume's member at 1 MiB, of the file system at 2 MiB. GFS and GFS2: superblock in the 128th sector, magic number and type 1, big
/// end first (linux/gfs2_ondisk.h). OCFS2: third block of 512 to 4096 bytes (fs/ocfs2/ocfs2_fs.h); its predecessor at 8 KiB.
const SIGNATURES: [Signature; 8] = [
    (1 << 20, &[0x0d, 0xd0, 0x01, 0xc0], "VMFS"),
    (2 << 20, &[0x5e, 0xf1, 0xab, 0x2f], "VMFS"),
    (64 << 10, &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1], "GFS2"),
    (1 << 10, b"OCFSV2", "OCFS2"),
    (2 << 10, b"OCFSV2", "OCFS2"),
    (4 << 10, b"OCFSV2", "OCFS2"),
    (8 << 10, b"OCFSV2", "OCFS2"),
    (8 << 10, b"OracleCFS", "OCFS"),
];

/// The name of a cluster file system on the disk or on one of its partitions. Finds partitions in tables for 512 and for 4096 byte sectors.
///
/// # Errors
/// [`Error::Disk`].
pub fn cluster_file_system(disk: &dyn Disk) -> Result<Option<&'static str>, Error> {
    let mut volumes = vec![Extent { offset: 0, length: disk.size() }];
    for sector in [512, 4096] {
        let table = Table::read(disk, sector)?.map(|table| table.describe());
        for partition in table.map(|table| table.partitions).unwrap_or_default() {
            match partition.kind {
                PartitionType::Guid(VMFS_TYPE) | PartitionType::Byte(VMFS_MBR_TYPE) => return Ok(Some("VMFS")),
                PartitionType::Guid(GPFS_TYPE) => return Ok(Some("GPFS")),
                _ => volumes.push(Extent { offset: partition.offset, length: partition.length }),
            }
        }
    }
    for volume in volumes {
        for (at, bytes, name) in SIGNATURES {
            if reads(disk, volume, at, bytes)? {
                return Ok(Some(name));
            }
        }
    }
    Ok(None)
}

/// Whether the volume has these bytes at this offset; false beyond its end or the disk's.
fn reads(disk: &dyn Disk, volume: Extent, at: u64, bytes: &[u8]) -> Result<bool, Error> {
    let end = at + bytes.len() as u64;
    let is_inside = end <= volume.length && volume.offset.checked_add(end).is_some_and(|end| end <= disk.size());
    if !is_inside {
        return Ok(false);
    }
    let mut found = [0; 16];
    let found = &mut found[..bytes.len()];
    disk.read_at(volume.offset + at, found)?;
    Ok(found == bytes)
}
