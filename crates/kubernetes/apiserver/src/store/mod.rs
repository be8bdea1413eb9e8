//! The store: all revisions of all objects in one SQLite file, with one writer and many readers.
//!
//! A row is one revision of one object: `(revision, key, previous revision, deleted, body)`. Revisions are global and
//! never decrease. The writer thread drains its queue, checks each write against the present revision of its key,
//! commits all of them with one sync, and only then acknowledges and publishes them. Readers use their own
//! connections and see committed revisions only. Watchers read events that are no longer in memory from the rows,
//! until compaction.
//!
//! On a full disk, or at the size limit, only reads and writes that end objects succeed. A failed sync ends all writing
//! until the next start, because the state of the disk is unknown.
//!
//! In-process servers keep the tables in [`Memory`] and access them on the caller's thread, so that nothing waits for
//! another thread while the executor's clock is paused.

mod backup;
mod by_label;
mod labels;
mod memory;
mod news;
mod recent;
mod reserve;
mod seal;
mod shared;
mod sqlite;
mod types;
mod watch;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch as latest};

pub use backup::{BackupError, backup, restore};
pub use by_label::Pair;
pub use labels::Pick;
pub use memory::Memory;
pub use seal::KeyError;
pub use sqlite::{Cursor, ListPage, ListQuery};
pub use types::{Expect, Guard, Key, Op, Row, StoreError, Stored, Write, WriteError};
pub use watch::{Event, EventsError, Frames};

use shared::Shared;
use sqlite::{Readers, Tables};
use writer::{Command, Writer};

/// Capacity of the writer's queue; callers wait beyond that.
const QUEUE: usize = 1024;

/// Default limit of the file size in bytes, see [`Store::open_limited`]. Beyond it deletions still succeed, and
/// compaction makes room.
pub const SIZE_LIMIT: u64 = 8 << 30;

/// How writes reach the writer.
#[derive(Clone)]
enum Door {
    /// By a queue to its thread, so that other tasks run while it syncs.
    Thread(mpsc::Sender<Command>),
    /// Directly, on the caller's thread: no work happens outside the caller's executor. `None` after the end.
    Here(Arc<Mutex<Option<Writer>>>),
}

/// Handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    door: Door,
}

impl Store {
    /// Opens or creates `file` and starts the writer thread. Secrets are encrypted with the keys in the file `keys`,
    /// which is created if it is absent and the store has no encrypted Secrets yet.
    pub fn open(file: &Path, keys: &Path) -> Result<Self, StoreError> {
        Self::open_limited(file, keys, SIZE_LIMIT)
    }

