//! The light by which a person finds a machine at its rack.

use async_trait::async_trait;

use crate::error::BmcError;

/// Switches the light.
#[async_trait]
pub trait LocationIndicator: Send + Sync {
    /// Has it lit (blinking, where the BMC has that), or as it is when nobody looks for the machine; succeeds if it is so already. Returns which light that
    /// is, a clause, once the BMC shows it so. Nothing else of the machine changes.
    ///
    /// # Errors
    /// When the BMC cannot be reached, refuses, shows no such light, or takes the order and does not follow.
    async fn switch(&self, lit: bool) -> Result<String, BmcError>;
}
