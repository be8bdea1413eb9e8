//! The BMC's log, for people who look for the cause of something.

use async_trait::async_trait;

use crate::error::BmcError;

/// Most entries of a log that are asked for at once.
pub const MAX_LOG_ENTRIES: usize = 16;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was made, as the BMC writes it: by its own clock.
    pub created: Option<String>,
    /// What it says, on one line and bounded. A BMC writes addresses there that it was told to use: they may be secret.
    pub message: String,
}

/// Reads the log.
#[async_trait]
pub trait Logs: Send + Sync {
    /// The newest entries that the BMC calls critical, the newest first; at most `most`, and never more than [`MAX_LOG_ENTRIES`]. Some two dozen
    /// calls at most: for the diagnosis of what has failed.
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError>;
}
