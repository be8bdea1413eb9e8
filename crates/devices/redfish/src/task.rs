//! Tasks (DSP0266, 11.2): an operation answered with 202 is watched until it has ended.

use bmc::{BmcError, ErrorKind};
use http::Method;
use serde_json::Value;

use crate::exchange::{Core, Fault, Reply};
use crate::json::{link, path_only, text, word};
use crate::message::ErrorBody;
use crate::transport::{Request, Response};

/// Looks at a task that is not there yet (Dell: 404 right after it was made).
const NOT_YET: u32 = 3;

/// Advice for a task that does not end.
const STUCK: &str = "look at the BMC's task list, and restart the BMC if the task stays";

/// A task's state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Running(String),
    Done,
    Failed(String),
    /// It was ended before it was done, by somebody or by the BMC.
    Stopped(String),
}

/// Whether a task's monitor answers so because the operation has ended so: the answer is the operation's own then (DSP0266, 12.2). What says that the BMC is busy,
/// or does not serve this account, is not.
fn is_its_end(fault: &Fault) -> bool {
    fault.status().is_some_and(|status| {
        status == 501 || (400..500).contains(&status) && !matches!(status, 401 | 403 | 408 | 423 | 425 | 429)
    })
}

/// What came of an operation that the BMC has accepted, as far as it was watched.
enum Watched {
    /// It has ended well.
    Ended,
    /// It had not ended, and how it stood last.
    Runs(String),
    /// It has ended badly.
    Failed(BadEnd),
}

/// A task's bad end.
pub(crate) struct BadEnd {
    /// Status of the answer that tells it.
    status: u16,
    /// What it says.
    found: String,
    /// The operation was given up. Any other bad end may be that of one that was carried out.
    stopped: bool,
}

impl Core {
    /// Waits until an operation has ended: at once, unless it was answered with 202 and names a task.
    pub async fn finish(&self, what: &str, reply: Reply) -> Result<(), Fault> {
        match self.watch(what, reply, false).await? {
            Watched::Ended => Ok(()),
            Watched::Runs(found) => Err(self.error(ErrorKind::Timeout, what, found).advise(STUCK).into()),
            Watched::Failed(end) => Err(self.ended_badly(what, &end).into()),
        }
    }

    /// The same of an order that goes on without being watched; false if it has not ended yet. The BMC has accepted it: an error of its own, or of the account,
    /// when it is asked for the task is no refusal.
    pub async fn taken(&self, what: &str, reply: Reply) -> Result<bool, Fault> {
        match self.watch(what, reply, true).await? {
            Watched::Ended => Ok(true),
            Watched::Runs(_) => Ok(false),
            Watched::Failed(end) => Err(self.ended_badly(what, &end).into()),
        }
    }

    /// The same as [`Self::finish`] of an order that is not to be given twice, in the way of [`Self::taken`]: only a task that was stopped, or the operation's
    /// own refusal, says that it was not carried out. What else it ends badly with is returned: it may have been all the same.
    pub async fn finish_once(&self, what: &str, reply: Reply) -> Result<Option<BadEnd>, Fault> {
        match self.watch(what, reply, true).await? {
            Watched::Ended => Ok(None),
            Watched::Runs(found) => Err(self.error(ErrorKind::Unanswered, what, found).advise(STUCK).into()),
            Watched::Failed(end) if end.stopped => Err(self.ended_badly(what, &end).into()),
            Watched::Failed(end) => Ok(Some(end)),
        }
    }

    async fn watch(&self, what: &str, reply: Reply, goes_on: bool) -> Result<Watched, Fault> {
        if reply.response.status != 202 {
            return Ok(Watched::Ended);
        }
        let Some(monitor) = monitor_of(&reply) else { return Ok(Watched::Ended) };
        self.watch_task(what, &monitor, reply.response.retry_after(), goes_on).await
    }

