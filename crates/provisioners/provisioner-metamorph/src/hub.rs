//! The agents as this process knows them: last report, the command they should have, the outcomes they may forget.
//!
//! Everything here can be lost: an agent says everything again with its next report.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::{AgentState, Command, CommandId, Directive, Outcome, Progress, Report};
use inventory::MachineEvidence;
use provisioner::HostKey;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, Instant};

/// What is known of one host's agent.
#[derive(Default)]
struct Slot {
    key: Option<HostKey>,
    /// Generation that counts; reports of an older one are refused.
    generation: Option<u64>,
    agent: Option<Agent>,
    /// Newest generation of which an agent has reported to this process.
    seen: Option<u64>,
    /// The agent of a new boot has reported, and its host's work has not been tried since.
    arrived: bool,
    /// When such news was last used up.
    heard: Option<Instant>,
    command: Option<Command>,
    acknowledged: Vec<CommandId>,
    /// Boots that another boot has followed: one machine runs one kernel, what they say comes late.
    retired: Vec<String>,
    /// Wakes the reports that this host's agent is having held open.
    changed: Arc<Notify>,
}

impl Slot {
    /// The agent has been told that it may leave.
    fn leaves(&self) -> bool {
        match self.agent.as_ref().map(|a| &a.state) {
            Some(AgentState::Finished { command, outcome: Outcome::Leaving }) => self.acknowledged.contains(command),
            _ => false,
        }
    }

    fn retire(&mut self, boot_id: String) {
        if self.retired.len() >= MAX_ACKNOWLEDGED {
            self.retired.remove(0);
        }
        self.retired.push(boot_id);
    }

    fn acknowledge(&mut self, id: &CommandId) {
        if self.acknowledged.contains(id) {
            return;
        }
        if self.acknowledged.len() >= MAX_ACKNOWLEDGED {
            self.acknowledged.remove(0);
        }
        self.acknowledged.push(id.clone());
        if self.command.as_ref().is_some_and(|c| c.id == *id) {
            self.command = None;
        }
    }
}

/// The last report.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Boot generation.
    pub generation: u64,
    /// Kernel boot id.
    pub boot_id: String,
    /// State.
    pub state: AgentState,
    /// On which machine it runs, as far as it says.
    pub machine: Option<MachineEvidence>,
    /// When it came.
    pub seen: Instant,
    /// Reports being held open now.
    holding: u32,
    sequence: u64,
}

/// Most MACs and disks that are taken from an agent, and the longest text of each, in characters.
const MAX_EVIDENCE: usize = 512;
const MAX_TEXT: usize = 128;

/// An agent says what it likes.
fn bounded(mut machine: MachineEvidence) -> MachineEvidence {
    let short = |text: &mut String| *text = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
    [&mut machine.manufacturer, &mut machine.system_uuid, &mut machine.serial_number]
        .into_iter()
        .flatten()
        .for_each(short);
    for list in [&mut machine.macs, &mut machine.disks] {
        list.truncate(MAX_EVIDENCE);
        list.iter_mut().for_each(short);
    }
    machine
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandState {
    /// Given, not begun.
    Given,
    /// Under way.
    Running(Progress),
    /// Ended; not yet acknowledged.
    Finished(Outcome),
}

/// Why a report is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The host has been booted again since.
    Superseded,
    /// An older report than one already seen.
    Stale,
}

/// How often news end a back-off, at most.
const NEWS: Duration = Duration::from_secs(60);
/// How many acknowledged commands are remembered a host.
const MAX_ACKNOWLEDGED: usize = 16;
/// Most hosts whose agents report without this server having asked for them (after a restart): memory is bounded.
const MAX_SLOTS: usize = 100_000;

/// All agents.
pub struct Hub {
    slots: Mutex<HashMap<String, Slot>>,
    wake: mpsc::UnboundedSender<HostKey>,
    silence: Duration,
}

impl Hub {
    /// An empty hub that wakes hosts through `wake`; an agent silent for `silence` is taken for dead.
    pub fn new(wake: mpsc::UnboundedSender<HostKey>, silence: Duration) -> Arc<Self> {
        Arc::new(Self { slots: Mutex::default(), wake, silence })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host exists, and this generation counts (`None`: none has been recorded yet).
    pub fn expect(&self, key: &HostKey, generation: Option<u64>) {
        let mut slots = self.lock();
        let slot = slots.entry(key.uid.clone()).or_default();
        let news = slot.key.as_ref() != Some(key) || generation > slot.generation;
        slot.key = Some(key.clone());
        if generation > slot.generation {
            slot.generation = generation;
            slot.command = None;
            if slot.agent.as_ref().is_some_and(|a| Some(a.generation) < generation) {
                slot.agent = None;
            }
        }
        if news {
            slot.changed.notify_waiters();
        }
    }

    /// Forgets the host's agent: its machine was switched off or leaves.
    pub fn forget_agent(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.agent = None;
            slot.command = None;
            slot.changed.notify_waiters();
        }
    }

