//! Inspection: boot the agent and ask it, or, if it is to be fast, ask the BMC alone.
//!
//! A fast inspection only reads. It gives the machine no order, puts no medium in and leaves the boot override alone, so it runs on a machine that is on
//! as on one that is off. It may be made again at any time: a process that is killed in it leaves an open operation, which the next goes on with. What its
//! facts are worth to later steps says [`inventory::Inspected`]'s module.

use agent_protocol::{Action, ErrorCode, Outcome as AgentOutcome};
use api::metal3::InspectionMode;
use api::metamorph::{OperationPhase, OperationType};
use async_trait::async_trait;
use bmc::Bmc;
use inventory::{Devices, HardwareDetails, Inspected, LinkReport, LinkSeen};
use provisioner::{Cause, Failure, Inspect, InspectRequest, Outcome, Retry, Verdict};
use provisioning_plan::record::may_become;
use provisioning_plan::steps::{Step, Work};

use crate::commands::Ran;
use crate::failures::{of_bmc, of_command};
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::Operation;
use crate::limits::disks_to_record;
use crate::record::{done, intend, succeed};

#[async_trait]
impl Inspect for NativeHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<Inspected>> {
        self.settle_with_journal().await;
        self.live.attempt().rests();
        let wish = request.wish.as_deref();
        let work = Work::inspection(request.mode == Some(InspectionMode::Fast));
        if work == Work::FastInspect && self.is_recorded_as_fast(wish) {
            // Its end is recorded, and the host may not have heard what was found: looking once more does no harm.
            let (bmc, _) = self.proven(Effect::Look).await?;
            return Ok(Verdict::Done(listed(bmc.as_ref()).await?));
        }
        self.unheard(OperationType::Inspect, wish, request.restart)?;
        // A look by the BMC ends nothing, and what is recorded of it does: what the machine runs is not known afterwards.
        self.nothing_ends("inspect the machine")?;
        let mut operation = self.open(work, wish).await?;
        if work.turned(operation.status()) {
            self.journal.cancel_open("spec.inspectionMode has changed").await?;
            operation = self.open(work, wish).await?;
        }
        if work == Work::FastInspect {
            let result = self.fast_inspect_steps(&mut operation).await;
            return self.closing(&mut operation, result).await;
        }
        self.insists(request.force_reboot);
        let result = self.inspect_steps(&mut operation).await;
        let result = self.closing(&mut operation, result).await;
        self.forced(&operation, result)
    }
}

impl NativeHost {
    /// Whether the newest operation is a fast inspection for this very wish that has succeeded.
    fn is_recorded_as_fast(&self, wish: Option<&str>) -> bool {
        self.journal.newest().is_some_and(|newest| {
            let is_fast = Work::Inspect.recorded(&newest.status) == Work::FastInspect;
            wish.is_some() && newest.wish.as_deref() == wish && newest.succeeded(OperationType::Inspect) && is_fast
        })
    }

    async fn fast_inspect_steps(&self, operation: &mut Operation) -> Outcome<Box<Inspected>> {
        let (bmc, _) = self.proven(Effect::Look).await?;
        if !Step::ReadInventory.begun(operation.status()) {
            intend(operation, Step::ReadInventory, 1, None).await?;
        }
        let before = bmc.calls();
        let listed = listed(bmc.as_ref()).await;
        Self::account(operation, bmc.as_ref(), before);
        let found = listed?;
        let mut text = told(&found);
        if let Some(forgotten) = self.keep_agents_disks().await? {
            text = format!("{text}; {forgotten}");
        }
        done(operation, Step::ReadInventory, &text)?;
        succeed(operation, &format!("inspected by the BMC: {text}")).await?;
        Ok(Verdict::Done(found))
    }

