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

/// A task's state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Running(String),
    Done,
    Failed(String),
}

impl Core {
    /// Waits until an operation has ended: at once, unless it was answered with 202 and names a task.
    pub async fn finish(&self, what: &str, reply: Reply) -> Result<(), Fault> {
        if reply.response.status != 202 {
            return Ok(());
        }
        let Some(monitor) = monitor_of(&reply) else { return Ok(()) };
        self.watch_task(what, &monitor, reply.response.retry_after()).await
    }

    async fn watch_task(&self, what: &str, path: &str, asked: Option<std::time::Duration>) -> Result<(), Fault> {
        let mut asked = asked;
        let mut last = "not seen yet".to_owned();
        let mut seen = false;
        let mut waited = std::time::Duration::ZERO;
        for attempt in 0.. {
            let Some(wait) = self.options.task.wait_at_least(attempt, asked) else { break };
            self.options.pacer.wait(wait).await;
            waited += wait;
            asked = None;
            match self.call(what, &Request::new(Method::GET, path, None)).await {
                Ok(reply) => {
                    seen = true;
                    match look(&reply.response, &reply.value) {
                        Look::Done => return Ok(()),
                        Look::Running(state) => last = state,
                        Look::Failed(found) => {
                            let found = format!("the task {path} ended badly: {found}");
                            return Err(self
                                .error(ErrorKind::Rejected { status: reply.response.status }, what, found)
                                .into());
                        }
                    }
                    asked = reply.response.retry_after();
                }
                // The task has ended and been forgotten: the monitor of a finished task may no longer exist.
                Err(fault) if matches!(fault.status(), Some(404 | 410)) && seen => return Ok(()),
                Err(fault) if fault.status() == Some(404) && attempt < NOT_YET => {}
                Err(fault) if fault.status() == Some(404) => return Ok(()),
                Err(Fault::Other(error)) if error.is_transient() => error.to_string().clone_into(&mut last),
                Err(fault) => return Err(fault),
            }
        }
        let found = format!("the task {path} has not ended after {} s; its last state is \"{last}\"", waited.as_secs());
        Err(self.task_stuck(what, &found).into())
    }

    fn task_stuck(&self, what: &str, found: &str) -> BmcError {
        self.error(ErrorKind::Timeout, what, found)
            .advise("look at the BMC's task list, and restart the BMC if the task stays")
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
        "Exception" | "Killed" | "Cancelled" | "Interrupted" | "Failed" | "CompletedWithErrors" => {
            Look::Failed(failed())
        }
        // The monitor answers 202 while the task runs, and then with the operation's own answer.
        "" if response.status != 202 => Look::Done,
        "" => Look::Running("running".into()),
        _ => {
            let percent = value.get("PercentComplete").and_then(Value::as_u64);
            let state = terms::clean(state, 60);
            Look::Running(percent.map_or(state.clone(), |percent| format!("{state}, {percent} %")))
        }
    }
}
