//! One call to a host's provisioner at a time, whichever controller makes it: each begins with the record that the one before has written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The right to call, of each host by its uid.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn, which ends with what is returned.
    pub async fn of(&self, uid: &str) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(uid.to_owned()).or_default());
        turn.lock_owned().await
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        // A call under way keeps its turn; nobody follows it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}
