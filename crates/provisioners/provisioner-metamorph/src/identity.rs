//! The gate before every effect: is this the machine that the host is known to be?
//!
//! The record says what the machine has shown before, the BMC's view and the agent's apart. The BMC shows the machine with the call that
//! reads its power ([`NativeHost::proven`]); the agent with each report ([`NativeHost::agent_proof`]), before the first write or wipe of
//! its boot. The rule itself is `machine_identity`'s; what each finding allows is here:
//!
//! | effect | match | unknown | mismatch |
//! |---|---|---|---|
//! | look, power as asked for | yes | yes | no |
//! | boot of the agent | yes | while no agent has ever reported, or the BMC's pin is unchanged | no |
//! | what cannot be undone | yes, and the agent's proof | as a boot, and the agent's proof | no |
//!
//! A mismatch is lifted by consent alone, which names the fingerprint that the message shows.

use api::metamorph::{AcceptedMachine, HostReference, MachineRecordSpec};
use inventory::{BmcPin, HardwareDetails, MachineEvidence};
use machine_identity::{Common, Finding};
use provisioner::{Cause, Failure, OtherMachine};
use std::sync::Arc;

use crate::control::{BmcControl, ControlErrorKind, Sight};
use crate::failures::of_journal;
use crate::host::NativeHost;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reading.
    Look,
    /// Power as somebody asked for it.
    Power,
    /// A boot of the agent.
    Boot,
    /// What a tenant of the machine would suffer from.
    Destroy,
}

/// The annotation that gives consent.
const CONSENT: &str = api::metal3::annotation::ACCEPT_MACHINE;

impl NativeHost {
    /// The connected BMC, when the machine behind it is the one that this host is known to be; with what it shows.
    pub async fn proven(&self, effect: Effect) -> Result<(Arc<dyn BmcControl>, Sight), Failure> {
        let record = self.context.machine.recorded().await.map_err(|e| of_journal(&e))?;
        let pin = record.as_ref().map(|r| r.pin.clone()).unwrap_or_default();
        let mut consented_pin = None;
        let (bmc, first) = match self.connected(&pin).await {
            Ok(connected) => connected,
            Err(error) => match &error.kind {
                ControlErrorKind::AnotherBmc { pin: seen } => {
                    let fingerprint = machine_identity::fingerprint_of_bmc(seen);
                    if !self.consents(&fingerprint) {
                        return Err(self.another(&error.message, &fingerprint));
                    }
                    consented_pin = Some((seen.clone(), fingerprint));
                    self.connected(seen).await?
                }
                _ => return Err(error.into()),
            },
        };
        let sight = match first {
            Some(sight) => sight,
            None => bmc.look().await?,
        };
        match record {
            None => self.first_sight(bmc.as_ref(), &sight).await?,
            Some(mut record) => {
                if let Some((pin, fingerprint)) = consented_pin {
                    // Another BMC may be asked; whether the machine is another one too is looked at now.
                    record.pin = pin;
                    record.accepted = Some(accepted(fingerprint));
                    self.store(record.clone()).await?;
                }
                self.judge(record, bmc.as_ref(), &sight, effect).await?;
            }
        }
        Ok((bmc, sight))
    }

    /// Compares with the record, and allows what the finding allows.
    async fn judge(
        &self,
        record: MachineRecordSpec,
        bmc: &dyn BmcControl,
        sight: &Sight,
        effect: Effect,
    ) -> Result<(), Failure> {
        let Some(recorded) = record.bmc.clone() else { return self.first_sight(bmc, sight).await };
        let common = match effect {
            Effect::Destroy => self.common(&sight.evidence).await?,
            _ => Common::default(),
        };
        let mut seen = sight.evidence.clone();
        let mut finding = machine_identity::compare(&recorded, &seen, &common);
        if !matches!(finding, Finding::Match { .. }) && !recorded.macs.is_empty() {
            seen.macs = bmc.macs().await?;
            finding = machine_identity::compare(&recorded, &seen, &common);
        }
        let pin = bmc.pin();
        match finding {
            Finding::Match { drift } => {
                self.drifted(&drift).await;
                self.keep_up(record, &pin).await
            }
            Finding::Unknown => {
                let unchanged = machine_identity::is_pinned(&record.pin) && machine_identity::holds(&record.pin, &pin);
                match effect {
                    Effect::Look | Effect::Power => Ok(()),
                    Effect::Boot | Effect::Destroy if unchanged || record.agent.is_none() => Ok(()),
                    Effect::Boot | Effect::Destroy => Err(unknown(
                        "its BMC shows neither UUID, serial number nor MAC addresses, and is not known by its certificate or service UUID either",
                    )),
                }
            }
            Finding::Mismatch { differences } => {
                let fingerprint = machine_identity::fingerprint(&seen);
                let left = machine_identity::survivors(&recorded, &seen);
                let text = format!("the BMC shows another machine: {}; {left}", differences.join(", "));
                if !self.consents(&fingerprint) {
                    return Err(self.another(&text, &fingerprint));
                }
                let new = MachineRecordSpec {
                    pin,
                    bmc: Some(with_macs(seen, bmc).await?),
                    agent: None,
                    accepted: Some(accepted(fingerprint)),
                    ..self.blank()
                };
                self.store(new).await
            }
        }
    }

