//! The gate before every effect: is this the machine that the host is known to be?
//!
//! The record says what the machine has shown before, the BMC's view and the agent's apart. The BMC shows the machine with the call that
//! reads its power ([`NativeHost::same_machine`]); the agent with each report ([`NativeHost::agent_proof`]), before the first write or wipe of
//! its boot. The rule itself is `machine_identity`'s; what each finding allows is here:
//!
//! | effect | match | unknown | mismatch |
//! |---|---|---|---|
//! | look | yes | yes | no |
//! | power as asked for | yes | as a boot, or if the BMC has never shown anything | no |
//! | boot of the agent, taking its medium out | yes | while no agent has ever reported, or the BMC's pin is unchanged | no |
//! | start from a live ISO, which no agent's proof follows | yes | if the BMC's pin is unchanged | no |
//! | what cannot be undone | yes, and the agent's proof | as a boot, and the agent's proof | no |
//!
//! If UUID and serial number do not decide, the recorded MACs do: they are read anew before each effect, which fails if the BMC does not show them.
//! Only consent lifts a mismatch: it names the fingerprint in the message. Nothing gives a host the machine of another host.

use api::metamorph::{AcceptedMachine, HostReference, MachineRecordSpec};
use bmc::{Bmc, BmcError, ErrorKind, Sight};
use inventory::{BmcPin, HardwareDetails, MachineEvidence};
use machine_identity::{Common, Finding};
use provisioner::{Cause, Failure, OtherMachine};
use provisioning_plan::in_use::names;
use std::sync::Arc;
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::used::{in_use_by, left_in_use};

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reading.
    Look,
    /// A requested change of power.
    Power,
    /// A boot of the agent.
    Boot,
    /// A start from a live ISO: no agent will show on which machine it was.
    Live,
    /// An effect that a tenant of the machine would suffer from.
    Destroy,
}

/// Whose view of the machine it is.
#[derive(Clone, Copy)]
enum By {
    Bmc,
    Agent,
}

impl By {
    /// The same view in a record, and the other one.
    fn views(self, record: &MachineRecordSpec) -> (Option<&MachineEvidence>, Option<&MachineEvidence>) {
        match self {
            Self::Bmc => (record.bmc.as_ref(), record.agent.as_ref()),
            Self::Agent => (record.agent.as_ref(), record.bmc.as_ref()),
        }
    }
}

/// The annotation that gives consent.
const CONSENT: &str = api::metal3::annotation::ACCEPT_MACHINE;

/// Advice where a live ISO is to be booted on a machine that nothing tells from others.
const NAMELESS: &str = "have the BMC show the machine's UUID, serial number or MAC addresses, or give it a certificate (https) by which it is known again; or provision the host with an image for its disk (spec.image.format raw or qcow2): the agent that writes it shows the machine";
/// Longest name of a host, bytes.
const MAX_NAME: usize = 253;
/// How long disks may take to appear after an agent's first report.
const LATE_DISKS: Duration = Duration::from_secs(60);
/// How long looks reuse the MACs that a BMC has shown: reading them is a call.
const MACS_LAST: Duration = Duration::from_secs(600);

