//! The GUID partition table (UEFI specification 2.10, 5.3), with sectors of 512 or 4096 bytes.

use uuid::Uuid;

use super::entry::{NewPartition, Partition, PartitionType, Span};
use super::mbr::write_protective;
use crate::disk::Disk;
use crate::error::Error;

/// Most entries that are read; tools make 128.
const MAX_ENTRIES: u32 = 1024;

/// Largest entry, in bytes; the usual one has 128.
const MAX_ENTRY_SIZE: usize = 512;

/// Header fields up to the reserved rest, in bytes.
const HEADER_SIZE: usize = 92;

/// Length of a name, in UTF-16 units.
const NAME_UNITS: usize = 36;

fn u32_at(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    data.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn uuid_at(data: &[u8], at: usize) -> Uuid {
    let bytes = data.get(at..at + 16).and_then(|b| b.try_into().ok()).unwrap_or([0; 16]);
    Uuid::from_bytes_le(bytes)
}

/// A GPT in memory. Entries are kept as raw bytes, so that unknown fields survive.
#[derive(Clone, Debug)]
pub(crate) struct Gpt {
    sector: u64,
    guid: Uuid,
    first_usable: u64,
    last_usable: u64,
    /// Where the primary's entries start.
    entries_lba: u64,
    entry_size: usize,
    entries: Vec<u8>,
    damaged: bool,
}

impl Gpt {
    /// Reads the primary table or, if it is damaged, the backup at the disk's end.
    pub(crate) fn read(disk: &dyn Disk, sector: u64) -> Result<Option<Self>, Error> {
        if let Some(gpt) = Self::read_at(disk, sector, 1)? {
            return Ok(Some(gpt));
        }
        let mut gpt = Self::read_at(disk, sector, disk.size() / sector - 1)?;
        if let Some(gpt) = &mut gpt {
            gpt.damaged = true;
        }
        Ok(gpt)
    }

    /// Reads the table whose header is in sector `lba`; `None` unless both checksums hold.
    pub(crate) fn read_at(disk: &dyn Disk, sector: u64, lba: u64) -> Result<Option<Self>, Error> {
        let sectors = disk.size() / sector;
        if lba >= sectors {
            return Ok(None);
        }
        let mut header = vec![0; sector as usize];
        disk.read_at(lba * sector, &mut header)?;
        let size = u32_at(&header, 12) as usize;
        let sound = header.starts_with(b"EFI PART")
            && (HEADER_SIZE..=header.len()).contains(&size)
            && u64_at(&header, 24) == lba
            && u32_at(&header, 16) == header_crc(&header[..size]);
        let (entries_lba, count, entry_size) = (u64_at(&header, 72), u32_at(&header, 80), u32_at(&header, 84) as usize);
        let bytes = entry_size * count as usize;
        if !sound
            || !(128..=MAX_ENTRY_SIZE).contains(&entry_size)
            || !entry_size.is_multiple_of(8)
            || !(1..=MAX_ENTRIES).contains(&count)
            || entries_lba < 2
            || entries_lba.saturating_add((bytes as u64).div_ceil(sector)) > sectors
        {
            return Ok(None);
        }
        let mut entries = vec![0; bytes];
        disk.read_at(entries_lba * sector, &mut entries)?;
        if crc32fast::hash(&entries) != u32_at(&header, 88) {
            return Ok(None);
        }
        Ok(Some(Self {
            sector,
            guid: uuid_at(&header, 56),
            first_usable: u64_at(&header, 40),
            last_usable: u64_at(&header, 48).min(sectors - 1),
            entries_lba: if lba == 1 { entries_lba } else { 2 },
            entry_size,
            entries,
            damaged: false,
        }))
    }

    /// The disk's GUID.
    pub(crate) fn disk_guid(&self) -> Uuid {
        self.guid
    }

    /// Whether this is the backup's content because the primary is damaged.
    pub(crate) fn primary_damaged(&self) -> bool {
        self.damaged
    }

    /// Partitions by number. Entries that contradict themselves are left out.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let used = self.entries.chunks_exact(self.entry_size).enumerate();
        used.filter_map(|(index, entry)| {
            let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
            let kind = uuid_at(entry, 0);
            if kind.is_nil() || first > last {
                return None;
            }
            let sectors = (last - first).checked_add(1)?;
            let units: Vec<u16> = entry[56..128]
                .chunks_exact(2)
                .map(|b| u16::from_le_bytes([b[0], b[1]]))
                .take_while(|u| *u != 0)
                .collect();
            Some(Partition {
                number: index as u32 + 1,
                first_lba: first,
                sectors,
                offset: first.checked_mul(self.sector)?,
                length: sectors.checked_mul(self.sector)?,
                kind: PartitionType::Guid(kind),
                unique: Some(uuid_at(entry, 16)),
                name: String::from_utf16_lossy(&units),
            })
        })
        .collect()
    }

    /// Makes the table one of a disk with `sectors` sectors.
    pub(crate) fn fit(&mut self, sectors: u64) -> Result<(), Error> {
        let table = (self.entries.len() as u64).div_ceil(self.sector);
        let last_usable = sectors.saturating_sub(table + 2);
        if let Some(beyond) = self.partitions().iter().find(|p| p.first_lba + p.sectors - 1 > last_usable) {
            return Err(Error::table(format!(
                "partition {} ends at sector {}, but the disk's last usable sector is {last_usable}",
                beyond.number,
                beyond.first_lba + beyond.sectors - 1,
            )));
        }
        if self.entries_lba + table > self.first_usable.max(2 + table) || self.first_usable > last_usable {
            return Err(Error::table("the table's entries overlap the space for partitions"));
        }
        self.last_usable = last_usable;
        Ok(())
    }

    /// Writes both copies, the backup first, and a protective MBR that covers the disk.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), Error> {
        let sectors = disk.size() / self.sector;
        let last = sectors - 1;
        let table = (self.entries.len() as u64).div_ceil(self.sector);
        let backup_entries = last - table;
        disk.write_at(backup_entries * self.sector, &self.entries)?;
        disk.write_at(last * self.sector, &self.header(last, 1, backup_entries))?;
        disk.flush()?;
        disk.write_at(self.entries_lba * self.sector, &self.entries)?;
        disk.write_at(self.sector, &self.header(1, last, self.entries_lba))?;
        write_protective(disk, sectors)?;
        disk.flush()
    }

    fn header(&self, lba: u64, other: u64, entries_lba: u64) -> Vec<u8> {
        let mut header = Vec::with_capacity(self.sector as usize);
        header.extend_from_slice(b"EFI PART");
        header.extend_from_slice(&0x0001_0000_u32.to_le_bytes());
        header.extend_from_slice(&(HEADER_SIZE as u32).to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        for value in [lba, other, self.first_usable, self.last_usable] {
            header.extend_from_slice(&value.to_le_bytes());
        }
        header.extend_from_slice(&self.guid.to_bytes_le());
        header.extend_from_slice(&entries_lba.to_le_bytes());
        header.extend_from_slice(&((self.entries.len() / self.entry_size) as u32).to_le_bytes());
        header.extend_from_slice(&(self.entry_size as u32).to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&self.entries).to_le_bytes());
        let crc = header_crc(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header.resize(self.sector as usize, 0);
        header
    }

    /// Sectors that partitions may lie in.
    pub(crate) fn usable(&self) -> Span {
        Span { first: self.first_usable, last: self.last_usable }
    }

    /// Adds a partition in the first unused entry and gives its number; `None` if all are used.
    pub(crate) fn add(&mut self, new: &NewPartition<'_>, span: Span) -> Option<u32> {
        let index = self.entries.chunks_exact(self.entry_size).position(|entry| uuid_at(entry, 0).is_nil())?;
        let entry = &mut self.entries[index * self.entry_size..(index + 1) * self.entry_size];
        entry.fill(0);
        entry[..16].copy_from_slice(&new.gpt_type.to_bytes_le());
        // Derived, so that the same disk and purpose give the same bytes.
        let unique = Uuid::new_v5(&self.guid, new.name.as_bytes());
        entry[16..32].copy_from_slice(&unique.to_bytes_le());
        entry[32..40].copy_from_slice(&span.first.to_le_bytes());
        entry[40..48].copy_from_slice(&span.last.to_le_bytes());
        for (at, unit) in new.name.encode_utf16().take(NAME_UNITS).enumerate() {
            entry[56 + 2 * at..58 + 2 * at].copy_from_slice(&unit.to_le_bytes());
        }
        Some(index as u32 + 1)
    }

    /// Frees a partition's entry.
    pub(crate) fn remove(&mut self, number: u32) {
        let at = (number as usize).saturating_sub(1) * self.entry_size;
        if let Some(entry) = self.entries.get_mut(at..at + self.entry_size) {
            entry.fill(0);
        }
    }
}

/// CRC of a header, its own field counted as zero.
fn header_crc(header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..16]);
    hasher.update(&[0; 4]);
    hasher.update(&header[20..]);
    hasher.finalize()
}
