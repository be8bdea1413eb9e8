//! Power. Whether the machine is on is seen by [`Bmc::look`](super::Bmc::look).

use async_trait::async_trait;
use terms::PowerAction;

use crate::error::BmcError;

/// Changes the machine's power.
#[async_trait]
pub trait Power: Send + Sync {
    /// Changes the power; succeeds if the machine is in that state already. Returns when the BMC has accepted the request: the caller polls whether
    /// the machine follows.
    async fn change(&self, action: PowerAction) -> Result<(), BmcError>;
}
