//! Bringing the agent up on a machine: one boot from the medium, recorded before it happens.

use std::cmp::Ordering;

use agent_protocol::{AgentState, Outcome as AgentOutcome, PROTOCOL_VERSION};
use api::metamorph::{AgentBoot, OperationType, StepPhase};
use boot_media::{AgentKind, MediumError};
use provisioner::{Cause, Failure, Outcome, Verdict, Waiting, Working};
use provisioning_plan::boot::{self, Decision, Fact, Facts, MAX_BOOTS, Patience, Refusal};
use provisioning_plan::secure_boot::Proof;
use provisioning_plan::silence::LOOKED_INTO;
use provisioning_plan::steps::Step;
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::hub::{Agent, IN_WORK};
use crate::identity::Effect;
use crate::ipa;
use crate::journal::{Operation, StepProgress};
use crate::keys::FIRST_KEY;
use crate::media::Offered;
use crate::places::ASK_AGAIN;
use crate::record::{done, intend};
use crate::secure_boot::disproved;
use crate::unconfirmed::UNCONFIRMED;

impl NativeHost {
    /// Whether somebody insists on another boot with this call. What was made for earlier calls is no longer remembered when one does not.
    pub fn insists(&mut self, force_reboot: bool) {
        self.force_reboot = force_reboot;
        if !force_reboot {
            self.live.timers().forced = None;
        }
    }

    /// The recorded boot is the one that somebody insists on.
    fn is_forced_boot(&self, operation: &Operation) -> bool {
        let forced = self.live.timers().forced;
        forced.is_some() && forced == operation.generation()
    }

    /// The answer, which says whether the boot that somebody insists on is under way.
    pub fn forced<T>(&self, operation: &Operation, answer: Outcome<T>) -> Outcome<T> {
        let is_under_way = self.force_reboot && self.is_forced_boot(operation);
        answer.map(|verdict| match verdict {
            Verdict::Working(working) if is_under_way => Verdict::Working(Working { accepted: true, ..working }),
            other => other,
        })
    }

    /// The boot id of the living agent; boots the machine into the agent if there is none. [`boot::decide`] chooses each step.
    pub async fn ensure_agent(&self, operation: &mut Operation) -> Outcome<String> {
        let operation_boot = operation.status().boot.clone();
        if let Err(reason) = self.enter(operation_boot.is_some()) {
            return Ok(Verdict::Waiting(Waiting::Busy { reason, look_again: ASK_AGAIN }));
        }
        self.refuse_lost_key(operation_boot.as_ref())?;
        let recorded = operation_boot.clone().or_else(|| self.journal.latest_boot());
        // The reports of a boot whose key was removed cannot be verified any more.
        let verifiable = recorded.as_ref().filter(|boot| self.shared.settings.keys.of(boot).is_some());
        let agent = verifiable.and_then(|boot| self.shared.hub.agent(self.uid(), boot.generation));
        let (mut facts, mut medium) = (self.boot_facts(operation, recorded.as_ref(), agent.as_ref()), None);
        let timing = self.shared.settings.timing;
        let patience = Patience { reconnect: timing.reconnect, in_work: timing.agent_silence * IN_WORK };
        let decision = loop {
            match boot::decide(&facts, &patience) {
                Decision::AskPower => facts.power = Fact::Known(self.power_now().await),
                Decision::AskMedium => {
                    medium = operation_boot.as_ref().map(|boot| self.medium_of(boot)).transpose()?.flatten();
                    facts.medium = Fact::Known(medium.is_some());
                }
                decision => break decision,
            }
        };
        let timers = { self.live.timers().clone() };
        match (decision, recorded, agent) {
            (Decision::Use, Some(boot), Some(agent)) => self.use_agent(operation, &boot, &agent, facts.agent),
            (Decision::GoOnInserting, Some(boot), _) => {
                let since = timers.inserting.map_or_else(Instant::now, |(_, since)| since);
                self.go_on_inserting(operation, &boot, since).await
            }
            (Decision::AwaitBoot, Some(boot), _) => {
                let since = timers.booted.map_or_else(Instant::now, |(_, since)| since);
                self.wait_for_agent(operation, &boot, since).await
            }
            (Decision::AwaitReport, Some(boot), _) => self.wait_for_evidence(operation, &boot).await,
            (Decision::AwaitWorker, ..) => Ok(self.wait_for_worker(operation, patience.in_work).await),
            (Decision::BootRecorded, Some(boot), _) => match medium {
                Some(medium) => {
                    let (bmc, _) = self.proven(Effect::Boot).await?;
                    self.still_wanted().await?;
                    self.bring_up(operation, &boot, &medium, bmc).await
                }
                None => Err(undecided()),
            },
            (Decision::BootAnew { attempt, generation }, ..) => self.boot_anew(operation, attempt, generation).await,
            (Decision::Refuse(refusal), _, agent) => Err(refused(refusal, agent.as_ref())),
            (Decision::GiveUp, ..) => Err(given_up()),
            _ => Err(undecided()),
        }
    }

