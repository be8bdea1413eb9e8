//! The server is killed at each effect that it has on the world, just before it and just after it, while the simulator and the
//! agents live on. It is started again, and the host's life goes on as if nothing had happened: nothing destructive is repeated,
//! nothing is left behind.
//!
//! Which effects there are is recorded, not chosen: a host lives through its whole life with proxies around the server, which note
//! each write to the Kubernetes API, each request to the BMC that changes something, and each directive that an agent gets.
//! `KILL_ONLY=<text>` runs the cuts whose line holds the text; `METAMORPH_SHARD` names the part of them that a run does.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, HardwareData, ProvisioningState};
use api::metamorph::{HostOperation, StepPhase};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::{
    Certificate, Cut, DiskImage, Effects, ImageServer, Proxies, Running, Shard, Side, Sim, agent_image, program,
};
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The one machine and host.
const HOST: &str = "node-0";
/// Longest time for one part of the life, in seconds.
const PATIENCE: u64 = 45;
/// So long without an effect means that the server has said all it has to say.
const QUIET: Duration = Duration::from_millis(250);
/// Worlds at a time.
const WORLDS: usize = 3;
/// How often a kill is tried whose effect does not come: how late the test sees what it waits for has a say in what comes after.
const TRIES: usize = 3;

/// How the server is started, each time in the same way: agents and BMCs know its addresses.
struct Launch {
    kubeconfig: PathBuf,
    media: String,
    agents: String,
    agents_known_as: String,
    log: PathBuf,
}

impl Launch {
    fn start(&self) -> anyhow::Result<Running> {
        let mut command = Command::new(program("metamorph")?);
        command.args(["--log", "info,metamorph=debug,operator=debug,provisioner_metamorph=debug", "operator"]);
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--agent-image").arg(agent_image()?);
        command.args(["--media-listen", &self.media, "--agent-listen", &self.agents]);
        command.args(["--health-listen", "127.0.0.1:0", "--allow-address", "127.0.0.0/8"]);
        command.args(["--agent-host", &self.agents_known_as, "--agent-reconnect", "3", "--retry-after", "1"]);
        // One process at a time, and its successor need not wait.
        command.args(["--lease-duration", "0"]);
        Running::start(command, &self.log)
    }
}

/// An address of this test's own: what the server listens on stays free while it is down, because nobody else asks for it.
fn own_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    format!("127.77.{high}.{low}")
}

/// Two addresses with ports that were free just now.
fn own_addresses() -> anyhow::Result<(String, String)> {
    let ip = own_address();
    let listeners = [TcpListener::bind((ip.as_str(), 0))?, TcpListener::bind((ip.as_str(), 0))?];
    Ok((listeners[0].local_addr()?.to_string(), listeners[1].local_addr()?.to_string()))
}

/// Kubernetes API, simulator, images and proxies: everything but the server.
struct Stage {
    folder: TempDir,
    api: apiserver::Server,
    sim: Sim,
    images: ImageServer,
    client: Client,
    effects: Arc<Effects>,
    bmc: String,
    _proxies: Proxies,
    server: JoinHandle<anyhow::Result<Running>>,
    over: oneshot::Sender<()>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn start(cut: Option<Cut>) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().context("make a folder")?;
        let api = apiserver::Server::start(apiserver::Config {
            data_dir: folder.path().join("api"),
            listen: "127.0.0.1:0".parse()?,
            extra_sans: Vec::new(),
            audit_log: None,
            reviewers: vec![],
        })
        .await?;
        for crd in api::crds::all()? {
            api.apply_crd_yaml(&crd).await?;
        }
        let config = Kubeconfig::from_yaml(&api.admin_kubeconfig())?;
        let client = Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?;
        let machine = e2e::machine(HOST);
        let sim = Sim::start(folder.path(), &[machine], false).await?;
        let images = ImageServer::start().await?;

