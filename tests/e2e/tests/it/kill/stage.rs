//! The world of one life: simulator, images, Kubernetes API, the server that is killed, and proxies around it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api::metal3::{BareMetalHost, HardwareData};
use api::metamorph::{HostOperation, MachineRecord};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::{
    Certificate, Cut, Door, Effects, EmbeddedApi, ImageServer, Proxies, Running, Sim, agent_image, own_addresses,
    program,
};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt;
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::scenario::Killed;

/// The one machine and host.
pub const HOST: &str = "node-0";
/// Longest wait for one thing, in seconds. It is long because worlds share two processors; none comes near it.
pub const PATIENCE: u64 = 120;
const LOG: &str = "info,metamorph=debug,operator=debug,provisioner_metamorph=debug";
/// Short, and long enough to be kept on two busy processors.
const LEASE: &str = "5";

/// How a server is started, each time in the same way: agents and BMCs know its addresses.
struct Launch {
    arguments: Vec<String>,
    log: PathBuf,
}

impl Launch {
    fn new(
        log: PathBuf,
        command: &str,
        endpoints: &[SocketAddr; 2],
        known_as: [SocketAddr; 2],
    ) -> anyhow::Result<Self> {
        let image = agent_image()?;
        let [media, agents] = endpoints.map(|address| address.to_string());
        let [media_host, agent_host] = known_as.map(|address| address.to_string());
        let arguments = [
            "--log",
            LOG,
            command,
            "--agent-image",
            &image.to_string_lossy(),
            "--media-listen",
            &media,
            "--agent-listen",
            &agents,
            "--health-listen",
            "127.0.0.1:0",
            "--media-host",
            &media_host,
            "--agent-host",
            &agent_host,
            "--agent-reconnect",
            "3",
            "--retry-after",
            "1",
            "--allow-address",
            "127.0.0.0/8",
        ];
        Ok(Self { arguments: arguments.map(ToOwned::to_owned).to_vec(), log })
    }

    fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    fn start(&self) -> anyhow::Result<Running> {
        let mut command = Command::new(program("metamorph")?);
        command.args(&self.arguments);
        Running::start(command, &self.log)
    }
}

/// Everything of one life.
pub struct Stage {
    pub folder: TempDir,
    pub sim: Sim,
    pub images: ImageServer,
    pub client: Client,
    pub effects: Arc<Effects>,
    /// The BMC's address, through the proxy.
    pub bmc: String,
    api: Option<EmbeddedApi>,
    _proxies: Proxies,
    _watches: JoinSet<()>,
    servers: JoinHandle<anyhow::Result<Vec<Running>>>,
    over: oneshot::Sender<()>,
}

impl Stage {
    /// Starts it; the server is killed at `cut`.
    pub async fn start(killed: Killed, cut: Option<Cut>) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().context("make a folder")?;
        let sim = Sim::start(folder.path(), &[e2e::machine(HOST)], false).await?;
        let images = ImageServer::start().await?;
        let effects = Effects::new(cut);
        let mut proxies = Proxies::new(Arc::clone(&effects));
        let bmc = proxies.bmc(sim.machine(HOST)["redfish"].as_str().context("the BMC's address")?)?;
        let parts = Parts { folder: &folder, effects: &effects, proxies: &mut proxies };
        let Started { client, api, watches, servers, over } = match killed {
            Killed::Operator => parts.operators(1).await?,
            Killed::Leader => parts.operators(2).await?,
            Killed::Up => parts.up().await?,
        };
        Ok(Self { folder, sim, images, client, effects, bmc, api, _proxies: proxies, _watches: watches, servers, over })
    }

    pub fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.client.clone())
    }

    /// Ends the server properly, and everything else.
    pub async fn end(self) -> anyhow::Result<()> {
        // An error means that the server has been killed and another is at work.
        let _ = self.over.send(());
        for mut server in self.servers.await?? {
            server.stop().await?;
        }
        drop(self.sim);
        if let Some(api) = self.api {
            api.server.shutdown().await;
        }
        Ok(())
    }
}

