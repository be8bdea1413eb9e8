//! Registration, adoption and release.

use agent_protocol::AgentState;
use api::metamorph::{OperationPhase, StepPhase};
use async_trait::async_trait;
use bmc::{Bmc, Sight};
use provisioner::in_use::held;
use provisioner::{
    AdoptRequest, Cause, Failure, HealthState, Manage, Outcome, Purpose, RegisterRequest, Registered, ReleaseRequest,
    Verdict, Working,
};
use provisioning_plan::in_use::{Facts, Found, Recorded, found};
use provisioning_plan::steps::Step;

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::{Effect, common_of};

#[async_trait]
impl Manage for NativeHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        if request.credentials_changed {
            self.live.close().await;
        }
        let consent = request.overwrite_owner.clone();
        self.begins = request.asks_for.is_some().then(|| consent.clone());
        let known = match &self.begins {
            Some(_) => self.context.machine.recorded().await?.is_some_and(|record| record.bmc.is_some()),
            None => false,
        };
        self.no_other_master().await?;
        let (connected, sight) = self.proven(Effect::Look).await?;
        self.health = Some(HealthState { level: sight.health, power_failure: false });
        let (has, lacks) = bmc::capabilities(connected.as_ref());
        let has = has.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(", ");
        tracing::info!(host = %self.context.key.name, model = %sight.model, has, "BMC access checked");
        for lacking in lacks {
            tracing::info!(host = %self.context.key.name, "{lacking}");
        }
        let powered_on = sight.powered_on;
        let recorded = self.journal.data().on_machine();
        // At its first sight this has been asked.
        if known && !matches!(recorded, Recorded::Runs(_)) {
            self.is_left_by_another(&sight).await?;
        }
        match found(&Facts { recorded: &recorded, told: request.told(), powered_on, consent: consent.as_deref() }) {
            Found::Hold(why) => Err(held(&why)),
            Found::Recognise(runs) => {
                Ok(Verdict::Done(Registered { id: runs.owner.clone(), powered_on, recognized: true }))
            }
            Found::GoOn if !self.context.provisioning_id.is_empty() => {
                let id = self.context.provisioning_id.clone();
                Ok(Verdict::Done(Registered { id, powered_on, recognized: false }))
            }
            Found::GoOn => {
                self.journal.begins();
                Ok(Verdict::Done(Registered { id: self.context.key.uid.clone(), powered_on, recognized: false }))
            }
        }
    }

    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        self.settle(self.is_told_to_run()).await;
        let before = self.journal.data();
        self.recall_live(Some(&request.deployed));
        self.journal.takes_over(&request.deployed);
        let data = self.journal.data();
        if data != before {
            self.journal.write(data, Purpose::Note).await?;
        }
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        // Let go before, it may not have been noted, or its agent not have been told yet.
        let cancelled =
            |phase| phase == OperationPhase::Cancelled && self.journal.latest_boot().is_some_and(|boot| boot.retired);
        let works = self.journal.newest().is_some_and(|newest| !newest.phase.is_final() || cancelled(newest.phase));
        let interrupted = self.interrupted();
        match self.journal.let_go(interrupted.as_deref().unwrap_or("the host is let go"), self.withdrawn_steps()).await
        {
            // A terminating namespace refuses new objects.
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
            }
            other => other?,
        }
        let is_others =
            self.context.deleting && self.context.deployed.as_ref().is_some_and(|deployed| deployed.externally);
        if is_others && self.journal.leaves_to_others() {
            let data = self.journal.data();
            if let Err(error) = self.journal.write(data, Purpose::Note).await {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
            }
        }
        if works {
            self.shared.hub.let_go(self.uid());
        }
        if let Some(text) = interrupted {
            self.context.machine.interrupted(&text).await;
        }
        if self.context.bmc.is_some() {
            self.recall_live(self.context.deployed.as_ref());
            // A data image that stays, or the live ISO of a system that may be running, may be in the drive that the agent's medium was in.
            let data = self.journal.data();
            let runs_live = data.live_medium.as_ref().is_some_and(|medium| medium.boots);
            let stays = !self.context.deleting && (data.data_medium.is_some() || runs_live);
            match self.proven(Effect::Boot).await {
                Ok((bmc, _)) => {
                    if !runs_live || self.context.deleting {
                        let waiting = self.live_medium_is_let_go(bmc.as_ref(), request.force).await?;
                        if let Some(working) = waiting {
                            return Ok(Verdict::Working(working));
                        }
                    }
                    if !stays && self.journal.latest_boot().is_some() && !self.live.timers().ejected {
                        self.medium_goes(bmc.as_ref(), request.force).await?;
                        // What is waited for below ejects no second one.
                        self.live.timers().ejected = true;
                    }
                    if let Some(working) = self.test_medium_goes(bmc.as_ref(), request.force).await? {
                        return Ok(Verdict::Working(working));
                    }
                    if let Some(working) = self.data_medium_goes(bmc.as_ref(), request.force).await? {
                        return Ok(Verdict::Working(working));
                    }
                    if self.context.deleting {
                        self.subscriptions_go(bmc.as_ref()).await;
                    } else if let Err(failure) = self.listens_no_more().await {
                        tracing::warn!(host = %self.context.key.name, "let go, its subscription to events may be left on its BMC: {}", failure.message);
                    }
                }
                // A machine that is not this host's is released as it is.
                Err(failure)
                    if matches!(failure.cause, Cause::AnotherMachine | Cause::MachineUnknown)
                        || matches!(failure.cause, Cause::RecordUnavailable | Cause::ProvisionerUnavailable)
                            && self.context.deleting =>
                {
                    tracing::warn!(host = %self.context.key.name, "let go without a call to its BMC: {}", failure.message);
                }
                Err(failure) if request.force => {
                    tracing::warn!(host = %self.context.key.name, "let go by force, its medium may be left in the drive: {}", failure.message);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.live.close().await;
        self.shared.media.withdraw(self.uid());
        self.shared.media.withdraw_test(self.uid());
        self.shared.hub.forget_idle(self.uid());
        self.shared.live.forget(&self.context.key.uid);
        self.shared.subjects.forget(&self.context.key.uid);
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// Checks that a machine, of which the host's own record knows nothing that is on it now, is not in use by what was provisioned for a host that is gone.
    async fn is_left_by_another(&self, sight: &Sight) -> Result<(), Failure> {
        if self.begins.is_none() {
            return Ok(());
        }
        let Some(recorded) = self.context.machine.recorded().await? else { return Ok(()) };
        let others = self.others().await?;
        let mut seen = sight.evidence.clone();
        // Many BMCs do not list them at each look.
        if seen.macs.is_empty() {
            seen.macs = recorded.bmc.map(|known| known.macs).unwrap_or_default();
        }
        let common = common_of(&others, Some(&seen));
        self.is_nobodys(&others, &seen, &common)
    }

    /// What the agent is doing to the disks, if that has begun, and what becomes of it when the host is let go, a sentence.
    fn interrupted(&self) -> Option<String> {
        let newest = self.journal.newest().filter(|newest| !newest.phase.is_final())?;
        let step = [Step::WriteImage, Step::WipeDisks, Step::EraseDisks, Step::RunSteps]
            .into_iter()
            .find(|step| step.recorded(&newest.status).phase == StepPhase::Running)?;
        if step == Step::RunSteps {
            return Some("The host was let go while its agent was running a step of a hardware manager: nothing stops that, and nobody follows what it does".to_owned());
        }
        let reported = match self.shared.hub.any_agent(self.uid()).map(|agent| agent.state) {
            Some(AgentState::Running { command, progress }) if command.operation == newest.id => progress.disk,
            _ => String::new(),
        };
        let (doing, unknown) = match step {
            Step::WriteImage => ("writing the image to", "the root disk"),
            Step::EraseDisks => ("erasing", "the disks"),
            _ => ("wiping", "the disks"),
        };
        let disk = if reported.is_empty() { unknown } else { reported.as_str() };
        Some(format!(
            "The host was let go while its agent was {doing} {disk}, which was not finished: the agent stops when it reports next, and what is there then \
             is no system to be used"
        ))
    }

    /// Keeps what the host says its machine runs in its record: a status may be lost, and what another program has provisioned stands nowhere else.
    pub async fn remembers_what_runs(&self) {
        let Some(deployed) = self.context.deployed.as_ref().filter(|_| !self.context.deleting) else { return };
        if !self.journal.takes_over(deployed) {
            return;
        }
        let data = self.journal.data();
        if let Err(error) = self.journal.write(data, Purpose::Note).await {
            // It is noted, and written with the next look or work.
            tracing::debug!(host = %self.context.key.name, %error, "record what the machine runs");
        }
    }

    /// Takes the agent's medium out.
    pub async fn medium_goes(&self, bmc: &dyn Bmc, force: bool) -> Result<(), Failure> {
        // Without a drive there is no medium.
        let Ok(media) = bmc.virtual_media() else { return Ok(()) };
        match media.eject().await.map_err(of_bmc) {
            Err(failure) if force => {
                tracing::warn!(host = %self.context.key.name, "let go by force, its medium may be left in the drive: {}", failure.message);
                Ok(())
            }
            other => other,
        }
    }

    /// Takes the data image out if the host is being deleted. One that is let go otherwise keeps it, as its system may be reading it.
    async fn data_medium_goes(&self, bmc: &dyn Bmc, force: bool) -> Result<Option<Working>, Failure> {
        if !self.context.deleting {
            return Ok(None);
        }
        match self.data_medium_out(bmc, force).await {
            Err(failure) if force => {
                tracing::warn!(host = %self.context.key.name, "let go by force, its data image may be left in the drive: {}", failure.message);
                Ok(None)
            }
            other => other,
        }
    }

    /// Takes the live ISO out of a machine that does not run from it, and of one whose host is deleted. One that is let go otherwise keeps it: its system
    /// reads it.
    async fn live_medium_is_let_go(&self, bmc: &dyn Bmc, force: bool) -> Result<Option<Working>, Failure> {
        if self.journal.data().live_medium.is_none() {
            return Ok(None);
        }
        match self.takes_live_out(bmc, force).await {
            Err(failure) if force => {
                tracing::warn!(host = %self.context.key.name, "let go by force, its live ISO may be left in the drive: {}", failure.message);
                return Ok(None);
            }
            Ok(None) => {}
            other => return other,
        }
        let data = self.journal.data();
        match self.journal.write(data, Purpose::Note).await {
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
                Ok(None)
            }
            other => other.map(|()| None).map_err(Failure::from),
        }
    }

    /// Shows the newest operation to people, and acknowledges an agent's outcome whose work is over. No agent is let go for a system that was provisioned: that
    /// may not be wanted any more.
    pub async fn settle_with_journal(&self) {
        self.settle(false).await;
    }

    /// The same for whoever wishes the system that was provisioned, if that is so.
    pub async fn settle(&self, is_wished: bool) {
        self.journal.show().await;
        let newest = self.journal.newest();
        self.acknowledge_outcome(newest.as_ref().map(|newest| (newest.id.as_str(), newest.phase)), is_wished);
    }
}
