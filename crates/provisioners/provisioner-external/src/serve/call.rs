//! One call on the worker's side: what the contract hands a provisioner, by way of the call's stream.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::SignedDuration;
use provisioner::{
    Cause, Context, Envelope, Failure, Outcome, Provides, Purpose, Record, RecordContent, RecordError, Recorded,
    Resource, Retry,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::carried::{Carried, kind_of};
use crate::convert;
use crate::exchange::{Exchange, PRESENT};
use crate::wire::v1;
use crate::wire::v1::ask_response::Message as FromWorker;

/// The record, as the server has told of it.
struct Remote {
    exchange: Arc<Exchange>,
    known: Mutex<Recorded>,
}

#[async_trait]
impl Record for Remote {
    fn current(&self) -> Recorded {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        let write = v1::WriteRecord {
            question: 0,
            expected_revision: expected,
            content: Some(convert::content(&content)),
            purpose: convert::purpose(purpose).into(),
        };
        let written = self.exchange.write(write).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            Ok(revision) => {
                *known = Recorded { revision, content: Some(content), earlier: Vec::new() };
                Ok(revision)
            }
            Err((error, current)) => {
                if let Some(Ok(current)) = current.map(convert::recorded_read) {
                    *known = current;
                }
                Err(error)
            }
        }
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        let ask = |question| FromWorker::StillWanted(v1::Question { question });
        if self.exchange.granted(ask).await? { Ok(()) } else { Err(RecordError::not_leading("the host")) }
    }
}

fn refused(why: impl Into<String>) -> Failure {
    let mut failure = Failure::new(Cause::NotServed, why.into());
    failure.retry = Retry::AfterChange;
    failure.advise("run programs of one release")
}

/// The call as the contract's envelope, which knows what to do with versions, calls and fields that it does not know.
fn envelope<R: Resource>(call: &v1::Call) -> Result<Envelope<R>, Failure> {
    let key = call.host.clone().map(convert::key_read).unwrap_or_default();
    let facts: Value = convert::read("what is known of it", &call.facts).map_err(|error| refused(error.to_string()))?;
    let mut asked = json!({ "call": call.name });
    if !call.request.is_empty() {
        asked["request"] = convert::read("the request", &call.request).map_err(|error| refused(error.to_string()))?;
    }
    let value = json!({ "version": call.version, "kind": kind_of(&call.kind), "number": call.number, "key": key, "facts": facts, "call": asked });
    Envelope::<R>::read(value).map_err(|unread| refused(unread.error.to_string()))
}

/// Has the provisioner answer.
pub async fn answer<R: Carried>(
    provisioner: &R::Provisioner,
    mut call: v1::Call,
    exchange: &Arc<Exchange>,
) -> Outcome<R::Answer> {
    let envelope = envelope::<R>(&call)?;
    let wrong = |error: convert::Unreadable| refused(error.to_string());
    let recorded = convert::recorded_read(call.recorded.take().unwrap_or_default()).map_err(wrong)?;
    let begun = Instant::now();
    let first = call
        .now
        .take()
        .and_then(convert::time_read)
        .ok_or_else(|| refused("read a call: it does not tell the time"))?;
    let asks = Arc::clone(exchange);
    let common = Context::<R> {
        facts: Arc::new(envelope.facts.known),
        record: Arc::new(Remote { exchange: Arc::clone(exchange), known: Mutex::new(recorded) }),
        now: Arc::new(move || {
            let passed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::ZERO);
            first.checked_add(passed).unwrap_or(first)
        }),
        may_act: Arc::new(move || asks.leads()),
    };
    let context = R::received(common, call, exchange);
    PRESENT.scope(Arc::clone(exchange), provisioner.ask(context, envelope.call.known)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use provisioner::HostResource;

    #[test]
    fn a_call_without_a_kind_is_a_hosts_and_one_of_another_kind_is_not_served() {
        let call = |kind: &str| v1::Call {
            version: 1,
            name: "powerState".into(),
            facts: b"{\"key\": {\"namespace\": \"n\", \"name\": \"h\", \"uid\": \"u\"}}".into(),
            kind: kind.into(),
            ..v1::Call::default()
        };
        for kind in ["", "host"] {
            assert_eq!(envelope::<HostResource>(&call(kind)).unwrap().call.known, provisioner::Call::PowerState);
        }
        let refused = envelope::<HostResource>(&call("volume")).unwrap_err();
        assert_eq!(refused.cause, Cause::NotServed);
        assert!(refused.message.contains("it is about a volume, and a host was expected"), "{refused}");
    }
}
