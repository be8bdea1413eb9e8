//! A machine with its BMC and its agent, scripted, in front of the native provisioner: what a kill, a lost call or a delay can do to a host is seen
//! in what was done to the machine.
//!
//! The machine reads its agent's configuration from the medium that the BMC was given, as a real one does, and its agent speaks the real protocol to
//! the provisioner's own routers. What outlives the server is here: the disk, the power, the medium, the agent. What is done is noted in order.

mod bios;
mod finished;
pub mod lab;
mod trouble;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use agent_protocol::{
    Action, AgentState, BOOT_KEY_HEADER, Command, CommandId, Directive, FirmwareState, HostConfig, Outcome,
    PROTOCOL_VERSION, Progress, REPORT_PATH, Report, WriteImage,
};
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use bmc::{
    Alert, Bios, Bmc, BmcError, BootDevice, BootStanding, Connector, Connectors, DataDrive, Drive, ErrorKind,
    EventDestination, Events, HardwareInventory, HealthLevel, Insertion, Lacking, Lasting, Posted, Power, PowerAction,
    Protocol, Sight, Target, VirtualMedia,
};
use boot_media::{Assets, Manifest};
use inventory::{BmcPin, HardwareDetails, Inspected, Nic, Part, Storage};
use oci_registry::Registries;
use provisioner::{OtherMaster, Provisioner, Registry};
use provisioner_metamorph::{Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::Site;
use crate::parts::evidence;
use crate::weather::Weather;
use trouble::{Made, ended};
pub use trouble::{Start, Trouble};

/// From the reset to what is booted.
const SELF_TEST: Duration = Duration::from_secs(60);
/// Where the provisioner is told that it is reached.
const MEDIA: &str = "http://192.0.2.1:6180";
const AGENTS: &str = "https://192.0.2.1:6385";

/// What runs on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Runs {
    /// It is off.
    #[default]
    Nothing,
    /// The self-test, or a firmware that finds nothing to boot.
    Firmware,
    /// The agent of this boot.
    Agent(String),
    /// The disk's system.
    Disk,
    /// A system from a medium that is not this server's.
    Live,
}

impl Runs {
    /// In words.
    fn words(&self, working: bool) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Firmware => "the firmware",
            Self::Agent(_) if working => "an agent in work",
            Self::Agent(_) => "an agent",
            Self::Disk => "the disk's system",
            Self::Live => "the live system",
        }
    }
}

#[derive(Default)]
struct Machine {
    is: Standing,
    /// Whether it is not the first machine of its run.
    second: bool,
    /// How long the BMC reads a medium before it answers that it is in.
    insertion: Duration,
    /// How long it reads a user's medium after it has said that it will.
    reading: Duration,
    /// What it reads, and when it has.
    loading: Option<(String, Instant)>,
    /// It has one drive for CDs alone.
    single_drive: bool,
    /// It takes a boot override for one start alone.
    once_only: bool,
    /// It refuses what users want to have put in.
    refuses_media: bool,
    /// When the self-test is over.
    boots_at: Option<Instant>,
    /// When the agent's work is done.
    done_at: Option<Instant>,
    /// Ends what was booted.
    task: Option<JoinHandle<()>>,
    /// The image that the agent was last told to write, with all that goes with it.
    ordered: Option<WriteImage>,
    /// What its BMC says of its health.
    health: Option<HealthLevel>,
    /// What it is made of, if it is not one of [`crate::parts`].
    made: Option<Made>,
    /// What goes wrong where the BMC sees nothing of it.
    trouble: Trouble,
}

/// How a machine, its BMC and its agent stand, for a run that goes on from there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Standing {
    runs: Runs,
    medium: Option<String>,
    /// What is in the other drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Destination and context of the subscriptions to events, by id, and how many there have been.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    subscriptions: BTreeMap<String, (String, String)>,
    #[serde(default)]
    subscribed: u32,
    once: bool,
    /// Each start is from the medium.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    each: bool,
    boots: u64,
    /// The image on the disk, and whose mark; nobody's is empty.
    disk: Option<(String, String)>,
    /// Milliseconds of the self-test that are left, if it goes on.
    self_test: Option<u64>,
    agent: Option<Agent>,
    /// Work of the agent, and the milliseconds that are left of it.
    work: Option<(Command, u64)>,
    /// What the agent has to say about work that is over.
    over: Option<(CommandId, Outcome)>,
    /// So many writes fail yet.
    bad_writes: u32,
    /// So many writes end yet before anything is written, because the image's server has no such image.
    #[serde(default)]
    missing_images: u32,
    /// The firmware's only setting, `BootDelay`, where it was changed, and what the next start makes of it.
    #[serde(default)]
    delay: Option<String>,
    #[serde(default)]
    pending: Option<String>,
    effects: Vec<String>,
}

