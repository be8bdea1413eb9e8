//! The present bodies of keys that were written or read lately, bounded in bytes. What is found here is what the file
//! has: the writer takes the keys of a group out before it commits, and puts their new bodies in before it answers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::types::{Key, Row};

/// Parts with a lock of their own.
const SHARDS: usize = 8;
/// Bytes that an entry takes beside its body and the text of its key, about.
const OVERHEAD: usize = 200;

struct Kept {
    rev: u64,
    body: Bytes,
    /// Asked for since it was last looked at for room.
    used: bool,
    /// Which of the key's entries in the order is this one's.
    turn: u64,
}

#[derive(Default)]
struct Shard {
    rows: HashMap<Key, Kept>,
    /// Keys in the order in which they came, each with its turn; some are not there any more, or came again.
    order: VecDeque<(Key, u64)>,
    /// The last turn given.
    turn: u64,
    bytes: usize,
    /// Keys of the group that is being committed.
    pending: HashSet<Key>,
    /// How often something was taken out: what a reader read meanwhile may be older than what was here.
    losses: u64,
}

/// See the module's text.
pub(super) struct Recent {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// Bytes of each shard.
    limit: usize,
}

/// What a look without success leaves behind: needed to put in what is read from the file.
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

    /// Puts in what a reader found in the file after a miss, unless it may be old by now.
    pub(super) fn fill(&self, key: &Key, Miss(losses): Miss, row: &Row) {
        let mut shard = self.shard(key);
        if shard.losses == losses && !shard.pending.contains(key) && !shard.rows.contains_key(key) {
            shard.put(key, row.rev, row.body.clone(), self.limit);
        }
    }

    /// Before a commit: what is here about a key may be old soon.
    pub(super) fn begin(&self, key: &Key) {
        let mut shard = self.shard(key);
        shard.remove(key);
        shard.pending.insert(key.clone());
    }

    /// After a commit: the key's new state, `None` if it is gone or was not written.
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
            // It would push out all others.
            self.losses += 1;
            return;
        }
        self.bytes += size;
        self.turn += 1;
        self.rows.insert(key.clone(), Kept { rev, body, used: false, turn: self.turn });
        self.order.push_back((key.clone(), self.turn));
        self.make_room(limit);
    }

    /// Each round of the loop takes out an entry, forgets a turn that is over, or gives a second chance, of which
    /// each entry has one.
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
        // One key written again and again does not fill the order.
        for rev in 0..10_000 {
            recent.end(&key("same"), Some((rev, Bytes::new())));
        }
        assert!(recent.shards.iter().all(|s| s.lock().unwrap().order.len() < 1000));
    }
}