impl NativeHost {
    /// The connected BMC and what it shows, if the machine behind it is this host's.
    pub async fn same_machine(&self, effect: Effect) -> Result<(Arc<dyn Bmc>, Sight), Failure> {
        let recorded = self.context.machine.recorded().await?;
        if !(self.context.may_act)() {
            return Err(Failure::new(Cause::NotLeading, "use the machine: another process leads"));
        }
        let Some(mut record) = recorded else {
            let (bmc, sight) = match self.sight(&BmcPin::default()).await {
                // The connection is to the BMC of a deleted record: without a record, the next BMC is trusted.
                Err(error) if error.kind == ErrorKind::AnotherBmc => {
                    self.sight(&BmcPin::default()).await.map_err(of_bmc)?
                }
                other => other.map_err(of_bmc)?,
            };
            self.first_for(bmc.as_ref(), &sight, effect).await?;
            return Ok((bmc, sight));
        };
        let (bmc, sight) = match self.sight(&record.pin).await {
            Ok(seen) => seen,
            Err(error) => {
                let Some(seen) = error.presented.as_deref() else { return Err(of_bmc(error)) };
                let fingerprint = machine_identity::fingerprint_of_bmc(seen);
                if !machine_identity::is_pinned(seen) {
                    return Err(Failure::new(Cause::AnotherMachine, format!("use the machine: {error}"))
                        .advise("correct spec.bmc.address or the cables, or have the BMC show its service root; to begin anew, delete the host's MachineRecord"));
                }
                if !self.consents(&fingerprint) {
                    // The machine behind another host's BMC is that host's: consent to it would be refused.
                    if let Some(host) = self.has_bmc(seen).await? {
                        return Err(taken(&format!("{error}: "), "BMC", &host));
                    }
                    return Err(self.another(&record.host, &error.to_string(), &fingerprint));
                }
                let (bmc, sight) = self.sight(seen).await.map_err(of_bmc)?;
                if let Some(host) = self.holder(By::Bmc, &sight.evidence, None).await? {
                    // A BMC that is not recorded must not stay connected.
                    self.live.close().await;
                    return Err(held(&host));
                }
                // Another BMC is accepted; whether the machine behind it is another one too is checked below.
                let requires_mark = record.accepted.as_ref().is_some_and(|accepted| accepted.requires_mark);
                record.pin.clone_from(seen);
                record.accepted = Some(AcceptedMachine { fingerprint, time: None, requires_mark });
                record = self.store(record).await?;
                (bmc, sight)
            }
        };
        self.judge(record, bmc.as_ref(), &sight, effect).await?;
        Ok((bmc, sight))
    }

    /// The host whose record has this BMC, and in it the same system as far as that is known: several systems may share a BMC.
    async fn has_bmc(&self, pin: &BmcPin) -> Result<Option<String>, Failure> {
        let system = |address: &str| bmc::Address::parse(address).ok()?.system_path().map(ToOwned::to_owned);
        let own_system = system(&self.address());
        let has_it = |other: &&OtherMachine| {
            let theirs = system(&other.record.bmc_address);
            other.exists
                && machine_identity::is_pinned(&other.record.pin)
                && machine_identity::holds(&other.record.pin, pin)
                && (own_system.is_none() || theirs.is_none() || own_system == theirs)
        };
        Ok(self.others().await?.iter().find(has_it).map(|other| other.host.clone()))
    }

    /// The BMC, if it is the one of the pin, and what it shows now.
    async fn sight(&self, pin: &BmcPin) -> Result<(Arc<dyn Bmc>, Sight), BmcError> {
        let (bmc, first) = self.connected(pin).await?;
        if let Some(sight) = first {
            return Ok((bmc, sight));
        }
        match bmc.look().await {
            Ok(sight) => Ok((bmc, sight)),
            Err(error) => {
                if error.kind == ErrorKind::AnotherBmc {
                    // The BMC that answers there now has no session of ours to end.
                    self.live.drop_connection().await;
                }
                Err(error)
            }
        }
    }

