//! How many hosts are worked on at once: each boots from this server, and its agent reads an image. A host without a place waits, and is woken
//! when it is its turn. Namespaces share the places fairly: one with many hosts does not keep others out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use provisioner::{HostKey, Waker};
use tokio::time::{Duration, Instant};

/// How soon a host that waits asks again, if nothing wakes it.
pub const ASK_AGAIN: Duration = Duration::from_secs(15);
/// A host that has not asked for this long no longer waits.
const GONE: Duration = Duration::from_secs(40);
/// A host whose work was not looked at for this long (it is paused, its namespace is frozen, its work was abandoned) loses its place.
const IDLE: Duration = Duration::from_secs(180);

/// The places of a server.
#[derive(Debug)]
pub struct Places {
    most: usize,
    waker: Arc<Waker>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The hosts that have a place, by their uids.
    taken: HashMap<String, Taken>,
    waiting: HashMap<String, Waiter>,
    /// Counts those who have begun to wait.
    begun: u64,
}

#[derive(Debug)]
struct Taken {
    namespace: String,
    /// When its work was last looked at.
    looked: Instant,
}

#[derive(Debug)]
struct Waiter {
    key: HostKey,
    /// Its turn.
    turn: u64,
    asked: Instant,
}

impl State {
    /// Hosts of the namespace that have a place.
    fn taken_by(&self, namespace: &str) -> usize {
        self.taken.values().filter(|taken| taken.namespace == namespace).count()
    }

    /// The waiting hosts that get the places that are free, by their uids: the namespace with the fewest places comes first, in it the host that has
    /// waited longest.
    fn next(&self, free: usize) -> Vec<&HostKey> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut left: Vec<&Waiter> = self.waiting.values().collect();
        let mut next = Vec::new();
        while next.len() < free {
            let first = left.iter().enumerate().min_by_key(|(_, waiter)| {
                let namespace = waiter.key.namespace.as_str();
                (self.taken_by(namespace) + counts.get(namespace).copied().unwrap_or(0), waiter.turn)
            });
            let Some((index, _)) = first else { break };
            let waiter = left.swap_remove(index);
            *counts.entry(&waiter.key.namespace).or_default() += 1;
            next.push(&waiter.key);
        }
        next
    }
}

impl Places {
    /// `most` places; the waker wakes waiting hosts.
    pub fn new(most: usize, waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), waker, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the host, or why there is none, a clause.
    pub fn enter(self: &Arc<Self>, key: &HostKey) -> Result<Place, String> {
        let now = Instant::now();
        let mut state = self.lock();
        state.waiting.retain(|_, waiter| now.duration_since(waiter.asked) < GONE);
        state.taken.retain(|_, taken| now.duration_since(taken.looked) < IDLE);
        let turn = state.begun;
        state.waiting.entry(key.uid.clone()).and_modify(|waiter| waiter.asked = now).or_insert_with(|| Waiter {
            key: key.clone(),
            turn,
            asked: now,
        });
        state.begun += 1;
        let free = self.most.saturating_sub(state.taken.len());
        if state.next(free).iter().any(|next| next.uid == key.uid) {
            state.waiting.remove(&key.uid);
            state.taken.insert(key.uid.clone(), Taken { namespace: key.namespace.clone(), looked: now });
            return Ok(Place { places: Arc::clone(self), uid: key.uid.clone() });
        }
        Err(format!("{} hosts are worked on, as many as may be at once (--provisioning-limit)", self.most))
    }

    /// A place for a host whose work has begun, in another process or long ago: it goes on in any case.
    pub fn take_over(self: &Arc<Self>, key: &HostKey) -> Place {
        self.keep(key);
        Place { places: Arc::clone(self), uid: key.uid.clone() }
    }
}

impl Places {
    /// The host is at work still.
    pub fn keep(&self, key: &HostKey) {
        let mut state = self.lock();
        state.waiting.remove(&key.uid);
        state.taken.insert(key.uid.clone(), Taken { namespace: key.namespace.clone(), looked: Instant::now() });
    }
}

/// A host's place, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    uid: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.taken.remove(&self.uid);
        let free = self.places.most.saturating_sub(state.taken.len());
        for next in state.next(free) {
            self.places.waker.wake(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(namespace: &str, name: usize) -> HostKey {
        HostKey { namespace: namespace.into(), name: name.to_string(), uid: format!("{namespace}/{name}") }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_of_many_hosts_keeps_none_out() {
        let waker = Arc::new(Waker::default());
        let mut woken = waker.subscribe();
        let places = Places::new(4, Arc::clone(&waker));
        let mut held: Vec<Place> = (0..9).filter_map(|n| places.enter(&host("many", n)).ok()).collect();
        assert_eq!(held.len(), 4);
        let why = places.enter(&host("one", 0)).unwrap_err();
        assert!(why.contains("4 hosts") && why.contains("--provisioning-limit"), "{why}");
        // The next place is for who has none, though others have waited longer; it is woken for it.
        held.pop();
        assert_eq!(woken.recv().await.unwrap().key, host("one", 0));
        assert!(places.enter(&host("many", 4)).is_err());
        held.push(places.enter(&host("one", 0)).unwrap());
        // Then the turns count, whoever asks first.
        held.remove(0);
        assert_eq!(woken.recv().await.unwrap().key, host("many", 4));
        assert!(places.enter(&host("many", 8)).is_err());
        assert!(places.enter(&host("many", 4)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_ask_any_more_is_in_nobodys_way() {
        let places = Places::new(1, Arc::default());
        let held = places.enter(&host("a", 0)).unwrap();
        assert!(places.enter(&host("a", 1)).is_err());
        tokio::time::advance(GONE).await;
        assert!(places.enter(&host("a", 2)).is_err());
        drop(held);
        assert!(places.enter(&host("a", 2)).is_ok(), "the one that went does not come first");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_nobody_looks_at_keeps_no_place_and_has_one_when_it_goes_on() {
        let places = Places::new(1, Arc::default());
        let held = places.enter(&host("a", 0)).unwrap();
        for _ in 0..10 {
            tokio::time::advance(IDLE / 2).await;
            places.keep(&host("a", 0));
            assert!(places.enter(&host("b", 0)).is_err());
        }
        tokio::time::advance(IDLE).await;
        let other = places.enter(&host("b", 0)).unwrap();
        places.keep(&host("a", 0));
        drop(other);
        assert!(places.enter(&host("b", 0)).is_err(), "the first one is at work again");
        drop(held);
        assert!(places.enter(&host("b", 0)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn work_under_way_goes_on_whatever_the_number() {
        let places = Places::new(1, Arc::default());
        let held: Vec<Place> = (0..3).map(|n| places.take_over(&host("a", n))).collect();
        assert!(places.enter(&host("b", 0)).is_err());
        drop(held);
        assert!(places.enter(&host("b", 0)).is_ok());
    }
}