    /// Like [`Store::open`], with another limit of the file size in bytes.
    pub fn open_limited(file: &Path, keys: &Path, limit: u64) -> Result<Self, StoreError> {
        let (connection, opened) = sqlite::open_writer(file, keys)?;
        let revision = opened.revision;
        let shared = Shared::new(opened, Tables::File(file.to_owned(), Mutex::default()), Some(file.to_owned()), limit);
        let (queue, commands) = mpsc::channel(QUEUE);
        let writer = Writer::new(Arc::new(Mutex::new(connection)), revision, Arc::clone(&shared));
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer::run(writer, commands))
            .map_err(|e| StoreError::Thread(e.to_string()))?;
        Ok(Self { shared, door: Door::Thread(queue) })
    }

    /// Opens tables in memory. It starts no thread, and never waits for one.
    pub fn in_memory(memory: &Memory) -> Result<Self, StoreError> {
        let (connection, opened) = memory.open()?;
        let revision = opened.revision;
        let shared = Shared::new(opened, Tables::Memory(Arc::clone(&connection)), None, SIZE_LIMIT);
        let writer = Writer::new(connection, revision, Arc::clone(&shared));
        Ok(Self { shared, door: Door::Here(Arc::new(Mutex::new(Some(writer)))) })
    }

    /// Whether the store accepts writes: false after a failed sync or after the end.
    pub fn takes_writes(&self) -> bool {
        let open = match &self.door {
            Door::Thread(queue) => !queue.is_closed(),
            Door::Here(writer) => writer.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
        };
        open && !self.shared.broken.load(Ordering::Acquire)
    }

    /// Why only deletions are stored, if the store lacks room.
    pub fn lacks_room(&self) -> Option<&'static str> {
        let found = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        if found(&self.shared.tight) {
            Some("the disk of the data folder is full: only deletions are stored")
        } else if found(&self.shared.over) {
            Some("the store has reached its size limit: only deletions are stored")
        } else {
            None
        }
    }

    /// Size of the file in bytes, without the part of the log that is not checkpointed yet.
    pub fn file_size(&self) -> u64 {
        match &self.shared.file {
            Some(file) => std::fs::metadata(file).map_or(0, |m| m.len()),
            None => self.shared.readers.bytes().unwrap_or_default(),
        }
    }

    /// Number of objects by storage name of their resource.
    pub async fn object_counts(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.read("count", Readers::object_counts).await
    }

    /// The newest committed revision.
    pub fn revision(&self) -> u64 {
        *self.shared.published.borrow()
    }

    /// The oldest revision whose history can be read.
    pub fn compacted(&self) -> u64 {
        self.shared.compacted.load(Ordering::Acquire)
    }

    /// Wakes whenever a newer revision is committed.
    pub fn subscribe(&self) -> latest::Receiver<u64> {
        self.shared.published.subscribe()
    }

    /// Wakes when an object of the resource is written, and at no other commit.
    pub fn subscribe_to(&self, resource: &Arc<str>) -> latest::Receiver<u64> {
        self.shared.news.subscribe(resource)
    }

    /// How often the file was read since the start.
    #[cfg(test)]
    pub fn file_reads(&self) -> u64 {
        self.shared.readers.uses()
    }

    /// Performs one write and returns its revision once it is on disk.
    pub async fn write(&self, write: Write) -> Result<u64, WriteError> {
        let queue = match &self.door {
            Door::Thread(queue) => queue,
            Door::Here(writer) => return here(writer, |writer| writer.write(write)),
        };
        let (reply, answer) = oneshot::channel();
        queue.send(Command::Write(write, reply)).await.map_err(|_| WriteError::Stopped)?;
        answer.await.map_err(|_| WriteError::Stopped)?
    }

    /// The present state of a key.
    pub async fn get(&self, key: &Key) -> Result<Option<Row>, StoreError> {
        let miss = match self.shared.recent.get(key) {
            Ok(row) => return Ok(Some(row)),
            Err(miss) => miss,
        };
        let wanted = key.clone();
        let found = self.read("get", move |readers| readers.get(&wanted)).await?;
        if let Some(row) = &found {
            self.shared.recent.fill(key, miss, row);
        }
        Ok(found)
    }

    /// The body that revision `rev` wrote, if not compacted.
    pub async fn at_revision(&self, rev: u64) -> Result<Option<Bytes>, StoreError> {
        self.read("history", move |readers| readers.at_revision(rev)).await
    }

    /// Whether the labels of this body match. They are remembered as those of its revision.
    pub fn matches(&self, rev: u64, body: &[u8], pick: &Pick) -> bool {
        self.shared.readers.matches(rev, body, pick)
    }

    /// Whether the labels of a revision match; `None` if that is not known without reading it.
    pub fn known_to_match(&self, rev: u64, pick: &Pick) -> Option<bool> {
        self.shared.readers.known_to_match(rev, pick)
    }

    /// One page of a list.
    pub async fn list(&self, query: ListQuery) -> Result<ListPage, StoreError> {
        let asked = query.at.unwrap_or_default();
        let found = self.read("list", move |readers| readers.list(&query)).await?;
        found.map_err(|oldest| StoreError::Compacted { asked, oldest })
    }

    /// Number of objects after a position in a list.
    pub async fn count(&self, query: ListQuery) -> Result<u64, StoreError> {
        let asked = query.at.unwrap_or_default();
        let found = self.read("count", move |readers| readers.count(&query)).await?;
        found.map_err(|oldest| StoreError::Compacted { asked, oldest })
    }

    /// Every storage name of a resource with live objects in namespace `ns` (all objects if `None`).
    pub async fn resources_in_use(&self, ns: Option<String>) -> Result<Vec<String>, StoreError> {
        self.read("count", move |readers| readers.resources_in_use(ns.as_deref())).await
    }

    /// A batch of events of a resource after `rev`, oldest first, and the revision up to which it is complete.
    /// Continue with that revision.
    pub async fn events_after(&self, resource: &Arc<str>, rev: u64) -> Result<(Vec<Arc<Event>>, u64), EventsError> {
        if let Some(found) = self.shared.ring.after(resource, rev) {
            return Ok(found);
        }
        if rev < self.compacted() {
            return Err(EventsError::Compacted { oldest: self.compacted() });
        }
        if let Some(upto) = self.shared.ring.quiet(resource, rev) {
            return Ok((Vec::new(), upto));
        }
        let resource = Arc::clone(resource);
        let found = self.read("history", move |readers| readers.events_after(&resource, rev)).await;
        found.map_err(|e| EventsError::Store(e.to_string()))?.map_err(|oldest| EventsError::Compacted { oldest })
    }

    /// Compacts history up to `upto`: superseded rows are deleted, present objects are kept.
    pub async fn compact(&self, upto: u64) -> Result<(), WriteError> {
        loop {
            let done = match &self.door {
                Door::Here(writer) => here(writer, |writer| writer.compact(upto))?,
                Door::Thread(queue) => {
                    let (reply, answer) = oneshot::channel();
                    queue.send(Command::Compact(upto, reply)).await.map_err(|_| WriteError::Stopped)?;
                    answer.await.map_err(|_| WriteError::Stopped)??
                }
            };
            if done {
                return Ok(());
            }
        }
    }

    /// Commits all queued writes, then stops the writer.
    pub async fn close(&self) {
        let Door::Thread(queue) = &self.door else { return self.end() };
        let (reply, answer) = oneshot::channel();
        if queue.send(Command::Stop(reply)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Stops an in-process writer at once: nothing is written from now on. A writer thread continues.
    pub fn end(&self) {
        if let Door::Here(writer) = &self.door {
            writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Runs long work on a blocking thread; in-process stores run it here, on the caller's executor.
    pub async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
        match &self.door {
            Door::Here(_) => Ok(work()),
            Door::Thread(_) => tokio::task::spawn_blocking(work).await.map_err(|e| StoreError::Thread(e.to_string())),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Readers) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.shared.readers.in_memory() {
            return work(&self.shared.readers).map_err(|source| StoreError::Sqlite { what, source });
        }
        let _permit = self.shared.reading.acquire().await.map_err(|e| StoreError::Thread(e.to_string()))?;
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || work(&shared.readers))
            .await
            .map_err(|e| StoreError::Thread(e.to_string()))?
            .map_err(|source| StoreError::Sqlite { what, source })
    }
}

/// Runs `work` with the writer unless it has ended.
fn here<T>(
    writer: &Mutex<Option<Writer>>,
    work: impl FnOnce(&mut Writer) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map_or(Err(WriteError::Stopped), work)
}

#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;
