//! Provisioning and deprovisioning.

use addresses::NotAllowed;
use agent_protocol::{
    Action, CommandId, DiskMark, ErrorCode, ImageSource, Leave, LeftDisk, Outcome as AgentOutcome, WipeDisks,
};
use api::metal3::CleaningMode;
use api::metamorph::{AgentBoot, HostOperationStatus, OperationType};
use async_trait::async_trait;
use bmc::{Bmc, ErrorKind, PowerAction};
use inventory::{Part, Storage};
use provisioner::{
    Cause, CleaningRequest, Deploy, Deployed, Deprovisioned, Failure, Method, Outcome, PowerWish, ProvisionRequest,
    Purpose, Retry, Verdict, Working,
};
use provisioning_plan::power::Unseen;
use provisioning_plan::steps::{self, Next, Step, Way, Work};
use tokio::time::Instant;

use crate::commands::Ran;
use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::images::{Judged, of_layer};
use crate::journal::{Operation, StepProgress};
use crate::power::{Aim, Brought, unreported};
use crate::record::{done, intend, succeed};
use crate::remembered::WriteNews;

/// First version of the agents' protocol that carries what is said of a layer.
const REGISTRY_PROTOCOL: u32 = 3;
/// The first that carries mirrors and proxies.
const SOURCES_PROTOCOL: u32 = 4;

#[async_trait]
impl Deploy for NativeHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        if self.already(OperationType::Provision, request.wish.as_deref()).await {
            return Ok(Verdict::Done(()));
        }
        self.live.attempt().ask();
        self.unheard(OperationType::Provision, request.wish.as_deref(), false)?;
        self.nothing_ends_by(request.wish.as_deref(), "write the image")?;
        let judged = self.judged_order(&request)?;
        let mut operation = self.open(Work::Provision, request.wish.as_deref()).await?;
        if Work::Provision.turned(operation.status()) {
            self.journal.cancel_open("an image is to be written to a disk instead").await?;
            operation = self.open(Work::Provision, request.wish.as_deref()).await?;
        }
        self.insists(request.force_reboot);
        let result = self.provision_steps(&mut operation, judged).await;
        let result = self.closing(&mut operation, result).await;
        self.forced(&operation, result)
    }

    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned> {
        // Where the record says that more than an erase is to be ended, the host's word that nothing is to be wiped does not count either.
        let disbelieved = request.empty && !self.ends_erase(&request);
        let cleans = request.clean || disbelieved && self.context.cleaning != CleaningMode::Disabled;
        let wished = Work::deprovisioning(cleans);
        let ends_attempt = self.live.attempt().end(request.wish.as_deref());
        // A machine released without a wipe is not wiped: the mode may have changed since.
        let done = |status: &HostOperationStatus| Deprovisioned {
            wiped: wished.recorded(status) == Work::Clean,
            ..Deprovisioned::default()
        };
        if self.already(OperationType::Deprovision, request.wish.as_deref()).await
            && let Some(newest) = self.journal.newest().filter(|newest| wished.is_done_by(&newest.status))
        {
            return Ok(Verdict::Done(done(&newest.status)));
        }
        if self.ends_erase(&request) {
            return self.erase_withdrawn().await;
        }
        if !ends_attempt {
            self.journal.doubts_disks();
        }
        self.recall_live(Some(&request.deployed));
        if ends_attempt && self.has_written_nothing(&request.deployed) {
            // What waits for the agent to boot, or has failed before it wrote, is over; the agent stays for what comes next.
            self.journal.cancel_open("nothing had begun to be written, and it is not wanted any more").await?;
            if let Some(working) = self.live_medium_goes().await? {
                return Ok(Verdict::Working(working));
            }
            return Ok(Verdict::Done(Deprovisioned { untouched: true, ..Deprovisioned::default() }));
        }
        self.unheard(OperationType::Deprovision, request.wish.as_deref(), request.restart)?;
        self.nothing_ends("empty the machine")?;
        let mut operation = self.open(wished, request.wish.as_deref()).await?;
        if wished.turned(operation.status()) {
            let why = if cleans { "the disks are to be wiped" } else { "the disks are not to be wiped any more" };
            self.journal.cancel_open(why).await?;
            operation = self.open(wished, request.wish.as_deref()).await?;
        }
        let result = match wished.recorded(operation.status()) {
            Work::Clean => self.wipe_steps(&mut operation, request).await,
            _ => self.power_off_step(&mut operation).await,
        };
        let verdict = self.closing(&mut operation, result).await?;
        Ok(verdict.map(|()| done(operation.status())))
    }
}

