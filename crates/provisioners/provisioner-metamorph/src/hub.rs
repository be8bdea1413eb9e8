//! The agents as this process knows them: last report, the command they should have, the outcomes they may forget.
//!
//! Everything here can be lost: an agent repeats everything in its next report. The journal also records the boot that a generation is bound to,
//! so a restart opens it to no other boot; until the journal has been read, a host's reports wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::{AgentState, Command, CommandId, Directive, Outcome, Report};
use api::metamorph::AgentBoot;
use provisioner::{HostKey, MayAct, Record, Waker};
use tokio::time::{Duration, Instant};

use crate::keys::{FIRST_KEY, Holder};
use crate::limits::{self, bounded};
use crate::said::Said;
use crate::slot::{self, Bound, Order, Slot};
pub use crate::slot::{Agent, CommandState, Listed, Refusal};
use crate::waiting::{Activity, Waiting};

/// The answer to a report.
enum Answer {
    /// This, now.
    Now(Directive),
    /// An order that has waited for a while: ask first whether it is still wished.
    Ask(CommandId, Arc<dyn Record>),
    /// Nothing yet.
    Nothing,
}

/// Shortest time between news that end a back-off.
const NEWS: Duration = Duration::from_secs(60);
/// Most hosts whose agents report without this server having asked for them (after a restart): memory is bounded.
const MAX_SLOTS: usize = 100_000;

/// Most hosts that were let go in the middle of work whose agents are told to stop; the oldest are forgotten. An agent in work asks every few seconds.
const MAX_LET_GO: usize = 1000;

/// All agents.
pub struct Hub {
    slots: Mutex<HashMap<String, Slot>>,
    waker: Arc<Waker>,
    silence: Duration,
    grace: Duration,
    may_act: MayAct,
}

/// How much longer a working agent may be silent than an idle one: a network outage of minutes must not stop a write.
pub const IN_WORK: u32 = 6;

/// Most concurrent reports of one host: an agent sends them one by one, but one that broke off may still be read.
const MAX_READING: usize = 2;

/// Most orders of one host that are being sent: one that its agent did not get is sent again, while its connection may not have been found dead.
const MAX_SENDING: usize = 4;

/// Age from which the host is asked again whether it wishes an order: it may have been paused, detached, deleted or frozen since.
const FRESH: Duration = Duration::from_secs(1);

/// How long that question may take. The agent repeats a report without an answer.
const QUESTION: Duration = Duration::from_secs(20);

/// How long a report may wait for the first look at its host.
const FIRST_LOOK: Duration = Duration::from_secs(5);

impl Hub {
    /// An empty hub that wakes hosts through `waker`. An agent silent for `silence` counts as dead; a working one gets `grace` from the moment that
    /// this is noticed: if this server was away, the agent reports at once.
    pub fn new(waker: Arc<Waker>, silence: Duration, grace: Duration, may_act: MayAct) -> Arc<Self> {
        Arc::new(Self { slots: Mutex::default(), waker, silence, grace, may_act })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host exists, and this is its newest boot (`None`: none has been recorded yet).
    pub fn expect(&self, key: &HostKey, boot: Option<&AgentBoot>) {
        let generation = boot.map(|b| b.generation);
        let mut slots = self.lock();
        let slot = slots.entry(key.uid.clone()).or_default();
        let news = slot.key.as_ref() != Some(key) || generation > slot.generation;
        slot.key = Some(key.clone());
        if generation > slot.generation {
            slot.let_go = None;
            slot.generation = generation;
            slot.command = None;
            slot.retired = false;
            if slot.agent.as_ref().is_some_and(|a| Some(a.generation) < generation) {
                slot.agent = None;
            }
        }
        if let Some(boot) = boot.filter(|boot| Some(boot.generation) == slot.generation) {
            slot.root = boot.key;
            slot.retired |= boot.retired;
            let recorded = boot.boot_id.clone().map(|boot_id| Bound {
                generation: boot.generation,
                boot_id,
                key: boot.key_digest.clone(),
            });
            if recorded.is_some() && recorded != slot.bound {
                // The agent that reported before the record was read is not the recorded one.
                slot.agent = None;
                slot.bound = recorded;
            }
        }
        if news {
            slot.changed.notify_waiters();
        }
    }

    /// Retires the host's newest boot, whose work has ended: its agent's reports change nothing any more, but it may be told to leave.
    pub fn retire(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.retired = true;
        }
    }

