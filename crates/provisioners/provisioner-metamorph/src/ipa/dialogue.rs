//! One ironic-python-agent, spoken for: reports to the hub in its name, and carries orders out by its command API.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::{
    Action, AgentState, Command, CommandError, CommandId, Directive, ErrorCode, Leave, LogLine, Outcome,
    PROTOCOL_VERSION, Phase, Progress, Report,
};
use ipa_protocol::{CommandRequest, CommandResult, CommandStatus, Inventory, names};
use serde_json::Map;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use super::client::{CallError, Commands, HttpCommands, Peer};
use super::orders::{self, Next, Plan};
use super::{facts, logs};
use crate::hub::{Hub, Refusal};
use crate::keys::KeyRing;
use crate::slot::{IRONIC_PYTHON_AGENT, LONGEST};

/// Heartbeats that agents are asked for, in seconds: they make one after 0.3 to 0.6 of it (`A:agent.py`).
pub const HEARTBEAT: u64 = 60;
/// An agent whose last heartbeat or answer is older is spoken for no more.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a report waits for an order.
const WAIT: u64 = 20;
/// Time between looks at a command that runs; a heartbeat, which the agent makes when a command ends, comes before.
const LOOK: Duration = Duration::from_secs(15);
/// Time after a call without an answer, before the agent's list is believed not to have the command.
const UNCERTAIN: Duration = Duration::from_secs(30);
/// How often a boot's log is read: the agent keeps what it has told, and repeats all of it with each list of its commands.
const LOGS: usize = 4;
/// How often a list of steps that cannot be read is asked for again.
const UNLISTED: u32 = 2;
/// An archive of its log that is larger, in base64, is the last of that boot.
const LARGE_LOG: usize = 1 << 20;
/// The command that reads the inventory.
const GET_HARDWARE: &str = "poll.get_hardware_info";

/// All agents of this kind that are spoken for.
pub struct Ipa {
    pub hub: Arc<Hub>,
    pub keys: KeyRing,
    talks: Mutex<HashMap<(String, u64), Talk>>,
    sequence: AtomicU64,
}

/// What the endpoint knows of an agent.
struct Talk {
    peer: Peer,
    heard: Arc<Heard>,
}

/// Why nobody speaks for an agent any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is silent, or this server does not know its host yet: another heartbeat begins anew.
    Lost,
    /// Its boot's work is over, or the boot is another's.
    Over,
}

/// Its heartbeats.
struct Heard {
    last: Mutex<Instant>,
    wake: Notify,
}

