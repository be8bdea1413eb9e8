//! The store: every revision of every object in one SQLite file, one writer, many readers.
//!
//! A row is one revision of one object: `(revision, key, previous revision, deleted, body)`. Revisions are global and
//! never go back. The writer thread drains its queue, checks each write against the present revision of its key, commits
//! all of them with one sync and only then acknowledges and publishes them. Readers use connections of their own and see
//! committed revisions only. What watchers missed in memory they read from the rows, until compaction.
//!
//! A full disk or a full file refuses writes but those that end objects, and nothing else; a failed sync ends writing until the next start, because
//! nobody knows then what is on the disk.
//!
//! For servers in process the tables are in [`Memory`], and whoever writes or reads does so on the own thread: an executor
//! whose clock is paused has nothing to wait for.

mod backup;
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
pub use labels::Pick;
pub use memory::Memory;
pub use seal::KeyError;
pub use sqlite::{Cursor, ListPage, ListQuery};
pub use types::{Expect, Guard, Key, Op, Row, StoreError, Stored, Write, WriteError};
pub use watch::{Event, EventsError, Frames};

use shared::Shared;
use sqlite::{Readers, Tables};
use writer::{Command, Writer};

/// Writes that may wait for the writer before callers have to.
const QUEUE: usize = 1024;

/// Size of the file in bytes from which on no more is stored, unless [`Store::open_limited`] says otherwise. It can
/// still be deleted from, and compaction makes room.
pub const SIZE_LIMIT: u64 = 8 << 30;

/// How writes get to the writer.
#[derive(Clone)]
enum Door {
    /// It has a thread, which others write for as long as it syncs.
    Thread(mpsc::Sender<Command>),
    /// Whoever writes does so at once, on the own thread: nothing goes on that its executor does not know of. `None` at
    /// the end.
    Here(Arc<Mutex<Option<Writer>>>),
}

/// Handle to the store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    door: Door,
}

impl Store {
    /// Opens or creates `file`, whose Secrets are encrypted with the keys of the file `keys`, which is made if it is not
    /// there and not needed either, and starts the writer thread.
    pub fn open(file: &Path, keys: &Path) -> Result<Self, StoreError> {
        Self::open_limited(file, keys, SIZE_LIMIT)
    }

    /// As [`Store::open`], with another limit of the file's size in bytes.
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

    /// On tables in memory. It has no thread, and waits for none.
    pub fn in_memory(memory: &Memory) -> Result<Self, StoreError> {
        let (connection, opened) = memory.open()?;
        let revision = opened.revision;
        let shared = Shared::new(opened, Tables::Memory(Arc::clone(&connection)), None, SIZE_LIMIT);
        let writer = Writer::new(connection, revision, Arc::clone(&shared));
        Ok(Self { shared, door: Door::Here(Arc::new(Mutex::new(Some(writer)))) })
    }

    /// Whether writes can succeed: false once a sync failed, or after the end.
    pub fn takes_writes(&self) -> bool {
        let open = match &self.door {
            Door::Thread(queue) => !queue.is_closed(),
            Door::Here(writer) => writer.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
        };
        open && !self.shared.broken.load(Ordering::Acquire)
    }

    /// Why no new objects are stored although the store takes writes, if there is a reason.
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

    /// Size of the file in bytes, without what is not yet moved into it from its log.
    pub fn file_size(&self) -> u64 {
        match &self.shared.file {
            Some(file) => std::fs::metadata(file).map_or(0, |m| m.len()),
            None => self.shared.readers.bytes().unwrap_or_default(),
        }
    }

    /// Objects by storage name of their resource.
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

    /// Wakes whenever an object of a resource is written, and at no other commit.
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

    /// One page of a list.
    pub async fn list(&self, query: ListQuery) -> Result<ListPage, StoreError> {
        let asked = query.at.unwrap_or_default();
        let found = self.read("list", move |readers| readers.list(&query)).await?;
        found.map_err(|oldest| StoreError::Compacted { asked, oldest })
    }

    /// How many objects a list as of now has after a place.
    pub async fn count(&self, query: ListQuery) -> Result<u64, StoreError> {
        let asked = query.at.unwrap_or_default();
        let found = self.read("count", move |readers| readers.count(&query)).await?;
        found.map_err(|oldest| StoreError::Compacted { asked, oldest })
    }

    /// Every storage name of a resource with live objects in namespace `ns` (all objects if `None`).
    pub async fn resources_in_use(&self, ns: Option<String>) -> Result<Vec<String>, StoreError> {
        self.read("count", move |readers| readers.resources_in_use(ns.as_deref())).await
    }

    /// Events of a resource after `rev`, oldest first, and the revision up to which there are no more.
    /// At most some hundred at once: call again with the returned revision.
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

    /// Forgets history up to `upto`: superseded rows go, present objects stay.
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

    /// Commits what is queued, then ends the writer.
    pub async fn close(&self) {
        let Door::Thread(queue) = &self.door else { return self.end() };
        let (reply, answer) = oneshot::channel();
        if queue.send(Command::Stop(reply)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Ends the writer at once if it is here: nothing is written from now on. One with a thread goes on.
    pub fn end(&self) {
        if let Door::Here(writer) = &self.door {
            writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Does what takes long: in a thread, but here if nothing shall go on beside the caller's executor.
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

/// Lets the writer do something, unless it has ended.
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
