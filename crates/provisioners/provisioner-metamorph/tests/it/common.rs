//! A BMC, agents that report as they are told, and the provisioner among them. Killing it is making another one over the same record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_protocol::{
    AgentState, BOOT_KEY_HEADER, Command, Directive, FirmwareState, Outcome as AgentOutcome, PROTOCOL_VERSION,
    REPORT_PATH, Report, WriteSummary,
};
use api::metal3::{BootMode, Image};
use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bmc::{
    BmcError, BootDevice, BootStanding, Capability, Connector, Connectors, Drive, ErrorKind, Insertion, Lacking, Power,
    PowerAction, Protocol, SecureBoot, SecureBootSeen, Sight, Target, VirtualMedia,
};
use boot_media::{Assets, Manifest, derive};
use inventory::{BmcPin, HardwareDetails, MachineEvidence};
use provisioner::{
    BmcAccess, History, Host, HostContext, HostFacts, HostKey, Machine, Now, ProvisionRequest, Provisioner, Record,
};
use provisioner_kit::{MemoryMachine, paused_clock};
use provisioner_metamorph::{Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use tempfile::TempDir;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::kit::asked_from;
use crate::memory::Memory;

pub const UID: &str = "uid-0";
const SECRET: [u8; 32] = [7; 32];

/// What the BMC has been told, and what it says.
#[derive(Default)]
pub struct Bmc {
    pub on: bool,
    /// It does not say whether the machine is on.
    pub hides_power: bool,
    /// It does what it is told when it is to switch the machine on, and its answer is lost.
    pub loses_on: bool,
    /// It refuses restarts.
    pub refuses_restart: bool,
    /// So many orders of power are lost on their way to it.
    pub drops_orders: u32,
    /// It takes these orders of power and does nothing.
    pub ignores: Vec<PowerAction>,
    /// How long the machine takes to follow an order of power.
    pub takes: Duration,
    /// Where the machine is going, and when it is there.
    pub turning: Option<(bool, Instant)>,
    /// It shows another machine.
    pub shows_another: bool,
    /// So many looks at it fail.
    pub failing_looks: u32,
    pub medium: Option<String>,
    /// What it does not have, as its first look shows.
    pub lacks: Option<Capability>,
    /// It has no virtual drive, as looking for one shows.
    pub has_no_drive: bool,
    /// What it shows of Secure Boot.
    pub secure_boot: Option<SecureBootSeen>,
    /// What is set is shown, and in force, after the next restart; else it never is.
    pub takes_secure_boot: bool,
    /// What was set last.
    pub asked_secure_boot: Option<bool>,
    /// Everything that it was told to do.
    pub log: Vec<String>,
    /// How often what BMCs are trusted by has changed.
    pub trust: u64,
    /// How often a connection to it was made.
    pub connections: u32,
}

impl Bmc {
    /// Whether the machine is on by now.
    fn settle(&mut self) -> bool {
        if let Some((on, _)) = self.turning.take_if(|(_, at)| Instant::now() >= *at) {
            self.on = on;
        }
        self.on
    }
}

#[derive(Clone)]
struct Control(Arc<Mutex<Bmc>>);

impl Control {
    fn has(&self, capability: Capability) -> Result<(), Lacking> {
        let lacks = self.0.lock().unwrap().lacks == Some(capability);
        if lacks { Err(Lacking::new(capability, "looked for in vain")) } else { Ok(()) }
    }

    fn drive_is_there(&self) -> Result<(), BmcError> {
        let lacks = self.0.lock().unwrap().has_no_drive;
        if lacks { Err(Lacking::new(Capability::VirtualMedia, "looked for in vain").into()) } else { Ok(()) }
    }

    fn told(&self, what: impl Into<String>) {
        self.0.lock().unwrap().log.push(what.into());
    }
}

#[async_trait]
impl bmc::Bmc for Control {
    async fn begin(&self, _stale: &[String]) -> Result<Sight, BmcError> {
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        let mut bmc = self.0.lock().unwrap();
        if bmc.failing_looks > 0 {
            bmc.failing_looks -= 1;
            return Err(lost(ErrorKind::Busy { status: 503 }));
        }
        let on = bmc.settle();
        let powered_on = (!bmc.hides_power).then_some(on);
        let mut evidence = evidence();
        if bmc.shows_another {
            evidence.system_uuid = Some("4c4c4544-0047-3710-8051-b4c04f4a9999".into());
            evidence.serial_number = Some("S-999".into());
        }
        Ok(Sight { powered_on, model: "Maker M".into(), evidence })
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        Ok(evidence().macs)
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
        self.has(Capability::BootDevice)?;
        Ok(self)
    }
    fn virtual_media(&self) -> Result<&dyn VirtualMedia, Lacking> {
        self.has(Capability::VirtualMedia)?;
        Ok(self)
    }
    fn secure_boot(&self) -> Result<&dyn SecureBoot, Lacking> {
        Ok(self)
    }
}

#[async_trait]
impl VirtualMedia for Control {
    async fn find(&self) -> Result<(), BmcError> {
        self.drive_is_there()
    }
    async fn insert(&self, urls: &[String], _certificate: Option<&str>) -> Result<Insertion, BmcError> {
        self.drive_is_there()?;
        self.told("insert");
        self.0.lock().unwrap().medium = urls.first().cloned();
        Ok(Insertion::Done)
    }
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        Ok(match &self.0.lock().unwrap().medium {
            Some(there) if urls.contains(there) => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn eject(&self) -> Result<(), BmcError> {
        self.told("eject");
        self.0.lock().unwrap().medium = None;
        Ok(())
    }
}

#[async_trait]
impl BootDevice for Control {
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        Ok(BootStanding { powered_on: Some(self.0.lock().unwrap().on), override_ahead: None, progress: None })
    }
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        self.told("boot once");
        Ok(())
    }
    async fn normally(&self) -> Result<(), BmcError> {
        self.told("boot normally");
        Ok(())
    }
}

#[async_trait]
impl SecureBoot for Control {
    async fn seen(&self) -> Result<Option<SecureBootSeen>, BmcError> {
        Ok(self.0.lock().unwrap().secure_boot)
    }
    async fn set(&self, on: bool) -> Result<(), BmcError> {
        self.told(format!("secure boot {on}"));
        self.0.lock().unwrap().asked_secure_boot = Some(on);
        Ok(())
    }
}

#[async_trait]
impl Power for Control {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        self.told(format!("{action:?}"));
        let mut bmc = self.0.lock().unwrap();
        if bmc.refuses_restart && action == PowerAction::Restart {
            return Err(lost(ErrorKind::Rejected { status: 400 }));
        }
        if bmc.drops_orders > 0 {
            bmc.drops_orders -= 1;
            return Err(lost(ErrorKind::Unreachable));
        }
        if bmc.ignores.contains(&action) {
            return Ok(());
        }
        let on = !matches!(action, PowerAction::HardOff | PowerAction::SoftOff);
        bmc.turning = Some((on, Instant::now() + bmc.takes));
        bmc.settle();
        if bmc.on && bmc.takes_secure_boot && bmc.asked_secure_boot.is_some() {
            let on = bmc.asked_secure_boot;
            bmc.secure_boot = Some(SecureBootSeen { enable: on, current: on, setup_mode: false });
        }
        if bmc.loses_on && action == PowerAction::On { Err(lost(ErrorKind::Unanswered)) } else { Ok(()) }
    }
}