/// What runs of the server's side.
struct Started {
    client: Client,
    api: Option<EmbeddedApi>,
    watches: JoinSet<()>,
    servers: JoinHandle<anyhow::Result<Vec<Running>>>,
    over: oneshot::Sender<()>,
}

/// What the server's side is made of.
struct Parts<'a> {
    folder: &'a TempDir,
    effects: &'a Arc<Effects>,
    proxies: &'a mut Proxies,
}

impl Parts<'_> {
    /// One operator or two on an API in this process.
    async fn operators(self, count: usize) -> anyhow::Result<Started> {
        let Self { folder, effects, proxies } = self;
        let api = EmbeddedApi::start(folder.path()).await?;
        let certificate = Certificate::for_loopback()?;
        let url = format!("https://{}", api.server.local_addr());
        let url = proxies.api(&url, api.server.admin_token(), api.server.ca_pem(), &certificate).await?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, proxy_kubeconfig(&url, &certificate))?;
        give_identity(&api.client, &certificate).await?;
        let doors = [Door::new()?, Door::new()?];
        let known_as = [doors[0].address, doors[1].address];
        let mut launches = Vec::new();
        let mut endpoints: [Vec<SocketAddr>; 2] = Default::default();
        for number in 0..count {
            let addresses = own_addresses::<2>()?;
            endpoints[0].push(addresses[0]);
            endpoints[1].push(addresses[1]);
            // Without a Lease the successor need not wait.
            let lease = if count == 1 { "0" } else { LEASE };
            let log = folder.path().join(format!("server-{number}.log"));
            let launch = Launch::new(log, "operator", &addresses, known_as)?;
            launches.push(launch.with(&["--kubeconfig", &kubeconfig.to_string_lossy(), "--lease-duration", lease]));
        }
        let [media_door, agent_door] = doors;
        proxies.media(media_door, endpoints[0].clone());
        let agents: Vec<String> = endpoints[1].iter().map(|address| format!("https://{address}")).collect();
        let agents: Vec<&str> = agents.iter().map(String::as_str).collect();
        proxies.agents(agent_door, &agents, &certificate).await?;

        let mut first = launches[0].start()?;
        effects.set_victim(first.pid());
        let (over, ended) = oneshot::channel();
        let second = if let Some(launch) = launches.get(1) {
            first.wait_logged("this process leads", PATIENCE).await?;
            let mut second = launch.start()?;
            second.wait_logged("standing by", PATIENCE).await?;
            anyhow::ensure!(first.is_running() && second.is_running(), "an operator has ended: {}", first.tail());
            Some(second)
        } else {
            None
        };
        let again = launches.remove(0);
        let servers = tokio::spawn(look_after(first, second, again, Arc::clone(effects), ended));
        Ok(Started { client: api.client.clone(), api: Some(api), watches: JoinSet::new(), servers, over })
    }

    /// API, controllers and endpoints in one process. What it writes to its own API is seen by watches, as soon as it is written.
    async fn up(self) -> anyhow::Result<Started> {
        let Self { folder, effects, proxies } = self;
        let [api, media, agents] = own_addresses::<3>()?;
        let door = Door::new()?;
        let data = folder.path().join("data");
        let launch = Launch::new(folder.path().join("server-0.log"), "up", &[media, agents], [media, door.address])?;
        let launch = launch.with(&["--data", &data.to_string_lossy(), "--api-listen", &api.to_string()]);
        let server = launch.start()?;
        effects.set_victim(server.pid());
        let identity = patiently("the server's keys", async || {
            let config = Kubeconfig::read_from(data.join("kubeconfig"))?;
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
            let client = Client::try_from(config)?;
            let secret =
                Api::<Secret>::namespaced(client.clone(), "metamorph-system").get("metamorph-identity").await?;
            anyhow::Ok((client, secret))
        });
        let (client, secret) = identity.await.with_context(|| server.tail())?;
        let field = |name: &str| {
            let bytes =
                secret.data.as_ref().and_then(|data| data.get(name)).context("the server's keys lack a field")?;
            anyhow::Ok(String::from_utf8(bytes.0.clone())?)
        };
        let certificate = Certificate { certificate: field("tls.crt")?, key: field("tls.key")? };
        proxies.agents(door, &[&format!("https://{agents}")], &certificate).await?;
        let mut watches = JoinSet::new();
        note::<BareMetalHost>(&mut watches, &client, effects);
        note::<HostOperation>(&mut watches, &client, effects);
        note::<MachineRecord>(&mut watches, &client, effects);
        note::<HardwareData>(&mut watches, &client, effects);
        note::<Secret>(&mut watches, &client, effects);
        let (over, ended) = oneshot::channel();
        let servers = tokio::spawn(look_after(server, None, launch, Arc::clone(effects), ended));
        Ok(Started { client, api: None, watches, servers, over })
    }
}

