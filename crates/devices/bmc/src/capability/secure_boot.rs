//! Secure Boot: a firmware setting that the BMC reports and changes.

use async_trait::async_trait;

use crate::error::BmcError;

/// Secure Boot as the BMC reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureBootSeen {
    /// The setting, in force from a later boot on.
    pub enable: Option<bool>,
    /// In force since the last boot.
    pub current: Option<bool>,
    /// No platform key exists, or verification failures are only logged: the setting has no effect.
    pub setup_mode: bool,
}

/// Reads and sets Secure Boot.
#[async_trait]
pub trait SecureBoot: Send + Sync {
    /// The current setting; `None` when the BMC does not report it at the moment. One call.
    async fn seen(&self) -> Result<Option<SecureBootSeen>, BmcError>;
    /// Sets it; the setting may take effect only after a restart of the machine.
    async fn set(&self, on: bool) -> Result<(), BmcError>;
}
