//! The BMC's logs, for people.

use async_trait::async_trait;

use crate::error::BmcError;

/// Most entries of a log that are requested at once.
pub const MAX_LOG_ENTRIES: usize = 16;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was made, as the BMC writes it: by its own clock.
    pub created: Option<String>,
    /// How bad it is, in the BMC's word, if it says so.
    pub severity: Option<String>,
    /// The message on one line, truncated. It may contain secret addresses that the BMC was given.
    pub message: String,
}

/// Most entries of one log that are read for [`Logs::all`].
pub const MAX_COLLECTED: usize = 256;

/// One of the BMC's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BmcLog {
    /// The BMC's name for it, one word of at most 64 characters.
    pub name: String,
    /// The newest entries, newest first; at most [`MAX_COLLECTED`].
    pub entries: Vec<LogEntry>,
    /// How many more entries there are that were not read, if the BMC says how many it has.
    pub more: Option<u64>,
    /// Why it could not be read, a sentence.
    pub unread: Option<String>,
}

/// Reads the logs.
#[async_trait]
pub trait Logs: Send + Sync {
    /// The newest critical entries, newest first; at most `most`, and never more than [`MAX_LOG_ENTRIES`]. Takes up to some two dozen calls: for the
    /// diagnosis of a failure.
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError>;

    /// What the BMC has written about the hardware and itself, whatever its severity; logs of who has signed in are left out. Takes up to some two dozen
    /// calls.
    async fn all(&self) -> Result<Vec<BmcLog>, BmcError>;
}