    /// Compares with the record, and allows what the finding allows.
    async fn judge(
        &self,
        record: MachineRecordSpec,
        bmc: &dyn Bmc,
        sight: &Sight,
        effect: Effect,
    ) -> Result<(), Failure> {
        let Some(recorded) = record.bmc.clone() else { return self.first_for(bmc, sight, effect).await };
        let others = if effect == Effect::Look { Vec::new() } else { self.others().await? };
        let common = common_to_known(&others, &recorded);
        // Power changes on request, but not for a machine that no longer shows the identity that it has shown.
        let trusting = effect == Effect::Look || effect == Effect::Power && !machine_identity::tells(&recorded);
        let mut seen = sight.evidence.clone();
        let mut finding = machine_identity::compare(&recorded, &seen, &common);
        if !matches!(finding, Finding::Match { .. }) && !recorded.macs.is_empty() {
            seen.macs = match effect {
                Effect::Look => self.macs_of_late(bmc).await,
                _ => self.macs_now(bmc).await.map_err(macs_unreadable)?,
            };
            finding = machine_identity::compare(&recorded, &seen, &common);
        }
        let pin = bmc.pin();
        match finding {
            Finding::Match { drift } => {
                if effect != Effect::Look
                    && let Some(host) = held_by(&others, true, |r| r.bmc.as_ref(), &seen, &common)
                {
                    return Err(held(&host));
                }
                self.drifted(&drift).await;
                self.keep_up(record, &pin).await
            }
            Finding::Unknown => {
                let unchanged = machine_identity::is_pinned(&record.pin) && machine_identity::holds(&record.pin, &pin);
                // The first agent to report is trusted, and none comes after a start from a live ISO.
                let is_first = record.agent.is_none() && effect != Effect::Live;
                if trusting || unchanged || is_first {
                    // An unproven machine adds nothing to what is known of the BMC.
                    let known = record.pin.clone();
                    return self.keep_up(record, &known).await;
                }
                let why = "its BMC shows neither UUID, serial number nor MAC addresses to go by, and is not known by its certificate or service UUID either";
                if effect == Effect::Live {
                    return Err(unknown(&format!("{why}, and no agent shows on which machine a live ISO is booted"))
                        .advise(NAMELESS));
                }
                Err(unknown(why).advise("look which machine it is; to begin anew with the machine that is there, delete the host's MachineRecord"))
            }
            Finding::Mismatch { differences } => {
                let fingerprint = machine_identity::fingerprint(&seen);
                let left = machine_identity::survivors(&recorded, &seen);
                let left = if left.macs.0 > 0 { format!("; {left}") } else { String::new() };
                let text = format!("the BMC shows another machine: {}{left}", differences.join(", "));
                let consents = self.consents(&fingerprint);
                if consents {
                    seen.macs = self.macs_or_none(bmc).await;
                }
                if let Some(host) = self.holder(By::Bmc, &seen, None).await? {
                    return Err(held_though(&format!("{text}: "), &host));
                }
                if !consents {
                    return Err(self.another(&record.host, &text, &fingerprint));
                }
                let new = MachineRecordSpec {
                    pin,
                    bmc: Some(seen),
                    agent: None,
                    accepted: Some(self.accepts(fingerprint)),
                    ..self.blank()
                };
                self.store(new).await.map(|_| ())
            }
        }
    }

    /// The first sight of a machine. What no agent will show has to be told by the BMC from the beginning.
    async fn first_for(&self, bmc: &dyn Bmc, sight: &Sight, effect: Effect) -> Result<(), Failure> {
        self.first_sight(bmc, sight).await?;
        let record = self.context.machine.recorded().await?.filter(|record| record.bmc.is_some());
        match record.filter(|_| effect == Effect::Live) {
            Some(record) => Box::pin(self.judge(record, bmc, sight, effect)).await,
            None => Ok(()),
        }
    }