    async fn watch_task(
        &self,
        what: &str,
        path: &str,
        asked: Option<std::time::Duration>,
        goes_on: bool,
    ) -> Result<Watched, Fault> {
        let mut asked = asked;
        let mut last = "not seen yet".to_owned();
        let mut seen = false;
        let mut refused = None;
        let mut waited = std::time::Duration::ZERO;
        for attempt in 0.. {
            let Some(wait) = self.options.task.wait_at_least(attempt, asked) else { break };
            self.options.pacer.wait(wait).await;
            waited += wait;
            asked = None;
            match self.call(what, &Request::new(Method::GET, path, None)).await {
                Ok(reply) => {
                    (seen, refused) = (true, None);
                    let looked = look(&reply.response, &reply.value);
                    let stopped = matches!(looked, Look::Stopped(_));
                    match looked {
                        Look::Done => return Ok(Watched::Ended),
                        Look::Running(state) => last = state,
                        Look::Failed(found) | Look::Stopped(found) => {
                            let found = format!("the task {path} ended badly: {found}");
                            return Ok(Watched::Failed(BadEnd { status: reply.response.status, found, stopped }));
                        }
                    }
                    asked = reply.response.retry_after();
                }
                // The task has ended and been forgotten: the monitor of a finished task may no longer exist.
                Err(fault) if matches!(fault.status(), Some(404 | 410)) && seen => return Ok(Watched::Ended),
                Err(fault) if matches!(fault.status(), Some(404 | 410)) && attempt < NOT_YET => {}
                Err(fault) if matches!(fault.status(), Some(404 | 410)) => return Ok(Watched::Ended),
                Err(Fault::Other(error)) if error.is_transient() => error.to_string().clone_into(&mut last),
                Err(fault) if goes_on && !is_its_end(&fault) => {
                    let error = BmcError::from(fault);
                    if !error.kind.is_refusal() && !matches!(error.kind, ErrorKind::Busy { .. }) {
                        return Err(error.into());
                    }
                    refused = Some(error.found);
                }
                Err(fault) => return Err(fault),
            }
        }
        let seconds = waited.as_secs();
        if let Some(refused) = refused {
            let found = format!("what has become of the task {path} is not shown after {seconds} s: {refused}");
            return Err(self.error(ErrorKind::Unanswered, what, found).into());
        }
        let found = format!("the task {path} has not ended after {seconds} s; its last state is \"{last}\"");
        Ok(Watched::Runs(found))
    }

    /// The error of an operation that was not carried out.
    pub fn ended_badly(&self, what: &str, end: &BadEnd) -> BmcError {
        self.error(ErrorKind::Rejected { status: end.status }, what, &end.found)
    }

    /// The error of one of which nothing shows whether it was.
    pub fn perhaps_done(&self, what: &str, end: &BadEnd) -> BmcError {
        self.error(ErrorKind::Unanswered, what, format!("{}; it may have been done all the same", end.found))
    }
}

/// The address to poll: the `Location` of the monitor, else the task in the body.
pub(crate) fn monitor_of(reply: &Reply) -> Option<String> {
    let location = reply.response.header("location").and_then(path_only);
    let in_body = || reply.value.get("TaskMonitor").and_then(Value::as_str).and_then(path_only);
    location.or_else(in_body).or_else(|| {
        let is_task = word(&reply.value, "@odata.type").is_some_and(|kind| kind.starts_with("#Task."));
        is_task.then(|| link(&reply.value)).flatten()
    })
}

/// Interprets an answer of the monitor, or the task itself.
pub(crate) fn look(response: &Response, value: &Value) -> Look {
    // Dell's jobs, and those of JobService, have another word for it.
    let state = word(value, "TaskState").or_else(|| word(value, "JobState")).unwrap_or_default();
    let failed = || {
        let said = ErrorBody::read(value).sentence();
        said.unwrap_or_else(|| text(value, "TaskState").unwrap_or_else(|| "no reason given".into()))
    };
    match state {
        "Completed" if matches!(word(value, "TaskStatus"), Some("Critical")) => Look::Failed(failed()),
        "Completed" => Look::Done,
        "Exception" | "Failed" | "CompletedWithErrors" => Look::Failed(failed()),
        "Killed" | "Cancelled" => Look::Stopped(failed()),
        // The monitor answers 202 while the task runs, and then with the operation's own answer.
        "" if response.status != 202 => Look::Done,
        "" => Look::Running("running".into()),
        // Also one that is `Interrupted`: it is expected to go on (schema Task).
        _ => {
            let percent = value.get("PercentComplete").and_then(Value::as_u64);
            let state = terms::clean(state, 60);
            Look::Running(percent.map_or(state.clone(), |percent| format!("{state}, {percent} %")))
        }
    }
}
