//! A provisioner with a BMC; time is tokio's, which the tests pause.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use bmc::{
    Bmc, BmcError, BootDevice, BootStanding, Connector, Connectors, Drive, ErrorKind, Insertion, Lacking, LogEntry,
    Logs, Power, PowerAction, Protocol, Sight, Target, VirtualMedia,
};
use boot_media::assets::{GRUB, INITRAMFS, KERNEL, MANIFEST, SHIM};
use boot_media::{Assets, Manifest};
use http_body_util::BodyExt;
use inventory::{BmcPin, MachineEvidence};
use provisioner::{
    BmcAccess, Failure, History, HostContext, HostFacts, HostKey, InspectRequest, Machine, Now, Provisioner, Record,
    Verdict,
};
use provisioner_kit::{MemoryMachine, paused_clock};
use provisioner_metamorph::{Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::memory::Memory;

pub const UID: &str = "5d0c1a1e-0000-4000-8000-000000000001";

/// An agent image folder that no machine could boot; its bytes depend on `seed`.
pub fn image(seed: u8) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, len) in [(KERNEL, 90_001), (INITRAMFS, 150_003), (SHIM, 10_000), (GRUB, 40_007)] {
        std::fs::write(folder.path().join(name), vec![seed; len]).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "test", "test").unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest.to_json().unwrap()).unwrap();
    folder
}

pub fn assets(folder: &tempfile::TempDir) -> Assets {
    Assets::open(folder.path()).unwrap()
}

/// What the BMC does, and what has been asked of it.
pub struct BmcState {
    pub log: Vec<String>,
    pub medium: Option<String>,
    loading: Option<(String, Instant)>,
    /// How long the BMC reads a medium before it is in.
    pub insertion: Duration,
    /// Whether it looks into a medium and refuses it then.
    pub refuses: bool,
    /// The boot override that it shows.
    pub override_ahead: Option<bool>,
    /// What it makes of a boot override.
    pub keeps_override: bool,
    pub powered_on: bool,
    /// What its log calls critical, the newest first.
    pub critical: Vec<LogEntry>,
    /// Who asks the media endpoint in the BMC's name.
    pub reader: Option<axum::Router>,
}

pub struct FakeBmc {
    state: Mutex<BmcState>,
}

/// After how long a client gives a request up.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

