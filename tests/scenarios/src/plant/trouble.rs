//! What goes wrong on a machine where its BMC sees nothing of it.

use std::sync::{Arc, Mutex};

use agent_protocol::{Action, CommandError, LogLine, Outcome};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use inventory::{MachineEvidence, Nic, Storage};
use serde::Deserialize;
use tower::ServiceExt as _;

use super::finished::finished;
use super::{MEDIA, Machine, Plant, Runs};
use crate::parts::{disk, evidence};

/// What a machine is made of.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub evidence: MachineEvidence,
    pub disks: Vec<Storage>,
    pub nics: Vec<Nic>,
}

/// How far a machine comes with the medium that it is started from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The agent runs.
    #[default]
    Agent,
    /// It reads nothing of it.
    Unread,
    /// It reads the beginning of it.
    Begun,
    /// It reads all of it, and no agent is heard.
    Silent,
}

/// What goes wrong on a machine where its BMC sees nothing of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Trouble {
    /// How far it comes with the medium.
    pub start: Start,
    /// Work of the agent that fails: `inspect`, `write`, `wipe` or `erase`.
    pub work: String,
    /// How it fails.
    pub fails: Option<CommandError>,
    /// The agent does not say on which machine it runs: it finds neither UUID, serial number, MAC addresses nor disks to show.
    pub nameless: bool,
    /// What the agent writes to its log, in each report.
    pub says: Vec<String>,
}

impl Plant {
    /// Another machine of the same server.
    pub(super) fn another(&self, made: Made) -> Self {
        let machine = Arc::new(Mutex::new(Machine { made: Some(made), ..Machine::default() }));
        Self { machine, ..self.clone() }
    }

    /// The machine is off.
    pub(super) fn off(&self) {
        let mut machine = self.lock();
        (machine.boots_at, machine.done_at) = (None, None);
        (machine.is.agent, machine.is.work, machine.is.over) = (None, None, None);
        machine.is.runs = Runs::Nothing;
        if let Some(task) = machine.task.take() {
            task.abort();
        }
    }

    /// What the agent's report shows of the machine, and its log.
    pub(super) fn shows(&self) -> (MachineEvidence, Vec<LogLine>) {
        let machine = self.lock();
        let shown = match &machine.made {
            _ if machine.trouble.nameless => MachineEvidence::default(),
            Some(made) => made.evidence.clone(),
            None => evidence(machine.second),
        };
        let line = |text: &String| LogLine { uptime_ms: 1, level: "error".to_owned(), text: text.clone() };
        (shown, machine.trouble.says.iter().map(line).collect())
    }

    /// What a BMC is answered that reads a medium.
    pub(super) async fn media(&self, request: Request<Body>) -> axum::response::Response {
        let routers = self.server.borrow().routers.clone();
        match routers {
            Some((media, _)) => media.oneshot(request).await.unwrap(),
            None => axum::response::IntoResponse::into_response(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    /// The BMC reads the beginning of what is in the drive that the machine boots from.
    pub async fn bmc_reads(&self) {
        if let Some(url) = self.boot_medium() {
            self.read_beginning(&url).await;
        }
    }

    /// The first bytes of the medium at this address.
    pub(super) async fn read_beginning(&self, url: &str) {
        if let Some(path) = url.strip_prefix(MEDIA) {
            self.ask(false, || Request::get(path).header("range", "bytes=0-4095").body(Body::empty()).unwrap()).await;
        }
    }
}

/// Work of the agent is done, or has failed.
pub(super) fn ended(machine: &mut Machine, action: &Action) -> Outcome {
    let name = match action {
        Action::Inspect => "inspect",
        Action::WriteImage(_) => "write",
        Action::WipeDisks(_) => "wipe",
        Action::EraseDisks(_) => "erase",
        Action::ListSteps | Action::RunStep(_) | Action::Leave { .. } => "",
    };
    if let Some(error) = machine.trouble.fails.as_ref().filter(|_| !name.is_empty() && machine.trouble.work == name) {
        return Outcome::Failed(error.clone());
    }
    let Some(made) = machine.made.clone() else { return finished(&mut machine.is, &[disk()], &[], action) };
    finished(&mut machine.is, &made.disks, &made.nics, action)
}
