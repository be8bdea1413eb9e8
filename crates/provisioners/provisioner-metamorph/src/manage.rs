//! Registration, adoption and release.

use agent_protocol::AgentState;
use api::metal3::annotation::OVERWRITE_OWNER;
use api::metamorph::{OperationPhase, OperationType, StepPhase};
use async_trait::async_trait;
use bmc::Bmc;
use provisioner::{
    AdoptRequest, Cause, Failure, HealthState, Manage, Outcome, Purpose, RegisterRequest, Registered, ReleaseRequest,
    Retry, Verdict, Working,
};
use provisioning_plan::steps::Step;

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::Journal;

/// Whether what is on the machine of a host without status is what the host asks for.
///
/// A move or a restore takes the status away, and a new host of an old name has none either: what the record says decides whether the machine may be
/// booted for an inspection. What only others know, because the record is lost as well, is asked for where something says that the host has had a life.
///
/// # Errors
/// When the machine is in use, or may be, and the host does not say that this is to end.
fn found(journal: &Journal, request: &RegisterRequest, powered_on: Option<bool>, owner: &str) -> Result<bool, Failure> {
    let Some(asked) = request.asks_for.as_deref() else { return Ok(false) };
    let Some(newest) = journal.newest() else {
        let may_be_in_use = request.has_past && powered_on != Some(false);
        return if may_be_in_use && journal.data().number == 0 { Err(unknown_past()) } else { Ok(false) };
    };
    // Nobody is served on another machine than one in use.
    let runs = newest.succeeded(OperationType::Provision);
    if !runs && newest.operation != OperationType::Service {
        return Ok(false);
    }
    let was = newest.wish.as_deref().and_then(|wish| wish.split_once(' ')).map(|(_, asked)| asked);
    if runs && was == Some(asked) {
        return Ok(true);
    }
    let consents = |owners: &str| owners.split(',').any(|named| named.trim() == owner);
    if request.overwrite_owner.as_deref().is_some_and(consents) {
        return Ok(false);
    }
    let text = format!(
        "register the machine: it is in use by what was provisioned on it for a host of this name (owner {owner}), and this host, which has no status, does \
         not ask for that"
    );
    Err(held(text, &format!("{RESTORE}; to have its data destroyed, set the annotation {OVERWRITE_OWNER} to {owner}")))
}

/// What to do for a host whose machine is in use.
const RESTORE: &str = "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status), or in spec.image and \
                       spec.rootDeviceHints what it was provisioned with; to leave the machine to somebody else, set spec.externallyProvisioned";

fn unknown_past() -> Failure {
    let text = "register the machine: it is on and may be in use, because the host has a consumer or HardwareData, and neither a status nor a MachineRecord \
                tells what has become of it";
    let advice = "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status); to leave the machine to somebody \
                  else, set spec.externallyProvisioned; if nothing on the machine is needed, power it off: it is inspected then";
    held(text.to_owned(), advice)
}

fn held(text: String, advice: &str) -> Failure {
    let failure = Failure::new(Cause::MachineInUse, text).advise(advice);
    Failure { retry: Retry::Held, ..failure }
}

#[async_trait]
impl Manage for NativeHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        if request.credentials_changed {
            self.live.close().await;
        }
        let (connected, sight) = self.proven(Effect::Look).await?;
        self.health = Some(HealthState { level: sight.health, power_failure: false });
        let (has, lacks) = bmc::capabilities(connected.as_ref());
        let has = has.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(", ");
        tracing::info!(host = %self.context.key.name, model = %sight.model, has, "BMC access checked");
        for lacking in lacks {
            tracing::info!(host = %self.context.key.name, "{lacking}");
        }
        let powered_on = sight.powered_on;
        if !self.context.provisioning_id.is_empty() {
            let id = self.context.provisioning_id.clone();
            return Ok(Verdict::Done(Registered { id, powered_on, recognized: false }));
        }
        let owner = self.journal.subject();
        if found(&self.journal, &request, powered_on, &owner)? {
            return Ok(Verdict::Done(Registered { id: owner, powered_on, recognized: true }));
        }
        self.journal.begins();
        Ok(Verdict::Done(Registered { id: self.context.key.uid.clone(), powered_on, recognized: false }))
    }

    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        self.settle_with_journal().await;
        let before = self.journal.data();
        self.recall_live(Some(&request.deployed));
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
        match self.journal.let_go(interrupted.as_deref().unwrap_or("the host is let go")).await {
            // A terminating namespace refuses new objects.
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
            }
            other => other?,
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
                    }
                    self.data_medium_goes(bmc.as_ref(), request.force).await?;
                    if self.context.deleting {
                        self.subscriptions_go(bmc.as_ref()).await;
                    }
                }
                // A machine that is not this host's is released as it is.
                Err(failure)
                    if matches!(failure.cause, Cause::AnotherMachine | Cause::MachineUnknown)
                        || failure.cause == Cause::RecordUnavailable && self.context.deleting =>
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
        self.shared.hub.forget_idle(self.uid());
        self.shared.live.forget(&self.context.key.uid);
        self.shared.subjects.forget(&self.context.key.uid);
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// What the agent is doing to the disks, if that has begun, and what becomes of it when the host is let go, a sentence.
    fn interrupted(&self) -> Option<String> {
        let newest = self.journal.newest().filter(|newest| !newest.phase.is_final())?;
        let step = [Step::WriteImage, Step::WipeDisks, Step::EraseDisks]
            .into_iter()
            .find(|step| step.recorded(&newest.status).phase == StepPhase::Running)?;
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
    async fn data_medium_goes(&self, bmc: &dyn Bmc, force: bool) -> Result<(), Failure> {
        if !self.context.deleting {
            return Ok(());
        }
        match self.data_medium_out(bmc).await {
            Err(failure) if force => {
                tracing::warn!(host = %self.context.key.name, "let go by force, its data image may be left in the drive: {}", failure.message);
                Ok(())
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

    /// Shows the newest operation to people, and acknowledges an agent's outcome whose work is over.
    pub async fn settle_with_journal(&self) {
        self.journal.show().await;
        let newest = self.journal.newest();
        self.acknowledge_outcome(newest.as_ref().map(|newest| (newest.id.as_str(), newest.phase)));
    }
}
