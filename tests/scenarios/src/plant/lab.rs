//! Hosts in front of whole simulated BMCs, in this process and without a socket: the provisioner's own Redfish client speaks to the simulator's service, the simulator starts a scripted machine,
//! and that machine's agent speaks to the provisioner's own routers.
//!
//! What is wrong is set where it would be: at the machine and in the BMC's answers (ailments, settings and rules of the simulator), on the way to the BMC ([`Way`]), or in what the
//! agent meets ([`Trouble`]). What a diagnosis reads is noted, and any source of it can be taken away.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bmc::{Bmc, BmcError, BmcRegistry, Connector, Connectors, ErrorKind, Protocol, Target};
use bmc_sim::bmc::{Bmc as SimBmc, Shared};
use bmc_sim::config::DiskConfig;
use bmc_sim::journal::EventLog;
use bmc_sim::machine::{BootPlan, Command, Exit, Machine as SimMachine, MachineError, Process, Running, Started};
use bmc_sim::media::MediaSource;
use bmc_sim::{MachineConfig, MachineKind, NicConfig};
use clock::Clock as _;
use diagnosis::{Evidence, Reading};
use inventory::{MachineEvidence, Nic, Storage};
use operator::Detect;
use provisioner::{
    AdoptRequest, Capabilities, CleaningRequest, CustomDeploy, DataImages, Deploy, Deprovisioned, Diagnose, Erase,
    EvidenceBudget, Failure, Firmware, Health, Host, HostContext, HostFacts, HostKey, Inspect, InspectRequest,
    LiveMedia, Locate, Logs, Manage, Named, Outcome, Power, PowerRequest, Prepare, ProvisionRequest, Provisioner,
    Recorded, RegisterRequest, Registered, Registry, ReleaseRequest, Service, Steps, Verdict, WakeUps,
};
use redfish::{Client, ClientOptions, RedfishBmc, Request as Asked, Response, Transport, TransportError};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::{Made, Plant, Trouble};
use crate::Site;

/// Largest answer of a BMC.
const MAX_ANSWER: usize = 16 << 20;
const USER: &str = "u";
const PASSWORD: &str = "p";

/// What becomes of connections to a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The port is closed.
    Refused,
    /// Nothing answers.
    TimedOut,
    /// The name has no address.
    NameUnknown,
    /// There is no route.
    NoRoute,
    /// The connection is opened and broken off.
    Reset,
    /// Nobody who is trusted has signed the certificate.
    UnknownAuthority,
    /// The certificate has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It is another name's.
    WrongName,
    /// TLS comes to no agreement.
    NoTls,
}

impl Way {
    /// What the client's network transport says of it, in its words and the system's.
    fn error(self) -> TransportError {
        let connect = |detail: &str| TransportError::Connect { detail: detail.to_owned() };
        let certificate = |detail: &str| TransportError::Certificate { detail: detail.to_owned() };
        match self {
            Self::Refused => connect("Connection refused (os error 111)"),
            Self::TimedOut => TransportError::Timeout { seconds: 10 },
            Self::NameUnknown => connect("failed to lookup address information: Name or service not known"),
            Self::NoRoute => connect("No route to host (os error 113)"),
            Self::Reset => connect("Connection reset by peer (os error 104)"),
            Self::UnknownAuthority => certificate("it is signed by an unknown issuer, or self-signed"),
            Self::Expired => certificate("it has expired"),
            Self::NotYetValid => certificate("it is not valid yet; check the clocks of BMC and server"),
            Self::WrongName => certificate("it is not made out for this address"),
            Self::NoTls => TransportError::NoCommonTls {
                detail: "the BMC offers TLS 1.0; this server offers TLS 1.2 and 1.3".to_owned(),
            },
        }
    }
}

/// One machine with its BMC, and what is wrong with them.
pub struct Bench {
    plant: Plant,
    /// The BMC.
    pub bmc: Arc<SimBmc>,
    router: Router,
    number: usize,
    way: Mutex<Option<Way>>,
    hidden: Mutex<Vec<String>>,
    seen: Mutex<Option<Evidence>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    /// What the host's `spec` says of it.
    pub fn spec(&self, name: &str) -> Value {
        json!({
            "bootMACAddress": self.bmc.config.mac(0),
            "bmc": { "address": format!("redfish-virtualmedia+http://{}/redfish/v1/Systems/{}", self.origin(), self.bmc.config.id), "credentialsName": format!("{name}-bmc") },
        })
    }

