//! A real Ironic: API and conductor in one process on loopback, SQLite, machines of its type `fake-hardware`.
//!
//! `METAMORPH_IRONIC` names the folder of its programs (`tests/ironic/build` installs them); `make test-ironic` alone runs these tests.
//!
//! The kit's clock stands while Ironic works: a request is made on another thread, and the kit's thread waits for it. So a call takes no time by the
//! kit's clock, and a pause between two looks takes none by the real one: before it is asked for a node, an Ironic that is at work is given a moment.

mod agent;
#[path = "../../../../../tests/ironic/start.rs"]
mod start;

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use provisioner::{
    Answer, BmcAccess, Call, Cause, HostFacts, MayAct, PowerWish, Provisioner, RegisterRequest, ReleaseRequest, Sought,
    Subscription, Unsubscription,
};
use provisioner_ironic::{
    Access, HttpTransport, Ironic, IronicProvisioner, Method, Request, Response, Site, Transport, TransportError,
};
use provisioner_kit::{
    Class, Condition, Effect, Kind, Point, Scenario, Subject, Trail, capabilities_of, run, scenarios,
};
use serde_json::Value;

use crate::conformance::{access, facts, provisioner};
use crate::host::Host;
use start::{Place, Process, START};

/// A moment for Ironic to work.
const MOMENT: Duration = Duration::from_millis(40);

/// An Ironic that runs. It ends with this.
pub struct Real {
    process: Process,
    runtime: Option<tokio::runtime::Runtime>,
    transport: Arc<HttpTransport>,
    folder: PathBuf,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Answers every request as if it were an image of a kilobyte: Ironic looks whether the image is there, by way of the proxy that it is told.
fn image_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || answer_image(&mut stream));
        }
    });
    port
}

fn answer_image(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let mut chunk = [0; 1024];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
    let body = if read.starts_with(b"HEAD") { Vec::new() } else { vec![0; 1024] };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n";
    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
}

impl Real {
    /// The Ironic whose programs are in `METAMORPH_IRONIC`.
    pub fn start() -> Self {
        Self::start_with(&|_| String::new())
    }

