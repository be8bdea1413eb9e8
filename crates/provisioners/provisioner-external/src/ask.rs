//! One call, of any kind of resource: the stream on which a worker is asked, asks back, and gives its verdict. The first verdict counts, and nothing is read after it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{Cause, Failure, Given, MAX_RECORD_BYTES, ObjectKey, Purpose, RecordError};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_stream::Stream;

use crate::carried::{Carried, Heeded, Unanswered};
use crate::convert;
use crate::flood::Pace;
use crate::limits::{LEADERSHIP_LOOK, MAX_MESSAGE, MAX_MESSAGES, MAX_SHOWN, MAX_TEXT, READS_WITHIN, SHORT_ANSWER};
use crate::link::{Client, Hold, shown as status_shown};
use crate::wire::v1;
use crate::wire::v1::ask_request::Message as ToWorker;
use crate::wire::v1::ask_response::Message as FromWorker;
use terms::clean;

/// Sees what a worker does to machines, or what its kind has in their place, as the worker says it.
#[async_trait]
pub trait Effects: Send + Sync {
    /// The worker asks for permission.
    async fn before(&self, key: &ObjectKey, effect: v1::Effect, detail: &str);
    /// It has happened, or the machine was so already.
    async fn after(&self, key: &ObjectKey, effect: v1::Effect, happened: bool, detail: &str);
}

/// What a worker has been told in a call, by which it may excuse itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// That this server does not lead.
    lost: bool,
    /// That something could not be recorded, or is not wanted any more.
    refused: bool,
}

impl Told {
    /// A worker's failure, if what it says of this server is so. What is excused so is not told to people, and not counted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judged(self, failure: Failure, leads: bool) -> Result<Failure, String> {
        match failure.cause {
            Cause::NotLeading if self.lost || !leads => Ok(failure),
            // It takes each refusal for that one.
            Cause::NotLeading if self.refused => Ok(Failure { cause: Cause::RecordUnavailable, ..failure }),
            Cause::NotLeading => {
                Err(format!("it says that another server leads, and this one does ({})", failure.message))
            }
            Cause::RecordUnavailable if !self.lost && !self.refused => Err(format!(
                "it says that something could not be recorded, and nothing was refused ({})",
                failure.message
            )),
            _ => Ok(failure),
        }
    }
}

/// When it is looked whether this server leads, and what the worker was told last.
struct Look {
    every: Interval,
    told: bool,
}

/// A message, and the room that it takes if it is long.
type Sent = (v1::AskRequest, Option<OwnedSemaphorePermit>);

/// What is sent in one call. The transport keeps it for as long as the worker does not read it, also after the verdict: the room of a message is free when the
/// transport asks for another one, which it does with room in the worker's window alone, or all is dropped.
struct Outgoing {
    messages: Queue,
    room: Option<OwnedSemaphorePermit>,
    /// The transport has one.
    given: bool,
    read: Arc<AtomicU64>,
}

/// What waits for the transport.
type Queue = Arc<Mutex<Option<Receiver<Sent>>>>;

/// Drops what waits when its call has ended: the transport would keep it until the worker reads, if it ever does, and the room that it takes with it.
struct Ends(Queue);

impl Drop for Ends {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Stream for Outgoing {
    type Item = v1::AskRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.room = None;
        if std::mem::take(&mut self.given) {
            self.read.fetch_add(1, Ordering::Relaxed);
        }
        let next = match self.messages.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(messages) => ready!(messages.poll_recv(cx)),
            None => None,
        };
        let (message, room) = next.unzip();
        (self.room, self.given) = (room.flatten(), message.is_some());
        Poll::Ready(message)
    }
}

/// One call's side of the server.
pub struct Conversation<R: Carried> {
    /// The worker.
    pub client: Client,
    /// Its name.
    pub provisioner: String,
    /// What the questions are answered from.
    pub context: R::Context,
    /// How long it may take.
    pub deadline: Duration,
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Who sees effects.
    pub effects: Option<Arc<dyn Effects>>,
    /// Counts what the worker says.
    pub heard: Arc<AtomicU64>,
    /// How often it may ask, in all its calls.
    pub pace: Arc<Mutex<Pace>>,
    /// Room for long answers to it, in KiB, in all its calls.
    pub long: Arc<Semaphore>,
    /// Counts what it has read, in all its calls.
    pub read: Arc<AtomicU64>,
    /// What it has been told.
    pub told: Told,
}