    /// Forgets the host's agent: its machine was switched off or leaves.
    pub fn forget_agent(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid) {
            // A boot that has reported ends with the power; one that has not may be under way.
            slot.retired |= slot.bound.as_ref().is_some_and(|bound| Some(bound.generation) == slot.generation);
            slot.agent = None;
            slot.command = None;
            slot.changed.notify_waiters();
        }
    }

    /// The host is let go in the middle of work: its order is taken back, and its agent, which knows nothing of that, is refused as of a boot whose work
    /// has ended, upon which it stops. This outlives the host.
    pub fn let_go(&self, uid: &str) {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(uid) else { return };
        (slot.retired, slot.let_go) = (true, Some(Instant::now()));
        (slot.agent, slot.command) = (None, None);
        slot.changed.notify_waiters();
        let gone: Vec<(Instant, String)> =
            slots.iter().filter_map(|(uid, slot)| Some((slot.let_go?, uid.clone()))).collect();
        if gone.len() > MAX_LET_GO
            && let Some((_, oldest)) = gone.into_iter().min()
        {
            slots.remove(&oldest);
        }
    }

    /// Forgets the host, unless its agent is still to be told to stop.
    pub fn forget_idle(&self, uid: &str) {
        let mut slots = self.lock();
        if slots.get(uid).is_some_and(|slot| slot.let_go.is_none())
            && let Some(slot) = slots.remove(uid)
        {
            slot.changed.notify_waiters();
        }
    }

    /// Forgets the host.
    pub fn forget(&self, uid: &str) {
        if let Some(slot) = self.lock().remove(uid) {
            slot.changed.notify_waiters();
        }
    }

    /// The living agent of this generation; one that was told to leave no longer counts.
    pub fn agent(&self, uid: &str, generation: u64) -> Option<Agent> {
        let mut slots = self.lock();
        let slot = slots.get_mut(uid)?;
        let agent = slot.agent.as_ref()?;
        // What its last answer had for it, it may have begun.
        let may_work = agent.given.is_some() || agent.is_at_work(None);
        let in_work = agent.state != AgentState::Idle || may_work;
        // A report of another boot suggests that this one is over: it gets no extra time.
        let contested = slot.contested.is_some_and(|at| at > agent.seen);
        let patience = if may_work && !contested { self.silence * IN_WORK } else { self.silence };
        let is_recent = agent.holding > 0 || agent.seen.elapsed() < patience;
        let alive = match (is_recent, in_work) {
            (true, _) => {
                slot.overdue = None;
                true
            }
            (false, true) => slot.overdue.get_or_insert_with(Instant::now).elapsed() < self.grace,
            (false, false) => false,
        };
        (alive && agent.generation == generation && !slot.retired && !slot.leaves()).then(|| agent.clone())
    }

    /// The agent that was last heard of for the host, living or not.
    pub fn last_agent(&self, uid: &str) -> Option<Agent> {
        self.lock().get(uid)?.agent.clone()
    }

    /// The last outcome that the host's agent, living or not, has reported.
    pub fn reported_outcome(&self, uid: &str) -> Option<(CommandId, Outcome)> {
        match &self.lock().get(uid)?.agent.as_ref()?.state {
            AgentState::Finished { command, outcome } => Some((command.clone(), outcome.clone())),
            _ => None,
        }
    }

    /// The newest generation that this process knows of: a journal that was lost must not give its token out again.
    pub fn newest_generation(&self, uid: &str) -> u64 {
        let slots = self.lock();
        let Some(slot) = slots.get(uid) else { return 0 };
        slot.generation.max(slot.bound.as_ref().map(|bound| bound.generation)).unwrap_or(0)
    }

    /// Whether an agent of this generation, or of a later one, has ever reported to this process.
    pub fn has_seen(&self, uid: &str, generation: u64) -> bool {
        self.lock().get(uid).and_then(|slot| slot.seen).is_some_and(|seen| seen >= generation)
    }

    /// Whether the agent of a boot that the host's work has not been tried with has reported. This counts once a minute at most, so that boot after
    /// boot does not defeat the back-off.
    pub fn has_news(&self, uid: &str) -> bool {
        let slots = self.lock();
        let slot = slots.get(uid).filter(|slot| slot.arrived && slot.agent.is_some());
        slot.is_some_and(|slot| slot.news_acknowledged.is_none_or(|at| at.elapsed() >= NEWS))
    }

    /// Acknowledges the news so far: the host's work is tried.
    pub fn acknowledge_news(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid)
            && std::mem::take(&mut slot.arrived)
        {
            slot.news_acknowledged = Some(Instant::now());
        }
    }

    /// Whether any agent of the host lives.
    pub fn any_agent(&self, uid: &str) -> Option<Agent> {
        let generation = self.lock().get(uid)?.agent.as_ref()?.generation;
        self.agent(uid, generation)
    }

    /// Gives a command and returns its state. An outcome of another command that the agent still holds is acknowledged: the next command is only
    /// given once that outcome is recorded, perhaps by an earlier process that died before acknowledging it. The host has just confirmed the command;
    /// if the agent fetches it later, `record` is asked first.
    pub fn command(&self, uid: &str, command: Command, record: &Arc<dyn Record>) -> CommandState {
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
                    // Never acknowledge a leave in passing: the machine would boot what is on its disk.
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
        let new = slot.command.as_ref().is_none_or(|order| order.command != command);
        slot.command = Some(Order { command, record: Arc::clone(record), wished: Instant::now() });
        if over.is_some() || new {
            slot.changed.notify_waiters();
        }
        CommandState::Given
    }

    /// The agent has begun with this command, or ended it.
    pub fn has_begun(&self, uid: &str, id: &CommandId) -> bool {
        let slots = self.lock();
        let agent = slots.get(uid).and_then(|slot| slot.agent.as_ref());
        agent.is_some_and(|agent| match &agent.state {
            AgentState::Running { command, .. } | AgentState::Finished { command, .. } => command == id,
            AgentState::Idle => false,
        })
    }

    /// Takes this command back, unless the agent has it already.
    pub fn take_back(&self, uid: &str, id: &CommandId) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.command.take_if(|order| order.command.id == *id);
        }
    }

    /// Takes back a command of this operation, which ends: an agent that has it in hand, and has not begun, does not begin any more.
    pub fn ends(&self, uid: &str, operation: &str) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.command.take_if(|order| order.command.id.operation == operation);
        }
    }

    /// Takes back a command of any other operation.
    pub fn withdraw(&self, uid: &str, operation: &str) {
        if let Some(slot) = self.lock().get_mut(uid)
            && slot.command.as_ref().is_some_and(|order| order.command.id.operation != operation)
        {
            slot.command = None;
        }
    }

    /// The agent may forget this outcome: it is persisted, or of no use to anyone.
    pub fn acknowledge(&self, uid: &str, id: &CommandId) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.acknowledge(id);
            slot.changed.notify_waiters();
        }
    }

    /// Whether a report for this host and generation, by the holder of this key, may be read at all. It counts as being read while the returned guard
    /// is held.
    ///
    /// # Errors
    /// [`Refusal::Superseded`] when the host has been booted again since, [`Refusal::Contested`] when the generation is bound to another key,
    /// [`Refusal::Unknown`] when too many hosts report, [`Refusal::TooMany`] when this one reports too much.
    pub fn admit(&self, host: &str, generation: u64, key: Option<&str>) -> Result<Arc<()>, Refusal> {
        let mut slots = self.lock();
        if slots.len() >= MAX_SLOTS && !slots.contains_key(host) {
            return Err(Refusal::Unknown);
        }
        let slot = slots.entry(host.to_owned()).or_default();
        if slot.bound.as_ref().is_some_and(|b| b.generation == generation && b.key.as_deref() != key) {
            return Err(contest(slot, host));
        }
        if slot.generation.is_some_and(|newest| generation < newest) {
            return Err(Refusal::Superseded);
        }
        if Arc::strong_count(&slot.reading) > MAX_READING || !slot.budget.report() {
            return Err(Refusal::TooMany);
        }
        Ok(Arc::clone(&slot.reading))
    }

    /// Whether another order may be sent to the host's agent: it counts as being sent while what is returned is held.
    pub fn sends(&self, host: &str) -> Option<Arc<()>> {
        let slots = self.lock();
        let sending = &slots.get(host)?.sending;
        (Arc::strong_count(sending) <= MAX_SENDING).then(|| Arc::clone(sending))
    }

    /// Prints the report's log lines, as many as its agent may still write, and keeps them.
    fn log_lines(&self, report: &mut Report) {
        let (lines, key, dropped) = {
            let mut slots = self.lock();
            let Some(slot) = slots.get_mut(&report.host) else { return report.logs.clear() };
            let (kept, dropped) = slot.budget.lines(&report.logs);
            let lines = limits::lines(report, kept);
            slot.said.add(report.generation, &lines, dropped);
            (lines, slot.key.clone(), dropped)
        };
        limits::log(&lines, &report.host, key.as_ref(), dropped);
    }

    /// What the host's agents have written since this process first heard one of them.
    pub fn said(&self, uid: &str) -> Said {
        self.lock().get(uid).map(|slot| slot.said.clone()).unwrap_or_default()
    }

    /// Waits for the first look at the host: until then, it is unknown which boot may report.
    async fn known(&self, host: &str) -> Result<(), Refusal> {
        let deadline = Instant::now() + FIRST_LOOK;
        loop {
            let changed = {
                let mut slots = self.lock();
                let slot = slots.entry(host.to_owned()).or_default();
                if slot.key.is_some() {
                    return Ok(());
                }
                Arc::clone(&slot.changed)
            };
            let changed = changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().get(host).is_some_and(|slot| slot.key.is_some()) {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                let mut slots = self.lock();
                if slots.get(host).is_some_and(|slot| slot.key.is_none()) {
                    slots.remove(host);
                }
                return Err(Refusal::Unknown);
            }
        }
    }

    /// Whether a genuine token counts for its host and generation: the record names the key that a generation is derived from; an unrecorded
    /// generation uses the current key. So an earlier key, even a stolen one, opens only the boots that began with it.
    ///
    /// # Errors
    /// [`Refusal::AnotherKey`], [`Refusal::Unknown`] while the host has not been looked at.
    pub async fn derived_from(&self, holder: &Holder<'_>) -> Result<(), Refusal> {
        self.known(holder.host).await?;
        let slots = self.lock();
        let slot = slots.get(holder.host).ok_or(Refusal::Unknown)?;
        let counts = match slot.generation {
            Some(recorded) if recorded == holder.generation => slot.root.unwrap_or(FIRST_KEY) == holder.key,
            // The report itself is refused, with this reason.
            Some(recorded) if recorded > holder.generation => true,
            _ => holder.current,
        };
        if counts { Ok(()) } else { Err(Refusal::AnotherKey) }
    }

    /// Takes a report in. `listed`: when the agent's own list of commands was read, and whether one of them runs.
    fn take(&self, report: &Report, key: Option<String>, listed: Option<(Instant, bool)>) -> Result<(), Refusal> {
        let mut slots = self.lock();
        let slot = slots.get_mut(&report.host).ok_or(Refusal::Unknown)?;
        if slot.generation.is_some_and(|g| report.generation < g) {
            return Err(Refusal::Superseded);
        }
        let boot = Bound { generation: report.generation, boot_id: report.boot_id.clone(), key };
        match &slot.bound {
            Some(bound) if *bound == boot => {}
            Some(bound) if bound.generation == boot.generation => return Err(contest(slot, &report.host)),
            Some(bound) if bound.generation > boot.generation => return Err(Refusal::Superseded),
            _ => slot.bound = Some(boot.clone()),
        }
        let leaves = matches!(report.state, AgentState::Finished { outcome: Outcome::Leaving, .. });
        if slot.retired && slot.generation == Some(report.generation) && !leaves {
            return Err(Refusal::Superseded);
        }
        if let Some(agent) = &slot.agent
            && agent.boot_id == report.boot_id
            && report.sequence <= agent.sequence
        {
            return Err(Refusal::Stale);
        }
        let before = slot.agent.as_ref().map(|a| (a.boot_id.clone(), a.state.clone(), a.holding));
        let news = before.as_ref().is_none_or(|(boot, state, _)| *boot != report.boot_id || *state != report.state);
        let holding = before.as_ref().filter(|(boot, ..)| *boot == report.boot_id).map_or(0, |(_, _, h)| *h);
        let before = before.map(|(boot, ..)| boot);
        let same_boot = slot.agent.as_ref().filter(|agent| agent.boot_id == report.boot_id);
        let listed = listed.map(|(read, runs)| Listed::now(read, runs, same_boot.and_then(|agent| agent.listed)));
        slot.seen = slot.seen.max(Some(report.generation));
        slot.arrived |= before.is_none_or(|boot| boot != report.boot_id);
        slot.overdue = None;
        slot.agent = Some(Agent {
            generation: report.generation,
            boot_id: report.boot_id.clone(),
            key_digest: boot.key,
            kind: slot::kind_of(&report.version),
            protocol: report.protocol,
            firmware: report.firmware,
            state: report.state.clone(),
            machine: report.machine.clone(),
            given: None,
            listed,
            seen: Instant::now(),
            holding,
            sequence: report.sequence,
        });
        // Whoever waits for an answer to an earlier report gets one: an agent waits for one at a time.
        slot.changed.notify_waiters();
        if news && let Some(key) = &slot.key {
            // The receiver is gone only when the server stops.
            self.waker.wake(key);
        }
        Ok(())
    }

    /// The answer to give now. Only the acting process gives orders or leave: another process may have ordered otherwise.
    fn answer(&self, report: &Waiting) -> Answer {
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(&report.host) else { return Answer::Nothing };
        let newer = |agent: &Agent| agent.boot_id == report.boot_id && agent.sequence > report.sequence;
        if slot.generation.is_some_and(|g| report.generation < g) || slot.agent.as_ref().is_some_and(newer) {
            return Answer::Now(Directive::default());
        }
        if !(self.may_act)() {
            return Answer::Nothing;
        }
        match &report.state {
            Activity::Finished(command) => {
                if !slot.acknowledged.contains(command) {
                    return Answer::Nothing;
                }
                return Answer::Now(Directive { acknowledged: Some(command.clone()), command: None });
            }
            Activity::Working => return Answer::Now(Directive::default()),
            Activity::Idle => {}
        }
        let order = slot.command.as_ref().filter(|order| {
            order.command.id.boot_id == report.boot_id && !slot.acknowledged.contains(&order.command.id)
        });
        match order {
            None => Answer::Nothing,
            Some(order) if order.wished.elapsed() > FRESH => {
                Answer::Ask(order.command.id.clone(), Arc::clone(&order.record))
            }
            Some(order) => {
                let command = order.command.clone();
                if let Some(agent) = slot.agent.as_mut().filter(|agent| agent.boot_id == report.boot_id) {
                    agent.given = Some(command.id.clone());
                }
                Answer::Now(Directive { acknowledged: None, command: Some(command) })
            }
        }
    }

    /// Whether this order, which is about to be begun by an agent that cannot be stopped, was not taken back since it was given, and is still wished now. One that was given to an
    /// agent which has been given up since is not: what has become of it counts as unknown, or is done on another boot.
    pub async fn is_still_ordered(&self, host: &str, id: &CommandId) -> bool {
        if !(self.may_act)() {
            return false;
        }
        let record = {
            let slots = self.lock();
            let order = slots.get(host).and_then(|slot| slot.command.as_ref());
            order.filter(|order| order.command.id == *id).map(|order| Arc::clone(&order.record))
        };
        let Some(record) = record else { return false };
        self.ask(host, id, record.as_ref()).await;
        if self.any_agent(host).is_none_or(|agent| agent.boot_id != id.boot_id) {
            return false;
        }
        let slots = self.lock();
        slots.get(host).and_then(|slot| slot.command.as_ref()).is_some_and(|order| order.command.id == *id)
    }

    /// Asks whether the host still wishes this order. If it does not, or that is unknown, the order is taken back and the host is looked at, which
    /// repeats what it still wishes.
    async fn ask(&self, host: &str, id: &CommandId, record: &dyn Record) {
        let begun = Instant::now();
        let wished = tokio::time::timeout(QUESTION, record.still_wanted()).await;
        let mut slots = self.lock();
        let Some(slot) = slots.get_mut(host) else { return };
        if let Ok(Ok(())) = wished {
            if let Some(order) = slot.command.as_mut().filter(|order| order.command.id == *id) {
                order.wished = Instant::now();
            }
            return;
        }
        // An order that was given again since is a new one.
        if slot.command.take_if(|order| order.command.id == *id && order.wished <= begun).is_some() {
            let why = wished.map_or_else(
                |_| "the question took too long".to_owned(),
                |reported| reported.err().map(|e| e.to_string()).unwrap_or_default(),
            );
            if let Some(key) = &slot.key {
                let (namespace, host) = (key.namespace.as_str(), key.name.as_str());
                tracing::info!(namespace, host, "{} is not given to the agent: {why}", id.step);
                self.waker.wake(key);
            }
        }
    }

    fn hold(&self, report: &Waiting, by: i64) {
        if let Some(agent) = self.lock().get_mut(&report.host).and_then(|s| s.agent.as_mut())
            && agent.boot_id == report.boot_id
        {
            agent.holding = agent.holding.saturating_add_signed(i32::try_from(by).unwrap_or(0));
            agent.seen = Instant::now();
        }
    }

    /// Takes in a report by the holder of this key (its digest) and answers it, at the latest after the time that the agent grants.
    ///
    /// # Errors
    /// [`Refusal`] when the agent does not count.
    pub async fn report(self: &Arc<Self>, report: Report, key: Option<String>) -> Result<Directive, Refusal> {
        self.report_listed(report, key, None).await
    }

    /// The same for an agent that keeps a list of its commands: when that was read, and whether one of them runs, whoever has given it.
    ///
    /// # Errors
    /// [`Refusal`] when the agent does not count.
    pub async fn report_listed(
        self: &Arc<Self>,
        report: Report,
        key: Option<String>,
        listed: Option<(Instant, bool)>,
    ) -> Result<Directive, Refusal> {
        let mut report = bounded(report);
        self.known(&report.host).await?;
        self.take(&report, key, listed)?;
        self.log_lines(&mut report);
        // What it tells is taken in: only what the answer depends on is kept for as long as it is waited for.
        let report = Waiting::of(report);
        let wait = report.seconds.min(agent_protocol::MAX_WAIT_SECONDS);
        let deadline = Instant::now() + Duration::from_secs(wait);
        let held = Held::new(Arc::clone(self), report);
        loop {
            let wakes = self.lock().get(&held.report.host).map(|slot| Arc::clone(&slot.changed)).unwrap_or_default();
            let changed = wakes.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.answer(&held.report) {
                Answer::Now(directive) => return Ok(directive),
                Answer::Ask(id, record) => {
                    self.ask(&held.report.host, &id, record.as_ref()).await;
                    continue;
                }
                Answer::Nothing => {}
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(Directive::default());
            }
        }
    }
}

/// Another boot than the one that the generation is bound to has used its token: the same machine after a reset of its own, or a party that has
/// read the medium.
fn contest(slot: &mut Slot, host: &str) -> Refusal {
    let quiet = slot.contested.is_some_and(|at| at.elapsed() < Duration::from_secs(60));
    slot.contested = Some(Instant::now());
    if !quiet {
        let key = slot.key.as_ref();
        let (namespace, host) = key.map_or(("", host), |key| (key.namespace.as_str(), key.name.as_str()));
        tracing::warn!(
            namespace,
            host,
            "refused a report of another boot than the one that this boot generation is bound to: the machine was reset, or somebody else has read its boot medium"
        );
    }
    Refusal::Contested
}

/// A report that is held open; dropping it (answer sent, connection lost) is seen.
struct Held {
    hub: Arc<Hub>,
    report: Waiting,
}

impl Held {
    fn new(hub: Arc<Hub>, report: Waiting) -> Self {
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
mod tests;
