//! What not every provisioner has: preparation, service, erasing, steps of hardware managers, media beside the system, events, firmware, health, diagnosis, logs,
//! a light to find it by.

use std::collections::BTreeMap;
use std::time::Duration;

use api::metamorph::{
    AgentStep, CollectedLog, Erasure, HardwareManager, OfferedStep, OperationPhase, RanStep, StepArgument, StepResult,
    StepsReport,
};
use async_trait::async_trait;
use diagnosis::{Access, Connection, Contact, Evidence, Part, PartKind, PowerFacts, Reading};
use inventory::ErasedDisk;
use provisioner::{
    Attached, DataImages, Diagnose, Erase, EraseRequest, Events, EvidenceBudget, Firmware, FirmwareFacts,
    FirmwareTargets, Health, HealthLevel, HealthState, InstalledFirmware, Locate, LocateRequest, Logs, Outcome,
    Prepare, PrepareRequest, Purpose, Service, ServiceRequest, Setting, SettingFact, Steps, StepsRequest, Subscription,
    Unsubscription, Verdict,
};

use crate::demo::{self, Stage};
use crate::hardware;
use crate::host::FixtureHost;
use crate::journal::Kind;
use crate::machines::{Effect, Leaves, Trouble, VOLUMES};
use crate::work::Plan;

/// How long preparation and service take.
const CHANGE: Duration = Duration::from_secs(2);
/// How long erasing takes.
const ERASURE: Duration = Duration::from_secs(10);
/// Longest value of a setting that is kept.
const MAX_SETTING: usize = 256;

/// What the targets ask for, as the machine keeps it.
fn wished(targets: &FirmwareTargets) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let text = |setting: &Setting| match setting {
        Setting::Number(number) => number.to_string(),
        Setting::Text(text) => text.chars().take(MAX_SETTING).collect(),
    };
    let settings = targets.settings.iter().map(|(name, setting)| (name.clone(), text(setting))).collect();
    let firmware = targets.updates.iter().map(|update| (update.component.clone(), update.url.clone())).collect();
    (settings, firmware)
}

impl FixtureHost {
    /// Ends the work of this kind, if there is any: recorded first, then the machine is told.
    async fn break_off(&mut self, kind: Kind) -> Outcome<()> {
        let work = self.journal.data.work.clone().filter(|work| work.kind == kind);
        let Some(work) = work else { return Ok(Verdict::Done(())) };
        if self.journal.end(self.now(), OperationPhase::Cancelled, None).is_some() {
            self.record(Purpose::Intent).await?;
        }
        let (now, id) = (self.now(), work.id);
        if self.look(|machine| matches!(machine.standing(&id, now), crate::machines::Standing::Running { .. })) {
            self.tell(Effect::Stop, |machine| Ok((machine.stop(&id), ()))).await?;
        }
        Ok(Verdict::Done(()))
    }

    /// Nothing of that is different on the machine.
    fn has_all(&self, settings: &BTreeMap<String, String>, firmware: &BTreeMap<String, String>) -> bool {
        let within = |wished: &BTreeMap<String, String>, there: &BTreeMap<String, String>| {
            wished.iter().all(|(name, value)| there.get(name) == Some(value))
        };
        self.look(|machine| within(settings, &machine.settings) && within(firmware, &machine.firmware))
    }
}

#[async_trait]
impl Prepare for FixtureHost {
    async fn prepare(&mut self, request: PrepareRequest) -> Outcome<()> {
        self.reached()?;
        if let Some(answer) = demo::answer(&self.context.key.name, Stage::Prepare) {
            return answer;
        }
        let (mut settings, firmware) = wished(&request.firmware);
        if let Some(raid) = request.raid.filter(|raid| Some(raid) != request.actual_raid.as_ref()) {
            let text = serde_json::to_string(&raid).unwrap_or_default();
            settings.insert(VOLUMES.to_owned(), text.chars().take(4096).collect());
        }
        let under_way = self
            .journal
            .data
            .work
            .as_ref()
            .is_some_and(|work| work.is_for(Kind::Prepare, request.wish.as_deref()) && !work.phase.is_final());
        if !under_way && self.has_all(&settings, &firmware) {
            self.break_off(Kind::Prepare).await?;
            return Ok(match self.ready()? {
                Some(waiting) => Verdict::Waiting(waiting),
                None => Verdict::Done(()),
            });
        }
        let leaves = Leaves::Firmware(settings, firmware);
        let plan = Plan {
            kind: Kind::Prepare,
            effect: Effect::Prepare,
            leaves,
            time: CHANGE,
            restart: request.restart,
            force_reboot: false,
        };
        self.work(plan, request.wish.as_deref(), None).await
    }

