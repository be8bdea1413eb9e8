//! The simulator in a process of its own: virtual BMCs in front of QEMU machines.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cli::Demo;

/// How long the simulator may take to become ready.
const READY: Duration = Duration::from_secs(20);

/// The simulator's message when it is ready.
#[derive(Debug, Deserialize)]
struct Ready {
    machines: Vec<ReadyMachine>,
}

/// One machine in that message.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyMachine {
    /// Name.
    pub id: String,
    /// Base address of the BMC.
    pub redfish: String,
    /// Path of the system.
    pub system: String,
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// Hardware address of the first network interface.
    pub mac: String,
    /// File that the serial console goes to.
    #[serde(default)]
    pub serial_console: Option<PathBuf>,
}

/// The running simulator.
pub struct SimulatorProcess {
    child: Child,
    ready: Ready,
}

impl SimulatorProcess {
    /// Starts it with the demo's machines.
    pub async fn start(options: &Demo, folder: &Path) -> anyhow::Result<Self> {
        let program = match &options.bmc_sim {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("find this program")?.with_file_name("bmc-sim"),
        };
        let config = folder.join("simulator.json");
        let machine = |index: u16| {
            json!({
                "id": format!("node-{index}"), "kind": "qemu", "memoryMib": 1024,
                "disks": [{ "sizeBytes": 8_u64 << 30, "bus": "virtio" }],
            })
        };
        let machines: Vec<_> = (0..options.machines).map(machine).collect();
        let text = json!({ "machines": machines, "stateDir": folder.join("machines") }).to_string();
        std::fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let log = std::fs::File::create(folder.join("bmc-sim.log")).context("make the simulator's log")?;
        let mut child = Command::new(&program)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            // Only the demo receives Ctrl-C from the terminal; it stops the simulator last.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start the simulator {}", program.display()))?;
        let stdout = child.stdout.take().context("read what the simulator says")?;
        let mut line = String::new();
        let read = tokio::time::timeout(READY, BufReader::new(stdout).read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(n)) if n > 0) {
            bail!("the simulator did not get ready; see {}", folder.join("bmc-sim.log").display());
        }
        let ready = serde_json::from_str(&line).context("understand what the simulator says")?;
        Ok(Self { child, ready })
    }

    /// The machines.
    pub fn machines(&self) -> &[ReadyMachine] {
        &self.ready.machines
    }

    /// File with the machine's serial console.
    pub fn console(&self, name: &str) -> PathBuf {
        let found = self.ready.machines.iter().find(|m| m.id == name);
        found.and_then(|m| m.serial_console.clone()).unwrap_or_default()
    }

    /// Ends it and its machines.
    pub async fn stop(&mut self) {
        if let Some(pid) =
            self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
        {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}
