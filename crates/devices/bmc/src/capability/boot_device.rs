//! The source of the machine's next boot.

use async_trait::async_trait;

use crate::error::BmcError;

/// State of a requested boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootStanding {
    /// Whether the machine is on; `None` if the BMC does not report it, or is switching it on.
    pub powered_on: Option<bool>,
    /// Whether the override is still set, so that the requested boot is yet to come. `None` if the BMC does not report it.
    pub override_ahead: Option<bool>,
    /// How far the machine's boot is, in the BMC's word.
    pub progress: Option<String>,
}

/// How long a boot override lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Until it is changed: each start is from there.
    EachBoot,
    /// Nothing shows that it lasts longer than for the next start.
    NextBoot,
}

/// Overrides the firmware's boot source, in UEFI mode.
#[async_trait]
pub trait BootDevice: Send + Sync {
    /// The next boot, and only that, is from the virtual drive for CDs.
    async fn once_from_medium(&self) -> Result<(), BmcError>;
    /// Each boot is from the virtual drive for CDs until the BMC is told otherwise, or the next one alone where the BMC takes, or keeps, no more than
    /// that. What holds is read back.
    async fn each_from_medium(&self) -> Result<Lasting, BmcError> {
        self.once_from_medium().await.map(|()| Lasting::NextBoot)
    }
    /// The next boot is the firmware's own choice.
    async fn normally(&self) -> Result<(), BmcError>;
    /// State of the requested boot. One call.
    async fn standing(&self) -> Result<BootStanding, BmcError>;
}
