//! What people see of a provisioner's work: which pieces of it there have been, how far they are and how they ended. In a server these are
//! HostOperations.
//!
//! It is written after the fact, and no decision depends on it: deleting it only loses what could be read. Telling cannot fail: the next entry
//! makes up for one that could not be written.

use api::metamorph::{HostOperationStatus, OperationType};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Longest part of a host's name in the name of its operations, in bytes.
const MAX_HOST_NAME: usize = 220;

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Counts the pieces of work on a host, from 1.
    pub number: u64,
    /// Unique for ever, even if a name or a number is used again.
    pub id: String,
    /// Kind of work.
    pub operation: OperationType,
    /// For which wish of the host it is: the one that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// Where it is.
    pub status: HostOperationStatus,
}

impl HistoryEntry {
    /// Its name in the namespace of the host: `<host>-<number>-<kind>`.
    #[must_use]
    pub fn name(&self, host: &str) -> String {
        operation_name(host, self.number, self.operation)
    }
}

/// The name of a host's piece of work.
#[must_use]
pub fn operation_name(host: &str, number: u64, operation: OperationType) -> String {
    // Names of objects are ASCII.
    let host = host.get(..host.len().min(MAX_HOST_NAME)).unwrap_or(host);
    format!("{host}-{number:03}-{}", operation.as_str())
}

/// How soon something is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// At once: work has begun or ended.
    Now,
    /// Progress, at most every few seconds.
    Soon,
}

/// One host's history.
#[async_trait]
pub trait History: Send + Sync {
    /// Shows the piece of work as it is now.
    async fn tell(&self, entry: &HistoryEntry, when: Tell);
}
