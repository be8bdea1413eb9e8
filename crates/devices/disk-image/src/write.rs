//! Writing an image to a disk, so that no partition table is visible before all of it is verified.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terms::{Compression, DiskFormat};

use crate::buffer::{Chunk, Pool, is_zero};
use crate::checksum::{Checksum, Hasher};
use crate::crew::{Crew, with_crew};
use crate::disk::{Disk, check_capacity, make_zero_in_steps};
use crate::error::Error;
use crate::format::{DEFAULT_MAX_WINDOW, decode_error, decoder};
use crate::held::HeldDisk;
use crate::partition::{self, TableKind};
use crate::pipeline::{Feed, Flow, Monitor, Phase, Progress};
use crate::qcow2;
use crate::source::Source;

/// Buffers between decoder and writer.
const DECODED_BUFFERS: usize = 10;

/// Longest run of zeros that is gathered before it is made zero, in bytes.
const ZERO_RUN: u64 = 256 << 20;

/// A request to write an image.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The image's declared format.
    pub format: DiskFormat,
    /// Its compression as a whole, by the address's suffix ([`Compression::from_url`]).
    pub compression: Compression,
    /// Digest of the file as downloaded (compressed, and in its own format).
    pub checksum: Checksum,
    /// Largest window of a decoder, in bytes.
    pub max_window: u64,
}

impl WriteRequest {
    /// With the usual limit for windows.
    pub fn new(format: DiskFormat, compression: Compression, checksum: Checksum) -> Self {
        Self { format, compression, checksum, max_window: DEFAULT_MAX_WINDOW }
    }
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the image file in the verified pass.
    pub downloaded: u64,
    /// Bytes of the disk that the image covers.
    pub image_size: u64,
    /// Digest of the download: equal to the requested one.
    pub digest: Checksum,
    /// Partition table on the disk now; `None` if the image has none.
    pub table: Option<TableKind>,
    /// Warnings for people.
    pub warnings: Vec<String>,
}

/// Writes an image, which is verified before its partition table becomes visible.
///
/// The disk's first and last MiB are zeroed first, and writes to them are buffered until the digest of all downloaded bytes has been verified; then a
/// GPT's backup is moved to the disk's end, its protective MBR is adjusted, and the ends are written. On any error or cancel the disk is left without
/// a partition table, or, when the error was found before the first write (address, status, size, image tables), untouched.
///
/// `progress` is called often (every MiB and every 200 ms) and should be quick.
///
/// # Errors
/// Any [`Error`].
pub fn write_image(
    source: Box<dyn Source>,
    request: &WriteRequest,
    disk: &dyn Disk,
    progress: &mut dyn FnMut(&Progress) -> Flow,
) -> Result<Written, Error> {
    write_image_then(source, request, disk, progress, &mut |_| Ok(()))
}

/// Like [`write_image`], with edits to the verified disk before its tables become visible: bytes that `edit` writes to the first and last MiB become
/// visible together with the image's own tables, at the end.
///
/// # Errors
/// Any [`Error`]; one from `edit` leaves the disk without a partition table.
pub fn write_image_then(
    source: Box<dyn Source>,
    request: &WriteRequest,
    disk: &dyn Disk,
    progress: &mut dyn FnMut(&Progress) -> Flow,
    edit: &mut dyn FnMut(&dyn Disk) -> Result<(), Error>,
) -> Result<Written, Error> {
    let mut monitor = Monitor::new(progress);
    monitor.progress.download_total = source.length();
    monitor.tick()?;
    let (source, plan) = prepare(source, request, disk, &mut monitor)?;
    let held = HeldDisk::clear(disk)?;
    disk.reread_partition_table()?;
    if let Some(plan) = &plan {
        monitor.progress.write_total = Some(plan.virtual_size());
        monitor.progress.phase = Phase::Zeroing;
        plan.zero_gaps(&held, &mut monitor)?;
    }

    let name = source.name().to_owned();
    let mut feed = Feed::start(source, Hasher::like(&request.checksum), &mut monitor)?;
    let mut warnings = Vec::new();
    let outcome = match (plan, request.compression) {
        (Some(plan), _) => qcow2::write(plan, &mut feed, &held, &name),
        (None, Compression::None) => write_raw(&mut feed, &held, &mut warnings),
        (None, _) => write_decoded(&mut feed, request, &held),
    };
    let (image_size, digest) = verify(outcome, &mut feed, request)?;
    monitor.progress.phase = Phase::Finishing;
    monitor.tick()?;
    let table = partition::fit_to_disk(&held, image_size, &mut warnings)?;
    edit(&held)?;
    held.commit()?;
    monitor.tick().or_else(|error| match error {
        // Too late to cancel: the disk is complete.
        Error::Cancelled => Ok(()),
        other => Err(other),
    })?;
    Ok(Written { downloaded: monitor.progress.downloaded, image_size, digest, table, warnings })
}

