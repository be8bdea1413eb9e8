//! Bringing the agent up on a machine: one boot from the medium, recorded before it happens.

use agent_protocol::{AgentState, PROTOCOL_VERSION};
use api::metamorph::{AgentBoot, OperationStep, OperationType, StepPhase};
use boot_media::MediumError;
use provisioner::{Cause, Failure, Outcome, Verdict};
use tokio::time::Instant;

use crate::host::NativeHost;
use crate::hub::IN_WORK;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::media::Offered;

/// Name of the step.
pub const BOOT_AGENT: &str = "boot-agent";

/// Most boots for one operation: a machine that loses its agent so often has a fault of its own.
const MAX_BOOTS: u32 = 3;

/// The recorded step.
pub fn step_of(operation: &Operation, name: &str) -> OperationStep {
    operation.status().steps.iter().find(|s| s.name == name).cloned().unwrap_or_default()
}

/// The agent works on something that is not wanted any more (an image that is being written while the host is deprovisioned). It
/// cannot be stopped but by a boot, which is the proof that it has stopped.
fn busy_with_other_work(state: &AgentState, operation: &str) -> bool {
    matches!(state, AgentState::Running { command, .. } if command.operation != operation)
}

impl NativeHost {
    /// The boot id of the living agent; boots the machine into the agent if there is none.
    pub async fn ensure_agent(&self, operation: &mut Operation) -> Outcome<String> {
        let own = operation.status().boot.clone();
        let recorded = own.clone().or_else(|| self.journal.latest_boot());
        if let Some(boot) = &recorded
            && let Some(agent) = self.shared.hub.agent(self.uid(), boot.generation)
            && !busy_with_other_work(&agent.state, &operation.id())
            && self.may_be_asked(&agent)
            && self.proves_secure_boot(operation, &agent, own.is_some())?
        {
            self.live.timers().booted = None;
            // It runs from memory: what brought it up is no longer needed, and names its token.
            self.shared.media.withdraw(self.uid());
            let bound = AgentBoot {
                generation: boot.generation,
                boot_id: Some(agent.boot_id.clone()),
                medium: boot.medium.clone(),
                key_digest: agent.key_digest.clone(),
                retired: false,
            };
            if own.as_ref() != Some(&bound) {
                operation.set_boot(bound);
            }
            if step_of(operation, BOOT_AGENT).phase != StepPhase::Done {
                operation.done(BOOT_AGENT, "the agent has reported in");
            }
            return Ok(Verdict::Done(agent.boot_id));
        }
        self.refuse_old_image(own.as_ref())?;
        let step = step_of(operation, BOOT_AGENT);
        let begun = step.phase == StepPhase::Running && own.as_ref().is_some_and(|b| b.boot_id.is_none());
        let inserting = self.live.timers().inserting;
        if let (Some(boot), Some((generation, since))) = (own.as_ref().filter(|_| begun), inserting)
            && boot.generation == generation
        {
            return self.go_on_inserting(operation, boot, since).await;
        }
        // An agent that this process has seen and that is not there any more will not come back by itself.
        let lost = recorded.as_ref().is_some_and(|b| self.shared.hub.has_seen(self.uid(), b.generation));
        // One that wrote a system has left for it.
        let left = own.is_none() && self.journal.newest().is_some_and(|n| n.succeeded(OperationType::Provision));
        let booted = self.live.timers().booted;
        if let (Some(boot), Some((generation, at))) = (&recorded, booted)
            && boot.generation == generation
        {
            return self.wait_for_agent(operation, boot, at).await;
        }
        let may_return = |boot: &&AgentBoot| !lost && !left && !boot.retired && (begun || boot.boot_id.is_some());
        if let Some(boot) = recorded.as_ref().filter(may_return)
            && let Some(waiting) = self.reconnecting(operation, boot).await?
        {
            return Ok(waiting);
        }
        // One whose agent has been seen is that boot's: another needs a generation of its own.
        if let Some(boot) = own.filter(|_| begun && !lost)
            && let Some(medium) = self.medium_of(&boot)?
        {
            // Recorded by a process that died before or after the reset: asked for once more, under the same address.
            let (bmc, _) = self.proven(Effect::Boot).await?;
            return self.bring_up(operation, &boot, &medium, bmc).await;
        }
        let known = self.shared.hub.newest_generation(self.uid());
        let generation = recorded.map_or(0, |b| b.generation).max(known) + 1;
        self.boot_anew(operation, step.attempt.unwrap_or(0) + 1, generation).await
    }

    /// A boot of a new generation, recorded with its medium before anything happens.
    async fn boot_anew(&self, operation: &mut Operation, attempt: u32, generation: u64) -> Outcome<String> {
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
        if let Some(waiting) = self.switch_secure_boot(operation, bmc.as_ref()).await? {
            return Ok(waiting);
        }
        let network = self.agent_network.as_ref();
        let medium = self.shared.media.offer(&self.place(), generation, network).map_err(|e| not_composed(&e))?;
        let boot = AgentBoot { generation, medium: Some(medium.digest.clone()), ..AgentBoot::default() };
        operation.set_boot(boot.clone());
        operation.intent(BOOT_AGENT, attempt, None).await?;
        self.bring_up(operation, &boot, &medium, bmc).await
    }

