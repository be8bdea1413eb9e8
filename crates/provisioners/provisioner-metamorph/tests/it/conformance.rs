//! The native provisioner passes the kit: a machine with a BMC and an agent, scripted, which outlives the processes that look after it.
//!
//! The machine boots what the BMC was given, its agent reads its configuration from the medium and speaks the real protocol to the routers of the process
//! that leads. A request of a process that does not lead never reaches the BMC, as in `bmc::Channel`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use agent_protocol::{
    Action, AgentState, BOOT_KEY_HEADER, Command, CommandError, CommandId, Directive, DiskMark, ErrorCode,
    FirmwareState, HostConfig, Outcome, PROTOCOL_VERSION, Progress, REPORT_PATH, Report, WriteSummary,
};
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use bmc::{
    Bios, BiosSchema, BiosSeen, Bmc, BmcError, BootDevice, BootStanding, Connector, Connectors, DataDrive, Drive,
    ErrorKind, EventDestination, Events, FirmwareInventory, FirmwareVersion, HardwareInventory, Insertion, JobState,
    Lacking, Lasting, LocationIndicator, Power, PowerAction, Protocol, Sight, Target, VirtualMedia,
};
use boot_media::assets::{INITRAMFS, KERNEL, Loaders, MANIFEST};
use boot_media::{Architecture, Manifest};
use inventory::{BmcPin, ErasedDisk, HardwareDetails, Inspected, MachineEvidence, Part, Storage};
use provisioner::{BmcAccess, HostFacts, HostKey, MayAct, Provisioner};
use provisioner_kit::{Class, Condition, Effect, FOREIGN_OWNER, Kind, Subject, Trail, capabilities_of, run, scenarios};
use provisioner_metamorph::{NativeProvisioner, Settings};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::kit::{assets, settings};

const ADDRESS: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";
const MEDIA: &str = "http://192.0.2.1:6180";
/// A medium that somebody else has put in.
const THEIRS: &str = "http://192.0.2.9/rescue.iso";
/// From the reset to what is booted.
const SELF_TEST: Duration = Duration::from_secs(60);

/// What runs on the machine.
#[derive(Clone, Default, PartialEq, Eq)]
enum Runs {
    #[default]
    Nothing,
    Firmware,
    Agent,
    Disk,
    /// A system from a medium that is none of this server's.
    Live,
}

#[derive(Default)]
struct Machine {
    runs: Runs,
    medium: Option<String>,
    /// What is in the other drive.
    data: Option<String>,
    /// Destination and context of the subscriptions, by id, and how many there have been.
    subscriptions: BTreeMap<String, (String, String)>,
    subscribed: u32,
    once: bool,
    /// Each start is from the medium.
    each: bool,
    /// It is to be found by its light.
    lit: bool,
    boots: u64,
    /// The firmware's setting, and what it will be after the next start; if so said, the firmware drops that.
    delay: String,
    pending: Option<(String, bool)>,
    /// The image on the disk, and whose mark.
    disk: Option<(String, String)>,
    /// What was there before somebody else's.
    before: Option<(String, String)>,
    /// Work of the agent, when it is done, and whether it fails.
    work: Option<(Command, Instant, bool)>,
    over: Option<(CommandId, Outcome)>,
    task: Option<JoinHandle<()>>,
    /// The BMC, which reads what was put in.
    reader: Option<JoinHandle<()>>,
    conditions: Vec<Condition>,
}

impl Machine {
    /// What is in this drive.
    fn slot(&mut self, drive: &str) -> &mut Option<String> {
        if drive == "CD1" { &mut self.medium } else { &mut self.data }
    }

    fn is(&self, condition: Condition) -> bool {
        self.conditions.contains(&condition)
    }

    /// The condition, which passes with that.
    fn was(&mut self, condition: Condition) -> bool {
        let there = self.is(condition);
        self.conditions.retain(|known| *known != condition);
        there
    }
}

type Servers = BTreeMap<u64, (Router, Router)>;

#[derive(Clone)]
struct Plant {
    machine: Arc<Mutex<Machine>>,
    servers: watch::Sender<Servers>,
    trail: Trail,
}

