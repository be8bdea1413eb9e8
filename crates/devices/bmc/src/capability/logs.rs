//! The BMC's log, for diagnosis by people.

use async_trait::async_trait;

use crate::error::BmcError;

/// Most entries of a log that are requested at once.
pub const MAX_LOG_ENTRIES: usize = 16;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was made, as the BMC writes it: by its own clock.
    pub created: Option<String>,
    /// The message on one line, truncated. It may contain secret addresses that the BMC was given.
    pub message: String,
}

/// Reads the log.
#[async_trait]
pub trait Logs: Send + Sync {
    /// The newest critical entries, newest first; at most `most`, and never more than [`MAX_LOG_ENTRIES`]. Takes up to some two dozen calls: for the
    /// diagnosis of a failure.
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError>;
}
