//! One call on the worker's side: what the contract hands a provisioner, by way of the call's stream.

use std::sync::{Arc, Mutex, PoisonError};

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use jiff::SignedDuration;
use provisioner::{
    Answer, Cause, Envelope, Failure, History, HistoryEntry, HostContext, HostResource, Machine, OtherMachine, Outcome,
    Provisioner, Purpose, Record, RecordContent, RecordError, Recorded, Retry, Tell, ask,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::exchange::{Exchange, PRESENT};
use crate::convert;
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

#[async_trait]
impl History for Exchange {
    async fn tell(&self, entry: &HistoryEntry, when: Tell) {
        self.say(FromWorker::Tell(v1::Tell { entry: convert::document(entry), soon: when == Tell::Soon })).await;
    }
}

/// Which machine the host is, as the server records it.
struct Machines {
    exchange: Arc<Exchange>,
}

fn unreadable(error: &convert::Unreadable) -> RecordError {
    RecordError::new("the machine", error.to_string())
}

#[async_trait]
impl Machine for Machines {
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError> {
        let text = self.exchange.document(|question| FromWorker::ReadMachine(v1::Question { question })).await?;
        convert::read("a MachineRecord", &text).map_err(|error| unreadable(&error))
    }

    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError> {
        let text = self.exchange.document(|question| FromWorker::ReadOthers(v1::Question { question })).await?;
        convert::read("MachineRecords", &text).map_err(|error| unreadable(&error))
    }

    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        let record = convert::document(&record);
        let text =
            self.exchange.document(|question| FromWorker::WriteMachine(v1::WriteMachine { question, record })).await?;
        convert::read("a MachineRecord", &text).map_err(|error| unreadable(&error))
    }

    fn record_with_next(&self, record: MachineRecordSpec) {
        let write = v1::WriteMachine { question: 0, record: convert::document(&record) };
        self.exchange.say_at_once(FromWorker::WriteMachine(write));
    }

    async fn note(&self, text: &str) {
        self.exchange.say(note(v1::NoteKind::Unspecified, text)).await;
    }

    async fn boots_once(&self, text: &str) {
        self.exchange.say(note(v1::NoteKind::BootsOnce, text)).await;
    }

    async fn interrupted(&self, text: &str) {
        self.exchange.say(note(v1::NoteKind::Interrupted, text)).await;
    }
}

fn note(kind: v1::NoteKind, text: &str) -> FromWorker {
    FromWorker::Note(v1::Note { kind: kind.into(), text: text.to_owned() })
}

fn refused(why: impl Into<String>) -> Failure {
    let mut failure = Failure::new(Cause::NotServed, why.into());
    failure.retry = Retry::AfterChange;
    failure.advise("run programs of one release")
}

/// The call as the contract's envelope, which knows what to do with versions, calls and fields that it does not know.
fn envelope(call: &v1::Call) -> Result<Envelope<HostResource>, Failure> {
    let key = call.host.clone().map(convert::key_read).unwrap_or_default();
    let facts: Value =
        convert::read("what is known of the host", &call.facts).map_err(|error| refused(error.to_string()))?;
    let mut asked = json!({ "call": call.name });
    if !call.request.is_empty() {
        asked["request"] = convert::read("the request", &call.request).map_err(|error| refused(error.to_string()))?;
    }
    let value = json!({ "version": call.version, "kind": "host", "number": call.number, "key": key, "facts": facts, "call": asked });
    Envelope::<HostResource>::read(value).map_err(|unread| refused(unread.error.to_string()))
}

/// Has the provisioner answer.
pub async fn answer(provisioner: &dyn Provisioner, call: v1::Call, exchange: &Arc<Exchange>) -> Outcome<Answer> {
    let envelope = envelope(&call)?;
    let wrong = |error: convert::Unreadable| refused(error.to_string());
    let recorded = convert::recorded_read(call.recorded.unwrap_or_default()).map_err(wrong)?;
    let begun = Instant::now();
    let first =
        call.now.and_then(convert::time_read).ok_or_else(|| refused("read a call: it does not tell the time"))?;
    let asks = Arc::clone(exchange);
    let context = HostContext {
        facts: Arc::new(envelope.facts.known),
        bmc: call.bmc.map(convert::access_read),
        record: Arc::new(Remote { exchange: Arc::clone(exchange), known: Mutex::new(recorded) }),
        history: Arc::clone(exchange) as Arc<dyn History>,
        machine: Arc::new(Machines { exchange: Arc::clone(exchange) }),
        now: Arc::new(move || {
            let passed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::ZERO);
            first.checked_add(passed).unwrap_or(first)
        }),
        may_act: Arc::new(move || asks.leads()),
    };
    let mut host = provisioner.host(context)?;
    PRESENT.scope(Arc::clone(exchange), ask(host.as_mut(), envelope.call.known)).await
}