fn lost(kind: ErrorKind) -> BmcError {
    BmcError::new(kind, "ask the BMC", "nothing came of it").advise("")
}

struct Wire(Arc<Mutex<Bmc>>);

impl Connector for Wire {
    fn connect(&self, _target: Target) -> Result<Arc<dyn bmc::Bmc>, BmcError> {
        self.0.lock().unwrap().connections += 1;
        Ok(Arc::new(Control(Arc::clone(&self.0))))
    }

    fn trust(&self) -> u64 {
        self.0.lock().unwrap().trust
    }
}

/// What tells the machine from others.
pub fn evidence() -> MachineEvidence {
    MachineEvidence {
        manufacturer: Some("Maker".into()),
        system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a3132".into()),
        serial_number: Some("S-100".into()),
        macs: vec!["00:1b:21:aa:bb:01".into()],
        disks: vec!["DISK-1".into()],
    }
}

/// One host, its BMC and the provisioner.
pub struct World {
    pub bmc: Arc<Mutex<Bmc>>,
    pub journal: Memory,
    pub hardware: Option<HardwareDetails>,
    pub disable_power_off: bool,
    pub boot_mode: BootMode,
    machine: Arc<MemoryMachine>,
    now: Now,
    provisioner: NativeProvisioner,
    folder: TempDir,
    /// The server's keys, which outlive it.
    pub keys: KeyRing,
}