impl Heard {
    fn now(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn elapsed(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// A heartbeat of another agent than the one that was heard first for its host and generation.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved;

impl Ipa {
    /// Speaks to this hub; tokens are of these keys.
    pub fn new(hub: Arc<Hub>, keys: KeyRing) -> Arc<Self> {
        Arc::new(Self { hub, keys, talks: Mutex::default(), sequence: AtomicU64::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, u64), Talk>> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A heartbeat, whose token was genuine. The first begins the dialogue.
    ///
    /// # Errors
    /// [`Moved`] when address or certificate are others than before.
    pub fn heard(self: &Arc<Self>, host: &str, generation: u64, peer: Peer, token: &str) -> Result<(), Moved> {
        let (called, token) = (peer.clone(), token.to_owned());
        self.heard_by(host, generation, peer, move || {
            HttpCommands::new(&called, token).map(|commands| Arc::new(commands) as Arc<dyn Commands>)
        })
    }

    fn heard_by(
        self: &Arc<Self>,
        host: &str,
        generation: u64,
        peer: Peer,
        commands: impl FnOnce() -> Result<Arc<dyn Commands>, String>,
    ) -> Result<(), Moved> {
        let id = (host.to_owned(), generation);
        let heard = {
            let mut talks = self.lock();
            if let Some(talk) = talks.get(&id) {
                if talk.peer != peer {
                    return Err(Moved);
                }
                talk.heard.now();
                talk.heard.wake.notify_one();
                return Ok(());
            }
            let heard = Arc::new(Heard { last: Mutex::new(Instant::now()), wake: Notify::new() });
            // Of a host, the newest boot counts.
            talks.retain(|(other, boot), _| other != host || *boot > generation);
            talks.insert(id.clone(), Talk { peer: peer.clone(), heard: Arc::clone(&heard) });
            heard
        };
        match commands() {
            Ok(commands) => {
                let dialogue = Dialogue {
                    ipa: Arc::clone(self),
                    host: id.0.clone(),
                    generation,
                    digest: peer.digest,
                    commands,
                    heard,
                    known: HashSet::new(),
                    found: None,
                    listed: None,
                    said: Vec::new(),
                    unlisted: 0,
                };
                tokio::spawn(async move {
                    let (ipa, id) = (Arc::clone(&dialogue.ipa), (dialogue.host.clone(), dialogue.generation));
                    let end = dialogue.run().await;
                    // Of a boot that the hub hears no more the entry stays: it is not asked again whenever the agent beats.
                    if end == End::Lost {
                        ipa.lock().remove(&id);
                    }
                });
            }
            Err(error) => {
                tracing::warn!(host, error, "ironic-python-agent cannot be called");
                self.lock().remove(&id);
            }
        }
        Ok(())
    }
}

/// An order that is being carried out.
struct Job {
    id: CommandId,
    plan: Plan,
    /// Where its commands begin in the agent's list.
    from: usize,
    begun: Instant,
    /// Its first command was not due, or not taken, when it was first looked at: by the time it is, the wish and the disks may be others.
    waited: bool,
}

/// The dialogue with one boot of the agent.
struct Dialogue {
    ipa: Arc<Ipa>,
    host: String,
    generation: u64,
    digest: String,
    commands: Arc<dyn Commands>,
    heard: Arc<Heard>,
    /// Commands of orders that have ended in this process.
    known: HashSet<String>,
    found: Option<Inventory>,
    /// When its list of commands was last read before it was reported to be idle, and whether one of them ran.
    listed: Option<(Instant, bool)>,
    /// What was read of it and is not yet told.
    said: Vec<LogLine>,
    /// How often in a row it was asked for its steps in vain.
    unlisted: u32,
}

/// How a look at an order that is carried out has ended.
enum Went {
    /// It is at this part of the work.
    On(Phase),
    /// It is over.
    End(Outcome),
    /// Nothing of it was begun, and time has passed.
    Back,
}

/// What the agent is at.
enum At {
    Idle,
    Working(Box<Job>),
    Ended(CommandId, Box<Outcome>),
}

impl At {
    fn ended(id: CommandId, outcome: Outcome) -> Self {
        Self::Ended(id, Box::new(outcome))
    }
}

impl Dialogue {
    async fn run(mut self) -> End {
        tracing::info!(host = self.host, generation = self.generation, "ironic-python-agent has reported in");
        let mut at = At::Idle;
        loop {
            if self.heard.elapsed() > SILENCE {
                tracing::warn!(host = self.host, "ironic-python-agent is silent");
                return End::Lost;
            }
            if self.found.is_none() && !self.look_at_hardware().await {
                self.pause(LOOK).await;
                continue;
            }
            at = match self.turn(at).await {
                Ok(next) => next,
                Err(end) => return end,
            };
        }
    }

    /// One report, and what follows from its answer.
    ///
    /// # Errors
    /// When there is nothing more to say.
    async fn turn(&mut self, at: At) -> Result<At, End> {
        match at {
            At::Idle => {
                self.look_for_work().await;
                if self.listed.is_none() {
                    self.pause(LOOK).await;
                    return Ok(At::Idle);
                }
                let directive = self.report(AgentState::Idle, WAIT).await?;
                match directive.command {
                    Some(command) => Ok(self.begin(command).await),
                    None => Ok(At::Idle),
                }
            }
            At::Working(mut job) => {
                let (phase, outcome) = match self.go_on(&job).await {
                    Went::On(phase) => (phase, None),
                    Went::End(outcome) => (Phase::Finishing, Some(outcome)),
                    // It is given again if it is still wished, and planned by the disks that there are then.
                    Went::Back => return Ok(At::Idle),
                };
                job.waited = true;
                if let Some(outcome) = outcome {
                    if matches!(outcome, Outcome::Failed(_)) {
                        self.read_log().await;
                    } else if matches!(outcome, Outcome::StepRan { .. }) {
                        // It may have changed the machine: what there is now is told with its end, and what follows is judged by that.
                        self.look_at_hardware().await;
                    }
                    return Ok(At::ended(job.id, outcome));
                }
                let seconds = job.begun.elapsed().as_secs() / 60 * 60;
                let progress = Progress { phase, seconds, ..Progress::default() };
                self.report(AgentState::Running { command: job.id.clone(), progress }, 0).await?;
                self.pause(LOOK).await;
                Ok(At::Working(job))
            }
            At::Ended(id, outcome) => {
                let state = AgentState::Finished { command: id.clone(), outcome: (*outcome).clone() };
                let directive = self.report(state, WAIT).await?;
                if directive.acknowledged.as_ref() != Some(&id) {
                    return Ok(At::Ended(id, outcome));
                }
                self.forget_commands().await;
                Ok(At::Idle)
            }
        }
    }

    async fn report(&mut self, state: AgentState, wait_seconds: u64) -> Result<Directive, End> {
        let found = self.found.as_ref();
        let report = Report {
            protocol: PROTOCOL_VERSION,
            version: IRONIC_PYTHON_AGENT.to_owned(),
            host: self.host.clone(),
            generation: self.generation,
            boot_id: self.digest.clone(),
            sequence: self.ipa.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            state,
            machine: found.map(facts::evidence),
            // It does not tell Secure Boot.
            firmware: None,
            wait_seconds,
            logs: std::mem::take(&mut self.said),
        };
        match self.ipa.hub.report_listed(report, Some(self.digest.clone()), self.listed).await {
            Ok(directive) => Ok(directive),
            Err(refusal) => {
                tracing::info!(host = self.host, ?refusal, "ironic-python-agent is spoken for no more");
                let over = matches!(refusal, Refusal::Superseded | Refusal::Contested);
                Err(if over { End::Over } else { End::Lost })
            }
        }
    }

    /// Looks in the agent's list whether it is at work: what an earlier process has ordered, or another that leads, is no order of this dialogue, and who
    /// leads next must not take the agent to be idle. Where the list is not told, what it told before stands, with its age.
    async fn look_for_work(&mut self) {
        match self.commands.list().await {
            Ok(list) => {
                let runs = list.commands.iter().any(|command| command.command_status == CommandStatus::Running);
                self.listed = Some((Instant::now(), runs));
            }
            Err(error) => tracing::warn!(host = self.host, %error, "ironic-python-agent does not tell its commands"),
        }
    }

    /// Reads what the agent has written down, after a failure: it is told with the next report. A log that is missing keeps nothing from going on.
    async fn read_log(&mut self) {
        let Ok(list) = self.commands.list().await else { return };
        let archives: Vec<&CommandResult> =
            list.commands.iter().filter(|told| orders::is_of(told, names::COLLECT_SYSTEM_LOGS)).collect();
        if archives.len() >= LOGS
            || archives.iter().any(|told| archive(told).is_some_and(|told| told.len() > LARGE_LOG))
        {
            return;
        }
        let request = CommandRequest { name: names::COLLECT_SYSTEM_LOGS.to_owned(), params: Map::new() };
        let read = self
            .commands
            .post(&request, true)
            .await
            .map_err(|error| error.to_string())
            .and_then(|told| logs::lines(archive(&told).ok_or("it gives no archive of its logs")?));
        match read {
            Ok(lines) => {
                self.heard.now();
                self.said = lines;
            }
            Err(error) => tracing::warn!(host = self.host, error, "ironic-python-agent's log cannot be read"),
        }
    }

    /// Waits for a heartbeat, for so long at most.
    async fn pause(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.heard.wake.notified()).await;
    }

    /// Reads the inventory. An agent that is at work for an order of an earlier process reads none: then what it has told that process counts, which
    /// is in its list.
    async fn look_at_hardware(&mut self) -> bool {
        let request = CommandRequest { name: GET_HARDWARE.to_owned(), params: Map::new() };
        let told = match self.commands.post(&request, true).await {
            Ok(result) => Ok(vec![result]),
            Err(CallError::Busy) => self.commands.list().await.map(|list| list.commands),
            Err(error) => Err(error),
        };
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(host = self.host, %error, "ironic-python-agent's inventory cannot be read");
                return false;
            }
        };
        self.heard.now();
        let mut inventories = told.into_iter().rev().filter(|told| {
            GET_HARDWARE.ends_with(&told.command_name) && told.command_status == CommandStatus::Succeeded
        });
        let found = inventories.find_map(|told| serde_json::from_value(told.command_result?).ok());
        if found.is_none() {
            tracing::warn!(host = self.host, "ironic-python-agent tells no inventory, or a malformed one");
        }
        let is_found = found.is_some();
        self.found = found.or(self.found.take());
        is_found
    }

    async fn begin(&mut self, command: Command) -> At {
        let Command { id, action } = command;
        if id.boot_id != self.digest {
            return At::ended(id, failed(ErrorCode::Refused, "the order is for another boot of the agent"));
        }
        match action {
            Action::Inspect => {
                if !self.look_at_hardware().await {
                    return At::ended(
                        id,
                        failed(ErrorCode::Internal, "ironic-python-agent does not tell its inventory"),
                    );
                }
                let found = self.found.clone().unwrap_or_default();
                let outcome = Outcome::Inspected {
                    hardware: Box::new(facts::hardware(&found).bounded()),
                    marks: Vec::new(),
                    uefi: facts::is_uefi(&found),
                    secure_boot: false,
                    links: Vec::new(),
                    devices: Box::new(facts::devices(&found)),
                };
                At::ended(id, outcome)
            }
            Action::ListSteps => self.list_steps(id).await,
            Action::Leave { how } => self.leave(id, how).await,
            action => self.begin_work(id, &action).await,
        }
    }

    /// Has the agent list the steps of its hardware managers; nothing is done to the machine.
    async fn list_steps(&mut self, id: CommandId) -> At {
        match self.commands.post(&orders::list_steps(&id), true).await {
            Ok(told) => {
                self.heard.now();
                self.unlisted = 0;
                let outcome = orders::listed(&told);
                At::ended(id, outcome.unwrap_or_else(|why| untouched(ErrorCode::Internal, &why)))
            }
            Err(CallError::Refused { status, text }) => {
                At::ended(id.clone(), orders::refused_by_agent(&orders::list_steps(&id), status, &text))
            }
            Err(error) if self.unlisted >= UNLISTED => {
                self.unlisted = 0;
                At::ended(id, untouched(ErrorCode::Internal, &format!("its list of steps cannot be read: {error}")))
            }
            // The order stays, and is given again: a list is read as often as it is asked for.
            Err(error) => {
                self.unlisted += 1;
                tracing::warn!(host = self.host, %error, "ironic-python-agent does not list its steps; it is asked again");
                self.pause(LOOK).await;
                At::Idle
            }
        }
    }

    /// Begins what is done to disks, by what the agent finds now: they may have come, gone and changed their names since it was asked last.
    async fn begin_work(&mut self, id: CommandId, action: &Action) -> At {
        // Without the list nothing is known of what was begun: the order stays, and is given again.
        let list = match self.commands.list().await {
            Ok(list) => list,
            Err(error) => return self.unlisted(&error).await,
        };
        self.heard.now();
        let has_begun = list.commands.iter().any(|command| {
            command.command_status == CommandStatus::Running
                || command.command_name.starts_with("execute_")
                    && !self.known.contains(&command.id)
                    && orders::may_be(command, &id)
        });
        if !has_begun {
            let before = self.found.clone();
            if !self.look_at_hardware().await {
                self.pause(LOOK).await;
                return At::Idle;
            }
            let machine =
                |found: &Option<Inventory>| found.as_ref().map(|found| (facts::evidence(found), found.disks.clone()));
            if machine(&before) != machine(&self.found) {
                // What is told with this end is proved to be the host's machine, and planned by, at the next attempt.
                let text = "ironic-python-agent finds other disks, or another machine, than it had told; what was ordered was not begun";
                let refusal = CommandError { code: ErrorCode::Refused, message: text.to_owned(), untouched: true };
                return At::ended(id, Outcome::Failed(refusal));
            }
        }
        let found = self.found.clone().unwrap_or_default();
        match orders::plan(&id, action, &found, has_begun) {
            Ok(plan) => {
                let from = orders::begins(&id, &plan, &list, &self.known);
                At::Working(Box::new(Job { id, plan, from, begun: Instant::now(), waited: has_begun }))
            }
            // What an earlier process has begun may be at work on a disk.
            Err(refusal) if has_begun => {
                let message =
                    format!("{}; what had been begun on it before, and has changed, is not known", refusal.message);
                At::ended(id, Outcome::Failed(CommandError { untouched: false, message, ..refusal }))
            }
            Err(refusal) => At::ended(id, Outcome::Failed(refusal)),
        }
    }

    /// The agent's list of commands cannot be read.
    async fn unlisted(&self, error: &CallError) -> At {
        tracing::warn!(host = self.host, %error, "ironic-python-agent does not tell its commands; the order is given again");
        self.pause(LOOK).await;
        At::Idle
    }

    /// Has the agent leave its machine, as the record says that it is to. It has left when it has taken the order, which another process finds in its list.
    async fn leave(&mut self, id: CommandId, how: Leave) -> At {
        let request = orders::leave(how);
        let list = match self.commands.list().await {
            Ok(list) => list,
            Err(error) => return self.unlisted(&error).await,
        };
        self.heard.now();
        let is_this =
            |command: &&CommandResult| orders::is_of(command, &request.name) && !self.known.contains(&command.id);
        let taken = match list.commands.iter().rev().find(is_this) {
            Some(command) => Ok(command.clone()),
            None => self.commands.post(&request, false).await,
        };
        match taken {
            Ok(command) => {
                // It fails, or takes the agent with it.
                tokio::time::sleep(LOOK).await;
                let list = self.commands.list().await.map(|list| list.commands).unwrap_or_default();
                let now = list.into_iter().find(|other| other.id == command.id).unwrap_or(command);
                let fails = !matches!(now.command_status, CommandStatus::Running | CommandStatus::Succeeded);
                At::ended(id, if fails { orders::failed_to_leave(&request, &now) } else { Outcome::Leaving })
            }
            Err(CallError::Refused { status, text }) => {
                At::ended(id, orders::refused_by_agent(&request, status, &text))
            }
            Err(error) => {
                tracing::warn!(host = self.host, %error, "whether ironic-python-agent leaves its machine is looked at later");
                tokio::time::sleep(UNCERTAIN).await;
                At::Idle
            }
        }
    }

    /// One look at the agent's list, and the next command if one is due.
    async fn go_on(&mut self, job: &Job) -> Went {
        if job.begun.elapsed() > LONGEST {
            let hours = LONGEST.as_secs() / 3600;
            let text = format!("what was ordered of ironic-python-agent has not ended within {hours} hours");
            return Went::End(failed(ErrorCode::Internal, &text));
        }
        let list = match self.commands.list().await {
            Ok(list) => list,
            Err(error) => {
                tracing::warn!(host = self.host, %error, "ironic-python-agent does not tell its commands");
                return Went::On(Phase::Starting);
            }
        };
        self.heard.now();
        let phase = |number: usize| job.plan.stages.get(number).map(|stage| stage.phase).unwrap_or_default();
        match orders::next(&job.plan, &list, job.from) {
            Next::Ended(outcome) => Went::End(outcome),
            Next::Wait(number) => Went::On(phase(number)),
            Next::Post(0) if job.waited => {
                self.pause(LOOK).await;
                Went::Back
            }
            // Since the order was given, lists and hardware were read, for minutes perhaps.
            Next::Post(0) if !self.ipa.hub.is_still_ordered(&self.host, &job.id).await => {
                tracing::info!(
                    host = self.host,
                    step = job.id.step,
                    "the order was taken back before ironic-python-agent had begun with it"
                );
                Went::Back
            }
            Next::Post(number) => {
                let Some(stage) = job.plan.stages.get(number) else { return Went::On(Phase::Starting) };
                match self.commands.post(&stage.request, stage.at_once).await {
                    Ok(_) | Err(CallError::Busy) => Went::On(phase(number)),
                    Err(CallError::Refused { status, text }) => {
                        Went::End(orders::refused_by_agent(&stage.request, status, &text))
                    }
                    Err(error @ CallError::Lost(_)) => {
                        tracing::warn!(host = self.host, %error, command = stage.request.name, "whether it was taken is looked at later");
                        tokio::time::sleep(UNCERTAIN).await;
                        Went::On(phase(number))
                    }
                }
            }
        }
    }

    /// The commands so far are none of the next order's.
    async fn forget_commands(&mut self) {
        if let Ok(list) = self.commands.list().await {
            self.known = list.commands.into_iter().map(|command| command.id).collect();
        }
    }
}

/// The archive that a command has given.
fn archive(told: &CommandResult) -> Option<&str> {
    told.command_result.as_ref()?.get("system_logs")?.as_str()
}

fn untouched(code: ErrorCode, why: &str) -> Outcome {
    Outcome::Failed(CommandError { code, message: format!("ironic-python-agent: {why}"), untouched: true })
}

fn failed(code: ErrorCode, text: &str) -> Outcome {
    Outcome::Failed(CommandError { code, message: text.to_owned(), untouched: false })
}

#[cfg(test)]
mod tests;
