//! The programs: two that are given, built elsewhere from baremetal-operator's sources, and this repository's own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::target::Target;

/// Lines of a program's log that are told when something went wrong.
const TOLD: usize = 12;

/// Where the programs are.
pub struct Programs {
    /// The folder with kubectl.
    pub kubernetes: PathBuf,
    /// baremetal-operator's manager and its end-to-end suite, where they are needed.
    upstream: Option<[PathBuf; 2]>,
    metamorph: PathBuf,
    agent_image: PathBuf,
    logs: TempDir,
}

/// The program that an environment variable names.
fn named(variable: &str, what: &str) -> Result<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from).unwrap_or_default();
    ensure!(
        path.is_file(),
        "{variable} must name {what}, built from baremetal-operator's sources (docs/upstream-e2e.md says how); it is {:?}",
        path.display().to_string()
    );
    std::path::absolute(path).context("make its path absolute")
}

impl Programs {
    /// Finds them.
    ///
    /// # Errors
    /// When one is missing, with the variable that should name it.
    pub fn find(kubernetes: &Path) -> Result<Self> {
        let upstream = [
            named("METAMORPH_BMO", "baremetal-operator's manager")?,
            named("METAMORPH_BMO_E2E", "its Ginkgo test program (test/e2e)")?,
        ];
        Ok(Self { upstream: Some(upstream), ..Self::own(kubernetes)? })
    }

    /// Finds those of this repository.
    ///
    /// # Errors
    /// When one is missing, with what makes it.
    pub fn own(kubernetes: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        let metamorph = own.parent().context("a program has a folder")?.join("metamorph");
        ensure!(metamorph.is_file(), "{} is missing: make binaries", metamorph.display());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let agent_image = std::env::var_os("METAMORPH_AGENT_IMAGE").map(PathBuf::from);
        Ok(Self {
            kubernetes: kubernetes.to_owned(),
            upstream: None,
            metamorph,
            agent_image: agent_image.unwrap_or_else(|| root.join(".cache/agent-image-test")),
            logs: tempfile::tempdir()?,
        })
    }

    /// Upstream's end-to-end suite.
    ///
    /// # Errors
    /// When it was not asked for.
    pub fn suite(&self) -> Result<&Path> {
        let [_, suite] = self.upstream.as_ref().context("upstream's programs were not looked for")?;
        Ok(suite)
    }

    async fn crds(&self) -> Result<Vec<u8>> {
        let printed = Command::new(&self.metamorph).arg("crds").output().await.context("run metamorph crds")?;
        ensure!(printed.status.success(), "metamorph crds: {}", String::from_utf8_lossy(&printed.stderr));
        Ok(printed.stdout)
    }

    /// All definitions, as they are given to servers.
    pub async fn definitions(&self) -> Result<Vec<Value>> {
        let text = String::from_utf8(self.crds().await?)?;
        let all: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        Ok(all.into_iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect())
    }

    /// Has the server serve all definitions: upstream's, unchanged, and Metamorph's own.
    pub async fn define(&self, target: &Target) -> Result<()> {
        let printed = self.crds().await?;
        let mut kubectl = Command::new(self.kubernetes.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(&target.kubeconfig).args(["apply", "--server-side", "-f", "-"]);
        let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("kubectl reads")?;
        stdin.write_all(&printed).await?;
        drop(stdin);
        let ended = child.wait_with_output().await?;
        ensure!(ended.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&ended.stderr));
        let mut wait = Command::new(self.kubernetes.join("kubectl"));
        wait.arg("--kubeconfig").arg(&target.kubeconfig);
        wait.args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
        let ended = wait.output().await?;
        ensure!(ended.status.success(), "kubectl wait: {}", String::from_utf8_lossy(&ended.stderr));
        Ok(())
    }

    /// Starts upstream's operator with its fixture on one namespace. To be called on the first thread.
    pub fn upstream(&self, target: &Target, namespace: &str) -> Result<Running> {
        let [manager, _] = self.upstream.as_ref().context("upstream's programs were not looked for")?;
        let mut command = alone(manager);
        command.arg("--kubeconfig").arg(&target.kubeconfig).arg("--namespace").arg(namespace);
        command.args(["--provisioner=fixture", "--webhook-port=0", "--metrics-addr=0", "--health-addr=0"]);
        command.args(["--kube-api-qps=200", "--kube-api-burst=200"]);
        Running::start(command, &self.logs.path().join(format!("{}-{namespace}-upstream.log", target.name)))
    }

    /// Starts Metamorph with its fixture: on one namespace, which is its own as well, or on all. To be called on the first thread.
    pub fn metamorph(&self, target: &Target, namespace: &str) -> Result<Running> {
        Running::start(self.operator(target, namespace), &self.log(target, &format!("{namespace}-metamorph")))
    }

    /// Starts it on all namespaces, with its webhook at this port of this machine. To be called on the first thread.
    pub fn with_webhook(&self, target: &Target, port: u16) -> Result<Running> {
        let mut command = self.operator(target, "");
        command.arg("--webhook-listen").arg(format!("127.0.0.1:{port}"));
        command.arg("--webhook-url").arg(format!("https://127.0.0.1:{port}"));
        Running::start(command, &self.log(target, "webhook"))
    }

    fn log(&self, target: &Target, name: &str) -> PathBuf {
        self.logs.path().join(format!("{}-{name}.log", target.name))
    }

    fn operator(&self, target: &Target, namespace: &str) -> Command {
        let mut command = alone(&self.metamorph);
        command.arg("operator").arg("--kubeconfig").arg(&target.kubeconfig).args(["--provisioner", "fixture"]);
        if !namespace.is_empty() {
            command.args(["--namespace", namespace, "--own-namespace", namespace]);
        }
        command.arg("--agent-image").arg(&self.agent_image).args(["--allow-address", "127.0.0.0/8"]);
        for listen in ["--media-listen", "--agent-listen", "--health-listen"] {
            command.args([listen, "127.0.0.1:0"]);
        }
        command
    }
}

/// A command that ends with this process.
fn alone(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A program that runs.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        Ok(Self {
            child: command.spawn().with_context(|| format!("start {:?}", command.as_std().get_program()))?,
            log: log.to_owned(),
        })
    }

    /// Ends it at once.
    pub async fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it had ended by itself: {status}\n{}", self.told());
        }
        self.child.kill().await.context("kill it")
    }

    /// Ends it as an administrator does; its last words.
    pub async fn stop(mut self) -> Result<String> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it had ended by itself: {status}\n{}", self.told());
        }
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).context("it runs")?;
        kill_process(pid, Signal::TERM).context("terminate it")?;
        tokio::time::timeout(Duration::from_secs(40), self.child.wait()).await.context("it does not end")??;
        Ok(self.told())
    }

    fn told(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(TOLD).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n    ")
    }
}
