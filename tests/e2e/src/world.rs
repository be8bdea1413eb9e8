//! A world: simulator, server, image server, a Kubernetes client and kubectl.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use api::metamorph::HostOperation;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::addresses::{free_addresses, own_addresses};
use crate::files::{agent_image, program};
use crate::{ImageServer, Running, Sim};

/// A fake machine with one 5 GiB disk.
#[must_use]
pub fn machine(id: &str) -> Value {
    json!({ "id": id, "kind": "fake", "disks": [{ "sizeBytes": 5_u64 << 30 }] })
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// Machines of the simulator.
    pub machines: Vec<Value>,
    /// BMCs speak https.
    pub tls: bool,
    /// Further arguments of `metamorph up`.
    pub arguments: Vec<String>,
}

impl Options {
    /// One fake machine, `node-0`.
    #[must_use]
    pub fn one_fake() -> Self {
        Self { machines: vec![machine("node-0")], tls: false, arguments: Vec::new() }
    }

    /// Adds an argument of `metamorph up`.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|a| (*a).to_owned()));
        self
    }
}

/// Everything that runs.
pub struct World {
    /// Folder of the world.
    pub folder: TempDir,
    /// The simulator.
    pub sim: Sim,
    /// The server.
    pub server: Running,
    /// Images.
    pub images: ImageServer,
    /// Client with all rights.
    pub client: Client,
    options: Options,
    addresses: [SocketAddr; 4],
}

impl World {
    /// Starts everything.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        Self::start_with(options, json!({})).await
    }

    /// Starts everything, with further fields of the simulator's configuration.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start_with(options: Options, simulator: Value) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().context("make a folder")?;
        let sim = Sim::start_with(folder.path(), &options.machines, options.tls, simulator).await?;
        let addresses = addresses_for(&options.machines)?;
        let images = ImageServer::start().await?;
        let (server, client) = start_server(&folder, &options, addresses).await?;
        Ok(Self { folder, sim, server, images, client, options, addresses })
    }

    /// Starts the server again, after it was killed or stopped, with the same data and addresses.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_server_again(&mut self) -> anyhow::Result<()> {
        let (server, client) = start_server(&self.folder, &self.options, self.addresses).await?;
        self.server = server;
        self.client = client;
        Ok(())
    }

    /// Starts the server again with further arguments.
    ///
    /// # Errors
    /// When it does not stop or start.
    pub async fn restart_with(&mut self, arguments: &[&str]) -> anyhow::Result<()> {
        self.server.stop().await?;
        self.options.arguments.extend(arguments.iter().map(|a| (*a).to_owned()));
        self.start_server_again().await
    }

    /// Where the API is served.
    #[must_use]
    pub const fn api_endpoint(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Where agents report.
    #[must_use]
    pub fn agent_endpoint(&self) -> SocketAddr {
        self.addresses[2]
    }

    /// Where the server serves probes and metrics.
    #[must_use]
    pub fn health_endpoint(&self) -> SocketAddr {
        self.addresses[3]
    }

    /// The kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    /// Port of the media endpoint.
    #[must_use]
    pub const fn media_port(&self) -> u16 {
        self.addresses[1].port()
    }

    /// Runs kubectl with the text as its standard input; its output if it succeeds.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start kubectl; make setup installs it")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await.context("write to kubectl")?;
        }
        let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output())
            .await
            .context("wait for kubectl")??;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "kubectl {arguments:?}: {out}{err}");
        Ok(out.into_owned())
    }

    /// Hosts.
    #[must_use]
    pub fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.client.clone())
    }

    /// Operations of a host, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn operations(&self, host: &str) -> anyhow::Result<Vec<HostOperation>> {
        let api: Api<HostOperation> = Api::default_namespaced(self.client.clone());
        let selector = format!("{}={host}", api::metal3::label::HOST);
        let mut found = api.list(&ListParams::default().labels(&selector)).await?.items;
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found)
    }

    /// Applies Secret and BareMetalHost of a simulated machine; `change` may alter the host's spec.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn apply_host(&self, id: &str, change: Value) -> anyhow::Result<()> {
        let machine = self.sim.machine(id);
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{id}-bmc-secret") },
            "stringData": { "username": machine["username"], "password": machine["password"] } });
        self.kubectl(&["apply", "-f", "-"], &secret.to_string()).await?;
        let mut spec = json!({
            "online": true,
            "bmc": { "address": self.sim.address(id), "credentialsName": format!("{id}-bmc-secret") },
            "bootMACAddress": machine["mac"],
        });
        merge(&mut spec, change);
        let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": id }, "spec": spec });
        self.kubectl(&["apply", "-f", "-"], &host.to_string()).await?;
        Ok(())
    }

    /// Waits until the host is as `wanted`; it is watched, not polled.
    ///
    /// # Errors
    /// When that does not happen in time; the error shows the host, its operations and the server's log.
    pub async fn wait(
        &self,
        name: &str,
        seconds: u64,
        what: &str,
        wanted: impl Fn(&BareMetalHost) -> bool + Send,
    ) -> anyhow::Result<BareMetalHost> {
        let condition = |host: Option<&BareMetalHost>| host.is_some_and(&wanted);
        let waited = kube::runtime::wait::await_condition(self.hosts(), name, condition);
        match tokio::time::timeout(Duration::from_secs(seconds), waited).await {
            Ok(Ok(Some(host))) => Ok(host),
            Ok(Ok(None)) => bail!("{name} is gone"),
            Ok(Err(error)) => Err(error).context("watch the host"),
            Err(_) => bail!("{name} is not {what} within {seconds} s; {}", self.describe(name).await),
        }
    }

    /// Waits for a state without an error.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub async fn wait_state(
        &self,
        name: &str,
        seconds: u64,
        state: ProvisioningState,
    ) -> anyhow::Result<BareMetalHost> {
        let wanted =
            |h: &BareMetalHost| h.state() == state && h.status.as_ref().is_some_and(|s| s.error_message.is_empty());
        self.wait(name, seconds, state.as_str(), wanted).await
    }

    /// Waits until the host is gone.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_gone(&self, name: &str, seconds: u64) -> anyhow::Result<()> {
        let gone =
            kube::runtime::wait::await_condition(self.hosts(), name, |host: Option<&BareMetalHost>| host.is_none());
        match tokio::time::timeout(Duration::from_secs(seconds), gone).await {
            Ok(result) => result.map(|_| ()).context("watch the host"),
            Err(_) => bail!("{name} is not gone within {seconds} s; {}", self.describe(name).await),
        }
    }

    /// Host, operations and the ends of the logs.
    pub(crate) async fn describe(&self, name: &str) -> String {
        let host = self.kubectl(&["get", "bmh", name, "-o", "yaml"], "").await.unwrap_or_else(|e| e.to_string());
        let operations =
            self.kubectl(&["get", "hostoperations", "-o", "yaml"], "").await.unwrap_or_else(|e| e.to_string());
        format!("{host}\n{operations}\n{}\n{}", self.server.tail(), self.sim.process.tail())
    }
}