impl Standing {
    /// What was done to the machine, in order.
    pub fn effects(&self) -> &[String] {
        &self.effects
    }

    /// The image on the disk.
    pub fn image(&self) -> Option<&str> {
        self.disk.as_ref().map(|(image, _)| image.as_str())
    }
}

/// What the agent of a boot knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Agent {
    config: HostConfig,
    boot_id: String,
    sequence: u64,
    done: Vec<CommandId>,
}

/// Who answers BMC and agent at the moment.
#[derive(Clone, Default)]
struct Server {
    routers: Option<(Router, Router)>,
}

/// A second machine, by the name of its system.
type Second = (String, Arc<Mutex<Machine>>);

/// The machine, and where its server is.
#[derive(Clone)]
pub struct Plant {
    machine: Arc<Mutex<Machine>>,
    /// Another machine of the same server, and the name of its system.
    second: Arc<Mutex<Option<Second>>>,
    server: watch::Sender<Server>,
    weather: Weather,
    /// Where servers begun from now on find images by `oci://`.
    pub registries: Registries,
    /// Who else may run machines, as provisioners made from now on know it.
    other_masters: Vec<Arc<dyn OtherMaster>>,
}

/// A server that runs; to kill it is to drop everything that it knows.
pub struct Running {
    plant: Plant,
    controller: JoinHandle<()>,
    /// What is seen of it from outside.
    pub observer: operator::Observer,
}

impl Running {
    /// Nothing that it was about to do is done any more.
    pub fn kill(self) {
        self.plant.server.send_replace(Server::default());
        self.controller.abort();
    }
}

/// An agent image, opened once a process: its folder is gone, and the files are open.
fn assets() -> &'static Assets {
    static ASSETS: OnceLock<Assets> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["vmlinuz", "initramfs", "shimx64.efi", "gcdx64.efi"] {
            std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
        }
        let manifest = Manifest::describe(folder.path(), "6.1.0", "0.1.0").unwrap();
        std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
        Assets::open(folder.path()).unwrap()
    })
}

impl Plant {
    /// A machine that is off, with an empty disk.
    pub fn new(weather: Weather) -> Self {
        let (machine, second, server) = (Arc::default(), Arc::default(), watch::Sender::default());
        Self { machine, second, server, weather, registries: Registries::default(), other_masters: Vec::new() }
    }

    /// The same machine, for provisioners that know of these.
    pub fn among(&self, other_masters: Vec<Arc<dyn OtherMaster>>) -> Self {
        Self { other_masters, ..self.clone() }
    }

    /// A second machine of the same server, at the BMC that has a system of this name.
    pub fn beside(&self, name: &str) -> Self {
        let machine = Arc::new(Mutex::new(Machine { second: true, ..Machine::default() }));
        *self.second.lock().unwrap() = Some((name.to_owned(), Arc::clone(&machine)));
        Self { machine, ..self.clone() }
    }

    /// Each is at the other's BMC from now on.
    pub fn changes_places_with(&self, other: &Self) {
        std::mem::swap(&mut *self.lock(), &mut *other.lock());
    }

    /// A provisioner that knows nothing; BMC and agent turn to it from now on.
    pub fn provisioner(&self) -> Arc<dyn Provisioner> {
        self.provisioner_by(Connectors::new().with(Protocol::Redfish, Wire(self.clone())))
    }

