//! Why something could not be recorded.

use serde::{Deserialize, Serialize};

/// Something could not be recorded. The call gives up without effect, and is made again: it is no failure of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("record {what}: {why}")]
pub struct RecordError {
    /// What was to be recorded.
    pub what: String,
    /// Why it could not be.
    pub why: String,
    /// Another process acts on machines.
    pub not_leading: bool,
}

impl RecordError {
    /// What was to be recorded, and why it could not be.
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), not_leading: false }
    }

    /// Another process acts on machines.
    #[must_use]
    pub fn not_leading(what: impl Into<String>) -> Self {
        Self { not_leading: true, ..Self::new(what, "another process leads") }
    }
}
