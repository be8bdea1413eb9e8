//! Finds free space on a disk and adds or removes partitions, for both kinds of table.

use super::Table;
use super::entry::{NewPartition, Span};
use crate::disk::Disk;
use crate::error::Error;

/// Where partitions start, in bytes, if there is room enough.
const ALIGNMENT: u64 = 1 << 20;

/// Where they start if there is not.
const SMALL_ALIGNMENT: u64 = 4096;

impl Table {
    /// Free spans by position.
    fn free(&self, disk: &dyn Disk) -> Vec<Span> {
        let (usable, mut taken) = match self {
            Self::Gpt(gpt) => {
                let spans = gpt.partitions();
                (
                    gpt.usable(),
                    spans.iter().map(|p| Span { first: p.first_lba, last: p.first_lba + p.sectors - 1 }).collect(),
                )
            }
            Self::Mbr(mbr) => (mbr.usable(disk), mbr.taken()),
        };
        taken.sort_by_key(|span: &Span| span.first);
        let mut free = Vec::new();
        let mut next = usable.first;
        for span in taken {
            if span.first > next {
                free.push(Span { first: next, last: (span.first - 1).min(usable.last) });
            }
            next = next.max(span.last.saturating_add(1));
        }
        free.push(Span { first: next, last: usable.last });
        free.retain(|span| span.first <= span.last);
        free
    }

    /// Adds a partition as close to the disk's end as possible and returns its number and place. Writes nothing to the disk.
    ///
    /// # Errors
    /// [`Error::NoRoom`].
    pub(crate) fn add(&mut self, disk: &dyn Disk, new: &NewPartition<'_>) -> Result<(u32, Span), Error> {
        let sector = u64::from(disk.logical_sector_size());
        let free = self.free(disk);
        let no_room = |hint: &str| Error::NoRoom {
            what: format!("the {} partition", new.name),
            needed: new.needed,
            available: free.iter().map(|span| (span.last - span.first + 1) * sector).max().unwrap_or(0),
            hint: hint.to_owned(),
        };
        let span = place(&free, new, sector).ok_or_else(|| no_room(""))?;
        let number = match self {
            Self::Gpt(gpt) => gpt.add(new, span),
            Self::Mbr(mbr) => mbr.add(new, span),
        };
        let number = number.ok_or_else(|| no_room("; all entries of the partition table are used"))?;
        Ok((number, span))
    }

    /// Frees an entry. Writes nothing to the disk.
    pub(crate) fn remove(&mut self, number: u32) {
        match self {
            Self::Gpt(gpt) => gpt.remove(number),
            Self::Mbr(mbr) => mbr.remove(number),
        }
    }

    /// Writes the table.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), Error> {
        match self {
            Self::Gpt(gpt) => {
                let mut gpt = gpt.clone();
                gpt.fit(disk.size() / u64::from(disk.logical_sector_size()))?;
                gpt.write(disk)
            }
            Self::Mbr(mbr) => mbr.write(disk),
        }
    }
}

/// The last free place of the wanted size, else the largest one if it is large enough.
fn place(free: &[Span], new: &NewPartition<'_>, sector: u64) -> Option<Span> {
    let fit = |span: &Span, bytes: u64, alignment: u64| {
        let sectors = bytes.div_ceil(sector);
        let latest = (span.last + 1).checked_sub(sectors)?;
        let first = latest - latest % (alignment / sector);
        (first >= span.first).then(|| Span { first, last: first + sectors - 1 })
    };
    if let Some(span) = free.iter().rev().find_map(|span| fit(span, new.wanted, ALIGNMENT)) {
        return Some(span);
    }
    let largest = free.iter().rev().max_by_key(|span| span.last - span.first)?;
    let first = largest.first.next_multiple_of(SMALL_ALIGNMENT / sector);
    let available = (largest.last + 1).checked_sub(first)? * sector;
    let bytes = available.min(new.wanted) / SMALL_ALIGNMENT * SMALL_ALIGNMENT;
    if bytes < new.needed {
        return None;
    }
    fit(largest, bytes, SMALL_ALIGNMENT)
}
