//! The source of the machine's next boot.

use async_trait::async_trait;

use crate::error::BmcError;

/// State of a requested boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootStanding {
    /// Whether the machine is on; `None` if the BMC does not report it.
    pub powered_on: Option<bool>,
    /// Whether the override is still set, so that the requested boot is yet to come. `None` if the BMC does not report it.
    pub override_ahead: Option<bool>,
    /// How far the machine's boot is, in the BMC's word.
    pub progress: Option<String>,
}

/// Overrides the firmware's boot source, in UEFI mode.
#[async_trait]
pub trait BootDevice: Send + Sync {
    /// The next boot, and only that, is from the virtual drive for CDs.
    async fn once_from_medium(&self) -> Result<(), BmcError>;
    /// The next boot is the firmware's own choice.
    async fn normally(&self) -> Result<(), BmcError>;
    /// State of the requested boot. One call.
    async fn standing(&self) -> Result<BootStanding, BmcError>;
}
