//! The controller as seen from outside: its metrics, and whether it works.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use provisioner::Cause;
use tokio::sync::watch;

use crate::host::Context;

/// State of the watch of hosts.
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

/// How the controller's last look at a host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Unique among the looks at all hosts: another number is another look.
    pub look: u64,
    /// If the host is in error, it needs a change: to its object, a Secret of it, or what the error names. Retries without it would fail again.
    pub needs_change: bool,
}

/// Whether a failure of this cause recurs until something is changed. Others may go away by themselves.
const fn needs_change(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::BmcAddressInvalid
            | Cause::AnotherMachine
            | Cause::BmcCertificateUntrusted
            | Cause::BmcCredentialsRefused
            | Cause::ImageNotFound
            | Cause::ImageInvalid
            | Cause::NoSuitableDisk
            | Cause::ForeignOwner
            | Cause::InvalidRequest
    )
}

/// Hosts, by uid, whose last look has ended and that are not being looked at now; and why calls for them failed last.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    known: Mutex<Known>,
    looks: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Known {
    rests: HashMap<String, Rest>,
    failures: HashMap<String, Cause>,
}

impl Rests {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, uid: &str) -> Option<Rest> {
        self.lock().rests.get(uid).copied()
    }

    /// A look at the host begins.
    pub(crate) fn stir(&self, uid: &str) {
        self.lock().rests.remove(uid);
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// The host is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().failures.remove(uid);
        self.stir(uid);
    }

    /// A call of the provisioner has been answered, or has failed.
    pub(crate) fn called(&self, uid: &str, failure: Option<Cause>) {
        let mut known = self.lock();
        match failure {
            Some(cause) => known.failures.insert(uid.to_owned(), cause),
            None => known.failures.remove(uid),
        };
    }

    /// The look has ended; with `waits`, only a change triggers another.
    pub(crate) fn rest(&self, uid: &str, waits: bool) {
        let mut known = self.lock();
        let needs_change = waits || known.failures.get(uid).is_some_and(|cause| needs_change(*cause));
        self.looks.send_modify(|looks| {
            *looks += 1;
            known.rests.insert(uid.to_owned(), Rest { look: *looks, needs_change });
        });
    }
}

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
        self.context.metrics.text(hosts.iter().map(AsRef::as_ref))
    }

    /// Why the controller is not at work, if so: the hosts are not listed yet or cannot be watched, or its writes are not kept.
    #[must_use]
    pub fn not_at_work(&self) -> Option<String> {
        let watch = match *self.context.watch.0.borrow() {
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
        self.context.rests.looks.subscribe()
    }

    /// Resolves when all that the controller watches has been listed and is watched.
    pub async fn in_step(&self) {
        self.context.in_step().await;
    }

    /// Resolves when the controller has listed the hosts and watches them, and what it writes is kept.
    pub async fn at_work(&self) {
        let mut state = self.context.watch.0.subscribe();
        // The sender lives as long as the controller's context, which is held here.
        let _ = state.wait_for(|state| *state == State::UpToDate).await;
        self.context.definitions.sound().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_rests_between_its_looks_and_each_look_is_another() {
        let rests = Rests::default();
        let mut looks = rests.looks.subscribe();
        let now = || rests.of("a");
        assert_eq!(now(), None);
        rests.rest("a", true);
        let first = now().unwrap();
        assert!(first.needs_change && looks.has_changed().unwrap());
        looks.mark_unchanged();
        rests.forget("a");
        assert_eq!(now(), None);
        assert!(looks.has_changed().unwrap(), "who waits for a host that goes is told");
        rests.rest("b", false);
        rests.rest("a", true);
        assert_ne!(now().unwrap().look, first.look);
    }

    #[test]
    fn failures_that_come_again_need_a_change_until_a_call_goes_well() {
        let rests = Rests::default();
        for (failure, wanted) in [
            (Some(Cause::BmcUnreachable), false),
            (Some(Cause::ForeignOwner), true),
            (Some(Cause::ImageUnavailable), false),
            (Some(Cause::ImageNotFound), true),
            (Some(Cause::BmcCredentialsRefused), true),
            (None, false),
        ] {
            rests.called("a", failure);
            for _ in 0..2 {
                rests.stir("a");
                rests.rest("a", false);
                assert_eq!(rests.of("a").unwrap().needs_change, wanted, "{failure:?}");
            }
        }
    }

    #[test]
    fn changes_are_told_once() {
        let watch = Watch::default();
        assert!(watch.fails() && !watch.fails());
        assert!(watch.works() && !watch.works());
        assert!(watch.fails());
    }
}