/// All checks that can precede the first write.
fn prepare(
    source: Box<dyn Source>,
    request: &WriteRequest,
    disk: &dyn Disk,
    monitor: &mut Monitor<'_>,
) -> Result<(Box<dyn Source>, Option<qcow2::Plan>), Error> {
    let size = disk.size();
    match (request.format, request.compression) {
        (DiskFormat::Raw, compression) => {
            if compression == Compression::None
                && let Some(length) = source.length()
            {
                monitor.progress.write_total = Some(length);
                check_capacity(length, size, false)?;
            }
            Ok((source, None))
        }
        (DiskFormat::Qcow2, Compression::None) => {
            let (source, plan) =
                monitor.run_reading("image tables", source, move |source| qcow2::read_plan(source, size))?;
            Ok((source, Some(plan)))
        }
        (DiskFormat::Qcow2, _) => Err(Error::Unsupported {
            what: "a qcow2 image that is compressed as a whole; use qcow2's own compression (qemu-img convert -c)"
                .into(),
        }),
        (format @ (DiskFormat::Vdi | DiskFormat::Vmdk | DiskFormat::LiveIso), _) => Err(Error::Unsupported {
            what: format!("an image of the format {}; raw and qcow2 are written to disks", format.as_str()),
        }),
    }
}

/// Compares the digest. An error of the writing stage that may come from a damaged download is reported as a checksum mismatch.
fn verify(
    outcome: Result<u64, Error>,
    feed: &mut Feed<'_, '_>,
    request: &WriteRequest,
) -> Result<(u64, Checksum), Error> {
    let image_size = match outcome {
        Ok(size) => Ok(size),
        Err(error @ (Error::CorruptImage { .. } | Error::SourceChanged { .. })) => Err(error),
        Err(error) => return Err(error),
    };
    let digest = match (feed.finish(), image_size.is_err()) {
        (Ok(digest), _) => digest,
        // The first error is the better one to report, except for a cancel.
        (Err(error), true) if !matches!(error, Error::Cancelled) => {
            return image_size.map(|size| (size, request.checksum.clone()));
        }
        (Err(error), _) => return Err(error),
    };
    if digest != request.checksum {
        return Err(Error::ChecksumMismatch {
            expected: request.checksum.to_string(),
            found: digest.to_string(),
            bytes: feed.monitor.progress.downloaded,
        });
    }
    match image_size? {
        0 => Err(Error::Truncated { what: "the image".into(), expected: 512, found: 0 }),
        size => Ok((size, digest)),
    }
}

/// A piece of work for the crew.
enum Job {
    /// Data, to be written at the chunk's own offset.
    Data(Arc<Chunk>),
    /// Zeros: first byte, number of bytes.
    Zero(u64, u64),
}

/// Passes a sequential stream to the crew; merges whole chunks of zeros and zeroes them efficiently.
struct StreamWriter<'a, 'c> {
    crew: &'a Crew<'c, Job>,
    zeros: u64,
    end: u64,
}

impl StreamWriter<'_, '_> {
    /// Appends a chunk; its offset is the stream's length so far.
    fn push(&mut self, chunk: Arc<Chunk>) -> Result<(), Error> {
        let length = chunk.len() as u64;
        if is_zero(&chunk) {
            self.zeros += length;
            self.end += length;
            return if self.zeros >= ZERO_RUN { self.flush_zeros() } else { Ok(()) };
        }
        self.flush_zeros()?;
        self.end += length;
        self.crew.give(Job::Data(chunk))
    }

