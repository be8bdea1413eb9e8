//! The controller as seen from outside: its metrics, and whether it works.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::Context;
use super::rests::Rest;
use super::step::State;

/// A view of a controller, valid for as long as the process runs.
#[derive(Clone)]
pub struct Observer {
    pub(crate) context: Arc<Context>,
}

impl Observer {
    /// The metrics, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        let hosts = self.context.hosts.store().map(kube::runtime::reflector::Store::state).unwrap_or_default();
        self.context.metrics.text(hosts.iter().map(AsRef::as_ref), self.context.settings.clock.now())
    }

    /// Why the controller is not at work, if so: the hosts are not listed yet or cannot be watched, or its writes are not kept.
    #[must_use]
    pub fn not_at_work(&self) -> Option<String> {
        let watch = match self.context.watch.state() {
            State::NotBegun => Some("the BareMetalHosts have not been listed yet"),
            State::Failing => Some("the BareMetalHosts cannot be watched"),
            State::UpToDate => None,
        };
        watch.map(ToOwned::to_owned).or_else(|| self.context.definitions.fault())
    }

    /// How this process's last look at the host of this uid ended; `None` before the first, during one, and once the host is deleted.
    #[must_use]
    pub fn rest(&self, uid: &str) -> Option<Rest> {
        self.context.rests.of(uid)
    }

    /// Changes with the beginning and the end of each look.
    #[must_use]
    pub fn looks(&self) -> watch::Receiver<u64> {
        self.context.rests.looks()
    }

    /// Resolves when all that the controller watches has been listed and is watched.
    pub async fn in_step(&self) {
        self.context.in_step().await;
    }

    /// Resolves when the controller has listed the hosts and watches them, and what it writes is kept.
    pub async fn at_work(&self) {
        self.context.watch.up_to_date().await;
        self.context.definitions.sound().await;
    }
}