    /// The BMC's address.
    pub fn origin(&self) -> String {
        format!("198.51.100.{}", self.number)
    }

    /// From now on connections to the BMC end so.
    pub fn way(&self, way: Option<Way>) {
        *locked(&self.way) = way;
    }

    /// From now on the agent meets this.
    pub fn trouble(&self, trouble: Trouble) {
        self.plant.lock().trouble = trouble;
    }

    /// Somebody else's system is on the disk, with that owner's mark.
    pub fn belongs_to(&self, owner: &str) {
        self.plant.belongs_to(owner);
    }

    /// These sources of evidence are not available from now on: the names of [`Evidence`]'s fields, and `medium`, `agent` and `calls` of the server's own.
    pub fn hide(&self, sources: &[String]) {
        sources.clone_into(&mut locked(&self.hidden));
    }

    /// What the last diagnosis has read.
    pub fn seen(&self) -> Option<Evidence> {
        locked(&self.seen).clone()
    }
}

/// The machine behind a simulated BMC.
struct Behind(Plant);

#[async_trait]
impl SimMachine for Behind {
    async fn start(&self, plan: &BootPlan) -> Result<Started, MachineError> {
        let medium = plan.medium.as_ref().map(|medium| medium.url().to_string());
        let running = if medium.is_some() { Running::Medium } else { Running::Disk };
        {
            let mut machine = self.0.lock();
            (machine.is.once, machine.is.each) = (medium.is_some(), false);
            machine.is.medium = medium;
        }
        self.0.boot();
        let (commands, mut orders) = mpsc::channel(4);
        let (ended, exit) = oneshot::channel();
        let plant = self.0.clone();
        tokio::spawn(async move {
            match orders.recv().await {
                Some(Command::Kill(done)) => {
                    plant.off();
                    // An error means that nobody waits any more.
                    let _ = done.send(());
                }
                Some(Command::Button) => {
                    plant.off();
                    let _ = ended.send(Exit::PowerOff);
                }
                None => plant.off(),
            }
        });
        Ok(Started { running, detail: Value::Null, process: Some(Process { pid: 0, commands, exit }) })
    }

    fn parts(&self) -> Value {
        json!({})
    }
}

/// The way to one BMC.
struct Line(Arc<Bench>);

#[async_trait]
impl Transport for Line {
    async fn send(&self, request: &Asked) -> Result<Response, TransportError> {
        if let Some(way) = *locked(&self.0.way) {
            return Err(way.error());
        }
        let mut built = axum::http::Request::new(Body::from(request.body.clone().unwrap_or_default()));
        *built.method_mut() = request.method.clone();
        *built.uri_mut() = request.path.parse().unwrap();
        *built.headers_mut() = request.headers.clone();
        let answer = self.0.router.clone().oneshot(built).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = axum::body::to_bytes(body, MAX_ANSWER).await.unwrap().to_vec();
        if body == bmc_sim::http::CUT.as_bytes() {
            return Err(TransportError::Dropped {
                detail: "connection closed before message completed".to_owned(),
                reused: false,
            });
        }
        Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body, reused: false, path: String::new() })
    }
}

/// The benches by their hosts' names.
type Benches = Arc<Mutex<BTreeMap<String, Arc<Bench>>>>;

/// Connects to benches by their addresses.
struct Lines {
    benches: Benches,
    registry: BmcRegistry,
}

impl Connector for Lines {
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        let Target { address, credentials, pin, .. } = target;
        let host = address.host().to_string();
        let found = locked(&self.benches).values().find(|bench| bench.origin() == host).cloned();
        let nobody =
            || BmcError::new(ErrorKind::Unreachable, "connect to the BMC", "there is no such bench").advise("");
        let bench = found.ok_or_else(nobody)?;
        let options = ClientOptions { pin, ..ClientOptions::new("lab") };
        Ok(Arc::new(RedfishBmc::new(Client::new(address, credentials, Arc::new(Line(bench)), &self.registry, options))))
    }
}

