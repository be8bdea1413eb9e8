//! The DOS partition table, with logical partitions, and the protective MBR of a GPT (UEFI specification 2.10, 5.2).

use super::entry::{NewPartition, Partition, PartitionType, Span};
use crate::disk::Disk;
use crate::error::Error;

/// Offset of the four entries in sector 0.
const ENTRIES: usize = 446;

/// Offset of the disk signature.
const SIGNATURE: usize = 440;

/// Most logical partitions that are followed: the chain is only as long as its author made it.
const MAX_LOGICAL: usize = 128;

/// Type of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// First sector that a partition is placed in: room for a boot loader before it, in bytes.
const FIRST_BYTE: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    kind: u8,
    first: u32,
    sectors: u32,
}

impl Entry {
    fn parse(entry: &[u8]) -> Self {
        let u32_at = |at: usize| entry.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        Self { kind: entry[4], first: u32_at(8), sectors: u32_at(12) }
    }

    /// The CHS fields have the value for "beyond", as in every entry of a disk of more than 8 GB.
    fn bytes(self) -> [u8; 16] {
        let mut entry = [0; 16];
        entry[1..4].copy_from_slice(&[0xfe, 0xff, 0xff]);
        entry[4] = self.kind;
        entry[5..8].copy_from_slice(&[0xfe, 0xff, 0xff]);
        entry[8..12].copy_from_slice(&self.first.to_le_bytes());
        entry[12..16].copy_from_slice(&self.sectors.to_le_bytes());
        entry
    }

    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

/// Whether 512 bytes are a boot sector of a FAT or NTFS file system rather than a partition table, which has the same magic.
fn is_file_system(sector: &[u8; 512]) -> bool {
    let jump = matches!(sector[0], 0xeb | 0xe9);
    let label = [&sector[3..11], &sector[54..62], &sector[82..90]];
    jump && (label[0].starts_with(b"NTFS") || label[1].starts_with(b"FAT") || label[2].starts_with(b"FAT"))
}

/// An MBR in memory.
#[derive(Clone, Debug)]
pub(crate) struct Mbr {
    sector: u64,
    boot: [u8; 512],
    primary: [Entry; 4],
    /// Logical partitions: absolute first sector, number of sectors, type.
    logical: Vec<(u64, u64, u8)>,
}

impl Mbr {
    /// Reads sector 0; `None` without the magic, with entries that cannot be, or for a bare file system.
    pub(crate) fn read(disk: &dyn Disk, sector: u64) -> Result<Option<Self>, Error> {
        let mut boot = [0; 512];
        disk.read_at(0, &mut boot)?;
        let flags_sound = (0..4).all(|index| boot[ENTRIES + 16 * index] & 0x7f == 0);
        if boot[510..] != [0x55, 0xaa] || !flags_sound {
            return Ok(None);
        }
        let primary =
            std::array::from_fn(|index| Entry::parse(&boot[ENTRIES + 16 * index..ENTRIES + 16 * (index + 1)]));
        if is_file_system(&boot) && !primary.iter().any(|entry: &Entry| entry.kind == PROTECTIVE) {
            return Ok(None);
        }
        let mut mbr = Self { sector, boot, primary, logical: Vec::new() };
        mbr.follow_extended(disk)?;
        Ok(Some(mbr))
    }

    fn follow_extended(&mut self, disk: &dyn Disk) -> Result<(), Error> {
        let Some(extended) = self.primary.iter().find(|entry| entry.is_used() && entry.is_extended()) else {
            return Ok(());
        };
        let base = u64::from(extended.first);
        let mut next = base;
        while self.logical.len() < MAX_LOGICAL {
            let mut boot = [0; 512];
            if (next + 1) * self.sector > disk.size() {
                break;
            }
            disk.read_at(next * self.sector, &mut boot)?;
            if boot[510..] != [0x55, 0xaa] {
                break;
            }
            let this = Entry::parse(&boot[ENTRIES..ENTRIES + 16]);
            let link = Entry::parse(&boot[ENTRIES + 16..ENTRIES + 32]);
            if !this.is_used() {
                break;
            }
            self.logical.push((next + u64::from(this.first), u64::from(this.sectors), this.kind));
            // The chain must go forward: this ends loops.
            if !link.is_used() || base + u64::from(link.first) <= next {
                break;
            }
            next = base + u64::from(link.first);
        }
        Ok(())
    }

