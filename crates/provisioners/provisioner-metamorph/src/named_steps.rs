//! Steps of ironic-python-agent's hardware managers, listed and run by name.
//!
//! A request's way is that of an erase (`erase.rs`): an operation of its own, on a machine that nobody uses. The agent lists its steps first, and what is
//! asked for is held against that list before anything is begun: a name, an interface or an argument that is not there ends it with a sentence. Then each
//! step is an order of its own, whose number is the attempt that the record has: step *n* of the request is attempt *n* of `run-steps`. Its intent is
//! recorded before, and before each the machine is proved to be the host's, and its disks to be those of the inspection (`ipa/orders.rs`).
//!
//! **A step is given once.** Nobody but its hardware manager knows what a step does, and whether it may be done twice. So the agent's list of commands tells
//! a process that has not posted a step what has become of it; and if the boot that it was given to is gone, the step is told to be begun with an unknown
//! end, and neither it nor what follows is run. As soon as a step has been given, nothing begins the request anew: every failure is the end, and in the
//! report, which is the answer to every later call for the same wish. Between two steps nothing is unknown: there a BMC that does not answer is waited for.
//!
//! **Restarts.** Ironic restarts a node after a step that says so (`reboot_requested`), and not the agent. The same is done here: the step's end is recorded
//! together with the end of its boot, and another boot of the agent goes on, or shows that the machine has come back.

use std::collections::BTreeMap;

use agent_protocol::{Action, AgentState, CommandId, ListedArgument, ListedStep, Outcome as AgentOutcome, RunStep};
use api::metamorph::{
    AgentStep, HardwareManager, OfferedStep, OperationType, RanStep, StepArgument, StepResult, StepsReport,
};
use async_trait::async_trait;
use inventory::RootDeviceHints;
use provisioner::{Cause, Failure, Outcome, Retry, Steps, StepsRequest, Verdict};
use provisioning_plan::boot::MAX_BOOTS;
use provisioning_plan::steps::{Step, Work};
use tokio::time::{Duration, Instant};

use crate::commands::Ran;
use crate::failures::not_yet_its_own;
use crate::host::NativeHost;
use crate::hub::IN_WORK;
use crate::identity::Effect;
use crate::journal::Operation;
use crate::record::{done, intend, succeed};

/// Longest list of names in a message, in bytes.
const MAX_NAMES: usize = 400;
/// How long a BMC is waited for after a step: one whose firmware was changed restarts itself.
const BETWEEN: Duration = Duration::from_secs(15 * 60);
/// Advice where a step has not done what it was to.
const ADVICE: &str =
    "status.stepsReport tells of each step; see the agent's words and its log, and ask again for what is still wanted";

/// Why nothing is run where the record has no room for what the agent wants to be shown with each step.
const UNKNOWN_VERSIONS: &str = "run steps of hardware managers: the agent wants the versions of all its hardware managers with each step, and tells none, or more than \
    32, or ones of more than 128 bytes or that cannot be printed; nothing was run. Build the agent's ramdisk with fewer hardware managers, or with other names and versions";

#[async_trait]
impl Steps for NativeHost {
    async fn run_steps(&mut self, request: StepsRequest) -> Outcome<StepsReport> {
        self.settle_with_journal().await;
        let wish = request.wish.as_deref();
        if let Some(report) = self.recorded_steps(wish) {
            return Ok(Verdict::Done(report));
        }
        self.live.attempt().rests();
        self.unheard(OperationType::Steps, wish, request.restart)?;
        self.nothing_ends("run steps of hardware managers")?;
        let work = if request.steps.is_empty() { Work::ListSteps } else { Work::RunSteps };
        let mut operation = self.open(work, wish).await?;
        let result = self.named_steps(&mut operation, &request).await;
        let result = self.ended_if_begun(&mut operation, result).await;
        self.closing(&mut operation, result).await
    }
}

/// What of the record tells how far it is.
fn recorded(operation: &Operation) -> StepsReport {
    operation.status().steps_report.clone().unwrap_or_default()
}

/// Whether a step has been given to an agent.
fn has_begun(report: &StepsReport) -> bool {
    report.ran.iter().any(|ran| ran.result != StepResult::NotBegun)
}

/// Whether a step has been given whose end is not recorded.
fn ended_unknown(report: &StepsReport) -> bool {
    report.ran.iter().any(|ran| ran.result == StepResult::Begun)
}