impl Plant {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap()
    }

    /// The self-test, and then what the firmware finds.
    fn boot(&self) {
        let plant = self.clone();
        let task = tokio::spawn(async move {
            sleep(SELF_TEST).await;
            let medium = {
                let mut machine = plant.lock();
                if let Some((delay, false)) = machine.pending.take() {
                    machine.delay = delay;
                }
                let from_medium = std::mem::take(&mut machine.once) || machine.each;
                machine.medium.clone().filter(|_| from_medium)
            };
            match medium {
                Some(url) if !url.starts_with(MEDIA) => plant.lock().runs = Runs::Live,
                Some(url) => {
                    if let Some(config) = plant.read(&url).await {
                        plant.agent(config).await;
                    }
                }
                None => {
                    let mut machine = plant.lock();
                    machine.runs = if machine.disk.is_some() { Runs::Disk } else { Runs::Firmware };
                }
            }
        });
        let mut machine = self.lock();
        machine.runs = Runs::Firmware;
        (machine.work, machine.over) = (None, None);
        machine.boots += 1;
        if let Some(before) = machine.task.replace(task) {
            before.abort();
        }
    }

    /// One request to the first server, tried until one answers; cut off where it dies.
    async fn ask(&self, agent: bool, request: impl Fn() -> Request<Body>) -> (StatusCode, Vec<u8>) {
        let mut servers = self.servers.subscribe();
        loop {
            let first = servers.borrow_and_update().values().next().cloned();
            if let Some((media, agents)) = first {
                let router = if agent { agents } else { media };
                tokio::select! {
                    response = router.oneshot(request()) => {
                        let response = response.unwrap();
                        let status = response.status();
                        let body = axum::body::to_bytes(response.into_body(), 16 << 20).await.unwrap();
                        return (status, body.to_vec());
                    }
                    _ = servers.changed() => {}
                }
            }
            sleep(Duration::from_secs(2)).await;
        }
    }

    /// The BMC reads the beginning of what is in its drive.
    fn begins_to_read(&self, url: &str) {
        let Some(path) = url.strip_prefix(MEDIA).map(str::to_owned) else { return };
        if self.lock().is(Condition::Unread) {
            return;
        }
        let plant = self.clone();
        let reads = async move {
            let request = || Request::get(&path).header("range", "bytes=0-99").body(Body::empty()).unwrap();
            plant.ask(false, request).await;
        };
        if let Some(before) = self.lock().reader.replace(tokio::spawn(reads)) {
            before.abort();
        }
    }

    /// The agent's configuration on the medium at this address.
    async fn read(&self, url: &str) -> Option<HostConfig> {
        let path = url.strip_prefix(MEDIA)?;
        // The same address has the same bytes, in whichever run: they are read as a whole once.
        static KNOWN: Mutex<BTreeMap<String, HostConfig>> = Mutex::new(BTreeMap::new());
        let known = KNOWN.lock().unwrap().get(url).cloned();
        let range = if known.is_some() { "bytes=0-99" } else { "bytes=0-" };
        let request = || Request::get(path).header("range", range).body(Body::empty()).unwrap();
        let (status, bytes) = self.ask(false, request).await;
        if status != StatusCode::PARTIAL_CONTENT {
            return None;
        }
        if known.is_some() {
            return known;
        }
        let start = b"{\n  \"protocol\":";
        let at = bytes.windows(start.len()).position(|window| window == start)?;
        let config: HostConfig = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter().next()?.ok()?;
        KNOWN.lock().unwrap().insert(url.to_owned(), config.clone());
        Some(config)
    }

    /// The agent's life, from its first report until it leaves.
    async fn agent(&self, config: HostConfig) {
        let boot_id = {
            let mut machine = self.lock();
            machine.runs = Runs::Agent;
            format!("00000000-0000-4000-8000-{:012}", machine.boots)
        };
        let mut done: Vec<CommandId> = Vec::new();
        for sequence in 1.. {
            let (state, left) = self.state();
            let report = Report {
                protocol: PROTOCOL_VERSION,
                version: "0.1.0".into(),
                host: config.host.clone(),
                generation: config.generation,
                boot_id: boot_id.clone(),
                sequence,
                state,
                machine: Some(self.evidence()),
                firmware: Some(FirmwareState { uefi: true, ..FirmwareState::default() }),
                wait_seconds: left.as_secs().clamp(1, 30),
                logs: Vec::new(),
            };
            let body = serde_json::to_vec(&report).unwrap();
            let request = || {
                Request::post(REPORT_PATH)
                    .header("authorization", format!("Bearer {}", config.token))
                    .header(BOOT_KEY_HEADER, format!("{boot_id:k<43}"))
                    .body(Body::from(body.clone()))
                    .unwrap()
            };
            let (status, answer) = self.ask(true, request).await;
            if status != StatusCode::OK {
                sleep(Duration::from_secs(5)).await;
                continue;
            }
            let directive: Directive = serde_json::from_slice(&answer).unwrap();
            let leaves = {
                let mut machine = self.lock();
                let over = machine.over.take_if(|(command, _)| Some(&*command) == directive.acknowledged.as_ref());
                over.is_some_and(|(_, outcome)| outcome == Outcome::Leaving)
            };
            if leaves {
                return self.boot();
            }
            match directive.command {
                Some(command) if command.id.boot_id == boot_id && !done.contains(&command.id) => {
                    done.push(command.id.clone());
                    self.begin(command);
                }
                _ => {}
            }
        }
    }

    /// What the agent says now, and how long its work takes yet.
    fn state(&self) -> (AgentState, Duration) {
        let idle = Duration::from_secs(30);
        let mut machine = self.lock();
        if let Some((command, at, fails)) = machine.work.clone() {
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let running = AgentState::Running { command: command.id, progress: Progress::default() };
                return (running, left.min(Duration::from_secs(10)));
            }
            machine.work = None;
            let outcome = if fails { failed() } else { finished(&mut machine, &command.action) };
            machine.over = Some((command.id, outcome));
        }
        match machine.over.clone() {
            Some((command, outcome)) => (AgentState::Finished { command, outcome }, idle),
            None => (AgentState::Idle, idle),
        }
    }

    fn begin(&self, command: Command) {
        let mut machine = self.lock();
        let foreign = |mark: &DiskMark| {
            let owner = machine.disk.as_ref().map(|(_, owner)| owner);
            owner.is_some_and(|owner| *owner != mark.owner && mark.consent.as_ref() != Some(owner))
        };
        let (effect, seconds, foreign) = match &command.action {
            Action::Inspect => (Some(Effect::Inspect), 5, false),
            Action::WriteImage(write) => (Some(Effect::Write), 60, foreign(&write.mark)),
            Action::WipeDisks(wipe) => (Some(Effect::Wipe), 30, foreign(&wipe.mark)),
            Action::EraseDisks(erase) => (Some(Effect::Wipe), 30, foreign(&erase.mark)),
            // Of ironic-python-agent alone.
            Action::ListSteps | Action::RunStep(_) | Action::Leave { .. } => (None, 0, false),
        };
        if foreign {
            let text = "the disk is another owner's".to_owned();
            let refused =
                Outcome::Failed(CommandError { code: ErrorCode::ForeignOwner, message: text, untouched: true });
            machine.over = Some((command.id, refused));
            return;
        }
        let seconds = if machine.is(Condition::Slow) { seconds * 10 } else { seconds };
        let fails = effect.is_some() && machine.was(Condition::Failing);
        if let Some(effect) = effect {
            self.trail.saw(
                effect,
                &format!("{} attempt {} of {}", command.id.step, command.id.attempt, command.id.operation),
            );
        }
        machine.work = Some((command, Instant::now() + Duration::from_secs(seconds), fails));
    }

    fn evidence(&self) -> MachineEvidence {
        let another = self.lock().is(Condition::Another);
        let (uuid, serial) = if another { ("9999", "S-999") } else { ("3132", "S-100") };
        MachineEvidence {
            manufacturer: Some("Maker".into()),
            system_uuid: Some(format!("4c4c4544-0047-3710-8051-b4c04f4a{uuid}")),
            serial_number: Some(serial.into()),
            macs: vec![if another { "00:1b:21:aa:bb:99" } else { "00:1b:21:aa:bb:01" }.into()],
            disks: vec!["DISK-1".into()],
        }
    }
}