impl NativeHost {
    /// The operation that records this work.
    pub async fn open(&self, work: Work, wish: Option<&str>) -> Result<Operation, Failure> {
        self.journal.open(work.operation(), wish, &work.plan()).await.map_err(Failure::from)
    }

    /// Whether the host's status knows what is on the machine, before it is ended.
    pub fn nothing_ends(&self, attempt: &str) -> Result<(), Failure> {
        self.context.past.knows(&self.journal.data().on_machine(), attempt)
    }

    /// The same before a system is put on the machine.
    pub fn nothing_ends_by(&self, wish: Option<&str>, attempt: &str) -> Result<(), Failure> {
        self.context.past.knows_before(wish, &self.journal.data().on_machine(), attempt)
    }

    /// Returns a recorded failure that the host has not got yet, because the process died in between or the status could not be written: the failed
    /// attempt must not be repeated as if it had not been made.
    pub fn unheard(&self, kind: OperationType, wish: Option<&str>, begins_anew: bool) -> Result<(), Failure> {
        let Some((id, failure)) = self.journal.failure(kind, wish) else { return Ok(()) };
        if begins_anew || self.live.reported_failure().as_ref() == Some(&id) {
            // The host knows the failure, and retries.
            *self.live.reported_failure() = Some(id);
            return Ok(());
        }
        *self.live.reported_failure() = Some(id);
        tracing::warn!(host = %self.context.key.name, "this has failed before the host could say so: {}", failure.message);
        Err(failure)
    }

    /// Whether the newest operation is of this type, for this wish, and has succeeded: then the work is done, even if its process died afterwards.
    pub async fn already(&self, kind: OperationType, wish: Option<&str>) -> bool {
        let is_done = self.journal.newest().is_some_and(|newest| newest.is_for(wish) && newest.succeeded(kind));
        self.settle(is_done && kind == OperationType::Provision).await;
        is_done
    }

    /// No provisioning has come to its end, by the host's word, and none has begun to write, by the record's: whatever is on the disks is not this host's
    /// to wipe.
    fn has_written_nothing(&self, deployed: &Deployed) -> bool {
        let is_deployed = deployed.image.is_some() || deployed.method != Method::Disk;
        !is_deployed && self.journal.is_unwritten()
    }

    pub fn mark(&self, overwrite: Option<&String>) -> DiskMark {
        DiskMark {
            owner: self.context.provisioning_id.clone(),
            host: format!("{}/{}", self.context.key.namespace, self.context.key.name),
            operation: String::new(),
            consent: overwrite.cloned(),
        }
    }

    /// Why this URL must not be read, if its host is an address or one of this machine's own names; for other names, the agent checks what they resolve
    /// to.
    pub fn local(&self, url: &str) -> Option<NotAllowed> {
        self.shared.settings.allowed.check_url(&url::Url::parse(url).ok()?).err()
    }

