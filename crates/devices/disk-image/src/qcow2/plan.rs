//! The plan: the file's tables, and where its clusters go on the disk.

use sha2::{Digest as _, Sha256};

use super::header::{HEADER_BYTES, Header, be64};
use crate::disk::{Disk, check_capacity, make_zero_in_steps};
use crate::error::Error;
use crate::pipeline::Monitor;
use crate::source::{Source, read_full};

/// Most pieces (runs of clusters that are contiguous in file and disk) of a plan: 32 MiB of memory.
const MAX_EXTENTS: usize = 2 << 20;

/// Most allocated L2 tables: 16 MiB of memory.
const MAX_L2_TABLES: usize = 1 << 20;

/// Most clusters of a disk: 32 MiB for the bit map. 16 TiB with the usual clusters of 64 KiB.
const MAX_CLUSTERS: u64 = 256 << 20;

/// Bits of a table entry that are an offset.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// Entry bits: the cluster is compressed; reserved in both tables.
const COMPRESSED: u64 = 1 << 62;
const RESERVED_L1: u64 = 0x7f00_0000_0000_01ff;
const RESERVED_L2: u64 = 0x3f00_0000_0000_01fe;

/// Consecutive clusters of the file that are consecutive on the disk, or one compressed cluster, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    /// First byte in the file; the highest bit marks compressed data.
    host_kind: u64,
    /// First cluster on the disk (40 bits), then clusters, or compressed bytes (24 bits).
    guest_count: u64,
}

impl Extent {
    const COUNT_BITS: u32 = 24;
    const MAX_COUNT: u64 = (1 << Self::COUNT_BITS) - 1;

    fn new(compressed: bool, host: u64, guest: u64, count: u64) -> Self {
        Self { host_kind: u64::from(compressed) << 63 | host, guest_count: guest << Self::COUNT_BITS | count }
    }

    pub(super) fn is_compressed(self) -> bool {
        self.host_kind >> 63 == 1
    }

    /// First byte in the file.
    pub(super) fn host(self) -> u64 {
        self.host_kind & (u64::MAX >> 1)
    }

    /// First cluster on the disk.
    pub(super) fn guest(self) -> u64 {
        self.guest_count >> Self::COUNT_BITS
    }

    fn count(self) -> u64 {
        self.guest_count & Self::MAX_COUNT
    }

    /// Bytes in the file.
    pub(super) fn length(self, cluster_bits: u32) -> u64 {
        if self.is_compressed() { self.count() } else { self.count() << cluster_bits }
    }

    /// Adds `next` at the end if it continues this one in file and disk.
    fn join(&mut self, next: Self, cluster_bits: u32) -> bool {
        let count = self.count() + next.count();
        let joins = !self.is_compressed()
            && !next.is_compressed()
            && self.host() + self.length(cluster_bits) == next.host()
            && self.guest() + self.count() == next.guest()
            && count <= Self::MAX_COUNT;
        if joins {
            *self = Self::new(false, self.host(), self.guest(), count);
        }
        joins
    }
}

/// A table in the file: first byte and number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// How to process the file's bytes.
pub(crate) struct Plan {
    pub(super) header: Header,
    /// By offset in the file.
    pub(super) extents: Vec<Extent>,
    /// Header, L1 and L2 tables by offset.
    pub(super) tables: Tables,
    /// One bit for each cluster of the disk: it has data in the file.
    allocated: Vec<u64>,
}

/// The tables: their offsets in file order, and digests of their bytes.
pub(super) struct Tables {
    pub(super) header: Region,
    pub(super) header_digest: [u8; 32],
    pub(super) l1: Region,
    pub(super) l1_digest: [u8; 32],
    /// Offsets of the L2 tables, ascending.
    pub(super) l2: Vec<u64>,
    /// Over all L2 tables in this order.
    pub(super) l2_digest: [u8; 32],
}

/// Reads parts of a source in any order.
struct Parts {
    source: Box<dyn Source>,
    position: u64,
}

impl Parts {
    fn read(&mut self, offset: u64, length: u64, what: &str) -> Result<Vec<u8>, Error> {
        if self.position != offset {
            self.source.restart_at(offset)?;
            self.position = offset;
        }
        let mut data = vec![0; length as usize];
        let count = read_full(self.source.as_mut(), &mut data)?;
        self.position += count as u64;
        if (count as u64) < length {
            let found = self.source.length().unwrap_or(self.position);
            return Err(Error::Truncated { what: what.to_owned(), expected: offset + length, found });
        }
        Ok(data)
    }
}