    /// The same, which reaches BMCs by these connectors.
    fn provisioner_by(&self, connectors: Connectors) -> Arc<dyn Provisioner> {
        let settings = Settings {
            bases: Bases { media: vec![MEDIA.into()], agents: vec![AGENTS.into()], images: None },
            networks: Vec::new(),
            media_certificates: MediaCertificates::default(),
            keys: KeyRing::new(
                Key { number: 1, secret: [7; 32], certificate_sha256: "00".repeat(32), certificate_pem: String::new() },
                vec![],
            ),
            image_authorities: Default::default(),
            kernel_arguments: String::new(),
            allowed: addresses::Allowed::default(),
            registries: self.registries.clone(),
            may_act: Arc::new(|| true),
            provisioning_limit: provisioner_metamorph::PROVISIONING_LIMIT,
            other_masters: self.other_masters.clone(),
            timing: Timing::default(),
        };
        let provisioner = Arc::new(NativeProvisioner::new(settings, assets().clone().into(), connectors));
        let from = MockConnectInfo(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 40_000)));
        let routers = Some((provisioner.media_router().layer(from), provisioner.agent_router()));
        self.server.send_replace(Server { routers });
        provisioner
    }

    /// Starts a server that knows nothing.
    pub fn serve(&self, site: &Site) -> Running {
        self.serve_with(site, Registry::new(self.provisioner()))
    }

    /// The same, with these provisioners.
    pub fn serve_with(&self, site: &Site, provisioners: Registry) -> Running {
        let (controller, observer) = site.observed(provisioners);
        Running { plant: self.clone(), controller, observer }
    }

    /// The same as [`Self::serve`], with the controller of requests.
    pub fn serve_requests(&self, site: &Site) -> Running {
        let (controller, observer) = site.requested_and_observed(Registry::new(self.provisioner()));
        Running { plant: self.clone(), controller, observer }
    }

    /// The BMC takes so long to put a medium in.
    pub fn inserts_in(&self, time: Duration) {
        self.lock().insertion = time;
    }

    /// What was done to the machine, in order.
    pub fn effects(&self) -> Vec<String> {
        self.lock().is.effects().to_vec()
    }

    /// The image on the disk.
    pub fn image(&self) -> Option<String> {
        self.lock().is.image().map(ToOwned::to_owned)
    }

    /// The image that the agent was last told to write, with all that goes with it.
    pub fn ordered(&self) -> Option<WriteImage> {
        self.lock().ordered.clone()
    }

    /// The BMC says this of the machine's health from now on.
    pub fn fares(&self, health: Option<HealthLevel>) {
        self.lock().health = health;
    }

    /// Whether the disk's system runs.
    pub fn runs_its_disk(&self) -> bool {
        self.lock().is.runs == Runs::Disk
    }

    /// Whether a system from a medium runs that is not this server's.
    pub fn runs_live(&self) -> bool {
        self.lock().is.runs == Runs::Live
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.lock().is.runs != Runs::Nothing
    }

    /// Somebody switches it off.
    pub fn somebody_switches_off(&self) {
        self.lock().is.runs = Runs::Nothing;
    }

    /// What is in the drive that the machine boots from.
    pub fn boot_medium(&self) -> Option<String> {
        self.lock().is.medium.clone()
    }

    /// Whether the BMC has a boot override.
    pub fn is_overridden(&self) -> bool {
        let machine = self.lock();
        machine.is.once || machine.is.each
    }

    /// Somebody else puts a medium in the drive that the machine boots from, or takes out what is there.
    pub fn somebody_puts_in(&self, url: Option<&str>) {
        self.lock().is.medium = url.map(ToOwned::to_owned);
    }

    /// The BMC has one drive for CDs.
    pub fn has_one_drive(&self) {
        self.lock().single_drive = true;
    }

    /// The BMC takes boot overrides for one start alone.
    pub fn overrides_once_only(&self) {
        self.lock().once_only = true;
    }

    /// The BMC says that it will put a user's medium in, and takes so long for it.
    pub fn reads_media_in(&self, time: Duration) {
        self.lock().reading = time;
    }

    /// The BMC refuses users' media, or does not any more.
    pub fn refuses_media(&self, refuses: bool) {
        self.lock().refuses_media = refuses;
    }

    /// The system on the machine restarts it.
    pub fn restarts_by_itself(&self) {
        self.boot();
    }

    /// What is in the drive that the boot medium does not go into.
    pub fn data_medium(&self) -> Option<String> {
        self.lock().is.data.clone()
    }

    /// Ids and destinations of the subscriptions to the BMC's events.
    pub fn subscriptions(&self) -> Vec<(String, String)> {
        self.lock().is.subscriptions.iter().map(|(id, (to, _))| (id.clone(), to.clone())).collect()
    }

    /// The BMC posts an event of this severity to all subscriptions.
    pub async fn tells(&self, severity: &str) {
        let takers: Vec<(String, String)> = self.lock().is.subscriptions.values().cloned().collect();
        for (url, context) in takers {
            let path = url.strip_prefix(MEDIA).unwrap().to_owned();
            let body = format!("{context}|{severity}");
            let (status, _) =
                self.ask(false, || Request::post(path.as_str()).body(Body::from(body.clone())).unwrap()).await;
            assert_eq!(status, StatusCode::NO_CONTENT);
        }
    }

    /// The BMC restarts: media are out, and it remembers neither a boot override nor who is to get its events.
    pub fn bmc_restarts(&self) {
        let mut machine = self.lock();
        (machine.is.medium, machine.is.data) = (None, None);
        (machine.is.once, machine.is.each) = (false, false);
        machine.is.subscriptions.clear();
    }

    /// The agent's work under way does not end; it reports as ever.
    pub fn hangs(&self) {
        let never = Duration::from_secs(10 * 365 * 86_400);
        self.lock().done_at = Some(Instant::now() + never);
    }

    /// So many of the next writes fail.
    pub fn fail_writes(&self, count: u32) {
        self.lock().is.bad_writes = count;
    }

    /// So many of the next writes end before anything is written: the image's server has no such image.
    pub fn miss_images(&self, count: u32) {
        self.lock().is.missing_images = count;
    }

    /// Somebody else's system is on the disk, with that owner's mark.
    pub fn belongs_to(&self, owner: &str) {
        self.lock().is.disk = Some(("theirs".to_owned(), owner.to_owned()));
    }

    /// How the machine stands now.
    pub fn standing(&self) -> Standing {
        let machine = self.lock();
        let left = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(Instant::now()).as_millis() as u64);
        let mut is = machine.is.clone();
        is.self_test = left(machine.boots_at);
        if let (Some((_, time)), Some(left)) = (&mut is.work, left(machine.done_at)) {
            *time = left;
        }
        is
    }

    /// The machine stands so from now on, and goes on from there.
    pub fn stands(&self, is: Standing) {
        let now = Instant::now();
        let later = |left: u64| now + Duration::from_millis(left);
        let mut machine = self.lock();
        (machine.boots_at, machine.done_at) = (is.self_test.map(later), is.work.as_ref().map(|(_, left)| later(*left)));
        machine.is = is;
        let plant = self.clone();
        machine.task = if machine.boots_at.is_some() {
            Some(tokio::spawn(async move { plant.boots().await }))
        } else if matches!(machine.is.runs, Runs::Agent(_)) {
            Some(tokio::spawn(async move { plant.reports().await }))
        } else {
            None
        };
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What runs, in words.
    fn runs(&self) -> &'static str {
        self.lock().is.runs.words(false)
    }

    fn overrides(&self, once: bool, each: bool) {
        let mut machine = self.lock();
        (machine.is.once, machine.is.each) = (once, each);
    }

    fn note(&self, what: impl Into<String>) {
        self.lock().is.effects.push(what.into());
    }

    /// The self-test, and then what the firmware finds.
    fn boot(&self) {
        let plant = self.clone();
        let task = tokio::spawn(async move { plant.boots().await });
        let mut machine = self.lock();
        machine.boots_at = Some(Instant::now() + SELF_TEST);
        machine.done_at = None;
        machine.is.runs = Runs::Firmware;
        (machine.is.agent, machine.is.work, machine.is.over) = (None, None, None);
        machine.is.boots += 1;
        if let Some(before) = machine.task.replace(task) {
            before.abort();
        }
    }

    /// What is left of the self-test, and what comes after it.
    async fn boots(&self) {
        let at = self.lock().boots_at;
        tokio::time::sleep_until(at.unwrap_or_else(Instant::now)).await;
        let medium = {
            let machine = self.lock();
            machine.is.medium.clone().filter(|_| machine.is.once || machine.is.each)
        };
        let start = self.lock().trouble.start;
        let found = match (&medium, start) {
            (Some(url), Start::Agent) => self.read(url).await,
            (Some(url), Start::Silent) => {
                self.read(url).await;
                None
            }
            (Some(url), Start::Begun) => {
                self.read_beginning(url).await;
                None
            }
            (Some(_), Start::Unread) | (None, _) => None,
        };
        {
            let mut machine = self.lock();
            machine.boots_at = None;
            machine.is.once = false;
            if let Some(delay) = machine.is.pending.take() {
                machine.is.delay = Some(delay);
            }
            match (medium, found) {
                (Some(_), Some(config)) => {
                    let boot_id = format!("00000000-0000-4000-8000-{:012}", machine.is.boots);
                    machine.is.runs = Runs::Agent(boot_id.clone());
                    machine.is.effects.push(format!("agent of generation {}", config.generation));
                    machine.is.agent = Some(Agent { config, boot_id, sequence: 0, done: Vec::new() });
                }
                (Some(url), None) if !url.starts_with(MEDIA) => {
                    machine.is.runs = Runs::Live;
                    machine.is.effects.push(format!("live system from {url}"));
                }
                (Some(_), None) => machine.is.effects.push("the medium is not there".to_owned()),
                (None, _) => machine.is.runs = if machine.is.disk.is_some() { Runs::Disk } else { Runs::Firmware },
            }
        }
        self.reports().await;
    }

    /// One request to the server, tried until one answers; cut off where it dies.
    async fn ask(&self, agent: bool, request: impl Fn() -> Request<Body>) -> (StatusCode, Vec<u8>) {
        let mut server = self.server.subscribe();
        loop {
            let routers = server.borrow_and_update().routers.clone();
            if let Some((media, agents)) = routers {
                let router = if agent { agents } else { media };
                tokio::select! {
                    response = router.oneshot(request()) => {
                        let response = response.unwrap();
                        let status = response.status();
                        let body = axum::body::to_bytes(response.into_body(), 16 << 20).await.unwrap();
                        return (status, body.to_vec());
                    }
                    _ = server.changed() => {}
                }
            }
            sleep(Duration::from_secs(2)).await;
        }
    }

    /// The agent's configuration on the medium at this address.
    async fn read(&self, url: &str) -> Option<HostConfig> {
        let path = url.strip_prefix(MEDIA)?;
        let (status, bytes) = self.ask(false, || Request::get(path).body(Body::empty()).unwrap()).await;
        if status != StatusCode::OK {
            return None;
        }
        let start = b"{\n  \"protocol\":";
        let at = bytes.windows(start.len()).position(|window| window == start)?;
        serde_json::Deserializer::from_slice(&bytes[at..]).into_iter().next()?.ok()
    }

    /// The agent's life until it leaves, if there is one.
    async fn reports(&self) {
        loop {
            let (state, left) = self.state();
            let Some(Agent { config, boot_id, sequence, .. }) = self.next_report() else { return };
            let (machine, logs) = self.shows();
            let report = Report {
                protocol: PROTOCOL_VERSION,
                version: "0.1.0".into(),
                host: config.host.clone(),
                generation: config.generation,
                boot_id: boot_id.clone(),
                sequence,
                state,
                machine: Some(machine),
                firmware: Some(FirmwareState { uefi: true, ..FirmwareState::default() }),
                wait_seconds: left.as_secs().clamp(1, 30),
                logs,
            };
            let body = serde_json::to_vec(&report).unwrap();
            let mut answered = None;
            for endpoint in &config.endpoints {
                let endpoint = endpoint.strip_prefix(AGENTS).unwrap();
                let request = || {
                    Request::post(format!("{endpoint}{REPORT_PATH}"))
                        .header("authorization", format!("Bearer {}", config.token))
                        .header(BOOT_KEY_HEADER, format!("{boot_id:k<43}"))
                        .body(Body::from(body.clone()))
                        .unwrap()
                };
                let (status, answer) = self.ask(true, request).await;
                if status == StatusCode::OK {
                    answered = Some(answer);
                    break;
                }
            }
            let Some(answer) = answered else {
                sleep(Duration::from_secs(5)).await;
                continue;
            };
            let directive: Directive = serde_json::from_slice(&answer).unwrap();
            if let Some(leaves) = self.acknowledge(directive.acknowledged.as_ref())
                && leaves
            {
                self.note("leave");
                self.boot();
                return;
            }
            if let Some(command) = directive.command.filter(|command| command.id.boot_id == boot_id) {
                self.begin(command);
            }
        }
    }

    /// The agent, with the number of its next report.
    fn next_report(&self) -> Option<Agent> {
        let mut machine = self.lock();
        let agent = machine.is.agent.as_mut()?;
        agent.sequence += 1;
        Some(agent.clone())
    }

    /// What the agent says now, and how long its work takes yet.
    fn state(&self) -> (AgentState, Duration) {
        let idle = Duration::from_secs(30);
        let mut machine = self.lock();
        if let Some((command, _)) = machine.is.work.clone() {
            let left = machine.done_at.map(|at| at.saturating_duration_since(Instant::now())).unwrap_or_default();
            if !left.is_zero() {
                let running = AgentState::Running { command: command.id, progress: Progress::default() };
                return (running, left.min(Duration::from_secs(10)));
            }
            machine.is.work = None;
            let outcome = ended(&mut machine, &command.action);
            machine.is.over = Some((command.id, outcome));
        }
        match machine.is.over.clone() {
            Some((command, outcome)) => (AgentState::Finished { command, outcome }, idle),
            None => (AgentState::Idle, idle),
        }
    }

    /// Forgets what is recorded; whether that was its leave.
    fn acknowledge(&self, id: Option<&CommandId>) -> Option<bool> {
        let mut machine = self.lock();
        let over = machine.is.over.take_if(|(command, _)| Some(&*command) == id)?;
        Some(over.1 == Outcome::Leaving)
    }

    /// Begins what is not begun yet.
    fn begin(&self, command: Command) {
        let mut machine = self.lock();
        let Some(agent) = machine.is.agent.as_mut().filter(|agent| !agent.done.contains(&command.id)) else { return };
        agent.done.push(command.id.clone());
        let (effect, seconds) = match &command.action {
            Action::Inspect => ("inspect", 5),
            Action::WriteImage(_) => ("write", 120),
            Action::WipeDisks(_) => ("wipe", 30),
            Action::EraseDisks(_) => ("erase", 300),
            // Of ironic-python-agent alone.
            Action::ListSteps | Action::RunStep(_) => ("steps", 0),
            Action::Leave { .. } => ("ready to leave", 0),
        };
        let mut effect = format!("{effect} for {}", command.id.operation);
        if let Action::WipeDisks(wipe) = &command.action
            && let Some(name) = &wipe.named.device_name
        {
            effect = format!("{effect} naming {name}");
        }
        if let Action::WriteImage(write) = &command.action {
            machine.ordered = Some(WriteImage::clone(write));
        }
        machine.is.effects.push(effect);
        machine.done_at = Some(Instant::now() + Duration::from_secs(seconds));
        machine.is.work = Some((command, 0));
    }
}

