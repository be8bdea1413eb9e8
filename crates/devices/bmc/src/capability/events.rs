//! Events that a BMC sends to others.

use async_trait::async_trait;

use crate::error::BmcError;

/// Where events go. It has no `Debug`: headers may be secret.
#[derive(Clone, Copy)]
pub struct EventDestination<'a> {
    /// URL that takes them.
    pub url: &'a str,
    /// Sent along with each.
    pub context: &'a str,
    /// HTTP headers to send, with their values.
    pub headers: &'a [(&'a str, &'a str)],
}

/// Subscriptions to events. Each has an id that the BMC gives, perhaps again when it is free.
#[async_trait]
pub trait Events: Send + Sync {
    /// Ids of the subscriptions with this destination and context, whoever made them.
    async fn like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError>;
    /// Subscribes; the id, unless the BMC does not tell it. Errors omit the headers.
    async fn subscribe(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError>;
    /// Whether there is a subscription of this id to this destination.
    async fn has(&self, id: &str, url: &str) -> Result<bool, BmcError>;
    /// Ends it; succeeds if there is none, and leaves one to another destination alone.
    async fn unsubscribe(&self, id: &str, url: &str) -> Result<(), BmcError>;
}
