//! Power. Whether the machine is on is seen by [`Bmc::look`](super::Bmc::look).

use async_trait::async_trait;
use terms::PowerAction;

use crate::error::BmcError;

/// Changes the machine's power.
#[async_trait]
pub trait Power: Send + Sync {
    /// Changes the power; a machine that is there already is fine. Returns when the BMC has taken the order: whether the machine follows is seen by
    /// looking at it.
    async fn change(&self, action: PowerAction) -> Result<(), BmcError>;
}
