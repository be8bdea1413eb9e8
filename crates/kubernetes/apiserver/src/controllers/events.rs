//! Events are deleted one hour after their last write, regardless of finalizers and without calling webhooks.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object::{self, Object};
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Expect, Op, Write, WriteError};
use crate::verbs::{Backend, write_failed};

/// How long an event is kept after its last write.
pub const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Events read and removed at once.
const PAGE: usize = 64;

/// Removes the events that are too old at `now`. Until the time that is returned no other will be: each write of an event puts its end off.
pub async fn expire(backend: &Backend, now: Timestamp) -> ApiResult<Timestamp> {
    let catalog = backend.registry.catalog();
    let events = catalog.find("", "v1", "events").ok_or_else(ApiError::unknown_path)?;
    let (mut after, mut next) = (None, now + KEPT);
    loop {
        let page = backend.page(events, "", &Selector::default(), None, after, Some(PAGE)).await?;
        let mut old = Vec::new();
        for row in &page.rows {
            let written = events.load(row.rev, &row.body).ok().and_then(|event| last_written(&event, now));
            match written {
                Some(at) if now.duration_since(at) <= KEPT => next = next.min(at + KEPT),
                _ => old.push(row),
            }
        }
        let removed = old.into_iter().map(|row| {
            let (key, op) = (events.key(&row.ns, &row.name), Op::Delete(row.body.clone()));
            backend.store.write(Write { key, expect: Expect::Rev(row.rev), op, guard: None })
        });
        for outcome in futures::future::join_all(removed).await {
            match outcome {
                // Written or deleted in the meantime.
                Ok(_) | Err(WriteError::Conflict) => {}
                Err(error) => return Err(write_failed(error)),
            }
        }
        match page.next {
            Some(place) => after = Some(place),
            None => return Ok(next),
        }
    }
}

/// Uses server times: an event's own times are its client's. Times of field managers may be a client's, too, so those
/// in the future do not count.
fn last_written(event: &Object, now: Timestamp) -> Option<Timestamp> {
    let meta = object::metadata(event);
    let time = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|t| t.parse::<Timestamp>().ok());
    let owners = meta.get("managedFields").and_then(Value::as_array).into_iter().flatten();
    let changes = owners.filter_map(|entry| time(entry.get("time"))).filter(|at| *at <= now);
    time(meta.get("creationTimestamp")).into_iter().chain(changes).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::route::Verb;
    use serde_json::json;

    #[tokio::test]
    async fn old_events_go_and_young_ones_stay() {
        let (backend, _dir) = Backend::for_tests();
        super::super::ensure_namespaces(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let events = catalog.find("", "v1", "events").unwrap();
        // Neither the client's times nor its finalizers keep an event.
        let event = json!({"metadata": {"name": "e", "namespace": "default", "finalizers": ["example.com/hold"]},
            "involvedObject": {"namespace": "default"}, "lastTimestamp": "2999-01-01T00:00:00Z"});
        let Value::Object(event) = event else { panic!() };
        backend.insert(&Change::by_controller(Verb::Create, "test"), events, event, "default").await.unwrap();
        let count = async || backend.select(events, "", &Selector::default()).await.unwrap().1.len();
        let now = Timestamp::now();
        let (young, old) = (now + SignedDuration::from_mins(59), now + SignedDuration::from_mins(61));
        let next = expire(&backend, young).await.unwrap();
        assert_eq!(count().await, 1);
        assert!(young < next && next < old, "{next} is when the event ends");
        assert_eq!(expire(&backend, old).await.unwrap(), old + KEPT, "nothing is left that could end before");
        assert_eq!(count().await, 0);
    }
}
