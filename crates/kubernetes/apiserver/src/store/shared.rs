//! The state that readers and the writer of a store share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use tokio::sync::watch as latest;

use super::news::News;
use super::recent::Recent;
use super::seal::Keyring;
use super::sqlite::{Opened, Readers, Tables};
use super::watch::Ring;

/// Bytes of recent events kept in memory for watchers; older ones come from the file.
const RING_BYTES: usize = 4 << 20;
/// Bytes of present bodies cached for readers; others come from the file.
const RECENT_BYTES: usize = 12 << 20;
/// Bytes of labels cached for lists with label selectors: enough for some ten thousand objects.
const LABELS_BYTES: usize = 8 << 20;
/// Bytes of the index by label of each resource that is listed by label; larger ones are not indexed.
const INDEX_BYTES: usize = 8 << 20;
/// Most concurrent reads; each has a connection and a thread.
const READERS: usize = 8;

/// Concurrent reads on this machine: reads are work for processors, and of a thread that waits for one the memory is
/// needed all the same.
fn readers() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, READERS))
}

/// The state that readers and the writer share.
pub(super) struct Shared {
    pub(super) ring: Ring,
    pub(super) recent: Recent,
    pub(super) news: News,
    pub(super) compacted: AtomicU64,
    pub(super) readers: Readers,
    pub(super) reading: tokio::sync::Semaphore,
    pub(super) published: latest::Sender<u64>,
    /// Set permanently after a failed sync.
    pub(super) broken: AtomicBool,
    /// Whether the disk was full at the last attempt.
    pub(super) tight: AtomicBool,
    /// Whether the file has reached its limit.
    pub(super) over: AtomicBool,
    /// File size at which only deletions are stored, in bytes.
    pub(super) limit: u64,
    /// `None` for tables in memory.
    pub(super) file: Option<PathBuf>,
    pub(super) keys: Arc<Keyring>,
}

impl Shared {
    pub(super) fn new(opened: Opened, tables: Tables, file: Option<PathBuf>, limit: u64) -> Arc<Self> {
        let (published, _) = latest::channel(opened.revision);
        Arc::new(Self {
            ring: Ring::new(opened.revision, RING_BYTES),
            recent: Recent::new(RECENT_BYTES),
            news: News::default(),
            compacted: AtomicU64::new(opened.compacted),
            readers: Readers::new(tables, LABELS_BYTES, INDEX_BYTES, Arc::clone(&opened.keys)),
            reading: tokio::sync::Semaphore::new(readers()),
            published,
            broken: AtomicBool::new(false),
            tight: AtomicBool::new(false),
            over: AtomicBool::new(false),
            limit,
            file,
            keys: opened.keys,
        })
    }
}
