//! The ownership mark: who a disk belongs to, in a small partition of its own.
//!
//! The partition has the type [`MARK_TYPE`] (on an MBR disk `0xda`, "no file system"). It holds the same record twice,
//! 4096 bytes from its beginning and 4096 bytes before its end at most:
//! `METAMARK`, version (u32), length of the JSON (u32), CRC-32 of version, length and JSON (u32), JSON; numbers are
//! little endian.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::Disk;
use crate::error::Error;
use crate::partition::entry::NewPartition;
use crate::partition::{Partition, PartitionType, Table};

/// GPT type of the mark's partition.
pub const MARK_TYPE: Uuid = Uuid::from_u128(0x7130eaa2_22cd_40f2_87f2_71b40e533456);

/// MBR type of the mark's partition: data without a file system.
const MARK_MBR_TYPE: u8 = 0xda;

const MAGIC: &[u8; 8] = b"METAMARK";
const VERSION: u32 = 1;
const HEADER: usize = 20;

/// Bytes of one copy of the record.
const RECORD: usize = 4096;

/// Size of the partition where there is room, and at least, in bytes.
const WANTED: u64 = 1 << 20;
const NEEDED: u64 = 4 * RECORD as u64;

/// Name of the partition.
const NAME: &str = "metamorph-mark";

/// The owner of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// `status.provisioning.ID` of the host.
    pub owner: String,
    /// `namespace/name` of the host.
    pub host: String,
    /// The operation that wrote the disk.
    pub operation: String,
    /// The time by the server's clock (RFC 3339).
    pub written: String,
}

/// Result of reading a disk's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkFound {
    /// No mark: unknown.
    None,
    /// This owner.
    Owner(Mark),
    /// There is a mark, and it cannot be read.
    Damaged {
        /// Number of the mark's partition.
        partition: u32,
        /// What is wrong.
        reason: String,
    },
}

/// Where a mark was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkPlaced {
    /// In this partition.
    Partition(u32),
    /// The disk has no room for it: the second witness must do.
    NoRoom {
        /// Why.
        reason: String,
    },
}

/// Reads the mark: from the GPT's backup if its primary is damaged, and for any sector size of the table.
///
/// # Errors
/// [`Error::Disk`].
pub fn read_mark(disk: &dyn Disk) -> Result<MarkFound, Error> {
    let sector_size = u64::from(disk.logical_sector_size());
    for sector in [sector_size, if sector_size == 512 { 4096 } else { 512 }] {
        let Some(table) = Table::read(disk, sector)? else { continue };
        let mut damaged = MarkFound::None;
        for partition in mark_partitions(&table) {
            match read_record(disk, &partition)? {
                Record::Mark(mark) => return Ok(MarkFound::Owner(mark)),
                // Other programs use the MBR's type too.
                Record::Damaged(_) if matches!(partition.kind, PartitionType::Byte(_)) => {}
                Record::Damaged(reason) => damaged = MarkFound::Damaged { partition: partition.number, reason },
            }
        }
        if damaged != MarkFound::None {
            return Ok(damaged);
        }
    }
    Ok(MarkFound::None)
}

fn mark_partitions(table: &Table) -> Vec<Partition> {
    let kinds = [PartitionType::Guid(MARK_TYPE), PartitionType::Byte(MARK_MBR_TYPE)];
    table.describe().partitions.into_iter().filter(|partition| kinds.contains(&partition.kind)).collect()
}

/// Byte offsets of the two copies.
fn places(partition: &Partition) -> [u64; 2] {
    [partition.offset, (partition.offset + partition.length).saturating_sub(2 * RECORD as u64).max(partition.offset)]
}

/// What a mark's partition holds.
enum Record {
    /// A mark.
    Mark(Mark),
    /// No copy that can be read, and why.
    Damaged(String),
}

