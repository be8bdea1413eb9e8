//! Shared by the tests: a small server that speaks the agent's protocol, and a machine made of files.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::Machine;
use agent::commands::Runner;
use agent::fake::FakeMachine;
use agent::report::{Client, Ledger, LogRing, run};
use agent_protocol::{
    Action, AgentNetwork, AgentState, Command, CommandId, Directive, Heard, HostConfig, Leave, Outcome,
    PROTOCOL_VERSION, Report, Sighting,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::Notify;

/// What the server does and has seen.
#[derive(Default)]
pub struct Record {
    /// Commands to give, one after the other is acknowledged.
    pub commands: VecDeque<Command>,
    /// All reports, answered or not.
    pub reports: Vec<Report>,
    /// Keys that came with them.
    pub keys: Vec<String>,
    /// Outcomes by command, in the order in which they were acknowledged.
    pub outcomes: Vec<(CommandId, Outcome)>,
    /// Answer this many reports with an error after having taken them in: lost answers.
    pub lose_answers: usize,
    /// Answer this many reports with 401.
    pub refuse: usize,
    /// Every report is answered with 403, and with this header: the machine has been let go; or with none, as by a proxy.
    pub forbid: Option<Option<u64>>,
    /// Reports of a medium that no host has, and what is answered, one after the other; an empty list refuses.
    pub sightings: Vec<Sighting>,
    pub heard: VecDeque<Heard>,
    /// Send the commands again although they were acknowledged (a server that forgot).
    pub repeat: bool,
}

pub struct Server {
    pub record: Arc<Mutex<Record>>,
    pub changed: Arc<Notify>,
    pub address: SocketAddr,
    pub sha256: String,
    certificate: (Vec<u8>, Vec<u8>),
    handle: axum_server::Handle<SocketAddr>,
}

#[derive(Clone)]
struct Shared {
    record: Arc<Mutex<Record>>,
    changed: Arc<Notify>,
}

pub const TOKEN: &str = "the-token";

async fn sighted(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Result<String, StatusCode> {
    if headers.get("authorization").is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let mut record = shared.record.lock().unwrap();
    record.sightings.push(serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?);
    shared.changed.notify_waiters();
    let heard = record.heard.pop_front().ok_or(StatusCode::FORBIDDEN)?;
    Ok(serde_json::to_string(&heard).unwrap())
}

async fn report(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Result<String, Response> {
    let authorized = headers.get("authorization").is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    if !authorized {
        return Err(StatusCode::UNAUTHORIZED.into_response());
    }
    let report: Report = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
    let mut answer = Directive::default();
    {
        let mut record = shared.record.lock().unwrap();
        record.reports.push(report.clone());
        let key = headers.get(agent_protocol::BOOT_KEY_HEADER).and_then(|key| key.to_str().ok());
        record.keys.push(key.unwrap_or_default().to_owned());
        shared.changed.notify_waiters();
        if record.refuse > 0 {
            record.refuse -= 1;
            return Err(StatusCode::UNAUTHORIZED.into_response());
        }
        if let Some(dismissed) = record.forbid {
            let mut response = StatusCode::FORBIDDEN.into_response();
            if let Some(generation) = dismissed {
                response.headers_mut().insert(agent_protocol::DISMISSED_HEADER, generation.into());
            }
            return Err(response);
        }
        if let AgentState::Finished { command, outcome } = &report.state {
            if !record.outcomes.iter().any(|(id, _)| id == command) {
                record.outcomes.push((command.clone(), outcome.clone()));
                if record.commands.front().is_some_and(|order| order.id == *command) && !record.repeat {
                    record.commands.pop_front();
                }
            }
            answer.acknowledged = Some(command.clone());
        }
        answer.command = record.commands.front().cloned();
        if record.lose_answers > 0 {
            record.lose_answers -= 1;
            return Err(StatusCode::BAD_GATEWAY.into_response());
        }
    }
    if answer == Directive::default() && report.state == AgentState::Idle {
        let wait = Duration::from_secs(report.wait_seconds.min(1));
        let _ = tokio::time::timeout(wait, shared.changed.notified()).await;
        answer.command = shared.record.lock().unwrap().commands.front().cloned();
    }
    Ok(serde_json::to_string(&answer).unwrap())
}

impl Server {
    pub async fn start() -> Self {
        let key = rcgen::generate_simple_self_signed(["metamorph".to_owned()]).unwrap();
        let certificate = (key.cert.der().to_vec(), key.signing_key.serialize_der());
        let record = Arc::new(Mutex::new(Record::default()));
        Self::start_with(record, certificate, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn start_with(record: Arc<Mutex<Record>>, certificate: (Vec<u8>, Vec<u8>), at: SocketAddr) -> Self {
        let changed = Arc::new(Notify::new());
        let shared = Shared { record: record.clone(), changed: changed.clone() };
        let router = Router::new()
            .route(agent_protocol::REPORT_PATH, post(report))
            .route(agent_protocol::DISCOVERY_PATH, post(sighted))
            .with_state(shared);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![rustls::pki_types::CertificateDer::from(certificate.0.clone())];
        let key = rustls::pki_types::PrivateKeyDer::try_from(certificate.1.clone()).unwrap();
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let tls = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(tls));
        let handle = axum_server::Handle::new();
        let listener = std::net::TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum_server::from_tcp_rustls(listener, tls).unwrap().handle(handle.clone());
        tokio::spawn(server.serve(router.into_make_service()));
        let sha256 = hex::encode(Sha256::digest(&certificate.0));
        Self { record, changed, address, sha256, certificate, handle }
    }

    /// Another one with the same certificate.
    pub async fn twin(&self) -> Self {
        Self::start_with(Arc::default(), self.certificate.clone(), "127.0.0.1:0".parse().unwrap()).await
    }

    /// Ends the server, and gives a new one at the same address with the same memory.
    pub async fn restart(self) -> Self {
        self.handle.shutdown();
        let mut server = None;
        for _ in 0..200 {
            if std::net::TcpListener::bind(self.address).is_ok() {
                server = Some(Self::start_with(self.record.clone(), self.certificate.clone(), self.address).await);
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.expect("the address is free again")
    }

    pub fn config(&self) -> HostConfig {
        HostConfig {
            protocol: PROTOCOL_VERSION,
            host: "uid-1".into(),
            host_name: "ns/node-1".into(),
            generation: 3,
            token: TOKEN.into(),
            endpoints: vec![format!("https://{}", self.address)],
            server_certificate_sha256: self.sha256.clone(),
            image_ca_pem: String::new(),
            network: AgentNetwork::Dhcp,
        }
    }

    /// Adds commands; a leave at the end ends the agent.
    pub fn order(&self, actions: Vec<Action>) {
        let mut record = self.record.lock().unwrap();
        let start = record.commands.len() + record.outcomes.len();
        for (index, action) in actions.into_iter().enumerate() {
            record.commands.push_back(Command { id: id(&format!("op-{}", start + index)), action });
        }
        drop(record);
        self.changed.notify_waiters();
    }

    pub fn outcomes(&self) -> Vec<Outcome> {
        self.record.lock().unwrap().outcomes.iter().map(|(_, outcome)| outcome.clone()).collect()
    }

    /// Waits until the record is as wished.
    pub async fn wait(&self, wish: impl Fn(&Record) -> bool) {
        for _ in 0..600 {
            if wish(&self.record.lock().unwrap()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the wish did not come true; reports: {:?}", self.record.lock().unwrap().reports.last());
    }
}

pub const BOOT: &str = "0f1e2d3c-boot";

pub fn id(operation: &str) -> CommandId {
    CommandId { operation: operation.into(), step: "step".into(), attempt: 1, boot_id: BOOT.into() }
}

pub fn leave() -> Action {
    Action::Leave { how: Leave::Reboot }
}

/// Writes a file of the machine's tree.
pub fn plant(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A disk of a bus that needs no more than a PCI address: its serial number is `SN-<name>`.
pub fn add_disk(root: &Path, name: &str, slot: u8, size: u64) {
    add_disk_at(root, name, &format!("sys/devices/pci0000:00/0000:00:{slot:02x}.0/virtio{slot}"), size);
}

/// A disk below the device at this place in sysfs: its serial number is `SN-<name>`.
pub fn add_disk_at(root: &Path, name: &str, device: &str, size: u64) {
    let block = format!("{device}/block/{name}");
    plant(root, &format!("{block}/size"), &format!("{}\n", size / 512));
    plant(root, &format!("{block}/serial"), &format!("SN-{name}\n"));
    plant(root, &format!("{block}/queue/rotational"), "0\n");
    plant(root, &format!("{block}/queue/logical_block_size"), "512\n");
    let link = |target: String, at: String| std::os::unix::fs::symlink(root.join(target), root.join(at)).unwrap();
    link(device.to_owned(), format!("{block}/device"));
    std::fs::create_dir_all(root.join("sys/block")).unwrap();
    link(block, format!("sys/block/{name}"));
    plant(root, &format!("dev/{name}"), "");
    std::fs::File::options().write(true).open(root.join("dev").join(name)).unwrap().set_len(size).unwrap();
}

/// A machine with one interface and no disk.
pub fn machine_root() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    plant(root, "proc/sys/kernel/random/boot_id", &format!("{BOOT}\n"));
    plant(root, "proc/sys/kernel/hostname", "agent\n");
    plant(root, "proc/meminfo", "MemTotal:        2097152 kB\n");
    plant(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Test\ncpu MHz\t: 1000\nflags\t: b a\n");
    plant(root, "sys/class/dmi/id/sys_vendor", "Maker\n");
    std::fs::create_dir_all(root.join("sys/firmware/efi/efivars")).unwrap();
    folder
}

pub fn machine(root: &Path) -> Arc<dyn Machine> {
    Arc::new(FakeMachine::new(root, "http://127.0.0.1:9/none.iso", tokio::runtime::Handle::current()))
}

/// The agent over a machine, until it leaves.
pub fn agent(root: &Path, config: HostConfig) -> tokio::task::JoinHandle<Leave> {
    let machine = machine(root);
    let ledger = Ledger::open(root.join("run/ledger.json"), BOOT).unwrap();
    let client = Client::new(&config).unwrap();
    let handle = tokio::runtime::Handle::current();
    let runner = Runner::new(machine, handle, config.image_ca_pem.clone(), client.clock());
    let runner = Arc::new(runner.with_patience(Duration::ZERO));
    tokio::spawn(async move { run(&config, client, runner, LogRing::new(), ledger).await })
}

/// Runs actions on a machine to the end, and gives their outcomes.
pub async fn outcomes(root: &Path, actions: Vec<Action>) -> Vec<Outcome> {
    outcomes_trusting(root, "", actions).await
}

/// The same with this certificate authority (PEM) for images.
pub async fn outcomes_trusting(root: &Path, image_ca_pem: &str, mut actions: Vec<Action>) -> Vec<Outcome> {
    let server = Server::start().await;
    actions.push(leave());
    server.order(actions);
    let config = HostConfig { image_ca_pem: image_ca_pem.to_owned(), ..server.config() };
    let how = tokio::time::timeout(Duration::from_secs(60), agent(root, config)).await;
    assert_eq!(how.expect("the agent leaves").unwrap(), Leave::Reboot);
    let mut outcomes = server.outcomes();
    assert_eq!(outcomes.pop(), Some(Outcome::Leaving));
    outcomes
}