        let effects = Effects::new(cut);
        let own = Certificate::for_loopback()?;
        let mut proxies = Proxies::new(Arc::clone(&effects));
        let api_url = format!("https://{}", api.local_addr());
        let api_proxy = proxies.api(&api_url, api.admin_token(), api.ca_pem(), &own).await?;
        let bmc = proxies.bmc(sim.machine(HOST)["redfish"].as_str().context("the BMC's address")?)?;
        let (media, agents) = own_addresses()?;
        let agent_proxy = proxies.agents(&format!("https://{agents}"), &own).await?;
        give_identity(&client, &own).await?;

        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, proxy_kubeconfig(&api_proxy, &own))?;
        let agents_known_as = agent_proxy.trim_start_matches("https://").to_owned();
        let log = folder.path().join("server.log");
        let launch = Launch { kubeconfig, media, agents, agents_known_as, log };
        let (over, ended) = oneshot::channel();
        let server = launch.start()?;
        effects.set_victim(server.pid());
        let server = tokio::spawn(look_after(server, launch, Arc::clone(&effects), ended));
        let errors = Arc::default();
        Ok(Self { folder, api, sim, images, client, effects, bmc, _proxies: proxies, server, over, errors })
    }

    /// The simulator as this test's own look at the machine.
    async fn machine(&self) -> anyhow::Result<Value> {
        self.sim.get(&format!("/machines/{HOST}")).await
    }

    /// Waits for a state of the machine, told by the simulator's events.
    async fn wait_machine(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let looking = async {
            let mut last = 0;
            loop {
                let machine = self.machine().await?;
                if wanted(&machine) {
                    return Ok(machine);
                }
                let events = self.sim.get(&format!("/events?after={last}&wait=5&machine={HOST}")).await?;
                last = events["last"].as_u64().unwrap_or(last);
            }
        };
        match tokio::time::timeout(Duration::from_secs(PATIENCE), looking).await {
            Ok(result) => result,
            Err(_) => bail!("the machine is not {what} within {PATIENCE} s: {}", self.machine().await?),
        }
    }

    fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits for a state without an error. Errors on the way are noted.
    async fn wait_state(&self, state: ProvisioningState) -> anyhow::Result<()> {
        let errors = Arc::clone(&self.errors);
        let condition = |host: Option<&BareMetalHost>| {
            let Some((host, status)) = host.and_then(|h| Some((h, h.status.as_ref()?))) else { return false };
            let mut errors = errors.lock().unwrap();
            if !status.error_message.is_empty() && errors.last() != Some(&status.error_message) {
                errors.push(status.error_message.clone());
            }
            host.state() == state && status.error_message.is_empty()
        };
        let waited = kube::runtime::wait::await_condition(self.hosts(), HOST, condition);
        match tokio::time::timeout(Duration::from_secs(PATIENCE), waited).await {
            Ok(found) => Ok(found.map(|_| ())?),
            Err(_) => bail!("the host is not {} within {PATIENCE} s", state.as_str()),
        }
    }

    async fn operations(&self) -> anyhow::Result<Vec<HostOperation>> {
        let api: Api<HostOperation> = Api::default_namespaced(self.client.clone());
        let mut found = api.list(&ListParams::default()).await?.items;
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found)
    }

    /// Operations with their ends: none more, none less, each destructive step in its first attempt.
    async fn expect_operations(&self, wanted: &[&str]) -> anyhow::Result<()> {
        let operations = self.operations().await?;
        let mut found: Vec<String> = operations
            .iter()
            .map(|o| (o.spec.operation.as_str(), o.status.as_ref().map(|s| s.phase).unwrap_or_default()))
            .map(|(operation, phase)| format!("{operation} {phase:?}"))
            .collect();
        // What an inspection found is written after it has ended: killed in between, the agent is asked once more.
        found.dedup_by(|next, before| next == before && next == "inspect Succeeded");
        ensure!(found == wanted, "the operations are {found:?}, not {wanted:?}");
        for step in operations.iter().filter_map(|o| o.status.as_ref()).flat_map(|s| &s.steps) {
            ensure!(step.phase == StepPhase::Done, "the step {} is {:?}", step.name, step.phase);
            if matches!(step.name.as_str(), "write-image" | "wipe-disks") {
                ensure!(step.attempt == Some(1), "{} was attempted {:?} times", step.name, step.attempt);
            }
        }
        Ok(())
    }

    /// What the machine has booted. The agent may be booted again when the server was killed while it waited for it; a system on the
    /// disk is not to be disturbed.
    async fn expect_boots(&self, wanted: &[&str]) -> anyhow::Result<()> {
        let events = self.sim.get(&format!("/events?machine={HOST}")).await?;
        let events = events["events"].as_array().cloned().unwrap_or_default();
        let boots =
            events.iter().filter(|event| event["kind"] == "boot").map(|event| event["data"]["running"].as_str());
        let boots: Vec<&str> = boots.map(Option::unwrap_or_default).collect();
        let again = boots.windows(2).filter(|pair| pair == &["medium", "medium"]).count();
        let mut different = boots.clone();
        different.dedup_by(|next, before| next == before && *next == "medium");
        ensure!(different == wanted && again <= 1, "the machine booted {boots:?}, not {wanted:?}");
        Ok(())
    }

    /// The first bytes of the machine's disk, at least `length`.
    fn disk(&self, length: usize) -> anyhow::Result<Vec<u8>> {
        let machine = self.sim.machine(HOST);
        let path = machine["disks"][0].as_str().with_context(|| format!("the disk's file: {machine}"))?;
        let mut bytes = vec![0; length];
        std::fs::File::open(path).with_context(|| format!("open {path}"))?.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// How often the agents have begun a command of this step, by their own account.
    fn begun(&self, step: &str) -> usize {
        let machine = self.sim.machine(HOST);
        let console =
            std::fs::read_to_string(machine["serialConsole"].as_str().unwrap_or_default()).unwrap_or_default();
        console.matches(&format!("begins {step} of ")).count()
    }

    /// What is known when something went wrong.
    async fn describe(&self) -> String {
        let host = self.hosts().get_opt(HOST).await.map(|h| serde_json::to_string_pretty(&h.and_then(|h| h.status)));
        let operations: Vec<Value> = self
            .operations()
            .await
            .unwrap_or_default()
            .iter()
            .map(|o| json!({ "name": o.metadata.name, "status": o.status }))
            .collect();
        let machine = self.machine().await.unwrap_or_default();
        let tail = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        let console = PathBuf::from(self.sim.machine(HOST)["serialConsole"].as_str().unwrap_or_default());
        format!(
            "effects:\n  {}\nhost: {host:?}\noperations: {}\nmachine: {machine}\nerrors: {:?}\nserver:\n{}\nconsole:\n{}",
            self.effects.labels().join("\n  "),
            serde_json::to_string_pretty(&operations).unwrap_or_default(),
            self.errors.lock().unwrap(),
            tail(&self.folder.path().join("server.log")),
            tail(&console),
        )
    }

    /// Ends the server properly, and everything else.
    async fn end(self) -> anyhow::Result<()> {
        // An error means that the server has been killed and started again.
        let _ = self.over.send(());
        self.server.await??.stop().await?;
        drop(self.sim);
        self.api.shutdown().await;
        Ok(())
    }
}

