//! The machine behind a BMC: it can be started with or without a medium, and ends on its own or by force.

pub mod child;
pub mod fake;
pub mod firmware;
pub mod linux_tree;
pub mod media_server;
pub mod nvram;
pub mod qemu;
pub mod qmp;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::media::Medium;

/// What the next boot is from.
#[derive(Clone)]
pub struct BootPlan {
    /// The medium in the drive, if the boot override asked for it.
    pub medium: Option<Arc<Medium>>,
    /// Whether the firmware checks signatures.
    pub secure_boot: bool,
    /// The boot's number, counted over the machine's life.
    pub number: u64,
}

/// The software that runs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Running {
    /// The power is off.
    Off,
    /// What was booted from the virtual medium.
    Medium,
    /// What was booted from a disk (QEMU: what the firmware found without a medium).
    Disk,
    /// Nothing: the firmware found nothing to boot.
    None,
    /// The machine is on, and its software has crashed.
    Hung,
}

/// How a machine's run ended on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It switched itself off.
    PowerOff,
    /// It asked for a reset.
    Reset,
    /// Its software crashed.
    Crashed(String),
}

/// What can be done to a running machine.
pub enum Command {
    /// Cut the power; answered when nothing runs any more.
    Kill(oneshot::Sender<()>),
    /// Press the power button: an orderly shutdown, if the software reacts.
    Button,
}

/// A running machine's process.
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Accepts commands while it runs.
    pub commands: mpsc::Sender<Command>,
    /// Reports once how it ended on its own.
    pub exit: oneshot::Receiver<Exit>,
}

/// A machine that was started.
pub struct Started {
    /// What runs.
    pub running: Running,
    /// Details for the control API: the command line, the disk that was booted, …
    pub detail: Value,
    /// The process, if the software needs one.
    pub process: Option<Process>,
}

/// Why a machine did not start, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file or folder of the machine.
    #[error("{what} {}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The program behind the machine.
    #[error("starting {}", program.display())]
    Spawn {
        /// Which program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// QEMU ended before it answered.
    #[error("QEMU ended at its start: {0}")]
    Qemu(String),
    /// QEMU's monitor.
    #[error("talking to QEMU's monitor")]
    Monitor(#[from] qmp::QmpError),
    /// A value that QEMU's command line cannot carry.
    #[error("the path {} contains a comma or is not text; QEMU cannot be given it", .0.display())]
    Path(PathBuf),
}

impl MachineError {
    /// Makes a `File` error of an IO error.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}

/// A kind of machine.
#[async_trait]
pub trait Machine: Send + Sync {
    /// Switches it on.
    ///
    /// # Errors
    /// What it needs is missing or did not start.
    async fn start(&self, plan: &BootPlan) -> Result<Started, MachineError>;

    /// Where its parts are: disks, serial console, firmware variables.
    fn parts(&self) -> Value;
}
