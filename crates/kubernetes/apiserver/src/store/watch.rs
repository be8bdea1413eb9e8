//! A ring of recent events, bounded in bytes. Watchers are cursors into it, so a slow one costs nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;

/// Most events returned at once.
pub(super) const BATCH: usize = 256;

/// One committed change.
#[derive(Debug)]
pub struct Event {
    /// Its revision.
    pub rev: u64,
    /// Previous revision of the object; 0 if it was created.
    pub prev: u64,
    /// Storage name of the resource.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster scope.
    pub ns: String,
    /// Object name.
    pub name: String,
    /// Whether the object was deleted; `body` is its last state.
    pub deleted: bool,
    /// Encoded object.
    pub body: Bytes,
    /// Its encodings for watchers.
    pub frames: Frames,
}

/// Encodings cached per event; others are made for each watcher.
const FORMS: usize = 4;

/// The encodings of an event, each made once and shared by all watchers that need it.
#[derive(Debug, Default)]
pub struct Frames(Mutex<Vec<(Arc<str>, &'static str, Bytes)>>);

impl Frames {
    /// The frame of this form (version, media type, shape) and event type; encodes it if it is not cached.
    pub fn get<E>(
        &self,
        form: &Arc<str>,
        kind: &'static str,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        // Locked while encoding: others that want the same frame would repeat the work.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., frame)) = made.iter().find(|(f, k, _)| f == form && *k == kind) {
            return Ok(frame.clone());
        }
        let frame = encode()?;
        if made.len() < FORMS {
            made.push((Arc::clone(form), kind, frame.clone()));
        }
        Ok(frame)
    }
}

/// History could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// It was compacted away.
    #[error("history before revision {oldest} is gone")]
    Compacted {
        /// Oldest revision that can be read.
        oldest: u64,
    },
    /// The store failed.
    #[error("history could not be read: {0}")]
    Store(String),
}

struct Inner {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event after this revision is in `events`.
    complete_after: u64,
    /// Newest revision seen.
    newest: u64,
    /// Last change of each resource since the start.
    changed: HashMap<Arc<str>, u64>,
    /// Revision at the start.
    first: u64,
}

/// The ring, see the module.
pub(super) struct Ring {
    inner: RwLock<Inner>,
    limit: usize,
}

impl Ring {
    pub(super) fn new(revision: u64, limit: usize) -> Self {
        let inner = Inner {
            events: VecDeque::new(),
            bytes: 0,
            complete_after: revision,
            newest: revision,
            changed: HashMap::new(),
            first: revision,
        };
        Self { inner: RwLock::new(inner), limit }
    }

    /// Adds events in order of revision and drops the oldest beyond the limit.
    pub(super) fn extend(&self, events: Vec<Event>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            inner.newest = event.rev;
            match inner.changed.get_mut(&event.resource) {
                Some(rev) => *rev = event.rev,
                None => {
                    inner.changed.insert(Arc::clone(&event.resource), event.rev);
                }
            }
            inner.bytes += weight(&event);
            inner.events.push_back(Arc::new(event));
        }
        while inner.bytes > self.limit {
            let Some(oldest) = inner.events.pop_front() else { break };
            inner.bytes -= weight(&oldest);
            inner.complete_after = oldest.rev;
        }
    }

    /// The revision up to which `resource` is unchanged after `rev`; `None` if it has changed.
    pub(super) fn quiet(&self, resource: &Arc<str>, rev: u64) -> Option<u64> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let last =
            if resource.is_empty() { inner.newest } else { *inner.changed.get(resource).unwrap_or(&inner.first) };
        (last <= rev).then(|| inner.newest.max(rev))
    }

    /// Events of `resource` after `rev`, with the revision up to which they are complete; `None` if `rev` is too old.
    pub(super) fn after(&self, resource: &Arc<str>, rev: u64) -> Option<(Vec<Arc<Event>>, u64)> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if rev < inner.complete_after {
            return None;
        }
        let start = inner.events.partition_point(|e| e.rev <= rev);
        let mut found = Vec::new();
        for event in inner.events.range(start..) {
            if event.resource == *resource || resource.is_empty() {
                found.push(Arc::clone(event));
                if found.len() == BATCH {
                    return Some((found, event.rev));
                }
            }
        }
        Some((found, inner.newest.max(rev)))
    }
}

fn weight(event: &Event) -> usize {
    event.body.len() + event.ns.len() + event.name.len() + 128
}