impl NativeHost {
    /// The report of the newest operation, if that was for this very wish and has come to an end that is not begun anew.
    fn recorded_steps(&self, wish: Option<&str>) -> Option<StepsReport> {
        let newest = self
            .journal
            .newest()
            .filter(|newest| newest.operation == OperationType::Steps && newest.phase.is_final() && wish.is_some())?;
        let report = newest.status.steps_report.filter(|_| newest.wish.as_deref() == wish)?;
        let is_end = newest.phase == api::metamorph::OperationPhase::Succeeded
            || has_begun(&report)
            || report.given_up.is_some();
        is_end.then_some(report)
    }

    /// A step that an agent has, or may have, of an operation that is withdrawn: nothing stops it, and neither power nor boot of its machine may change
    /// while it runs. Its end, or the agent's, is waited for, except for a host that is deleted.
    pub fn step_runs_on<T>(&self) -> Option<Verdict<T>> {
        let newest = self.journal.newest().filter(|newest| !newest.phase.is_final() && !self.context.deleting)?;
        let begun =
            newest.operation == OperationType::Steps && newest.status.steps_report.as_ref().is_some_and(ended_unknown);
        if !begun {
            return None;
        }
        let is_it = |id: &CommandId| id.operation == newest.id && id.step == Step::RunSteps.name();
        let given_to = Step::RunSteps.recorded(&newest.status).boot_id;
        let boot = newest.status.boot.as_ref().map(|boot| boot.generation);
        let may_run = match self.shared.hub.any_agent(self.uid()) {
            // Another process may have given it.
            None => {
                let was_here = boot.is_some_and(|boot| self.shared.hub.has_seen(self.uid(), boot));
                !was_here && self.live.since.elapsed() < self.patience_in_work()
            }
            Some(agent) => match &agent.state {
                AgentState::Running { command, .. } => is_it(command),
                // It was in the last answer: the next report tells whether it has begun. Of what another process has given, the agent's own list tells.
                AgentState::Idle => {
                    let is_its = given_to.as_ref() == Some(&agent.boot_id);
                    agent.given.as_ref().is_some_and(is_it) || is_its && agent.is_at_work(Some(self.live.since))
                }
                AgentState::Finished { .. } => false,
            },
        };
        let text = "a step that was given to the agent runs to its end, and none follows: it was withdrawn";
        may_run.then(|| Verdict::working(text, 15))
    }

    /// What has become of a withdrawn step, if its agent has told its end: nobody asks the agent again.
    pub fn withdrawn_steps(&self) -> Option<StepsReport> {
        let newest = self
            .journal
            .newest()
            .filter(|newest| newest.operation == OperationType::Steps && !newest.phase.is_final())?;
        let mut report = newest.status.steps_report.clone()?;
        let at = report.ran.iter().position(|ran| ran.result == StepResult::Begun)?;
        let attempt = Step::RunSteps.recorded(&newest.status).attempt;
        let (id, outcome) = self.shared.hub.reported_outcome(self.uid()).filter(|(id, _)| {
            id.operation == newest.id && id.step == Step::RunSteps.name() && Some(id.attempt) == attempt
        })?;
        match &outcome {
            AgentOutcome::StepRan { result } => note(&mut report, at, StepResult::Done, result),
            other => note(&mut report, at, result_of(other), &self.unexpected(&id, other).message),
        }
        Some(report)
    }

    async fn named_steps(&self, operation: &mut Operation, request: &StepsRequest) -> Outcome<StepsReport> {
        if let Some(failure) = self.lost_at_work(operation) {
            return Err(failure);
        }
        if operation.status().boot.as_ref().is_some_and(|boot| boot.retired) {
            // That its boot has ended may not have been recorded when it was noted: its agent is given nothing more.
            self.shared.hub.forget_agent(self.uid());
        }
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        let mut last = None;
        if operation.status().steps_report.is_none() {
            match self.run(operation, Step::ListSteps, &boot_id, Action::ListSteps).await? {
                Ran::Working(working) => return Ok(Verdict::Working(working)),
                Ran::Finished(id, AgentOutcome::StepsListed { steps, omitted, versions }) => {
                    if let Some(report) = self.listed(operation, request, &steps, (omitted, versions)).await? {
                        self.shared.hub.acknowledge(self.uid(), &id);
                        return Ok(Verdict::Done(report));
                    }
                    last = Some(id);
                }
                Ran::Finished(id, outcome) => return Err(self.unexpected(&id, &outcome)),
            }
        }
        self.run_each(operation, request, &boot_id, last).await
    }