    /// Keeps which disks an agent has found, of which the host's HardwareData is about to tell no more: the next wipe expects them all the same. Which of
    /// them it cannot keep.
    async fn keep_agents_disks(&self) -> Result<Option<String>, Failure> {
        let Some(known) = self.context.hardware.as_ref().filter(|known| known.is_from_system()) else {
            return Ok(None);
        };
        let record = self.context.machine.recorded().await?;
        if record.and_then(|record| record.accepted).is_some_and(|accepted| accepted.requires_mark) {
            // They are the disks of the machine that was there before.
            self.journal.note(|data| data.disks = None);
            return Ok(None);
        }
        let disks = disks_to_record(&known.storage);
        let (kept, all) = (disks.len(), known.storage.len());
        self.journal.note(|data| data.disks = Some(disks));
        let text = format!(
            "of the {all} disks that an agent found before, the next wipe expects {kept}: the host's record has no room for more"
        );
        Ok((kept < all).then_some(text))
    }

    async fn inspect_steps(&self, operation: &mut Operation) -> Outcome<Box<Inspected>> {
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        match self.run(operation, Step::CollectInventory, &boot_id, Action::Inspect).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            Ran::Finished(id, AgentOutcome::Inspected { hardware, marks, links, devices, .. }) => {
                fits(&hardware, "the agent reports")?;
                for mark in &marks {
                    tracing::info!(host = %self.context.key.name, place = %mark.place, owner = %mark.owner, "owner's mark found");
                }
                self.record_agent(&boot_id).await?;
                // From now on the HardwareData tells.
                self.journal.note(|data| data.disks = None);
                let text = format!("{} disks, {} network interfaces", hardware.storage.len(), hardware.nics.len());
                let text = format!("{text}{}{}", beside(&devices), heard(&hardware, &links));
                done(operation, Step::CollectInventory, &text)?;
                succeed(operation, "inspected").await?;
                self.shared.hub.acknowledge(self.uid(), &id);
                Ok(Verdict::Done(Box::new(Inspected { links, devices: *devices, ..Inspected::from(*hardware) })))
            }
            Ran::Finished(id, outcome) => Err(self.unexpected(&id, &outcome)),
        }
    }

    /// The failure behind an unexpected outcome. The agent may forget the outcome only once it is recorded: [`Self::closing`].
    pub fn unexpected(&self, id: &agent_protocol::CommandId, outcome: &AgentOutcome) -> Failure {
        match outcome {
            AgentOutcome::Failed(error) if id.step == Step::WipeDisks.name() && error.code == ErrorCode::NoDisk => {
                Failure::new(Cause::HardwareFailed, error.message.clone()).advise(self.disks_expected().1)
            }
            AgentOutcome::Failed(error) if id.step == Step::EraseDisks.name() && error.code == ErrorCode::NoDisk => {
                Failure::new(Cause::NoSuitableDisk, error.message.clone()).advise(
                    "name those that are there in spec.erase.disks, as the host's HardwareData has them; or look at the disks, their controller, and its driver in the agent image",
                )
            }
            AgentOutcome::Failed(error) => of_command(error),
            _ => Failure::new(
                Cause::Internal,
                format!("run {} on the agent: it answered with the outcome of other work", id.step),
            ),
        }
    }

    /// Closes the operation if its work has failed, so that the history shows the failure; the failure itself goes on to the host.
    pub async fn closing<T: Send>(&self, operation: &mut Operation, result: Outcome<T>) -> Outcome<T> {
        let failure = match result {
            Ok(verdict) => return Ok(verdict),
            Err(failure) => failure,
        };
        if matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading)
            || matches!(failure.retry, Retry::Waiting | Retry::Held)
        {
            // What was done is recorded or will be looked at again: no failure of the host.
            if !matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) {
                operation.waits(&failure).await;
            }
            return Err(failure);
        }
        self.live.timers().booted = None;
        if !may_become(operation.status().phase, OperationPhase::Failed) {
            return Err(failure);
        }
        match operation.finish(Err(&failure)).await {
            Ok(()) => {}
            Err(error) if self.context.deleting => {
                tracing::warn!(host = %self.context.key.name, %error, "the failed operation could not be closed");
            }
            // The agent keeps the outcome until it is recorded: the call is made again.
            Err(error) => return Err(error.into()),
        }
        self.settle_with_journal().await;
        Err(failure)
    }
}

