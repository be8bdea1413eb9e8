//! The stages that run beside the one that writes: downloading and hashing, over a fixed set of buffers.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::buffer::{Chunk, Pool};
use crate::checksum::{Checksum, Hasher};
use crate::error::Error;
use crate::source::{Source, read_full};

/// Buffers between download, hash and writer: 16 MiB in all.
const BUFFERS: usize = 16;

/// How often the caller is asked whether to continue, while the pipeline is idle.
const TICK: Duration = Duration::from_millis(200);

/// Phase of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Reading the image's own tables (qcow2).
    Metadata,
    /// Making the image's empty parts zero on the disk (qcow2).
    Zeroing,
    /// Downloading, verifying and writing.
    Writing,
    /// Verified: partition tables, last writes.
    Finishing,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Bytes of the image file consumed in the verified pass; while its tables are read, those that have come.
    pub downloaded: u64,
    /// Length of the image file, if known.
    pub download_total: Option<u64>,
    /// Bytes of the disk written or made zero.
    pub written: u64,
    /// Bytes of the disk that the image covers, if known in advance.
    pub write_total: Option<u64>,
}

/// The caller's answer to a [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Continue.
    Continue,
    /// Stop as soon as possible; the disk is left without a partition table.
    Cancel,
}

/// Reports progress to the caller and asks whether to continue.
pub(crate) struct Monitor<'a> {
    callback: &'a mut dyn FnMut(&Progress) -> Flow,
    pub(crate) progress: Progress,
    /// Bytes written, counted by whichever thread writes.
    pub(crate) written: Arc<AtomicU64>,
    /// Bytes that have come, while tables are read.
    arriving: Option<Arc<AtomicU64>>,
}

impl<'a> Monitor<'a> {
    pub(crate) fn new(callback: &'a mut dyn FnMut(&Progress) -> Flow) -> Self {
        let progress =
            Progress { phase: Phase::Metadata, downloaded: 0, download_total: None, written: 0, write_total: None };
        Self { callback, progress, written: Arc::default(), arriving: None }
    }

    /// # Errors
    /// [`Error::Cancelled`].
    pub(crate) fn tick(&mut self) -> Result<(), Error> {
        self.progress.written = self.written.load(Ordering::Relaxed);
        if let Some(arriving) = &self.arriving {
            self.progress.downloaded = arriving.load(Ordering::Relaxed);
        }
        match (self.callback)(&self.progress) {
            Flow::Continue => Ok(()),
            Flow::Cancel => Err(Error::Cancelled),
        }
    }

    /// Waits for a value from another thread, and meanwhile reports to the caller. `None`: the sender was dropped.
    pub(crate) fn wait<T>(&mut self, from: &Receiver<T>) -> Result<Option<T>, Error> {
        loop {
            match from.recv_timeout(TICK) {
                Ok(item) => return Ok(Some(item)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.tick()?,
            }
        }
    }

    /// The same as [`Self::run`] for work that reads from this source what is not consumed yet. A server without ranges is read up to the last of it, for hours
    /// perhaps.
    pub(crate) fn run_reading<T: Send + 'static>(
        &mut self,
        stage: &'static str,
        source: Box<dyn Source>,
        work: impl FnOnce(Box<dyn Source>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.arriving = source.arriving();
        let result = self.run(stage, move || work(source));
        self.arriving = None;
        self.progress.downloaded = 0;
        result
    }

    /// Runs blocking work on a separate thread, so that the caller can cancel meanwhile. After a cancel, the thread ends on its own: it holds nothing
    /// but the source.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        stage: &'static str,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (send, receive) = channel();
        spawn(stage, move || {
            let _ = send.send(work());
        })?;
        self.wait(&receive)?.ok_or(Error::Pipeline { stage })?
    }
}

fn spawn(stage: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    thread::Builder::new().name(stage.to_owned()).spawn(work).map(drop).map_err(|_| Error::Pipeline { stage })
}

type Item = Result<Arc<Chunk>, Error>;