fn failed() -> Outcome {
    Outcome::Failed(CommandError { code: ErrorCode::DiskError, message: "the disk fails".into(), untouched: false })
}

/// Work is done: what it leaves, and what is said of it.
fn finished(machine: &mut Machine, action: &Action) -> Outcome {
    match action {
        Action::Inspect => {
            let disk =
                Storage { name: Some("/dev/vda".into()), serial_number: Some("DISK-1".into()), ..Storage::default() };
            let hardware = HardwareDetails { storage: vec![disk], ..HardwareDetails::default() };
            Outcome::Inspected {
                hardware: Box::new(hardware),
                marks: vec![],
                uefi: true,
                secure_boot: false,
                links: Vec::new(),
                devices: Box::default(),
            }
        }
        Action::WriteImage(write) => {
            machine.disk = Some((write.image.url.clone(), write.mark.owner.clone()));
            Outcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() })
        }
        Action::WipeDisks(_) => {
            machine.disk = None;
            Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] }
        }
        Action::EraseDisks(erase) => {
            machine.disk = None;
            let disk = ErasedDisk {
                name: "/dev/vda".into(),
                serial_number: Some("DISK-1".into()),
                result: erase.method.aim(),
                ..ErasedDisk::default()
            };
            Outcome::Erased { disks: vec![disk] }
        }
        Action::ListSteps | Action::RunStep(_) => failed(),
        Action::Leave { .. } => Outcome::Leaving,
    }
}

