//! Whether a watch is in step: it has listed its objects, and has not failed since. That of hosts also says what is new about it.

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

/// State of the watch of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing has been listed yet.
    NotBegun,
    /// The hosts are listed and watched.
    UpToDate,
    /// They cannot be listed or watched.
    Failing,
}

/// The watch of hosts.
#[derive(Debug)]
pub(crate) struct Watch(watch::Sender<State>);

impl Default for Watch {
    fn default() -> Self {
        Self(watch::Sender::new(State::NotBegun))
    }
}

impl Watch {
    /// Its state.
    pub(crate) fn state(&self) -> State {
        *self.0.borrow()
    }

    /// Waits until the hosts are watched.
    pub(crate) async fn up_to_date(&self) {
        // The sender lives as long as this is borrowed.
        let _ = self.0.subscribe().wait_for(|state| *state == State::UpToDate).await;
    }

    /// Notes that the watch brought something; true if it had not before.
    pub(crate) fn works(&self) -> bool {
        self.becomes(State::UpToDate)
    }

    /// Notes that it failed; true if it had not before.
    pub(crate) fn fails(&self) -> bool {
        self.becomes(State::Failing)
    }

    fn becomes(&self, state: State) -> bool {
        self.0.send_if_modified(|now| std::mem::replace(now, state) != state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once() {
        let watch = Watch::default();
        assert!(watch.fails() && !watch.fails());
        assert!(watch.works() && !watch.works());
        assert!(watch.fails());
    }
}
