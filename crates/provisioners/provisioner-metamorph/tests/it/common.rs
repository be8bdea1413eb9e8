//! A BMC, agents that report as they are told, and the provisioner among them. Killing it is making another one over the same record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_protocol::{
    AgentState, BOOT_KEY_HEADER, Command, Directive, FirmwareState, Outcome as AgentOutcome, PROTOCOL_VERSION,
    REPORT_PATH, Report, WriteSummary,
};
use api::metal3::{BootMode, CleaningMode, Image};
use api::metamorph::{AcceptedMachine, MachineRecordSpec};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use bmc::{Connectors, Protocol};
use boot_media::{AgentKind, Assets, Manifest, derive};
use inventory::{HardwareDetails, MachineEvidence};
use oci_registry::Registries;
use provisioner::{
    BmcAccess, Deployed, Deprovisioned, History, Host, HostContext, HostFacts, HostKey, Machine, Now, ProvisionRequest,
    Provisioner, Record, Verdict,
};
use provisioner_kit::{MemoryMachine, paused_clock};
use provisioner_metamorph::{Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::fake::{Bmc, Wire, evidence};
use crate::kit::asked_from;
use crate::memory::Memory;

pub const UID: &str = "uid-0";
const SECRET: [u8; 32] = [7; 32];

/// A deprovisioning is done, and has wiped disks.
pub const WIPED: Verdict<Deprovisioned> = Verdict::Done(Deprovisioned { wiped: true, untouched: false });
/// It is done, and has left them as they are.
pub const LEFT: Verdict<Deprovisioned> = Verdict::Done(Deprovisioned { wiped: false, untouched: false });

/// One host, its BMC and the provisioner.
pub struct World {
    pub bmc: Arc<Mutex<Bmc>>,
    pub journal: Memory,
    pub hardware: Option<HardwareDetails>,
    pub boot_mac: Option<String>,
    pub disable_power_off: bool,
    pub boot_mode: BootMode,
    pub cleaning: CleaningMode,
    /// The consent that the host carries.
    pub accept_machine: Option<String>,
    pub deleting: bool,
    /// Whether the machine is to be heard.
    pub listens: Option<bool>,
    /// What the host's status tells of what is on the machine.
    pub deployed: Option<Deployed>,
    /// Empty until the host is registered.
    pub provisioning_id: String,
    pub uid: &'static str,
    pub machine: Arc<MemoryMachine>,
    now: Now,
    provisioner: Arc<NativeProvisioner>,
    namespace: &'static str,
    folder: Arc<TempDir>,
    registries: Registries,
    /// Hosts that are worked on at once.
    limit: usize,
    /// The server's keys, which outlive it.
    pub keys: KeyRing,
}

/// A key of the server; the first is what agents show tokens of, unless they are told otherwise.
pub fn key(number: u8) -> Key {
    let secret = if number == 1 { SECRET } else { [number; 32] };
    Key { number: number.into(), secret, certificate_sha256: hex::encode([number; 32]), certificate_pem: String::new() }
}

fn provisioner(
    folder: &TempDir,
    bmc: &Arc<Mutex<Bmc>>,
    keys: &KeyRing,
    (registries, limit): (&Registries, usize),
) -> Arc<NativeProvisioner> {
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
        registries: registries.clone(),
        may_act: Arc::new(|| true),
        provisioning_limit: limit,
        other_masters: Vec::new(),
        timing: Timing::default(),
    };
    let assets = Assets::open(folder.path()).unwrap();
    let connectors = Connectors::new().with(Protocol::Redfish, Wire(Arc::clone(bmc)));
    Arc::new(NativeProvisioner::new(settings, assets.into(), connectors))
}

impl World {
    /// A machine that is on, and a server that knows nothing of it.
    pub fn new() -> Self {
        Self::with(Registries::default())
    }

    /// A server whose machines boot ironic-python-agent.
    pub fn with_ironic_python_agent() -> Self {
        let mut world = Self::new();
        let manifest = world.folder.path().join("manifest.json");
        let mut content = Manifest::describe(world.folder.path(), "6.1.0", "0.1.0").unwrap();
        content.agent = AgentKind::IronicPythonAgent;
        std::fs::write(manifest, content.to_json().unwrap()).unwrap();
        world.restart();
        world
    }

    /// The host's machine was accepted in another's place, and nothing of the host's is on it.
    pub async fn accepts_machine(&self) {
        let known = self.machine.recorded().await.unwrap().unwrap();
        let accepted = AcceptedMachine { fingerprint: "f".into(), time: None, requires_mark: true };
        self.machine.record(MachineRecordSpec { accepted: Some(accepted), ..known }).await.unwrap();
    }

    /// The same with these registries of images.
    pub fn with(registries: Registries) -> Self {
        Self::of(registries, provisioner_metamorph::PROVISIONING_LIMIT)
    }

    /// A server that works on so many hosts at once.
    pub fn limited(limit: usize) -> Self {
        Self::of(Registries::default(), limit)
    }