/// A key of the server; the first is what agents show tokens of, unless they are told otherwise.
pub fn key(number: u8) -> Key {
    let secret = if number == 1 { SECRET } else { [number; 32] };
    Key { number: number.into(), secret, certificate_sha256: hex::encode([number; 32]) }
}

fn provisioner(folder: &TempDir, bmc: &Arc<Mutex<Bmc>>, keys: &KeyRing) -> NativeProvisioner {
    let settings = Settings {
        bases: Bases {
            media: vec!["http://192.0.2.1:6180".into()],
            agents: vec!["https://192.0.2.1:6385".into()],
            images: None,
        },
        networks: Vec::new(),
        media_certificates: MediaCertificates::default(),
        keys: keys.clone(),
        image_authorities: Default::default(),
        kernel_arguments: String::new(),
        allowed: addresses::Allowed::default(),
        may_act: Arc::new(|| true),
        provisioning_limit: provisioner_metamorph::PROVISIONING_LIMIT,
        timing: Timing::default(),
    };
    let assets = Assets::open(folder.path()).unwrap();
    NativeProvisioner::new(
        settings,
        assets,
        Vec::new(),
        Connectors::new().with(Protocol::Redfish, Wire(Arc::clone(bmc))),
    )
}

impl World {
    /// A machine that is on, and a server that knows nothing of it.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["vmlinuz", "initramfs", "shimx64.efi", "gcdx64.efi"] {
            std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
        }
        let manifest = Manifest::describe(folder.path(), "6.1.0", "0.1.0").unwrap();
        std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
        let keys = KeyRing::new(key(1), vec![]);
        let bmc = Arc::new(Mutex::new(Bmc { on: true, ..Bmc::default() }));
        Self {
            provisioner: provisioner(&folder, &bmc, &keys),
            keys,
            bmc,
            journal: Memory::default(),
            hardware: None,
            disable_power_off: false,
            boot_mode: BootMode::Uefi,
            machine: Arc::default(),
            now: paused_clock(),
            folder,
        }
    }

    /// The server is killed and started again.
    pub fn restart(&mut self) {
        self.provisioner = provisioner(&self.folder, &self.bmc, &self.keys);
    }

    /// The host, for one reconcile.
    pub fn host(&self) -> Box<dyn Host> {
        let facts = HostFacts {
            key: HostKey { namespace: "ns".into(), name: "node-0".into(), uid: UID.into() },
            address: "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1".into(),
            provisioning_id: "owner-1".into(),
            boot_mode: self.boot_mode,
            agent_network: None,
            disable_power_off: self.disable_power_off,
            hardware: self.hardware.clone(),
            ..HostFacts::default()
        };
        let context = HostContext {
            facts,
            bmc: Some(BmcAccess {
                address: "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1".into(),
                username: "u".into(),
                password: "p".to_owned().into(),
                disable_certificate_verification: true,
            }),
            record: Arc::clone(&self.journal.record) as Arc<dyn Record>,
            history: Arc::clone(&self.journal.history) as Arc<dyn History>,
            machine: Arc::clone(&self.machine) as Arc<dyn Machine>,
            now: Arc::clone(&self.now),
            may_act: Arc::new(|| true),
        };
        self.provisioner.host(context).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// What the BMC has been told so far; it forgets it.
    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.bmc.lock().unwrap().log)
    }

    /// The answer of the endpoint for agents.
    pub async fn post(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.provisioner.agent_router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, body.to_vec())
    }

    /// The answer to the beginning of the medium that the BMC was last given.
    pub async fn medium(&self) -> StatusCode {
        let url = self.bmc.lock().unwrap().medium.clone().expect("a medium was inserted");
        let path = url.trim_start_matches("http://192.0.2.1:6180").to_owned();
        let request = Request::get(path).header("range", "bytes=0-99").body(Body::empty()).unwrap();
        asked_from(self.provisioner.media_router(), "192.0.2.7").oneshot(request).await.unwrap().status()
    }

    /// Provisions until it waits for the agent, which reports; gives it.
    pub async fn booted(&self) -> Agent {
        self.host().provision(image()).await.unwrap();
        let agent = Agent::new(self.journal.latest_boot().unwrap().generation, "boot-1");
        assert_eq!(agent.say(self).await.0, StatusCode::OK);
        agent
    }

    /// Provisions until the agent has said that the image is written, and has been told to leave.
    pub async fn written(&self) -> Agent {
        let agent = self.booted().await;
        self.host().provision(image()).await.unwrap();
        let command = agent.given(self).await;
        let summary = WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() };
        agent.finished(&command, AgentOutcome::Written(summary));
        assert_eq!(agent.say(self).await.0, StatusCode::OK);
        self.host().provision(image()).await.unwrap();
        agent
    }
}