impl<R: Carried> Conversation<R> {
    /// Asks, answers, and returns the verdict, with what the worker has been told until then.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn verdict(mut self, call: v1::Call) -> Result<(v1::Verdict, Told), Unanswered> {
        let deadline = self.deadline;
        let verdict = timeout(deadline, self.converse(call)).await.unwrap_or(Err(Unanswered::TooLong(deadline)))?;
        Ok((verdict, self.told))
    }

    async fn converse(&mut self, call: v1::Call) -> Result<v1::Verdict, Unanswered> {
        let (sender, receiver) = mpsc::channel(16);
        let messages: Queue = Arc::new(Mutex::new(Some(receiver)));
        let _ends = Ends(Arc::clone(&messages));
        // It ends before what it has sent is dropped: so the transport is woken, and finds the end.
        let out = sender;
        self.told.lost = !call.leads;
        let mut look = Look { every: interval(LEADERSHIP_LOOK), told: call.leads };
        look.every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        send(&out, ToWorker::Call(call)).await?;
        let outgoing = Outgoing { messages, room: None, given: false, read: Arc::clone(&self.read) };
        let mut request = tonic::Request::new(outgoing);
        request.set_timeout(self.deadline);
        let mut client = self.client.clone();
        // A worker may answer nothing at all before it has come to a verdict: it hears all the same.
        let begun = self.hears(&mut look, &out, client.ask(request)).await?;
        let mut incoming = begun.map_err(|status| broken(&status, true))?.into_inner();
        let mut shown = 0_usize;
        for number in 0..MAX_MESSAGES {
            let message = self.hears(&mut look, &out, incoming.message()).await?;
            let message = message.map_err(|status| broken(&status, number == 0))?;
            self.heard.fetch_add(1, Ordering::Relaxed);
            match message.map(|message| message.message) {
                Some(Some(FromWorker::Verdict(verdict))) => return Ok(verdict),
                Some(Some(FromWorker::Tell(_) | FromWorker::Note(_))) if shown >= MAX_SHOWN => {}
                Some(Some(message)) => {
                    shown += usize::from(matches!(message, FromWorker::Tell(_) | FromWorker::Note(_)));
                    // All else is asked of the Kubernetes API, or written to it.
                    if !matches!(message, FromWorker::Effected(_)) {
                        self.turn(&mut look, &out).await?;
                    }
                    self.heed(message, &mut look, &out).await?;
                }
                // A later version's, which this one cannot answer.
                Some(None) => return Err(Unanswered::Wrong("it asks what this version does not know".to_owned())),
                None => return Err(Unanswered::Broken("it ended the call without a verdict".to_owned())),
            }
        }
        Err(Unanswered::Wrong(format!("it has said more than {MAX_MESSAGES} things in one call")))
    }

    /// Waits for the worker, and tells it meanwhile whether this server leads.
    async fn hears<T>(
        &mut self,
        look: &mut Look,
        out: &Sender<Sent>,
        answer: impl Future<Output = T>,
    ) -> Result<T, Unanswered> {
        self.waits(look, out, answer, true).await
    }

    /// Has a worker that asks too often wait for its turn, and tells it meanwhile whether this server leads.
    async fn turn(&mut self, look: &mut Look, out: &Sender<Sent>) -> Result<(), Unanswered> {
        let now = Instant::now();
        let turn = self.pace.lock().unwrap_or_else(PoisonError::into_inner).turn(now);
        if turn > now {
            // It is not the worker that is waited for.
            self.waits(look, out, sleep_until(turn), false).await?;
        }
        Ok(())
    }

    async fn waits<T>(
        &mut self,
        look: &mut Look,
        out: &Sender<Sent>,
        answer: impl Future<Output = T>,
        is_held: bool,
    ) -> Result<T, Unanswered> {
        let mut answer = pin!(answer);
        loop {
            let held = if is_held { self.held() } else { None };
            // The look comes first: one that talks without a pause hears as well.
            let heard = tokio::select! {
                biased;
                _ = look.every.tick() => None,
                heard = &mut answer => Some(heard),
            };
            drop(held);
            if let Some(heard) = heard {
                return Ok(heard);
            }
            let leads = self.leads();
            if leads != look.told {
                look.told = leads;
                self.told.lost |= !leads;
                send(out, ToWorker::Leadership(v1::Leadership { leads })).await?;
            }
        }
    }

    fn held(&self) -> Option<Box<dyn Send>> {
        self.hold.as_ref().map(|hold| hold())
    }

    fn leads(&self) -> bool {
        self.context.leads()
    }

    async fn heed(&mut self, message: FromWorker, look: &mut Look, out: &Sender<Sent>) -> Result<(), Unanswered> {
        let context = self.context.clone();
        let (question, result) = match message {
            FromWorker::Verdict(_) => return Ok(()),
            FromWorker::WriteRecord(write) => {
                let answer = self.write(write).await?;
                if let Some(v1::record_written::Result::Refused(refused)) = &answer.result {
                    self.refused(refused.error.as_ref());
                }
                return send(out, ToWorker::RecordWritten(answer)).await;
            }
            FromWorker::StillWanted(asked) => {
                (asked.question, context.record().still_wanted().await.map(|()| granted(true)))
            }
            FromWorker::MayAct(asked) => {
                let (effect, detail) = (asked.effect(), clean(&asked.detail, MAX_TEXT));
                tracing::debug!(provisioner = %self.provisioner, name = %context.key().name, ?effect, detail, "the provisioner is about to act");
                if let Some(effects) = &self.effects {
                    effects.before(context.key(), effect, &detail).await;
                }
                (asked.question, self.may_act(effect).await.map(granted))
            }
            FromWorker::Effected(said) => {
                if let Some(effects) = &self.effects {
                    let detail = clean(&said.detail, MAX_TEXT);
                    effects.after(context.key(), said.effect(), !said.nothing_happened, &detail).await;
                }
                return Ok(());
            }
            // What only workers of this kind say.
            other => match R::heed(&context, other, &self.provisioner).await? {
                Heeded::Answered(question, result) => (question, result),
                Heeded::Silently => return Ok(()),
            },
        };
        let result = result.unwrap_or_else(|error| v1::answered::Result::Error(convert::record_error(&error)));
        match &result {
            v1::answered::Result::Error(error) => self.refused(Some(error)),
            v1::answered::Result::Granted(granted) => self.told.lost |= !granted,
            v1::answered::Result::Document(_) => {}
        }
        let room = match &result {
            v1::answered::Result::Document(text) => self.room_for(text.len(), look, out).await?,
            _ => None,
        };
        let leads = self.leads();
        self.told.lost |= !leads;
        let answered = v1::Answered { question, result: Some(result), leads };
        send_in(out, ToWorker::Answered(answered), room).await
    }

    /// Waits for room for an answer, which earlier ones may take until the worker has read them, and tells it meanwhile whether this server leads. A short one
    /// needs none.
    async fn room_for(
        &mut self,
        bytes: usize,
        look: &mut Look,
        out: &Sender<Sent>,
    ) -> Result<Option<OwnedSemaphorePermit>, Unanswered> {
        let kib = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        if kib < SHORT_ANSWER {
            return Ok(None);
        }
        let before = self.read.load(Ordering::Relaxed);
        // It is the worker that is waited for, and not the call that takes long.
        let room = timeout(READS_WITHIN, Arc::clone(&self.long).acquire_many_owned(kib));
        match self.waits(look, out, room, false).await? {
            Ok(room) => room.map(Some).map_err(|_| Unanswered::Broken("this program broke off".to_owned())),
            Err(_) => {
                let why = format!(
                    "it has not read the answers to its earlier questions, in this call or others, within {} s",
                    READS_WITHIN.as_secs()
                );
                let reads = self.read.load(Ordering::Relaxed) != before;
                Err(if reads { Unanswered::Broken(why) } else { Unanswered::Unread(why) })
            }
        }
    }

    fn refused(&mut self, error: Option<&v1::RecordError>) {
        self.told.refused = true;
        self.told.lost |= error.is_some_and(|error| error.not_leading);
    }

    /// Whether it may do that now: this server leads, and where the machine is switched or reset, or its system given work, that is still wanted.
    async fn may_act(&self, effect: v1::Effect) -> Result<bool, RecordError> {
        let is_slight = matches!(
            effect,
            v1::Effect::Media | v1::Effect::Inspect | v1::Effect::Events | v1::Effect::End | v1::Effect::Locate
        );
        if !is_slight && self.leads() {
            self.context.record().still_wanted().await?;
        }
        Ok(self.leads())
    }

    async fn write(&self, write: v1::WriteRecord) -> Result<v1::RecordWritten, Unanswered> {
        let record = self.context.record();
        let purpose = match write.purpose() {
            v1::Purpose::Intent => Purpose::Intent,
            v1::Purpose::Note => Purpose::Note,
            v1::Purpose::Unspecified => {
                return Err(Unanswered::Wrong("it does not say what it records something for".to_owned()));
            }
        };
        let content = write.content.ok_or_else(|| Unanswered::Wrong("it records nothing".to_owned()))?;
        if content.data.len() > 2 * MAX_RECORD_BYTES {
            return Err(Unanswered::Wrong(format!("it records more than {MAX_RECORD_BYTES} bytes")));
        }
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
}

const fn granted(granted: bool) -> v1::answered::Result {
    v1::answered::Result::Granted(granted)
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a mapping")]
fn wrong(error: convert::Unreadable) -> Unanswered {
    Unanswered::Wrong(error.to_string())
}

/// Why a call broke off. Only at its very beginning nothing was begun.
fn broken(status: &tonic::Status, at_once: bool) -> Unanswered {
    match status.code() {
        tonic::Code::ResourceExhausted if at_once => Unanswered::NoRoom(status_shown(status)),
        tonic::Code::OutOfRange => Unanswered::Wrong(format!("it says more than {MAX_MESSAGE} bytes at once")),
        _ => Unanswered::Broken(format!("it broke off: {}", status_shown(status))),
    }
}

async fn send(out: &Sender<Sent>, message: ToWorker) -> Result<(), Unanswered> {
    send_in(out, message, None).await
}

/// The same with the room that it takes.
async fn send_in(out: &Sender<Sent>, message: ToWorker, room: Option<OwnedSemaphorePermit>) -> Result<(), Unanswered> {
    let sent = out.send((v1::AskRequest { message: Some(message) }, room)).await;
    sent.map_err(|_| Unanswered::Broken("it hears no more".to_owned()))
}