    /// Nothing is recorded: the first machine is trusted, unless another host holds it, or it is not the one whose hardware is known.
    async fn first_sight(&self, bmc: &dyn BmcControl, sight: &Sight) -> Result<(), Failure> {
        let seen = with_macs(sight.evidence.clone(), bmc).await?;
        let fingerprint = machine_identity::fingerprint(&seen);
        let others = self.context.machine.others().await.map_err(|e| of_journal(&e))?;
        let common = common_of(&others, &seen);
        let mut refused = held_by(&others, |r| r.bmc.as_ref(), &seen, &common);
        let known = self.context.hardware.as_ref().map(of_hardware);
        if let Some(known) = &known
            && !machine_identity::across(known, &seen, &common)
        {
            let macs_alone = MachineEvidence { macs: seen.macs.clone(), ..MachineEvidence::default() };
            if let Finding::Mismatch { differences } = machine_identity::compare(known, &macs_alone, &common) {
                refused =
                    Some(format!("it is not the machine of this host's HardwareData: {}", differences.join(", ")));
            }
        }
        let mut new = MachineRecordSpec { pin: bmc.pin(), bmc: Some(seen), agent: known, ..self.blank() };
        if let Some(why) = refused {
            if !self.consents(&fingerprint) {
                return Err(self.another(&why, &fingerprint));
            }
            new.agent = None;
            new.accepted = Some(accepted(fingerprint));
        }
        self.store(new).await
    }

    /// The agent of this boot runs on the machine that is recorded. The first one is trusted, unless another host holds its machine.
    pub async fn agent_proof(&self, boot_id: &str, disks_count: bool) -> Result<MachineRecordSpec, Failure> {
        let agent = self.shared.hub.any_agent(self.uid()).filter(|agent| agent.boot_id == boot_id);
        let Some(seen) = agent.and_then(|agent| agent.machine) else {
            return Err(unknown("its agent does not say on which machine it runs; it may be of an older version"));
        };
        let record = self.context.machine.recorded().await.map_err(|e| of_journal(&e))?;
        let mut record = record.unwrap_or_else(|| self.blank());
        let others = self.context.machine.others().await.map_err(|e| of_journal(&e))?;
        let common = common_of(&others, &seen);
        let fingerprint = machine_identity::fingerprint(&seen);
        let refused = match &record.agent {
            None => held_by(&others, |r| r.agent.as_ref(), &seen, &common),
            Some(recorded) => match machine_identity::compare(recorded, &seen, &common) {
                Finding::Match { drift } => {
                    self.drifted(&drift).await;
                    let left = machine_identity::survivors(recorded, &seen);
                    if disks_count && left.disks.0 > 0 && left.disks.1 == 0 {
                        return Err(unknown("none of the disks recorded is there any more").advise(
                            "have it inspected again (annotation inspect.metal3.io), which records the disks that it has now",
                        ));
                    }
                    return Ok(record);
                }
                Finding::Unknown => {
                    return Err(unknown(
                        "its agent finds neither UUID, serial number nor MAC addresses that were recorded",
                    ));
                }
                Finding::Mismatch { differences } => {
                    let left = machine_identity::survivors(recorded, &seen);
                    Some(format!("the agent runs on another machine: {}; {left}", differences.join(", ")))
                }
            },
        };
        if let Some(why) = refused {
            if !self.consents(&fingerprint) {
                return Err(self.another(&why, &fingerprint));
            }
            record.accepted = Some(accepted(fingerprint));
        }
        record.agent = Some(seen);
        self.store(record.clone()).await?;
        Ok(record)
    }

    /// What inspection has seen is what counts from now on: disks and cards come and go.
    pub async fn record_agent(&self, boot_id: &str) -> Result<(), Failure> {
        let mut record = self.agent_proof(boot_id, false).await?;
        let agent = self.shared.hub.any_agent(self.uid()).filter(|agent| agent.boot_id == boot_id);
        match agent.and_then(|agent| agent.machine) {
            Some(seen) if record.agent.as_ref() != Some(&seen) => {
                record.agent = Some(seen);
                self.store(record).await
            }
            _ => Ok(()),
        }
    }

