//! Keys and rows, writes and their conditions, and errors.

use std::sync::Arc;

use bytes::Bytes;

use super::seal::KeyError;

/// The key of an object. `resource` is `plural` for core kinds, else `group/plural`; `ns` is empty for cluster scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Storage name of the resource.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster-scoped objects.
    pub ns: String,
    /// Object name.
    pub name: String,
}

/// One stored revision of an object. `body` is a tail, see [`crate::object`].
#[derive(Debug, Clone)]
pub struct Row {
    /// Namespace, empty for cluster-scoped objects.
    pub ns: String,
    /// Object name.
    pub name: String,
    /// Revision that wrote it.
    pub rev: u64,
    /// Encoded object.
    pub body: Bytes,
}

/// A stored object with its revision.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Revision that wrote it.
    pub rev: u64,
    /// Its tail as stored.
    pub tail: Bytes,
}

/// The required state of the key before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key is at exactly this revision.
    Rev(u64),
}

/// The change.
#[derive(Debug, Clone)]
pub enum Op {
    /// Store this body.
    Put(Bytes),
    /// Store this body of an object in deletion, even without room for others.
    Ending(Bytes),
    /// Remove the key; watchers get this last body.
    Delete(Bytes),
}

/// An additional condition, checked in the same transaction.
#[derive(Debug, Clone)]
pub enum Guard {
    /// Another key is still at this revision.
    Unchanged(Key, u64),
    /// No object lives in this namespace.
    EmptyNamespace(String),
}

/// One write.
#[derive(Debug, Clone)]
pub struct Write {
    /// The key to write.
    pub key: Key,
    /// Its expected state.
    pub expect: Expect,
    /// The change.
    pub op: Op,
    /// An additional condition.
    pub guard: Option<Guard>,
}

/// Why a write failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum WriteError {
    /// The key is not in the expected state.
    #[error("the key is not in the expected state")]
    Conflict,
    /// The guard is not satisfied.
    #[error("a condition of the write does not hold any more")]
    Guard,
    /// The disk is full.
    #[error("the disk of the data folder is full: free space, or delete objects, and try again")]
    Full,
    /// The file has reached its limit.
    #[error(
        "the store has reached its size limit of {limit} bytes: delete objects, and wait five minutes for the room"
    )]
    Limit {
        /// The limit in bytes.
        limit: u64,
    },
    /// SQLite failed; nothing was acknowledged.
    #[error("the store could not write: {0}")]
    Failed(String),
    /// The writer has stopped: shutdown, or a failed sync.
    #[error("the store takes no more writes")]
    Stopped,
}

/// Errors of opening or reading the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite said no.
    #[error("the store {what} failed")]
    Sqlite {
        /// What was attempted.
        what: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The file was written by a newer program.
    #[error("the store has format {found}, this program knows up to {known}: use a newer program")]
    Format {
        /// Format in the file.
        found: i64,
        /// Highest known format.
        known: i64,
    },
    /// The revision was compacted away.
    #[error("revision {asked} is gone, the oldest kept is {oldest}")]
    Compacted {
        /// Revision asked for.
        asked: u64,
        /// Oldest revision that can be read.
        oldest: u64,
    },
    /// The keys of encrypted Secrets.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A thread could not be started or died.
    #[error("the store's thread failed: {0}")]
    Thread(String),
}