fn read_record(disk: &dyn Disk, partition: &Partition) -> Result<Record, Error> {
    let mut damage = "the partition lies beyond the disk".to_owned();
    for place in places(partition) {
        if place + RECORD as u64 > disk.size() || partition.length < RECORD as u64 {
            continue;
        }
        let mut record = vec![0; RECORD];
        disk.read_at(place, &mut record)?;
        match parse(&record) {
            Ok(mark) => return Ok(Record::Mark(mark)),
            Err(why) => damage = why,
        }
    }
    Ok(Record::Damaged(damage))
}

fn parse(record: &[u8]) -> Result<Mark, String> {
    let number = |at: usize| record.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    if !record.starts_with(MAGIC) {
        return Err("it does not begin like a mark".into());
    }
    let length = number(12) as usize;
    let Some(json) = record.get(HEADER..HEADER + length) else {
        return Err(format!("its record of {length} bytes is too long"));
    };
    if number(16) != checksum(&record[8..16], json) {
        return Err("its checksum does not hold".into());
    }
    if number(8) != VERSION {
        return Err(format!("it has version {}; version {VERSION} is read", number(8)));
    }
    serde_json::from_slice(json).map_err(|e| format!("its record is not understood: {e}"))
}

fn checksum(head: &[u8], json: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(json);
    hasher.finalize()
}

fn record(mark: &Mark) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(mark).ok()?;
    let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= RECORD - HEADER)?;
    let mut record = MAGIC.to_vec();
    record.extend_from_slice(&VERSION.to_le_bytes());
    record.extend_from_slice(&length.to_le_bytes());
    let crc = checksum(&record[8..16], &json);
    record.extend_from_slice(&crc.to_le_bytes());
    record.extend_from_slice(&json);
    record.resize(RECORD, 0);
    Some(record)
}

/// Writes the mark: over an existing one, else in a new partition as close to the disk's end as possible, or in any gap that is large enough (16
/// KiB).
///
/// # Errors
/// [`Error::Disk`]; [`Error::LimitExceeded`] if the mark's texts have more than 4 KiB together.
pub fn write_mark(disk: &dyn Disk, mark: &Mark) -> Result<MarkPlaced, Error> {
    let Some(record) = record(mark) else {
        let what = "the ownership mark's texts are too long (bytes)".to_owned();
        return Err(Error::LimitExceeded { what, limit: (RECORD - HEADER) as u64 });
    };
    let sector = u64::from(disk.logical_sector_size());
    let Some(mut table) = Table::read(disk, sector)? else {
        return Ok(MarkPlaced::NoRoom { reason: "the disk has no partition table".into() });
    };
    let mut present = None;
    for partition in mark_partitions(&table) {
        let on_disk = partition.offset + partition.length <= disk.size() && partition.length >= NEEDED;
        let ours = matches!(partition.kind, PartitionType::Guid(_))
            || matches!(read_record(disk, &partition)?, Record::Mark(_));
        if on_disk && ours {
            present = Some(partition);
        }
    }
    let number = match &present {
        Some(partition) => partition.number,
        None => {
            let new = NewPartition {
                gpt_type: MARK_TYPE,
                mbr_type: MARK_MBR_TYPE,
                name: NAME,
                wanted: WANTED,
                needed: NEEDED,
            };
            match table.add(disk, &new) {
                Ok((number, _)) => number,
                Err(error @ Error::NoRoom { .. }) => return Ok(MarkPlaced::NoRoom { reason: error.to_string() }),
                Err(error) => return Err(error),
            }
        }
    };
    let partition = table.describe().partitions.into_iter().find(|partition| partition.number == number);
    let Some(partition) = partition else { return Err(Error::table("the mark's partition is not there")) };
    if present.is_none() {
        disk.make_zero(partition.offset, partition.length)?;
    }
    for place in places(&partition) {
        disk.write_at(place, &record)?;
        disk.flush()?;
    }
    table.write(disk)?;
    Ok(MarkPlaced::Partition(number))
}
