//! A disk whose first and last mebibyte are held back in memory until the image is verified.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, check_range};
use crate::error::Error;

/// Bytes held back at each end.
pub(crate) const HELD: u64 = 1 << 20;

/// A view of a disk: writes to its ends stay in memory until [`HeldDisk::commit`]; reads see them at once.
pub(crate) struct HeldDisk<'a> {
    disk: &'a dyn Disk,
    /// The disk's first bytes.
    head: Mutex<Vec<u8>>,
    /// The disk's last bytes.
    tail: Mutex<Vec<u8>>,
    head_end: u64,
    tail_start: u64,
}

/// Where a part of a range lives.
enum Place {
    Head,
    Body,
    Tail,
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> HeldDisk<'a> {
    /// Zeroes both ends of the disk, with any old partition tables, labels and signatures, and buffers all later writes to them.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(crate) fn clear(disk: &'a dyn Disk) -> Result<Self, Error> {
        let size = disk.size();
        let head_end = size.min(HELD);
        let tail_start = size.saturating_sub(HELD).max(head_end);
        // The backup table first: no tool shall find it and repair the primary from it.
        disk.make_zero(tail_start, size - tail_start)?;
        disk.make_zero(0, head_end)?;
        disk.flush()?;
        Ok(Self {
            disk,
            head: Mutex::new(vec![0; head_end as usize]),
            tail: Mutex::new(vec![0; (size - tail_start) as usize]),
            head_end,
            tail_start,
        })
    }

    /// Writes the ends: the last bytes, then the first, each on stable storage before the next.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.disk.flush()?;
        self.disk.write_at(self.tail_start, &lock(&self.tail))?;
        self.disk.flush()?;
        self.disk.write_at(0, &lock(&self.head))?;
        self.disk.flush()?;
        self.disk.reread_partition_table()
    }

    /// Splits a range at the borders of the buffered parts: part, offset in it, offset in the range, length.
    fn parts(&self, offset: u64, length: u64) -> impl Iterator<Item = (Place, u64, u64, u64)> {
        let end = offset + length;
        let cut = move |from: u64, to: u64| {
            let first = offset.max(from);
            (first, end.min(to).saturating_sub(first))
        };
        let (head_end, tail_start, size) = (self.head_end, self.tail_start, self.disk.size());
        let head = cut(0, head_end);
        let body = cut(head_end, tail_start);
        let tail = cut(tail_start, size);
        [
            (Place::Head, head.0, head.0, head.1),
            (Place::Body, body.0, body.0, body.1),
            (Place::Tail, tail.0.saturating_sub(tail_start), tail.0, tail.1),
        ]
        .into_iter()
        .filter(|part| part.3 > 0)
        .map(move |(place, at, first, length)| (place, at, first - offset, length))
    }
}

impl Disk for HeldDisk<'_> {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn logical_sector_size(&self) -> u32 {
        self.disk.logical_sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        check_range(self, "read", offset, buf.len() as u64)?;
        for (place, at, from, length) in self.parts(offset, buf.len() as u64) {
            let into = &mut buf[from as usize..(from + length) as usize];
            match place {
                Place::Head => into.copy_from_slice(&lock(&self.head)[at as usize..(at + length) as usize]),
                Place::Body => self.disk.read_at(at, into)?,
                Place::Tail => into.copy_from_slice(&lock(&self.tail)[at as usize..(at + length) as usize]),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        check_range(self, "write", offset, data.len() as u64)?;
        for (place, at, from, length) in self.parts(offset, data.len() as u64) {
            let part = &data[from as usize..(from + length) as usize];
            match place {
                Place::Head => lock(&self.head)[at as usize..(at + length) as usize].copy_from_slice(part),
                Place::Body => self.disk.write_at(at, part)?,
                Place::Tail => lock(&self.tail)[at as usize..(at + length) as usize].copy_from_slice(part),
            }
        }
        Ok(())
    }

    fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        check_range(self, "zero", offset, length)?;
        for (place, at, _, length) in self.parts(offset, length) {
            match place {
                Place::Head => lock(&self.head)[at as usize..(at + length) as usize].fill(0),
                Place::Body => self.disk.make_zero(at, length)?,
                Place::Tail => lock(&self.tail)[at as usize..(at + length) as usize].fill(0),
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        self.disk.flush()
    }

    fn reread_partition_table(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::FileDisk;

    /// Offsets near the borders of the buffered parts, and others.
    fn place(size: u64) -> impl Strategy<Value = u64> {
        let near = |at: u64| (at.saturating_sub(600)..(at + 600).min(size)).boxed();
        prop_oneof![near(0), near(HELD.min(size / 2)), near(size.saturating_sub(HELD)), near(size - 600), 0..size]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn reads_see_writes_and_the_ends_wait(
            (size, writes) in prop_oneof![Just(4 * HELD), Just(2 * HELD), Just(HELD + 4096), Just(HELD / 2)].prop_flat_map(|size| {
                let write = (place(size), 1..40_000_u64, any::<u8>(), any::<bool>());
                (Just(size), prop::collection::vec(write, 1..20))
            }),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let disk = FileDisk::create(&dir.path().join("disk"), size, 512).unwrap();
            let mut expect = vec![0xff; size as usize];
            disk.write_at(0, &expect).unwrap();
            let held = HeldDisk::clear(&disk).unwrap();
            let head = size.min(HELD) as usize;
            let tail = (size.saturating_sub(HELD) as usize).max(head);
            expect[..head].fill(0);
            expect[tail..].fill(0);
            for (at, length, byte, zero) in writes {
                let length = length.min(size - at) as usize;
                let range = at as usize..at as usize + length;
                if zero {
                    held.make_zero(at, length as u64).unwrap();
                    expect[range].fill(0);
                } else {
                    held.write_at(at, &vec![byte; length]).unwrap();
                    expect[range].fill(byte);
                }
            }
            let mut found = vec![1; size as usize];
            held.read_at(0, &mut found).unwrap();
            prop_assert!(found == expect);
            disk.read_at(0, &mut found).unwrap();
            prop_assert!(crate::buffer::is_zero(&found[..head]) && crate::buffer::is_zero(&found[tail..]));
            prop_assert!(found[head..tail] == expect[head..tail]);
            held.commit().unwrap();
            disk.read_at(0, &mut found).unwrap();
            prop_assert!(found == expect);
        }
    }
}
