//! The commands that Ironic orders: one at a time, each remembered with what has become of it (`A:extensions/base.py`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_protocol::Leave;
use ipa_protocol::{
    ApiFault, CommandFault, CommandRequest, CommandResult, CommandStatus, ExecuteStep, InstallBootloader, Secret,
    StepDone, StepKind,
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use super::steps::{Context, StepError, answer};

/// Most commands that are remembered; older ones are forgotten.
const MAX_REMEMBERED: usize = 64;

/// Largest arguments of a step that its result repeats, in bytes: a config drive is not kept for that.
const MAX_ARGUMENTS: usize = 4096;

/// An answer of the API: HTTP status and body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// JSON.
    pub body: Value,
}

impl Answer {
    fn of<T: serde::Serialize>(value: &T) -> Self {
        match serde_json::to_value(value) {
            Ok(body) => Self { status: 200, body },
            Err(error) => Self::fault(500, error.to_string()),
        }
    }

    /// A fault.
    pub fn fault(status: u16, text: impl Into<String>) -> Self {
        let fault = ApiFault::new(status, text);
        Self { status, body: json!({ "faultcode": fault.faultcode, "faultstring": fault.faultstring }) }
    }
}

/// What the API has been told to do.
pub struct Commands {
    context: Arc<Context>,
    token: Secret,
    /// Oldest first. The last alone may be running.
    results: Mutex<VecDeque<CommandResult>>,
    /// Counts ends of commands, for those who wait.
    ended: watch::Sender<u64>,
    heartbeat: Notify,
    /// Ironic has not asked yet what has become of what was done last, or has not called at all.
    is_unasked: AtomicBool,
    leave: watch::Sender<Option<Leave>>,
}

/// What a command does, on a thread that may block.
type Job = dyn FnOnce(&Context) -> Result<Value, StepError> + Send;

/// What is to be run.
enum Work {
    /// It is done at once.
    Done(Value),
    /// It runs beside.
    Beside(Box<Job>),
    /// The machine is left.
    Leave(Leave),
}

/// An order that is not begun: HTTP status and text.
struct Refused(u16, String);

fn params<T: serde::de::DeserializeOwned>(params: Map<String, Value>) -> Result<T, Refused> {
    serde_json::from_value(Value::Object(params))
        .map_err(|error| Refused(400, format!("Invalid command parameters: {error}")))
}

impl Commands {
    /// Nothing has been ordered. `token` is what callers have to show.
    #[must_use]
    pub fn new(context: Arc<Context>, token: Secret) -> Self {
        Self {
            context,
            token,
            results: Mutex::default(),
            ended: watch::Sender::new(0),
            heartbeat: Notify::new(),
            is_unasked: AtomicBool::new(true),
            leave: watch::Sender::new(None),
        }
    }

    /// Whether a caller may order; how long that takes says nothing of the token.
    #[must_use]
    pub fn knows(&self, token: Option<&str>) -> bool {
        token.is_some_and(|token| self.token.is(token))
    }

    /// The token, for heartbeats.
    pub(super) fn token(&self) -> &Secret {
        &self.token
    }

    /// Returns when a command has ended: Ironic is told at once.
    pub async fn wants_heartbeat(&self) {
        self.heartbeat.notified().await;
    }

    /// Whether Ironic may not have heard of what has ended: it drops a heartbeat that comes while the node is locked.
    pub(super) fn is_unasked(&self) -> bool {
        self.is_unasked.load(Ordering::Relaxed)
    }