    /// Takes a place for the host among those that are worked on, or returns why there is none. Work that has `begun` goes on in any case.
    fn enter(&self, begun: bool) -> Result<(), String> {
        let (places, key) = (&self.shared.places, &self.context.key);
        let mut place = self.live.place();
        match &*place {
            Some(_) => places.keep(key),
            None => *place = Some(if begun { places.take_over(key) } else { places.enter(key)? }),
        }
        Ok(())
    }

    /// The facts for [`boot::decide`], except those gathered on request.
    fn boot_facts(&self, operation: &Operation, recorded: Option<&AgentBoot>, agent: Option<&Agent>) -> Facts {
        let status = operation.status();
        let (hub, journal) = (&self.shared.hub, &self.journal);
        let step = Step::BootAgent.recorded(status);
        let (inserting, booted, disproved) = {
            let timers = self.live.timers();
            (timers.inserting, timers.booted, timers.disproved.clone())
        };
        let is_in_work = recorded.is_some_and(|boot| boot::in_work(status, boot));
        // One of the other kind, of a boot before the server's image was another, understands other orders.
        let is_other = |agent: &Agent| agent.kind != self.shared.media.images().agent();
        let agent = agent.map(|agent| boot::Agent {
            work: match &agent.state {
                // Its own list shows what no report to this process names: what this operation was given by another is under way.
                AgentState::Idle if agent.is_at_work(None) && is_in_work => boot::Work::Own,
                AgentState::Idle => boot::Work::Idle,
                AgentState::Running { command, .. } if command.operation != operation.id() => boot::Work::Other,
                AgentState::Running { .. } => boot::Work::Own,
                AgentState::Finished { command, .. } if command.operation == operation.id() => boot::Work::Ended,
                // It hears nothing more but that it may leave, for a system that is not wanted any more.
                AgentState::Finished { outcome: AgentOutcome::Leaving, .. } => boot::Work::Other,
                // The result of earlier work is no sign that it understands what comes next.
                AgentState::Finished { .. } if agent.protocol != PROTOCOL_VERSION || is_other(agent) => {
                    boot::Work::Idle
                }
                AgentState::Finished { .. } => boot::Work::Ended,
            },
            protocol: match agent.protocol.cmp(&PROTOCOL_VERSION) {
                Ordering::Less => boot::Protocol::Older,
                Ordering::Equal => boot::Protocol::Same,
                Ordering::Greater => boot::Protocol::Newer,
            },
            names_machine: agent.machine.is_some(),
            disproved: disproved.as_ref() == Some(&agent.boot_id) || is_other(agent),
            secure_boot: self.secure_boot_proof(operation, agent, status.boot.is_some()),
        });
        let keyless = recorded.is_some_and(|boot| self.shared.settings.keys.of(boot).is_none());
        Facts {
            current: status.boot.as_ref().map(boot::Boot::from),
            latest: journal.latest_boot().as_ref().map(boot::Boot::from),
            agent,
            phase: step.phase,
            attempts: step.attempt.unwrap_or(0),
            inserting: inserting.map(|(generation, _)| generation),
            booted: booted.map(|(generation, _)| generation).filter(|_| !keyless),
            seen: keyless || recorded.is_some_and(|boot| hub.has_seen(self.uid(), boot.generation)),
            provisioned: journal.newest().is_some_and(|newest| newest.succeeded(OperationType::Provision)),
            known_generation: hub.newest_generation(self.uid()),
            waited: self.live.since.elapsed(),
            in_work: is_in_work,
            power: Fact::Unasked,
            medium: Fact::Unasked,
            forced: self.force_reboot && !self.is_forced_boot(operation),
        }
    }

    /// Gives the agent that was at work time to report, and shows that in the operation.
    async fn wait_for_worker(&self, operation: &mut Operation, patience: Duration) -> Verdict<String> {
        let left = patience.saturating_sub(self.live.since.elapsed()).as_secs();
        let message = format!(
            "waiting for the agent that was at work before this server started: it has not reported; the machine is on, and is booted anew if it stays silent for {left} s more"
        );
        let running = operation.status().steps.iter().rev().find(|step| step.phase == StepPhase::Running);
        if let Some(name) = running.map(|step| step.name.clone()) {
            operation.progress(&name, StepProgress { message: message.clone(), ..StepProgress::default() }).await;
        }
        Verdict::working(message, 10)
    }

    /// Whether the machine is on, if the BMC reports it.
    async fn power_now(&self) -> Option<bool> {
        self.proven(Effect::Look).await.ok().and_then(|(_, sight)| sight.powered_on)
    }