/// A server's machines, each on a bench.
pub struct Lab {
    plant: Plant,
    shared: Arc<Shared>,
    folder: TempDir,
    benches: Benches,
}

impl Lab {
    /// One without a bench.
    pub fn new(site: &Site) -> Self {
        let plant = Plant::new(site.weather.clone());
        let (clock, server) = (site.clock(), plant.clone());
        // A BMC reads media from wherever the server is at the moment.
        let media = Router::new().fallback(move |request: Request| {
            let server = server.clone();
            async move { server.media(request).await }
        });
        let shared = Shared {
            events: EventLog::default(),
            requests: AtomicU64::new(0),
            media: MediaSource::InProcess(media),
            started: tokio::time::Instant::now(),
            made: clock.now(),
            now: Arc::new(move || clock.now()),
        };
        Self { plant, shared: Arc::new(shared), folder: tempfile::tempdir().unwrap(), benches: Benches::default() }
    }

    /// A machine that is off, with two disks and two network ports, for the host of this name.
    pub fn bench(&self, name: &str, maker: Option<&str>) -> Arc<Bench> {
        let number = locked(&self.benches).len() + 1;
        assert!(number < 255, "an address each");
        let mut config = MachineConfig::new(name, MachineKind::Fake);
        config.nics = vec![NicConfig::default(), NicConfig::default()];
        config.disks = vec![DiskConfig::default(), DiskConfig::default()];
        if let Some(maker) = maker {
            config.manufacturer = maker.to_owned();
        }
        let serials: Vec<String> = (0..2).map(|index| config.disk_serial(index)).collect();
        let macs: Vec<String> = (0..2).map(|index| config.mac(index)).collect();
        let disk = |(index, serial): (usize, &String)| Storage {
            name: Some(format!("/dev/sd{}", ["a", "b"][index])),
            serial_number: Some(serial.clone()),
            size_bytes: i64::try_from(config.disks[index].size_bytes).ok(),
            ..Storage::default()
        };
        let nic = |(index, mac): (usize, &String)| Nic {
            name: Some(format!("eno{}", index + 1)),
            mac: Some(mac.clone()),
            ..Nic::default()
        };
        let made = Made {
            disks: serials.iter().enumerate().map(disk).collect(),
            nics: macs.iter().enumerate().map(nic).collect(),
            evidence: MachineEvidence {
                manufacturer: Some(config.manufacturer.clone()),
                system_uuid: Some(config.system_uuid().to_string()),
                serial_number: Some(config.system_serial()),
                macs,
                disks: serials,
            },
        };
        let plant = self.plant.another(made);
        let kept = self.folder.path().join(format!("{name}.json"));
        let account = (USER.to_owned(), PASSWORD.to_owned());
        let bmc = SimBmc::new(config, Arc::clone(&self.shared), account, Arc::new(Behind(plant.clone())), kept);
        let router = bmc_sim::http::router(Arc::clone(&bmc));
        let (way, hidden, seen) = (Mutex::default(), Mutex::default(), Mutex::default());
        let bench = Arc::new(Bench { plant, bmc, router, number, way, hidden, seen });
        locked(&self.benches).insert(name.to_owned(), Arc::clone(&bench));
        bench
    }

    /// Starts a server that diagnoses, with the native provisioner.
    pub fn serve(&self, site: &Site, detect: Detect) -> JoinHandle<()> {
        let lines = Lines { benches: Arc::clone(&self.benches), registry: BmcRegistry::new() };
        let native = self.plant.provisioner_by(Connectors::new().with(Protocol::Redfish, lines));
        let watched = Watched { inner: native, benches: Arc::clone(&self.benches) };
        site.diagnosing(Registry::new(Arc::new(watched)), detect)
    }
}

/// Notes what diagnoses read, and takes sources of it away; all else is the provisioner's own.
struct Watched {
    inner: Arc<dyn Provisioner>,
    benches: Benches,
}