    /// Takes in what the agent lists. Gives the report if that is all, or if what is asked for is not there.
    async fn listed(
        &self,
        operation: &mut Operation,
        request: &StepsRequest,
        steps: &[ListedStep],
        (omitted, versions): (u32, BTreeMap<String, String>),
    ) -> Result<Option<StepsReport>, Failure> {
        let mut fault = request
            .steps
            .iter()
            .find_map(|asked| not_offered(asked, steps, omitted))
            .or_else(|| too_many(request, steps));
        let ran = |asked: &AgentStep| RanStep {
            step: asked.step.clone(),
            interface: asked.interface.clone(),
            reboot_requested: found(asked, steps).is_some_and(|step| step.reboot_requested),
            ..RanStep::default()
        };
        let managers: Vec<_> = versions.into_iter().map(|(name, version)| HardwareManager { name, version }).collect();
        let mut report = StepsReport {
            managers: managers.clone(),
            offered: steps.iter().map(offered).collect(),
            omitted: (omitted > 0).then_some(omitted),
            ran: request.steps.iter().map(ran).collect(),
            given_up: fault.clone(),
        }
        .bounded();
        // The agent takes a step with the versions of all its hardware managers alone.
        if fault.is_none() && !request.steps.is_empty() && (managers.is_empty() || report.managers != managers) {
            fault = Some(UNKNOWN_VERSIONS.to_owned());
            report.given_up.clone_from(&fault);
            report = report.bounded();
        }
        let text = format!("{} steps are listed", steps.len());
        operation.set_steps(report.clone());
        done(operation, Step::ListSteps, &text)?;
        if let Some(why) = fault {
            let failure = Failure { retry: Retry::AfterChange, ..Failure::new(Cause::InvalidRequest, why) };
            operation.finish(Err(&failure.advise(ADVICE))).await.map_err(Failure::from)?;
            return Ok(Some(report));
        }
        if request.steps.is_empty() {
            succeed(operation, &text).await?;
            return Ok(Some(report));
        }
        Ok(None)
    }

    /// Runs what is still to be run. `last` is the order whose end is recorded with the next write.
    async fn run_each(
        &self,
        operation: &mut Operation,
        request: &StepsRequest,
        boot_id: &str,
        mut last: Option<CommandId>,
    ) -> Outcome<StepsReport> {
        let mut report = recorded(operation);
        while let Some(at) = report.ran.iter().position(|ran| ran.result != StepResult::Done) {
            let number = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
            let Some(asked) = request.steps.get(at) else { return Err(changed()) };
            if report.ran.get(at).is_none_or(|ran| ran.step != asked.step || ran.interface != asked.interface) {
                return Err(changed());
            }
            let before = Step::RunSteps.recorded(operation.status());
            if before.attempt != Some(number) {
                self.give(operation, &mut report, (at, number), boot_id).await?;
            } else if before.boot_id.as_deref() != Some(boot_id) {
                return Err(lost(&report, at));
            }
            if let Some(last) = last.take() {
                self.shared.hub.acknowledge(self.uid(), &last);
            }
            let order = self.order(asked, &report, &request.root_device_hints)?;
            match self.run(operation, Step::RunSteps, boot_id, Action::RunStep(Box::new(order))).await? {
                Ran::Working(working) => return Ok(Verdict::Working(working)),
                Ran::Finished(id, AgentOutcome::StepRan { result }) => {
                    note(&mut report, at, StepResult::Done, &result);
                    operation.set_steps(report.clone());
                    if report.ran.get(at).is_some_and(|ran| ran.reboot_requested) {
                        return self.boots_anew(operation, asked, &id).await;
                    }
                    last = Some(id);
                }
                Ran::Finished(id, outcome) => return self.failed_at(operation, (report, at), (&id, &outcome)).await,
            }
        }
        let text = format!("{} steps are done", report.ran.len());
        done(operation, Step::RunSteps, &text)?;
        succeed(operation, &text).await?;
        if let Some(last) = last {
            self.shared.hub.acknowledge(self.uid(), &last);
        }
        Ok(Verdict::Done(report))
    }

    /// Records that this step is about to be given to the agent of this boot, which is on the host's machine.
    async fn give(
        &self,
        operation: &mut Operation,
        report: &mut StepsReport,
        (at, number): (usize, u32),
        boot_id: &str,
    ) -> Result<(), Failure> {
        self.proven(Effect::Destroy).await?;
        let record = self.agent_proof(boot_id, true).await?;
        if record.accepted.is_some_and(|accepted| accepted.requires_mark) {
            return Err(not_yet_its_own("run steps of hardware managers"));
        }
        let before = report.clone();
        note(report, at, StepResult::Begun, "");
        operation.set_steps(report.clone());
        let intended = intend(operation, Step::RunSteps, number, Some(boot_id)).await;
        if intended.is_err() {
            operation.set_steps(before);
        }
        intended
    }

