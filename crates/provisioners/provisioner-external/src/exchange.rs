//! What the worker's side of a call asks back, and who waits for the answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use provisioner::RecordError;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tonic::Status;

use crate::convert;
use crate::wire::v1;
use crate::wire::v1::ask_request::Message as ToWorker;
use crate::wire::v1::ask_response::Message as FromWorker;

tokio::task_local! {
    /// The call that the present task belongs to.
    pub(crate) static PRESENT: Arc<Exchange>;
}

/// Asks whether this may be done to the machine now, for the call that the present task belongs to. Where there is none, it may not.
pub async fn about_to(effect: v1::Effect, detail: &str) -> bool {
    let Ok(exchange) = PRESENT.try_with(Arc::clone) else { return false };
    exchange.may_act(effect, detail).await
}

/// Tells that this was done to the machine, or that it was so already.
pub async fn did(effect: v1::Effect, happened: bool, detail: &str) {
    let Ok(exchange) = PRESENT.try_with(Arc::clone) else { return };
    let effected = v1::Effected { effect: effect.into(), nothing_happened: !happened, detail: detail.to_owned() };
    exchange.say(FromWorker::Effected(effected)).await;
}

/// One call's way to the server.
pub struct Exchange {
    out: Sender<Result<v1::AskResponse, Status>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<ToWorker>>>,
    questions: AtomicU64,
    leads: AtomicBool,
}

impl Exchange {
    /// A call that the server makes while it leads, or does not.
    pub fn new(out: Sender<Result<v1::AskResponse, Status>>, leads: bool) -> Self {
        Self { out, waiting: Mutex::default(), questions: AtomicU64::new(1), leads: AtomicBool::new(leads) }
    }

    /// Whether the server leads, as it said last.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst) && !self.out.is_closed()
    }

    /// The server hears no more: nothing may be done any more, and who waits for an answer gets none.
    pub fn end(&self) {
        self.leads.store(false, Ordering::SeqCst);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes what the server says.
    pub fn heed(&self, message: ToWorker) {
        let question = match &message {
            ToWorker::Call(_) => return,
            ToWorker::Leadership(said) => return self.leads.store(said.leads, Ordering::SeqCst),
            ToWorker::RecordWritten(said) => {
                self.leads.store(said.leads, Ordering::SeqCst);
                said.question
            }
            ToWorker::Answered(said) => {
                self.leads.store(said.leads, Ordering::SeqCst);
                said.question
            }
        };
        if let Some(waits) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&question) {
            // Whoever asked may have gone.
            let _ = waits.send(message);
        }
    }

    /// Says something that is not answered.
    pub async fn say(&self, message: FromWorker) {
        // If nobody hears, the call is over.
        let _ = self.out.send(Ok(v1::AskResponse { message: Some(message) })).await;
    }

    /// The same, without waiting for room: dropped if the server hears nothing.
    pub fn say_at_once(&self, message: FromWorker) {
        if self.out.try_send(Ok(v1::AskResponse { message: Some(message) })).is_err() {
            tracing::debug!("what was seen of a machine is not recorded: the server hears nothing");
        }
    }

    async fn question(&self, ask: impl FnOnce(u64) -> FromWorker) -> Result<ToWorker, RecordError> {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, answered);
        self.say(ask(number)).await;
        answer.await.map_err(|_| RecordError::not_leading("the call"))
    }

    /// Asks for a document.
    pub async fn document(&self, ask: impl FnOnce(u64) -> FromWorker) -> Result<Vec<u8>, RecordError> {
        match self.answered(ask).await? {
            v1::answered::Result::Document(text) => Ok(text),
            _ => Err(RecordError::new("what was asked", "the server answers something else")),
        }
    }

    /// Asks for a yes.
    pub async fn granted(&self, ask: impl FnOnce(u64) -> FromWorker) -> Result<bool, RecordError> {
        match self.answered(ask).await? {
            v1::answered::Result::Granted(granted) => Ok(granted),
            _ => Err(RecordError::new("what was asked", "the server answers something else")),
        }
    }

    async fn answered(&self, ask: impl FnOnce(u64) -> FromWorker) -> Result<v1::answered::Result, RecordError> {
        let strange = || RecordError::new("what was asked", "the server answers something else");
        match self.question(ask).await? {
            ToWorker::Answered(v1::Answered { result: Some(v1::answered::Result::Error(error)), .. }) => {
                Err(convert::record_error_read(error))
            }
            ToWorker::Answered(v1::Answered { result: Some(result), .. }) => Ok(result),
            _ => Err(strange()),
        }
    }

    /// Writes the record.
    pub async fn write(&self, mut write: v1::WriteRecord) -> Result<u64, (RecordError, Option<v1::Recorded>)> {
        let answer = self.question(move |question| {
            write.question = question;
            FromWorker::WriteRecord(write)
        });
        let strange = || RecordError::new("the record", "the server answers something else");
        match answer.await {
            Ok(ToWorker::RecordWritten(said)) => match said.result {
                Some(v1::record_written::Result::Revision(revision)) => Ok(revision),
                Some(v1::record_written::Result::Refused(refused)) => {
                    Err((refused.error.map_or_else(strange, convert::record_error_read), refused.current))
                }
                None => Err((strange(), None)),
            },
            Ok(_) => Err((strange(), None)),
            Err(error) => Err((error, None)),
        }
    }

    /// Asks for permission.
    pub async fn may_act(&self, effect: v1::Effect, detail: &str) -> bool {
        let detail = detail.to_owned();
        let ask = |question| FromWorker::MayAct(v1::MayAct { question, effect: effect.into(), detail });
        self.granted(ask).await.unwrap_or(false)
    }
}
