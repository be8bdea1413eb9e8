//! What only the calls of hosts have, on both ends: access to the BMC, the machine's record, and what people see of the work.

use std::sync::Arc;

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use provisioner::{
    Answer, Capabilities, Cause, Context, History, HistoryEntry, HostContext, HostFacts, HostResource, Machine,
    OtherMachine, RecordError, Tell,
};
use terms::clean;

use crate::carried::{Carried, Heeded, Unanswered};
use crate::convert;
use crate::exchange::Exchange;
use crate::limits::{MAX_MACHINE, MAX_MESSAGE, MAX_NUMBER, MAX_TEXT, MAX_TOLD};
use crate::machine;
use crate::wire::v1;
use crate::wire::v1::ask_response::Message as FromWorker;

#[async_trait]
impl Carried for HostResource {
    const THING: &'static str = "machine";

    fn unknown() -> Capabilities {
        Capabilities::everything()
    }

    fn id(facts: &HostFacts) -> &str {
        &facts.provisioning_id
    }

    fn given_id(answer: &Answer) -> Option<&str> {
        if let Answer::Registered(registered) = answer { Some(&registered.id) } else { None }
    }

    fn is_leaving(facts: &HostFacts) -> bool {
        facts.deleting
    }

    fn address(facts: &HostFacts) -> &str {
        &facts.address
    }

    /// A host that is let go may have lost its address.
    fn scheme(facts: &HostFacts) -> Option<&str> {
        facts.address.split_once("://").map(|(scheme, _)| scheme)
    }

    fn add(context: &HostContext, call: &mut v1::Call) {
        call.bmc = context.bmc.as_ref().map(convert::access);
    }

    async fn heed(context: &HostContext, said: FromWorker, worker: &str) -> Result<Heeded, Unanswered> {
        let (question, result) = match said {
            FromWorker::Tell(told) => return tell(context, &told).await,
            FromWorker::ReadMachine(asked) => {
                let found = context.machine.recorded().await;
                let found = found.map(|record| convert::document(&record.map(machine::told)));
                (asked.question, found.map(v1::answered::Result::Document))
            }
            FromWorker::ReadOthers(asked) => {
                let found =
                    context.machine.others().await.map(|others| convert::document(&machine::others_told(others)));
                let fits = |text: &Vec<u8>| text.len() < MAX_MESSAGE - 1024;
                let too_many = || RecordError::new("the machines of other hosts", "they are too many for one message");
                let found = found.and_then(|text| if fits(&text) { Ok(text) } else { Err(too_many()) });
                (asked.question, found.map(v1::answered::Result::Document))
            }
            FromWorker::WriteMachine(write) => return write_machine(context, write, worker).await,
            FromWorker::Note(note) => {
                let text = clean(&note.text, MAX_TEXT);
                match note.kind() {
                    v1::NoteKind::Unspecified => context.machine.note(&text).await,
                    v1::NoteKind::BootsOnce => context.machine.boots_once(&text).await,
                    v1::NoteKind::Interrupted => context.machine.interrupted(&text).await,
                }
                return Ok(Heeded::Silently);
            }
            // What workers of every kind say is heeded elsewhere.
            _ => return Ok(Heeded::Silently),
        };
        Ok(Heeded::Answered(question, result))
    }

    fn received(common: Context<Self>, call: v1::Call, exchange: &Arc<Exchange>) -> HostContext {
        HostContext {
            facts: common.facts,
            bmc: call.bmc.map(convert::access_read),
            record: common.record,
            history: Arc::clone(exchange) as Arc<dyn History>,
            machine: Arc::new(Machines { exchange: Arc::clone(exchange) }),
            now: common.now,
            may_act: common.may_act,
        }
    }
}

fn wrong(error: &convert::Unreadable) -> Unanswered {
    Unanswered::Wrong(error.to_string())
}

async fn write_machine(context: &HostContext, write: v1::WriteMachine, worker: &str) -> Result<Heeded, Unanswered> {
    if write.record.len() > MAX_MACHINE {
        return Err(Unanswered::Wrong(format!("it writes more than {MAX_MACHINE} bytes of a machine")));
    }
    let record = convert::read_tamed("a MachineRecord", &write.record).map_err(|error| wrong(&error))?;
    let (recorded, answered) = (context.machine.recorded().await, write.question != 0);
    let record = recorded.and_then(|recorded| machine::taken(record, recorded, &context.facts, answered));
    if !answered {
        match record {
            Ok(record) => context.machine.record_with_next(record),
            Err(error) => tracing::warn!(provisioner = %worker, host = %context.key.name, "{error}"),
        }
        return Ok(Heeded::Silently);
    }
    let written = match record {
        Ok(record) => context.machine.record(record).await,
        Err(error) => Err(error),
    };
    let written = written.map(|record| convert::document(&machine::told(record)));
    Ok(Heeded::Answered(write.question, written.map(v1::answered::Result::Document)))
}

async fn tell(context: &HostContext, told: &v1::Tell) -> Result<Heeded, Unanswered> {
    if told.entry.len() > MAX_TOLD {
        return Err(Unanswered::Wrong(format!("it tells more than {MAX_TOLD} bytes of one work")));
    }
    let mut entry: HistoryEntry =
        convert::read_tamed("an entry of the history", &told.entry).map_err(|error| wrong(&error))?;
    // A higher one would have the host's later work lost to sight, and never cleared away.
    if !(1..=MAX_NUMBER).contains(&entry.number) {
        return Err(Unanswered::Wrong(format!("it numbers work beyond 1 to {MAX_NUMBER}")));
    }
    entry.id = clean(&entry.id, 128);
    if let Some(error) = &mut entry.status.error {
        // Causes are counted by name.
        error.cause = Cause::named(&error.cause).as_str().to_owned();
    }
    context.history.tell(&entry, if told.soon { Tell::Soon } else { Tell::Now }).await;
    Ok(Heeded::Silently)
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