/// JSON merge patch (RFC 7396).
pub(crate) fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch,
    }
}

/// Addresses for the API, media, agents and probes. QEMU's guests reach no other than 127.0.0.1.
pub(crate) fn addresses_for(machines: &[Value]) -> anyhow::Result<[SocketAddr; 4]> {
    if machines.iter().any(|m| m["kind"] == "qemu") { free_addresses(Ipv4Addr::LOCALHOST) } else { own_addresses() }
}

async fn start_server(
    folder: &TempDir,
    options: &Options,
    addresses: [SocketAddr; 4],
) -> anyhow::Result<(Running, Client)> {
    let data = folder.path().join("data");
    let kubeconfig = data.join("kubeconfig");
    let mut command = Command::new(program("metamorph")?);
    command
        .arg("--log")
        .arg("info,metamorph=debug,operator=debug,provisioner_metamorph=debug")
        .arg("up")
        .arg("--data")
        .arg(&data);
    for (flag, address) in
        ["--api-listen", "--media-listen", "--agent-listen", "--health-listen"].into_iter().zip(addresses)
    {
        command.arg(flag).arg(address.to_string());
    }
    command.arg("--api-audit-log").arg(folder.path().join("audit.jsonl"));
    // Written with a `=` it takes the place of ours.
    if !options.arguments.iter().any(|argument| argument.starts_with("--agent-image=")) {
        command.arg("--agent-image").arg(agent_image()?);
    }
    command.args(["--allow-address", "127.0.0.0/8"]);
    for (flag, value) in [("--agent-reconnect", "4"), ("--retry-after", "1")] {
        if !options.arguments.iter().any(|a| a == flag) {
            command.args([flag, value]);
        }
    }
    command.args(&options.arguments);
    let mut server = Running::start(command, &folder.path().join("server.log"))?;
    let mut last = String::new();
    for _ in 0..300 {
        if !server.is_running() {
            bail!("the server ended; {}", server.tail());
        }
        match connect(&kubeconfig).await {
            Ok(client) => return Ok((server, client)),
            Err(error) => last = format!("{error:#}"),
        }
        // The server says nowhere else that it is ready; a bounded number of tries on a real event.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the server is not ready: {last}; {}", server.tail())
}

async fn connect(kubeconfig: &std::path::Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
    Api::<BareMetalHost>::default_namespaced(client.clone()).list(&ListParams::default().limit(1)).await?;
    Ok(client)
}
