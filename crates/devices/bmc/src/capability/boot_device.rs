//! From what the machine boots next.

use async_trait::async_trait;

use crate::error::BmcError;

/// How a boot that was asked for stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootStanding {
    /// Whether the machine is on; `None` where the BMC does not say.
    pub powered_on: Option<bool>,
    /// Whether the boot that was asked for is still ahead: the override has been set and not been used. `None` where the BMC does not say.
    pub override_ahead: Option<bool>,
    /// How far the machine's boot is, in the BMC's word.
    pub progress: Option<String>,
}

/// Overrides the firmware's choice of what to boot, in UEFI mode.
#[async_trait]
pub trait BootDevice: Send + Sync {
    /// The next boot, and only that, is from the virtual drive for CDs.
    async fn once_from_medium(&self) -> Result<(), BmcError>;
    /// The next boot is the firmware's own choice.
    async fn normally(&self) -> Result<(), BmcError>;
    /// How the boot stands. One call.
    async fn standing(&self) -> Result<BootStanding, BmcError>;
}