    /// The machine has been given this host's system: what is on its disks is this host's own.
    pub async fn record_provisioned(&self) -> Result<(), Failure> {
        let record = self.context.machine.recorded().await.map_err(|e| of_journal(&e))?;
        match record {
            Some(mut record) if record.accepted.as_ref().is_some_and(|a| a.requires_mark) => {
                record.accepted = record.accepted.map(|a| AcceptedMachine { requires_mark: false, ..a });
                self.store(record).await
            }
            _ => Ok(()),
        }
    }

    /// A machine that shows itself as recorded may have a new certificate, or a new address: both are recorded.
    async fn keep_up(&self, mut record: MachineRecordSpec, pin: &BmcPin) -> Result<(), Failure> {
        let mut merged = record.pin.clone();
        merged.service_uuid = pin.service_uuid.clone().or(merged.service_uuid);
        merged.key_sha256 = pin.key_sha256.clone().or(merged.key_sha256);
        let address = self.address();
        if merged == record.pin && record.bmc_address == address && record.host.uid.as_deref() == Some(self.uid()) {
            return Ok(());
        }
        record.pin = merged;
        record.bmc_address = address;
        record.host = self.reference();
        self.store(record).await
    }

    async fn store(&self, record: MachineRecordSpec) -> Result<(), Failure> {
        self.context.machine.record(record).await.map_err(|e| of_journal(&e))
    }

    async fn common(&self, seen: &MachineEvidence) -> Result<Common, Failure> {
        let others = self.context.machine.others().await.map_err(|e| of_journal(&e))?;
        Ok(common_of(&others, seen))
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
        HostReference { name: self.context.key.name.clone(), uid: Some(self.uid().to_owned()) }
    }

    fn address(&self) -> String {
        self.context.bmc.as_ref().map(|bmc| bmc.address.clone()).unwrap_or_default()
    }

    fn consents(&self, fingerprint: &str) -> bool {
        self.context.accept_machine.as_deref().map(str::trim) == Some(fingerprint)
    }

    fn another(&self, found: &str, fingerprint: &str) -> Failure {
        let wrong = self.context.accept_machine.as_deref().map(|given| {
            let given: String = given.chars().filter(|c| !c.is_control()).take(64).collect();
            format!("; the annotation {CONSENT} names {given}, which is not this machine")
        });
        let text = format!("use the machine: {found}{}; nothing was done to it", wrong.unwrap_or_default());
        Failure::new(Cause::AnotherMachine, text).advise(format!(
            "correct spec.bmc.address or the cables; if this machine shall take the host's place, set the annotation {CONSENT} to {fingerprint}"
        ))
    }
}

fn unknown(why: &str) -> Failure {
    Failure::new(
        Cause::MachineUnknown,
        format!("use the machine: it cannot be told whether it is this host's: {why}; nothing was done to it"),
    )
    .advise("look which machine it is; it is tried again")
}

fn accepted(fingerprint: String) -> AcceptedMachine {
    AcceptedMachine { fingerprint, time: None, requires_mark: true }
}

/// MACs cost a call each; they are read where nothing else can tell the machine.
async fn with_macs(mut seen: MachineEvidence, bmc: &dyn BmcControl) -> Result<MachineEvidence, Failure> {
    let uuid = seen.system_uuid.as_deref().and_then(machine_identity::normal::uuid);
    let serial = seen.serial_number.as_deref().and_then(machine_identity::normal::serial);
    if uuid.is_none() || serial.is_none() {
        seen.macs = bmc.macs().await?;
    }
    Ok(seen)
}

/// Values that machines with different MACs have in common, this one and those of others.
fn common_of(others: &[OtherMachine], seen: &MachineEvidence) -> Common {
    let recorded = others.iter().flat_map(|other| [other.record.bmc.as_ref(), other.record.agent.as_ref()]).flatten();
    Common::of(recorded.chain([seen]))
}

/// The host that exists and is recorded to be this machine.
fn held_by(
    others: &[OtherMachine],
    source: impl Fn(&MachineRecordSpec) -> Option<&MachineEvidence>,
    seen: &MachineEvidence,
    common: &Common,
) -> Option<String> {
    let same = |other: &&OtherMachine| {
        let recorded = source(&other.record);
        other.exists
            && recorded.is_some_and(|r| matches!(machine_identity::compare(r, seen, common), Finding::Match { .. }))
    };
    others.iter().find(same).map(|other| format!("it is the machine of the host {}", other.host))
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