struct Wire(Plant);

impl Connector for Wire {
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        let name = target.address.system_path().and_then(|path| path.rsplit('/').next());
        let second = self.0.second.lock().unwrap().clone().filter(|(second, _)| Some(second.as_str()) == name);
        let plant = self.0.clone();
        Ok(Arc::new(Control(second.map_or(plant.clone(), |(_, machine)| Plant { machine, ..plant }))))
    }
}

struct Control(Plant);

impl Control {
    /// A call takes its time, before what it does and after it, and may be lost on either way.
    async fn call<T>(&self, act: impl FnOnce(&Plant) -> T) -> Result<T, BmcError> {
        let lost = |kind| BmcError::new(kind, "ask the BMC", "it is lost").advise("");
        sleep(Duration::from_millis(self.0.weather.below(2000))).await;
        if self.0.weather.loses() {
            return Err(lost(ErrorKind::Unreachable));
        }
        let done = act(&self.0);
        sleep(Duration::from_millis(self.0.weather.below(2000))).await;
        if self.0.weather.loses() { Err(lost(ErrorKind::Unanswered)) } else { Ok(done) }
    }
}

#[async_trait]
impl Bmc for Control {
    async fn begin(&self, _: &[String]) -> Result<Sight, BmcError> {
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        self.call(|plant| {
            let powered_on = Some(plant.lock().is.runs != Runs::Nothing);
            let machine = plant.lock();
            Sight { powered_on, model: "Maker M".into(), evidence: evidence(machine.second), health: machine.health }
        })
        .await
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        self.call(|plant| evidence(plant.lock().second).macs).await
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
    fn hardware(&self) -> Result<&dyn HardwareInventory, Lacking> {
        Ok(self)
    }
}

/// The drive is behind a RAID controller: no system sees it. The interface is listed only while the machine is on.
#[async_trait]
impl HardwareInventory for Control {
    async fn list(&self) -> Result<Inspected, BmcError> {
        self.call(|plant| {
            let drive =
                Storage { serial_number: Some("DRIVE-1".into()), size_bytes: Some(1 << 40), ..Storage::default() };
            let nic = Nic { mac: Some("02:00:00:00:00:01".into()), ..Nic::default() };
            let is_on = plant.lock().is.runs != Runs::Nothing;
            let hardware = HardwareDetails {
                ram_mebibytes: Some(1024),
                storage: vec![drive],
                nics: Some(nic).into_iter().filter(|_| is_on).collect(),
                ..HardwareDetails::default()
            };
            Inspected {
                hardware,
                not_listed: if is_on { Vec::new() } else { vec![Part::Interfaces] },
                ..Inspected::default()
            }
        })
        .await
    }
}

impl Machine {
    /// What is in this drive by now.
    fn slot(&mut self, drive: &str) -> &mut Option<String> {
        if let Some((url, _)) = self.loading.take_if(|(_, at)| *at <= Instant::now()) {
            self.is.medium = Some(url);
        }
        if drive == BOOT_DRIVE { &mut self.is.medium } else { &mut self.is.data }
    }
}

/// The drive that the machine boots from.
const BOOT_DRIVE: &str = "CD1";

/// What is put into this drive, or taken out of it, in words.
fn named(drive: &str) -> &'static str {
    if drive == BOOT_DRIVE { "boot medium" } else { "data medium" }
}

