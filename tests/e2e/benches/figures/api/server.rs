//! The two servers that are measured: `metamorph api serve`, and kube-apiserver with etcd. Each as processes of its own, with
//! TLS, RBAC and a sync of the disk before each acknowledgement.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use e2e::{Running, program};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::client::{Client, JSON};
use crate::process::Usage;

/// Folder with etcd and kube-apiserver; without it `tests/kubernetes/build` makes them or tells where they are.
const PROGRAMS: &str = "METAMORPH_KUBERNETES_BIN";
/// Token of kube-apiserver's administrator, in a file that only this run has.
const ADMINISTRATOR: &str = "bench-administrator";
/// Longest time until a server answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `metamorph api serve`.
    Embedded,
    /// kube-apiserver and etcd.
    Real,
}

/// A running server and what is needed to start it again.
pub struct Server {
    kind: Kind,
    folder: TempDir,
    programs: PathBuf,
    running: Vec<Running>,
    ports: [u16; 3],
}

/// What a server's processes have used together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Resident memory now, in bytes.
    pub memory: u64,
    /// The sum of each process's most, in bytes.
    pub peak: u64,
    /// Processor time.
    pub cpu: Duration,
}

/// The folder with the real programs.
///
/// # Errors
/// When they cannot be built.
pub async fn programs() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os(PROGRAMS) {
        return Ok(folder.into());
    }
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kubernetes/build");
    let mut command = Command::new(&build);
    command.args(["etcd", "kube-apiserver"]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().await.with_context(|| format!("run {}", build.display()))?;
    ensure!(output.status.success(), "{} failed", build.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

impl Server {
    /// Starts it in a folder of its own; when this returns, it answers.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(kind: Kind, programs: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let programs = programs.to_owned();
        if kind == Kind::Real {
            credentials(folder.path())?;
        }
        let mut server = Self { kind, folder, programs, running: Vec::new(), ports: free_ports()? };
        server.run()?;
        server.wait("/readyz").await?;
        Ok(server)
    }

    /// Starts the processes.
    fn run(&mut self) -> anyhow::Result<()> {
        let at = |name: &str| self.folder.path().join(name);
        match self.kind {
            Kind::Embedded => {
                let mut command = ends_with_us(&program("metamorph")?);
                command.args(["--log", "warn", "api", "serve", "--data"]).arg(at("data"));
                command.args(["--api-listen", &format!("127.0.0.1:{}", self.ports[2])]);
                self.running.push(Running::start(command, &at("metamorph.log"))?);
            }
            Kind::Real => {
                let mut etcd = ends_with_us(&self.programs.join("etcd"));
                etcd.args(etcd_flags(&at("etcd-data"), self.ports));
                let mut apiserver = ends_with_us(&self.programs.join("kube-apiserver"));
                apiserver.args(apiserver_flags(self.folder.path(), self.ports));
                self.running.push(Running::start(etcd, &at("etcd.log"))?);
                self.running.push(Running::start(apiserver, &at("kube-apiserver.log"))?);
            }
        }
        Ok(())
    }

    /// Waits until it answers this path.
    async fn wait(&mut self, path: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            for process in &mut self.running {
                ensure!(process.is_running(), "a server ended; {}", process.tail());
            }
            // A new connection each time: it may have been refused before.
            let asked = match self.client() {
                Ok(client) => client.get(path).await.map(drop),
                Err(error) => Err(error),
            };
            let Err(error) = asked else { return Ok(()) };
            if start.elapsed() > PATIENCE {
                let tails: Vec<String> = self.running.iter().map(Running::tail).collect();
                bail!("{path} is not answered: {error:#}; {}", tails.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// An administrator's client.
    ///
    /// # Errors
    /// When there are no keys yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        self.client_of(&self.token()?)
    }

    /// A client with a token, and a connection of its own.
    ///
    /// # Errors
    /// When there are no keys yet.
    pub fn client_of(&self, token: &str) -> anyhow::Result<Client> {
        let ca = match self.kind {
            Kind::Embedded => self.read("data/api/pki/ca.crt")?,
            Kind::Real => self.read("ca.crt")?,
        };
        Client::new(format!("https://127.0.0.1:{}", self.ports[2]), &ca, token)
    }

    /// Writes a kubeconfig with the administrator's token; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let ca = match self.kind {
            Kind::Embedded => "data/api/pki/ca.crt",
            Kind::Real => "ca.crt",
        };
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.ports[2]),
                "certificate-authority": self.folder.path().join(ca) }}],
            "users": [{"name": "bench", "user": {"token": self.token()?}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": "default"}}],
        });
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, text.to_string()).context("write the kubeconfig")?;
        Ok(path)
    }

    fn token(&self) -> anyhow::Result<String> {
        Ok(match self.kind {
            Kind::Embedded => self.read("data/api/pki/admin.token")?.trim().to_owned(),
            Kind::Real => ADMINISTRATOR.to_owned(),
        })
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.folder.path().join(name)).with_context(|| format!("read {name}"))
    }

    /// Gives it the definitions that `metamorph api serve` has by itself, and waits until hosts are served.
    ///
    /// # Errors
    /// When a definition is refused.
    pub async fn define(&mut self) -> anyhow::Result<()> {
        if self.kind == Kind::Real {
            let client = self.client()?;
            for text in api::crds::all()? {
                let definition: Value = serde_saphyr::from_str(&text)?;
                let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                client.send("POST", path, JSON, definition.to_string()).await.context("create a definition")?;
            }
        }
        self.wait(super::HOSTS).await
    }

    /// What its processes have used since they were started.
    ///
    /// # Errors
    /// When one has ended.
    pub fn used(&self) -> anyhow::Result<Used> {
        let mut sum = Used::default();
        for process in &self.running {
            let usage = Usage::of(process.pid().context("find a server's process")?)?;
            sum.memory += usage.memory;
            sum.peak += usage.peak_memory;
            sum.cpu += usage.cpu;
        }
        Ok(sum)
    }

    /// Stops it in order and starts it on the same data; the time from the start until this object is read.
    ///
    /// # Errors
    /// When it does not stop, or does not start.
    pub async fn restart(&mut self, path: &str) -> anyhow::Result<Duration> {
        while let Some(mut process) = self.running.pop() {
            end(&mut process).await?;
        }
        let start = Instant::now();
        self.run()?;
        self.wait(path).await?;
        Ok(start.elapsed())
    }
}

