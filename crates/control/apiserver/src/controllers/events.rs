//! Events are kept for one hour after they were seen last.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object::{self, Object};
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::verbs::delete::Options;
use crate::verbs::{Backend, Change};

const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Removes the events that are too old at `now`.
pub async fn expire(backend: &Backend, now: Timestamp) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let events = catalog.find("", "v1", "events").ok_or_else(ApiError::unknown_path)?;
    let mut after = None;
    loop {
        let page = backend.page(events, "", &Selector::default(), None, after, Some(256)).await?;
        for row in &page.rows {
            let old = match events.load(row.rev, &row.body) {
                Ok(event) => last_seen(&event).is_none_or(|seen| now.duration_since(seen) > KEPT),
                Err(_) => true,
            };
            if old {
                let change = Change::own(Verb::Delete, "event-expiry");
                let options = Options { rev: Some(row.rev.to_string()), ..Options::default() };
                match backend.remove(&change, events, &row.ns, &row.name, &options).await {
                    // Seen again or gone meanwhile.
                    Err(ApiError { code: 404 | 409, .. }) | Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn last_seen(event: &Object) -> Option<Timestamp> {
    let at = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|t| t.parse::<Timestamp>().ok());
    let created = object::meta_str(event, "creationTimestamp").parse().ok();
    let times = [
        created,
        at(event.get("lastTimestamp")),
        at(event.get("eventTime")),
        at(event.get("series").and_then(|s| s.get("lastObservedTime"))),
    ];
    times.into_iter().flatten().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn old_events_go_and_young_ones_stay() {
        let (backend, _dir) = Backend::for_tests();
        super::super::ensure_namespaces(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let events = catalog.find("", "v1", "events").unwrap();
        let event =
            json!({"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"namespace": "default"}});
        let Value::Object(event) = event else { panic!() };
        backend.insert(&Change::own(Verb::Create, "test"), events, event, "default").await.unwrap();
        let count = async || backend.select(events, "", &Selector::default()).await.unwrap().1.len();
        let now = Timestamp::now();
        expire(&backend, now + SignedDuration::from_mins(59)).await.unwrap();
        assert_eq!(count().await, 1);
        expire(&backend, now + SignedDuration::from_mins(61)).await.unwrap();
        assert_eq!(count().await, 0);
    }
}