#[async_trait]
impl DataDrive for Control {
    async fn choose(&self, _: &str) -> Result<String, BmcError> {
        let free = self.call(|plant| {
            let mut machine = plant.lock();
            let drive = if machine.single_drive { BOOT_DRIVE } else { "CD2" };
            machine.slot(drive).is_none().then(|| drive.to_owned())
        });
        let found = "a medium is in each of them already";
        free.await?.ok_or_else(|| BmcError::new(ErrorKind::Unsupported, "put the medium in", found).advise(""))
    }
    async fn boot_drive(&self, url: &str) -> Result<String, BmcError> {
        let another =
            self.call(|plant| plant.lock().slot(BOOT_DRIVE).as_ref().is_some_and(|there| there != url)).await?;
        let found = "another medium is in the virtual drive that machines boot from";
        let full = || BmcError::new(ErrorKind::Unsupported, "put the medium in", found).advise("");
        if another { Err(full()) } else { Ok(BOOT_DRIVE.into()) }
    }
    async fn put_in(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        let put = self.call(|plant| {
            if plant.lock().refuses_media {
                let refused = ErrorKind::Rejected { status: 400 };
                return Err(BmcError::new(refused, "put the medium in", "400 Bad Request").advise(""));
            }
            let there = plant.lock().slot(drive).clone();
            if there.as_deref() == Some(url) {
                return Ok(Insertion::Done);
            }
            assert_eq!(there, None, "what is in the drive is left there");
            plant.note(format!("{} in under {}", named(drive), plant.runs()));
            let mut machine = plant.lock();
            let reading = machine.reading;
            if drive == BOOT_DRIVE && !reading.is_zero() {
                machine.loading = Some((url.into(), Instant::now() + reading));
                return Ok(Insertion::Pending);
            }
            *machine.slot(drive) = Some(url.into());
            Ok(Insertion::Done)
        });
        put.await?
    }
    async fn put_into_empty(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.put_in(drive, url).await
    }
    async fn content(&self, drive: &str, url: &str) -> Result<Drive, BmcError> {
        self.call(|plant| match plant.lock().slot(drive) {
            Some(there) if there == url => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
        .await
    }
    async fn take_out(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.call(|plant| {
            // Somebody else's is left; what the BMC is reading yet comes in all the same.
            if plant.lock().slot(drive).take_if(|there| there == url).is_some() {
                plant.note(format!("{} out under {}", named(drive), plant.runs()));
            }
        })
        .await
    }
    async fn call_off(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.take_out(drive, url).await
    }
}

#[async_trait]
impl Events for Control {
    async fn like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError> {
        let is = |(url, context): &(String, String)| url == wanted.url && context == wanted.context;
        self.call(|plant| {
            let machine = plant.lock();
            machine.is.subscriptions.iter().filter(|(_, known)| is(known)).map(|(id, _)| id.clone()).collect()
        })
        .await
    }
    async fn subscribe(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError> {
        let made = (wanted.url.to_owned(), wanted.context.to_owned());
        self.call(|plant| {
            let mut machine = plant.lock();
            machine.is.subscribed += 1;
            let id = machine.is.subscribed.to_string();
            machine.is.subscriptions.insert(id.clone(), made);
            Some(id)
        })
        .await
    }
    async fn has(&self, id: &str, url: &str) -> Result<bool, BmcError> {
        self.call(|plant| plant.lock().is.subscriptions.get(id).is_some_and(|known| known.0 == url)).await
    }
    async fn unsubscribe(&self, id: &str, url: &str) -> Result<(), BmcError> {
        self.call(|plant| plant.lock().is.subscriptions.retain(|known, (to, _)| known != id || to != url)).await
    }
    /// As [`Plant::tells`] has it.
    fn posted(&self, body: &[u8]) -> Option<Posted> {
        let (context, severity) = std::str::from_utf8(body).ok()?.split_once('|')?;
        let severity = if severity == "OK" { HealthLevel::OK } else { HealthLevel::Critical };
        Some(Posted { context: context.to_owned(), alert: Alert { severity, is_health: false } })
    }
}

#[async_trait]
impl Power for Control {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        self.call(|plant| {
            let (runs, working) = {
                let machine = plant.lock();
                (machine.is.runs.clone(), machine.is.work.is_some())
            };
            plant.note(format!("{action:?} under {}", runs.words(working)));
            match (action, runs) {
                (PowerAction::On, Runs::Nothing) | (PowerAction::Restart | PowerAction::SoftRestart, _) => plant.boot(),
                (PowerAction::On, _) => {}
                (PowerAction::HardOff | PowerAction::SoftOff, _) => plant.off(),
            }
        })
        .await
    }
}

#[async_trait]
impl BootDevice for Control {
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        self.call(|plant| {
            let machine = plant.lock();
            let powered_on = Some(machine.is.runs != Runs::Nothing);
            let override_ahead = Some(machine.is.once || machine.is.each);
            BootStanding { powered_on, override_ahead, progress: None }
        })
        .await
    }
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        self.call(|plant| plant.overrides(true, false)).await
    }
    async fn each_from_medium(&self) -> Result<Lasting, BmcError> {
        self.call(|plant| {
            let once = plant.lock().once_only;
            plant.overrides(once, !once);
            if once { Lasting::NextBoot } else { Lasting::EachBoot }
        })
        .await
    }
    async fn normally(&self) -> Result<(), BmcError> {
        self.call(|plant| plant.overrides(false, false)).await
    }
}

#[async_trait]
impl VirtualMedia for Control {
    async fn find(&self) -> Result<(), BmcError> {
        self.call(|_| ()).await
    }
    async fn insert(&self, urls: &[String], _: Option<&str>) -> Result<Insertion, BmcError> {
        let insertion = self.0.lock().insertion;
        sleep(insertion).await;
        self.call(|plant| plant.lock().is.medium = urls.first().cloned()).await.map(|()| Insertion::Done)
    }
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        self.drive_with(&|there| urls.iter().any(|url| url == there)).await
    }
    async fn drive_with(&self, is_it: &(dyn for<'a> Fn(&'a str) -> bool + Sync)) -> Result<Drive, BmcError> {
        self.call(|plant| match &plant.lock().is.medium {
            Some(there) if is_it(there) => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
        .await
    }
    async fn eject(&self) -> Result<(), BmcError> {
        self.call(|plant| plant.lock().is.medium = None).await
    }
}