    /// Uses the living agent for this operation from now on.
    fn use_agent(
        &self,
        operation: &mut Operation,
        boot: &AgentBoot,
        agent: &Agent,
        judged: Option<boot::Agent>,
    ) -> Outcome<String> {
        if agent.given.as_ref().is_some_and(|given| given.operation != operation.id()) {
            // It may have begun work that is no longer wanted, which its next report shows. If it has not, it must not.
            self.shared.hub.withdraw(self.uid(), &operation.id());
            return Ok(Verdict::working("waiting for the agent to say whether it has begun with other work", 1));
        }
        if judged.is_some_and(|judged| judged.secure_boot == Proof::Tolerated) {
            tracing::warn!(host = %self.context.key.name, "Secure Boot is on, though spec.bootMode is UEFI, and the BMC does not show it");
        }
        self.live.timers().booted = None;
        // It runs from memory: the medium is no longer needed, and contains its token.
        self.shared.media.withdraw(self.uid());
        let bound = AgentBoot {
            generation: boot.generation,
            boot_id: Some(agent.boot_id.clone()),
            medium: boot.medium.clone(),
            key_digest: agent.key_digest.clone(),
            retired: false,
            key: boot.key,
        };
        if operation.status().boot.as_ref() != Some(&bound) {
            operation.set_boot(bound);
        }
        if Step::BootAgent.recorded(operation.status()).phase != StepPhase::Done {
            done(operation, Step::BootAgent, "the agent has reported in")?;
        }
        Ok(Verdict::Done(agent.boot_id.clone()))
    }

    /// A boot of a new generation, recorded with its medium before anything happens.
    async fn boot_anew(&self, operation: &mut Operation, attempt: u32, generation: u64) -> Outcome<String> {
        // Connect before the intent is recorded, so that the session's address is recorded with it.
        let (bmc, _) = self.proven(Effect::Boot).await?;
        Self::account(operation, bmc.as_ref(), bmc.calls());
        // Report what the BMC lacks before doing anything that takes time.
        bmc.virtual_media().map_err(of_bmc)?;
        bmc.boot_device().map_err(of_bmc)?;
        let architecture = self.architecture_to_boot(bmc.as_ref()).await?;
        if let Some(waiting) = self.switch_secure_boot(operation, bmc.as_ref(), Effect::Boot).await? {
            return Ok(waiting);
        }
        if let Some(working) = self.live_medium_out(bmc.as_ref()).await? {
            return Ok(Verdict::Working(working));
        }
        let network = self.agent_network.as_ref();
        self.refuse_unbootable()?;
        let root = self.shared.settings.keys.current();
        let wanted = (generation, architecture);
        let medium = self.shared.media.offer(&self.place(&root), wanted, network).map_err(|e| not_composed(&e))?;
        let medium = medium.ok_or_else(undecided)?;
        let (digest, key) = (Some(medium.digest.clone()), root.recorded());
        let boot = AgentBoot { generation, medium: digest, key, ..AgentBoot::default() };
        operation.set_boot(boot.clone());
        intend(operation, Step::BootAgent, attempt, None).await?;
        if self.force_reboot {
            self.live.timers().forced = Some(generation);
        }
        // Until here the key was in hand: it is not deleted before the boot that is derived from it is recorded.
        drop(root);
        self.bring_up(operation, &boot, &medium, bmc).await
    }

    /// Fails if the agent of the server's image could not be reached, or not reach the server, after a boot.
    fn refuse_unbootable(&self) -> Result<(), Failure> {
        if self.shared.media.images().agent() == AgentKind::Metamorph {
            return Ok(());
        }
        if self.agent_network.is_some() {
            let text = "boot the agent: spec.preprovisioningNetworkDataName is set, and the ramdisk with ironic-python-agent of this server uses DHCP only";
            return Err(Failure::new(Cause::NotServed, text)
                .advise("remove it, or have this server boot its own agent (--agent-image)"));
        }
        match ipa::config::unreachable(&self.bases.agents) {
            None => Ok(()),
            Some(why) => Err(Failure::new(Cause::NotServed, format!("boot the agent: {why}"))
                .advise("give one with an IP address (--agent-host)")),
        }
    }

    /// Offers the medium that is recorded for this boot again; `None` if it can no longer be made: one of its inputs has changed, its key was
    /// removed, or the record is from before media were recorded.
    pub fn medium_of(&self, boot: &AgentBoot) -> Result<Option<Offered>, Failure> {
        let root = self.shared.settings.keys.of(boot);
        let (Some(digest), Some(root)) = (&boot.medium, root) else { return Ok(None) };
        let network = self.agent_network.as_ref();
        let again = self.shared.media.offer_again(&self.place(&root), boot.generation, digest, network);
        again.map_err(|e| not_composed(&e))
    }

