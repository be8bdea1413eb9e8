//! The provisioner's end of wake-ups.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{ObjectKey, WakeUp, WakeUps};

/// Wakes resources through the latest subscription.
#[derive(Debug, Default)]
pub struct Waker(Mutex<Option<UnboundedSender<WakeUp>>>);

impl Waker {
    /// A new stream; the one before ends.
    pub fn subscribe(&self) -> WakeUps {
        let (sender, wake_ups) = unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        wake_ups
    }

    /// Reports that something happened to one. A subscriber is optional: it is looked at anyway when its time comes.
    pub fn wake(&self, key: &ObjectKey) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(WakeUp { key: key.clone() });
        }
    }
}
