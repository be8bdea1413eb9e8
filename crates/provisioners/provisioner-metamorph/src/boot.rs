//! Bringing the agent up on a machine: one boot from the medium, recorded before it happens.

use agent_protocol::AgentState;
use api::metamorph::{AgentBoot, OperationStep, OperationType, StepPhase};
use provisioner::{Cause, Failure, Operation, Outcome, StepProgress, Verdict};
use tokio::time::Instant;

use crate::control::{ControlError, ControlErrorKind, PowerAction};
use crate::failures::of_journal;
use crate::host::NativeHost;
use crate::identity::Effect;

/// Name of the step.
pub const BOOT_AGENT: &str = "boot-agent";

/// Most boots for one operation: a machine that loses its agent so often has a fault of its own.
const MAX_BOOTS: u32 = 3;

/// The recorded step.
pub fn step_of(operation: &dyn Operation, name: &str) -> OperationStep {
    operation.status().steps.iter().find(|s| s.name == name).cloned().unwrap_or_default()
}

/// The agent works on something that is not wanted any more (an image that is being written while the host is deprovisioned). It
/// cannot be stopped but by a boot, which is the proof that it has stopped.
fn busy_with_other_work(state: &AgentState, operation: &str) -> bool {
    matches!(state, AgentState::Running { command, .. } if command.operation != operation)
}

impl NativeHost {
    /// The boot id of the living agent; boots the machine into the agent if there is none.
    pub async fn ensure_agent(&self, operation: &mut dyn Operation) -> Outcome<String> {
        let own = operation.status().boot.clone();
        let recorded = own.clone().or_else(|| self.context.journal.latest_boot());
        if let Some(boot) = &recorded
            && let Some(agent) = self.shared.hub.agent(self.uid(), boot.generation)
            && !busy_with_other_work(&agent.state, &operation.id())
            && self.may_be_asked(&agent)
        {
            self.live.timers().booted = None;
            if own.as_ref().and_then(|b| b.boot_id.as_ref()) != Some(&agent.boot_id) {
                let boot = AgentBoot { generation: boot.generation, boot_id: Some(agent.boot_id.clone()) };
                operation.set_boot(boot);
            }
            if step_of(operation, BOOT_AGENT).phase != StepPhase::Done {
                operation.done(BOOT_AGENT, "the agent has reported in");
            }
            return Ok(Verdict::Done(agent.boot_id));
        }
        let step = step_of(operation, BOOT_AGENT);
        let begun = step.phase == StepPhase::Running && own.as_ref().is_some_and(|b| b.boot_id.is_none());
        // An agent that this process has seen and that is not there any more will not come back by itself.
        let lost = recorded.as_ref().is_some_and(|b| self.shared.hub.has_seen(self.uid(), b.generation));
        // One that wrote a system has left for it.
        let left =
            own.is_none() && self.context.journal.newest().is_some_and(|n| n.succeeded(OperationType::Provision));
        let reconnecting = !lost && !left && self.live.since.elapsed() < self.shared.settings.timing.reconnect;
        let booted = self.live.timers().booted;
        if let (Some(boot), Some((generation, at))) = (&recorded, booted)
            && boot.generation == generation
        {
            return self.wait_for_agent(operation, at).await;
        }
        if let Some(boot) = recorded.as_ref().filter(|b| reconnecting && (begun || b.boot_id.is_some())) {
            return self.wait_for_evidence(boot);
        }
        if let Some(boot) = own.filter(|_| begun) {
            // Recorded by a process that died before or after the reset: asked for once more, under the same address.
            let (bmc, _) = self.proven(Effect::Boot).await?;
            self.boot_machine(operation, bmc.as_ref(), boot.generation).await?;
            return Ok(Verdict::working("booting the agent", 30));
        }
        let attempt = step.attempt.unwrap_or(0) + 1;
        if attempt > MAX_BOOTS {
            return Err(Failure::new(
                Cause::HardwareFailed,
                format!("keep the agent running: it was booted {MAX_BOOTS} times for this operation and fell silent each time"),
            )
            .advise("look at the machine's console and memory; it is tried again"));
        }
        // Reached before the intent is recorded, so that the session's address is recorded with it.
        let (bmc, _) = self.proven(Effect::Boot).await?;
        Self::account(operation, bmc.as_ref(), bmc.calls());
        let generation = recorded.map_or(0, |b| b.generation) + 1;
        operation.set_boot(AgentBoot { generation, boot_id: None });
        operation.intent(BOOT_AGENT, attempt, None).await.map_err(|e| of_journal(&e))?;
        self.boot_machine(operation, bmc.as_ref(), generation).await?;
        Ok(Verdict::working("booting the agent", 30))
    }

    /// An agent with nothing to do counts when it says on which machine it runs (those of earlier versions do not), and has not failed to prove
    /// that it is this host's.
    fn may_be_asked(&self, agent: &crate::hub::Agent) -> bool {
        let idle = agent.state == AgentState::Idle;
        let disproved = self.live.timers().disproved.as_ref() == Some(&agent.boot_id);
        !idle || (agent.machine.is_some() && !disproved)
    }

