//! The record of what happened, in order: requests to BMCs, and state changes. Both are bounded and can be read over the control API; clients can
//! wait for changes.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

/// Most requests kept per BMC.
const MAX_REQUESTS: usize = 8192;
/// Most changes kept.
const MAX_EVENTS: usize = 16384;

/// One request that a BMC got.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Order over all BMCs of the simulator.
    pub seq: u64,
    /// Which machine's BMC.
    pub machine: String,
    /// Method.
    pub method: String,
    /// Path, with the query if there was one.
    pub path: String,
    /// Status of the answer; none when the connection was cut or the client went away.
    pub status: Option<u16>,
    /// The client's User-Agent.
    pub user_agent: String,
    /// How the client authenticated: `session`, `basic` or `none`.
    pub authentication: &'static str,
    /// The JSON body of a request that changes something, passwords left out.
    pub body: Option<Value>,
    /// When it came: milliseconds since the simulator's start.
    pub at_ms: u64,
    /// Whether it took effect (for GET: whether the tree answered it).
    pub performed: bool,
    /// Numbers of the fault rules that struck it.
    pub faults: Vec<u64>,
}

/// One change of state.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Order over the whole simulator, from 1.
    pub seq: u64,
    /// Which machine.
    pub machine: String,
    /// Kind of change: `power`, `running`, `boot`, `exit`, `media`, `override`, `secureBoot`, `session`, `held`, …
    pub kind: &'static str,
    /// Details.
    pub data: Value,
}

/// State changes, with a way to wait for the next.
pub struct EventLog {
    events: Mutex<VecDeque<Event>>,
    last: watch::Sender<u64>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { events: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl EventLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a change.
    pub fn push(&self, machine: &str, kind: &'static str, data: Value) {
        let mut events = self.lock();
        let seq = *self.last.borrow() + 1;
        tracing::debug!(machine, kind, %data, "event");
        events.push_back(Event { seq, machine: machine.to_owned(), kind, data });
        if events.len() > MAX_EVENTS {
            events.pop_front();
        }
        // Sent under the lock, so that numbers and order agree.
        self.last.send_replace(seq);
    }

    /// The number of the last change.
    #[must_use]
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// The changes after number `after`, of one machine or of all.
    #[must_use]
    pub fn after(&self, after: u64, machine: Option<&str>) -> Vec<Event> {
        let events = self.lock();
        let wanted = events.iter().filter(|event| event.seq > after);
        wanted.filter(|event| machine.is_none_or(|machine| machine == event.machine)).cloned().collect()
    }

    /// Waits until `after` gives something, and gives it.
    pub async fn wait(&self, after: u64, machine: Option<&str>) -> Vec<Event> {
        let mut changes = self.last.subscribe();
        loop {
            let events = self.after(after, machine);
            // The sender lives as long as self: an error is impossible, and would end the wait anyway.
            if !events.is_empty() || changes.changed().await.is_err() {
                return events;
            }
        }
    }
}

/// The requests of one BMC.
#[derive(Default)]
pub struct RequestLog {
    records: Mutex<VecDeque<RequestRecord>>,
    total: AtomicU64,
}

impl RequestLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<RequestRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the arrival of a request.
    pub fn begin(&self, record: RequestRecord) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut records = self.lock();
        records.push_back(record);
        if records.len() > MAX_REQUESTS {
            records.pop_front();
        }
    }

    /// Updates the record of request `seq`, if it is still kept.
    pub fn update(&self, seq: u64, change: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = self.lock().iter_mut().rev().find(|record| record.seq == seq) {
            change(record);
        }
    }

    /// The requests kept, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<RequestRecord> {
        self.lock().iter().cloned().collect()
    }

    /// How many requests there were, forgotten ones included, since the last `clear`.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.lock().clear();
        self.total.store(0, Ordering::Relaxed);
    }
}

/// `value` without the values of keys that name a secret.
#[must_use]
pub fn redacted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let secret = matches!(key.to_ascii_lowercase().as_str(), "password" | "token" | "currentpassword");
                (key.clone(), if secret { Value::from("***") } else { redacted(value) })
            })
            .collect(),
        Value::Array(items) => items.iter().map(redacted).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn changes_are_ordered_and_can_be_waited_for() {
        let log = std::sync::Arc::new(EventLog::default());
        log.push("a", "power", json!({}));
        log.push("b", "power", json!({}));
        assert_eq!(log.after(0, Some("b")).len(), 1);
        let waiter = tokio::spawn({
            let log = log.clone();
            async move { log.wait(2, Some("a")).await }
        });
        tokio::task::yield_now().await;
        log.push("b", "power", json!({}));
        log.push("a", "media", json!({}));
        assert_eq!(waiter.await.unwrap()[0].seq, 4);
    }

    #[test]
    fn secrets_are_left_out() {
        let body = json!({"UserName": "u", "Password": "p", "list": [{"password": "q"}]});
        assert_eq!(redacted(&body), json!({"UserName": "u", "Password": "***", "list": [{"password": "***"}]}));
    }
}