/// Reads the tables of an image for a disk of `disk_size` bytes. Returns the source reset to its beginning.
///
/// # Errors
/// Any of the image's and source's; [`Error::ImageTooLarge`].
pub(crate) fn read_plan(source: Box<dyn Source>, disk_size: u64) -> Result<(Box<dyn Source>, Plan), Error> {
    let mut parts = Parts { source, position: 0 };
    let available = parts.source.length().unwrap_or(HEADER_BYTES as u64).min(HEADER_BYTES as u64);
    let head = parts.read(0, available, "the qcow2 header")?;
    let header = Header::parse(&head)?;
    check_capacity(header.virtual_size, disk_size, false)?;
    header.check_l1()?;
    if header.clusters() > MAX_CLUSTERS {
        let what = format!("the qcow2 image has {} clusters; use larger clusters", header.clusters());
        return Err(Error::LimitExceeded { what, limit: MAX_CLUSTERS });
    }
    let l1_region = Region { offset: header.l1_offset, length: header.l1_needed() * 8 };
    let l1 = parts.read(l1_region.offset, l1_region.length, "the qcow2 L1 table")?;
    let l2 = l2_tables(&header, &l1)?;

    let mut plan = Plan {
        tables: Tables {
            header: Region { offset: 0, length: head.len() as u64 },
            header_digest: Sha256::digest(&head).into(),
            l1: l1_region,
            l1_digest: Sha256::digest(&l1).into(),
            l2: l2.iter().map(|(offset, _)| *offset).collect(),
            l2_digest: [0; 32],
        },
        allocated: vec![0; header.clusters().div_ceil(64) as usize],
        extents: Vec::new(),
        header,
    };
    drop(l1);
    let mut hasher = Sha256::new();
    for (offset, index) in l2 {
        let table = parts.read(offset, plan.header.cluster_size(), "a qcow2 L2 table")?;
        hasher.update(&table);
        plan.add_table(&table, index)?;
    }
    plan.tables.l2_digest = hasher.finalize().into();
    plan.finish(parts.source.length())?;
    parts.source.restart_at(0)?;
    Ok((parts.source, plan))
}

/// The L2 tables by their offset in the file, each with its place in the L1 table.
fn l2_tables(header: &Header, l1: &[u8]) -> Result<Vec<(u64, u32)>, Error> {
    let mut tables = Vec::new();
    for index in 0..header.l1_needed() {
        let entry = be64(l1, index as usize * 8);
        let offset = entry & OFFSET;
        if entry & RESERVED_L1 != 0 || !offset.is_multiple_of(header.cluster_size()) {
            return Err(Error::corrupt(format!("qcow2 L1 entry {index} is {entry:#018x}")));
        }
        if offset != 0 {
            tables.push((offset, index as u32));
        }
        if tables.len() > MAX_L2_TABLES {
            let what = "the number of the qcow2 image's L2 tables".to_owned();
            return Err(Error::LimitExceeded { what, limit: MAX_L2_TABLES as u64 });
        }
    }
    tables.sort_unstable();
    Ok(tables)
}

impl Plan {
    /// Size of the disk in the image, in bytes.
    pub(crate) fn virtual_size(&self) -> u64 {
        self.header.virtual_size
    }

    /// Adds one L2 table, the `index`th of the disk.
    fn add_table(&mut self, table: &[u8], index: u32) -> Result<(), Error> {
        let first = u64::from(index) * self.header.l2_entries();
        let count = self.header.l2_entries().min(self.header.clusters() - first);
        for at in 0..count {
            let guest = first + at;
            let Some(extent) = self.extent(be64(table, at as usize * 8), guest)? else { continue };
            self.allocated[(guest / 64) as usize] |= 1 << (guest % 64);
            let bits = self.header.cluster_bits;
            if !self.extents.last_mut().is_some_and(|last| last.join(extent, bits)) {
                self.extents.push(extent);
            }
            if self.extents.len() > MAX_EXTENTS {
                let what = "the qcow2 image is too fragmented; rewrite it with qemu-img convert (pieces)".to_owned();
                return Err(Error::LimitExceeded { what, limit: MAX_EXTENTS as u64 });
            }
        }
        Ok(())
    }

