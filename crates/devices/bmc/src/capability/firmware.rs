//! Versions of the firmware that is installed on the machine and its BMC.

use async_trait::async_trait;

use crate::error::BmcError;

/// One installed firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirmwareVersion {
    /// `bios`, `bmc` or `nic:<id>`.
    pub component: String,
    /// Version, in the vendor's form.
    pub version: String,
}

/// Reads the versions.
#[async_trait]
pub trait FirmwareInventory: Send + Sync {
    /// The installed firmware, sorted by component; without what the BMC does not show.
    async fn versions(&self) -> Result<Vec<FirmwareVersion>, BmcError>;
}
