//! Text that is never shown.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// A token, a password, or what carries some (a config drive). `Debug` says nothing of it.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Makes text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one who sends or uses it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this text; how long that takes says nothing of where they differ, only of their lengths. An empty secret is nobody's.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        !self.0.is_empty() && bool::from(self.0.as_bytes().ct_eq(other.as_bytes()))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        bool::from(self.0.as_bytes().ct_eq(other.0.as_bytes()))
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_and_never_shown() {
        let secret = Secret::new("abc");
        assert!(secret.is("abc") && !secret.is("abd") && !secret.is("abcd"));
        assert!(!Secret::default().is(""), "no token is no token");
        assert_eq!(format!("{secret:?}"), "(secret)");
    }
}