    /// Parses one L2 entry; `None` for a cluster of zeros.
    fn extent(&self, entry: u64, guest: u64) -> Result<Option<Extent>, Error> {
        let header = &self.header;
        let corrupt = || Error::corrupt(format!("qcow2 L2 entry of cluster {guest} is {entry:#018x}"));
        if entry & COMPRESSED != 0 {
            let bits = 62 - (header.cluster_bits - 8);
            let host = entry & ((1 << bits) - 1);
            let sectors = ((entry & (COMPRESSED - 1)) >> bits) + 1;
            if entry >> 63 != 0 || host >> 56 != 0 || host < header.cluster_size() {
                return Err(corrupt());
            }
            return Ok(Some(Extent::new(true, host, guest, sectors * 512 - host % 512)));
        }
        let host = entry & OFFSET;
        let zero = entry & 1 != 0;
        if entry & RESERVED_L2 != 0 || zero && header.version == 2 || !host.is_multiple_of(header.cluster_size()) {
            return Err(corrupt());
        }
        Ok((host != 0 && !zero).then(|| Extent::new(false, host, guest, 1)))
    }

    /// Sorts the pieces by their place in the file, and checks them against the tables and the file's length.
    fn finish(&mut self, length: Option<u64>) -> Result<(), Error> {
        let bits = self.header.cluster_bits;
        self.extents.sort_unstable_by_key(|extent| (extent.host(), extent.guest_count));
        self.extents.dedup_by(|next, last| last.join(*next, bits));
        let cluster = self.header.cluster_size();
        let mut tables = vec![self.tables.header, self.tables.l1];
        tables.extend(self.tables.l2.iter().map(|offset| Region { offset: *offset, length: cluster }));
        tables.sort_unstable_by_key(|region| region.offset);
        if let Some(pair) = tables.windows(2).find(|pair| pair[0].offset + pair[0].length > pair[1].offset) {
            return Err(Error::corrupt(format!("the qcow2 tables overlap at byte {}", pair[1].offset)));
        }
        let mut after = 0;
        for extent in &self.extents {
            while tables.get(after).is_some_and(|table| table.offset + table.length <= extent.host()) {
                after += 1;
            }
            if tables.get(after).is_some_and(|table| table.offset < extent.host() + extent.length(bits)) {
                return Err(Error::corrupt(format!("qcow2 data at byte {} overlap a table", extent.host())));
            }
        }
        let needed = self.extents.iter().map(|extent| self.needed_end(*extent)).max().unwrap_or(0);
        match length {
            Some(found) if found < needed => {
                Err(Error::Truncated { what: "the qcow2 image".into(), expected: needed, found })
            }
            _ => Ok(()),
        }
    }

    /// End of the bytes of a piece that must be there: less than its length where it reaches beyond the disk, and up to
    /// a sector less for compressed clusters (their length counts whole sectors).
    pub(super) fn needed_end(&self, extent: Extent) -> u64 {
        let bits = self.header.cluster_bits;
        if extent.is_compressed() {
            return extent.host() + extent.length(bits).saturating_sub(511).max(1);
        }
        extent.host() + extent.length(bits).min(self.header.virtual_size - (extent.guest() << bits))
    }

    /// Makes all of the disk zero that has no data in the file.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::Cancelled`].
    pub(crate) fn zero_gaps(&self, disk: &dyn Disk, monitor: &mut Monitor<'_>) -> Result<(), Error> {
        let bits = self.header.cluster_bits;
        let clusters = self.header.clusters();
        let written = monitor.written.clone();
        let mut at = 0;
        while at < clusters {
            let first = self.next(at, false).min(clusters);
            let end = self.next(first, true).min(clusters);
            let (from, to) = (first << bits, (end << bits).min(self.header.virtual_size));
            if from < to {
                make_zero_in_steps(disk, from, to - from, &mut |step| {
                    written.fetch_add(step, std::sync::atomic::Ordering::Relaxed);
                    monitor.tick()
                })?;
            }
            at = end;
        }
        Ok(())
    }

    /// The first cluster from `at` on with data (or without); far beyond the end if none exists.
    fn next(&self, at: u64, with_data: bool) -> u64 {
        let mut at = at;
        while let Some(word) = self.allocated.get((at / 64) as usize) {
            let word = if with_data { *word } else { !*word } >> (at % 64);
            if word != 0 {
                return at + u64::from(word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        u64::MAX >> 22
    }
}
