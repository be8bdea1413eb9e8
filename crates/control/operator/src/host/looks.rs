//! How each host's last look ended: a look that can find nothing new is skipped, and each host's next look comes at its own time.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::metal3::BareMetalHost;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::beside::Versions;
use super::bodies::Identity;

/// Shorter pauses are not changed: the host waits for something.
const LONG: Duration = Duration::from_secs(20);
/// Most that a longer pause is shortened by, in percent.
const SPREAD: u64 = 20;
/// The same for a host's first pause: hosts that began together, for instance with this process, are spread.
const FIRST_SPREAD: u64 = 75;

/// What a look was made from: versions of the objects, and whether the provisioner had news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The host.
    pub host: Option<String>,
    /// Its HardwareData.
    pub hardware_data: Option<String>,
    /// The objects beside it that wish something.
    pub beside: Versions,
    /// The BMC's Secret: its uid, and a digest of what it holds, or what it lacks; not its version, which each claim by a host sharing it changes.
    pub secret: Option<Identity>,
    /// What failed work may have been waiting for.
    pub news: bool,
}

/// How a look has ended.
struct Look {
    seen: Seen,
    /// When the next one is due; `None` if only a change triggers it.
    due: Option<Instant>,
}

/// When the next look is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// So much later.
    In(Duration),
    /// When something changes.
    WithAChange,
}

struct Inner {
    /// When the first second of [`together`] began.
    start: Instant,
    looks: HashMap<String, Look>,
    /// How many looks of a host have ended.
    counts: HashMap<String, u64>,
    /// Hosts with news other than a change of the objects in [`Seen`].
    woken: HashSet<ObjectRef<BareMetalHost>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { start: Instant::now(), looks: HashMap::new(), counts: HashMap::new(), woken: HashSet::new() }
    }
}

/// The last looks of all hosts, by uid.
#[derive(Default)]
pub struct Looks(Mutex<Inner>);

impl Looks {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes news of the host: the next look is made even if no object has changed.
    pub fn wake(&self, host: &ObjectRef<BareMetalHost>) {
        self.lock().woken.insert(host.clone());
    }

    /// Whether the end of a look at the host is known.
    pub fn has(&self, uid: &str) -> bool {
        self.lock().looks.contains_key(uid)
    }

    /// When the next look is due, if nothing is new; `None` if it is due now. Call this once per look: it uses up [`Self::wake`]. What a look would be made
    /// from is only asked for where that decides.
    pub fn rests(
        &self,
        host: &ObjectRef<BareMetalHost>,
        uid: &str,
        seen: impl FnOnce() -> Option<Seen>,
    ) -> Option<Due> {
        let last = {
            let mut inner = self.lock();
            let woken = inner.woken.remove(host);
            let last = inner.looks.remove_entry(uid);
            last.filter(|_| !woken)
        };
        let (uid, last) = last?;
        if seen().as_ref() != Some(&last.seen) {
            return None;
        }
        let due = match last.due {
            None => Due::WithAChange,
            Some(due) => match due.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return None,
                left => Due::In(left),
            },
        };
        self.lock().looks.insert(uid, last);
        Some(due)
    }

    /// Notes the end of a look, with what it was made from if that is still current (`seen`). Returns the pause to the next one, if any.
    pub fn ended(&self, uid: &str, seen: Option<Seen>, after: Option<Duration>) -> Option<Duration> {
        let mut inner = self.lock();
        let since = inner.start.elapsed();
        let count = inner.counts.entry(uid.to_owned()).or_default();
        let after = after.map(|time| if time < LONG { time } else { together(spread(time, uid, *count), since) });
        *count = count.wrapping_add(1);
        match seen {
            Some(seen) => {
                let due = after.map(|time| Instant::now() + time);
                inner.looks.insert(uid.to_owned(), Look { seen, due });
            }
            None => drop(inner.looks.remove(uid)),
        }
        after
    }

    /// The look could not be completed, or the host is gone.
    pub fn forget(&self, uid: &str, gone: bool) {
        let mut inner = self.lock();
        inner.looks.remove(uid);
        if gone {
            inner.counts.remove(uid);
        }
    }
}

/// Has hosts looked at that another controller names.
pub struct Pokes {
    sender: UnboundedSender<ObjectRef<BareMetalHost>>,
    receiver: Mutex<Option<UnboundedReceiver<ObjectRef<BareMetalHost>>>>,
}

