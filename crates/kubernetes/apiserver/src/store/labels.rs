//! A cache of labels by revision, for selective lists: they check the labels of all objects and read the bodies of
//! the matching ones only. Revisions are immutable, so entries never become stale.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::by_label::Pair;

/// Approximate bytes of an entry besides its labels.
const OVERHEAD: usize = 48;

/// Decides whether labels match.
type Wanted = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Selects objects by their labels, a JSON object.
#[derive(Clone)]
pub struct Pick {
    wanted: Arc<Wanted>,
    /// A label that all of them have with this value.
    pub(super) pair: Option<Pair>,
}

impl Pick {
    /// Selects the objects for which `wanted` returns true. All of them have `pair`, if there is one.
    pub fn new(wanted: impl Fn(&[u8]) -> bool + Send + Sync + 'static, pair: Option<Pair>) -> Self {
        Self { wanted: Arc::new(wanted), pair }
    }

    /// Whether these labels match.
    pub fn wants(&self, labels: &[u8]) -> bool {
        (self.wanted)(labels)
    }
}

impl fmt::Debug for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pick")
    }
}

#[derive(Default)]
struct Known {
    young: HashMap<u64, Box<[u8]>>,
    /// Bytes of the young entries.
    bytes: usize,
    /// The previous generation: dropped at the next change of generation, except entries used until then.
    old: HashMap<u64, Box<[u8]>>,
}

/// The cache, see the module.
pub(super) struct Labels {
    known: Mutex<Known>,
    /// Most bytes of each of the two generations.
    limit: usize,
}

impl Labels {
    pub(super) fn new(limit: usize) -> Self {
        Self { known: Mutex::default(), limit: limit / 2 }
    }

    /// Whether the labels of a revision match; `None` if they are not cached.
    pub(super) fn wanted(&self, rev: u64, pick: &Pick) -> Option<bool> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(labels) = known.young.get(&rev) {
            return Some(pick.wants(labels));
        }
        let labels = known.old.remove(&rev)?;
        let wanted = pick.wants(&labels);
        known.add(rev, labels, self.limit);
        Some(wanted)
    }

    /// Caches the labels of a revision.
    pub(super) fn learn(&self, rev: u64, labels: &[u8]) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).add(rev, labels.into(), self.limit);
    }
}

impl Known {
    fn add(&mut self, rev: u64, labels: Box<[u8]>, limit: usize) {
        let size = labels.len() + OVERHEAD;
        if self.bytes + size > limit {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        if self.young.insert(rev, labels).is_none() {
            self.bytes += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_allowed_and_what_is_asked_for_stays() {
        let labels = Labels::new(20_000);
        let all = Pick::new(|_| true, None);
        for rev in 0..10_000 {
            labels.learn(rev, b"{\"a\":\"b\"}");
            assert_eq!(labels.wanted(0, &all), Some(true));
        }
        let known = labels.known.lock().unwrap();
        assert!((known.young.len() + known.old.len()) * (OVERHEAD + 9) <= 20_000);
        assert!(known.young.contains_key(&9_999) && !known.young.contains_key(&5_000));
    }
}