/// What is to be provisioned.
pub fn image() -> ProvisionRequest {
    ProvisionRequest {
        image: Image {
            url: "http://192.0.2.9/disk.raw".into(),
            checksum: Some("00".repeat(32)),
            format: Some(api::metal3::DiskFormat::Raw),
            ..Image::default()
        },
        ..ProvisionRequest::default()
    }
}

/// An agent: what it says, and how it shows who it is.
pub struct Agent {
    pub generation: u64,
    pub boot_id: String,
    pub key: Option<String>,
    /// The server's key that its token is derived from.
    pub secret: [u8; 32],
    pub protocol: u32,
    pub state: Mutex<AgentState>,
    pub firmware: Mutex<Option<FirmwareState>>,
    pub sequence: Mutex<u64>,
}

impl Agent {
    pub fn new(generation: u64, boot_id: &str) -> Self {
        Self {
            generation,
            boot_id: boot_id.into(),
            key: Some(format!("{boot_id:k<43}")),
            secret: SECRET,
            protocol: PROTOCOL_VERSION,
            state: Mutex::new(AgentState::Idle),
            firmware: Mutex::new(Some(FirmwareState { uefi: true, secure_boot: false, setup_mode: false })),
            sequence: Mutex::new(0),
        }
    }

    pub fn report(&self) -> Report {
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        Report {
            protocol: self.protocol,
            version: "0.1.0".into(),
            host: UID.into(),
            generation: self.generation,
            boot_id: self.boot_id.clone(),
            sequence: *sequence,
            state: self.state.lock().unwrap().clone(),
            machine: Some(evidence()),
            firmware: *self.firmware.lock().unwrap(),
            wait_seconds: 0,
            logs: Vec::new(),
        }
    }

    pub fn request(&self, body: Vec<u8>) -> Request<Body> {
        let token = derive::credential(&self.secret, UID, self.generation);
        let request = Request::post(REPORT_PATH).header("authorization", format!("Bearer {token}"));
        let request = match &self.key {
            Some(key) => request.header(BOOT_KEY_HEADER, key),
            None => request,
        };
        request.body(Body::from(body)).unwrap()
    }

    /// Reports, and gives what it is answered.
    pub async fn say(&self, world: &World) -> (StatusCode, Directive) {
        let body = serde_json::to_vec(&self.report()).unwrap();
        let (status, answer) = world.post(self.request(body)).await;
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// The command that it is given with its next report; it begins it.
    pub async fn given(&self, world: &World) -> Command {
        let (status, mut directive) = self.say(world).await;
        assert_eq!(status, StatusCode::OK);
        if directive.acknowledged.is_some() {
            *self.state.lock().unwrap() = AgentState::Idle;
            directive = self.say(world).await.1;
        }
        let command = directive.command.expect("a command is given");
        let progress = agent_protocol::Progress::default();
        *self.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress };
        assert_eq!(self.say(world).await.0, StatusCode::OK);
        command
    }

    /// It has done what it was told.
    pub fn finished(&self, command: &Command, outcome: AgentOutcome) {
        *self.state.lock().unwrap() = AgentState::Finished { command: command.id.clone(), outcome };
    }
}

/// Lets time pass.
pub async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}