impl FakeBmc {
    pub fn new() -> Arc<Self> {
        let state = BmcState {
            log: vec![],
            medium: None,
            loading: None,
            insertion: Duration::ZERO,
            refuses: false,
            override_ahead: Some(false),
            keeps_override: true,
            powered_on: true,
            critical: vec![],
            reader: None,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub fn state(&self) -> MutexGuard<'_, BmcState> {
        let mut state = self.state.lock().unwrap();
        let insertion = state.insertion;
        if let Some((url, _)) = state.loading.take_if(|(_, since)| since.elapsed() >= insertion) {
            state.medium = Some(url);
        }
        state
    }

    /// Addresses that were to be inserted, in their order.
    pub fn inserted(&self) -> Vec<String> {
        self.state().log.iter().filter_map(|line| line.strip_prefix("insert ")).map(ToOwned::to_owned).collect()
    }

    /// How often the machine was reset.
    pub fn resets(&self) -> usize {
        self.state().log.iter().filter(|line| *line == "Restart").count()
    }

    fn note(&self, what: &str) {
        self.state().log.push(what.to_owned());
    }
}

struct Handle(Arc<FakeBmc>);

impl Connector for Handle {
    fn connect(&self, _target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl Bmc for Handle {
    async fn begin(&self, _stale: &[String]) -> Result<Sight, BmcError> {
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        let evidence = MachineEvidence { serial_number: Some("SN-1".into()), ..MachineEvidence::default() };
        let powered_on = Some(self.0.state().powered_on);
        Ok(Sight { powered_on, model: "fake".into(), evidence })
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        Ok(vec![])
    }
    fn pin(&self) -> BmcPin {
        BmcPin::default()
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
    fn logs(&self) -> Result<&dyn Logs, Lacking> {
        Ok(self)
    }
}

#[async_trait]
impl VirtualMedia for Handle {
    async fn find(&self) -> Result<(), BmcError> {
        Ok(())
    }
    async fn insert(&self, urls: &[String], _certificate: Option<&str>) -> Result<Insertion, BmcError> {
        let url = urls[0].as_str();
        let insertion = {
            let mut state = self.0.state();
            if state.medium.as_deref() == Some(url) {
                return Ok(Insertion::Done);
            }
            state.log.push(format!("insert {url}"));
            state.medium = None;
            state.loading = Some((url.to_owned(), Instant::now()));
            state.insertion
        };
        let (reader, refuses) = {
            let state = self.0.state();
            (state.reader.clone(), state.refuses)
        };
        if let Some(reader) = reader {
            read_from(reader, url).await.unwrap();
        }
        if refuses {
            self.0.state().loading = None;
            return Err(
                BmcError::new(ErrorKind::Rejected { status: 400 }, "insert the medium", "400 Bad Request").advise("")
            );
        }
        tokio::time::sleep(insertion.min(CLIENT_PATIENCE)).await;
        if insertion >= CLIENT_PATIENCE {
            return Ok(Insertion::Pending);
        }
        Ok(Insertion::Done)
    }
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        Ok(match self.0.state().medium.as_deref() {
            Some(there) if urls[0] == there => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn eject(&self) -> Result<(), BmcError> {
        let mut state = self.0.state();
        (state.medium, state.loading) = (None, None);
        state.log.push("eject".into());
        Ok(())
    }
}

#[async_trait]
impl BootDevice for Handle {
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        self.0.note("look at the boot");
        let state = self.0.state();
        let (powered_on, override_ahead) = (Some(state.powered_on), state.override_ahead);
        Ok(BootStanding { powered_on, override_ahead, progress: Some("OSRunning".into()) })
    }
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        self.0.note("boot once");
        let mut state = self.0.state();
        state.override_ahead = Some(state.keeps_override);
        Ok(())
    }
    async fn normally(&self) -> Result<(), BmcError> {
        self.0.note("boot normally");
        Ok(())
    }
}

#[async_trait]
impl Logs for Handle {
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError> {
        self.0.note("read the log");
        Ok(self.0.state().critical.iter().take(most).cloned().collect())
    }
}

#[async_trait]
impl Power for Handle {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        self.0.note(&format!("{action:?}"));
        Ok(())
    }
}

/// One host, and the server that looks after it; the server can be replaced, everything else outlives it.
pub struct Lab {
    pub bmc: Arc<FakeBmc>,
    pub journal: Memory,
    machine: Arc<MemoryMachine>,
    now: Now,
    pub network: Option<serde_json::Value>,
    pub server: NativeProvisioner,
}

/// The server's key of this number, with a certificate that has this digest.
pub fn key(number: u32, digest: &str) -> KeyRing {
    KeyRing::new(Key { number, secret: [7; 32], certificate_sha256: digest.repeat(32) }, vec![])
}

pub fn settings() -> Settings {
    Settings {
        bases: Bases {
            media: vec!["http://192.0.2.1:6180".into()],
            agents: vec!["https://192.0.2.1:6385".into()],
            images: Some("http://192.0.2.1:6180/images".into()),
        },
        networks: vec![],
        media_certificates: MediaCertificates::default(),
        keys: key(1, "00"),
        image_authorities: Default::default(),
        kernel_arguments: String::new(),
        allowed: addresses::Allowed::default(),
        may_act: Arc::new(|| true),
        provisioning_limit: provisioner_metamorph::PROVISIONING_LIMIT,
        timing: Timing::default(),
    }
}

impl Lab {
    pub fn new(image: &tempfile::TempDir) -> Self {
        let bmc = FakeBmc::new();
        Self {
            server: server(&bmc, settings(), image),
            bmc,
            journal: Memory::default(),
            machine: Arc::default(),
            now: paused_clock(),
            network: None,
        }
    }

    /// Another server takes the place of the one that there is.
    pub fn restart(&mut self, settings: Settings, image: &tempfile::TempDir) {
        self.server = server(&self.bmc, settings, image);
    }

    /// The same, with the image that was there before beside the new one.
    pub fn upgrade(&mut self, image: &tempfile::TempDir, earlier: &tempfile::TempDir) {
        let connect = Connectors::new().with(Protocol::Redfish, Handle(Arc::clone(&self.bmc)));
        self.server = NativeProvisioner::new(settings(), assets(image), vec![assets(earlier)], connect);
    }

    /// The BMC reads the whole of a medium when it is inserted.
    pub fn bmc_reads_when_inserting(&self) {
        self.bmc.state().reader = Some(asked_from(self.server.media_router(), "192.0.2.7"));
    }

    /// One look at the host, as its controller takes it: an inspection is wanted.
    pub async fn inspect(&self) -> Result<Duration, Failure> {
        let facts = HostFacts {
            key: HostKey { namespace: "metal".into(), name: "node-0".into(), uid: UID.into() },
            address: "redfish-virtualmedia://192.0.2.7".into(),
            provisioning_id: UID.into(),
            boot_mode: api::metal3::BootMode::Uefi,
            agent_network: self.network.clone(),
            disable_power_off: false,
            hardware: None,
            ..HostFacts::default()
        };
        let context = HostContext {
            facts,
            bmc: Some(BmcAccess {
                address: "redfish-virtualmedia://192.0.2.7".into(),
                username: "root".into(),
                password: "calvin".to_owned().into(),
                disable_certificate_verification: false,
            }),
            record: Arc::clone(&self.journal.record) as Arc<dyn Record>,
            history: Arc::clone(&self.journal.history) as Arc<dyn History>,
            machine: Arc::clone(&self.machine) as Arc<dyn Machine>,
            now: Arc::clone(&self.now),
            may_act: Arc::new(|| true),
        };
        let mut host = self.server.host(context)?;
        match host.inspect(InspectRequest::default()).await? {
            Verdict::Working(working) => Ok(working.look_again),
            other => panic!("no agent has reported: {other:?}"),
        }
    }

    /// Looks at the host again and again for so long, as its controller does; the failures on the way.
    pub async fn look_for(&self, time: Duration) -> Vec<Failure> {
        let end = Instant::now() + time;
        let mut failures = Vec::new();
        while Instant::now() < end {
            let pause = match self.inspect().await {
                Ok(pause) => pause,
                Err(failure) => {
                    failures.push(failure);
                    Duration::from_secs(60)
                }
            };
            tokio::time::sleep(pause.max(Duration::from_millis(100))).await;
        }
        failures
    }

    /// What the media endpoint answers for a whole address, entity tag and bytes, if it has it.
    pub async fn read(&self, url: &str) -> Option<(String, Vec<u8>)> {
        read_from(asked_from(self.server.media_router(), "192.0.2.7"), url).await
    }
}

/// The routes as whoever has this address finds them.
pub fn asked_from(router: axum::Router, address: &str) -> axum::Router {
    router.layer(MockConnectInfo(SocketAddr::new(address.parse().unwrap(), 40_000)))
}

async fn read_from(router: axum::Router, url: &str) -> Option<(String, Vec<u8>)> {
    let path = url.splitn(4, '/').nth(3).unwrap();
    let request = Request::get(format!("/{path}")).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    if answer.status() == StatusCode::NOT_FOUND {
        return None;
    }
    assert_eq!(answer.status(), StatusCode::OK);
    let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
    Some((tag, answer.into_body().collect().await.unwrap().to_bytes().to_vec()))
}

fn server(bmc: &Arc<FakeBmc>, settings: Settings, image: &tempfile::TempDir) -> NativeProvisioner {
    NativeProvisioner::new(
        settings,
        assets(image),
        vec![],
        Connectors::new().with(Protocol::Redfish, Handle(Arc::clone(bmc))),
    )
}
