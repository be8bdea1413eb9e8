//! Live ISOs: a system that runs from a medium, and leaves the disks to itself.
//!
//! No agent has a part in it. The machine is seen off, the ISO goes in, the machine is told to boot it at each start, and comes on ([`live_iso::way`]). A
//! live system may write to the disks, and the firmware, or somebody who switches the machine on, may boot it as soon as it is in: from the order to put it in
//! on they count as written, and a deprovisioning wipes them, unless the BMC has refused it.

use api::metal3::CleaningMode;
use api::metamorph::{OperationType, StepPhase};
use async_trait::async_trait;
use bmc::{Bmc, ErrorKind, PowerAction};
use provisioner::{Cause, Failure, Finding, LiveMedia, Outcome, PowerWish, ProvisionRequest, Retry, Verdict, Working};
use provisioning_plan::live_iso::{self, Facts, Way};
use provisioning_plan::power::Unseen;
use provisioning_plan::steps::{Step, Work};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::live_medium::{BOOT_LIVE, BOOTS_ONCE, failed};
use crate::power::{Aim, Brought, unreported};
use crate::record::{done, intend, succeed};
use crate::remembered::{LiveMedium, WriteNews};

#[async_trait]
impl LiveMedia for NativeHost {
    async fn boot_live(&mut self, request: ProvisionRequest) -> Outcome<()> {
        let (kind, wish) = (OperationType::Provision, request.wish.as_deref());
        if self.already(kind, wish).await {
            return Ok(Verdict::Done(()));
        }
        self.live.attempt().ask();
        self.unheard(kind, wish, false)?;
        self.nothing_ends_by(wish, BOOT_LIVE)?;
        let address = self.read_by_bmc(&request.image.url, BOOT_LIVE, "spec.image.url")?;
        let mut operation = self.open(Work::BootLive, wish).await?;
        if Work::BootLive.turned(operation.status()) {
            self.journal.cancel_open("a live ISO is to be booted instead").await?;
            operation = self.open(Work::BootLive, wish).await?;
        }
        if !is_begun(&operation) {
            self.readable_in_place(&request)?;
            self.may_be_wiped_after().await?;
        }
        let result = self.live_steps(&mut operation, &request.image.url, &address).await;
        self.closing(&mut operation, result).await
    }

    async fn findings(&mut self) -> Outcome<Vec<Finding>> {
        self.recall_live(self.context.deployed.as_ref());
        // A machine that is off is given its live ISO again when it is switched on.
        let runs = self.live.timers().power.last() == Some(true);
        let lost = if runs { self.live_lost().await } else { None };
        Ok(Verdict::Done(lost.into_iter().collect()))
    }
}

