//! What comes of reports is gathered and written together: a status is large, and who floods is no reason to write it twice a second.

use std::time::Duration;

use api::metamorph::{DiscoveredMachine, HostDiscoveryStatus, ReportedMachine};
use tokio::time::Instant;

use super::reception::Key as ReportKey;
use super::{All, Key, One};

/// How long rows are gathered.
const GATHERED: Duration = Duration::from_secs(5);
/// Most reports that are gathered.
const MAX_ANSWERS: usize = 32;

/// What a machine is told as soon as the status has it.
pub(super) struct Answer {
    pub key: ReportKey,
    /// What it is told, and whether that is all.
    pub told: (String, bool),
    /// Its row: identity and digest.
    pub of: (String, String),
}

/// What is to be written of one HostDiscovery.
pub(super) struct Gathered {
    /// The machines, and how many hosts wait, where a BMC was asked.
    machines: Option<(Vec<DiscoveredMachine>, u32)>,
    reports: Vec<ReportedMachine>,
    answers: Vec<Answer>,
    /// When it is written.
    pub due: Instant,
}

impl One {
    /// The machines as they are listed, or are to be.
    pub(super) fn machines(&self) -> &[DiscoveredMachine] {
        let gathered = self.gathered.as_ref().and_then(|gathered| gathered.machines.as_ref());
        let listed = || self.object.status.as_ref().map_or(&[][..], |status| &status.machines);
        gathered.map_or_else(listed, |(machines, _)| machines)
    }

    /// The status with what is to be written of reports.
    pub(super) fn status(&self) -> HostDiscoveryStatus {
        let mut status = self.object.status.clone().unwrap_or_default();
        if let Some(gathered) = &self.gathered {
            status.reports.clone_from(&gathered.reports);
            if let Some((machines, pending)) = &gathered.machines {
                (status.machines, status.pending) = (machines.clone(), *pending);
            }
        }
        status
    }
}

impl All {
    /// Notes what has come of a report. It is written soon; at once, where a host was made: that is to be remembered.
    pub(super) async fn gather(
        &mut self,
        key: &Key,
        row: ReportedMachine,
        machines: Option<(Vec<DiscoveredMachine>, u32)>,
        (answer, at_once): (Answer, bool),
    ) {
        let Some(one) = self.of.get_mut(key) else {
            self.reception.give_up(&answer.key);
            return;
        };
        let before = one.object.status.as_ref().map(|status| status.reports.clone()).unwrap_or_default();
        let machines = machines.map(|(machines, pending)| (discovery::as_listed(one.machines(), machines), pending));
        self.reception.decided(&answer.key);
        let gathered = one.gathered.get_or_insert_with(|| Gathered {
            machines: None,
            reports: before,
            answers: Vec::new(),
            due: Instant::now() + GATHERED,
        });
        gathered.reports = discovery::listed(&gathered.reports, row);
        gathered.machines = machines.or_else(|| gathered.machines.take());
        gathered.answers.push(answer);
        let is_full = gathered.answers.len() >= MAX_ANSWERS;
        // Where nothing has changed nothing is written, and the machine is told at once.
        let status = one.status();
        if at_once || is_full || one.object.status.as_ref() == Some(&status) {
            self.put_status(key, status).await;
        }
    }

    /// Writes what has been gathered for long enough.
    pub(super) async fn write_gathered(&mut self, now: Instant) {
        let is_due = |one: &One| one.gathered.as_ref().is_some_and(|gathered| gathered.due <= now);
        let due: Vec<Key> = self.of.iter().filter(|(_, one)| is_due(one)).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(status) = self.of.get(&key).map(One::status) {
                self.put_status(&key, status).await;
            }
        }
    }

    /// A status was written, without these rows: the machines are told.
    pub(super) fn settle(&mut self, key: &Key, refused: &[ReportedMachine]) {
        let Some(gathered) = self.of.get_mut(key).and_then(|one| one.gathered.take()) else { return };
        for Answer { key, told: (text, is_last), of } in gathered.answers {
            if refused.iter().any(|row| row.identity == of.0 && row.digest == of.1) {
                self.reception.settle(&key, "the report cannot be kept: its HostDiscovery's Events say why", false);
            } else {
                self.reception.settle(&key, &text, is_last);
            }
        }
    }

    /// A status was not written: without one it is not remembered what was made, and the machines report again.
    pub(super) fn give_up(&mut self, key: &Key) {
        let Some(gathered) = self.of.get_mut(key).and_then(|one| one.gathered.take()) else { return };
        gathered.answers.iter().for_each(|answer| self.reception.give_up(&answer.key));
    }
}