/// Once the server has been killed, the other goes on, or it is started again. Gives those that run at the end.
async fn look_after(
    mut server: Running,
    other: Option<Running>,
    again: Launch,
    effects: Arc<Effects>,
    over: oneshot::Receiver<()>,
) -> anyhow::Result<Vec<Running>> {
    tokio::select! {
        () = effects.wait_struck() => {}
        _ = over => return Ok([Some(server), other].into_iter().flatten().collect()),
    }
    server.kill().await?;
    effects.set_victim(None);
    effects.set_dead();
    Ok(vec![match other {
        Some(other) => other,
        None => again.start()?,
    }])
}

/// Tries until it succeeds: there is no other sign of a server's being there.
pub async fn patiently<T>(what: &str, mut attempt: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut last = None;
    for _ in 0..PATIENCE * 10 {
        match attempt().await {
            Ok(found) => return Ok(found),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    match last {
        Some(error) => Err(error.context(format!("{what}: not within {PATIENCE} s"))),
        None => bail!("{what}: never tried"),
    }
}

/// Notes each version of each object of this kind in the default namespace, once.
fn note<K>(watches: &mut JoinSet<()>, client: &Client, effects: &Arc<Effects>)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + DeserializeOwned + serde::Serialize,
    K: Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let (api, effects) = (Api::<K>::default_namespaced(client.clone()), Arc::clone(effects));
    watches.spawn(async move {
        let stream = kube::runtime::watcher(api, kube::runtime::watcher::Config::default()).touched_objects();
        let mut stream = stream.into_stream().boxed();
        loop {
            match stream.try_next().await {
                Ok(Some(object)) => {
                    let Ok(object) = serde_json::to_value(&object) else { continue };
                    let meta = &object["metadata"];
                    if effects.is_new(&format!("{} {}", meta["uid"], meta["resourceVersion"])) {
                        effects.seen(&e2e::seen_in_api(&K::plural(&()), &object));
                    }
                }
                Ok(None) => return,
                // The server is down; the stream begins again by itself.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
}

/// The server's keys, made by the test, so that it can stand between the server and its agents.
async fn give_identity(client: &Client, certificate: &Certificate) -> anyhow::Result<()> {
    let name = "metamorph-system";
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let data = [
        ("secret", (0..32).collect()),
        ("tls.crt", certificate.certificate.clone().into_bytes()),
        ("tls.key", certificate.key.clone().into_bytes()),
    ];
    let data: BTreeMap<String, ByteString> = data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v))).collect();
    let metadata = ObjectMeta { name: Some("metamorph-identity".to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() };
    Api::<Secret>::namespaced(client.clone(), name).create(&PostParams::default(), &secret).await?;
    Ok(())
}

fn proxy_kubeconfig(url: &str, certificate: &Certificate) -> String {
    let ca = STANDARD.encode(&certificate.certificate);
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
