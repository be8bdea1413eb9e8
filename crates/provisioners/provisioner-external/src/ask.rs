//! One call: the stream on which a worker is asked, asks back, and gives its verdict. The first verdict counts, and nothing is read after it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{HistoryEntry, HostContext, HostKey, Purpose, RecordError, Tell};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{interval, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::convert;
use crate::limits::{LEADERSHIP_LOOK, MAX_MESSAGE, MAX_MESSAGES, MAX_SHOWN, MAX_TEXT, clean};
use crate::link::{Client, Hold, shown as status_shown};
use crate::machine;
use crate::wire::v1;
use crate::wire::v1::ask_request::Message as ToWorker;
use crate::wire::v1::ask_response::Message as FromWorker;

/// Sees what a worker does to machines, as the worker says it.
#[async_trait]
pub trait Effects: Send + Sync {
    /// The worker asks for permission.
    async fn before(&self, host: &HostKey, effect: v1::Effect, detail: &str);
    /// It has happened, or the machine was so already.
    async fn after(&self, host: &HostKey, effect: v1::Effect, happened: bool, detail: &str);
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The worker is gone, or breaks off.
    Broken(String),
    /// It took too long.
    TooLong(Duration),
    /// It cannot take one more call.
    NoRoom(String),
    /// It breaks the protocol.
    Wrong(String),
}

/// One call's side of the server.
pub struct Conversation {
    /// The worker.
    pub client: Client,
    /// Its name.
    pub provisioner: String,
    /// What the questions are answered from.
    pub context: HostContext,
    /// How long it may take.
    pub deadline: Duration,
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Who sees effects.
    pub effects: Option<Arc<dyn Effects>>,
}