    async fn abort(&mut self) -> Outcome<()> {
        self.reached()?;
        if let Some(answer) = demo::answer(&self.context.key.name, Stage::Prepare) {
            return answer;
        }
        self.break_off(Kind::Prepare).await
    }
}

#[async_trait]
impl Service for FixtureHost {
    async fn service(&mut self, request: ServiceRequest) -> Outcome<()> {
        let under_way = self.journal.data.work.as_ref().is_some_and(|work| work.kind == Kind::Service);
        if !request.unprepared && request.wish.is_none() && !under_way {
            // Nothing new, and nothing to go on with.
            self.reached()?;
            return Ok(Verdict::Done(()));
        }
        let (settings, firmware) = wished(&request.firmware);
        let leaves = Leaves::Firmware(settings, firmware);
        let plan = Plan {
            kind: Kind::Service,
            effect: Effect::Service,
            leaves,
            time: CHANGE,
            restart: request.restart,
            force_reboot: false,
        };
        self.work(plan, request.wish.as_deref(), None).await
    }

    async fn abort(&mut self) -> Outcome<()> {
        self.reached()?;
        self.break_off(Kind::Service).await
    }
}

#[async_trait]
impl Erase for FixtureHost {
    async fn erase(&mut self, request: EraseRequest) -> Outcome<Erasure> {
        let (effect, leaves) = (Effect::Erase, Leaves::Emptiness);
        let (kind, time, restart) = (Kind::Erase, ERASURE, request.restart);
        let plan = Plan { kind, effect, leaves, time, restart, force_reboot: false };
        let verdict = self.work(plan, request.wish.as_deref(), request.overwrite_owner.as_deref()).await?;
        let is_meant = |disk: &inventory::Storage| {
            request.disks.is_empty() || request.disks.iter().any(|selector| selector.names(disk))
        };
        let storage = hardware::details(&self.serial(), None).storage;
        let erased = |disk: &inventory::Storage| ErasedDisk {
            result: request.method.aim(),
            method: Some("the fixture's".to_owned()),
            evidence: "the machine exists in memory".to_owned(),
            ..ErasedDisk::of(disk)
        };
        let disks = storage.iter().filter(|disk| is_meant(disk)).map(erased).collect();
        Ok(verdict.map(|()| Erasure { disks, given_up: None }))
    }
}

/// The steps that all of its machines have: one that is done, and one that fails.
fn offered() -> Vec<OfferedStep> {
    let manager = "FixtureHardwareManager".to_owned();
    let interface = "deploy".to_owned();
    let label = StepArgument {
        name: "label".to_owned(),
        description: "What is kept as the setting Label".to_owned(),
        required: false,
    };
    vec![
        OfferedStep {
            step: "set_label".to_owned(),
            interface: interface.clone(),
            manager: manager.clone(),
            args: Some(vec![label]),
            ..OfferedStep::default()
        },
        OfferedStep { step: "fail".to_owned(), interface, manager, ..OfferedStep::default() },
    ]
}

/// What becomes of the steps that are asked for: those behind one that fails are not begun. A step that is not there is named, and none is run.
fn scripted(asked: &[AgentStep]) -> StepsReport {
    let offered = offered();
    let managers = vec![HardwareManager { name: "FixtureHardwareManager".to_owned(), version: "1".to_owned() }];
    if let Some(unknown) = asked.iter().find(|step| !offered.iter().any(|known| known.is(step))) {
        let names: Vec<&str> = offered.iter().map(|known| known.step.as_str()).collect();
        let why = format!("there is no step {}; there are {}", unknown.describe(), names.join(" and "));
        return StepsReport { managers, offered, given_up: Some(why), ..StepsReport::default() };
    }
    let failing = asked.iter().position(|step| step.step == "fail").unwrap_or(asked.len());
    let ran = asked.iter().enumerate().map(|(number, step)| {
        let (result, message) = match number.cmp(&failing) {
            std::cmp::Ordering::Less => (StepResult::Done, "the machine exists in memory"),
            std::cmp::Ordering::Equal => (StepResult::Failed, "it always fails"),
            std::cmp::Ordering::Greater => (StepResult::NotBegun, "a step before it has failed"),
        };
        let (step, interface, message) = (step.step.clone(), step.interface.clone(), message.to_owned());
        RanStep { step, interface, result, message, ..RanStep::default() }
    });
    StepsReport { managers, ran: ran.collect(), offered, ..StepsReport::default() }
}