impl NativeHost {
    /// The way to the live system. Once its start is recorded it may be running: from then on, failures of the BMC are reported on the host and waited
    /// out, and are no reason to begin anew. Before that, a BMC that is silent or busy is none either.
    async fn live_steps(&self, operation: &mut Operation, url: &str, address: &str) -> Outcome<()> {
        let away = |failure: &Failure| matches!(failure.cause, Cause::BmcUnreachable | Cause::BmcBusy);
        let mut failure = match self.live_way(operation, url, address).await {
            Err(failure) if live_iso::ordered(operation.status()) => failure,
            Err(failure) if away(&failure) && is_begun(operation) => failure,
            other => return other,
        };
        if !matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) {
            if !failure.message.starts_with(BOOT_LIVE) {
                failure.message = format!("{BOOT_LIVE}: {}", failure.message);
            }
            failure.retry = Retry::Waiting;
        }
        Err(failure)
    }

    async fn live_way(&self, operation: &mut Operation, url: &str, address: &str) -> Outcome<()> {
        let (mut connected, sight) = self.proven(Effect::Live).await?;
        if !is_begun(operation) {
            let bmc = connected.as_ref();
            // Report what the BMC lacks before doing anything to the machine.
            bmc.data_drive().map_err(|lacking| of_bmc(lacking.keeps_from(BOOT_LIVE)))?;
            bmc.boot_device().map_err(|lacking| of_bmc(lacking.keeps_from(BOOT_LIVE)))?;
            if let Some(waiting) = self.switch_secure_boot(operation, bmc, Effect::Live).await? {
                return Ok(waiting.map(|_| ()));
            }
        }
        let (mut powered_on, mut ready) = (sight.powered_on, self.is_live_ready());
        loop {
            let bmc = connected.as_ref();
            let (may_cut, refused) = (!self.context.disable_power_off, self.live.timers().reset_refused);
            match live_iso::way(operation.status(), &Facts { powered_on, may_cut, refused, ready }) {
                Way::SwitchOff { begun } => {
                    if !self.off_for_live(operation, bmc, begun).await? {
                        return Ok(Verdict::working("waiting for the power to go, so that the live ISO is booted", 1));
                    }
                    (powered_on, ready) = (Some(false), false);
                }
                Way::MakeReady => {
                    if let Some(working) = self.insert_live(operation, bmc, url, address).await? {
                        let progress = StepProgress { message: working.step.clone(), ..StepProgress::default() };
                        operation.progress(Step::InsertLive.name(), progress).await;
                        return Ok(Verdict::Working(working));
                    }
                    ready = true;
                    // That took time, be it seconds: another machine may be behind the BMC, and somebody may have switched this one.
                    let (again, sight) = self.proven(Effect::Live).await?;
                    if sight.powered_on != powered_on {
                        self.live.timers().live_ready = None;
                        let text = "the machine was switched while its live ISO was put in: it is looked at anew";
                        return Ok(Verdict::working(text, 1));
                    }
                    connected = again;
                }
                Way::SwitchOn => return self.switch_on_live(operation, bmc, powered_on).await,
                Way::Reset { attempt } => return self.reset_live(operation, bmc, attempt).await,
                Way::Arrived => {
                    done(operation, Step::SwitchOnLive, "the machine was switched on")?;
                    return self.live_provisioned(operation, "booting the live ISO").await;
                }
                Way::LeaveAlone => {
                    let text = "the BMC was to reset the machine; whether it did is not known, and it is not repeated: if the machine does not run its live system, restart it";
                    tracing::warn!(host = %self.context.key.name, "{text}");
                    return self.live_provisioned(operation, text).await;
                }
                Way::Unreported => return Err(unreported()),
            }
        }
    }

    /// Fails if no wipe could follow: an accepted machine is wiped by this host's mark alone, and a live ISO leaves none.
    async fn may_be_wiped_after(&self) -> Result<(), Failure> {
        let record = self.context.machine.recorded().await?;
        let requires_mark = record.and_then(|record| record.accepted).is_some_and(|accepted| accepted.requires_mark);
        if !requires_mark || self.context.cleaning == CleaningMode::Disabled {
            return Ok(());
        }
        let text = format!(
            "{BOOT_LIVE}: the machine was accepted in another's place, so that its disks are wiped by this host's mark alone, and a live ISO leaves none by which they could be wiped after it"
        );
        let mut failure = Failure::new(Cause::InvalidRequest, text).advise(
            "set spec.automatedCleaningMode to disabled, if the machine may go unwiped; or for as long as it takes to provision it once with an image for its disk (spec.image.format raw or qcow2), which carries the mark",
        );
        failure.retry = Retry::AfterChange;
        Err(failure)
    }

    /// Cuts the power; whether the machine has been seen off.
    async fn off_for_live(&self, operation: &mut Operation, bmc: &dyn Bmc, begun: bool) -> Result<bool, Failure> {
        let before = bmc.calls();
        let step = Step::SwitchOffForLive.recorded(operation.status());
        if !begun || step.phase == StepPhase::Done {
            // One that has come on again may run its live system by another process's word: this one's has to stand in the record first.
            intend(operation, Step::SwitchOffForLive, step.attempt.unwrap_or(0).saturating_add(1), None).await?;
        }
        let off = self.hard_off(bmc, &operation.id()).await;
        // Only a machine that is seen off counts as off.
        let gone = off? && bmc.look().await.map_err(of_bmc)?.powered_on == Some(false);
        Self::account(operation, bmc, before);
        if gone {
            // What it was made ready for may have been used up by the start before.
            self.live.timers().live_ready = None;
            self.shared.hub.forget_agent(self.uid());
            self.boot_ends(operation);
            done(operation, Step::SwitchOffForLive, "the machine is off")?;
        }
        Ok(gone)
    }

    /// Records the ISO and its drive, puts it in, and sets the boot source. Why that is not done yet, while the BMC reads it.
    async fn insert_live(
        &self,
        operation: &mut Operation,
        bmc: &dyn Bmc,
        url: &str,
        address: &str,
    ) -> Result<Option<Working>, Failure> {
        let before = bmc.calls();
        let known = self.journal.data().live_medium;
        let same = known.is_some_and(|medium| medium.url == url && medium.address == address);
        if !same {
            // The firmware may boot any medium that is in, and the drive has to be free.
            self.still_wanted().await?;
            if let Some(working) = self.live_medium_out(bmc).await? {
                return Ok(Some(working));
            }
            if let Some(working) = self.test_medium_first_out(bmc).await? {
                return Ok(Some(working));
            }
            if let Some(working) = self.data_medium_out(bmc, false).await? {
                return Ok(Some(working));
            }
            self.agent_medium_out(bmc).await?;
            let drives = bmc.data_drive().map_err(|lacking| of_bmc(lacking.keeps_from(BOOT_LIVE)))?;
            let drive = drives.boot_drive(address).await.map_err(failed)?;
            let medium =
                LiveMedium { url: url.to_owned(), address: address.to_owned(), drive, ..LiveMedium::default() };
            self.journal.note(|data| data.live_medium = Some(medium));
        }
        let step = Step::InsertLive.recorded(operation.status());
        let first = !same || step.attempt.is_none();
        if first {
            // One write records the medium and that it is about to go in.
            self.live_is_ahead();
            intend(operation, Step::InsertLive, step.attempt.unwrap_or(0).saturating_add(1), None).await?;
        }
        let waiting = self.live_ready(bmc).await;
        if first && waiting.is_err() && self.has_refused_live(bmc).await {
            operation.tells(WriteNews::Untouched);
        }
        Self::account(operation, bmc, before);
        let waiting = waiting?;
        if waiting.is_none() {
            done(operation, Step::InsertLive, "the live ISO is in its drive, and the machine is told to boot it")?;
        }
        Ok(waiting)
    }

    /// Records that the machine is about to boot the ISO, and is to at each start from now on.
    async fn intend_live(&self, operation: &mut Operation) -> Result<(), Failure> {
        if Step::BootLive.begun(operation.status()) {
            return Ok(());
        }
        self.journal.note(|data| {
            if let Some(medium) = data.live_medium.as_mut() {
                medium.boots = true;
            }
        });
        intend(operation, Step::BootLive, 1, None).await
    }

    /// Requests power on until the machine is seen on, but only if it is seen off.
    async fn switch_on_live(&self, operation: &mut Operation, bmc: &dyn Bmc, on: Option<bool>) -> Outcome<()> {
        let (of, before) = (operation.id(), bmc.calls());
        self.intend_live(operation).await?;
        if !Step::SwitchOnLive.begun(operation.status()) {
            intend(operation, Step::SwitchOnLive, 1, None).await?;
        }
        let aim = Aim { wish: PowerWish::On, of: &of, unseen: Unseen::Left, may_cut: true };
        let brought = self.bring_power(bmc, &aim, on).await;
        Self::account(operation, bmc, before);
        match brought? {
            Brought::Unreported => Err(unreported()),
            // One that is on is seen at the next look.
            Brought::There | Brought::Ordered(..) | Brought::Waiting(_) => {
                Ok(Verdict::working("waiting for the machine to power on from its live ISO", 1))
            }
        }
    }

    /// The same where the power must not be cut, or cannot be seen: one reset.
    async fn reset_live(&self, operation: &mut Operation, bmc: &dyn Bmc, attempt: u32) -> Outcome<()> {
        let before = bmc.calls();
        self.boot_ends(operation);
        self.intend_live(operation).await?;
        intend(operation, Step::ResetLive, attempt, None).await?;
        self.live.timers().reset_refused = false;
        if let Err(gone) = self.still_wanted().await {
            // It has not been ordered.
            self.live.timers().reset_refused = true;
            return Err(gone);
        }
        let sent = bmc.power().change(PowerAction::Restart).await;
        Self::account(operation, bmc, before);
        if let Err(error) = sent {
            let kept =
                matches!(error.kind, ErrorKind::Busy { .. } | ErrorKind::Unauthorized | ErrorKind::TlsNotTrusted);
            self.live.timers().reset_refused = kept || error.unmade || error.kind.is_definite_refusal();
            return Err(of_bmc(error));
        }
        self.live.timers().power.restarted();
        done(operation, Step::ResetLive, "the machine was reset")?;
        self.live_provisioned(operation, "booting the live ISO (reset by the BMC)").await
    }

    async fn live_provisioned(&self, operation: &mut Operation, text: &str) -> Outcome<()> {
        let once = self.journal.data().live_medium.is_some_and(|medium| medium.once);
        let text = if once { format!("{text}; {BOOTS_ONCE}") } else { text.to_owned() };
        done(operation, Step::BootLive, &text)?;
        self.boot_ends(operation);
        succeed(operation, "provisioned").await?;
        self.shared.hub.retire(self.uid());
        self.shared.media.withdraw(self.uid());
        self.live.timers().live_ready = None;
        Ok(Verdict::Done(()))
    }
}

/// Something of the way has been recorded.
fn is_begun(operation: &Operation) -> bool {
    let steps = [Step::SwitchOffForLive, Step::InsertLive, Step::BootLive];
    steps.iter().any(|step| step.begun(operation.status()))
}