    /// Nothing is recorded: trusts the first machine, unless another host holds it, or it is not the one whose hardware is known.
    async fn first_sight(&self, bmc: &dyn Bmc, sight: &Sight) -> Result<(), Failure> {
        let mut seen = sight.evidence.clone();
        seen.macs = self.macs_or_none(bmc).await;
        let fingerprint = machine_identity::fingerprint(&seen);
        let others = self.others().await?;
        let common = common_of(&others, Some(&seen));
        if let Some(host) = held_by(&others, false, |r| r.bmc.as_ref(), &seen, &common) {
            return Err(held(&host));
        }
        self.is_nobodys(&others, &seen, &common)?;
        let mut refused = None;
        // Hardware details without evidence, made up by hand for instance, cannot be compared.
        let inspected = self.context.hardware.as_deref().map(of_hardware).filter(machine_identity::tells);
        let known = self.known_before(inspected.as_ref());
        if let Some(known) = &known
            && !machine_identity::across(known, &seen, &common)
        {
            let (known, comparable) = (machine_identity::comparable(known), machine_identity::comparable(&seen));
            if let Finding::Mismatch { differences } = machine_identity::compare(&known, &comparable, &common) {
                let of = if inspected.is_some() {
                    "that inspection has found (HardwareData, or else status.hardware)"
                } else {
                    "of spec.bootMACAddress"
                };
                refused = Some(format!("it is not the machine {of}: {}", differences.join(", ")));
            }
        }
        // What only a BMC has listed is nothing that an agent has seen.
        let is_from_system = self.context.hardware.as_deref().is_some_and(HardwareDetails::is_from_system);
        let agent = inspected.filter(|_| is_from_system);
        let mut new = MachineRecordSpec { pin: bmc.pin(), bmc: Some(seen), agent, ..self.blank() };
        if let Some(why) = refused {
            if !self.consents(&fingerprint) {
                return Err(self.another(&self.reference(), &why, &fingerprint));
            }
            new.agent = None;
            new.accepted = Some(self.accepts(fingerprint));
        }
        self.store(new).await.map(|_| ())
    }

    /// Checks for a host without a status that the machine is not in use by what was provisioned for a host that is gone. What this host's own record tells
    /// of a later time counts instead.
    pub fn is_nobodys(&self, others: &[OtherMachine], seen: &MachineEvidence, common: &Common) -> Result<(), Failure> {
        match self.begins.as_ref().zip(left_in_use(others, seen, common)) {
            Some((consent, left)) if !names(consent.as_deref(), &left.runs.owner) => {
                let own = self.journal.data().last_worked();
                // Of what ran at no known time nobody knows that it was removed.
                if left.at.is_some() && own >= left.at { Ok(()) } else { Err(in_use_by(&left)) }
            }
            _ => Ok(()),
        }
    }

    /// What is known of a machine that is not recorded: what was inspected, and the host's boot MAC where that has no MACs. A host that has never been
    /// registered has its boot MAC from its user alone: it is inspected first, because many BMCs do not list all interfaces.
    fn known_before(&self, inspected: Option<&MachineEvidence>) -> Option<MachineEvidence> {
        let mut known = inspected.cloned().unwrap_or_default();
        if known.macs.is_empty() && !self.context.provisioning_id.is_empty() {
            known.macs.extend(self.boot_mac());
        }
        Some(known).filter(machine_identity::tells)
    }

    /// The host's boot MAC, if it is one that tells machines apart.
    fn boot_mac(&self) -> Option<String> {
        self.context.boot_mac.as_deref().and_then(machine_identity::normal::mac)
    }

    /// Permanent MACs as the BMC shows them now.
    async fn macs_now(&self, bmc: &dyn Bmc) -> Result<Vec<String>, BmcError> {
        let macs = bmc.macs().await?;
        self.live.timers().macs = Some((macs.clone(), Instant::now()));
        Ok(macs)
    }

    /// The same where nothing depends on them yet: a BMC that fails to show them has none.
    async fn macs_or_none(&self, bmc: &dyn Bmc) -> Vec<String> {
        self.macs_now(bmc).await.unwrap_or_else(|error| {
            tracing::debug!(host = %self.context.key.name, %error, "the BMC shows no MAC addresses");
            Vec::new()
        })
    }

    /// The same for a look: as the BMC has shown them not long ago.
    async fn macs_of_late(&self, bmc: &dyn Bmc) -> Vec<String> {
        let known = self.live.timers().macs.clone();
        match known {
            Some((macs, at)) if at.elapsed() < MACS_LAST => macs,
            _ => self.macs_or_none(bmc).await,
        }
    }