/// Once the server has been killed, starts it again. Gives the one that runs at the end.
async fn look_after(
    mut server: Running,
    launch: Launch,
    effects: Arc<Effects>,
    over: oneshot::Receiver<()>,
) -> anyhow::Result<Running> {
    tokio::select! {
        () = effects.wait_struck() => {}
        _ = over => return Ok(server),
    }
    server.kill().await?;
    effects.set_victim(None);
    effects.set_dead();
    launch.start()
}

/// The server's keys, made by the test, so that it can stand between the server and its agents.
async fn give_identity(client: &Client, own: &Certificate) -> anyhow::Result<()> {
    let name = "metamorph-system";
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let data = [
        ("secret", (0..32).collect()),
        ("tls.crt", own.certificate.clone().into_bytes()),
        ("tls.key", own.key.clone().into_bytes()),
    ];
    let data: BTreeMap<String, ByteString> = data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v))).collect();
    let metadata = ObjectMeta { name: Some("metamorph-identity".to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() };
    Api::<Secret>::namespaced(client.clone(), name).create(&PostParams::default(), &secret).await?;
    Ok(())
}

fn proxy_kubeconfig(url: &str, own: &Certificate) -> String {
    let ca = STANDARD.encode(&own.certificate);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "proxy", "cluster": { "server": url, "certificate-authority-data": ca } }],
        "users": [{ "name": "server", "user": { "token": "the proxy has its own" } }],
        "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "server", "namespace": "default" } }],
        "current-context": "proxy",
    })
    .to_string()
}

