//! What is seen of the controller from outside: its metrics, and whether it does its work.

use std::sync::Arc;

use tokio::sync::watch;

use crate::host::Context;

/// Where the watch of hosts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotBegun,
    UpToDate,
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

/// A look at a controller, for as long as the process runs.
#[derive(Clone)]
pub struct Observer {
    pub(crate) context: Arc<Context>,
}

impl Observer {
    /// The metrics, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        let hosts = self.context.known.get().map(kube::runtime::reflector::Store::state).unwrap_or_default();
        self.context.metrics.text(hosts.iter().map(AsRef::as_ref))
    }

    /// Why the controller is not at work, if it is not: it has not listed the hosts yet, or cannot watch them.
    #[must_use]
    pub fn not_at_work(&self) -> Option<&'static str> {
        match *self.context.watch.0.borrow() {
            State::NotBegun => Some("the BareMetalHosts have not been listed yet"),
            State::Failing => Some("the BareMetalHosts cannot be watched"),
            State::UpToDate => None,
        }
    }

    /// Resolves when the controller has listed the hosts and watches them.
    pub async fn at_work(&self) {
        let mut state = self.context.watch.0.subscribe();
        // The sender lives as long as the controller's context, which is held here.
        let _ = state.wait_for(|state| *state == State::UpToDate).await;
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
