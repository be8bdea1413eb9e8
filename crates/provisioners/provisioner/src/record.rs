//! What a provisioner must remember of a host: opaque to everybody else, versioned, written with compare-and-swap.
//!
//! A provisioner has no store of its own. Whatever must outlive its process (what it has begun, which boot of its agent is the newest, which
//! sessions it may have left open) goes into the host's record before it has an effect. The record outlives the host: detach, deletion and
//! re-creation from the status annotation, a restore, `clusterctl move`. In a server it is the part of a MachineRecord's spec that is the
//! provisioner's. What people read is [`crate::History`], which may be deleted at any time.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{HistoryEntry, RecordError};

/// Largest [`RecordContent::data`], in bytes of JSON.
pub const MAX_RECORD_BYTES: usize = 64 << 10;

/// Largest number that a record counts to, its own revision or a count within its data: what JSON carries everywhere, and nobody comes to. A record with
/// more was edited.
pub const MAX_COUNT: u64 = 1 << 53;

/// What is recorded of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Counts the writes of the content; 0 before the first.
    pub revision: u64,
    /// What was written last; `None` before the first write, and when the record has been deleted.
    pub content: Option<RecordContent>,
    /// Without a content: what the host's history tells, the oldest first. Versions before records kept what they remembered there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<HistoryEntry>,
}

/// What a provisioner has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordContent {
    /// Name of the provisioner: no other reads it.
    pub provisioner: String,
    /// Version of the format of `data`. A provisioner reads its own version and the one before; what it does not know in a newer one it must
    /// not write over.
    pub version: u32,
    /// The provisioner's own.
    pub data: serde_json::Value,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// An effect on the machine follows. It is refused when the host has changed since the call was decided on, or another process leads.
    Intent,
    /// Something is kept that has happened, or that has no effect.
    Note,
}

/// One host's record.
#[async_trait]
pub trait Record: Send + Sync {
    /// What is recorded, as this process last read or wrote it.
    fn current(&self) -> Recorded;

    /// Replaces the content of revision `expected` (0 where there is none) and gives the new revision. Durable when it returns.
    ///
    /// # Errors
    /// When another revision is found there (it is [`Self::current`] afterwards), the content is too large, the intent is not wanted any more, or
    /// nothing can be written. Nothing is written then as far as is known.
    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError>;

    /// Whether the host, read anew, still is what the call was decided on. To be asked right before each order that switches or resets the machine or
    /// gives its agent work: minutes may lie between an intent and its effect.
    ///
    /// # Errors
    /// When it is not, with what has changed, or cannot be read: nothing is to be done then, and the call is made again if the host still wishes it.
    async fn still_wanted(&self) -> Result<(), RecordError>;
}