struct Wire(Plant, MayAct);

impl Connector for Wire {
    fn connect(&self, _: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        Ok(Arc::new(Control(self.0.clone(), Arc::clone(&self.1))))
    }
}

struct Control(Plant, MayAct);

fn lost(kind: ErrorKind) -> BmcError {
    BmcError::new(kind, "ask the BMC", "nothing came of it").advise("")
}

impl Control {
    fn reached(&self) -> Result<(), BmcError> {
        if !(self.1)() {
            return Err(lost(ErrorKind::NotLeading));
        }
        if self.0.lock().is(Condition::Silent) { Err(lost(ErrorKind::Unreachable)) } else { Ok(()) }
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> Result<T, BmcError> {
        self.reached()?;
        Ok(look(&mut self.0.lock()))
    }

    async fn order<T>(&self, effect: Effect, text: &str, act: impl FnOnce(&Plant) -> T) -> Result<T, BmcError> {
        self.order_if(effect, text, |plant| (true, act(plant))).await
    }

    /// An order that may change nothing.
    async fn order_if<T>(
        &self,
        effect: Effect,
        text: &str,
        act: impl FnOnce(&Plant) -> (bool, T),
    ) -> Result<T, BmcError> {
        self.reached()?;
        let give = || {
            if self.0.lock().was(Condition::Refusing) {
                return (false, Err(lost(ErrorKind::Rejected { status: 400 })));
            }
            let (happened, answer) = act(&self.0);
            (happened, Ok(answer))
        };
        self.0.trail.effect(effect, text, give).await
    }
}

#[async_trait]
impl Bmc for Control {
    async fn begin(&self, _: &[String]) -> Result<Sight, BmcError> {
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        let evidence = self.0.evidence();
        let powered_on = Some(self.seen(|machine| machine.runs != Runs::Nothing)?);
        Ok(Sight { powered_on, model: "Maker M".into(), evidence, health: None })
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        self.reached()?;
        Ok(self.0.evidence().macs)
    }
    fn pin(&self) -> BmcPin {
        BmcPin { service_uuid: None, key_sha256: Some("ab".repeat(32)) }
    }
    fn calls(&self) -> u32 {
        0
    }
    fn session(&self) -> Option<String> {
        None
    }
    async fn close(&self) {}
    fn power(&self) -> &dyn Power {
        self
    }
    fn boot_device(&self) -> Result<&dyn BootDevice, Lacking> {
        Ok(self)
    }
    fn virtual_media(&self) -> Result<&dyn VirtualMedia, Lacking> {
        Ok(self)
    }
    fn data_drive(&self) -> Result<&dyn DataDrive, Lacking> {
        Ok(self)
    }
    fn events(&self) -> Result<&dyn Events, Lacking> {
        Ok(self)
    }
    fn bios(&self) -> Result<&dyn Bios, Lacking> {
        Ok(self)
    }
    fn firmware(&self) -> Result<&dyn FirmwareInventory, Lacking> {
        Ok(self)
    }
    fn hardware(&self) -> Result<&dyn HardwareInventory, Lacking> {
        Ok(self)
    }
    fn location_indicator(&self) -> Result<&dyn LocationIndicator, Lacking> {
        Ok(self)
    }
}

#[async_trait]
impl LocationIndicator for Control {
    async fn switch(&self, lit: bool) -> Result<String, BmcError> {
        let switch = |plant: &Plant| (std::mem::replace(&mut plant.lock().lit, lit) != lit, ());
        self.order_if(Effect::Locate, &format!("light {lit}"), switch).await?;
        Ok(format!("IndicatorLED is {lit}"))
    }
}

#[async_trait]
impl DataDrive for Control {
    async fn choose(&self, _: &str) -> Result<String, BmcError> {
        let taken = self.seen(|machine| machine.data.is_some())?;
        if taken { Err(lost(ErrorKind::Unsupported)) } else { Ok("CD2".into()) }
    }
    async fn boot_drive(&self, url: &str) -> Result<String, BmcError> {
        let another = self.seen(|machine| machine.medium.as_ref().is_some_and(|there| there != url))?;
        if another { Err(lost(ErrorKind::Unsupported)) } else { Ok("CD1".into()) }
    }
    async fn put_in(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        // What the machine is to boot cannot be read.
        if drive == "CD1" && self.seen(|machine| machine.was(Condition::Failing))? {
            return Err(lost(ErrorKind::Rejected { status: 400 }));
        }
        self.order(Effect::Media, "put in", |plant| *plant.lock().slot(drive) = Some(url.into())).await?;
        Ok(Insertion::Done)
    }
    async fn put_into_empty(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        let there = self.put_in(drive, url).await?;
        self.0.begins_to_read(url);
        Ok(there)
    }
    async fn content(&self, drive: &str, url: &str) -> Result<Drive, BmcError> {
        self.seen(|machine| match machine.slot(drive) {
            Some(there) if there == url => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn take_out(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        let out = |plant: &Plant| _ = plant.lock().slot(drive).take_if(|there| there == url);
        self.order(Effect::Media, "take out", out).await
    }
    async fn call_off(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        let out = |plant: &Plant| (plant.lock().slot(drive).take_if(|there| there == url).is_some(), ());
        self.order_if(Effect::Media, "call off", out).await
    }
}

#[async_trait]
impl Events for Control {
    async fn like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError> {
        let is = |(url, context): &(String, String)| url == wanted.url && context == wanted.context;
        self.seen(|machine| {
            let all = machine.subscriptions.iter().filter(|(_, known)| is(known));
            all.map(|(id, _)| id.clone()).collect()
        })
    }
    async fn subscribe(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError> {
        let made = (wanted.url.to_owned(), wanted.context.to_owned());
        let subscribe = |plant: &Plant| {
            let mut machine = plant.lock();
            machine.subscribed += 1;
            let id = machine.subscribed.to_string();
            machine.subscriptions.insert(id.clone(), made);
            Some(id)
        };
        self.order(Effect::Events, "subscribe", subscribe).await
    }
    async fn has(&self, id: &str, _: &str) -> Result<bool, BmcError> {
        self.seen(|machine| machine.subscriptions.contains_key(id))
    }
    async fn unsubscribe(&self, id: &str, _: &str) -> Result<(), BmcError> {
        if !self.seen(|machine| machine.subscriptions.contains_key(id))? {
            return Ok(());
        }
        self.order(Effect::Events, "unsubscribe", |plant| drop(plant.lock().subscriptions.remove(id))).await
    }
}

#[async_trait]
impl Bios for Control {
    async fn seen(&self, _: bool) -> Result<Option<BiosSeen>, BmcError> {
        self.seen(|machine| {
            let named = |value: String| BTreeMap::from([("BootDelay".to_owned(), value)]);
            let pending = machine.pending.clone().map(|(value, _)| named(value)).unwrap_or_default();
            Some(BiosSeen { current: named(machine.delay.clone()), pending, ..BiosSeen::default() })
        })
    }
    async fn schema(&self) -> Result<Option<BiosSchema>, BmcError> {
        self.seen(|_| None)
    }
    async fn set(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError> {
        let wished = wished["BootDelay"].clone();
        if self.seen(|machine| machine.delay == wished)? {
            // What is pending is taken back.
            self.order(Effect::End, "set what is in force", |plant| plant.lock().pending = None).await?;
            return Ok(None);
        }
        self.order(Effect::Configure, &format!("set {wished}"), |plant| {
            let mut machine = plant.lock();
            let fails = machine.was(Condition::Failing);
            machine.pending = Some((wished, fails));
        })
        .await?;
        Ok(None)
    }
    async fn job(&self, _: &str) -> Result<JobState, BmcError> {
        Ok(JobState::Over)
    }
}

#[async_trait]
impl FirmwareInventory for Control {
    async fn versions(&self) -> Result<Vec<FirmwareVersion>, BmcError> {
        self.seen(|_| vec![FirmwareVersion { component: "bios".into(), version: "1.0".into() }])
    }
}

#[async_trait]
impl HardwareInventory for Control {
    async fn list(&self) -> Result<Inspected, BmcError> {
        self.seen(|_| {
            let disk = Storage { serial_number: Some("DISK-1".into()), ..Storage::default() };
            let hardware = HardwareDetails { storage: vec![disk], ..HardwareDetails::default() };
            Inspected { hardware, not_listed: vec![Part::Interfaces], ..Inspected::default() }
        })
    }
}

#[async_trait]
impl Power for Control {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        let medium = self.seen(|machine| machine.medium.clone().filter(|_| machine.once || machine.each))?;
        let on = !matches!(action, PowerAction::HardOff | PowerAction::SoftOff);
        let effect = match medium {
            Some(url) if on && !url.starts_with(MEDIA) => Effect::Write,
            Some(_) if on => Effect::Boot,
            _ => Effect::Power,
        };
        self.order_if(effect, &format!("{action:?}"), |plant| match action {
            PowerAction::On if plant.lock().runs != Runs::Nothing => (effect != Effect::Write, ()),
            PowerAction::On | PowerAction::Restart | PowerAction::SoftRestart => (true, plant.boot()),
            PowerAction::HardOff | PowerAction::SoftOff => {
                let mut machine = plant.lock();
                (machine.runs, machine.work, machine.over) = (Runs::Nothing, None, None);
                if let Some(task) = machine.task.take() {
                    task.abort();
                }
                (true, ())
            }
        })
        .await
    }
}

#[async_trait]
impl BootDevice for Control {
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        self.seen(|machine| {
            let powered_on = Some(machine.runs != Runs::Nothing);
            BootStanding { powered_on, override_ahead: Some(machine.once), progress: None }
        })
    }
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        let once = |plant: &Plant| {
            let mut machine = plant.lock();
            (machine.once, machine.each) = (true, false);
        };
        self.order(Effect::Boot, "boot once from the medium", once).await
    }
    async fn each_from_medium(&self) -> Result<Lasting, BmcError> {
        let each = |plant: &Plant| {
            let mut machine = plant.lock();
            (machine.once, machine.each) = (false, true);
        };
        self.order(Effect::Boot, "boot each time from the medium", each).await?;
        Ok(Lasting::EachBoot)
    }
    async fn normally(&self) -> Result<(), BmcError> {
        let none = |plant: &Plant| {
            let mut machine = plant.lock();
            (machine.once, machine.each) = (false, false);
        };
        self.order(Effect::End, "boot normally", none).await
    }
}

#[async_trait]
impl VirtualMedia for Control {
    async fn find(&self) -> Result<(), BmcError> {
        self.reached()
    }
    async fn insert(&self, urls: &[String], _: Option<&str>) -> Result<Insertion, BmcError> {
        self.order(Effect::Boot, "insert", |plant| plant.lock().medium = urls.first().cloned()).await?;
        Ok(Insertion::Done)
    }
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        self.drive_with(&|there| urls.iter().any(|url| url == there)).await
    }
    async fn drive_with(&self, is_it: &(dyn for<'a> Fn(&'a str) -> bool + Sync)) -> Result<Drive, BmcError> {
        self.seen(|machine| match &machine.medium {
            Some(there) if is_it(there) => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn eject(&self) -> Result<(), BmcError> {
        self.order(Effect::End, "eject", |plant| plant.lock().medium = None).await
    }
}

/// An agent image of few bytes, which many processes read.
fn image() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let Loaders { shim, grub, .. } = Loaders::of(Architecture::X86_64);
    for name in [KERNEL, INITRAMFS, shim, grub] {
        std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "test", "test").unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest.to_json().unwrap()).unwrap();
    folder
}

struct Native;

struct OneMachine(Plant);

impl Drop for OneMachine {
    fn drop(&mut self) {
        let tasks = {
            let mut machine = self.0.lock();
            [machine.task.take(), machine.reader.take()]
        };
        tasks.into_iter().flatten().for_each(|task| task.abort());
        self.0.servers.send_replace(Servers::new());
    }
}

impl Kind for Native {
    fn name(&self) -> &str {
        "metamorph"
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject> {
        Box::new(OneMachine(Plant { machine: Arc::default(), servers: watch::Sender::default(), trail: trail.clone() }))
    }
}

impl Subject for OneMachine {
    fn start(&mut self, process: u64, may_act: MayAct) -> Arc<dyn Provisioner> {
        static IMAGE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let settings = Settings { may_act: Arc::clone(&may_act), ..settings() };
        let connectors = Connectors::new().with(Protocol::Redfish, Wire(self.0.clone(), may_act));
        let assets = assets(IMAGE.get_or_init(image));
        let provisioner = Arc::new(NativeProvisioner::new(settings, assets.into(), connectors));
        let from = MockConnectInfo(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 40_000)));
        let routers = (provisioner.media_router().layer(from), provisioner.agent_router());
        self.0.servers.send_modify(|servers| {
            servers.insert(process, routers);
        });
        provisioner
    }

