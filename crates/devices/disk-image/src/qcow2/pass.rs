//! The pass over the file: writes each extent to its place, and verifies that the tables are those of the plan.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest as _, Sha256};

use super::cluster::ClusterDecoder;
use super::plan::{Extent, Plan, Region};
use crate::buffer::{AlignedBuf, Chunk};
use crate::crew::{Crew, with_crew};
use crate::disk::Disk;
use crate::error::Error;
use crate::held::HeldDisk;
use crate::pipeline::Feed;

/// Compressed clusters that follow each other on the disk are written together, up to this many bytes.
const BATCH: u64 = 1 << 20;

/// A piece of work for the crew.
enum Job {
    /// Bytes of a chunk, for a place on the disk.
    Data { chunk: Arc<Chunk>, part: Range<usize>, guest: u64 },
    /// Compressed clusters.
    Clusters(Batch),
}

/// Compressed clusters for consecutive places on the disk.
struct Batch {
    data: Vec<u8>,
    /// Length of each cluster's compressed bytes in `data`.
    lengths: Vec<usize>,
    /// First cluster on the disk.
    guest: u64,
}

/// A thread's tools for compressed clusters; created with the first of them.
type Tool = Option<(ClusterDecoder, AlignedBuf)>;

/// Writes the image while it passes by; gives its virtual size. `name` is the image's address, for errors.
///
/// # Errors
/// Any of the image's, source's and disk's.
pub(crate) fn write(plan: Plan, feed: &mut Feed<'_, '_>, disk: &HeldDisk<'_>, name: &str) -> Result<u64, Error> {
    let written = feed.monitor.written.clone();
    let work = |tool: &mut Tool, job: Job| {
        let length = match job {
            Job::Data { chunk, part, guest } => {
                disk.write_at(guest, &chunk[part.clone()])?;
                part.len() as u64
            }
            Job::Clusters(batch) => decompress(&plan, tool, &batch, disk)?,
        };
        written.fetch_add(length, Ordering::Relaxed);
        Ok(())
    };
    with_crew(|| Ok(None), work, |crew| Pass::new(&plan, crew).run(feed, name))?;
    Ok(plan.virtual_size())
}

/// Decompresses and writes a batch; gives the number of bytes written.
fn decompress(plan: &Plan, tool: &mut Tool, batch: &Batch, disk: &HeldDisk<'_>) -> Result<u64, Error> {
    let cluster = plan.header.cluster_size() as usize;
    let (decoder, out) = match tool {
        Some(tool) => tool,
        None => {
            let decoder = ClusterDecoder::new(plan.header.compression)?;
            tool.insert((decoder, AlignedBuf::new(cluster.max(BATCH as usize))))
        }
    };
    let guest = batch.guest << plan.header.cluster_bits;
    let mut rest = batch.data.as_slice();
    for (index, length) in batch.lengths.iter().enumerate() {
        let (data, after) = rest.split_at(*length);
        rest = after;
        let room = &mut out.room()[index * cluster..(index + 1) * cluster];
        decoder.decode(data, room, guest + (index * cluster) as u64)?;
    }
    let length = ((batch.lengths.len() * cluster) as u64).min(plan.virtual_size() - guest);
    out.set_len(length as usize);
    disk.write_at(guest, out)?;
    Ok(length)
}

/// Hashes the bytes of tables as they pass by.
struct TableWatch<'a> {
    regions: Box<dyn Iterator<Item = Region> + 'a>,
    current: Option<Region>,
    hasher: Sha256,
    expected: &'a [u8; 32],
}

impl<'a> TableWatch<'a> {
    fn new(mut regions: Box<dyn Iterator<Item = Region> + 'a>, expected: &'a [u8; 32]) -> Self {
        Self { current: regions.next(), regions, hasher: Sha256::new(), expected }
    }

    fn see(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        while let Some(region) = self.current {
            let (from, to) = (region.offset.max(offset), (region.offset + region.length).min(end));
            if from < to {
                self.hasher.update(&data[(from - offset) as usize..(to - offset) as usize]);
            }
            if region.offset + region.length > end {
                return;
            }
            self.current = self.regions.next();
        }
    }

    fn ended_same(self) -> bool {
        <[u8; 32]>::from(self.hasher.finalize()) == *self.expected
    }
}

/// The state of the pass.
struct Pass<'a> {
    plan: &'a Plan,
    crew: &'a Crew<'a, Job>,
    /// Compressed clusters that are still being gathered.
    batch: Option<Batch>,
    /// Index of the first piece that has not begun.
    next: usize,
    /// Uncompressed pieces that have begun and not ended.
    open: Vec<Extent>,
    /// Compressed clusters that have begun and not ended, by offset.
    waiting: VecDeque<Extent>,
    /// The file's bytes from the first waiting cluster on, and their offset.
    kept: Vec<u8>,
    kept_from: u64,
}

impl<'a> Pass<'a> {
    fn new(plan: &'a Plan, crew: &'a Crew<'a, Job>) -> Self {
        Self {
            plan,
            crew,
            batch: None,
            next: 0,
            open: Vec::new(),
            waiting: VecDeque::new(),
            kept: Vec::new(),
            kept_from: 0,
        }
    }