    /// The host whose record has this machine, whichever of the two came first. Nothing gives the machine to this host: neither consent, because a
    /// BMC can be made to show anything, nor a series of small changes. A host that matches this host's `recorded` evidence already is not news. A
    /// value does not become common because this host shows it too: it counts in favour of the host that has it.
    async fn holder(
        &self,
        by: By,
        seen: &MachineEvidence,
        recorded: Option<&MachineEvidence>,
    ) -> Result<Option<String>, Failure> {
        let others = self.others().await?;
        let common = if recorded.is_some() { Common::default() } else { common_of(&others, None) };
        let same = |known: &MachineEvidence, seen: &MachineEvidence| machine_identity::compare(known, seen, &common);
        let has_it = |other: &&OtherMachine| {
            let (view, across) = by.views(&other.record);
            let known_by_both = view
                .zip(recorded)
                .is_some_and(|(view, recorded)| matches!(same(view, recorded), Finding::Match { .. }));
            let found = view.map_or(Finding::Unknown, |view| same(view, seen));
            other.exists
                && !known_by_both
                && match found {
                    Finding::Match { .. } => true,
                    Finding::Unknown => across.is_some_and(|view| machine_identity::across(view, seen, &common)),
                    Finding::Mismatch { .. } => false,
                }
        };
        Ok(others.iter().find(has_it).map(|other| other.host.clone()))
    }

    pub async fn others(&self) -> Result<Vec<OtherMachine>, Failure> {
        self.context.machine.others().await.map_err(Failure::from)
    }

    /// Checks that the agent of this boot runs on the recorded machine. The first one is trusted, unless another host holds its machine.
    ///
    /// An agent without proof is not asked again: the machine is booted anew, because the reporting agent may be running elsewhere.
    pub async fn agent_proof(&self, boot_id: &str, disks_count: bool) -> Result<MachineRecordSpec, Failure> {
        let proof = self.agent_compared(boot_id, disks_count).await;
        if let Err(failure) = &proof
            && matches!(failure.cause, Cause::AnotherMachine | Cause::MachineUnknown)
            && self.shows_for_long(boot_id)
        {
            self.live.timers().disproved = Some(boot_id.to_owned());
        }
        proof
    }

