//! Whether a watch is in step: it has listed its objects, and has not failed since.

use tokio::sync::watch;

/// In step or not.
pub struct InStep(watch::Sender<bool>);

impl Default for InStep {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl InStep {
    /// It is, or is not, from now on.
    pub fn is_now(&self, in_step: bool) {
        self.0.send_if_modified(|now| std::mem::replace(now, in_step) != in_step);
    }

    /// Whether it is.
    pub fn get(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is.
    pub async fn wait(&self) {
        // The sender lives as long as this is borrowed.
        let _ = self.0.subscribe().wait_for(|in_step| *in_step).await;
    }
}
