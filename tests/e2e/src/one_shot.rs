//! `metamorph provision` as a person or a Job runs it: machines behind the simulator, images, files, and no server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::files::{agent_image, program};
use crate::world::{addresses_for, merge};
use crate::{DiskImage, ImageServer, Running, Sim};

/// Longest run.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the runs have to do with.
pub struct OneShot {
    /// Folder for all of it. Temporary folders are made in `tmp`.
    pub folder: TempDir,
    /// The simulator.
    pub sim: Sim,
    /// Images.
    pub images: ImageServer,
    addresses: [SocketAddr; 4],
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl OneShot {
    /// Starts the simulator with these machines.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(machines: &[Value]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let sim = Sim::start(folder.path(), machines, false).await?;
        std::fs::create_dir(folder.path().join("tmp")).context("make a folder")?;
        Ok(Self { sim, images: ImageServer::start().await?, addresses: addresses_for(machines)?, folder })
    }

    /// The folder of the state that tests name.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The status of the only host in the state that tests name.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub async fn listed(&self) -> anyhow::Result<Value> {
        let mut command = Command::new(program("metamorph")?);
        command.args(["host", "list", "-o", "json", "--state"]).arg(self.state()).stdin(Stdio::null());
        let output = command.output().await.context("list the hosts")?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let list: Value = serde_json::from_slice(&output.stdout).context("read the list")?;
        Ok(list["items"][0]["status"].clone())
    }

    /// What is in the folder for temporary ones.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn temporary(&self) -> anyhow::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.folder.path().join("tmp")).context("read the temporary folders")?;
        entries.map(|entry| Ok(entry?.path())).collect()
    }

    /// `spec.image` for an image that is put on the server.
    #[must_use]
    pub fn image(&self, name: &str, image: &DiskImage) -> Value {
        let url = self.images.put(name, image.bytes.clone());
        json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" })
    }

    /// Secret and BareMetalHost of a machine as two documents; `change` may alter the host's spec.
    #[must_use]
    pub fn manifest(&self, id: &str, change: Value) -> String {
        let machine = self.sim.machine(id);
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{id}-bmc-secret") },
            "stringData": { "username": machine["username"], "password": machine["password"] } });
        let mut spec = json!({
            "online": true,
            "bmc": { "address": self.sim.address(id), "credentialsName": format!("{id}-bmc-secret") },
            "bootMACAddress": machine["mac"],
        });
        merge(&mut spec, change);
        let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": id },
            "spec": spec });
        format!("---\n{secret}\n---\n{host}\n")
    }

    /// Writes a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("write {name}"))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The program with these arguments, and addresses of this test's own behind them.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(program("metamorph")?);
        command.args(["--log", "info,operator=debug,provisioner_metamorph=debug"]).args(arguments);
        let [_, media, agents, _] = self.addresses.map(|address| address.to_string());
        let usual = [
            ("--media-listen", media.as_str()),
            ("--agent-listen", &agents),
            ("--agent-reconnect", "4"),
            ("--retry-after", "1"),
            ("--allow-address", "127.0.0.0/8"),
        ];
        for (flag, value) in usual.into_iter().filter(|(flag, _)| !arguments.contains(flag)) {
            command.args([flag, value]);
        }
        command.arg("--agent-image").arg(agent_image()?);
        command.env("TMPDIR", self.folder.path().join("tmp")).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    /// `provision -f FILE` to its end, with these arguments.
    ///
    /// # Errors
    /// When it cannot be started or does not end.
    pub async fn provision(&self, file: &str, arguments: &[&str]) -> anyhow::Result<Ended> {
        let all: Vec<&str> = ["provision", "-f", file].iter().chain(arguments).copied().collect();
        let mut command = self.command(&all)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("start the run")?;
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.context("wait for the run")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) })
    }

    /// As [`Self::provision`], in the background; its standard output goes to `out`, its log to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(&self, file: &str, arguments: &[&str], out: &Path, log: &Path) -> anyhow::Result<Running> {
        let all: Vec<&str> = ["provision", "-f", file].iter().chain(arguments).copied().collect();
        let mut command = self.command(&all)?;
        command.stdout(std::fs::File::create(out).context("make the file for its output")?);
        Running::start(command, log)
    }

    /// `up` on the state.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn up(&self, log: &Path) -> anyhow::Result<Running> {
        let data = self.state().to_string_lossy().into_owned();
        let [api, .., health] = self.addresses.map(|address| address.to_string());
        let arguments = ["up", "--data", &data, "--api-listen", &api, "--health-listen", &health];
        Running::start(self.command(&arguments)?, log)
    }

    /// Requests to a machine's BMC that change something, sessions apart.
    ///
    /// # Errors
    /// When the simulator does not answer.
    pub async fn effects(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let log = self.sim.get(&format!("/machines/{id}/requests")).await?;
        let all = log["requests"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = all.iter().map(|request| (text(&request["method"]), text(&request["path"])));
        Ok(calls
            .filter(|(method, path)| !matches!(method.as_str(), "GET" | "HEAD") && !path.contains("/Sessions"))
            .map(|(method, path)| format!("{method} {path}"))
            .collect())
    }
}
