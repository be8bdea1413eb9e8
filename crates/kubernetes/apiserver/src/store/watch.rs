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

/// Bytes of the newest events whose encodings are kept: a watcher that keeps up finds them, and one that does not has
/// them made for it alone.
const FRAMED_BYTES: usize = 1 << 20;

/// The encodings of an event, each made once and shared by all watchers that need it, until the event is an old one.
#[derive(Debug, Default)]
pub struct Frames(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    frames: Vec<(Arc<str>, &'static str, Bytes)>,
    /// No more are kept.
    closed: bool,
}

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
        if let Some((.., frame)) = made.frames.iter().find(|(f, k, _)| f == form && *k == kind) {
            return Ok(frame.clone());
        }
        if made.closed {
            drop(made);
            return encode();
        }
        let frame = encode()?;
        if made.frames.len() < FORMS {
            made.frames.push((Arc::clone(form), kind, frame.clone()));
        }
        Ok(frame)
    }

    /// Lets go of the encodings, and keeps none from now on.
    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Made { frames: Vec::new(), closed: true };
    }

    /// Bytes of the encodings that are kept.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.frames.iter().map(|(.., frame)| frame.len()).sum()
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
    /// How many of the newest keep their encodings, and the bytes of these events.
    framed: (usize, usize),
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
            framed: (0, 0),
            complete_after: revision,
            newest: revision,
            changed: HashMap::new(),
            first: revision,
        };
        Self { inner: RwLock::new(inner), limit }
    }

    /// Adds events in order of revision and drops the oldest beyond the limit.
    pub(super) fn extend(&self, events: Vec<Event>) {
        let mut guard = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *guard;
        let before = inner.framed.0;
        for event in events {
            inner.newest = event.rev;
            match inner.changed.get_mut(&event.resource) {
                Some(rev) => *rev = event.rev,
                None => {
                    inner.changed.insert(Arc::clone(&event.resource), event.rev);
                }
            }
            let size = weight(&event);
            inner.bytes += size;
            inner.events.push_back(Arc::new(event));
            inner.framed = (inner.framed.0 + 1, inner.framed.1 + size);
        }
        // Those that came now are kept, however large: nobody has seen them yet.
        let mut closed = Vec::new();
        while inner.framed.1 > FRAMED_BYTES && closed.len() < before {
            let oldest = inner.events.len() - inner.framed.0;
            let Some(event) = inner.events.get(oldest).map(Arc::clone) else { break };
            closed.push(Arc::clone(&event));
            inner.framed = (inner.framed.0 - 1, inner.framed.1.saturating_sub(weight(&event)));
        }
        while inner.bytes > self.limit {
            let Some(oldest) = inner.events.pop_front() else { break };
            inner.bytes -= weight(&oldest);
            inner.complete_after = oldest.rev;
            if inner.framed.0 > inner.events.len() {
                inner.framed = (inner.events.len(), inner.framed.1.saturating_sub(weight(&oldest)));
            }
        }
        // Whoever encodes one holds it for so long: nobody else waits for that.
        drop(guard);
        closed.iter().for_each(|event| event.frames.close());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rev: u64, bytes: usize) -> Event {
        let body = Bytes::from(vec![b'x'; bytes]);
        let (resource, ns, name) = ("things".into(), "a".to_owned(), format!("n{rev}"));
        Event { rev, prev: 0, resource, ns, name, deleted: false, body, frames: Frames::default() }
    }

    fn encoded(event: &Event, made: &mut usize) -> Bytes {
        let encode = || {
            *made += 1;
            Ok::<_, std::convert::Infallible>(event.body.clone())
        };
        event.frames.get(&"json".into(), "ADDED", encode).unwrap()
    }

    /// Each event of four megabytes in memory had its encodings, of several megabytes more, for as long.
    #[test]
    fn encodings_are_kept_of_the_newest_events_alone() {
        let ring = Ring::new(0, 4 << 20);
        let mut made = 0;
        for rev in 1..=2000 {
            ring.extend(vec![event(rev, 4096)]);
            let inner = ring.inner.read().unwrap();
            encoded(&inner.events[inner.events.len() - 1], &mut made);
            drop(inner);
            let inner = ring.inner.read().unwrap();
            let kept: usize = inner.events.iter().map(|event| event.frames.bytes()).sum();
            assert!(kept <= FRAMED_BYTES && inner.bytes <= 4 << 20, "{kept} at {rev}");
        }
        let inner = ring.inner.read().unwrap();
        assert!(inner.events.len() > 900 && inner.framed.0 > 200, "{} {:?}", inner.events.len(), inner.framed);
        made = 0;
        // A watcher that keeps up shares them; one that lags behind has its own.
        let (newest, oldest) = (&inner.events[inner.events.len() - 1], &inner.events[0]);
        let both = [encoded(newest, &mut made), encoded(newest, &mut made)];
        assert_eq!((made, both), (0, [newest.body.clone(), newest.body.clone()]));
        let both = [encoded(oldest, &mut made), encoded(oldest, &mut made)];
        assert_eq!((made, oldest.frames.bytes(), both), (2, 0, [oldest.body.clone(), oldest.body.clone()]));
    }

    #[test]
    fn a_ring_smaller_than_the_encodings_keeps_count() {
        let ring = Ring::new(0, 10_000);
        for rev in 1..=100 {
            ring.extend((0..3).map(|part| event(rev * 3 + part, 1000)).collect());
            let inner = ring.inner.read().unwrap();
            let all: usize = inner.events.iter().map(|event| weight(event)).sum();
            assert_eq!((inner.framed, inner.bytes), ((inner.events.len(), all), all));
        }
    }
}
