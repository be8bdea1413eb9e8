//! What comes of reports is gathered and written together: a status is large, and who floods is no reason to write it twice a second.

use std::time::Duration;

use api::metamorph::{DiscoveredMachine, HostDiscoveryStatus, ReportedMachine};
use tokio::time::Instant;

use super::reception::Key;

/// How long rows are gathered.
const GATHERED: Duration = Duration::from_secs(5);
/// Most reports that are gathered.
const MAX_ANSWERS: usize = 32;

/// What a machine is told as soon as the status has it.
pub(super) struct Answer {
    pub key: Key,
    /// What it is told, and whether that is all.
    pub told: (String, bool),
    /// Its row: identity and digest.
    pub of: (String, String),
}

/// What is to be written of one HostDiscovery.
pub(super) struct Gathered {
    /// The machines, and how many hosts wait, where a BMC was asked.
    pub machines: Option<(Vec<DiscoveredMachine>, u32)>,
    pub reports: Vec<ReportedMachine>,
    pub answers: Vec<Answer>,
    /// When it is written.
    pub due: Instant,
}

impl Gathered {
    /// Nothing yet, beside the reports that are listed.
    pub(super) fn beside(reports: Vec<ReportedMachine>) -> Self {
        Self { machines: None, reports, answers: Vec::new(), due: Instant::now() + GATHERED }
    }

    /// Whether no more is to be gathered before it is written.
    pub(super) const fn is_full(&self) -> bool {
        self.answers.len() >= MAX_ANSWERS
    }

    /// The status with what is gathered.
    pub(super) fn put_into(&self, status: &mut HostDiscoveryStatus) {
        status.reports.clone_from(&self.reports);
        if let Some((machines, pending)) = &self.machines {
            (status.machines, status.pending) = (machines.clone(), *pending);
        }
    }
}
