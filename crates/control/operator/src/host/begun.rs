//! Which hosts have begun lately: what the limits of the brake count.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::{BareMetalHost, ProvisioningState as State};
use jiff::{SignedDuration, Timestamp};

use super::emptied::Emptied;

/// How far the clock of an earlier process may have been ahead.
pub const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// When hosts, by uid, began.
#[derive(Default)]
pub struct Begun(HashMap<String, Timestamp>);

impl Begun {
    /// Admits the host unless `limit` others began within `window`; otherwise returns when the oldest of them leaves it.
    pub fn admit(&mut self, uid: &str, now: Timestamp, window: SignedDuration, limit: usize) -> Result<(), Timestamp> {
        // A time in the future comes from a wrong clock or a manual edit.
        self.0.retain(|_, begun| now.duration_since(*begun) < window && *begun <= now + SKEW);
        if self.0.contains_key(uid) {
            return Ok(());
        }
        if self.0.len() >= limit {
            let first = self.0.values().min().copied().unwrap_or(now);
            return Err(first.checked_add(window).unwrap_or(now));
        }
        self.0.insert(uid.to_owned(), now);
        Ok(())
    }

    /// Whether [`Self::admit`] would refuse it.
    pub fn is_full(&self, uid: &str, now: Timestamp, window: SignedDuration, limit: usize) -> bool {
        let counts = |begun: &Timestamp| now.duration_since(*begun) < window && *begun <= now + SKEW;
        !self.0.get(uid).is_some_and(counts) && self.0.values().filter(|begun| counts(begun)).count() >= limit
    }

    /// Takes an admission back: the host has not begun after all.
    pub fn give_back(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

/// Whether this server, or one before it, has registered the host since the object was created. A status that was restored from an annotation tells of
/// earlier times alone, so whoever makes a host up cannot say so.
pub fn is_registered_here(host: &BareMetalHost) -> bool {
    let (Some(status), Some(created)) = (&host.status, &host.metadata.creation_timestamp) else { return false };
    let ended = status.operation_history.register.end.as_ref();
    !status.provisioning.id.is_empty() && ended.is_some_and(|ended| ended.0 >= created.0)
}

/// When a server has begun to deprovision the host; `None` if its status does not prove that one has.
pub fn deprovisioned_since(host: &BareMetalHost) -> Option<Timestamp> {
    let (status, created) = (host.status.as_ref()?, host.metadata.creation_timestamp.as_ref()?);
    let start = status.operation_history.deprovision.start.as_ref()?;
    let has_bmc = host.spec.bmc.as_ref().is_some_and(|bmc| !bmc.address.is_empty());
    let is_ours = is_registered_here(host) || host.state() == State::Deprovisioning;
    (has_bmc && !status.provisioning.id.is_empty() && is_ours && start.0 >= created.0).then_some(start.0)
}

/// The brake of all hosts of a controller.
#[derive(Default)]
pub struct Brake {
    /// Hosts that begin to be deprovisioned.
    pub(super) emptied: Mutex<Emptied>,
    /// Hosts whose machines are switched on.
    pub(super) powered: Mutex<Begun>,
    /// Hosts, by uid, whose machines have not been switched on for the work that has begun: registration has moved them to inspection, or there was no
    /// room for it.
    pub(super) unbooted: Mutex<HashSet<String>>,
}

impl Brake {
    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        lock(&self.unbooted).remove(uid);
        lock(&self.emptied).forget(uid);
    }
}

/// Locks what is counted, even if a thread died while it held it.
pub fn lock<T>(hosts: &Mutex<T>) -> MutexGuard<'_, T> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::metal3::{BareMetalHostSpec, BareMetalHostStatus, Bmc};

    const WINDOW: SignedDuration = SignedDuration::from_secs(600);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn no_more_than_the_limit_begin_within_the_window() {
        let mut begun = Begun::default();
        for (index, uid) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(begun.admit(uid, at(index as i64 * 10), WINDOW, 3), Ok(()));
        }
        assert_eq!(begun.admit("d", at(30), WINDOW, 3), Err(at(600)), "when the first is past the window");
        assert_eq!(begun.admit("a", at(31), WINDOW, 3), Ok(()), "it has begun already");
        assert_eq!(begun.admit("d", at(599), WINDOW, 3), Err(at(600)));
        let full = |uid, second| begun.is_full(uid, at(second), WINDOW, 3);
        assert!(full("d", 599) && !full("a", 599) && !full("d", 600));
        assert_eq!(begun.admit("d", at(600), WINDOW, 3), Ok(()));
        assert_eq!(begun.admit("e", at(601), WINDOW, 3), Err(at(610)));
    }

    /// A host made at second 0, with what its status tells.
    fn host(address: &str, id: &str, state: State, registered: Option<i64>, deprovisioned: i64) -> BareMetalHost {
        let bmc = Bmc { address: address.into(), ..Bmc::default() };
        let mut host = BareMetalHost::new("n", BareMetalHostSpec { bmc: Some(bmc), ..BareMetalHostSpec::default() });
        host.metadata.creation_timestamp = Some(api::Time(at(0)));
        let mut status = BareMetalHostStatus::default();
        status.provisioning.id = id.into();
        status.provisioning.state = state;
        status.operation_history.register.end = registered.map(|second| api::Time(at(second)));
        status.operation_history.deprovision.start = Some(api::Time(at(deprovisioned)));
        host.status = Some(status);
        host
    }

    #[test]
    fn only_a_host_that_a_server_deprovisions_counts() {
        let ours = [
            host("a", "id", State::Deprovisioning, Some(5), 9),
            host("a", "id", State::Deprovisioning, None, 9),
            host("a", "id", State::Available, Some(5), 9),
        ];
        for host in ours {
            assert_eq!(deprovisioned_since(&host), Some(at(9)), "{host:?}");
        }
        let made_up = [
            host("", "id", State::Deprovisioning, Some(5), 9),
            host("a", "", State::Deprovisioning, Some(5), 9),
            host("a", "id", State::Provisioned, None, 9),
            host("a", "id", State::Provisioned, Some(-1), 9),
            host("a", "id", State::Deprovisioning, Some(5), -1),
        ];
        for host in made_up {
            assert_eq!(deprovisioned_since(&host), None, "{host:?}");
        }
    }
}