    /// Forgets the host.
    pub fn forget(&self, uid: &str) {
        if let Some(slot) = self.lock().remove(uid) {
            slot.changed.notify_waiters();
        }
    }

    /// The living agent of this generation; one that may leave its machine no longer counts.
    pub fn agent(&self, uid: &str, generation: u64) -> Option<Agent> {
        let slots = self.lock();
        let slot = slots.get(uid)?;
        let agent = slot.agent.as_ref()?;
        // One that writes is given more time: a network that is away for minutes does not stop the write.
        let patience = match agent.state {
            AgentState::Running { .. } => self.silence * 6,
            _ => self.silence,
        };
        let alive = agent.holding > 0 || agent.seen.elapsed() < patience;
        (alive && agent.generation == generation && !slot.leaves()).then(|| agent.clone())
    }

    /// Whether an agent of this generation, or of a later one, has ever reported to this process.
    pub fn has_seen(&self, uid: &str, generation: u64) -> bool {
        self.lock().get(uid).and_then(|slot| slot.seen).is_some_and(|seen| seen >= generation)
    }

    /// Whether an agent has reported of a boot that the host's work has not been tried with. Such news counts once a minute at most: whoever
    /// reports boot after boot does not take the back-off away.
    pub fn has_news(&self, uid: &str) -> bool {
        let slots = self.lock();
        let slot = slots.get(uid).filter(|slot| slot.arrived && slot.agent.is_some());
        slot.is_some_and(|slot| slot.heard.is_none_or(|heard| heard.elapsed() >= NEWS))
    }

