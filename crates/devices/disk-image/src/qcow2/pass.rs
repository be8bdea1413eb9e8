//! The pass over the file: every piece goes to its place, and the tables must be those of the plan.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::cluster::ClusterDecoder;
use super::plan::{Extent, Plan, Region};
use crate::buffer::AlignedBuf;
use crate::disk::Disk;
use crate::error::Error;
use crate::held::HeldDisk;
use crate::pipeline::Feed;

/// Most threads that decompress.
const MAX_WORKERS: usize = 4;

/// Compressed clusters that follow each other on the disk are written together, up to this many bytes.
const BATCH: u64 = 1 << 20;

/// Compressed clusters for consecutive places on the disk.
struct Job {
    data: Vec<u8>,
    /// Length of each cluster's compressed bytes in `data`.
    lengths: Vec<usize>,
    /// First cluster on the disk.
    guest: u64,
}

/// Writes the image while it passes by; gives its virtual size. `name` is the image's address, for errors.
///
/// # Errors
/// Any of the image's, source's and disk's.
pub(crate) fn write(plan: Plan, feed: &mut Feed<'_, '_>, disk: &HeldDisk<'_>, name: &str) -> Result<u64, Error> {
    let written = feed.monitor.written.clone();
    let workers = thread::available_parallelism().map_or(1, usize::from).clamp(1, MAX_WORKERS);
    let failure = Mutex::new(None);
    let (jobs, queue) = sync_channel::<Job>(workers);
    let queue = Mutex::new(queue);
    let passed = thread::scope(|scope| {
        let compressed = plan.extents.iter().any(|extent| extent.is_compressed());
        for _ in 0..if compressed { workers } else { 0 } {
            thread::Builder::new()
                .name("decompress".into())
                .spawn_scoped(scope, || {
                    if let Err(error) = decompress(&plan, &queue, disk, &written) {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        // Drain the queue, so that the pass is never held up by it.
                        while take(&queue).is_some() {}
                    }
                })
                .map_err(|_| Error::Pipeline { stage: "decompress" })?;
        }
        Pass::new(&plan, disk, &written, jobs).run(feed, &failure, name)
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => passed.map(|()| plan.virtual_size()),
    }
}

fn take(queue: &Mutex<Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Decompresses and writes jobs until there are no more.
fn decompress(
    plan: &Plan,
    queue: &Mutex<Receiver<Job>>,
    disk: &HeldDisk<'_>,
    written: &AtomicU64,
) -> Result<(), Error> {
    let bits = plan.header.cluster_bits;
    let cluster = plan.header.cluster_size() as usize;
    let mut decoder = ClusterDecoder::new(plan.header.compression)?;
    let mut out = AlignedBuf::new(cluster.max(BATCH as usize));
    while let Some(job) = take(queue) {
        let guest = job.guest << bits;
        let mut rest = job.data.as_slice();
        for (index, length) in job.lengths.iter().enumerate() {
            let (data, after) = rest.split_at(*length);
            rest = after;
            let room = &mut out.room()[index * cluster..(index + 1) * cluster];
            decoder.decode(data, room, guest + (index * cluster) as u64)?;
        }
        let length = ((job.lengths.len() * cluster) as u64).min(plan.virtual_size() - guest);
        out.set_len(length as usize);
        disk.write_at(guest, &out)?;
        written.fetch_add(length, Ordering::Relaxed);
    }
    Ok(())
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
    disk: &'a HeldDisk<'a>,
    written: &'a AtomicU64,
    jobs: SyncSender<Job>,
    job: Option<Job>,
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
    fn new(plan: &'a Plan, disk: &'a HeldDisk<'a>, written: &'a AtomicU64, jobs: SyncSender<Job>) -> Self {
        Self {
            plan,
            disk,
            written,
            jobs,
            job: None,
            next: 0,
            open: Vec::new(),
            waiting: VecDeque::new(),
            kept: Vec::new(),
            kept_from: 0,
        }
    }

    fn run(mut self, feed: &mut Feed<'_, '_>, failure: &Mutex<Option<Error>>, name: &str) -> Result<(), Error> {
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
            if failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return Ok(());
            }
            for watch in &mut watches {
                watch.see(chunk.offset, &chunk);
            }
            self.push(chunk.offset, &chunk)?;
            end = chunk.offset + chunk.len() as u64;
        }
        self.end(end)?;
        if watches.into_iter().all(TableWatch::ended_same) {
            return Ok(());
        }
        let reason = "its qcow2 tables were others when it was read the second time".to_owned();
        Err(Error::SourceChanged { url: name.to_owned(), reason })
    }

    /// Takes the file's next bytes.
    fn push(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let bits = self.plan.header.cluster_bits;
        let end = offset + data.len() as u64;
        self.push_waiting(offset, data)?;
        for extent in std::mem::take(&mut self.open) {
            self.write_part(extent, offset, data)?;
        }
        while let Some(extent) = self.plan.extents.get(self.next).copied().filter(|extent| extent.host() < end) {
            self.next += 1;
            if !extent.is_compressed() {
                self.write_part(extent, offset, data)?;
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

    /// Writes what there is of an uncompressed piece in these bytes; remembers it if there is more to come.
    fn write_part(&mut self, extent: Extent, offset: u64, data: &[u8]) -> Result<(), Error> {
        let bits = self.plan.header.cluster_bits;
        let end = offset + data.len() as u64;
        let needed_end = self.plan.needed_end(extent);
        let (from, to) = (extent.host().max(offset), needed_end.min(end));
        if from < to {
            let guest = (extent.guest() << bits) + (from - extent.host());
            self.disk.write_at(guest, &data[(from - offset) as usize..(to - offset) as usize])?;
            self.written.fetch_add(to - from, Ordering::Relaxed);
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
        if let Some(job) = &mut self.job
            && job.guest + job.lengths.len() as u64 == extent.guest()
            && (job.lengths.len() as u64 + 1) * cluster <= BATCH
        {
            job.data.extend_from_slice(data);
            job.lengths.push(data.len());
            return Ok(());
        }
        self.hand_over()?;
        self.job = Some(Job { data: data.to_vec(), lengths: vec![data.len()], guest: extent.guest() });
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        match self.job.take() {
            Some(job) => self.jobs.send(job).map_err(|_| Error::Pipeline { stage: "decompress" }),
            None => Ok(()),
        }
    }

    /// The file ended at `end`.
    fn end(&mut self, end: u64) -> Result<(), Error> {
        let unfinished = self.waiting.iter().chain(&self.open).chain(self.plan.extents.get(self.next..).unwrap_or(&[]));
        let needed = unfinished.map(|extent| self.plan.needed_end(*extent)).max().unwrap_or(0);
        if needed > end {
            return Err(Error::Truncated { what: "the qcow2 image".into(), expected: needed, found: end });
        }
        // What a cluster's last sector lacks is not needed.
        let kept = std::mem::take(&mut self.kept);
        for extent in std::mem::take(&mut self.waiting) {
            self.compressed(extent, &kept[(extent.host() - self.kept_from) as usize..])?;
        }
        self.hand_over()
    }
}