impl Default for Pokes {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Pokes {
    /// This host is to be looked at.
    pub fn poke(&self, host: ObjectRef<BareMetalHost>) {
        // This fails only once the controller has ended.
        let _ = self.sender.send(host);
    }

    /// Those that are, for the one who looks; nothing for a second one.
    pub fn taken(&self) -> UnboundedReceiver<ObjectRef<BareMetalHost>> {
        let taken = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| unbounded_channel().1)
    }
}

/// Shortens a long pause by a pseudo-random part, which depends only on the host and its number of looks, so that runs are reproducible.
fn spread(time: Duration, uid: &str, count: u64) -> Duration {
    let mut hash = DefaultHasher::new();
    (uid, count).hash(&mut hash);
    let most = if count == 0 { FIRST_SPREAD } else { SPREAD };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let cut = (millis / 100).saturating_mul(hash.finish() % (most + 1));
    Duration::from_millis(millis.saturating_sub(cut))
}

/// Has a long pause that begins so long `since` the start end with a whole second, as others do: what the look at one host takes is in the processor's
/// caches for the next one. A look by itself, after a rest, takes ten times as long.
fn together(time: Duration, since: Duration) -> Duration {
    Duration::from_secs((since + time).as_secs()).saturating_sub(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(version: &str) -> Seen {
        Seen { host: Some(version.to_owned()), ..Seen::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_made_when_it_is_due_or_something_is_new() {
        let (looks, host) = (Looks::default(), ObjectRef::new("a").within("n"));
        let rests = |version: &str| looks.rests(&host, "u", || Some(seen(version)));
        assert_eq!(rests("1"), None, "there was none");
        assert_eq!(looks.ended("u", Some(seen("1")), Some(Duration::from_secs(10))), Some(Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(rests("1"), Some(Due::In(Duration::from_secs(6))));
        assert_eq!(looks.rests(&host, "u", || None), None, "what is not known may be new");
        looks.ended("u", Some(seen("1")), None);
        tokio::time::advance(Duration::from_secs(4000)).await;
        assert_eq!(rests("1"), Some(Due::WithAChange));
        assert_eq!(rests("2"), None);
        for (version, wakes, passed) in [("2", false, 0), ("1", true, 0), ("1", false, 10)] {
            looks.ended("u", Some(seen("1")), Some(Duration::from_secs(10)));
            if wakes {
                looks.wake(&host);
            }
            tokio::time::advance(Duration::from_secs(passed)).await;
            assert_eq!(rests(version), None, "{version} {wakes} {passed}");
            assert_eq!(rests("1"), None, "a look that has been begun is made until one has ended");
        }
        looks.ended("u", None, Some(Duration::from_secs(10)));
        assert_eq!(rests("1"), None, "it has changed meanwhile");
        looks.ended("u", Some(seen("1")), None);
        looks.forget("u", false);
        assert_eq!(rests("1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn those_due_within_a_second_are_looked_at_one_after_the_other() {
        let (looks, start) = (Looks::default(), Instant::now());
        let mut ends = HashMap::new();
        for n in 0..1000 {
            tokio::time::advance(Duration::from_millis(7)).await;
            let after = looks.ended(&n.to_string(), None, Some(Duration::from_secs(60))).expect("a pause");
            assert!(after >= Duration::from_secs(14) && after <= Duration::from_secs(60), "{after:?}");
            *ends.entry(start.elapsed() + after).or_insert(0) += 1;
        }
        assert!(ends.keys().all(|end| end.subsec_nanos() == 0) && ends.len() > 40, "{ends:?}");
        let soon = Duration::from_millis(10_300);
        assert_eq!(
            looks.ended("0", None, Some(soon)),
            Some(soon),
            "a host that waits for something is not kept waiting"
        );
    }

    #[test]
    fn what_begins_together_goes_apart() {
        let minute = Duration::from_secs(60);
        let at = |count: u64| {
            let mut all: Vec<u64> = (0..1000).map(|n| spread(minute, &n.to_string(), count).as_secs()).collect();
            all.sort_unstable();
            all
        };
        let (first, later) = (at(0), at(1));
        assert!(first[0] >= 15 && first[999] <= 60 && later[0] >= 48 && later[999] <= 60);
        // In no second much more than its share of all.
        let most = |all: &[u64]| (15..=60).map(|s| all.iter().filter(|t| **t == s).count()).max();
        assert!(most(&first) <= Some(50), "{first:?}");
        assert_eq!(at(1), later);
    }
}