    /// `disks_count` is false for an inspection whose end is about to be recorded: news of the machine are written with that.
    async fn agent_compared(&self, boot_id: &str, disks_count: bool) -> Result<MachineRecordSpec, Failure> {
        let agent = self.shared.hub.any_agent(self.uid()).filter(|agent| agent.boot_id == boot_id);
        let Some(seen) = agent.and_then(|agent| agent.machine) else {
            return Err(unknown("its agent has not said on which machine it runs")
                .advise("it is booted again; if that does not help, the agent image is older than this server"));
        };
        let record = self.context.machine.recorded().await?;
        let mut record = record.unwrap_or_else(|| self.blank());
        let others = self.others().await?;
        let common = common_of(&others, Some(&seen));
        let fingerprint = machine_identity::fingerprint(&seen);
        // This host's record gives no right to the machine of another host that had it first.
        if let Some(host) = held_by(&others, true, |r| r.agent.as_ref(), &seen, &common) {
            return Err(held(&host));
        }
        let known = common_to_known(&others, &seen);
        let recorded = record.agent.clone().filter(|r| machine_identity::tells(r) || !r.disks.is_empty());
        let refused = match &recorded {
            None => {
                if let Some(host) = held_by(&others, false, |r| r.agent.as_ref(), &seen, &common) {
                    return Err(held(&host));
                }
                // An inspection shows which MACs there are, and the host says then that its own is wrong. Whoever consents to a machine consents to its MACs.
                let boot =
                    MachineEvidence { macs: self.boot_mac().into_iter().collect(), ..MachineEvidence::default() };
                let shown = MachineEvidence { macs: seen.macs.clone(), ..MachineEvidence::default() };
                match machine_identity::compare(&boot, &shown, &known) {
                    Finding::Mismatch { .. } if disks_count && record.accepted.is_none() => {
                        let text =
                            "the agent runs on a machine that has no interface with this host's spec.bootMACAddress";
                        Some(self.another(&record.host, text, &fingerprint))
                    }
                    _ => None,
                }
            }
            Some(recorded) => {
                let left = machine_identity::survivors(recorded, &seen);
                let no_disk_left = disks_count && left.disks.0 > 0 && left.disks.1 == 0;
                match machine_identity::compare(recorded, &seen, &known) {
                    Finding::Match { .. } if no_disk_left => {
                        let text = format!("it is the machine recorded, but with other disks: {left}");
                        Some(self.unidentified(&text, &fingerprint))
                    }
                    Finding::Match { drift } => {
                        self.drifted(&drift).await;
                        return Ok(record);
                    }
                    // Disks are not carried from machine to machine while it runs the agent.
                    Finding::Unknown if left.disks.1 > 0 => return Ok(record),
                    Finding::Unknown => {
                        let text = format!("the agent finds nothing of what was recorded: {left}");
                        Some(self.unidentified(&text, &fingerprint))
                    }
                    Finding::Mismatch { differences } => {
                        let text = format!("the agent runs on another machine: {}; {left}", differences.join(", "));
                        Some(self.another(&record.host, &text, &fingerprint))
                    }
                }
            }
        };
        if refused.is_some()
            && let Some(host) = self.holder(By::Agent, &seen, None).await?
        {
            return Err(held(&host));
        }
        record.agent = Some(seen);
        match refused {
            Some(failure) if !self.consents(&fingerprint) => Err(failure),
            Some(_) => {
                record.accepted = Some(self.accepts(fingerprint));
                self.store(record).await
            }
            None if disks_count => self.store(record).await,
            None => {
                self.context.machine.record_with_next(record.clone());
                Ok(record)
            }
        }
    }