    /// Whether it protects a GPT (or is a hybrid).
    pub(crate) fn is_protective(&self) -> bool {
        self.primary.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// No entry is used.
    pub(crate) fn is_empty(&self) -> bool {
        !self.primary.iter().any(|entry| entry.is_used())
    }

    /// The disk signature.
    pub(crate) fn signature(&self) -> u32 {
        self.boot[SIGNATURE..SIGNATURE + 4].try_into().map_or(0, u32::from_le_bytes)
    }

    /// Primary partitions but the extended one, then logical ones.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let primary = self.primary.iter().enumerate().filter(|(_, entry)| entry.is_used() && !entry.is_extended());
        let primary = primary.map(|(at, e)| (at as u32 + 1, u64::from(e.first), u64::from(e.sectors), e.kind));
        let logical = self.logical.iter().enumerate().map(|(at, l)| (at as u32 + 5, l.0, l.1, l.2));
        primary
            .chain(logical)
            .map(|(number, first, sectors, kind)| Partition {
                number,
                first_lba: first,
                sectors,
                offset: first * self.sector,
                length: sectors * self.sector,
                kind: PartitionType::Byte(kind),
                unique: None,
                name: String::new(),
            })
            .collect()
    }

    /// Fails if a partition lies beyond the disk.
    pub(crate) fn check(&self, disk: &dyn Disk) -> Result<(), Error> {
        match self.partitions().iter().find(|p| p.offset + p.length > disk.size()) {
            None => Ok(()),
            Some(p) => Err(Error::table(format!(
                "partition {} ends at byte {}, but the disk has {} bytes",
                p.number,
                p.offset + p.length,
                disk.size()
            ))),
        }
    }

    /// The sectors in use, including the extended partition as a whole.
    pub(crate) fn taken(&self) -> Vec<Span> {
        let used = self.primary.iter().filter(|entry| entry.is_used());
        used.map(|e| Span { first: e.first.into(), last: u64::from(e.first) + u64::from(e.sectors) - 1 }).collect()
    }

    /// Sectors that partitions may lie in.
    pub(crate) fn usable(&self, disk: &dyn Disk) -> Span {
        let last = (disk.size() / self.sector).min(u64::from(u32::MAX)).saturating_sub(1);
        Span { first: FIRST_BYTE / self.sector, last }
    }

    /// Adds a primary partition and gives its number; `None` if all four are used.
    pub(crate) fn add(&mut self, new: &NewPartition<'_>, span: Span) -> Option<u32> {
        let index = self.primary.iter().position(|entry| !entry.is_used())?;
        let first = u32::try_from(span.first).ok()?;
        let sectors = u32::try_from(span.last - span.first + 1).ok()?;
        self.set(index, Entry { kind: new.mbr_type, first, sectors });
        Some(index as u32 + 1)
    }

    /// Frees a primary partition's entry; logical partitions stay.
    pub(crate) fn remove(&mut self, number: u32) {
        if (1..=4).contains(&number) {
            let index = number as usize - 1;
            self.primary[index] = Entry::default();
            self.boot[ENTRIES + 16 * index..ENTRIES + 16 * (index + 1)].fill(0);
        }
    }

    fn set(&mut self, index: usize, entry: Entry) {
        self.primary[index] = entry;
        self.boot[ENTRIES + 16 * index..ENTRIES + 16 * (index + 1)].copy_from_slice(&entry.bytes());
    }

    /// Writes sector 0.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), Error> {
        disk.write_at(0, &self.boot)?;
        disk.flush()
    }
}

/// Makes sector 0 protect a GPT on a disk of `sectors` sectors. Keeps the boot code and the entries of a hybrid MBR.
pub(crate) fn write_protective(disk: &dyn Disk, sectors: u64) -> Result<(), Error> {
    let mut boot = [0; 512];
    disk.read_at(0, &mut boot)?;
    let entries: Vec<Entry> = (0..4).map(|i| Entry::parse(&boot[ENTRIES + 16 * i..ENTRIES + 16 * (i + 1)])).collect();
    let used = entries.iter().filter(|entry| entry.is_used()).count();
    let protective = entries.iter().position(|entry| entry.kind == PROTECTIVE);
    let index = match protective {
        _ if boot[510..] != [0x55, 0xaa] => 0,
        Some(index) if used <= 1 => index,
        Some(_) => return Ok(()),
        None => 0,
    };
    let flag = boot[ENTRIES + 16 * index] & 0x80;
    let covered = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    if protective.is_some() && entries[index].first == 1 && entries[index].sectors == covered {
        return Ok(());
    }
    let mut entry = Entry { kind: PROTECTIVE, first: 1, sectors: covered }.bytes();
    entry[..4].copy_from_slice(&[flag, 0x00, 0x02, 0x00]);
    entry[5..8].fill(0xff);
    boot[ENTRIES..510].fill(0);
    boot[ENTRIES + 16 * index..ENTRIES + 16 * (index + 1)].copy_from_slice(&entry);
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_at(0, &boot)
}