    /// The host's work is tried.
    pub fn heard(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid)
            && std::mem::take(&mut slot.arrived)
        {
            slot.heard = Some(Instant::now());
        }
    }

    /// Whether any agent of the host lives.
    pub fn any_agent(&self, uid: &str) -> Option<Agent> {
        let generation = self.lock().get(uid)?.agent.as_ref()?.generation;
        self.agent(uid, generation)
    }

    /// Gives a command and tells what has become of it. The outcome of another command that the agent still holds may be forgotten:
    /// the next command is only given when that outcome has been recorded, perhaps by an earlier process that died before it could
    /// tell the agent so.
    pub fn command(&self, uid: &str, command: Command) -> CommandState {
        let mut slots = self.lock();
        let slot = slots.entry(uid.to_owned()).or_default();
        let mut over = None;
        if let Some(agent) = &slot.agent {
            match &agent.state {
                AgentState::Running { command: id, progress } if *id == command.id => {
                    return CommandState::Running(progress.clone());
                }
                AgentState::Finished { command: id, outcome } if *id == command.id => {
                    return CommandState::Finished(outcome.clone());
                }
                AgentState::Finished { command: id, outcome } => {
                    let same_step = id.operation == command.id.operation && id.step == command.id.step;
                    // Leave to go is never given by the way: the machine would boot what is on its disk.
                    if !same_step && *outcome != Outcome::Leaving && !slot.acknowledged.contains(id) {
                        over = Some(id.clone());
                    }
                }
                _ => {}
            }
        }
        if let Some(id) = &over {
            slot.acknowledge(id);
        }
        if over.is_some() || slot.command.as_ref() != Some(&command) {
            slot.command = Some(command);
            slot.changed.notify_waiters();
        }
        CommandState::Given
    }

    /// The agent may forget this outcome: it is persisted, or of no use to anyone.
    pub fn acknowledge(&self, uid: &str, id: &CommandId) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.acknowledge(id);
            slot.changed.notify_waiters();
        }
    }

    /// Takes a report in.
    fn take(&self, report: &Report) -> Result<(), Refusal> {
        let mut slots = self.lock();
        if slots.len() >= MAX_SLOTS && !slots.contains_key(&report.host) {
            return Err(Refusal::Stale);
        }
        let slot = slots.entry(report.host.clone()).or_default();
        if slot.generation.is_some_and(|g| report.generation < g) {
            return Err(Refusal::Superseded);
        }
        if slot.retired.contains(&report.boot_id) {
            return Err(Refusal::Superseded);
        }
        if let Some(agent) = &slot.agent
            && agent.boot_id == report.boot_id
            && report.sequence <= agent.sequence
        {
            return Err(Refusal::Stale);
        }
        if let Some(old) = slot.agent.as_ref().map(|a| a.boot_id.clone()).filter(|old| *old != report.boot_id) {
            slot.retire(old);
        }
        let before = slot.agent.as_ref().map(|a| (a.boot_id.clone(), a.state.clone(), a.holding));
        let news = before.as_ref().is_none_or(|(boot, state, _)| *boot != report.boot_id || *state != report.state);
        let holding = before.as_ref().filter(|(boot, ..)| *boot == report.boot_id).map_or(0, |(_, _, h)| *h);
        let before = before.map(|(boot, ..)| boot);
        slot.seen = slot.seen.max(Some(report.generation));
        slot.arrived |= before.is_none_or(|boot| boot != report.boot_id);
        slot.agent = Some(Agent {
            generation: report.generation,
            boot_id: report.boot_id.clone(),
            state: report.state.clone(),
            machine: report.machine.clone().map(bounded),
            seen: Instant::now(),
            holding,
            sequence: report.sequence,
        });
        if news && let Some(key) = &slot.key {
            // The receiver is gone only when the server stops.
            let _ = self.wake.send(key.clone());
        }
        Ok(())
    }

    /// What to answer now, if there is anything.
    fn answer(&self, report: &Report) -> Option<Directive> {
        let slots = self.lock();
        let slot = slots.get(&report.host)?;
        if slot.generation.is_some_and(|g| report.generation < g) {
            return Some(Directive::default());
        }
        let busy = match &report.state {
            AgentState::Finished { command, .. } => {
                if !slot.acknowledged.contains(command) {
                    return None;
                }
                return Some(Directive { acknowledged: Some(command.clone()), command: None });
            }
            AgentState::Running { command, .. } => Some(command),
            AgentState::Idle => None,
        };
        let command = slot
            .command
            .as_ref()
            .filter(|c| c.id.boot_id == report.boot_id && busy != Some(&c.id) && !slot.acknowledged.contains(&c.id));
        match (command, busy) {
            (Some(command), None) => Some(Directive { acknowledged: None, command: Some(command.clone()) }),
            (_, Some(_)) => Some(Directive::default()),
            (None, None) => None,
        }
    }

    fn hold(&self, report: &Report, by: i64) {
        if let Some(agent) = self.lock().get_mut(&report.host).and_then(|s| s.agent.as_mut())
            && agent.boot_id == report.boot_id
        {
            agent.holding = agent.holding.saturating_add_signed(i32::try_from(by).unwrap_or(0));
            agent.seen = Instant::now();
        }
    }

    /// Takes a report and answers it, at the latest after the time the agent grants.
    ///
    /// # Errors
    /// [`Refusal`] when the agent no longer counts.
    pub async fn report(self: &Arc<Self>, report: Report) -> Result<Directive, Refusal> {
        self.take(&report)?;
        let wait = report.wait_seconds.min(agent_protocol::MAX_WAIT_SECONDS);
        let deadline = Instant::now() + Duration::from_secs(wait);
        let held = Held::new(Arc::clone(self), report);
        loop {
            let wakes = self.lock().get(&held.report.host).map(|slot| Arc::clone(&slot.changed)).unwrap_or_default();
            let changed = wakes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(directive) = self.answer(&held.report) {
                return Ok(directive);
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Directive::default());
            }
        }
    }
}

/// A report that is held open; dropping it (answer sent, connection lost) is seen.
struct Held {
    hub: Arc<Hub>,
    report: Report,
}

