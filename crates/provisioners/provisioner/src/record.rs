//! What a provisioner must remember of a host: opaque to all other components, versioned, written with compare-and-swap.
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

/// Largest count in a record, its own revision or one within its data: JSON carries it everywhere, and no real count reaches it. A record with more
/// was edited.
pub const MAX_COUNT: u64 = 1 << 53;

/// What is recorded of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Counts the writes of the content; 0 before the first.
    pub revision: u64,
    /// What was written last; `None` before the first write, and when the record has been deleted.
    pub content: Option<RecordContent>,
    /// Without a content: the host's history, the oldest entry first. Versions before records remembered their work there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<HistoryEntry>,
}

/// What a provisioner has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordContent {
    /// Name of the provisioner: no other reads it.
    pub provisioner: String,
    /// Version of the format of `data`. A provisioner reads its own version and the previous one, and must not overwrite what it does not know in a
    /// newer one.
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

    /// Replaces the content of revision `expected` (0 if there is none) and returns the new revision. Durable when it returns.
    ///
    /// # Errors
    /// When another revision is found (it is [`Self::current`] afterwards), the content is too large, the intent is no longer wanted, or the write
    /// fails. As far as is known, nothing is written then.
    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError>;

    /// Checks that the host, read anew, is still as the call was decided on. Call this right before each order that switches or resets the machine or
    /// gives its agent work: minutes may lie between an intent and its effect.
    ///
    /// # Errors
    /// When the host has changed, with what, or cannot be read: then nothing may be done, and the call is made again if the host still wishes it.
    async fn still_wanted(&self) -> Result<(), RecordError>;
}
