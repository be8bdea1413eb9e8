//! The provisioner's end of wake-ups.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{HostKey, WakeUp, WakeUps};

/// Wakes hosts: whoever has subscribed last hears of it.
#[derive(Debug, Default)]
pub struct Waker(Mutex<Option<UnboundedSender<WakeUp>>>);

impl Waker {
    /// A new stream; the one before ends.
    pub fn subscribe(&self) -> WakeUps {
        let (sender, wake_ups) = unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        wake_ups
    }

    /// Something happened to the host. Nobody need listen: a host is looked at in any case when its time has come.
    pub fn wake(&self, key: &HostKey) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(WakeUp { key: key.clone() });
        }
    }
}