/// The image's bytes as they arrive, while another thread hashes the same bytes.
pub(crate) struct Feed<'m, 'c> {
    chunks: Receiver<Item>,
    digest: Receiver<Checksum>,
    current: Option<(Arc<Chunk>, usize)>,
    ended: bool,
    /// The error that a decoder saw as an input error.
    error: Option<Error>,
    pub(crate) monitor: &'m mut Monitor<'c>,
}

impl<'m, 'c> Feed<'m, 'c> {
    /// Starts downloading and hashing.
    pub(crate) fn start(source: Box<dyn Source>, hasher: Hasher, monitor: &'m mut Monitor<'c>) -> Result<Self, Error> {
        let (chunk_sender, chunks) = channel();
        let (hash_sender, to_hash) = channel();
        let (digest_sender, digest) = channel();
        monitor.progress.phase = Phase::Writing;
        monitor.progress.download_total = source.length();
        spawn("download", move || download(source, &chunk_sender, &hash_sender))?;
        spawn("hash", move || hash(hasher, &to_hash, &digest_sender))?;
        Ok(Self { chunks, digest, current: None, ended: false, error: None, monitor })
    }

    /// The next chunk; `None` at the image's end.
    pub(crate) fn next_chunk(&mut self) -> Result<Option<Arc<Chunk>>, Error> {
        if self.ended {
            return Ok(None);
        }
        // The download's last message is an error or an empty chunk: a channel that just ends is a dead thread.
        let chunk = self.monitor.wait(&self.chunks)?.ok_or(Error::Pipeline { stage: "download" })??;
        if chunk.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        self.monitor.progress.downloaded = chunk.offset + chunk.len() as u64;
        self.monitor.tick()?;
        Ok(Some(chunk))
    }

    /// Reads on to the end and gives the digest of all bytes.
    pub(crate) fn finish(&mut self) -> Result<Checksum, Error> {
        self.current = None;
        while self.next_chunk()?.is_some() {}
        self.monitor.wait(&self.digest)?.ok_or(Error::Pipeline { stage: "hash" })
    }

    /// The error behind a decoder's input error, if it was one of ours.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

impl BufRead for Feed<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.current.as_ref().is_none_or(|(chunk, used)| *used >= chunk.len()) {
            self.current = None;
            match self.next_chunk() {
                Ok(chunk) => self.current = chunk.map(|chunk| (chunk, 0)),
                Err(error) => {
                    self.error = Some(error);
                    return Err(io::Error::other("the image's source failed"));
                }
            }
        }
        Ok(self.current.as_ref().map_or(&[][..], |(chunk, used)| &chunk[*used..]))
    }

    fn consume(&mut self, count: usize) {
        if let Some((_, used)) = &mut self.current {
            *used += count;
        }
    }
}

impl Read for Feed<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buf.len());
        buf[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

fn download(mut source: Box<dyn Source>, chunks: &Sender<Item>, to_hash: &Sender<Arc<Chunk>>) {
    let pool = Pool::new(BUFFERS);
    let mut offset = 0;
    while let Some(mut buf) = pool.take() {
        let item = read_full(source.as_mut(), buf.room()).and_then(|count| {
            buf.set_len(count);
            match source.length() {
                Some(expected) if count == 0 && offset < expected => {
                    Err(Error::Truncated { what: format!("the image at {}", source.name()), expected, found: offset })
                }
                _ => Ok(Arc::new(pool.chunk(offset, buf))),
            }
        });
        let last = item.as_ref().map_or(true, |chunk| chunk.is_empty());
        if let Ok(chunk) = &item {
            offset += chunk.len() as u64;
            let _ = to_hash.send(Arc::clone(chunk));
        }
        if chunks.send(item).is_err() || last {
            return;
        }
    }
}

fn hash(mut hasher: Hasher, chunks: &Receiver<Arc<Chunk>>, digest: &Sender<Checksum>) {
    let mut complete = false;
    for chunk in chunks {
        complete = chunk.is_empty();
        hasher.update(&chunk);
    }
    if complete {
        let _ = digest.send(hasher.finish());
    }
}
