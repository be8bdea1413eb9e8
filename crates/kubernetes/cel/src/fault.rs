//! Evaluation failures.

use std::fmt;
use std::sync::Arc;

/// Why an evaluation has no value; displayed with cel-go's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    message: Arc<str>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Failure of a function, or of the expression itself.
    Plain,
    /// No overload accepts these values.
    Overload,
    /// It cost too much.
    Limit,
}

impl Fault {
    /// An error with this text.
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { message: message.as_ref().into(), kind: Kind::Plain }
    }

    pub(crate) fn limit() -> Self {
        Self { message: "operation cancelled: actual cost limit exceeded".into(), kind: Kind::Limit }
    }

    pub(crate) fn overload() -> Self {
        Self { message: "no such overload".into(), kind: Kind::Overload }
    }

    /// Whether the evaluation was ended because it cost too much.
    pub fn is_limit(&self) -> bool {
        self.kind == Kind::Limit
    }

    /// Whether no overload accepted the values.
    pub fn is_overload(&self) -> bool {
        self.kind == Kind::Overload
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