    async fn provision_steps(&self, operation: &mut Operation, judged: Judged) -> Outcome<()> {
        if let Next::Alone(_) = Work::Provision.next(operation.status()) {
            return self.boot_disk(operation).await;
        }
        self.may_go_on(operation, &judged)?;
        let Judged { order, fault } = judged;
        let pinned = self.pin(operation, &order).await?;
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        if !steps::given(&Step::WriteImage.recorded(operation.status()), &boot_id) {
            self.proven(Effect::Destroy).await?;
            self.agent_proof(&boot_id, true).await?;
        }
        // The id, not the name, which recurs when a record is lost: the mark identifies a disk that is already written.
        let given = self.is_with_agent(operation, Step::WriteImage, &boot_id);
        if let Some(fault) = fault.filter(|_| !given) {
            return Err(fault);
        }
        let mut write = self.addressed(&order, pinned.as_ref(), given).await?;
        if !given && !self.understands(&write.image) {
            let text = "write the image: the agent on the machine is of an earlier version, and would not read it where, and as what, it is";
            return Err(Failure::new(Cause::Internal, text).advise("it is booted anew with the next attempt; build the agent image anew (make agent-image) if that does not help"));
        }
        write.mark.operation = operation.id();
        match self.run(operation, Step::WriteImage, &boot_id, Action::WriteImage(Box::new(write))).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            Ran::Finished(id, AgentOutcome::Written(summary)) => {
                for warning in &summary.warnings {
                    tracing::warn!(host = %self.context.key.name, warning, "image written");
                }
                let mut text = match summary.digest.as_str() {
                    "" => format!("{} carried this operation's mark: it had been written before", summary.disk),
                    digest => format!("{} bytes on {}, {digest}", summary.image_bytes, summary.disk),
                };
                if !summary.source.is_empty() {
                    text.push_str(&format!(", read from {}", summary.source));
                }
                for warning in &summary.warnings {
                    text.push_str("; warning: ");
                    text.push_str(warning);
                }
                done(operation, Step::WriteImage, &text)?;
                // A single write records that the image is on the disk and that the machine is about to boot it.
                intend(operation, Step::BootDisk, 1, Some(&boot_id)).await?;
                self.shared.hub.acknowledge(self.uid(), &id);
                self.boot_disk(operation).await
            }
            Ran::Finished(id, outcome) => {
                if matches!(&outcome, AgentOutcome::Failed(error) if error.untouched) {
                    operation.tells(WriteNews::Untouched);
                }
                let failure = self.unexpected(&id, &outcome);
                Err(if pinned.is_some() { of_layer(failure, &outcome) } else { failure })
            }
        }
    }

    /// Whether the agent reads all that is said of the image.
    fn understands(&self, image: &ImageSource) -> bool {
        let is_routed = !image.sources.is_empty() || !image.checksum_sources.is_empty() || image.proxy.is_some();
        let of_registry = image.compression.is_some() || image.authorization.is_some();
        let needs = match (is_routed, of_registry) {
            (true, _) => SOURCES_PROTOCOL,
            (false, true) => REGISTRY_PROTOCOL,
            (false, false) => return true,
        };
        self.shared.hub.any_agent(self.uid()).is_some_and(|agent| agent.protocol >= needs)
    }

    /// Medium out, the agent leaves, the firmware boots the disk.
    async fn boot_disk(&self, operation: &mut Operation) -> Outcome<()> {
        if !self.live.timers().ejected
            && let Err(failure) = self.medium_out(operation).await
        {
            // The image is on the disk: a silent BMC is no reason to write it again.
            let since = *self.live.timers().eject_failing.get_or_insert_with(Instant::now);
            if since.elapsed() < self.shared.settings.timing.eject {
                let message = format!("taking the medium out: {}", failure.message);
                let progress = StepProgress { message: message.clone(), ..StepProgress::default() };
                operation.progress(Step::BootDisk.name(), progress).await;
                return Ok(Verdict::working(message, 10));
            }
            tracing::warn!(host = %self.context.key.name, "the medium stays in: {}", failure.message);
        }
        let boot_id = Step::BootDisk.recorded(operation.status()).boot_id.unwrap_or_default();
        let agent = self.shared.hub.any_agent(self.uid()).filter(|a| a.boot_id == boot_id);
        match steps::leave(agent.is_some(), self.live.since.elapsed(), self.shared.settings.timing.reconnect) {
            steps::Leave::Wait => return Ok(Verdict::working("waiting for the agent to leave for the disk", 1)),
            steps::Leave::Bmc => return self.boot_disk_by_bmc(operation).await,
            steps::Leave::Agent => {}
        }
        match self.run(operation, Step::BootDisk, &boot_id, Action::Leave { how: Leave::Reboot }).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            Ran::Finished(id, AgentOutcome::Leaving) => {
                self.record_own_disks().await?;
                let done = self.provisioned(operation, "booting from the disk").await?;
                self.shared.hub.acknowledge(self.uid(), &id);
                Ok(done)
            }
            Ran::Finished(id, outcome) => Err(self.unexpected(&id, &outcome)),
        }
    }

    /// Boots the new system without an agent. Once the order is recorded, a tenant may be running: from then on, failures of the BMC, or a machine
    /// that does not show its identity, are reported on the host and waited out, and are never a reason to write the image again.
    async fn boot_disk_by_bmc(&self, operation: &mut Operation) -> Outcome<()> {
        let away = |failure: &Failure| matches!(failure.cause, Cause::BmcUnreachable | Cause::BmcBusy);
        let mut failure = match self.boot_disk_steps(operation).await {
            // Even before the order, a silent or busy BMC is no reason to write the image again.
            Err(failure) if steps::ordered_into_disk(operation.status()) || away(&failure) => failure,
            other => return other,
        };
        if !matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) {
            failure.message = format!("boot the disk, on which the image is: {}", failure.message);
            failure.retry = Retry::Waiting;
        }
        Err(failure)
    }

    /// One step of the way into the disk, see [`steps::way_into_disk`].
    async fn boot_disk_steps(&self, operation: &mut Operation) -> Outcome<()> {
        let (bmc, sight) = self.proven(Effect::Destroy).await?;
        let bmc = bmc.as_ref();
        let refused = self.live.timers().reset_refused;
        let may_cut = !self.context.disable_power_off;
        match steps::way_into_disk(operation.status(), sight.powered_on, may_cut, refused) {
            Way::SwitchOn => self.switch_on_to_disk(operation, bmc, sight.powered_on).await,
            Way::SwitchOff { begun } => self.switch_off_for_disk(operation, bmc, begun).await,
            Way::Reset { attempt } => self.reset_into_disk(operation, bmc, attempt).await,
            Way::Unreported => Err(unreported()),
            Way::LeaveAlone => {
                let text = "the BMC was to reset the machine; whether it did is not known, and it is not repeated: if the machine does not run its system, restart it";
                tracing::warn!(host = %self.context.key.name, "{text}");
                self.provisioned(operation, text).await
            }
        }
    }

    async fn switch_off_for_disk(&self, operation: &mut Operation, bmc: &dyn Bmc, begun: bool) -> Outcome<()> {
        let before = bmc.calls();
        if !begun {
            self.record_own_disks().await?;
            boot_normally(bmc).await?;
            // That may have taken minutes.
            self.proven(Effect::Destroy).await?;
            intend(operation, Step::SwitchOff, 1, None).await?;
        }
        let off = self.hard_off(bmc, &operation.id()).await;
        // Only a machine that is seen off counts as off.
        let gone = off? && bmc.look().await.map_err(of_bmc)?.powered_on == Some(false);
        Self::account(operation, bmc, before);
        if !gone {
            return Ok(Verdict::working("waiting for the power to go, so that the disk is booted", 1));
        }
        done(operation, Step::SwitchOff, "the agent is gone: the machine was switched off")?;
        intend(operation, Step::SwitchOn, 1, None).await?;
        self.switch_on_to_disk(operation, bmc, Some(false)).await
    }

    /// Requests power on until the machine is seen on, but only if it is seen off.
    async fn switch_on_to_disk(&self, operation: &mut Operation, bmc: &dyn Bmc, on: Option<bool>) -> Outcome<()> {
        let (of, before) = (operation.id(), bmc.calls());
        let aim = Aim { wish: PowerWish::On, of: &of, unseen: Unseen::Left, may_cut: true };
        let brought = self.bring_power(bmc, &aim, on).await;
        Self::account(operation, bmc, before);
        match brought? {
            Brought::There => {
                done(operation, Step::SwitchOn, "the machine was switched on")?;
                self.provisioned(operation, "booting from the disk (switched on by the BMC)").await
            }
            Brought::Unreported => Err(unreported()),
            Brought::Ordered(..) | Brought::Waiting(_) => {
                Ok(Verdict::working("waiting for the machine to power on from its disk", 1))
            }
        }
    }

    /// The same where the power must not be cut, or cannot be seen: one reset.
    async fn reset_into_disk(&self, operation: &mut Operation, bmc: &dyn Bmc, attempt: u32) -> Outcome<()> {
        let before = bmc.calls();
        self.record_own_disks().await?;
        boot_normally(bmc).await?;
        // That may have taken minutes, and once the intent is recorded the reset counts as made.
        self.proven(Effect::Destroy).await?;
        intend(operation, Step::Reset, attempt, None).await?;
        self.live.timers().reset_refused = false;
        let sent = bmc.power().change(PowerAction::Restart).await;
        Self::account(operation, bmc, before);
        if let Err(error) = sent {
            let kept =
                matches!(error.kind, ErrorKind::Busy { .. } | ErrorKind::Unauthorized | ErrorKind::TlsNotTrusted);
            self.live.timers().reset_refused = kept || error.unmade || error.kind.is_definite_refusal();
            return Err(of_bmc(error));
        }
        self.live.timers().power.restarted();
        done(operation, Step::Reset, "the agent is gone: the machine was reset")?;
        self.provisioned(operation, "booting from the disk (reset by the BMC)").await
    }

    /// Takes out a live ISO that has been put in and never booted, or that the agent was booted beside. Calls no BMC where none is recorded.
    async fn live_medium_goes(&self) -> Result<Option<Working>, Failure> {
        if self.journal.data().live_medium.is_none() {
            return Ok(None);
        }
        let (bmc, _) = self.proven(Effect::Boot).await?;
        self.still_wanted().await?;
        let waiting = self.live_medium_out(bmc.as_ref()).await?;
        let data = self.journal.data();
        self.journal.write(data, Purpose::Note).await?;
        Ok(waiting)
    }

    async fn medium_out(&self, operation: &mut Operation) -> Result<(), Failure> {
        let (bmc, _) = self.proven(Effect::Boot).await?;
        let before = bmc.calls();
        if let Some(working) = self.live_medium_out(bmc.as_ref()).await? {
            return Err(Failure::new(Cause::BmcBusy, working.step));
        }
        // Without a drive there is no medium.
        if let Ok(media) = bmc.virtual_media() {
            media.eject().await.map_err(of_bmc)?;
        }
        Self::account(operation, bmc.as_ref(), before);
        let mut timers = self.live.timers();
        timers.ejected = true;
        timers.eject_failing = None;
        Ok(())
    }

    async fn provisioned(&self, operation: &mut Operation, text: &str) -> Outcome<()> {
        done(operation, Step::BootDisk, text)?;
        self.boot_ends(operation);
        succeed(operation, "provisioned").await?;
        self.shared.hub.retire(self.uid());
        self.shared.media.withdraw(self.uid());
        Ok(Verdict::Done(()))
    }

    /// Notes that the newest boot of the agent has ended its work: durable with the operation's next write.
    pub fn boot_ends(&self, operation: &mut Operation) {
        let boot = operation.status().boot.clone().or_else(|| self.journal.latest_boot());
        if let Some(boot) = boot {
            operation.set_boot(AgentBoot { retired: true, ..boot });
        }
    }

    /// The disks that a wipe expects to find, and what is to be done if it misses one. The drives that a BMC lists are not the disks that a system finds
    /// (see `inventory`, `inspected.rs`): where an agent had found some before, those; else of none is known anything.
    pub fn disks_expected(&self) -> (Option<Vec<Storage>>, &'static str) {
        match self.context.hardware.as_ref().filter(|hardware| hardware.is_from_system()) {
            Some(hardware) => (Some(hardware.storage.clone()), ABSENT),
            None => (self.journal.data().disks, ABSENT_TO_AGENT),
        }
    }

    async fn wipe_steps(&self, operation: &mut Operation, request: CleaningRequest) -> Outcome<()> {
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        let mut mark = self.mark(request.overwrite_owner.as_ref());
        operation.name().clone_into(&mut mark.operation);
        let record = if steps::given(&Step::WipeDisks.recorded(operation.status()), &boot_id) {
            self.context.machine.recorded().await?
        } else {
            self.proven(Effect::Destroy).await?;
            Some(self.agent_proof(&boot_id, true).await?)
        };
        let requires_mark = record.and_then(|r| r.accepted).is_some_and(|a| a.requires_mark);
        let (expected, absent) = self.disks_expected();
        let listed = self.context.hardware.as_ref().is_some_and(|hardware| !hardware.storage.is_empty());
        let knew_disks = listed || expected.as_ref().is_some_and(|disks| !disks.is_empty());
        let expects_none = expected.is_none();
        let wipe = Box::new(WipeDisks { mark, requires_mark, expected, named: request.root_device_hints });
        match self.run(operation, Step::WipeDisks, &boot_id, Action::WipeDisks(wipe)).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            // An agent of an earlier version does not compare its disks with the inspection.
            Ran::Finished(_, AgentOutcome::Wiped { disks, left })
                if knew_disks && disks.is_empty() && left.is_empty() =>
            {
                let text = "wipe the disks: the agent found none, though the inspection knew some";
                Err(Failure::new(Cause::HardwareFailed, text).advise(absent))
            }
            Ran::Finished(id, AgentOutcome::Wiped { disks, left }) => {
                self.record_own_disks().await?;
                self.wiped_all(operation, &id, &wiped(&disks, &left)).await
            }
            Ran::Finished(id, AgentOutcome::Failed(error))
                if error.code == ErrorCode::NoDisk
                    && expects_none
                    && !listed
                    && self.is_diskless(&request.deployed).await? =>
            {
                // Its disks are nobody's: no mark of this host says that they may be wiped.
                self.wiped_all(operation, &id, "no disk was wiped: neither the agent nor the BMC finds one").await
            }
            Ran::Finished(id, outcome) => Err(self.unexpected(&id, &outcome)),
        }
    }

    /// The end of a wipe.
    async fn wiped_all(&self, operation: &mut Operation, id: &CommandId, text: &str) -> Outcome<()> {
        if let Some(working) = self.live_medium_goes().await? {
            return Ok(Verdict::Working(working));
        }
        done(operation, Step::WipeDisks, text)?;
        operation.tells(WriteNews::Wiped);
        succeed(operation, &format!("deprovisioned: {text}")).await?;
        self.shared.hub.acknowledge(self.uid(), id);
        Ok(Verdict::Done(()))
    }

    /// Whether a machine on which the agent finds no disk, and of whose disks no inspection by an agent has told, has none: nothing but live ISOs has run
    /// on it for this host, no agent has ever shown a disk, and the BMC lists none, without gaps.
    async fn is_diskless(&self, deployed: &Deployed) -> Result<bool, Failure> {
        let nothing = deployed.image.is_none() && deployed.method == Method::Disk;
        let had_live_alone = deployed.method == Method::LiveIso || nothing && self.journal.had_live_alone();
        let record = self.context.machine.recorded().await?;
        if !had_live_alone || record.and_then(|record| record.agent).is_some_and(|agent| !agent.disks.is_empty()) {
            return Ok(false);
        }
        let (bmc, _) = self.proven(Effect::Look).await?;
        let Ok(hardware) = bmc.hardware() else { return Ok(false) };
        let listed = hardware.list().await.map_err(of_bmc)?;
        Ok(listed.hardware.storage.is_empty() && !listed.not_listed.contains(&Part::Disks))
    }

    /// Without cleaning, the tenant's system must at least not keep running.
    async fn power_off_step(&self, operation: &mut Operation) -> Outcome<()> {
        let (bmc, _) = self.proven(Effect::Destroy).await?;
        if !Step::PowerOff.begun(operation.status()) {
            intend(operation, Step::PowerOff, 1, None).await?;
        }
        let before = bmc.calls();
        let of = operation.id();
        let waiting = if self.context.disable_power_off { false } else { !self.hard_off(bmc.as_ref(), &of).await? };
        Self::account(operation, bmc.as_ref(), before);
        if waiting {
            return Ok(Verdict::working("waiting for the power to go", 1));
        }
        if let Some(working) = self.data_medium_out(bmc.as_ref(), false).await? {
            return Ok(Verdict::Working(working));
        }
        if let Some(working) = self.live_medium_out(bmc.as_ref()).await? {
            return Ok(Verdict::Working(working));
        }
        let text = if self.context.disable_power_off {
            "its disks are untouched; power is left alone (spec.disablePowerOff)"
        } else {
            "the machine is off; its disks are untouched"
        };
        done(operation, Step::PowerOff, text)?;
        if !self.context.disable_power_off {
            self.boot_ends(operation);
        }
        succeed(operation, "deprovisioned without cleaning").await?;
        self.shared.hub.forget_agent(self.uid());
        Ok(Verdict::Done(()))
    }
}

