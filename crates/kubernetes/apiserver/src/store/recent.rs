//! A cache of present bodies that were written or read recently, bounded in bytes. It never differs from the file:
//! the writer removes the keys of a group before its commit, and inserts the new bodies before it acknowledges.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::types::{Key, Row};

/// Number of separately locked shards.
const SHARDS: usize = 8;
/// Approximate bytes of an entry besides its body and key.
const OVERHEAD: usize = 200;

struct Kept {
    rev: u64,
    body: Bytes,
    /// Whether it was used since the last eviction scan.
    used: bool,
    /// Identifies its entry in `order`.
    turn: u64,
}

#[derive(Default)]
struct Shard {
    rows: HashMap<Key, Kept>,
    /// Keys in order of insertion, each with its turn. Some are stale: removed or inserted again since.
    order: VecDeque<(Key, u64)>,
    /// The last turn assigned.
    turn: u64,
    bytes: usize,
    /// Keys of the group being committed.
    pending: HashSet<Key>,
    /// Number of removals: a reader that overlaps one may have read an older state.
    losses: u64,
}

/// The cache, see the module.
pub(super) struct Recent {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// Most bytes of each shard.
    limit: usize,
}

/// Returned by a failed lookup; required for filling in the row read from the file.
pub(super) struct Miss(u64);

fn weight(key: &Key, body: &Bytes) -> usize {
    OVERHEAD + 2 * (key.ns.len() + key.name.len()) + body.len()
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hasher: RandomState::new(), limit: limit / SHARDS }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present state of a key.
    pub(super) fn get(&self, key: &Key) -> Result<Row, Miss> {
        let mut shard = self.shard(key);
        match shard.rows.get_mut(key) {
            Some(kept) => {
                kept.used = true;
                Ok(Row { ns: key.ns.clone(), name: key.name.clone(), rev: kept.rev, body: kept.body.clone() })
            }
            None => Err(Miss(shard.losses)),
        }
    }

    /// Inserts a row that a reader found after a miss, unless it may be stale.
    pub(super) fn fill(&self, key: &Key, Miss(losses): Miss, row: &Row) {
        let mut shard = self.shard(key);
        if shard.losses == losses && !shard.pending.contains(key) && !shard.rows.contains_key(key) {
            shard.put(key, row.rev, row.body.clone(), self.limit);
        }
    }

    /// Before a commit: removes the key, whose entry is about to become stale.
    pub(super) fn begin(&self, key: &Key) {
        let mut shard = self.shard(key);
        shard.remove(key);
        shard.pending.insert(key.clone());
    }

    /// After a commit: the new state of the key; `None` if it was deleted or not written.
    pub(super) fn end(&self, key: &Key, now: Option<(u64, Bytes)>) {
        let mut shard = self.shard(key);
        shard.pending.remove(key);
        match now {
            Some((rev, body)) => shard.put(key, rev, body, self.limit),
            None => shard.losses += 1,
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).bytes).sum()
    }
}

impl Shard {
    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.rows.remove(key) {
            self.bytes -= weight(key, &kept.body);
        }
    }

    fn put(&mut self, key: &Key, rev: u64, body: Bytes, limit: usize) {
        self.remove(key);
        let size = weight(key, &body);
        if size > limit / 4 {
            // It would evict too many others.
            self.losses += 1;
            return;
        }
        self.bytes += size;
        self.turn += 1;
        self.rows.insert(key.clone(), Kept { rev, body, used: false, turn: self.turn });
        self.order.push_back((key.clone(), self.turn));
        self.make_room(limit);
    }

    /// Each round evicts an entry, drops a stale turn, or gives a used entry its second chance.
    fn make_room(&mut self, limit: usize) {
        while self.bytes > limit || self.order.len() > 2 * self.rows.len() + 16 {
            let Some((oldest, turn)) = self.order.pop_front() else { break };
            let Some(kept) = self.rows.get_mut(&oldest).filter(|kept| kept.turn == turn) else { continue };
            if std::mem::take(&mut kept.used) || self.bytes <= limit {
                self.order.push_back((oldest, turn));
            } else {
                self.remove(&oldest);
                self.losses += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { resource: "things".into(), ns: "a".into(), name: name.into() }
    }

    fn row(rev: u64, body: &'static str) -> Row {
        Row { ns: "a".into(), name: "x".into(), rev, body: Bytes::from_static(body.as_bytes()) }
    }

    fn missed(recent: &Recent, name: &str) -> Miss {
        recent.get(&key(name)).err().unwrap()
    }

    #[test]
    fn a_reader_never_puts_in_what_a_commit_made_old() {
        let recent = Recent::new(1 << 20);
        let early = missed(&recent, "x");
        recent.begin(&key("x"));
        recent.fill(&key("x"), missed(&recent, "x"), &row(1, "old"));
        assert!(recent.get(&key("x")).is_err(), "while it is committed nothing is put in");
        recent.end(&key("x"), Some((2, Bytes::from_static(b"new"))));
        recent.fill(&key("x"), early, &row(1, "old"));
        assert_eq!(recent.get(&key("x")).ok().map(|r| r.rev), Some(2));
        let early = missed(&recent, "y");
        recent.begin(&key("y"));
        recent.end(&key("y"), None);
        recent.fill(&key("y"), early, &row(1, "deleted meanwhile"));
        assert!(recent.get(&key("y")).is_err());
        recent.fill(&key("y"), missed(&recent, "y"), &row(3, "there again"));
        assert_eq!(recent.get(&key("y")).ok().map(|r| r.rev), Some(3));
    }

    #[test]
    fn bytes_are_bounded_and_what_is_used_stays() {
        let recent = Recent::new(64 << 10);
        let body = Bytes::from(vec![b'x'; 500]);
        recent.end(&key("used"), Some((1, body.clone())));
        for n in 0..1000 {
            recent.end(&key(&format!("n{n}")), Some((n, body.clone())));
            assert!(recent.get(&key("used")).is_ok(), "{n}");
            assert!(recent.bytes() <= 64 << 10);
        }
        assert!(recent.bytes() > 32 << 10);
        recent.end(&key("huge"), Some((1, Bytes::from(vec![b'x'; 60 << 10]))));
        assert!(recent.get(&key("huge")).is_err());
        // Rewriting one key does not grow the order.
        for rev in 0..10_000 {
            recent.end(&key("same"), Some((rev, Bytes::new())));
        }
        assert!(recent.shards.iter().all(|s| s.lock().unwrap().order.len() < 1000));
    }
}