    /// After a restart of this process: an agent that was there, or a boot under way, shows itself soon, by a report or by
    /// reading the medium.
    fn wait_for_evidence(&self, boot: &AgentBoot) -> Outcome<String> {
        let (shared, key) = (&self.shared, &self.context.key);
        shared.hub.expect(key, Some(boot.generation));
        shared
            .media
            .offer(&shared.settings, key, boot.generation, self.context.agent_network.as_ref())
            .map_err(|e| Failure::new(Cause::InvalidRequest, format!("compose the boot medium: {e}")))?;
        if shared.media.served(self.uid()).is_some_and(|bytes| bytes > 0) {
            self.live.timers().booted = Some((boot.generation, Instant::now()));
        }
        Ok(Verdict::working("waiting for the agent that was there before this server started", 1))
    }

    async fn wait_for_agent(&self, operation: &mut dyn Operation, since: Instant) -> Outcome<String> {
        let limit = self.shared.settings.timing.agent_boot;
        let served = self.shared.media.served(self.uid()).unwrap_or(0);
        if since.elapsed() >= limit {
            self.live.timers().booted = None;
            return Err(self.silent(served, limit.as_secs()));
        }
        let unanswered = if self.live.timers().unanswered { " (its answer to the reset was lost)" } else { "" };
        let message = format!("waiting for the agent; the BMC{unanswered} has read {} of the medium", amount(served));
        let left = (limit - since.elapsed()).as_secs() + 1;
        operation.progress(BOOT_AGENT, StepProgress { message: message.clone(), ..StepProgress::default() }).await;
        Ok(Verdict::working(message, left.min(15)))
    }

    fn silent(&self, served: u64, seconds: u64) -> Failure {
        let found = format!("boot the agent: {seconds} s after the reset it has not reported");
        let settings = &self.shared.settings;
        // Many BMCs look into a medium when it is inserted: that is no boot from it.
        let read = served.saturating_sub(self.live.timers().read_before);
        if read == 0 {
            let text = format!("{found}, and nothing has read the medium at {} since", settings.media_base);
            return Failure::new(Cause::AgentSilent, text)
                .advise("check that the BMC reaches that address, and that the machine's boot order allows virtual media; it is tried again");
        }
        let text = format!("{found}, though {} of the medium have been read", amount(read));
        Failure::new(Cause::AgentSilent, text).advise(format!(
            "look at the machine's console; its network must reach {} (spec.preprovisioningNetworkDataName, or DHCP); it is tried again",
            settings.agent_bases.join(" or ")
        ))
    }

    /// Medium in, boot from it once, reset.
    async fn boot_machine(
        &self,
        operation: &mut dyn Operation,
        bmc: &dyn crate::BmcControl,
        generation: u64,
    ) -> Result<(), Failure> {
        let before = bmc.calls();
        let result = self.boot_machine_calls(bmc, generation).await;
        Self::account(operation, bmc, before);
        result
    }

    async fn boot_machine_calls(&self, bmc: &dyn crate::BmcControl, generation: u64) -> Result<(), Failure> {
        let shared = &self.shared;
        shared.hub.expect(&self.context.key, Some(generation));
        let url = shared
            .media
            .offer(&shared.settings, &self.context.key, generation, self.context.agent_network.as_ref())
            .map_err(|e| Failure::new(Cause::InvalidRequest, format!("compose the boot medium: {e}")))?;
        self.live.timers().ejected = false;
        bmc.insert(&url).await.map_err(|error| self.not_inserted(error))?;
        if self.context.boot_mode == api::metal3::BootMode::UefiSecureBoot {
            bmc.set_secure_boot(true).await?;
        }
        bmc.boot_once_from_medium().await?;
        self.live.timers().read_before = shared.media.served(self.uid()).unwrap_or(0);
        let unanswered = match bmc.power(PowerAction::Restart).await {
            // Whether the machine boots is seen soon, and a second reset would undo it.
            Err(error) if error.kind == ControlErrorKind::Unanswered => {
                tracing::warn!(host = %self.context.key.name, "{error}; waiting for the agent all the same");
                true
            }
            other => other.map(|()| false)?,
        };
        let mut timers = self.live.timers();
        timers.booted = Some((generation, Instant::now()));
        timers.power = Some(true);
        timers.unanswered = unanswered;
        Ok(())
    }

    /// A BMC that refuses a medium has often tried to read it first.
    fn not_inserted(&self, error: ControlError) -> Failure {
        let refused = error.kind == ControlErrorKind::Refused;
        let failure = Failure::from(error);
        if !refused {
            return failure;
        }
        let reach = format!("check that the BMC reaches {}", self.shared.settings.media_base);
        let advice = failure.advice.as_ref().map_or_else(|| reach.clone(), |advice| format!("{reach}; {advice}"));
        failure.advise(advice)
    }
}

/// Bytes as people read them.
fn amount(bytes: u64) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes.div_ceil(1000)) } else { format!("{} MB", bytes / 1_000_000) }
}