    fn order(&self, asked: &AgentStep, report: &StepsReport, named: &RootDeviceHints) -> Result<RunStep, Failure> {
        let args = asked
            .arguments()
            .map_err(|why| Failure::new(Cause::InvalidRequest, format!("run the step {}: {why}", asked.describe())))?;
        let versions = report.managers.iter().map(|manager| (manager.name.clone(), manager.version.clone()));
        Ok(RunStep {
            step: asked.step.clone(),
            interface: asked.interface.clone(),
            args,
            versions: versions.collect(),
            expected: self.disks_expected().0,
            named: named.clone(),
        })
    }

    /// The step wants the machine to be restarted: its end is recorded with that of the boot, so that no later process takes this boot's agent on.
    async fn boots_anew(&self, operation: &mut Operation, asked: &AgentStep, id: &CommandId) -> Outcome<StepsReport> {
        let text = format!("the step {} is done, and the machine is restarted after it", asked.describe());
        done(operation, Step::RunSteps, &text)?;
        self.boot_ends(operation);
        operation.record().await.map_err(Failure::from)?;
        self.shared.hub.acknowledge(self.uid(), id);
        self.shared.hub.forget_agent(self.uid());
        Ok(Verdict::working(text, 1))
    }

    /// A step has failed, or could not be begun.
    async fn failed_at(
        &self,
        operation: &mut Operation,
        (mut report, at): (StepsReport, usize),
        (id, outcome): (&CommandId, &AgentOutcome),
    ) -> Outcome<StepsReport> {
        let failure = self.unexpected(id, outcome);
        note(&mut report, at, result_of(outcome), &failure.message);
        operation.set_steps(report.clone());
        if !has_begun(&report) {
            // Nothing was done to the machine: it is tried again.
            return Err(failure);
        }
        operation.finish(Err(&failure.advise(ADVICE))).await.map_err(Failure::from)?;
        self.shared.hub.acknowledge(self.uid(), id);
        Ok(Verdict::Done(report))
    }

    /// Makes a failure the end once a step has been given to an agent: nothing begins the request anew then.
    async fn ended_if_begun(&self, operation: &mut Operation, result: Outcome<StepsReport>) -> Outcome<StepsReport> {
        let failure = match result {
            Ok(verdict) => {
                self.live.timers().between = None;
                return Ok(verdict);
            }
            Err(failure) => failure,
        };
        let mut report = recorded(operation);
        let waits = matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading)
            || matches!(failure.retry, Retry::Waiting | Retry::Held);
        if waits || !has_begun(&report) || operation.status().phase.is_final() {
            return Err(failure);
        }
        if !ended_unknown(&report) && matches!(failure.cause, Cause::BmcUnreachable | Cause::BmcBusy) {
            let since = *self.live.timers().between.get_or_insert_with(Instant::now);
            if since.elapsed() < BETWEEN {
                operation.waits(&failure).await;
                return Ok(Verdict::working(format!("between two steps: {}", failure.message), 30));
            }
        }
        self.live.timers().between = None;
        let is_all = report.ran.iter().all(|ran| ran.result == StepResult::Done);
        let which = if is_all { "all steps are done, and that the machine has come back was not seen: " } else { "" };
        report.given_up = Some(format!("{which}{}", failure.message));
        let report = report.bounded();
        operation.set_steps(report.clone());
        // What is told to be unknown is not begun after that.
        self.shared.hub.ends(self.uid(), &operation.id());
        self.live.timers().booted = None;
        operation.finish(Err(&failure)).await.map_err(Failure::from)?;
        Ok(Verdict::Done(report))
    }

    /// The agent is gone that a step was given to: the machine is not restarted for that, as nobody knows what the step is at.
    fn lost_at_work(&self, operation: &Operation) -> Option<Failure> {
        let report = recorded(operation);
        let at = report.ran.iter().position(|ran| ran.result != StepResult::Done)?;
        let step = Step::RunSteps.recorded(operation.status());
        let boot = operation.status().boot.as_ref()?;
        let is_given = step.attempt.and_then(|attempt| usize::try_from(attempt).ok()) == Some(at + 1)
            && step.boot_id.is_some()
            && step.boot_id == boot.boot_id;
        if !is_given || self.shared.hub.agent(self.uid(), boot.generation).is_some() {
            return None;
        }
        let was_here = self.shared.hub.has_seen(self.uid(), boot.generation);
        (was_here || self.live.since.elapsed() >= self.patience_in_work()).then(|| lost(&report, at))
    }

    /// How long an agent that an earlier process knew at work is waited for.
    fn patience_in_work(&self) -> Duration {
        self.shared.settings.timing.agent_silence * IN_WORK
    }
}