/// The parts of a life after which the server has to have come to rest.
async fn live(stage: &Stage, image: &DiskImage) -> anyhow::Result<()> {
    enroll(stage, image).await?;
    stage.wait_state(ProvisioningState::Provisioned).await?;
    stage.wait_machine("booted from its disk", |m| m["running"] == "disk").await?;
    stage.effects.quiet(QUIET).await;
    stage.expect_operations(&["inspect Succeeded", "provision Succeeded"]).await?;
    let disk = stage.disk(image.bytes.len())?;
    // The partition table is made to fit the disk; what it leads to is the image's.
    let content = 1 << 20..20 << 20;
    ensure!(disk[content.clone()] == image.bytes[content], "the disk is not as the image");
    ensure!(&disk[512..520] == b"EFI PART", "the disk has no partition table");
    // The new server ends the dead one's session when it comes to the host: soon, not at once.
    let own_session_alone = |m: &Value| m["sessions"].as_u64() <= Some(1);
    let cleared = stage.wait_machine("free of a dead server's sessions", own_session_alone);
    let machine =
        tokio::time::timeout(Duration::from_secs(10), cleared).await.context("a dead server's session is left")??;
    ensure!(machine["medium"].is_null(), "a medium is left in the drive: {machine}");
    stage.expect_boots(&["medium", "disk"]).await?;

    let none = json!({ "spec": { "image": null } });
    stage.hosts().patch(HOST, &PatchParams::default(), &Patch::Merge(&none)).await?;
    stage.wait_state(ProvisioningState::Available).await?;
    stage.effects.quiet(QUIET).await;
    stage.expect_operations(&["inspect Succeeded", "provision Succeeded", "deprovision Succeeded"]).await?;
    ensure!(&stage.disk(4096)?[512..520] != b"EFI PART", "the disk has its partition table still");
    stage.expect_boots(&["medium", "disk", "medium"]).await?;

    stage.hosts().delete(HOST, &DeleteParams::default()).await?;
    let gone = kube::runtime::wait::await_condition(stage.hosts(), HOST, |host: Option<&BareMetalHost>| host.is_none());
    tokio::time::timeout(Duration::from_secs(PATIENCE), gone).await.context("the host is not gone")??;
    stage.effects.quiet(QUIET).await;
    nothing_left(stage).await
}

async fn enroll(stage: &Stage, image: &DiskImage) -> anyhow::Result<()> {
    let url = stage.images.put("disk.raw", image.bytes.clone());
    let machine = stage.sim.machine(HOST);
    let (system, name) = (machine["system"].as_str().unwrap_or_default(), format!("{HOST}-bmc-secret"));
    let secret = json!({ "metadata": { "name": name }, "stringData": { "username": machine["username"], "password": machine["password"] } });
    let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": HOST }, "spec": {
        "online": true,
        "bmc": { "address": format!("redfish-virtualmedia+{}{system}", stage.bmc), "credentialsName": name },
        "bootMACAddress": machine["mac"],
        "image": { "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" },
    }});
    let secrets: Api<Secret> = Api::default_namespaced(stage.client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    stage.hosts().create(&PostParams::default(), &serde_json::from_value(host)?).await?;
    Ok(())
}