#[async_trait]
impl Steps for FixtureHost {
    async fn run_steps(&mut self, request: StepsRequest) -> Outcome<StepsReport> {
        let report = scripted(&request.steps);
        if request.steps.is_empty() || report.given_up.is_some() {
            // Nothing is done to the machine.
            self.reached()?;
            return Ok(match self.ready()? {
                Some(waiting) => Verdict::Waiting(waiting),
                None => Verdict::Done(report),
            });
        }
        let label = |step: &AgentStep| step.arguments().ok()?.get("label").map(ToString::to_string);
        let label = request.steps.iter().filter_map(label).next_back();
        let label = label.map(|label| label.chars().take(MAX_SETTING).collect());
        let settings = label.map(|label| ("Label".to_owned(), label)).into_iter().collect();
        let leaves = Leaves::Firmware(settings, BTreeMap::new());
        let plan = Plan {
            kind: Kind::Steps,
            effect: Effect::Steps,
            leaves,
            time: CHANGE,
            restart: request.restart,
            force_reboot: false,
        };
        let verdict = self.work(plan, request.wish.as_deref(), None).await?;
        Ok(verdict.map(|()| report))
    }
}

#[async_trait]
impl DataImages for FixtureHost {
    async fn check(&mut self, _: String) -> Outcome<()> {
        self.reached()?;
        Ok(Verdict::Done(()))
    }

    async fn attached(&mut self) -> Outcome<Attached> {
        self.reached()?;
        let medium = self.look(|machine| machine.medium.clone());
        Ok(Verdict::Done(medium.map_or(Attached::Nothing, Attached::Url)))
    }

    async fn attach(&mut self, url: String) -> Outcome<()> {
        self.reached()?;
        if self.look(|machine| machine.medium.as_ref() != Some(&url)) {
            self.tell(Effect::Attach, |machine| Ok((machine.medium.replace(url.clone()) != Some(url), ()))).await?;
        }
        Ok(Verdict::Done(()))
    }

    async fn detach(&mut self) -> Outcome<()> {
        self.reached()?;
        if self.look(|machine| machine.medium.is_some()) {
            self.tell(Effect::Detach, |machine| Ok((machine.medium.take().is_some(), ()))).await?;
        }
        Ok(Verdict::Done(()))
    }
}

#[async_trait]
impl Events for FixtureHost {
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String> {
        self.reached()?;
        let id = self.tell(Effect::Subscribe, |machine| machine.subscribe(subscription)).await?;
        Ok(Verdict::Done(id))
    }

    async fn unsubscribe(&mut self, ends: Unsubscription) -> Outcome<()> {
        self.reached()?;
        let is_it = |id: &String, known: &Subscription| {
            *id == ends.id || !ends.identity.is_empty() && known.identity == ends.identity
        };
        if self.look(|machine| machine.subscriptions.iter().any(|(id, known)| is_it(id, known))) {
            let end = |machine: &mut crate::machines::Machine| {
                let before = machine.subscriptions.len();
                machine.subscriptions.retain(|id, known| !is_it(id, known));
                Ok((machine.subscriptions.len() < before, ()))
            };
            self.tell(Effect::Unsubscribe, end).await?;
        }
        Ok(Verdict::Done(()))
    }
}