    /// Records what the inspection has seen, which counts from now on: disks and cards come and go.
    pub async fn record_agent(&self, boot_id: &str) -> Result<(), Failure> {
        let mut record = self.agent_proof(boot_id, false).await?;
        let agent = self.shared.hub.any_agent(self.uid()).filter(|agent| agent.boot_id == boot_id);
        match agent.and_then(|agent| agent.machine) {
            Some(seen) if record.agent.as_ref() != Some(&seen) => {
                if let Some(host) = self.holder(By::Agent, &seen, record.agent.as_ref()).await? {
                    return Err(held(&host));
                }
                record.agent = Some(seen);
                self.context.machine.record_with_next(record);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records that the machine's disks hold only this host's data, or nothing: an accepted machine is now like any other.
    pub async fn record_own_disks(&self) -> Result<(), Failure> {
        let record = self.context.machine.recorded().await?;
        match record {
            Some(mut record) if record.accepted.as_ref().is_some_and(|a| a.requires_mark) => {
                record.accepted = record.accepted.map(|a| AcceptedMachine { requires_mark: false, ..a });
                self.store(record).await.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Records a new certificate or address of a proven machine, once per connection. A consent that was recorded but not used up, because the
    /// process died in between, is used up now.
    async fn keep_up(&self, mut record: MachineRecordSpec, pin: &BmcPin) -> Result<(), Failure> {
        let consented = record.accepted.as_ref().is_some_and(|accepted| self.consents(&accepted.fingerprint));
        let merged = machine_identity::merged(&record.pin, pin);
        let address = self.address();
        // A record of the version before does not name its provisioner.
        let known = record.bmc_address == address
            && record.host.uid.as_ref() == Some(&self.context.key.uid)
            && record.provisioner.is_some();
        if !consented && (known && merged == record.pin || self.live.timers().kept_up) {
            return Ok(());
        }
        if consented && let Some(accepted) = &mut record.accepted {
            accepted.time = None;
        }
        record.pin = merged;
        record.bmc_address = address;
        record.host = self.reference();
        self.store(record).await?;
        self.live.timers().kept_up = true;
        Ok(())
    }

    /// Another machine, whose disks somebody else may have written.
    fn accepts(&self, fingerprint: String) -> AcceptedMachine {
        self.journal.doubts_disks();
        self.journal.note(|data| data.disks = None);
        accepted(fingerprint)
    }

    async fn store(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, Failure> {
        self.context.machine.record(record).await.map_err(Failure::from)
    }

    async fn drifted(&self, drift: &[String]) {
        if drift.is_empty() {
            return;
        }
        let text = drift.join(", ");
        let news = self.live.timers().drift.as_ref() != Some(&text);
        if news {
            self.live.timers().drift = Some(text.clone());
            self.context.machine.note(&format!("It is the machine recorded, though {text}")).await;
        }
    }

    fn blank(&self) -> MachineRecordSpec {
        MachineRecordSpec { host: self.reference(), bmc_address: self.address(), ..MachineRecordSpec::default() }
    }

    fn reference(&self) -> HostReference {
        HostReference { name: self.context.key.name.clone(), uid: Some(self.context.key.uid.clone()) }
    }

    pub fn address(&self) -> String {
        self.context.bmc.as_ref().map(|bmc| bmc.address.clone()).unwrap_or_default()
    }

    fn consents(&self, fingerprint: &str) -> bool {
        self.context.accept_machine.as_deref().map(str::trim) == Some(fingerprint)
    }

    /// Whether the agent of this boot has had time to find all disks, which may appear late.
    fn shows_for_long(&self, boot_id: &str) -> bool {
        let mut timers = self.live.timers();
        match &timers.uncertain {
            Some((boot, since)) if boot == boot_id => since.elapsed() >= LATE_DISKS,
            _ => {
                timers.uncertain = Some((boot_id.to_owned(), Instant::now()));
                false
            }
        }
    }

    /// It may still be the machine, so a deletion does not leave it unwiped at once, as it would another machine.
    fn unidentified(&self, found: &str, fingerprint: &str) -> Failure {
        unknown(found).advise(format!(
            "look at the machine's disks and their controller; if it is as it should be, set the annotation {CONSENT} to {fingerprint}, or, while the host is available, have it inspected again (annotation inspect.metal3.io)"
        ))
    }

    /// It is another machine than the record says, which is of the host `recorded`.
    fn another(&self, recorded: &HostReference, found: &str, fingerprint: &str) -> Failure {
        if !recorded.name.is_empty() && recorded.name != self.context.key.name {
            // No cable is wrong: the record was copied, or restored under another host's name.
            let of: String = recorded.name.chars().filter(char::is_ascii_graphic).take(MAX_NAME).collect();
            let text = format!(
                "use the machine: this host's MachineRecord is the record of the host {of}: {found}; nothing was written or wiped there"
            );
            return Failure::new(Cause::AnotherMachine, text).advise(
                "restore this host's own MachineRecord, or delete it: then the machine that is there is taken for this host's, unless another host has it",
            );
        }
        let wrong = self.context.accept_machine.as_deref().map(|given| {
            let given: String = given.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
            format!("; the annotation {CONSENT} names {given}, which is not this machine")
        });
        let text = format!("use the machine: {found}{}; nothing was written or wiped there", wrong.unwrap_or_default());
        Failure::new(Cause::AnotherMachine, text).advise(format!(
            "correct the cables, or spec.bmc.address (of a registered host while it is detached); if this machine shall take the host's place, set the annotation {CONSENT} to {fingerprint}"
        ))
    }
}

/// Only the MACs identify the machine, and the BMC fails to show them.
fn macs_unreadable(error: BmcError) -> Failure {
    let mut failure = of_bmc(error);
    failure.message = format!("use the machine: its MAC addresses alone tell which it is: {}", failure.message);
    failure
}

/// No consent settles which of two hosts a machine is.
fn held(host: &str) -> Failure {
    held_though("", host)
}

/// The same, with what else is known.
fn held_though(found: &str, host: &str) -> Failure {
    taken(found, "machine", host)
}

/// The same, of the machine or of its BMC.
fn taken(found: &str, what: &str, host: &str) -> Failure {
    let text =
        format!("use the machine: {found}it is the {what} of the host {host}; nothing was written or wiped there");
    let cables = if found.is_empty() {
        ""
    } else {
        "correct the cables, or spec.bmc.address (of a registered host while it is detached); or "
    };
    Failure::new(Cause::AnotherMachine, text).advise(format!(
        "{cables}delete one of the two hosts; if that host is another machine now, delete the MachineRecord of its name"
    ))
}

fn unknown(why: &str) -> Failure {
    Failure::new(
        Cause::MachineUnknown,
        format!(
            "use the machine: it cannot be told whether it is this host's: {why}; nothing was written or wiped there"
        ),
    )
}

fn accepted(fingerprint: String) -> AcceptedMachine {
    AcceptedMachine { fingerprint, time: None, requires_mark: true }
}

/// Values that machines with different MACs have in common, those of other hosts and the one that is `seen`. A record is one machine.
pub fn common_of<'a>(others: impl IntoIterator<Item = &'a OtherMachine>, seen: Option<&MachineEvidence>) -> Common {
    let existing = others.into_iter().filter(|other| other.exists);
    let recorded: Vec<MachineEvidence> = existing
        .flat_map(|other| {
            let views: Vec<&MachineEvidence> = other.record.bmc.iter().chain(&other.record.agent).collect();
            // Whatever one machine shows goes with all of its MACs.
            let macs: Vec<String> = views.iter().flat_map(|view| view.macs.clone()).collect();
            views
                .into_iter()
                .map(move |view| MachineEvidence { macs: macs.clone(), ..view.clone() })
                .collect::<Vec<_>>()
        })
        .collect();
    Common::of(recorded.iter().chain(seen))
}

/// The same for a recorded machine: a later host of another namespace does not make its values common. Otherwise any tenant could, with a lying
/// BMC.
fn common_to_known(others: &[OtherMachine], recorded: &MachineEvidence) -> Common {
    common_of(others.iter().filter(|other| other.is_older || other.is_near), Some(recorded))
}

/// The existing host whose record is of this machine; with `older_only`, only if that record is older than this host's.
fn held_by(
    others: &[OtherMachine],
    older_only: bool,
    source: impl Fn(&MachineRecordSpec) -> Option<&MachineEvidence>,
    seen: &MachineEvidence,
    common: &Common,
) -> Option<String> {
    let same = |other: &&OtherMachine| {
        let recorded = source(&other.record);
        other.exists
            && (other.is_older || !older_only)
            && recorded.is_some_and(|r| matches!(machine_identity::compare(r, seen, common), Finding::Match { .. }))
    };
    others.iter().find(same).map(|other| other.host.clone())
}

/// Evidence in what inspection found.
fn of_hardware(hardware: &HardwareDetails) -> MachineEvidence {
    let vendor = hardware.system_vendor.clone().unwrap_or_default();
    let names = |disk: &inventory::Storage| {
        [disk.serial_number.clone(), disk.wwn_with_extension.clone().or_else(|| disk.wwn.clone())]
    };
    MachineEvidence {
        manufacturer: vendor.manufacturer,
        system_uuid: None,
        serial_number: vendor.serial_number,
        macs: hardware.nics.iter().filter_map(|nic| nic.mac.clone()).collect(),
        disks: hardware.storage.iter().flat_map(names).flatten().collect(),
    }
}
