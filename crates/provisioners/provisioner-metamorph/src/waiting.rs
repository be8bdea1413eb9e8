//! A report whose answer waits: what the answer depends on, and nothing of the report's content, which may be megabytes.

use agent_protocol::{AgentState, CommandId, Report};

/// What of a report its answer depends on.
pub struct Waiting {
    /// The host's uid.
    pub host: String,
    /// Boot generation.
    pub generation: u64,
    /// Kernel boot id.
    pub boot_id: String,
    /// Number of the report.
    pub sequence: u64,
    /// How long the agent waits, in seconds.
    pub seconds: u64,
    /// What the agent does.
    pub state: Activity,
}

/// What the agent does.
pub enum Activity {
    /// It waits for work.
    Idle,
    /// It works.
    Working,
    /// Its work is over, and the outcome waits to be acknowledged.
    Finished(CommandId),
}

impl Waiting {
    /// What remains of this report.
    pub fn of(report: Report) -> Self {
        let state = match report.state {
            AgentState::Idle => Activity::Idle,
            AgentState::Running { .. } => Activity::Working,
            AgentState::Finished { command, .. } => Activity::Finished(command),
        };
        let Report { host, generation, boot_id, sequence, wait_seconds: seconds, .. } = report;
        Self { host, generation, boot_id, sequence, seconds, state }
    }
}
