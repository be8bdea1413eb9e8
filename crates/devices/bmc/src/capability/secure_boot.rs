//! Secure Boot: a setting of the firmware that the BMC shows and changes.

use async_trait::async_trait;

use crate::error::BmcError;

/// Secure Boot as the BMC shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureBootSeen {
    /// The setting, in force from a later boot on.
    pub enable: Option<bool>,
    /// In force since the last boot.
    pub current: Option<bool>,
    /// There is no platform key, or what fails to be verified is only noted: the setting means nothing.
    pub setup_mode: bool,
}

/// Shows and switches Secure Boot.
#[async_trait]
pub trait SecureBoot: Send + Sync {
    /// As it is; `None` when the BMC does not show it for now. One call.
    async fn seen(&self) -> Result<Option<SecureBootSeen>, BmcError>;
    /// Sets it; it may take a restart of the machine to be in force.
    async fn set(&self, on: bool) -> Result<(), BmcError>;
}
