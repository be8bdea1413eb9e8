//! Events that a BMC sends to others.

use async_trait::async_trait;
use terms::HealthLevel;

use super::{Capability, Lacking};
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

/// What one or more events amount to. It is the word of a BMC, and tells no more than that a look at the machine may be worth while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The worst that an event has told.
    pub severity: HealthLevel,
    /// One of them tells that the health of something has changed.
    pub is_health: bool,
}

impl Alert {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { severity: self.severity.max(other.severity), is_health: self.is_health || other.is_health }
    }
}

/// What a BMC has posted to the destination of a subscription. It has no `Debug`: the context may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Posted {
    /// The subscription's context, as the BMC repeats it.
    pub context: String,
    /// What its events amount to.
    pub alert: Alert,
}

/// A stream of events, which ends with the value.
#[async_trait]
pub trait EventStream: Send {
    /// Waits for more of the stream: what has come, or `None` if there is no event in it (a comment that keeps the connection alive, or half an event). Events that cannot be
    /// read are passed over, up to a number.
    ///
    /// # Errors
    /// When the stream has ended, or cannot be a stream of events.
    async fn next(&mut self) -> Result<Option<Alert>, BmcError>;
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
    /// Opens a stream of all events. It needs no subscription, does not take the turn of other calls, and counts among the streams of this process, whose number is limited.
    ///
    /// # Errors
    /// `Unsupported` if the BMC has no streams; `Busy` if this process has too many.
    async fn listen(&self) -> Result<Box<dyn EventStream>, BmcError> {
        Err(Lacking::unspoken(Capability::Events).keeps_from("listen to the BMC's events"))
    }
    /// Reads what the BMC has posted to a destination, or what another has who knows the address; `None` if it is no event.
    fn posted(&self, body: &[u8]) -> Option<Posted> {
        let _ = body;
        None
    }
}
