//! What this process has read or written itself, until a watch has caught up with it.
//!
//! A watch may lag behind this process's own writes, and versions of objects can be compared for equality, not for order. So what was read or
//! written is kept with the versions known to be older: those that it replaced, and the one that the watch showed before the call was sent. While
//! the watch shows one of these, the kept object counts. When it shows the kept version, it has caught up. When it shows anything else, which one
//! is newer is unknown, and the object is read.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most older versions remembered per object; if the watch shows a forgotten one, the object is read.
const MAX_OLDER: usize = 64;

/// A version of an object as a watch shows it; `None`: there is no such object.
pub type Version = Option<String>;

/// How the version that a watch shows relates to what is kept.
#[derive(Debug, PartialEq, Eq)]
pub enum Judgement<T> {
    /// Nothing is kept.
    Nothing,
    /// It is the kept version.
    CaughtUp(Option<Arc<T>>),
    /// It is older than this.
    Older(Option<Arc<T>>),
    /// Unknown: the object has to be read.
    Unclear,
}

/// What was known of an object before a call was sent.
#[derive(Debug)]
pub struct Before {
    /// The entry's stamp; without an entry, the count of removals.
    stamp: Result<u64, u64>,
    older: VecDeque<Version>,
}

struct Entry<T> {
    /// What was read or written, and its version; `None` as the version: there was none.
    object: Option<Arc<T>>,
    version: Version,
    older: VecDeque<Version>,
    /// A call ended with an unknown result, or two overlapped.
    uncertain: bool,
    stamp: u64,
    used: u64,
    weight: usize,
}

struct Inner<K, T> {
    entries: HashMap<K, Entry<T>>,
    /// Counts changes: an entry that changed during a call has another stamp.
    stamps: u64,
    /// Counts what is removed other than by a watch that has caught up.
    removals: u64,
    uses: u64,
    weight: usize,
}

/// Objects by key.
pub struct Kept<K, T>(Mutex<Inner<K, T>>);

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self(Mutex::new(Inner { entries: HashMap::new(), stamps: 0, removals: 0, uses: 0, weight: 0 }))
    }
}

impl<K: Clone + Eq + Hash, T> Kept<K, T> {
    fn lock(&self) -> MutexGuard<'_, Inner<K, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares `watched`, the watch's version, with what is kept.
    pub fn judge(&self, key: &K, watched: Option<&str>) -> Judgement<T> {
        let mut inner = self.lock();
        inner.uses += 1;
        let uses = inner.uses;
        let Some(entry) = inner.entries.get_mut(key) else { return Judgement::Nothing };
        entry.used = uses;
        if entry.uncertain {
            Judgement::Unclear
        } else if entry.version.as_deref() == watched {
            Judgement::CaughtUp(entry.object.clone())
        } else if entry.older.iter().any(|older| older.as_deref() == watched) {
            Judgement::Older(entry.object.clone())
        } else {
            Judgement::Unclear
        }
    }

    /// Call this before sending a request; `watched` is what the watch shows, if it is in step.
    pub fn before(&self, key: &K, watched: Option<Version>) -> Before {
        let inner = self.lock();
        let Some(entry) = inner.entries.get(key) else {
            return Before { stamp: Err(inner.removals), older: watched.into_iter().collect() };
        };
        let mut older = entry.older.clone();
        // An uncertain version may never have existed.
        let current = (!entry.uncertain).then(|| entry.version.clone());
        for version in current.into_iter().chain(watched) {
            if !older.contains(&version) {
                older.push_back(version);
            }
        }
        Before { stamp: Ok(entry.stamp), older }
    }

    /// Keeps the answer to a call: the object and its version as read or written. `weight` is its share of the limit of [`Self::trim`].
    pub fn note(&self, key: &K, before: Before, object: Option<Arc<T>>, version: Version, weight: usize) {
        let mut inner = self.lock();
        inner.stamps += 1;
        inner.uses += 1;
        let (stamp, used) = (inner.stamps, inner.uses);
        let Before { stamp: expected, mut older } = before;
        older.retain(|old| *old != version);
        while older.len() > MAX_OLDER {
            older.pop_front();
        }
        let present = inner.entries.get(key);
        // Another call for the object ended meanwhile, or its deletion was seen: which result is newer is unknown.
        let uncertain = present.map_or(Err(inner.removals), |entry| Ok(entry.stamp)) != expected;
        if uncertain && present.is_some_and(|entry| !entry.uncertain && entry.version == version && version.is_some()) {
            // Both say the same.
            return;
        }
        if uncertain {
            older.clear();
        }
        inner.weight = inner.weight.saturating_sub(present_weight(present)).saturating_add(weight);
        inner.entries.insert(key.clone(), Entry { object, version, older, uncertain, stamp, used, weight });
    }