    /// Returns when the machine is to be left.
    pub async fn leaving(&self) -> Leave {
        let mut leave = self.leave.subscribe();
        loop {
            if let Some(how) = *leave.borrow_and_update() {
                return how;
            }
            // The sender is this object's.
            if leave.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<CommandResult>) -> T) -> T {
        act(&mut self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All commands, oldest first.
    #[must_use]
    pub fn list(&self) -> Answer {
        self.with(|results| {
            if results.back().is_none_or(|last| last.command_status != CommandStatus::Running) {
                self.is_unasked.store(false, Ordering::Relaxed);
            }
            Answer::of(&json!({ "commands": results }))
        })
    }

    /// One command, when it has ended if `wait` says so.
    pub async fn get(&self, id: &str, wait: bool) -> Answer {
        if wait {
            self.finished(id).await;
        }
        match self.with(|results| results.iter().find(|result| result.id == id).cloned()) {
            Some(result) => Answer::of(&result),
            None => Answer::fault(404, "Not found: there is no command with this id"),
        }
    }

    async fn finished(&self, id: &str) {
        let mut ended = self.ended.subscribe();
        let runs = |results: &mut VecDeque<CommandResult>| {
            results.iter().any(|result| result.id == id && result.command_status == CommandStatus::Running)
        };
        while self.with(runs) {
            if ended.changed().await.is_err() {
                return;
            }
        }
    }

    /// Begins a command. Without `wait` the answer says that it runs.
    pub async fn order(self: &Arc<Self>, order: CommandRequest, wait: bool) -> Answer {
        let name = order.name.clone();
        let begun = match self.begin(order) {
            Ok(begun) => begun,
            Err(Refused(status, text)) => {
                tracing::warn!("refused Ironic's command {:?}: {text}", crate::text::cut(&name, 100));
                return Answer::fault(status, text);
            }
        };
        let answer = self.get(&begun, wait).await;
        if wait {
            // It is in the answer.
            self.is_unasked.store(false, Ordering::Relaxed);
        }
        answer
    }

    /// Notes the command and starts it; gives its id.
    fn begin(self: &Arc<Self>, order: CommandRequest) -> Result<String, Refused> {
        let Some((extension, command)) = order.parts().map(|(a, b)| (a.to_owned(), b.to_owned())) else {
            return Err(Refused(400, "Invalid command: its name is not <extension>.<name>".to_owned()));
        };
        let id = uuid::Uuid::new_v4().to_string();
        let work = self.with(|results| {
            if let Some(running) = results.back().filter(|last| last.command_status == CommandStatus::Running) {
                // Ironic knows by these words that it is to come again (`I:drivers/modules/agent_client.py`).
                return Err(Refused(409, format!("Agent is busy: executing command {}", running.command_name)));
            }
            if self.leave.borrow().is_some() {
                return Err(Refused(409, "Agent is busy: it leaves the machine".to_owned()));
            }
            let work = self.work(&extension, &command, order.params)?;
            let mut result = CommandResult {
                id: id.clone(),
                command_name: command.clone(),
                command_status: CommandStatus::Running,
                command_error: None,
                command_result: None,
            };
            if let Work::Done(value) = &work {
                result.command_status = CommandStatus::Succeeded;
                result.command_result = Some(value.clone());
            }
            self.is_unasked.store(false, Ordering::Relaxed);
            results.push_back(result);
            if results.len() > MAX_REMEMBERED {
                results.pop_front();
            }
            Ok(work)
        })?;
        tracing::info!("Ironic's command {extension}.{command}");
        match work {
            Work::Done(_) => {}
            Work::Leave(how) => {
                self.leave.send_replace(Some(how));
            }
            Work::Beside(work) => {
                let (all, id) = (Arc::clone(self), id.clone());
                tokio::spawn(async move {
                    let context = Arc::clone(&all.context);
                    let done = tokio::task::spawn_blocking(move || work(&context)).await;
                    let done = done.unwrap_or_else(|error| {
                        Err(StepError::Failed(CommandFault::new(
                            "CommandExecutionError",
                            500,
                            "Command execution failed",
                            format!("the agent failed while it ran the command: {error}"),
                        )))
                    });
                    all.end(&id, done);
                });
            }
        }
        Ok(id)
    }

    fn end(&self, id: &str, done: Result<Value, StepError>) {
        let (status, error, result) = match done {
            Ok(value) => (CommandStatus::Succeeded, None, Some(value)),
            Err(StepError::Failed(fault)) => (CommandStatus::Failed, Some(fault), None),
            Err(StepError::OtherVersion(fault)) => (CommandStatus::VersionMismatch, Some(fault), None),
        };
        match &error {
            Some(fault) => tracing::error!("failed: {}", fault.text()),
            None => tracing::info!("done"),
        }
        self.with(|results| {
            if let Some(found) = results.iter_mut().find(|found| found.id == id) {
                (found.command_status, found.command_error, found.command_result) = (status, error, result);
            }
            self.is_unasked.store(true, Ordering::Relaxed);
        });
        self.ended.send_modify(|count| *count += 1);
        self.heartbeat.notify_one();
    }

    /// What a command is to do. Extensions and commands that are not known are answered as ironic-python-agent answers.
    fn work(&self, extension: &str, command: &str, given: Map<String, Value>) -> Result<Work, Refused> {
        if let Some(kind) = StepKind::of_extension(extension) {
            return step_work(kind, command, given);
        }
        match (extension, command) {
            ("standby", "get_partition_uuids") => Ok(Work::Done(json!({}))),
            ("standby", "sync") => Ok(Work::Beside(Box::new(|_| {
                rustix::fs::sync();
                Ok(Value::Null)
            }))),
            ("standby", "run_image") => Ok(Work::Leave(Leave::Reboot)),
            ("standby", "power_off") => Ok(Work::Leave(Leave::PowerOff)),
            ("image", "install_bootloader") => {
                let order: InstallBootloader = params(given)?;
                Ok(Work::Beside(Box::new(move |context| context.boot_loader(&order).map(|()| Value::Null))))
            }
            ("log", "collect_system_logs") => {
                Ok(Work::Beside(Box::new(|context| Ok(json!({ "system_logs": context.logs() })))))
            }
            ("standby" | "image" | "log", _) => Err(unknown_command(command)),
            _ => Err(Refused(
                404,
                format!("Not found: Extension with id {} not found.", crate::text::cut(extension, 100)),
            )),
        }
    }
}

fn unknown_command(command: &str) -> Refused {
    Refused(400, format!("Invalid command: Unknown command: {}", crate::text::cut(command, 100)))
}

fn step_work(kind: StepKind, command: &str, given: Map<String, Value>) -> Result<Work, Refused> {
    let name = |of: String| of.split_once('.').map(|(_, command)| command.to_owned()).unwrap_or_default();
    if command == name(kind.list_command()) {
        return Ok(Work::Done(answer(kind).to_value(kind)));
    }
    if command != name(kind.execute_command()) {
        return Err(unknown_command(command));
    }
    let order = ExecuteStep::from_params(kind, given)
        .map_err(|error| Refused(400, format!("Invalid command parameters: {error}")))?;
    Ok(Work::Beside(Box::new(move |context| {
        let result = context.execute(kind, &order)?;
        let mut step = order.step;
        if step.get("args").is_some_and(|args| args.to_string().len() > MAX_ARGUMENTS) {
            step.remove("args");
        }
        Ok(StepDone { result, step }.to_value(kind))
    })))
}

/// How long an answer has to get out before the machine is left.
pub(super) const PARTING: Duration = Duration::from_secs(2);
