//! The fake machine: the real agent program as a process, over a made-up Linux tree with files as disks.
//!
//! The agent is started as `<agent> fake --root <tree> --medium <url>`. Its exit status selects what the machine does next:
//! 0 switches it off, 10 resets it; after any other, the machine stays on and nothing runs on it.

use std::{path::PathBuf, process::Stdio, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command as Program},
    sync::{mpsc, oneshot},
};

use crate::{
    config::MachineConfig,
    machine::{
        BootPlan, Command, Exit, Machine, MachineError, Process, Running, Started, child, firmware, linux_tree,
        media_server::{MediaServer, Served},
    },
};

/// The agent's exit status for a reset.
const EXIT_RESET: i32 = 10;

/// A fake machine.
pub struct FakeMachine {
    config: MachineConfig,
    folder: PathBuf,
    agent: PathBuf,
    environment: Vec<(String, String)>,
    media: Arc<MediaServer>,
}

impl FakeMachine {
    /// Creates the machine's tree and disks in `folder`, and keeps those of an earlier run.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn new(
        config: MachineConfig,
        folder: PathBuf,
        agent: PathBuf,
        environment: Vec<(String, String)>,
        media: Arc<MediaServer>,
    ) -> Result<Self, MachineError> {
        linux_tree::fabricate(&config, &folder.join("root"))?;
        Ok(Self { config, folder, agent, environment, media })
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    fn disk(&self, index: usize) -> PathBuf {
        self.root().join("dev").join(linux_tree::disk_name(&self.config, index))
    }

    fn boot_agent(&self, plan: &BootPlan, served: Served) -> Result<Started, MachineError> {
        let console = self.console();
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(&console);
        let output = open().map_err(MachineError::file("opening the console", &console))?;
        let errors = output.try_clone().map_err(MachineError::file("opening the console", &console))?;
        let mut program = Program::new(&self.agent);
        program.arg("fake").arg("--root").arg(self.root()).arg("--medium").arg(served.url());
        program.envs(self.environment.iter().map(|(key, value)| (key, value)));
        program.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child =
            child::spawn(&mut program).map_err(|source| MachineError::Spawn { program: self.agent.clone(), source })?;
        let (commands, receiver) = mpsc::channel(4);
        let (ended, exit) = oneshot::channel();
        let pid = child.id().unwrap_or_default();
        let detail = json!({ "boot": plan.number, "medium": served.url() });
        tokio::spawn(supervise(child, receiver, ended, served));
        Ok(Started { running: Running::Medium, detail, process: Some(Process { pid, commands, exit }) })
    }
}

#[async_trait]
impl Machine for FakeMachine {
    async fn start(&self, plan: &BootPlan) -> Result<Started, MachineError> {
        linux_tree::refresh(&self.root(), plan.secure_boot)?;
        if let Some(medium) = plan.medium.clone() {
            return self.boot_agent(plan, self.media.serve(medium));
        }
        let sizes = self.config.disks.iter().map(|disk| u64::from(disk.logical_sector_size));
        let disks: Vec<(PathBuf, u64)> = sizes.enumerate().map(|(index, size)| (self.disk(index), size)).collect();
        let efivars = linux_tree::efivars(&self.root());
        // Reading a few sectors of local files: short enough to do in place.
        let found = firmware::find_boot(&efivars, &disks);
        let running = if found.is_some() { Running::Disk } else { Running::None };
        let detail = json!({ "boot": plan.number, "from": found });
        Ok(Started { running, detail, process: None })
    }

    fn parts(&self) -> Value {
        let disks: Vec<PathBuf> = (0..self.config.disks.len()).map(|index| self.disk(index)).collect();
        json!({ "disks": disks, "serialConsole": self.console(), "root": self.root() })
    }
}

/// Waits for the agent's end, or ends it; the medium is served as long as it runs.
async fn supervise(
    mut child: Child,
    mut commands: mpsc::Receiver<Command>,
    ended: oneshot::Sender<Exit>,
    served: Served,
) {
    let exit = loop {
        tokio::select! {
            status = child.wait() => break match status {
                Ok(status) => match status.code() {
                    Some(0) => Exit::PowerOff,
                    Some(EXIT_RESET) => Exit::Reset,
                    _ if terminated(status) => Exit::PowerOff,
                    _ => Exit::Crashed(format!("the agent ended: {status}")),
                },
                Err(error) => Exit::Crashed(format!("the agent could not be waited for: {error}")),
            },
            command = commands.recv() => match command {
                Some(Command::Button) => child::terminate(&child),
                Some(Command::Kill(done)) => {
                    child::kill(&mut child).await;
                    drop(served);
                    // An error means that the caller no longer waits.
                    let _ = done.send(());
                    return;
                }
                None => {
                    child::kill(&mut child).await;
                    return;
                }
            },
        }
    };
    drop(served);
    // An error means that the power was cut at the same moment.
    let _ = ended.send(exit);
}

/// Whether the process ended by the signal of an orderly shutdown.
fn terminated(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::TERM.as_raw())
}
