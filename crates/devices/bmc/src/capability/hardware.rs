//! The machine's hardware, as far as its BMC lists it.

use async_trait::async_trait;
use inventory::Inspected;

use crate::error::BmcError;

/// Reads what the machine is made of, without touching it.
#[async_trait]
pub trait HardwareInventory: Send + Sync {
    /// Processors, memory, disks, network interfaces, firmware and maker, with the parts of which the BMC may not list all. Takes up to some hundred
    /// calls, which read only: for an inspection. What only a running system knows (host name, names of disks and interfaces, addresses) is empty.
    ///
    /// # Errors
    /// When the BMC cannot be reached, refuses access, or lists nothing of all this.
    async fn list(&self) -> Result<Inspected, BmcError>;

    /// The kernel's name of the processors' architecture (`x86_64`, `aarch64`); `None` if the BMC does not tell. A few calls, which read only.
    ///
    /// # Errors
    /// When the BMC cannot be reached, or refuses access.
    async fn architecture(&self) -> Result<Option<String>, BmcError> {
        Ok(None)
    }
}
