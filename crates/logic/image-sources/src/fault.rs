//! What is wrong with settings.

/// What is wrong with a setting: a clause without the setting's secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);