    /// Invalidates the object, since a call ended with an unknown result: it is read before the next decision on it.
    pub fn invalidate(&self, key: &K) {
        let mut inner = self.lock();
        inner.stamps += 1;
        let stamp = inner.stamps;
        let mut older = VecDeque::new();
        if let Some(entry) = inner.remove(key) {
            older = entry.older;
            if !entry.uncertain && !older.contains(&entry.version) {
                older.push_back(entry.version);
            }
        }
        let entry = Entry { object: None, version: None, older, uncertain: true, stamp, used: 0, weight: 0 };
        inner.entries.insert(key.clone(), entry);
    }

    /// Notes that the watch has brought this version: whatever it shows later is newer.
    pub fn observe(&self, key: &K, version: Option<&str>) {
        if let Some(entry) = self.lock().entries.get_mut(key)
            && !entry.uncertain
            && entry.version.as_deref() == version
        {
            entry.older.clear();
        }
    }

    /// Like [`Self::observe`], of a watch that holds whole objects: what is kept is let go of, because the watch has it, and its version alone stays.
    pub fn observe_whole(&self, key: &K, version: Option<&str>) {
        let mut inner = self.lock();
        let Some(entry) =
            inner.entries.get_mut(key).filter(|entry| !entry.uncertain && entry.version.as_deref() == version)
        else {
            return;
        };
        (entry.older, entry.object) = (VecDeque::new(), None);
        let weight = std::mem::take(&mut entry.weight);
        inner.weight = inner.weight.saturating_sub(weight);
    }

    /// The watch has shown the deletion. Absence has no version: versions known to be older than the object may be newer now.
    pub fn has_gone(&self, key: &K) {
        let mut inner = self.lock();
        inner.removals += 1;
        let known = inner.entries.contains_key(key);
        drop(inner);
        if known {
            self.invalidate(key);
            if let Some(entry) = self.lock().entries.get_mut(key) {
                entry.older.clear();
            }
        }
    }

    /// Invalidates all objects. They were listed again, perhaps by a restored API: nothing known of versions counts any more.
    pub fn invalidate_all(&self) {
        let mut inner = self.lock();
        inner.stamps += 1;
        inner.removals += 1;
        let stamp = inner.stamps;
        for entry in inner.entries.values_mut() {
            (entry.uncertain, entry.stamp) = (true, stamp);
            entry.older.clear();
        }
    }

    /// Forgets the object, if it is still the one that was judged.
    pub fn forget_if_current(&self, key: &K, version: Option<&str>) {
        let mut inner = self.lock();
        if inner.entries.get(key).is_some_and(|entry| !entry.uncertain && entry.version.as_deref() == version) {
            inner.remove(key);
        }
    }

    /// Forgets the object.
    pub fn forget(&self, key: &K) {
        let mut inner = self.lock();
        inner.removals += 1;
        inner.remove(key);
    }

    /// Evicts the least recently used objects if there are more than `most`, or if they exceed `weight`.
    pub fn trim(&self, most: usize, weight: usize) {
        let mut inner = self.lock();
        if inner.entries.len() <= most && inner.weight <= weight {
            return;
        }
        let mut all: Vec<(u64, K)> = inner.entries.iter().map(|(key, entry)| (entry.used, key.clone())).collect();
        all.sort_by_key(|(used, _)| *used);
        inner.removals += 1;
        for (_, key) in all {
            // Evict a quarter at once, so that this does not run for each further object.
            if inner.entries.len() <= most - most / 4 && inner.weight <= weight - weight / 4 {
                break;
            }
            inner.remove(&key);
        }
    }

    /// How many have their object kept.
    #[cfg(test)]
    pub fn objects(&self) -> usize {
        self.lock().entries.values().filter(|entry| entry.object.is_some()).count()
    }

    /// How many are kept, and their weight.
    #[cfg(test)]
    pub fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.entries.len(), inner.weight)
    }
}