    /// Fails if the key of this operation's boot was removed: the boot cannot go on, and the next operation boots anew.
    fn refuse_lost_key(&self, recorded: Option<&AgentBoot>) -> Result<(), Failure> {
        let Some(boot) = recorded.filter(|boot| self.shared.settings.keys.of(boot).is_none()) else { return Ok(()) };
        self.shared.media.withdraw(self.uid());
        let (generation, number) = (boot.generation, boot.key.unwrap_or(FIRST_KEY));
        let text = format!(
            "go on with boot {generation} of the agent: key {number}, which it was derived from, has been removed"
        );
        Err(Failure::new(Cause::KeyRemoved, text)
            .advise("the machine is booted anew with the present key; to rotate without that, leave earlier keys until the server removes them"))
    }

    /// After a restart of this process: an agent that was there, or a boot under way, shows itself soon, by a report or by
    /// reading the medium.
    async fn wait_for_evidence(&self, operation: &mut Operation, boot: &AgentBoot) -> Outcome<String> {
        self.shared.hub.expect(self.key(), Some(boot));
        // An agent that has reported needs no medium. If the medium is gone, the machine may have read enough of it: only the agent can show that.
        let offered = boot.boot_id.is_none() && self.medium_of(boot)?.is_some();
        if offered && self.shared.media.reads(self.uid()).bytes > 0 {
            let mut timers = self.live.timers();
            (timers.booted, timers.unanswered) = (Some((boot.generation, Instant::now())), None);
        }
        let message = "waiting for the agent that was on the machine before; it is booted anew if nobody reports";
        let progress = StepProgress { message: message.to_owned(), ..StepProgress::default() };
        operation.progress(Step::BootAgent.name(), progress).await;
        Ok(Verdict::working(message, 1))
    }

    async fn wait_for_agent(&self, operation: &mut Operation, boot: &AgentBoot, since: Instant) -> Outcome<String> {
        let limit = self.shared.settings.timing.agent_boot;
        let waited = since.elapsed();
        if waited >= limit {
            return self.silent(operation, boot, limit).await;
        }
        let (unanswered, before) = {
            let timers = self.live.timers();
            (timers.unanswered.clone(), timers.read_before.bytes)
        };
        let read = self.shared.media.reads(self.uid()).bytes;
        let is_seen = read.saturating_sub(before) >= LOOKED_INTO;
        let mut words = String::new();
        if let Some(said) = unanswered.filter(|_| !is_seen) {
            words = format!("the reset was not confirmed ({said}); ");
            if waited >= UNCONFIRMED {
                words += &self.look_for_reset(operation, boot, &said).await?;
            }
        }
        let message = format!("waiting for the agent; {words}the BMC has read {} of the medium", amount(read));
        let left = (limit - waited).as_secs() + 1;
        operation
            .progress(Step::BootAgent.name(), StepProgress { message: message.clone(), ..StepProgress::default() })
            .await;
        Ok(Verdict::working(message, left.min(15)))
    }
}

/// Why no work is given, when another boot would not help.
fn refused(refusal: Refusal, agent: Option<&Agent>) -> Failure {
    match refusal {
        Refusal::SecureBoot(proof) => disproved(proof, agent),
        Refusal::OldImage => Failure::new(
            Cause::Internal,
            format!(
                "give the agent work: the one that was booted speaks protocol {}, this server gives work to those of {PROTOCOL_VERSION}",
                agent.map_or(0, |agent| agent.protocol)
            ),
        )
        .advise("build the agent image with this version's `metamorph agent-image build`, and start the server with it (--agent-image)"),
        Refusal::NoGeneration => {
            Failure::new(Cause::Internal, "boot the agent: its operations record the last boot generation that there is")
                .advise("somebody has changed a HostOperation of this host: delete those that have ended; it is tried again")
        }
    }
}

fn given_up() -> Failure {
    Failure::new(
        Cause::HardwareFailed,
        format!("keep the agent running: it was booted {MAX_BOOTS} times for this operation (restarts after steps are among them) and is silent again"),
    )
    .advise("look at the machine's console and memory; it is tried again")
}

/// A decision without its subject: a fault of this program, not of the machine.
fn undecided() -> Failure {
    Failure::new(Cause::Internal, "boot the agent: what was decided does not fit what is known")
        .advise("it is decided again")
}

fn not_composed(error: &MediumError) -> Failure {
    Failure::new(Cause::InvalidRequest, format!("compose the boot medium: {error}"))
}

/// Bytes as people read them.
pub fn amount(bytes: u64) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes.div_ceil(1000)) } else { format!("{} MB", bytes / 1_000_000) }
}