    /// The same with more in its configuration, for a folder of its own.
    pub fn start_with(more: &dyn Fn(&std::path::Path) -> String) -> Self {
        let folder = std::env::temp_dir().join(format!("metamorph-ironic-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&folder).unwrap();
        let (port, proxy) = (free_port(), image_server());
        let process = Process::start(&Place { folder: &folder, port, proxy, more: &more(&folder) }).unwrap();
        let endpoint = format!("http://127.0.0.1:{port}").parse().unwrap();
        let access = Access { endpoint, authority: None, certificate: None, login: None };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut real =
            Self { process, runtime: Some(runtime), transport: Arc::new(HttpTransport::new(access)), folder };
        real.wait();
        real
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        loop {
            let ready = Request { method: Method::Get, path: "/v1/drivers".into(), version: Some(89), body: None };
            let answer = self.send(ready);
            // The type is listed when its conductor runs.
            if answer.is_ok_and(|answer| String::from_utf8_lossy(&answer.body).contains("fake-hardware")) {
                return;
            }
            self.process.runs().unwrap();
            assert!(begun.elapsed() < START, "Ironic does not answer, see {}", self.folder.display());
            std::thread::sleep(MOMENT);
        }
    }

    /// A request, made on another thread, while this one stands still.
    pub fn send(&self, request: Request) -> Result<Response, TransportError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let transport = Arc::clone(&self.transport);
        self.runtime.as_ref().unwrap().spawn(async move {
            let _ = sender.send(transport.send(&request).await);
        });
        receiver.recv().unwrap()
    }

    fn ask(&self, method: Method, path: String, body: Option<Value>) -> (u16, Value) {
        let answer = self.send(Request { method, path, version: Some(110), body }).unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Its database is lost: no node is left.
    pub fn forget(&self) {
        for _ in 0..600 {
            let (_, nodes) = self.ask(Method::Get, "/v1/nodes?fields=uuid,maintenance".into(), None);
            let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
            if nodes.is_empty() {
                return;
            }
            for node in nodes {
                let uuid = node["uuid"].as_str().unwrap().to_owned();
                if node["maintenance"] != Value::Bool(true) {
                    self.ask(Method::Put, format!("/v1/nodes/{uuid}/maintenance"), Some(serde_json::json!({})));
                }
                self.ask(Method::Delete, format!("/v1/nodes/{uuid}"), None);
            }
            std::thread::sleep(MOMENT);
        }
        panic!("nodes cannot be removed");
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        // Its conductor is a process of its own: both end together.
        let group = rustix::process::Pid::from_child(self.process.leader());
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        // Not waited for: this may be within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if std::thread::panicking() {
            println!("Ironic's files are kept in {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// The real Ironic with a trail, and with trouble that can be had of it.
struct Watched {
    real: Arc<Real>,
    trail: Trail,
    silent: Arc<Mutex<bool>>,
}

impl Watched {
    /// What an order does; whether `provide` and `deleted` clean is a field of the node.
    fn effect(&self, request: &Request) -> Option<Effect> {
        let path = request.path.split('?').next().unwrap();
        let target = request.body.as_ref().and_then(|body| body["target"].as_str()).unwrap_or_default();
        let cleans = || {
            let node = path.trim_end_matches("/states/provision").to_owned();
            self.real.ask(Method::Get, node, None).1["automated_clean"] == Value::Bool(true)
        };
        match (request.method, path.rsplit('/').next().unwrap(), target) {
            (Method::Put, "provision", "active") => Some(Effect::Write),
            (Method::Put, "provision", "provide" | "deleted") if cleans() => Some(Effect::Wipe),
            (Method::Put, "provision", "deleted" | "abort") => Some(Effect::End),
            (Method::Put, "provision", "inspect") => Some(Effect::Inspect),
            (Method::Put, "provision", "clean" | "service") => Some(Effect::Configure),
            (Method::Put, "power", _) => Some(Effect::Power),
            _ => None,
        }
    }
}

#[async_trait]
impl Transport for Watched {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        if *self.silent.lock().unwrap() {
            return Err(TransportError::Unreachable("Connection refused".into()));
        }
        if request.method == Method::Get {
            if request.path.starts_with("/v1/nodes") {
                std::thread::sleep(MOMENT);
            }
            let answer = self.real.send(request.clone());
            // By the kit's clock many seconds pass until the next look.
            let shown =
                answer.as_ref().map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default();
            if ["cleaning", "servicing", "verifying"]
                .iter()
                .any(|state| shown.contains(&format!("\"provision_state\": \"{state}\"")))
            {
                std::thread::sleep(MOMENT * 12);
            }
            return answer;
        }
        self.trail.point(Point::BeforeEffect).await;
        let effect = self.effect(request);
        let answer = self.real.send(request.clone());
        if let Some(effect) = effect.filter(|_| answer.as_ref().is_ok_and(|answer| answer.status < 300)) {
            let what = request.body.as_ref().map(|body| body["target"].to_string()).unwrap_or_default();
            self.trail.saw(effect, &format!("{} {} {what}", request.method.as_str(), request.path));
        }
        self.trail.point(Point::AfterEffect).await;
        answer
    }

    fn endpoint(&self) -> String {
        self.real.transport.endpoint()
    }
}

struct FakeHardware(Arc<Real>);

struct OneNode {
    real: Arc<Real>,
    trail: Trail,
    silent: Arc<Mutex<bool>>,
}

fn site() -> Site {
    Site { fakes: true, ..Site::new("real") }
}

impl Kind for FakeHardware {
    fn name(&self) -> &str {
        "ironic with fake-hardware"
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject> {
        Box::new(OneNode { real: Arc::clone(&self.0), trail: trail.clone(), silent: Arc::default() })
    }
}

impl Subject for OneNode {
    fn start(&mut self, process: u64, _: MayAct) -> Arc<dyn Provisioner> {
        if process == 0 {
            self.real.forget();
        }
        let (real, trail, silent) = (Arc::clone(&self.real), self.trail.clone(), Arc::clone(&self.silent));
        Arc::new(provisioner(Arc::new(Watched { real, trail, silent }), site()))
    }

    fn stop(&mut self, _: u64) {}

    fn facts(&self) -> HostFacts {
        facts("node-0")
    }

    fn access(&self) -> BmcAccess {
        access()
    }

    /// The hardware type does what it is told, at once.
    fn can_be(&self, condition: Condition) -> bool {
        matches!(condition, Condition::Silent | Condition::Forgotten)
    }

    fn set(&mut self, condition: Condition, on: bool) {
        match condition {
            Condition::Silent => *self.silent.lock().unwrap() = on,
            Condition::Forgotten if on => self.real.forget(),
            _ => {}
        }
    }
}

/// What it is about.
fn begins(scenario: &Scenario) -> &str {
    scenario.name.split(':').next().unwrap()
}

/// Scenarios that are run on the real one: each call undisturbed and repeated, all that ends work before its time, and of what happens at each
/// place the calls that order most. The rest is run in memory.
fn chosen(scenario: &Scenario) -> bool {
    let name = begins(scenario);
    match scenario.class {
        Class::Killed => matches!(name, "register" | "provision" | "deprovision" | "prepare"),
        Class::Concurrent | Class::Record | Class::Leading => name == "provision",
        Class::Failing | Class::Forgotten => matches!(name, "provision" | "deprovision" | "service"),
        Class::Frozen => false,
        _ => true,
    }
}

/// What the kit's scenarios are about that have an Ironic of their own each: a look at a node waits for Ironic, and these wait beside each other.
const APART: [&str; 4] = ["provision", "deprovision", "prepare", "service"];

#[tokio::test(start_paused = true)]
async fn the_kit_is_green_on_a_real_ironic() {
    the_kit_is_green(|name| !APART.contains(&name)).await;
}

#[tokio::test(start_paused = true)]
async fn the_kit_of_provisioning_is_green_on_a_real_ironic() {
    the_kit_is_green(|name| name == APART[0]).await;
}

#[tokio::test(start_paused = true)]
async fn the_kit_of_deprovisioning_is_green_on_a_real_ironic() {
    the_kit_is_green(|name| name == APART[1]).await;
}

#[tokio::test(start_paused = true)]
async fn the_kit_of_preparing_is_green_on_a_real_ironic() {
    the_kit_is_green(|name| name == APART[2]).await;
}

#[tokio::test(start_paused = true)]
async fn the_kit_of_service_is_green_on_a_real_ironic() {
    the_kit_is_green(|name| name == APART[3]).await;
}

/// The scenarios whose names begin so.
async fn the_kit_is_green(is_of: impl Fn(&str) -> bool) {
    let real = Real::start();
    let kind = FakeHardware(Arc::new(real));
    let began = Instant::now();
    let caps = capabilities_of(&kind);
    let is_part = |scenario: &Scenario| chosen(scenario) && is_of(begins(scenario));
    let all: Vec<Scenario> = scenarios(&caps).into_iter().filter(is_part).collect();
    assert!(all.len() > 1, "{} scenarios", all.len());
    let mut violations = Vec::new();
    for scenario in &all {
        let begun = Instant::now();
        let report = run(&kind, std::slice::from_ref(scenario)).await;
        let runs: usize = report.runs.values().sum();
        println!("{:6.1} s {runs:3} runs [{:?}] {}", begun.elapsed().as_secs_f64(), scenario.class, scenario.name);
        for violation in &report.violations {
            println!("{violation}");
        }
        violations.extend(report.violations);
    }
    println!("{} scenarios in {:.0} s", all.len(), began.elapsed().as_secs_f64());
    assert!(violations.is_empty(), "{} violations", violations.len());
}

/// The simulator of BMCs with one machine. It ends with this process.
struct Simulator(Child, Value);

impl Simulator {
    fn start() -> Self {
        let beside = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let programs = std::env::var_os("METAMORPH_PROGRAMS").map_or(beside, PathBuf::from);
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs.join("bmc-sim"))
            .args(["--fake", "1", "--agent"])
            .arg(programs.join("metamorph-agent"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, serde_json::from_str(&line).unwrap())
    }

    fn machine(&self, field: &str) -> String {
        self.1["machines"][0][field].as_str().unwrap().to_owned()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ironic's Redfish driver, with sushy, at the simulator: a BMC is verified, its machine switched, its events subscribed to.
#[tokio::test(start_paused = true)]
async fn a_machine_that_speaks_redfish_is_run_by_a_real_ironic() {
    let real = Real::start();
    let real = Arc::new(real);
    let simulator = Simulator::start();
    let watched = Watched { real: Arc::clone(&real), trail: Trail::default(), silent: Arc::default() };
    let mut host = Host::new(Arc::new(watched), Site::new("real"));
    let redfish = simulator.machine("redfish").replace("http://", "redfish-virtualmedia+http://");
    host.facts.address = format!("{redfish}{}", simulator.machine("system"));
    host.facts.boot_mac = Some(simulator.machine("mac"));
    host.access = BmcAccess {
        address: host.facts.address.clone(),
        username: simulator.machine("username"),
        password: "wrong".to_owned().into(),
        ..access()
    };
    let failure = host.register().await.unwrap_err();
    println!("{failure}");
    assert_eq!(failure.cause, Cause::BmcCredentialsRefused, "{failure}");
    host.access.password = simulator.machine("password").into();
    let right = RegisterRequest { credentials_changed: true, restart: true, ..RegisterRequest::default() };
    let Answer::Registered(registered) = host.drive(Call::Register(right)).await.unwrap() else { panic!() };
    assert_eq!(registered.powered_on, Some(false));
    assert_eq!(host.drive(Call::SetPower(PowerWish::On.into())).await.unwrap(), Answer::Power(Some(true)));
    assert_eq!(host.drive(Call::SetPower(PowerWish::HardOff.into())).await.unwrap(), Answer::Power(Some(false)));
    // Others are told whose the machine is, by its BMC and by its port.
    let now = |seconds: i64| jiff::Timestamp::from_second(1_767_225_600 + seconds).unwrap();
    let others = Watched { real: Arc::clone(&real), trail: Trail::default(), silent: Arc::default() };
    let nodes = IronicProvisioner::new(vec![Ironic { site: Site::new("real"), transport: Arc::new(others) }]).nodes();
    let here = Sought { address: host.facts.address.clone(), boot_mac: None, is_known: false };
    let port =
        Sought { address: "redfish://192.0.2.99".into(), boot_mac: host.facts.boot_mac.clone(), is_known: false };
    let nowhere = Sought { boot_mac: Some("02:00:00:00:00:99".into()), ..port.clone() };
    assert!(nodes.holds(&here, now(0)).await.unwrap().is_some_and(|holder| holder.contains("at its BMC")));
    assert!(nodes.holds(&port, now(0)).await.unwrap().is_some_and(|holder| holder.contains("boot MAC")));
    assert_eq!(nodes.holds(&nowhere, now(0)).await.unwrap(), None);
    let wished = Subscription {
        identity: "s".into(),
        destination: "https://192.0.2.9/events".into(),
        ..Subscription::default()
    };
    let made = host.drive(Call::Subscribe(wished.clone())).await.unwrap();
    assert_eq!(host.drive(Call::Subscribe(wished.clone())).await.unwrap(), made, "it is there already");
    let ends = Unsubscription { identity: "s".into(), destination: wished.destination, ..Unsubscription::default() };
    host.drive(Call::Unsubscribe(ends)).await.unwrap();
    host.drive(Call::Release(ReleaseRequest::default())).await.unwrap();
    let (_, listed) = real.ask(Method::Get, "/v1/nodes".into(), None);
    assert_eq!(listed, serde_json::json!({ "nodes": [] }));
    for sought in [here, port] {
        assert_eq!(nodes.holds(&sought, now(31)).await.unwrap(), None, "it has been let go");
    }
}
