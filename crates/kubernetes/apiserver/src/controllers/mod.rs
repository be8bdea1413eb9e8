//! Background work: garbage collection, deletion of namespaces and definitions, expiry of events, compaction.
//!
//! [`gc`], [`ends`], [`identity`], [`policies`] and [`quotas`] follow all changes in order, each in its own task, so
//! that one that waits for a webhook or has much to check delays no other. Failed work is retried after one second,
//! then less often; unrelated changes do not advance a retry.

pub mod bootstrap;
pub mod ends;
pub mod events;
pub mod gc;
pub mod identity;
pub mod kubernetes;
pub mod policies;
pub mod quotas;
pub mod services;
mod typecheck;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::change::Change;
use crate::decode;
use crate::object::Object;
use crate::objects::store_failed;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::{Event, EventsError, Frames, ListQuery, Stored};
use crate::strategies::priority_class::SYSTEM;
use crate::verbs::Backend;

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Field manager of the server's own writes, named as upstream's.
const SERVER: &str = "kube-apiserver";
/// How long history is kept.
const HISTORY: Duration = Duration::from_secs(300);
/// How often it is compacted.
const COMPACT_EVERY: Duration = Duration::from_secs(30);
/// How often old events are removed.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);
/// First delay before unfinished work is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Longest delay between retries.
const MAX_RETRY: Duration = Duration::from_secs(10);

/// Serves all stored definitions.
pub async fn load_definitions(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let crds =
        catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").ok_or_else(ApiError::unknown_path)?;
    for row in backend.select(crds, "", &Selector::default()).await?.1 {
        // Objects written after the definition match its schema; older ones are checked when they are read.
        let stored = Stored { rev: row.rev, tail: row.body };
        backend.definition_changed(&row.name, &stored, false);
    }
    Ok(())
}