    fn run(mut self, feed: &mut Feed<'_, '_>, name: &str) -> Result<(), Error> {
        let plan = self.plan;
        let tables = &plan.tables;
        let cluster = plan.header.cluster_size();
        let l2 = tables.l2.iter().map(move |offset| Region { offset: *offset, length: cluster });
        let mut watches = [
            TableWatch::new(Box::new(std::iter::once(tables.header)), &tables.header_digest),
            TableWatch::new(Box::new(std::iter::once(tables.l1)), &tables.l1_digest),
            TableWatch::new(Box::new(l2), &tables.l2_digest),
        ];
        let mut end = 0;
        while let Some(chunk) = feed.next_chunk()? {
            for watch in &mut watches {
                watch.see(chunk.offset, &chunk);
            }
            self.push(&chunk)?;
            end = chunk.offset + chunk.len() as u64;
        }
        self.end(end)?;
        if watches.into_iter().all(TableWatch::ended_same) {
            return Ok(());
        }
        let reason = "its qcow2 tables were others when it was read the second time".to_owned();
        Err(Error::SourceChanged { url: name.to_owned(), reason })
    }

    /// Processes the file's next bytes.
    fn push(&mut self, chunk: &Arc<Chunk>) -> Result<(), Error> {
        let bits = self.plan.header.cluster_bits;
        let (offset, data) = (chunk.offset, &***chunk);
        let end = offset + data.len() as u64;
        self.push_waiting(offset, data)?;
        for extent in std::mem::take(&mut self.open) {
            self.write_part(extent, chunk)?;
        }
        while let Some(extent) = self.plan.extents.get(self.next).copied().filter(|extent| extent.host() < end) {
            self.next += 1;
            if !extent.is_compressed() {
                self.write_part(extent, chunk)?;
                continue;
            }
            let stop = extent.host() + extent.length(bits);
            if stop <= end {
                self.compressed(extent, &data[(extent.host() - offset) as usize..(stop - offset) as usize])?;
            } else {
                if self.waiting.is_empty() {
                    self.kept.clear();
                    self.kept.extend_from_slice(&data[(extent.host() - offset) as usize..]);
                    self.kept_from = extent.host();
                }
                self.waiting.push_back(extent);
            }
        }
        Ok(())
    }

    /// Writes the part of an uncompressed extent that these bytes contain; remembers the extent if more is to come.
    fn write_part(&mut self, extent: Extent, chunk: &Arc<Chunk>) -> Result<(), Error> {
        let bits = self.plan.header.cluster_bits;
        let offset = chunk.offset;
        let end = offset + chunk.len() as u64;
        let needed_end = self.plan.needed_end(extent);
        let (from, to) = (extent.host().max(offset), needed_end.min(end));
        if from < to {
            let guest = (extent.guest() << bits) + (from - extent.host());
            let part = (from - offset) as usize..(to - offset) as usize;
            self.crew.give(Job::Data { chunk: Arc::clone(chunk), part, guest })?;
        }
        if needed_end > end {
            self.open.push(extent);
        }
        Ok(())
    }

    /// Gives the waiting compressed clusters their further bytes.
    fn push_waiting(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let bits = self.plan.header.cluster_bits;
        let Some(last) = self.waiting.iter().map(|extent| extent.host() + extent.length(bits)).max() else {
            return Ok(());
        };
        let wanted = (last - offset).min(data.len() as u64);
        self.kept.extend_from_slice(&data[..wanted as usize]);
        let kept_end = self.kept_from + self.kept.len() as u64;
        let kept = std::mem::take(&mut self.kept);
        let mut still = VecDeque::new();
        for extent in std::mem::take(&mut self.waiting) {
            let stop = extent.host() + extent.length(bits);
            if stop <= kept_end {
                let (from, to) = (extent.host() - self.kept_from, stop - self.kept_from);
                self.compressed(extent, &kept[from as usize..to as usize])?;
            } else {
                still.push_back(extent);
            }
        }
        if let Some(first) = still.front() {
            self.kept = kept[(first.host() - self.kept_from) as usize..].to_vec();
            self.kept_from = first.host();
        }
        self.waiting = still;
        Ok(())
    }

    /// Hands a compressed cluster to the workers, together with its neighbours.
    fn compressed(&mut self, extent: Extent, data: &[u8]) -> Result<(), Error> {
        let cluster = self.plan.header.cluster_size();
        if let Some(batch) = &mut self.batch
            && batch.guest + batch.lengths.len() as u64 == extent.guest()
            && (batch.lengths.len() as u64 + 1) * cluster <= BATCH
        {
            batch.data.extend_from_slice(data);
            batch.lengths.push(data.len());
            return Ok(());
        }
        self.hand_over()?;
        self.batch = Some(Batch { data: data.to_vec(), lengths: vec![data.len()], guest: extent.guest() });
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        self.batch.take().map_or(Ok(()), |batch| self.crew.give(Job::Clusters(batch)))
    }

    /// The file ended at `end`.
    fn end(&mut self, end: u64) -> Result<(), Error> {
        let unfinished = self.waiting.iter().chain(&self.open).chain(self.plan.extents.get(self.next..).unwrap_or(&[]));
        let needed = unfinished.map(|extent| self.plan.needed_end(*extent)).max().unwrap_or(0);
        if needed > end {
            return Err(Error::Truncated { what: "the qcow2 image".into(), expected: needed, found: end });
        }
        // The last sector of a compressed cluster may lie partly beyond the file's end: those bytes are not needed.
        let kept = std::mem::take(&mut self.kept);
        for extent in std::mem::take(&mut self.waiting) {
            self.compressed(extent, &kept[(extent.host() - self.kept_from) as usize..])?;
        }
        self.hand_over()
    }
}
