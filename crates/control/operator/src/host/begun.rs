//! Which hosts have begun lately: what the limits of the brake count.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

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

    /// Notes one that began by itself or by an earlier process.
    pub fn note(&mut self, uid: String, begun: Timestamp) {
        let known = self.0.entry(uid).or_insert(begun);
        *known = (*known).max(begun);
    }
}

/// The brake of all hosts of a controller.
#[derive(Default)]
pub struct Brake {
    /// Hosts that begin to be deprovisioned.
    pub(super) emptied: Mutex<Begun>,
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
    }
}

/// Locks what is counted, even if a thread died while it held it.
pub fn lock<T>(hosts: &Mutex<T>) -> MutexGuard<'_, T> {
    hosts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_an_earlier_process_began_counts() {
        let mut begun = Begun::default();
        begun.note("a".to_owned(), at(0));
        begun.note("a".to_owned(), at(-50));
        assert_eq!(begun.admit("b", at(1), WINDOW, 1), Err(at(600)));
        begun.note("a".to_owned(), at(90_000));
        assert_eq!(begun.admit("b", at(2), WINDOW, 1), Ok(()), "nobody begins in the future");
    }
}