impl Held {
    fn new(hub: Arc<Hub>, report: Report) -> Self {
        hub.hold(&report, 1);
        Self { hub, report }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hub.hold(&self.report, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_protocol::{Action, Leave};

    fn key() -> HostKey {
        HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() }
    }

    fn report(boot: &str, generation: u64, sequence: u64, state: AgentState) -> Report {
        Report {
            protocol: 1,
            version: "t".into(),
            host: "u".into(),
            generation,
            boot_id: boot.into(),
            sequence,
            state,
            machine: None,
            firmware: None,
            wait_seconds: 30,
            logs: vec![],
        }
    }

    fn id(boot: &str) -> CommandId {
        CommandId { operation: "op".into(), step: "s".into(), attempt: 1, boot_id: boot.into() }
    }

    fn leave(boot: &str) -> Command {
        Command { id: id(boot), action: Action::Leave { how: Leave::Reboot } }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_boot_is_news_until_the_work_is_tried_and_once_a_minute() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        assert!(!hub.has_news("u"));
        hub.take(&report("b1", 1, 1, AgentState::Idle)).unwrap();
        assert!(hub.has_news("u"));
        hub.heard("u");
        hub.take(&report("b1", 1, 2, AgentState::Idle)).unwrap();
        assert!(!hub.has_news("u"), "the same boot");
        hub.take(&report("b2", 1, 1, AgentState::Idle)).unwrap();
        assert!(!hub.has_news("u"), "too soon");
        tokio::time::advance(NEWS).await;
        assert!(hub.has_news("u"));
        hub.forget_agent("u");
        assert!(!hub.has_news("u"), "it is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_reaches_an_idle_agent_at_once_and_only_the_boot_it_is_for() {
        let (wake, mut woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        let waiting = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.report(report("b1", 1, 1, AgentState::Idle)).await }
        });
        assert_eq!(woken.recv().await, Some(key()));
        assert_eq!(hub.command("u", leave("b0")), CommandState::Given);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(hub.command("u", leave("b1")), CommandState::Given);
        assert_eq!(waiting.await.unwrap().unwrap().command, Some(leave("b1")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_held_until_it_is_acknowledged() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        let finished = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
        let quiet = hub.report(report("b1", 1, 1, finished.clone())).await.unwrap();
        assert_eq!(quiet, Directive::default());
        assert_eq!(hub.command("u", leave("b1")), CommandState::Finished(Outcome::Leaving));
        hub.acknowledge("u", &id("b1"));
        let answer = hub.report(report("b1", 1, 2, finished)).await.unwrap();
        assert_eq!(answer.acknowledged, Some(id("b1")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_recorded_by_an_earlier_process_gives_way_to_the_next_command() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        let before = CommandId { step: "before".into(), ..id("b1") };
        let finished =
            AgentState::Finished { command: before.clone(), outcome: Outcome::Wiped { disks: vec![], left: vec![] } };
        let waiting = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.report(report("b1", 1, 1, finished)).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(hub.command("u", leave("b1")), CommandState::Given);
        assert_eq!(waiting.await.unwrap().unwrap(), Directive { acknowledged: Some(before), command: None });
        let answer = hub.report(report("b1", 1, 2, AgentState::Idle)).await.unwrap();
        assert_eq!(answer.command, Some(leave("b1")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_generation_and_a_repeated_report_are_refused() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(2));
        assert_eq!(hub.report(report("b1", 1, 1, AgentState::Idle)).await, Err(Refusal::Superseded));
        assert!(hub.report(report("b2", 2, 5, AgentState::Idle)).await.is_ok());
        assert_eq!(hub.report(report("b2", 2, 5, AgentState::Idle)).await, Err(Refusal::Stale));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_was_seen_is_remembered_when_it_is_forgotten() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(2));
        assert!(!hub.has_seen("u", 2));
        hub.report(report("b1", 2, 1, AgentState::Idle)).await.unwrap();
        hub.forget_agent("u");
        assert!(hub.agent("u", 2).is_none());
        assert!(hub.has_seen("u", 2) && !hub.has_seen("u", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_agent_is_taken_for_dead() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        hub.report(report("b1", 1, 1, AgentState::Idle)).await.unwrap();
        assert!(hub.agent("u", 1).is_some());
        tokio::time::advance(Duration::from_secs(91)).await;
        assert!(hub.agent("u", 1).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_boot_that_another_has_followed_has_no_say_any_more() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        hub.report(report("b1", 1, 1, AgentState::Idle)).await.unwrap();
        hub.report(report("b2", 1, 1, AgentState::Idle)).await.unwrap();
        assert_eq!(hub.report(report("b1", 1, 9, AgentState::Idle)).await, Err(Refusal::Superseded));
        assert_eq!(hub.any_agent("u").unwrap().boot_id, "b2");
    }

    #[tokio::test(start_paused = true)]
    async fn another_attempt_of_the_same_step_and_a_leave_are_never_acknowledged_by_the_way() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        let wiped = AgentState::Finished { command: id("b1"), outcome: Outcome::Wiped { disks: vec![], left: vec![] } };
        hub.report(report("b1", 1, 1, wiped.clone())).await.unwrap();
        let again = Command { id: CommandId { attempt: 2, ..id("b1") }, ..leave("b1") };
        assert_eq!(hub.command("u", again), CommandState::Given);
        assert_eq!(hub.report(report("b1", 1, 2, wiped)).await.unwrap(), Directive::default());

        let leaving = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
        hub.report(report("b1", 1, 3, leaving.clone())).await.unwrap();
        let other = Command { id: CommandId { step: "wipe".into(), ..id("b1") }, ..leave("b1") };
        assert_eq!(hub.command("u", other), CommandState::Given);
        assert_eq!(hub.report(report("b1", 1, 4, leaving)).await.unwrap(), Directive::default());
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_writes_may_be_silent_for_longer() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let hub = Hub::new(wake, Duration::from_secs(90));
        hub.expect(&key(), Some(1));
        let running = AgentState::Running { command: id("b1"), progress: Progress::default() };
        hub.report(report("b1", 1, 1, running)).await.unwrap();
        tokio::time::advance(Duration::from_secs(500)).await;
        assert!(hub.agent("u", 1).is_some());
        tokio::time::advance(Duration::from_secs(41)).await;
        assert!(hub.agent("u", 1).is_none());
    }
}