/// Notes what has become of the step.
fn note(report: &mut StepsReport, at: usize, result: StepResult, message: &str) {
    if let Some(ran) = report.ran.get_mut(at) {
        (ran.result, ran.message) = (result, message.to_owned());
    }
    *report = std::mem::take(report).bounded();
}

/// Where a step is whose order has ended so.
fn result_of(outcome: &AgentOutcome) -> StepResult {
    match outcome {
        AgentOutcome::StepRan { .. } => StepResult::Done,
        AgentOutcome::Failed(error) if error.untouched => StepResult::NotBegun,
        _ => StepResult::Failed,
    }
}

fn found<'a>(asked: &AgentStep, steps: &'a [ListedStep]) -> Option<&'a ListedStep> {
    steps.iter().find(|step| step.step == asked.step && step.interface == asked.interface)
}

fn offered(step: &ListedStep) -> OfferedStep {
    let arg = |arg: &ListedArgument| StepArgument {
        name: arg.name.clone(),
        description: arg.description.clone(),
        required: arg.required,
    };
    OfferedStep {
        step: step.step.clone(),
        interface: step.interface.clone(),
        manager: step.manager.clone(),
        priority: step.priority,
        reboot_requested: step.reboot_requested,
        abortable: step.abortable,
        args: step.args.as_ref().map(|args| args.iter().map(arg).collect()),
    }
}

/// Names, as many as a message has room for.
fn names<'a>(all: impl IntoIterator<Item = String> + 'a) -> String {
    let (mut text, mut more) = (String::new(), 0);
    for name in all {
        if text.len() + name.len() > MAX_NAMES {
            more += 1;
        } else if text.is_empty() {
            text = name;
        } else {
            text = format!("{text}, {name}");
        }
    }
    match more {
        0 if text.is_empty() => "none".to_owned(),
        0 => text,
        _ => format!("{text} and {more} more"),
    }
}

/// Why the agent does not have what is asked for, a sentence that names what it has.
fn not_offered(asked: &AgentStep, steps: &[ListedStep], omitted: u32) -> Option<String> {
    let name = asked.describe();
    let Some(step) = found(asked, steps) else {
        let all = names(steps.iter().map(|step| format!("{} ({})", step.step, step.interface)));
        if omitted > 0 {
            let count = steps.len();
            return Some(format!(
                "run the step {name}: it is not among the first {count} steps of the agent, and {omitted} more were not read; nothing was run"
            ));
        }
        return Some(format!("run the step {name}: the agent has no such step; nothing was run. It has: {all}"));
    };
    let args = asked.arguments().unwrap_or_default();
    let known = step.args.as_ref()?;
    if let Some(unknown) = args.keys().find(|name| !known.iter().any(|arg| arg.name == **name)) {
        let all = names(known.iter().map(|arg| arg.name.clone()));
        let unknown: String = unknown.chars().take(64).collect();
        return Some(format!("run the step {name}: it has no argument {unknown}; nothing was run. It has: {all}"));
    }
    let lacks = known.iter().find(|arg| arg.required && !args.contains_key(&arg.name))?;
    Some(format!("run the step {name}: it needs the argument {}; nothing was run", lacks.name))
}

/// Why so many restarts are not made for one request. An operation has so many boots, of which the first is not after a step.
fn too_many(request: &StepsRequest, steps: &[ListedStep]) -> Option<String> {
    let most = usize::try_from(MAX_BOOTS).unwrap_or(usize::MAX).saturating_sub(1);
    let asks = request.steps.iter().filter(|asked| found(asked, steps).is_some_and(|step| step.reboot_requested));
    let count = asks.count();
    (count > most).then(|| {
        format!("run {count} steps after which the machine is restarted: at most {most} are run for one request; nothing was run")
    })
}

/// Nobody knows what has become of a step.
fn lost(report: &StepsReport, at: usize) -> Failure {
    let name = report.ran.get(at).map(|ran| format!("{} ({})", ran.step, ran.interface)).unwrap_or_default();
    let text = format!(
        "run the step {name}: the agent that it was given to has gone silent; what has become of it is not known, and it is not given again"
    );
    Failure::new(Cause::AgentSilent, text).advise(ADVICE)
}

/// The request is not what it was when the agent's steps were compared with it.
fn changed() -> Failure {
    let text = "run steps of hardware managers: the request names others than it did when it was begun";
    Failure { retry: Retry::AfterChange, ..Failure::new(Cause::InvalidRequest, text) }.advise("create another request")
}