impl<K: Eq + Hash, T> Inner<K, T> {
    fn remove(&mut self, key: &K) -> Option<Entry<T>> {
        let gone = self.entries.remove(key);
        self.weight = self.weight.saturating_sub(present_weight(gone.as_ref()));
        gone
    }
}

fn present_weight<T>(entry: Option<&Entry<T>>) -> usize {
    entry.map_or(0, |entry| entry.weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Kept<&'static str, u64>;

    fn version(number: u64) -> Version {
        (number > 0).then(|| format!("v{number}"))
    }

    /// Reads or writes: `watched` is what the watch shows before the call.
    fn note(kept: &Names, watched: u64, answer: u64) {
        let before = kept.before(&"a", Some(version(watched)));
        kept.note(&"a", before, (answer > 0).then(|| Arc::new(answer)), version(answer), 1);
    }

    fn judge(kept: &Names, watched: u64) -> Judgement<u64> {
        kept.judge(&"a", version(watched).as_deref())
    }

    #[test]
    fn a_watch_that_lags_behind_is_not_believed() {
        let kept = Names::default();
        assert_eq!(judge(&kept, 1), Judgement::Nothing);
        note(&kept, 1, 5);
        note(&kept, 1, 7);
        let expected = || Judgement::Older(Some(Arc::new(7)));
        assert_eq!((judge(&kept, 1), judge(&kept, 5)), (expected(), expected()));
        assert_eq!(judge(&kept, 6), Judgement::Unclear, "another's write, before or after");
        assert_eq!(judge(&kept, 9), Judgement::Unclear);
        assert_eq!(judge(&kept, 7), Judgement::CaughtUp(Some(Arc::new(7))));
        kept.observe(&"a", Some("v7"));
        assert_eq!(judge(&kept, 1), Judgement::Unclear, "what comes after it is newer, whatever it is called");
    }

    #[test]
    fn what_a_watch_of_whole_objects_has_shown_is_not_kept_twice() {
        let kept = Names::default();
        note(&kept, 1, 5);
        kept.observe_whole(&"a", Some("v4"));
        assert_eq!((kept.objects(), judge(&kept, 1)), (1, Judgement::Older(Some(Arc::new(5)))));
        kept.observe_whole(&"a", Some("v5"));
        assert_eq!((kept.objects(), kept.size().1), (0, 0));
        assert_eq!(judge(&kept, 5), Judgement::CaughtUp(None), "the watch has it");
        assert_eq!(judge(&kept, 1), Judgement::Unclear);
        // What is written next follows it.
        note(&kept, 5, 6);
        assert_eq!(judge(&kept, 5), Judgement::Older(Some(Arc::new(6))));
    }

    #[test]
    fn a_call_of_unknown_end_makes_it_read() {
        let kept = Names::default();
        note(&kept, 1, 5);
        kept.invalidate(&"a");
        for watched in [0, 1, 5, 6] {
            assert_eq!(judge(&kept, watched), Judgement::Unclear);
        }
        note(&kept, 1, 6);
        assert_eq!(judge(&kept, 5), Judgement::Older(Some(Arc::new(6))));
    }

    #[test]
    fn answers_that_overlap_are_not_believed() {
        let kept = Names::default();
        let read = kept.before(&"a", Some(version(1)));
        note(&kept, 1, 2);
        // This answer was given before that write, and comes after it.
        kept.note(&"a", read, Some(Arc::new(1)), version(1), 1);
        assert_eq!(judge(&kept, 1), Judgement::Unclear);
        // Two that have read the same are of one mind.
        note(&kept, 1, 3);
        let again = [(); 2].map(|()| kept.before(&"a", Some(version(1))));
        again.into_iter().for_each(|before| kept.note(&"a", before, Some(Arc::new(4)), version(4), 1));
        assert_eq!(judge(&kept, 1), Judgement::Older(Some(Arc::new(4))));
    }

    #[test]
    fn an_object_that_comes_and_goes_during_a_call_is_gone() {
        let kept = Names::default();
        // Created, and seen to come and to go before the answer is here.
        let create = kept.before(&"a", Some(None));
        kept.observe(&"a", Some("v1"));
        kept.has_gone(&"a");
        kept.note(&"a", create, Some(Arc::new(1)), version(1), 1);
        assert_eq!(judge(&kept, 0), Judgement::Unclear);
        // The same, after the answer.
        let kept = Names::default();
        note(&kept, 0, 1);
        assert_eq!(judge(&kept, 0), Judgement::Older(Some(Arc::new(1))));
        kept.observe(&"a", Some("v1"));
        kept.has_gone(&"a");
        assert_eq!(judge(&kept, 0), Judgement::Unclear);
        note(&kept, 0, 0);
        assert_eq!(judge(&kept, 0), Judgement::CaughtUp(None));
        // While nobody watched.
        let kept = Names::default();
        note(&kept, 0, 1);
        kept.invalidate_all();
        assert_eq!(judge(&kept, 0), Judgement::Unclear);
    }

    #[test]
    fn room_is_bounded_and_what_was_used_last_stays() {
        let kept: Kept<u32, ()> = Kept::default();
        for key in 0..100 {
            let before = kept.before(&key, None);
            kept.note(&key, before, Some(Arc::default()), Some(key.to_string()), 10);
            kept.judge(&0, Some("0"));
            kept.trim(20, 150);
            let (entries, weight) = kept.size();
            assert!(entries <= 20 && weight <= 150, "{entries} of {weight}");
        }
        assert_eq!(kept.judge(&0, Some("0")), Judgement::CaughtUp(Some(Arc::default())));
        assert_eq!(kept.judge(&1, Some("1")), Judgement::Nothing);
        kept.forget(&0);
        assert_eq!(kept.judge(&0, Some("0")), Judgement::Nothing);
    }

    /// An API and a watch that lags behind it; another client writes too, and calls are lost. What is decided on is never older than what this
    /// process has read or written before, and in the end nothing has to be read.
    #[test]
    fn nothing_older_than_an_own_write_is_ever_decided_on() {
        for seed in 1..3000_u64 {
            let mut state = seed;
            let mut below = move |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % end
            };
            let kept = Names::default();
            // The object's versions in order, 0 where it was gone; how far the watch is; what this process knows to have been.
            let (mut history, mut watched, mut known) = (vec![1], 0, 0);
            let mut next = 2;
            // Half of the watches hold whole objects.
            let whole = seed & 1 == 0;
            let observe = |number: u64| match version(number) {
                None => kept.has_gone(&"a"),
                shown if whole => kept.observe_whole(&"a", shown.as_deref()),
                shown => kept.observe(&"a", shown.as_deref()),
            };
            let decide = |history: &Vec<u64>, watched: usize, known: &mut usize| {
                let last = |number: u64| history.iter().rposition(|version| *version == number).unwrap();
                let at = match judge(&kept, history[watched]) {
                    Judgement::Nothing => watched,
                    // The watch holds it.
                    Judgement::CaughtUp(_) if whole => last(history[watched]),
                    Judgement::CaughtUp(object) | Judgement::Older(object) => last(object.map_or(0, |object| *object)),
                    Judgement::Unclear => {
                        note(&kept, history[watched], history[history.len() - 1]);
                        history.len() - 1
                    }
                };
                assert!(at >= *known, "seed {seed}: {at} before {known} of {history:?}");
                *known = at;
            };
            for _ in 0..60 {
                match below(6) {
                    0 => decide(&history, watched, &mut known),
                    1 if watched + 1 < history.len() => {
                        watched += 1;
                        observe(history[watched]);
                    }
                    // The watch begins anew.
                    2 if below(8) == 0 => {
                        watched = history.len() - 1;
                        kept.invalidate_all();
                    }
                    // Another's write, creation or deletion.
                    3 => {
                        let gone = history[history.len() - 1] != 0 && below(4) == 0;
                        history.push(if gone { 0 } else { next });
                        next += 1;
                    }
                    // Our own.
                    4 if history[history.len() - 1] != 0 => {
                        let before = kept.before(&"a", Some(version(history[watched])));
                        history.push(next);
                        known = history.len() - 1;
                        if below(4) == 0 {
                            kept.invalidate(&"a");
                        } else {
                            kept.note(&"a", before, Some(Arc::new(next)), version(next), 1);
                        }
                        next += 1;
                    }
                    _ => {}
                }
            }
            while watched + 1 < history.len() {
                watched += 1;
                observe(history[watched]);
            }
            decide(&history, watched, &mut known);
            assert_ne!(judge(&kept, history[watched]), Judgement::Unclear, "seed {seed}: it is read for ever");
        }
    }
}
