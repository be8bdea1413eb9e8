//! The servers that are asked: the embedded one in this process, and a real control plane as processes of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use apiserver::in_process::{Caller, Disk, Identity, InProcess, Setup};
use apiserver::{Config, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyDataStream;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::certificates::Authority;
use crate::layer::{self, Defect};

const TOKEN: &str = "conformance-administrator";
/// How the client calls itself: owners of fields are named after it.
const AGENT: &str = "conformance/1";

/// A server under test.
pub struct Target {
    /// How it is called in reports.
    pub name: &'static str,
    /// `https://HOST:PORT`.
    pub base: String,
    /// The administrator's bearer token.
    pub token: String,
    /// The CA of its certificate, PEM.
    pub ca: String,
    /// Trusts that CA.
    pub client: reqwest::Client,
    /// A kubeconfig of the administrator.
    pub kubeconfig: PathBuf,
    /// The CA of clients.
    pub clients: Authority,
    running: Running,
}

enum Running {
    InProcess(Caller, Box<InProcess>),
    Embedded(Box<Server>, #[allow(dead_code, reason = "the folder goes with it")] tempfile::TempDir),
    Real(Processes, #[allow(dead_code, reason = "the folder goes with it")] tempfile::TempDir),
}

/// Processes that end with this value, and with this process too: each asks the system for that.
struct Processes(Vec<(String, Child)>);

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client that trusts one CA.
fn client(ca: &str) -> Result<reqwest::Client> {
    let ca = reqwest::Certificate::from_pem(ca.as_bytes())?;
    let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let builder = builder.connect_timeout(Duration::from_secs(10)).retry(reqwest::retry::never());
    Ok(builder.tls_certs_only([ca]).user_agent(AGENT).build()?)
}

impl Target {
    /// The embedded server in a temporary folder.
    pub async fn embedded() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let config = Config {
            data_dir: dir.path().to_owned(),
            listen: "127.0.0.1:0".parse()?,
            extra_sans: vec![],
            audit_log: None,
            reviewers: vec![],
        };
        let server = Server::start(config).await.context("start the embedded server")?;
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.admin_kubeconfig())?;
        Ok(Self {
            name: "embedded",
            base: format!("https://{}", server.local_addr()),
            token: server.admin_token().to_owned(),
            ca: server.ca_pem().to_owned(),
            client: client(server.ca_pem())?,
            kubeconfig,
            clients: Authority {
                name: "embedded-kubernetes-ca".to_owned(),
                key: std::fs::read_to_string(dir.path().join("pki/ca.key"))?,
            },
            running: Running::Embedded(Box::new(server), dir),
        })
    }

    /// The embedded server asked in process: no socket, tables in memory, the machine's clock for cases that wait.
    pub async fn in_process() -> Result<Self> {
        let clock = std::sync::Arc::new(clock::SystemClock);
        let setup = Setup { disk: Disk::new()?, clock, seed: 1, reviewers: vec![] };
        let server = InProcess::start(setup).await.context("start the server in process")?;
        let ca = server.ca_pem().to_owned();
        Ok(Self {
            name: "in-process",
            base: "https://192.0.2.1:443".to_owned(),
            token: server.admin_token().to_owned(),
            client: client(&ca)?,
            ca,
            kubeconfig: PathBuf::new(),
            clients: Authority { name: String::new(), key: String::new() },
            running: Running::InProcess(server.caller(Identity::by_token()), Box::new(server)),
        })
    }

    /// Sends a request the target's way.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response> {
        let Running::InProcess(caller, _) = &self.running else {
            return request.send().await.map_err(|e| anyhow!(if e.is_connect() { "no connection" } else { "cut off" }));
        };
        let mut request: http::Request<reqwest::Body> = request.build()?.try_into()?;
        let path = request.uri().path_and_query().cloned().context("a request has a path")?;
        *request.uri_mut() = path.into();
        // What the client would have put in on its way to the wire.
        request.headers_mut().entry("user-agent").or_insert(http::HeaderValue::from_static(AGENT));
        let answer = tower::ServiceExt::oneshot(caller.clone(), request).await?;
        Ok(answer.map(|body| reqwest::Body::wrap_stream(BodyDataStream::new(body))).into())
    }

    /// The embedded server behind a layer that plays a defect.
    pub async fn spoilt(defect: Option<Defect>) -> Result<Self> {
        let mut target = Self::embedded().await?;
        target.base = layer::start(&target.base, &target.client, defect).await?;
        Ok(target)
    }

    /// etcd, kube-apiserver and the controllers of `bin`, in a temporary folder. To be called on the first thread: the
    /// processes end with the thread that starts them.
    pub async fn real(bin: &Path) -> Result<Self> {
        let mut last = None;
        // The ports are free when they are asked for; another program may take one before it is used.
        for _ in 0..3 {
            match Self::try_real(bin).await {
                Ok(target) => return Ok(target),
                Err(e) => last = Some(e),
            }
        }
        bail!("the reference control plane does not start: {:#}", last.context("never tried")?)
    }

    async fn try_real(bin: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        let ports = free_ports::<3>()?;
        let (ca, clients) = certificates(dir.path())?;
        std::fs::write(at("tokens"), format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
        let kubeconfig = dir.path().join("kubeconfig");
        let base = format!("https://127.0.0.1:{}", ports[2]);
        std::fs::write(&kubeconfig, kubeconfig_text(&base, &ca))?;
        let mut processes = Processes(vec![]);
        let etcd = format!("http://127.0.0.1:{}", ports[0]);
        let peer = format!("http://127.0.0.1:{}", ports[1]);
        let mut start = |name: &str, arguments: &[String]| -> Result<()> {
            processes.0.push((name.to_owned(), spawn(bin, name, arguments, dir.path())?));
            Ok(())
        };
        start("etcd", &etcd_flags(&etcd, &peer, &at("etcd-data")))?;
        start("kube-apiserver", &apiserver_flags(ports[2], &etcd, &at))?;
        let manager = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--service-account-private-key-file={}", at("sa.key")),
            format!("--root-ca-file={}", at("ca.crt")),
        ];
        let client = client(&ca)?;
        let running = Running::Real(processes, dir);
        let token = TOKEN.to_owned();
        let mut target = Self { name: "kube-apiserver", base, token, ca, client, kubeconfig, clients, running };
        target.until("/readyz").await?;
        if let Running::Real(processes, dir) = &mut target.running {
            let child = spawn(bin, "kube-controller-manager", &manager, dir.path())?;
            processes.0.push(("kube-controller-manager".into(), child));
        }
        target.until("/api/v1/namespaces/default/serviceaccounts/default").await?;
        target.until("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").await?;
        Ok(target)
    }

    /// Waits until the path answers 200, or a process has ended.
    async fn until(&mut self, path: &str) -> Result<()> {
        for _ in 0..600 {
            let request = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.token);
            if request.send().await.is_ok_and(|r| r.status().is_success()) {
                return Ok(());
            }
            if let Running::Real(processes, dir) = &mut self.running {
                for (name, child) in &mut processes.0 {
                    if let Some(status) = child.try_wait()? {
                        let log = std::fs::read_to_string(dir.path().join(format!("{name}.log"))).unwrap_or_default();
                        let tail: Vec<&str> = log.lines().rev().take(15).collect();
                        bail!("{name} ended: {status}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{path} never answered 200 within two minutes")
    }

    /// A client with connections of its own: kube-apiserver ends the connection of whoever it does not know, and what
    /// else is under way on it.
    pub fn stranger(&self) -> Result<reqwest::Client> {
        client(&self.ca)
    }

    /// A client with a certificate, see [`Authority::client`].
    pub fn bearing(&self, what: &str) -> Result<reqwest::Client> {
        self.clients.client(what, &self.ca)
    }

    /// Ends it.
    pub async fn shutdown(self) {
        match self.running {
            Running::Embedded(server, _dir) => server.shutdown().await,
            Running::InProcess(_, server) => server.shutdown().await,
            Running::Real(..) => {}
        }
    }
}

fn spawn(bin: &Path, name: &str, arguments: &[String], dir: &Path) -> Result<Child> {
    let program = bin.join(name);
    ensure!(program.exists(), "{} is missing: tests/kubernetes/build makes it", program.display());
    let log = std::fs::File::create(dir.join(format!("{name}.log")))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("start {name}"))
}

fn etcd_flags(etcd: &str, peer: &str, data: &str) -> Vec<String> {
    vec![
        format!("--data-dir={data}"),
        format!("--listen-client-urls={etcd}"),
        format!("--advertise-client-urls={etcd}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

fn apiserver_flags(port: u16, etcd: &str, at: &impl Fn(&str) -> String) -> Vec<String> {
    vec![
        format!("--etcd-servers={etcd}"),
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

fn kubeconfig_text(base: &str, ca: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: real\n  cluster:\n    server: {base}\n    \
         certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    token: {TOKEN}\ncontexts:\n- name: real\n  \
         context:\n    cluster: real\n    user: admin\n    namespace: default\ncurrent-context: real\n",
        STANDARD.encode(ca)
    )
}

fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Writes a CA, a server certificate and the key of service accounts; gives the CA, which is the clients' too.
fn certificates(dir: &Path) -> Result<(String, Authority)> {
    let issued = Issued::new("reference")?;
    std::fs::write(dir.join("ca.crt"), &issued.ca)?;
    std::fs::write(dir.join("server.crt"), &issued.certificate)?;
    std::fs::write(dir.join("server.key"), &issued.key)?;
    let accounts = KeyPair::generate()?;
    std::fs::write(dir.join("sa.key"), accounts.serialize_pem())?;
    std::fs::write(dir.join("sa.pub"), accounts.public_key_pem())?;
    Ok((issued.ca, Authority { name: "reference CA".to_owned(), key: issued.ca_key }))
}

/// A CA and a certificate of it for loopback, all PEM.
pub struct Issued {
    /// The CA's certificate.
    pub ca: String,
    /// The CA's key.
    pub ca_key: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Issued {
    /// Makes them.
    pub fn new(name: &str) -> Result<Self> {
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, format!("{name} CA"));
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        let issuer = Issuer::from_params(&ca, &ca_key);
        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, name);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &issuer)?.pem();
        Ok(Self { ca: ca_pem, ca_key: ca_key.serialize_pem(), certificate, key: key.serialize_pem() })
    }
}