#[async_trait]
impl Firmware for FixtureHost {
    async fn facts(&mut self, with_bounds: bool) -> Outcome<FirmwareFacts> {
        self.reached()?;
        let serial = self.serial();
        let (changed, installed) = self.look(|machine| (machine.settings.clone(), machine.firmware.clone()));
        let kind = |kind: &str| with_bounds.then(|| kind.to_owned());
        let text = |name: &str, usual: &str| changed.get(name).cloned().unwrap_or_else(|| usual.to_owned());
        let delay = SettingFact {
            value: text("BootDelay", "5"),
            kind: kind("Integer"),
            lower_bound: with_bounds.then_some(0),
            upper_bound: with_bounds.then_some(600),
            ..SettingFact::default()
        };
        let allowed = if with_bounds { vec!["Enabled".to_owned(), "Disabled".to_owned()] } else { Vec::new() };
        let value = text("ProcVirtualization", "Enabled");
        let virtualization = SettingFact { value, kind: kind("Enumeration"), allowed, ..SettingFact::default() };
        let (read_only, unique) = (Some(true), Some(true));
        let serial = SettingFact { value: serial, kind: kind("String"), read_only, unique, ..SettingFact::default() };
        let settings = [("BootDelay", delay), ("ProcVirtualization", virtualization), ("SerialNumber", serial)];
        let component = |name: &str, usual: &str| InstalledFirmware {
            component: name.to_owned(),
            initial_version: usual.to_owned(),
            version: installed.get(name).cloned().unwrap_or_else(|| usual.to_owned()),
            flashed_version: installed.get(name).cloned(),
            updated: None,
        };
        Ok(Verdict::Done(FirmwareFacts {
            settings: Some(settings.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()),
            components: Some(vec![component("bios", "1.0.0"), component("bmc", "2.0.0")]),
        }))
    }
}

#[async_trait]
impl Health for FixtureHost {
    async fn state(&mut self) -> Outcome<HealthState> {
        self.reached()?;
        let failing = self.look(|machine| machine.has(Trouble::Failing));
        let level = if failing { HealthLevel::Warning } else { HealthLevel::OK };
        Ok(Verdict::Done(HealthState { level: Some(level), power_failure: false }))
    }
}

#[async_trait]
impl Diagnose for FixtureHost {
    async fn evidence(&mut self, _: EvidenceBudget) -> Outcome<Box<Evidence>> {
        let taken = Some(self.now());
        // A machine that does not answer is what was to be found out.
        if let Err(failure) = self.reached() {
            let connection = Connection { contact: Contact::TimedOut, status: None, text: failure.message, tries: 1 };
            let access = Access { connection: Reading::Read(connection), ..Access::default() };
            return Ok(Verdict::Done(Box::new(Evidence {
                taken,
                access: Reading::Read(access),
                ..Evidence::default()
            })));
        }
        let (on, failing, slow) =
            self.look(|machine| (machine.on, machine.has(Trouble::Failing), machine.has(Trouble::Slow)));
        let connection = Connection { contact: Contact::Answered, status: Some(200), ..Connection::default() };
        let access = Access { connection: Reading::Read(connection), ..Access::default() };
        let power = PowerFacts { state: Some(if on { "On" } else { "Off" }.to_owned()), ..PowerFacts::default() };
        let part = |kind, slot: &str, bad: bool, level| Part {
            kind,
            slot: slot.to_owned(),
            health: Some(if bad { level } else { HealthLevel::OK }),
            state: Some("Enabled".to_owned()),
            ..Part::default()
        };
        let parts = vec![
            part(PartKind::Memory, "DIMM 1", failing, HealthLevel::Critical),
            part(PartKind::Processor, "CPU 1", slow, HealthLevel::Warning),
        ];
        Ok(Verdict::Done(Box::new(Evidence {
            taken,
            access: Reading::Read(access),
            power: Reading::Read(power),
            parts: Reading::Read(parts),
            boot: Reading::NotAvailable("the fixture's machines show no BootProgress".to_owned()),
            logs: Reading::NotAvailable("the fixture's machines keep no logs".to_owned()),
            ..Evidence::default()
        })))
    }
}

#[async_trait]
impl Logs for FixtureHost {
    async fn collect(&mut self) -> Outcome<Vec<CollectedLog>> {
        self.reached()?;
        let power = self.look(|machine| if machine.on { "on" } else { "off" });
        let text = format!("the fixture's machine is {power}");
        Ok(Verdict::Done(vec![CollectedLog { source: "bmc/fixture".to_owned(), text, ..CollectedLog::default() }]))
    }
}

#[async_trait]
impl Locate for FixtureHost {
    async fn switch_light(&mut self, request: LocateRequest) -> Outcome<String> {
        self.reached()?;
        // Somebody is led to the machine by it.
        self.is_the_hosts()?;
        let lit = request.lit;
        if self.look(|machine| machine.lit != lit) {
            let effect = if lit { Effect::Light } else { Effect::Darken };
            self.tell(effect, |machine| Ok((std::mem::replace(&mut machine.lit, lit) != lit, ()))).await?;
        }
        Ok(Verdict::Done(format!("the light of {} is {}", self.serial(), if lit { "lit" } else { "dark" })))
    }
}
