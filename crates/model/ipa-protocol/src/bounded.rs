//! Reading what the other side has sent.

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why a message was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It is longer than it may be.
    #[error("{what} has {found} bytes, at most {max} are read")]
    TooLong {
        /// What was read.
        what: &'static str,
        /// Its length, in bytes.
        found: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// It is no JSON, or of another shape.
    #[error("{what} cannot be understood: {source}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
}

/// Reads `what` from JSON of at most `max` bytes, and at most 128 levels.
///
/// # Errors
/// [`ReadError`].
pub fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8], max: usize) -> Result<T, ReadError> {
    if bytes.len() > max {
        return Err(ReadError::TooLong { what, found: bytes.len(), max });
    }
    serde_json::from_slice(bytes).map_err(|source| ReadError::Malformed { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_or_deep_is_not_read() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        assert!(matches!(read::<serde_json::Value>("it", deep.as_bytes(), 1000), Err(ReadError::Malformed { .. })));
        let long = read::<serde_json::Value>("it", b"[1]", 2);
        assert_eq!(long.unwrap_err().to_string(), "it has 3 bytes, at most 2 are read");
    }
}