/// Tells a process to end and waits for it. etcd ends by the signal itself, so how it ended says nothing.
async fn end(process: &mut Running) -> anyhow::Result<()> {
    if let Some(pid) = process.pid() {
        kill_process(pid, Signal::TERM).context("tell a server to end")?;
    }
    let start = Instant::now();
    while process.is_running() {
        ensure!(start.elapsed() < PATIENCE, "a server does not end; {}", process.tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A program that the system ends with this one, however that ends.
pub fn ends_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).stdout(Stdio::null());
    command
}

/// etcd as it is run by default: it syncs its log before it acknowledges.
fn etcd_flags(data: &Path, [client, peer, _]: [u16; 3]) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".into(),
    ]
}

fn apiserver_flags(folder: &Path, [etcd, _, port]: [u16; 3]) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=RBAC".into(),
        format!("--token-auth-file={}", at("tokens")),
        format!("--client-ca-file={}", at("ca.crt")),
        format!("--tls-cert-file={}", at("server.crt")),
        format!("--tls-private-key-file={}", at("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-signing-key-file={}", at("sa.key")),
        format!("--service-account-key-file={}", at("sa.pub")),
        "--profiling=false".into(),
    ]
}

/// Writes what kube-apiserver needs: a CA, its certificate, the key of service accounts, and the administrator's token.
fn credentials(folder: &Path) -> anyhow::Result<()> {
    let write =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).with_context(|| format!("write {name}"));
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "bench CA");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &Issuer::from_params(&ca, &ca_key))?.pem();
    let accounts = KeyPair::generate()?;
    write("ca.crt", &ca_pem)?;
    write("server.crt", &certificate)?;
    write("server.key", &key.serialize_pem())?;
    write("sa.key", &accounts.serialize_pem())?;
    write("sa.pub", &accounts.public_key_pem())?;
    write("tokens", &format!("{ADMINISTRATOR},admin,admin,\"system:masters\"\n"))?;
    Ok(())
}

fn free_ports() -> anyhow::Result<[u16; 3]> {
    let mut held = Vec::new();
    let mut ports = [0; 3];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