/// Creates the namespaces that always exist.
pub async fn ensure_namespaces(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
    let mut change = Change::by_controller(Verb::Create, "system-namespaces");
    SERVER.clone_into(&mut change.manager);
    for name in NAMESPACES {
        let labels = json!({"kubernetes.io/metadata.name": name});
        let mut object = Object::new();
        object.insert("metadata".into(), json!({"name": name, "labels": labels}));
        match backend.insert(&change, namespaces, object, "").await {
            Err(error) if error.reason != StatusReason::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates the PriorityClasses that always exist.
pub async fn ensure_priorities(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let classes = catalog.find("scheduling.k8s.io", "v1", "priorityclasses").ok_or_else(ApiError::unknown_path)?;
    let mut change = Change::by_controller(Verb::Create, "system-priorities");
    SERVER.clone_into(&mut change.manager);
    for (name, value, description) in SYSTEM {
        let mut object = Object::new();
        object.insert("metadata".into(), json!({"name": name}));
        object.insert("value".into(), json!(value));
        object.insert("description".into(), json!(description));
        decode::fill(classes, &mut object);
        match backend.insert(&change, classes, object, "").await {
            Err(error) if error.reason != StatusReason::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Initializes the built-in namespaces and roles before their controllers run.
pub async fn initialize(backend: &Backend) -> ApiResult<()> {
    identity::initialize(backend, &NAMESPACES).await
}

/// Starts all controllers.
pub fn spawn(backend: &Arc<Backend>, tasks: &TaskTracker) {
    tasks.spawn(compact(Arc::clone(backend)));
    tasks.spawn(follow::<gc::Collector>(Arc::clone(backend)));
    tasks.spawn(follow::<ends::Ends>(Arc::clone(backend)));
    tasks.spawn(follow::<identity::Identity>(Arc::clone(backend)));
    tasks.spawn(follow::<policies::Policies>(Arc::clone(backend)));
    tasks.spawn(follow::<quotas::Quotas>(Arc::clone(backend)));
    tasks.spawn(expire(Arc::clone(backend)));
}

/// A controller that follows all changes.
trait Follower: Default + Send {
    /// Notes a change.
    fn see(&mut self, backend: &Backend, event: &Event);
    /// Processes noted changes. True if something must be retried.
    fn work(&mut self, backend: &Backend) -> impl Future<Output = bool> + Send;
    /// Schedules failed work again.
    fn again(&mut self);
}

macro_rules! follower {
    ($kind:ty, |$me:ident, $backend:ident, $event:ident| $see:expr) => {
        impl Follower for $kind {
            fn see(&mut self, $backend: &Backend, $event: &Event) {
                let $me = self;
                $see;
            }

            async fn work(&mut self, backend: &Backend) -> bool {
                <$kind>::work(self, backend).await
            }

            fn again(&mut self) {
                <$kind>::again(self);
            }
        }
    };
}

follower!(gc::Collector, |me, backend, event| gc::Collector::see(me, backend, event));
follower!(ends::Ends, |me, _backend, event| ends::Ends::see(me, event));
follower!(identity::Identity, |me, _backend, event| identity::Identity::see(me, event));
follower!(quotas::Quotas, |me, backend, event| quotas::Quotas::see(me, backend, event));
follower!(policies::Policies, |me, _backend, event| policies::Policies::see(me, event));

async fn follow<F: Follower>(backend: Arc<Backend>) {
    let stop = backend.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow_all::<F>(&backend) => {}
    }
}

/// Scans the store once, then follows all changes.
async fn follow_all<F: Follower>(backend: &Backend) {
    let everything: Arc<str> = "".into();
    let mut news = backend.store.subscribe();
    'anew: loop {
        let (mut follower, mut retries) = (F::default(), Retries::default());
        let mut at = backend.store.revision();
        if let Err(error) = scan(backend, &mut follower).await {
            tracing::warn!(%error, "the store could not be read by a controller");
            tokio::time::sleep(RETRY).await;
            continue;
        }
        loop {
            news.borrow_and_update();
            loop {
                let (events, upto) = match backend.store.events_after(&everything, at).await {
                    Ok(found) => found,
                    Err(EventsError::Compacted { .. }) => continue 'anew,
                    Err(error) => {
                        tracing::warn!(%error, "changes could not be read");
                        tokio::time::sleep(RETRY).await;
                        continue 'anew;
                    }
                };
                at = upto;
                if events.is_empty() {
                    break;
                }
                events.iter().for_each(|event| follower.see(backend, event));
            }
            if retries.are_due(Instant::now()) {
                follower.again();
            }
            let unfinished = follower.work(backend).await;
            let next = retries.next(unfinished, Instant::now());
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }
}

/// The schedule of retries.
#[derive(Default)]
struct Retries {
    next: Option<Instant>,
    /// The last delay.
    pause: Duration,
}

impl Retries {
    /// Whether a retry is due; true once per retry.
    fn are_due(&mut self, now: Instant) -> bool {
        self.next.take_if(|next| *next <= now).is_some()
    }

    /// The time of the next retry, given whether the last run left work unfinished.
    fn next(&mut self, unfinished: bool, now: Instant) -> Option<Instant> {
        if !unfinished {
            *self = Self::default();
        } else if self.next.is_none() {
            self.pause = (self.pause * 2).clamp(RETRY, MAX_RETRY);
            self.next = Some(now + self.pause);
        }
        self.next
    }
}

async fn scan(backend: &Backend, follower: &mut impl Follower) -> ApiResult<()> {
    for storage in backend.store.resources_in_use(None).await.map_err(store_failed)? {
        let storage: Arc<str> = storage.into();
        let mut query =
            ListQuery { resource: Arc::clone(&storage), ns: None, after: None, at: None, limit: 256, pick: None };
        loop {
            let page = backend.store.list(query.clone()).await.map_err(store_failed)?;
            let last = page.rows.last().map(|r| (r.ns.clone(), r.name.clone()));
            for row in page.rows {
                let event = Event {
                    rev: row.rev,
                    prev: 0,
                    resource: Arc::clone(&storage),
                    ns: row.ns,
                    name: row.name,
                    deleted: false,
                    body: row.body,
                    frames: Frames::default(),
                };
                follower.see(backend, &event);
            }
            match last {
                Some(last) if page.more => (query.after, query.at) = (Some(last), Some(page.rev)),
                _ => break,
            }
        }
    }
    Ok(())
}

async fn expire(backend: Arc<Backend>) {
    let mut next = None;
    loop {
        tokio::select! {
            () = backend.stop.cancelled() => return,
            () = tokio::time::sleep(EXPIRE_EVERY) => {}
        }
        let now = backend.given.now();
        // A clock that was set back must not put it off for longer than events are kept.
        if next.is_some_and(|next: Timestamp| now <= next && next.duration_since(now) <= events::KEPT) {
            continue;
        }
        match events::expire(&backend, now).await {
            Ok(at) => next = Some(at),
            Err(error) => tracing::warn!(%error, "old events could not be removed"),
        }
    }
}

/// Finds the revision that was the newest five minutes ago.
#[derive(Default)]
struct Window {
    marks: VecDeque<(Instant, u64)>,
}

impl Window {
    /// Notes the newest revision at `now`; returns the revision up to which history may be compacted.
    fn pass(&mut self, now: Instant, newest: u64) -> Option<u64> {
        self.marks.push_back((now, newest));
        let mut upto = None;
        while let Some((_, rev)) = self.marks.front().filter(|(at, _)| now.duration_since(*at) >= HISTORY) {
            upto = Some(*rev);
            self.marks.pop_front();
        }
        upto
    }
}

async fn compact(backend: Arc<Backend>) {
    let mut window = Window::default();
    loop {
        tokio::select! {
            () = backend.stop.cancelled() => return,
            () = tokio::time::sleep(COMPACT_EVERY) => {}
        }
        if let Some(rev) = window.pass(Instant::now(), backend.store.revision())
            && let Err(error) = backend.store.compact(rev).await
        {
            tracing::warn!(%error, "history could not be compacted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_unfinished_is_tried_less_and_less_often() {
        let mut retries = Retries::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(retries.next(false, start), None);
        assert_eq!(retries.next(true, start), Some(at(1)));
        // Unrelated changes neither advance nor delay the retry.
        assert!(!retries.are_due(start));
        assert_eq!(retries.next(true, start), Some(at(1)));
        let mut now = start;
        for pause in [2, 4, 8, 10, 10] {
            now = retries.next(true, now).unwrap();
            assert!(retries.are_due(now) && !retries.are_due(now));
            assert_eq!(retries.next(true, now), Some(now + Duration::from_secs(pause)));
        }
        assert_eq!(retries.next(false, now), None);
        assert_eq!(retries.next(true, now), Some(now + RETRY));
    }

    #[test]
    fn history_of_five_minutes_is_kept() {
        let mut window = Window::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for step in 0..10 {
            assert_eq!(window.pass(at(step * 30), step), None);
        }
        assert_eq!(window.pass(at(300), 10), Some(0));
        assert_eq!(window.pass(at(330), 11), Some(1));
        // After a pause, everything old enough is compacted at once.
        assert_eq!(window.pass(at(3000), 12), Some(11));
        assert_eq!(window.pass(at(3001), 12), None);
    }
}
