//! What is known of one host's agent: its last report, the boot that it is bound to, the order that it should have.

use std::sync::Arc;

use agent_protocol::{AgentState, Command, CommandId, FirmwareState, Outcome, Progress};
use boot_media::AgentKind;
use inventory::MachineEvidence;
use provisioner::{HostKey, Record};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::limits::Budget;
use crate::said::Said;

/// How many acknowledged commands are remembered a host.
const MAX_ACKNOWLEDGED: usize = 16;

/// Longest that one command of an agent which keeps a list of them may run.
pub const LONGEST: Duration = Duration::from_secs(4 * 3600);

/// What is known of one host's agent.
#[derive(Default)]
pub struct Slot {
    pub key: Option<HostKey>,
    /// Generation that counts; reports of an older one are refused.
    pub generation: Option<u64>,
    /// Number of the key that it is derived from.
    pub root: Option<u32>,
    pub agent: Option<Agent>,
    /// Newest generation of which an agent has reported to this process.
    pub seen: Option<u64>,
    /// The agent of a new boot has reported since the host's work was last tried.
    pub arrived: bool,
    /// When such news was last used up.
    pub news_acknowledged: Option<Instant>,
    pub command: Option<Order>,
    pub acknowledged: Vec<CommandId>,
    /// The first boot that reported for the newest generation: no other may.
    pub bound: Option<Bound>,
    /// The work of the generation has ended: its agent may only be told to leave.
    pub retired: bool,
    /// When the host was let go in the middle of work: its agent is still told to stop.
    pub let_go: Option<Instant>,
    /// When another boot, or a party with another key, last reported for the generation.
    pub contested: Option<Instant>,
    /// Since when an agent in work has been silent for too long.
    pub overdue: Option<Instant>,
    /// What is left of the agent's budget for reports.
    pub budget: Budget,
    /// What its agents have written.
    pub said: Said,
    /// Reports of the host's agent that are being read now.
    pub reading: Arc<()>,
    /// Orders that are being sent to it.
    pub sending: Arc<()>,
    /// Wakes this agent's reports that are being held open.
    pub changed: Arc<Notify>,
}

impl Slot {
    /// The agent has been told that it may leave.
    pub fn leaves(&self) -> bool {
        match self.agent.as_ref().map(|a| &a.state) {
            Some(AgentState::Finished { command, outcome: Outcome::Leaving }) => self.acknowledged.contains(command),
            _ => false,
        }
    }

    pub fn acknowledge(&mut self, id: &CommandId) {
        if self.acknowledged.contains(id) {
            return;
        }
        if self.acknowledged.len() >= MAX_ACKNOWLEDGED {
            self.acknowledged.remove(0);
        }
        self.acknowledged.push(id.clone());
        if self.command.as_ref().is_some_and(|order| order.command.id == *id) {
            self.command = None;
        }
    }
}

/// A command that waits until its agent asks for work.
#[derive(Clone)]
pub struct Order {
    pub command: Command,
    /// Where to ask whether the host still wishes it.
    pub record: Arc<dyn Record>,
    /// When the host was last known to wish it.
    pub wished: Instant,
}

/// A boot of the agent: by the kernel's id, and by the key that it has made (its digest; agents of protocol 1 make none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub generation: u64,
    pub boot_id: String,
    pub key: Option<String>,
}

/// What reports in the name of ironic-python-agent give as its version.
pub const IRONIC_PYTHON_AGENT: &str = "ironic-python-agent";

/// Which agent gives this as its version.
pub fn kind_of(version: &str) -> AgentKind {
    if version == IRONIC_PYTHON_AGENT { AgentKind::IronicPythonAgent } else { AgentKind::Metamorph }
}

/// The last report.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Boot generation.
    pub generation: u64,
    /// Kernel boot id.
    pub boot_id: String,
    /// SHA-256 of its key.
    pub key_digest: Option<String>,
    /// Which agent it is.
    pub kind: AgentKind,
    /// Version of the protocol that it speaks.
    pub protocol: u32,
    /// How the firmware has started it.
    pub firmware: Option<FirmwareState>,
    /// State.
    pub state: AgentState,
    /// On which machine it runs, as far as it says.
    pub machine: Option<MachineEvidence>,
    /// The command in the answer: until the next report, it is unknown whether the agent has begun.
    pub given: Option<CommandId>,
    /// What its own list of commands has told, of an agent that keeps one.
    pub listed: Option<Listed>,
    /// When it came.
    pub seen: Instant,
    /// Reports being held open now.
    pub holding: u32,
    pub sequence: u64,
}

/// What an agent's own list of commands has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// When it was read.
    pub read: Instant,
    /// Since when it has had a command that runs.
    pub runs: Option<Instant>,
}

impl Listed {
    /// As it is now; a command that ran before and still does has run since then.
    pub fn now(read: Instant, runs: bool, before: Option<Self>) -> Self {
        Self { read, runs: runs.then(|| before.and_then(|before| before.runs).unwrap_or(read)) }
    }
}

impl Agent {
    /// Whether it is at a command, by its report or by its own list: another process may have given it what no report to this one names. What was read
    /// before `since` is no answer: the command may have been given after that.
    pub fn is_at_work(&self, since: Option<Instant>) -> bool {
        match (&self.state, self.listed) {
            (AgentState::Running { .. }, _) => true,
            (AgentState::Idle, Some(listed)) => {
                let is_old = since.is_some_and(|since| listed.read < since);
                is_old || listed.runs.is_some_and(|begun| begun.elapsed() < LONGEST)
            }
            _ => false,
        }
    }
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandState {
    /// Given, not begun.
    Given,
    /// Under way.
    Running(Progress),
    /// Ended; not yet acknowledged.
    Finished(Outcome),
}

/// Why a report is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The host has been booted again since, or the boot's work has ended.
    Superseded,
    /// The generation is another boot's.
    Contested,
    /// The generation is derived from another key.
    AnotherKey,
    /// The host is not known, or not yet.
    Unknown,
    /// More reports than an agent needs.
    TooMany,
    /// An older report than one already seen.
    Stale,
}
