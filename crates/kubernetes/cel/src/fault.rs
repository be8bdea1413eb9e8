//! What keeps an evaluation from having a value.

use std::fmt;
use std::sync::Arc;

/// Why an evaluation has no value; displayed in cel-go's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub(crate) message: Arc<str>,
    /// Whether the evaluation was ended because it cost too much.
    pub limit: bool,
}

impl Fault {
    /// An error with this text.
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { message: message.as_ref().into(), limit: false }
    }

    pub(crate) fn limit() -> Self {
        Self { message: "operation cancelled: actual cost limit exceeded".into(), limit: true }
    }

    pub(crate) fn overload() -> Self {
        Self::new("no such overload")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
