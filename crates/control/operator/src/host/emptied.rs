//! Which hosts have begun to be deprovisioned lately, and which wait for it. Namespaces share the limit fairly: one with many hosts does not keep
//! others out.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::begun::SKEW;

/// A host that has not asked for this long no longer waits.
const GONE: SignedDuration = SignedDuration::from_secs(40);

/// Why a host may not begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many as may have begun; the first of them leaves the window then.
    Full(Timestamp),
    /// What is left is for others that wait.
    OthersFirst,
}

/// Hosts that have begun and that wait, by uid.
#[derive(Default)]
pub struct Emptied {
    begun: HashMap<String, Begun>,
    waiting: HashMap<String, Waiter>,
    /// Counts those who have begun to wait.
    turns: u64,
}

struct Begun {
    namespace: String,
    at: Timestamp,
}

struct Waiter {
    namespace: String,
    turn: u64,
    asked: Timestamp,
}

impl Emptied {
    /// Admits the host unless `limit` others began within `window`, or the places that are left are for others that wait: the namespace of which the
    /// fewest have begun comes first, in it the host that has waited longest.
    pub fn admit(
        &mut self,
        uid: &str,
        namespace: &str,
        now: Timestamp,
        window: SignedDuration,
        limit: usize,
    ) -> Result<(), Refused> {
        // A time in the future comes from a wrong clock.
        self.begun.retain(|_, begun| now.duration_since(begun.at) < window && begun.at <= now + SKEW);
        self.waiting.retain(|_, waiter| now.duration_since(waiter.asked) < GONE && waiter.asked <= now + SKEW);
        if self.begun.contains_key(uid) {
            self.waiting.remove(uid);
            return Ok(());
        }
        let turn = self.turns;
        self.turns = self.turns.saturating_add(1);
        let waiter = Waiter { namespace: namespace.to_owned(), turn, asked: now };
        self.waiting.entry(uid.to_owned()).and_modify(|waiter| waiter.asked = now).or_insert(waiter);
        let free = limit.saturating_sub(self.begun.len());
        if !self.comes_next(uid, free) {
            let first = self.begun.values().map(|begun| begun.at).min().filter(|_| free == 0);
            return Err(
                first.map_or(Refused::OthersFirst, |first| Refused::Full(first.checked_add(window).unwrap_or(now)))
            );
        }
        self.waiting.remove(uid);
        self.begun.insert(uid.to_owned(), Begun { namespace: namespace.to_owned(), at: now });
        Ok(())
    }

    /// Whether the waiting host is among those that get the free places.
    fn comes_next(&self, uid: &str, free: usize) -> bool {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for begun in self.begun.values() {
            *counts.entry(&begun.namespace).or_default() += 1;
        }
        let mut left: Vec<(&String, &Waiter)> = self.waiting.iter().collect();
        for _ in 0..free {
            let first = left.iter().enumerate().min_by_key(|(_, (_, waiter))| {
                (counts.get(waiter.namespace.as_str()).copied().unwrap_or(0), waiter.turn)
            });
            let Some(index) = first.map(|(index, _)| index) else { break };
            let (next, waiter) = left.swap_remove(index);
            if next == uid {
                return true;
            }
            *counts.entry(&waiter.namespace).or_default() += 1;
        }
        false
    }

    /// Notes one that an earlier process began.
    pub fn note(&mut self, uid: String, namespace: String, at: Timestamp) {
        let known = self.begun.entry(uid).or_insert(Begun { namespace, at });
        known.at = known.at.max(at);
    }

    /// The host is gone and waits no longer. What has begun counts on.
    pub fn forget(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: SignedDuration = SignedDuration::from_secs(600);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn what_an_earlier_process_began_counts() {
        let mut emptied = Emptied::default();
        emptied.note("a".to_owned(), "n".to_owned(), at(0));
        emptied.note("a".to_owned(), "n".to_owned(), at(-50));
        assert_eq!(emptied.admit("b", "n", at(1), WINDOW, 1), Err(Refused::Full(at(600))));
        emptied.note("a".to_owned(), "n".to_owned(), at(90_000));
        assert_eq!(emptied.admit("b", "n", at(2), WINDOW, 1), Ok(()), "nobody begins in the future");
    }

    #[test]
    fn a_namespace_of_many_hosts_leaves_a_place_to_each_that_waits() {
        let mut emptied = Emptied::default();
        let mut ask = |uid: &str, second: i64| {
            let namespace = uid.split('/').next().unwrap_or_default();
            emptied.admit(uid, namespace, at(second), WINDOW, 2)
        };
        assert_eq!(ask("many/0", 0), Ok(()));
        assert_eq!(ask("many/1", 5), Ok(()));
        assert_eq!(ask("many/1", 6), Ok(()), "it has begun already");
        for second in (10..600).step_by(10) {
            for uid in ["many/2", "many/3", "one/0"] {
                assert_eq!(ask(uid, second), Err(Refused::Full(at(600))), "{uid} at {second}");
            }
        }
        // The next place is for who has had none, though others have waited longer and ask first.
        assert_eq!(ask("many/2", 600), Err(Refused::OthersFirst));
        assert_eq!(ask("one/0", 601), Ok(()));
        assert_eq!(ask("many/3", 605), Err(Refused::OthersFirst), "its turn is after the other's");
        assert_eq!(ask("many/2", 606), Ok(()));
        // Who does not ask any more is in nobody's way.
        assert_eq!(ask("other/0", 1190), Err(Refused::Full(at(1201))));
        assert_eq!(ask("many/3", 1240), Ok(()));
    }

    #[test]
    fn a_host_that_is_gone_waits_no_longer() {
        let mut emptied = Emptied::default();
        assert_eq!(emptied.admit("a", "n", at(0), WINDOW, 1), Ok(()));
        assert_eq!(emptied.admit("b", "m", at(590), WINDOW, 1), Err(Refused::Full(at(600))));
        emptied.forget("a");
        emptied.forget("b");
        assert_eq!(emptied.admit("c", "n", at(599), WINDOW, 1), Err(Refused::Full(at(600))));
        assert_eq!(emptied.admit("c", "n", at(600), WINDOW, 1), Ok(()));
    }
}