/// Advice when a disk that the inspection found is missing at the wipe.
const ABSENT: &str = "look at the disks, their controller, and its driver in the agent image; a disk that has been taken out for good is to be taken out of the host's HardwareData (spec.hardware.storage), too; to let the machine go unwiped, set spec.automatedCleaningMode to disabled";

/// The same where the host's HardwareData has the BMC's list alone.
const ABSENT_TO_AGENT: &str = "look at the disks, their controller, and its driver in the agent image; to let the machine go unwiped, set spec.automatedCleaningMode to disabled; if a disk has been taken out for good, or was never there, list those that are there in the host's HardwareData (spec.hardware.storage, with the kernel's names such as /dev/sda), which counts before what was found then; later, an inspection by the agent writes it (spec.inspectionMode: agent, annotation inspect.metal3.io, while the host is available)";

/// Leaves the next boot to the firmware, as it always is without a boot override.
async fn boot_normally(bmc: &dyn Bmc) -> Result<(), Failure> {
    match bmc.boot_device() {
        Ok(device) => device.normally().await.map_err(of_bmc),
        Err(_) => Ok(()),
    }
}

/// What was wiped and what was left, in words.
fn wiped(disks: &[String], left: &[LeftDisk]) -> String {
    let done = match (disks, left) {
        ([], []) => return "no disk was wiped: the machine has none".to_owned(),
        ([], _) => "no disk was wiped".to_owned(),
        _ => format!("wiped {}", disks.join(", ")),
    };
    if left.is_empty() {
        return done;
    }
    let left: Vec<String> = left.iter().map(|left| format!("{} ({})", left.disk, left.why)).collect();
    format!("{done}; left as they are, unless spec.rootDeviceHints name them: {}", left.join(", "))
}