    /// The medium that is recorded for this boot, on offer again; `None` if it can no longer be made: something that goes into it is
    /// another than it was, or the record is from before media were recorded.
    pub fn medium_of(&self, boot: &AgentBoot) -> Result<Option<Offered>, Failure> {
        let Some(digest) = &boot.medium else { return Ok(None) };
        let network = self.agent_network.as_ref();
        let again = self.shared.media.offer_again(&self.place(), boot.generation, digest, network);
        again.map_err(|e| not_composed(&e))
    }

    /// An agent with nothing to do counts when it is of this version (an older one brings its work to its end, and gets no new one), says on which
    /// machine it runs, and has not failed to prove that it is this host's.
    fn may_be_asked(&self, agent: &crate::hub::Agent) -> bool {
        let idle = agent.state == AgentState::Idle;
        let disproved = self.live.timers().disproved.as_ref() == Some(&agent.boot_id);
        !idle || (agent.machine.is_some() && agent.protocol == PROTOCOL_VERSION && !disproved)
    }

    /// An agent that was booted for this operation and is older than this server comes from an old image: booting it again changes nothing.
    fn refuse_old_image(&self, own: Option<&AgentBoot>) -> Result<(), Failure> {
        let Some(boot) = own.filter(|boot| boot.boot_id.is_none()) else { return Ok(()) };
        match self.shared.hub.agent(self.uid(), boot.generation) {
            Some(agent) if agent.protocol < PROTOCOL_VERSION => Err(Failure::new(
                Cause::Internal,
                format!(
                    "give the agent work: the one that was booted speaks protocol {}, this server gives work to those of {PROTOCOL_VERSION}",
                    agent.protocol
                ),
            )
            .advise("build the agent image with this version's `metamorph agent-image build`, and start the server with it (--agent-image)")),
            _ => Ok(()),
        }
    }

    /// After a restart of this process: whether there is still hope for the agent of this boot. One that had work gets as long as it would have got
    /// from a process that knew it, unless the machine is seen to be off: a reset in the middle of its work costs more than waiting.
    async fn reconnecting(
        &self,
        operation: &mut Operation,
        boot: &AgentBoot,
    ) -> Result<Option<Verdict<String>>, Failure> {
        let timing = self.shared.settings.timing;
        let waited = self.live.since.elapsed();
        if waited < timing.reconnect {
            return self.wait_for_evidence(boot).map(Some);
        }
        let given = |step: &OperationStep| {
            step.phase == StepPhase::Running && step.boot_id.is_some() && step.boot_id == boot.boot_id
        };
        let in_work = operation.status().steps.iter().any(given);
        if !in_work || waited >= timing.agent_silence * IN_WORK {
            return Ok(None);
        }
        // A BMC that cannot be asked says nothing against it.
        let off = matches!(self.proven(Effect::Look).await, Ok((_, sight)) if sight.powered_on == Some(false));
        let waiting = "waiting for the agent that was at work before this server started";
        Ok((!off).then(|| Verdict::working(waiting, 10)))
    }

    /// After a restart of this process: an agent that was there, or a boot under way, shows itself soon, by a report or by
    /// reading the medium.
    fn wait_for_evidence(&self, boot: &AgentBoot) -> Result<Verdict<String>, Failure> {
        self.shared.hub.expect(self.key(), Some(boot));
        // An agent that has reported needs no medium. Without its medium the machine may still have read enough of it: only the agent can tell.
        let offered = boot.boot_id.is_none() && self.medium_of(boot)?.is_some();
        if offered && self.shared.media.reads(self.uid()).bytes > 0 {
            self.live.timers().booted = Some((boot.generation, Instant::now()));
        }
        Ok(Verdict::working("waiting for the agent that was there before this server started", 1))
    }

    async fn wait_for_agent(&self, operation: &mut Operation, boot: &AgentBoot, since: Instant) -> Outcome<String> {
        let limit = self.shared.settings.timing.agent_boot;
        if since.elapsed() >= limit {
            return self.silent(operation, boot, limit).await;
        }
        let unanswered = if self.live.timers().unanswered { " (its answer to the reset was lost)" } else { "" };
        let read = self.shared.media.reads(self.uid()).bytes;
        let message = format!("waiting for the agent; the BMC{unanswered} has read {} of the medium", amount(read));
        let left = (limit - since.elapsed()).as_secs() + 1;
        operation.progress(BOOT_AGENT, StepProgress { message: message.clone(), ..StepProgress::default() }).await;
        Ok(Verdict::working(message, left.min(15)))
    }
}

fn not_composed(error: &MediumError) -> Failure {
    Failure::new(Cause::InvalidRequest, format!("compose the boot medium: {error}"))
}

/// Bytes as people read them.
pub fn amount(bytes: u64) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes.div_ceil(1000)) } else { format!("{} MB", bytes / 1_000_000) }
}