impl Conversation {
    /// Asks, answers, and returns the verdict.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn verdict(mut self, call: v1::Call) -> Result<v1::Verdict, Unanswered> {
        let deadline = self.deadline;
        timeout(deadline, self.converse(call)).await.unwrap_or(Err(Unanswered::TooLong(deadline)))
    }

    async fn converse(&mut self, call: v1::Call) -> Result<v1::Verdict, Unanswered> {
        let (out, outgoing) = mpsc::channel(16);
        let mut told = call.leads;
        send(&out, ToWorker::Call(call)).await?;
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request.set_timeout(self.deadline);
        let held = self.held();
        let mut incoming = self.client.ask(request).await.map_err(|status| broken(&status))?.into_inner();
        drop(held);
        let (mut look, mut shown) = (interval(LEADERSHIP_LOOK), 0_usize);
        for _ in 0..MAX_MESSAGES {
            let message = loop {
                let held = self.held();
                let message = tokio::select! {
                    biased;
                    message = incoming.message() => Some(message),
                    _ = look.tick() => None,
                };
                drop(held);
                match message {
                    Some(message) => break message.map_err(|status| broken(&status))?,
                    None => {
                        let leads = self.leads();
                        if leads != told {
                            told = leads;
                            send(&out, ToWorker::Leadership(v1::Leadership { leads })).await?;
                        }
                    }
                }
            };
            match message.map(|message| message.message) {
                Some(Some(FromWorker::Verdict(verdict))) => return Ok(verdict),
                Some(Some(FromWorker::Tell(_) | FromWorker::Note(_))) if shown >= MAX_SHOWN => {}
                Some(Some(message)) => {
                    shown += usize::from(matches!(message, FromWorker::Tell(_) | FromWorker::Note(_)));
                    self.heed(message, &out).await?;
                }
                // A later version's, which this one cannot answer.
                Some(None) => return Err(Unanswered::Wrong("it asks what this version does not know".to_owned())),
                None => return Err(Unanswered::Broken("it ended the call without a verdict".to_owned())),
            }
        }
        Err(Unanswered::Wrong(format!("it has said more than {MAX_MESSAGES} things in one call")))
    }

    fn held(&self) -> Option<Box<dyn Send>> {
        self.hold.as_ref().map(|hold| hold())
    }

    fn leads(&self) -> bool {
        (self.context.may_act)()
    }

    async fn heed(&self, message: FromWorker, out: &Sender<v1::AskRequest>) -> Result<(), Unanswered> {
        let context = &self.context;
        let (question, result) = match message {
            FromWorker::Verdict(_) => return Ok(()),
            FromWorker::WriteRecord(write) => {
                let answer = self.write(write).await?;
                return send(out, ToWorker::RecordWritten(answer)).await;
            }
            FromWorker::StillWanted(asked) => {
                (asked.question, context.record.still_wanted().await.map(|()| granted(true)))
            }
            FromWorker::MayAct(asked) => {
                let (effect, detail) = (asked.effect(), clean(&asked.detail, MAX_TEXT));
                tracing::debug!(provisioner = %self.provisioner, host = %context.key.name, ?effect, detail, "the provisioner is about to act");
                if let Some(effects) = &self.effects {
                    effects.before(&context.key, effect, &detail).await;
                }
                (asked.question, Ok(granted(self.leads())))
            }
            FromWorker::Effected(said) => {
                if let Some(effects) = &self.effects {
                    let detail = clean(&said.detail, MAX_TEXT);
                    effects.after(&context.key, said.effect(), !said.nothing_happened, &detail).await;
                }
                return Ok(());
            }
            FromWorker::Tell(told) => return self.tell(&told).await,
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
            FromWorker::WriteMachine(write) => {
                let record = convert::read_tamed("a MachineRecord", &write.record).map_err(wrong)?;
                let recorded = context.machine.recorded().await;
                let record = recorded.and_then(|recorded| machine::taken(record, recorded, &context.facts));
                if write.question == 0 {
                    match record {
                        Ok(record) => context.machine.record_with_next(record),
                        Err(error) => {
                            tracing::warn!(provisioner = %self.provisioner, host = %context.key.name, "{error}")
                        }
                    }
                    return Ok(());
                }
                let written = match record {
                    Ok(record) => context.machine.record(record).await,
                    Err(error) => Err(error),
                };
                let written = written.map(|record| convert::document(&machine::told(record)));
                (write.question, written.map(v1::answered::Result::Document))
            }
            FromWorker::Note(note) => {
                let text = clean(&note.text, MAX_TEXT);
                match note.kind() {
                    v1::NoteKind::Unspecified => context.machine.note(&text).await,
                    v1::NoteKind::BootsOnce => context.machine.boots_once(&text).await,
                    v1::NoteKind::Interrupted => context.machine.interrupted(&text).await,
                }
                return Ok(());
            }
        };
        let result = result.unwrap_or_else(|error| v1::answered::Result::Error(convert::record_error(&error)));
        let answered = v1::Answered { question, result: Some(result), leads: self.leads() };
        send(out, ToWorker::Answered(answered)).await
    }

    async fn write(&self, write: v1::WriteRecord) -> Result<v1::RecordWritten, Unanswered> {
        let record = &self.context.record;
        let purpose = match write.purpose() {
            v1::Purpose::Intent => Purpose::Intent,
            v1::Purpose::Note => Purpose::Note,
            v1::Purpose::Unspecified => {
                return Err(Unanswered::Wrong("it does not say what it records something for".to_owned()));
            }
        };
        let content = write.content.ok_or_else(|| Unanswered::Wrong("it records nothing".to_owned()))?;
        let content = convert::content_read(content).map_err(wrong)?;
        let written = if content.provisioner == self.provisioner {
            record.write(write.expected_revision, content, purpose).await
        } else {
            let found = clean(&content.provisioner, 64);
            Err(RecordError::new(
                "the record",
                format!("it would be that of \"{found}\", and not of \"{}\"", self.provisioner),
            ))
        };
        let result = match written {
            Ok(revision) => v1::record_written::Result::Revision(revision),
            Err(error) => v1::record_written::Result::Refused(v1::RecordRefused {
                error: Some(convert::record_error(&error)),
                current: Some(convert::recorded(&record.current())),
            }),
        };
        Ok(v1::RecordWritten { question: write.question, result: Some(result), leads: self.leads() })
    }

    async fn tell(&self, told: &v1::Tell) -> Result<(), Unanswered> {
        let mut entry: HistoryEntry = convert::read_tamed("an entry of the history", &told.entry).map_err(wrong)?;
        entry.id = clean(&entry.id, 128);
        self.context.history.tell(&entry, if told.soon { Tell::Soon } else { Tell::Now }).await;
        Ok(())
    }
}

const fn granted(granted: bool) -> v1::answered::Result {
    v1::answered::Result::Granted(granted)
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a mapping")]
fn wrong(error: convert::Unreadable) -> Unanswered {
    Unanswered::Wrong(error.to_string())
}

fn broken(status: &tonic::Status) -> Unanswered {
    match status.code() {
        tonic::Code::ResourceExhausted => Unanswered::NoRoom(status_shown(status)),
        tonic::Code::OutOfRange => Unanswered::Wrong(format!("it says more than {MAX_MESSAGE} bytes at once")),
        _ => Unanswered::Broken(format!("it broke off: {}", status_shown(status))),
    }
}

async fn send(out: &Sender<v1::AskRequest>, message: ToWorker) -> Result<(), Unanswered> {
    let sent = out.send(v1::AskRequest { message: Some(message) }).await;
    sent.map_err(|_| Unanswered::Broken("it hears no more".to_owned()))
}