    fn stop(&mut self, process: u64) {
        self.0.servers.send_modify(|servers| {
            servers.remove(&process);
        });
    }

    fn facts(&self) -> HostFacts {
        HostFacts {
            key: HostKey { namespace: "ns".into(), name: "node-0".into(), uid: "uid-0".into() },
            address: ADDRESS.into(),
            ..HostFacts::default()
        }
    }

    fn access(&self) -> BmcAccess {
        BmcAccess {
            address: ADDRESS.into(),
            username: "u".into(),
            password: String::new().into(),
            disable_certificate_verification: true,
        }
    }

    fn can_be(&self, condition: Condition) -> bool {
        !matches!(condition, Condition::Busy | Condition::Forgotten)
    }

    fn set(&mut self, condition: Condition, on: bool) {
        let mut machine = self.0.lock();
        if condition == Condition::Foreign {
            let theirs = machine.disk.as_ref().is_some_and(|(_, owner)| owner == FOREIGN_OWNER);
            if on {
                machine.before = machine.disk.replace(("theirs".into(), FOREIGN_OWNER.into()));
            } else if theirs {
                machine.disk = machine.before.take();
            }
            return;
        }
        if condition == Condition::Occupied {
            let theirs = machine.medium.as_deref() == Some(THEIRS);
            if on {
                machine.medium = Some(THEIRS.into());
            } else if theirs {
                machine.medium = None;
            }
            return;
        }
        machine.was(condition);
        if on {
            machine.conditions.push(condition);
        }
    }
}

/// Every call that a host of the native provisioner has, in the scenarios of these classes.
async fn passes(classes: &[Class]) {
    let began = std::time::Instant::now();
    let mut all = scenarios(&capabilities_of(&Native));
    all.retain(|scenario| classes.contains(&scenario.class));
    let report = run(&Native, &all).await;
    println!("{report}\n{:.1} s", began.elapsed().as_secs_f64());
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.runs.keys().eq(classes), "{:?}", report.runs);
}