async fn nothing_left(stage: &Stage) -> anyhow::Result<()> {
    let machine = stage.wait_machine("off", |m| m["power"] == "Off").await?;
    ensure!(machine["sessions"] == 0, "sessions are left on the BMC: {machine}");
    ensure!(machine["medium"].is_null(), "a medium is left in the drive: {machine}");
    // The API's own garbage collection has the last word; it works when the owner is gone.
    let api: Api<HostOperation> = Api::default_namespaced(stage.client.clone());
    for operation in stage.operations().await? {
        let name = operation.metadata.name.unwrap_or_default();
        let gone = kube::runtime::wait::await_condition(api.clone(), &name, |o: Option<&HostOperation>| o.is_none());
        tokio::time::timeout(Duration::from_secs(10), gone).await.with_context(|| format!("{name} is left"))??;
    }
    let data: Api<HardwareData> = Api::default_namespaced(stage.client.clone());
    let gone = kube::runtime::wait::await_condition(data, HOST, |d: Option<&HardwareData>| d.is_none());
    tokio::time::timeout(Duration::from_secs(10), gone).await.context("the HardwareData is left")??;
    let secrets: Api<Secret> = Api::default_namespaced(stage.client.clone());
    if let Some(secret) = secrets.get_opt(&format!("{HOST}-bmc-secret")).await? {
        let held = secret.metadata.finalizers.unwrap_or_default();
        ensure!(held.is_empty(), "the BMC's Secret is still held by {held:?}");
    }
    for step in ["write-image", "wipe-disks"] {
        ensure!(stage.begun(step) == 1, "the agents began {step} {} times", stage.begun(step));
    }
    let downloads = stage.images.requests("disk.raw");
    ensure!(downloads == 1, "the image was asked for {downloads} times");
    let errors = stage.errors.lock().unwrap().clone();
    ensure!(errors.is_empty(), "the host went through errors: {errors:?}");
    Ok(())
}

/// How a life ended.
struct Lived {
    labels: Vec<String>,
    killed: bool,
}

/// One life, killed at `cut`.
async fn run(cut: Option<Cut>) -> anyhow::Result<Lived> {
    let stage = Stage::start(cut).await?;
    let result = live(&stage, DiskImage::small()?).await;
    let (labels, killed) = (stage.effects.labels(), stage.effects.has_struck());
    match result {
        Ok(()) => stage.end().await.map(|()| Lived { labels, killed }),
        Err(error) => {
            let text = stage.describe().await;
            // What matters is why the life failed.
            let _ = stage.end().await;
            Err(error.context(text))
        }
    }
}

/// A life that is killed at `cut`; tried again if it has not come to that.
async fn killed(cut: &Cut) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        if run(Some(cut.clone())).await?.killed {
            return Ok(());
        }
    }
    bail!("this effect did not come in {TRIES} lives")
}

/// Whether the effect belongs to each life: progress within a step is written every few seconds, if there is time for it.
fn in_each_life(label: &str) -> bool {
    !(label.starts_with("api PUT hostoperations/") && label.contains('#'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_effect_it_goes_on_and_repeats_nothing() {
    let started = Instant::now();
    let labels = run(None).await.unwrap_or_else(|error| panic!("a life without a kill: {error:#}")).labels;
    println!("{} effects in {} ms:\n  {}", labels.len(), started.elapsed().as_millis(), labels.join("\n  "));
    for kind in
        ["api POST", "api PUT", "api PATCH", "bmc POST", "bmc PATCH", "bmc DELETE", "agent command", "agent ack"]
    {
        assert!(labels.iter().any(|label| label.starts_with(kind)), "nothing of the kind {kind} was recorded");
    }
    let shard = Shard::from_environment().unwrap();
    let only = std::env::var("KILL_ONLY").unwrap_or_default();
    let cuts: Vec<Cut> = labels
        .into_iter()
        .filter(|label| in_each_life(label))
        .flat_map(|label| [Side::Before, Side::After].map(|side| Cut { label: label.clone(), side }))
        .filter(|cut| format!("{} {}", cut.side, cut.label).contains(&only))
        .filter(|cut| shard.has(&format!("{} {}", cut.side, cut.label)))
        .collect();
    let count = cuts.len();
    let runs = futures::stream::iter(cuts.into_iter().enumerate()).map(|(index, cut)| {
        tokio::spawn(async move {
            let (started, name) = (Instant::now(), format!("{} {}", cut.side, cut.label));
            let result = killed(&cut).await;
            let word = if result.is_ok() { "ok" } else { "FAILED" };
            println!("{index:3} {:6} ms {word:6} {name}", started.elapsed().as_millis());
            result.err().map(|error| format!("killed {name}: {error:#}"))
        })
    });
    let failures: Vec<String> = runs.buffer_unordered(WORLDS).filter_map(|r| async { r.unwrap() }).collect().await;
    println!("{count} kills in {} s", started.elapsed().as_secs());
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n\n"));
}
