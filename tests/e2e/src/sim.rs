//! The simulator as a process, steered by its control API.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::Running;
use crate::files::{agent_program, program};

/// The simulator.
pub struct Sim {
    /// Its process.
    pub process: Running,
    /// What it said when it was ready.
    pub ready: Value,
    http: reqwest::Client,
}

impl Sim {
    /// Starts it with these machines.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn start(folder: &Path, machines: &[Value], tls: bool) -> anyhow::Result<Self> {
        Self::start_with(folder, machines, tls, json!({})).await
    }

    /// Starts it with these machines and further fields of its configuration.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn start_with(folder: &Path, machines: &[Value], tls: bool, more: Value) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = folder.join("sim.json");
        let mut text =
            json!({ "machines": machines, "stateDir": folder.join("machines"), "agent": agent_program()?, "tls": tls });
        if let (Value::Object(text), Value::Object(more)) = (&mut text, more) {
            text.extend(more);
        }
        std::fs::write(&config, text.to_string()).context("write the simulator's configuration")?;
        let mut command = Command::new(program("bmc-sim")?);
        command.arg("--config").arg(&config).stdout(Stdio::piped());
        let mut process = Running::start(command, &folder.join("sim.log"))?;
        let stdout = process.stdout().context("read what the simulator says")?;
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        let read = tokio::time::timeout(Duration::from_secs(20), reader.read_line(&mut line));
        let read = read.await.context("wait for the simulator")?.context("read what the simulator says")?;
        ensure!(read > 0, "the simulator ended; {}", process.tail());
        let ready = serde_json::from_str(&line).context("understand the simulator")?;
        let http = reqwest::Client::builder().tls_certs_only([]).build().context("make an HTTP client")?;
        Ok(Self { process, ready, http })
    }

    /// A machine's field of the ready line.
    #[must_use]
    pub fn machine(&self, id: &str) -> Value {
        let machines = self.ready["machines"].as_array().cloned().unwrap_or_default();
        machines.into_iter().find(|m| m["id"] == id).unwrap_or(Value::Null)
    }

    /// `redfish-virtualmedia+…` address of a machine's BMC.
    #[must_use]
    pub fn address(&self, id: &str) -> String {
        let machine = self.machine(id);
        let (redfish, system) =
            (machine["redfish"].as_str().unwrap_or_default(), machine["system"].as_str().unwrap_or_default());
        format!("redfish-virtualmedia+{redfish}{system}")
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.ready["control"].as_str().unwrap_or_default());
        let mut request = self.http.request(method, &url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.with_context(|| format!("ask the simulator {path}"))?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "the simulator answered {status} to {path}: {text}");
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).context("understand the simulator") }
    }

    /// GET of the control API.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(reqwest::Method::GET, path, None).await
    }

    /// POST of the control API.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.call(reqwest::Method::POST, path, Some(body)).await
    }

    /// Changes a machine's settings.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn settings(&self, id: &str, patch: Value) -> anyhow::Result<()> {
        self.call(reqwest::Method::PATCH, &format!("/machines/{id}/settings"), Some(patch)).await.map(|_| ())
    }

    /// Removes all faults of a machine.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn clear_faults(&self, id: &str) -> anyhow::Result<()> {
        self.call(reqwest::Method::DELETE, &format!("/machines/{id}/faults"), None).await.map(|_| ())
    }

    /// Cuts the streams of events that a machine's BMC has open.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn cut_streams(&self, id: &str) -> anyhow::Result<()> {
        self.call(reqwest::Method::DELETE, &format!("/machines/{id}/streams"), None).await.map(|_| ())
    }

    /// The file that is a machine's disk; one that cannot be opened when there is no such disk.
    #[must_use]
    pub fn disk(&self, id: &str, index: usize) -> PathBuf {
        let machine = self.machine(id);
        PathBuf::from(machine["disks"][index].as_str().unwrap_or_default())
    }

    /// What the simulator knows of a machine now.
    ///
    /// # Errors
    /// When the simulator refuses.
    pub async fn now(&self, id: &str) -> anyhow::Result<Value> {
        self.get(&format!("/machines/{id}")).await
    }

    /// Waits for a state of a machine; the simulator's events tell when to look.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait(
        &self,
        id: &str,
        seconds: u64,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        self.wait_for(id, "", seconds, what, wanted).await
    }

    /// Waits until requests to a machine's BMC are held by a fault.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_held(&self, id: &str, seconds: u64) -> anyhow::Result<()> {
        let held = |answer: &Value| answer["held"].as_array().is_some_and(|h| !h.is_empty());
        self.wait_for(id, "/held", seconds, "holding a request", held).await.map(|_| ())
    }

    async fn wait_for(
        &self,
        id: &str,
        part: &str,
        seconds: u64,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let path = format!("/machines/{id}{part}");
        let looking = async {
            let mut last = 0;
            loop {
                let state = self.get(&path).await?;
                if wanted(&state) {
                    return Ok(state);
                }
                let events = self.get(&format!("/events?after={last}&wait=5&machine={id}")).await?;
                last = events["last"].as_u64().unwrap_or(last);
            }
        };
        match tokio::time::timeout(Duration::from_secs(seconds), looking).await {
            Ok(result) => result,
            Err(_) => bail!("{id} is not {what} within {seconds} s: {}", self.get(&path).await?),
        }
    }
}