    fn of(registries: Registries, limit: usize) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        for name in ["vmlinuz", "initramfs", "shimx64.efi", "gcdx64.efi"] {
            std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
        }
        let manifest = Manifest::describe(folder.path(), "6.1.0", "0.1.0").unwrap();
        std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
        let keys = KeyRing::new(key(1), vec![]);
        let bmc = Arc::new(Mutex::new(Bmc { on: true, ..Bmc::default() }));
        Self {
            provisioner: provisioner(&folder, &bmc, &keys, (&registries, limit)),
            namespace: "ns",
            registries,
            limit,
            keys,
            bmc,
            journal: Memory::default(),
            hardware: None,
            boot_mac: None,
            disable_power_off: false,
            boot_mode: BootMode::Uefi,
            cleaning: CleaningMode::Metadata,
            accept_machine: None,
            deleting: false,
            listens: None,
            deployed: None,
            provisioning_id: "owner-1".into(),
            uid: UID,
            machine: Arc::default(),
            now: paused_clock(),
            folder,
        }
    }

    /// The server is killed and started again.
    pub fn restart(&mut self) {
        let settings = (&self.registries, self.limit);
        self.provisioner = provisioner(&self.folder, &self.bmc, &self.keys, settings);
    }

    /// Another host of the same server, of which nothing is known yet.
    pub fn beside(&self, namespace: &'static str, uid: &'static str) -> Self {
        Self {
            provisioner: Arc::clone(&self.provisioner),
            folder: Arc::clone(&self.folder),
            keys: self.keys.clone(),
            bmc: Arc::clone(&self.bmc),
            namespace,
            uid,
            ..Self::limited(1)
        }
    }

    /// The hosts that the server wakes from now on.
    pub fn wake_ups(&self) -> provisioner::WakeUps {
        self.provisioner.subscribe()
    }

    /// The server has read the host's record, and asks nothing of the machine.
    pub fn expect(&self) {
        self.provisioner.expect(&host_key(), &self.journal.record.current());
    }

    /// The host has noted that it was restarted.
    pub fn restart_is_noted(&self) {
        self.provisioner.restart_is_noted(&host_key());
    }

    /// The host is gone.
    pub fn forget(&self) {
        self.provisioner.forget(&host_key());
    }

    /// The host, for one reconcile.
    pub fn host(&self) -> Box<dyn Host> {
        self.host_of(true)
    }

    /// The host, for one reconcile of a process that does not lead any more.
    pub fn deposed(&self) -> Box<dyn Host> {
        self.host_of(false)
    }

    fn host_of(&self, leads: bool) -> Box<dyn Host> {
        let facts = HostFacts {
            key: HostKey { uid: self.uid.into(), namespace: self.namespace.into(), ..host_key() },
            address: "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1".into(),
            provisioning_id: self.provisioning_id.clone(),
            boot_mode: self.boot_mode,
            cleaning: self.cleaning,
            agent_network: None,
            disable_power_off: self.disable_power_off,
            hardware: self.hardware.clone().map(Arc::new),
            boot_mac: self.boot_mac.clone(),
            accept_machine: self.accept_machine.clone(),
            deleting: self.deleting,
            listens: self.listens,
            deployed: self.deployed.clone(),
            ..HostFacts::default()
        };
        let context = HostContext {
            facts: Arc::new(facts),
            bmc: Some(BmcAccess {
                address: "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1".into(),
                username: "u".into(),
                password: "p".to_owned().into(),
                disable_certificate_verification: true,
            }),
            record: Arc::new(self.journal.clone()),
            history: Arc::clone(&self.journal.history) as Arc<dyn History>,
            machine: Arc::clone(&self.machine) as Arc<dyn Machine>,
            now: Arc::clone(&self.now),
            may_act: Arc::new(move || leads),
        };
        self.provisioner.host(context).unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    /// The orders that the BMC has been given so far; the log is then empty.
    pub fn calls(&self) -> Vec<String> {
        let mut log = std::mem::take(&mut self.bmc.lock().unwrap().log);
        log.retain(|line| !matches!(line.as_str(), "look at the boot" | "look at the drive" | "read the log"));
        log.into_iter().map(|line| if line.starts_with("insert ") { "insert".to_owned() } else { line }).collect()
    }

    /// The answer of the endpoint for agents, of which nobody has read the body yet.
    pub async fn ask(&self, request: Request<Body>) -> Response {
        self.provisioner.agent_router().oneshot(request).await.unwrap()
    }

    /// The answer of the endpoint for agents.
    pub async fn post(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.ask(request).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, body.to_vec())
    }

    /// The answer to what is posted to the whole address of the endpoint for BMCs.
    pub async fn tell(&self, url: &str, body: impl Into<Body>) -> StatusCode {
        let path = url.trim_start_matches("http://192.0.2.1:6180").to_owned();
        let request = Request::post(path).body(body.into()).unwrap();
        asked_from(self.provisioner.media_router(), "192.0.2.7").oneshot(request).await.unwrap().status()
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

fn host_key() -> HostKey {
    HostKey { namespace: "ns".into(), name: "node-0".into(), uid: UID.into() }
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
    /// What it says of its machine.
    /// What it says of itself.
    pub version: &'static str,
    pub machine: MachineEvidence,
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
            version: "0.1.0",
            machine: evidence(),
            firmware: Mutex::new(Some(FirmwareState { uefi: true, secure_boot: false, setup_mode: false })),
            sequence: Mutex::new(0),
        }
    }

    pub fn report(&self) -> Report {
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        Report {
            protocol: self.protocol,
            version: self.version.into(),
            host: UID.into(),
            generation: self.generation,
            boot_id: self.boot_id.clone(),
            sequence: *sequence,
            state: self.state.lock().unwrap().clone(),
            machine: Some(self.machine.clone()),
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

    /// The generation that its report is told to be over.
    pub async fn dismissed(&self, world: &World) -> Option<u64> {
        let response = world.ask(self.request(serde_json::to_vec(&self.report()).unwrap())).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        response.headers().get(agent_protocol::DISMISSED_HEADER)?.to_str().ok()?.parse().ok()
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