impl Named for Watched {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[async_trait]
impl Provisioner for Watched {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        self.inner.capabilities(host)
    }
    fn made(&self, id: &str) -> bool {
        self.inner.made(id)
    }
    fn machine_key(&self, address: &str) -> Option<String> {
        self.inner.machine_key(address)
    }
    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        let bench = locked(&self.benches).get(&context.facts.key.name).cloned();
        let inner = self.inner.host(context)?;
        Ok(Box::new(WatchedHost { inner, bench }))
    }
    fn has_news(&self, key: &HostKey) -> bool {
        self.inner.has_news(key)
    }
    fn acknowledge_news(&self, key: &HostKey) {
        self.inner.acknowledge_news(key);
    }
    fn subscribe(&self) -> WakeUps {
        self.inner.subscribe()
    }
    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        self.inner.expect(key, recorded);
    }
    fn forget(&self, key: &HostKey) {
        self.inner.forget(key);
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}

struct WatchedHost {
    inner: Box<dyn Host>,
    bench: Option<Arc<Bench>>,
}

#[async_trait]
impl Diagnose for WatchedHost {
    async fn evidence(&mut self, budget: EvidenceBudget) -> Outcome<Box<Evidence>> {
        let answer = self.inner.diagnose().unwrap().evidence(budget).await?;
        let Some(bench) = &self.bench else { return Ok(answer) };
        Ok(match answer {
            Verdict::Done(mut evidence) => {
                for source in &*locked(&bench.hidden) {
                    hide(&mut evidence, source);
                }
                *locked(&bench.seen) = Some(Evidence::clone(&evidence));
                Verdict::Done(evidence)
            }
            other => other,
        })
    }
}

fn hide(evidence: &mut Evidence, source: &str) {
    fn gone<T>() -> Reading<T> {
        Reading::NotAvailable("it was taken away".to_owned())
    }
    match source {
        "access" => evidence.access = gone(),
        "power" => evidence.power = gone(),
        "boot" => evidence.boot = gone(),
        "media" => evidence.media = gone(),
        "parts" => evidence.parts = gone(),
        "tasks" => evidence.tasks = gone(),
        "logs" => evidence.logs = gone(),
        "manager" => evidence.manager = gone(),
        "differences" => evidence.differences = gone(),
        "calls" => evidence.ours.calls = gone(),
        "medium" => evidence.ours.medium = gone(),
        "agent" => evidence.ours.agent = gone(),
        other => panic!("{other} is no source"),
    }
}

#[async_trait]
impl Manage for WatchedHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        self.inner.register(request).await
    }
    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        self.inner.adopt(request).await
    }
    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        self.inner.release(request).await
    }
}

#[async_trait]
impl Power for WatchedHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        self.inner.power_state().await
    }
    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.inner.set_power(request).await
    }
}

#[async_trait]
impl Inspect for WatchedHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<inventory::Inspected>> {
        self.inner.inspect(request).await
    }
}

#[async_trait]
impl Deploy for WatchedHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        self.inner.provision(request).await
    }
    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned> {
        self.inner.deprovision(request).await
    }
}

impl Host for WatchedHost {
    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        self.inner.prepare()
    }
    fn service(&mut self) -> Option<&mut dyn Service> {
        self.inner.service()
    }
    fn erase(&mut self) -> Option<&mut dyn Erase> {
        self.inner.erase()
    }
    fn steps(&mut self) -> Option<&mut dyn Steps> {
        self.inner.steps()
    }
    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        self.inner.live_media()
    }
    fn custom_deploy(&mut self) -> Option<&mut dyn CustomDeploy> {
        self.inner.custom_deploy()
    }
    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        self.inner.data_images()
    }
    fn events(&mut self) -> Option<&mut dyn provisioner::Events> {
        self.inner.events()
    }
    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        self.inner.firmware()
    }
    fn health(&mut self) -> Option<&mut dyn Health> {
        self.inner.health()
    }
    fn diagnose(&mut self) -> Option<&mut dyn Diagnose> {
        if self.inner.diagnose().is_some() { Some(self) } else { None }
    }
    fn logs(&mut self) -> Option<&mut dyn Logs> {
        self.inner.logs()
    }
    fn locate(&mut self) -> Option<&mut dyn Locate> {
        self.inner.locate()
    }
}