/// The hardware as the BMC lists it.
async fn listed(bmc: &dyn Bmc) -> Result<Box<Inspected>, Failure> {
    let found = bmc.hardware().map_err(of_bmc)?.list().await.map_err(of_bmc)?;
    let hardware = found.hardware.bounded();
    fits(&hardware, "the BMC lists")?;
    Ok(Box::new(Inspected { hardware, devices: found.devices.bounded(), ..found }))
}

/// Refuses facts that are too large to be kept.
fn fits(hardware: &HardwareDetails, who: &str) -> Result<(), Failure> {
    hardware.fits(who).map_err(|text| Failure::new(Cause::HardwareFailed, text))
}

/// Ports that are named in a sentence; of more their number is told.
const NAMED_PORTS: usize = 8;

/// What was heard on which port, or why nothing was, as the end of a sentence.
fn heard(hardware: &HardwareDetails, links: &[LinkReport]) -> String {
    let said = links.iter().take(NAMED_PORTS).map(|link| {
        let nic = hardware.nics.iter().find(|nic| nic.name.as_deref() == Some(&link.nic));
        let lldp = nic.and_then(|nic| nic.lldp.as_ref()).filter(|_| link.seen == LinkSeen::Heard);
        let words = match lldp {
            Some(lldp) => {
                let switch = lldp.switch_system_name.as_ref().or(lldp.switch_id.as_ref());
                let parts = [switch, lldp.port_id.as_ref()].into_iter().flatten();
                parts.map(|part| terms::clean(part, MAX_SAID)).collect::<Vec<_>>().join(" ")
            }
            None => link.seen.words().to_owned(),
        };
        match link.neighbours {
            0 | 1 => format!("{} {words}", link.nic),
            more => format!("{} {words} and {} others", link.nic, more - 1),
        }
    });
    let said: Vec<String> = said.collect();
    let more = links.len().saturating_sub(NAMED_PORTS);
    let more = if more == 0 { String::new() } else { format!(", and {more} more ports") };
    if said.is_empty() { String::new() } else { format!("; LLDP: {}{more}", said.join(", ")) }
}

/// What else was found, as the end of a sentence.
fn beside(devices: &Devices) -> String {
    devices.words().map(|words| format!("; {words}")).unwrap_or_default()
}

/// Longest name of a switch or port in a sentence, in characters.
const MAX_SAID: usize = 40;

/// What a BMC lists, in words.
fn told(found: &Inspected) -> String {
    let text = format!("{} disks, {} network interfaces", found.hardware.storage.len(), found.hardware.nics.len());
    let text = format!("{text}{}", beside(&found.devices));
    match found.gaps() {
        Some(gaps) => format!("{text}; not listed, or not completely: {gaps}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inventory::{Lldp, Nic};

    #[test]
    fn what_was_heard_on_the_ports_is_said_in_a_bounded_sentence() {
        let link = |nic: &str, seen, neighbours| LinkReport { nic: nic.into(), seen, neighbours };
        let lldp = |name: Option<&str>| Lldp {
            switch_id: Some("00:1c:73:00:00:01".into()),
            port_id: Some("Ethernet1/1".into()),
            switch_system_name: name.map(Into::into),
        };
        let nic = |name: &str, lldp| Nic { name: Some(name.into()), lldp: Some(lldp), ..Nic::default() };
        let nics = vec![nic("eno1", lldp(Some("leaf-1"))), nic("eno2", lldp(None))];
        let hardware = HardwareDetails { nics, ..HardwareDetails::default() };
        let links = [
            link("eno1", LinkSeen::Heard, 1),
            link("eno2", LinkSeen::Heard, 3),
            link("eno3", LinkSeen::Silent, 0),
            link("eno4", LinkSeen::Down, 0),
        ];
        assert_eq!(
            heard(&hardware, &links),
            "; LLDP: eno1 leaf-1 Ethernet1/1, eno2 00:1c:73:00:00:01 Ethernet1/1 and 2 others, eno3 no LLDP seen, eno4 link down"
        );
        assert_eq!(heard(&hardware, &[]), "");
        let many: Vec<LinkReport> = (0..200).map(|n| link(&format!("n{n}"), LinkSeen::Down, 0)).collect();
        assert!(heard(&hardware, &many).ends_with("n7 link down, and 192 more ports"));
    }
}