    fn flush_zeros(&mut self) -> Result<(), Error> {
        match std::mem::take(&mut self.zeros) {
            0 => Ok(()),
            length => self.crew.give(Job::Zero(self.end - length, length)),
        }
    }
}

/// Runs `body` with a writer for a sequential stream; gives the stream's length.
fn write_stream(
    held: &HeldDisk<'_>,
    written: &AtomicU64,
    body: impl FnOnce(&mut StreamWriter<'_, '_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let work = |_: &mut (), job: Job| {
        let length = match job {
            Job::Data(chunk) => {
                held.write_at(chunk.offset, &chunk)?;
                chunk.len() as u64
            }
            Job::Zero(offset, length) => {
                make_zero_in_steps(held, offset, length, &mut |_| Ok(()))?;
                length
            }
        };
        written.fetch_add(length, Ordering::Relaxed);
        Ok(())
    };
    with_crew(
        || Ok(()),
        work,
        |crew| {
            let mut writer = StreamWriter { crew, zeros: 0, end: 0 };
            body(&mut writer)?;
            writer.flush_zeros()?;
            Ok(writer.end)
        },
    )
}

/// The pipeline for uncompressed raw images: the very buffers of the download are written.
fn write_raw(feed: &mut Feed<'_, '_>, held: &HeldDisk<'_>, warnings: &mut Vec<String>) -> Result<u64, Error> {
    let written = feed.monitor.written.clone();
    write_stream(held, &written, |writer| {
        while let Some(chunk) = feed.next_chunk()? {
            if chunk.offset == 0 && chunk.starts_with(&qcow2::MAGIC) {
                warnings.push(
                    "the image is declared raw and was written as such, but it begins like a qcow2 file: \
                     set spec.image.format to qcow2 if it is one"
                        .into(),
                );
            }
            check_capacity(chunk.offset + chunk.len() as u64, held.size(), true)?;
            writer.push(chunk)?;
        }
        Ok(())
    })
}

/// The pipeline for compressed raw images: the calling thread decompresses.
fn write_decoded(feed: &mut Feed<'_, '_>, request: &WriteRequest, held: &HeldDisk<'_>) -> Result<u64, Error> {
    let written = feed.monitor.written.clone();
    write_stream(held, &written, |writer| {
        decode(feed, request, &mut |pool, buf| {
            check_capacity(writer.end + buf.len() as u64, held.size(), true)?;
            writer.push(Arc::new(pool.chunk(writer.end, buf)))
        })
    })
}

/// Decompresses the whole feed into buffers for `put`.
fn decode(
    feed: &mut Feed<'_, '_>,
    request: &WriteRequest,
    put: &mut dyn FnMut(&Pool, crate::buffer::AlignedBuf) -> Result<(), Error>,
) -> Result<(), Error> {
    let pool = Pool::new(DECODED_BUFFERS);
    let mut total = 0_u64;
    let failed = {
        let decoder = decoder(request.compression, &mut *feed, request.max_window);
        let mut decoder = decoder.map_err(|e| decode_error(request.compression, &e, 0, request.max_window))?;
        loop {
            let Some(mut buf) = pool.take() else { return Err(Error::Pipeline { stage: "write" }) };
            let (count, failed) = fill(&mut decoder, buf.room());
            buf.set_len(count);
            total += count as u64;
            if count > 0 {
                put(&pool, buf)?;
            }
            if failed.is_some() {
                break failed;
            }
            if count == 0 {
                return Ok(());
            }
        }
    };
    match (feed.take_error(), failed) {
        (Some(error), _) => Err(error),
        (None, Some(e)) => Err(decode_error(request.compression, &e, total, request.max_window)),
        (None, None) => Ok(()),
    }
}

/// Reads until the buffer is full, the stream ends or fails.
fn fill(from: &mut dyn Read, buf: &mut [u8]) -> (usize, Option<std::io::Error>) {
    let mut done = 0;
    while done < buf.len() {
        match from.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Some(e)),
        }
    }
    (done, None)
}