/// One host is never too many for it, and it forgets no machine.
const OTHERS: [Class; 8] = [
    Class::Plain,
    Class::Repeated,
    Class::Cancelled,
    Class::Forced,
    Class::Slow,
    Class::Released,
    Class::Identity,
    Class::Capabilities,
];

#[tokio::test(start_paused = true)]
async fn the_native_provisioner_passes_what_happens_every_day() {
    passes(&OTHERS).await;
}

#[tokio::test(start_paused = true)]
async fn the_native_provisioner_passes_being_killed() {
    passes(&[Class::Killed]).await;
}

#[tokio::test(start_paused = true)]
async fn the_native_provisioner_passes_being_one_of_several() {
    passes(&[Class::Concurrent, Class::Frozen, Class::Leading]).await;
}

#[tokio::test(start_paused = true)]
async fn the_native_provisioner_passes_faults_and_edits() {
    passes(&[Class::Failing, Class::Record]).await;
}

#[test]
fn no_class_is_left_out() {
    let parts = [Class::Killed, Class::Concurrent, Class::Frozen, Class::Leading, Class::Failing, Class::Record];
    let never = [Class::Busy, Class::Forgotten];
    let mut all = [OTHERS.as_slice(), &parts, &never].concat();
    all.sort_unstable();
    assert_eq!(all, Class::ALL);
}
