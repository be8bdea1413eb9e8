//! How the looks at hosts have ended: whether this process is done with a host, and what it would need to go on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use provisioner::Cause;
use tokio::sync::watch;

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
            | Cause::MachineInUse
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
    failures: HashMap<String, (Cause, String)>,
}

impl Rests {
    /// Changes with the beginning and the end of each look.
    pub(crate) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the last look at the host ended, if it has.
    pub(crate) fn of(&self, uid: &str) -> Option<Rest> {
        self.lock().rests.get(uid).copied()
    }

    /// Notes that a look at the host begins.
    pub(crate) fn begin_look(&self, uid: &str) {
        self.lock().rests.remove(uid);
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// The host is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().failures.remove(uid);
        self.begin_look(uid);
    }

    /// A call of the provisioner has been answered, or has failed, with the words for it.
    pub(crate) fn called(&self, uid: &str, failure: Option<(Cause, String)>) {
        let mut known = self.lock();
        match failure {
            Some(failure) => known.failures.insert(uid.to_owned(), failure),
            None => known.failures.remove(uid),
        };
    }

    /// Why the host's last call failed, if these words, which it shows, are about that. It is known to the process that has made the call alone.
    pub(crate) fn cause_of(&self, uid: &str, shown: &str) -> Option<Cause> {
        let known = self.lock();
        let (cause, words) = known.failures.get(uid)?;
        (!words.is_empty() && shown.contains(words.as_str())).then_some(*cause)
    }

    /// The look has ended; with `waits`, only a change triggers another.
    pub(crate) fn rest(&self, uid: &str, waits: bool) {
        let mut known = self.lock();
        let needs_change = waits || known.failures.get(uid).is_some_and(|(cause, _)| needs_change(*cause));
        self.looks.send_modify(|looks| {
            *looks += 1;
            known.rests.insert(uid.to_owned(), Rest { look: *looks, needs_change });
        });
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
            rests.called("a", failure.map(|cause| (cause, "it has failed".to_owned())));
            assert_eq!(rests.cause_of("a", "register: it has failed, and so on"), failure);
            assert_eq!(rests.cause_of("a", "another failure"), None);
            for _ in 0..2 {
                rests.begin_look("a");
                rests.rest("a", false);
                assert_eq!(rests.of("a").unwrap().needs_change, wanted, "{failure:?}");
            }
        }
    }
}
