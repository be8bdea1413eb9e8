//! The agent's life: report, obey, report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_protocol::{
    AgentState, CommandError, ErrorCode, HostConfig, Leave, MAX_WAIT_SECONDS, Outcome, PROTOCOL_VERSION,
};
use agent_protocol::{Command, Progress, Report};
use disk_image::Flow;
use inventory::MachineEvidence;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::backoff::Backoff;
use super::{Client, Ledger, LogRing, Next, Session};
use crate::commands::Runner;
use crate::text::chain;

/// Least time between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// Longest time without a report while a command runs.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A command under way.
struct Work {
    progress: watch::Receiver<Progress>,
    outcome: JoinHandle<Outcome>,
    /// It is to stop: the server has let the machine go.
    stop: Arc<AtomicBool>,
}

/// Everything that is the same in every report.
struct Agent<'a> {
    config: &'a HostConfig,
    client: Client,
    runner: Arc<Runner>,
    logs: LogRing,
    ledger: Ledger,
    boot_id: String,
    sequence: u64,
    session: Session,
    work: Option<Work>,
    /// The identity of the machine; checked again when the agent is idle, because disks may appear late.
    machine: MachineEvidence,
    backoff: Backoff,
}

/// Reports and executes directives until the server has acknowledged that the agent may leave the machine; returns how.
///
/// Failures are retried for ever: the agent has no alternative.
pub async fn run(config: &HostConfig, client: Client, runner: Arc<Runner>, logs: LogRing, ledger: Ledger) -> Leave {
    let boot_id = runner.boot_id();
    let agent = Agent {
        config,
        client,
        runner,
        logs,
        sequence: ledger.sequence_base(),
        ledger,
        session: Session::new(boot_id.clone()),
        boot_id,
        work: None,
        machine: MachineEvidence::default(),
        backoff: Backoff::new(),
    };
    agent.live().await
}

impl Agent<'_> {
    async fn live(mut self) -> Leave {
        loop {
            let (report, mark) = self.report();
            match self.client.exchange(&report, self.ledger.key()).await {
                Ok(directive) => {
                    self.logs.acknowledge(mark);
                    let unacknowledged = matches!(report.state, AgentState::Finished { .. });
                    match self.session.receive(directive) {
                        Next::Leave(how) => return how,
                        Next::Start(command) => self.start(*command),
                        Next::Report => {}
                        Next::Nothing if unacknowledged && *self.session.state() == report.state => {
                            let pause = self.backoff.pause();
                            tokio::time::sleep(pause).await;
                            continue;
                        }
                        Next::Nothing => {}
                    }
                    self.backoff.reset();
                    self.wait_for_work().await;
                }
                Err(error) => {
                    let pause = if error.is_refusal() { Backoff::refused() } else { self.backoff.pause() };
                    tracing::warn!("{}; trying again in {:.1} s", chain(&error), pause.as_secs_f64());
                    if error.is_dismissal() {
                        self.stop();
                    }
                    self.pause(pause).await;
                }
            }
        }
    }

    fn report(&mut self) -> (Report, u64) {
        self.sequence += 1;
        if let Some(work) = &mut self.work {
            self.session.progress(work.progress.borrow_and_update().clone());
        }
        if self.work.is_none() {
            self.machine = self.runner.evidence();
        }
        let (logs, mark) = self.logs.pending();
        let report = Report {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.config.host.clone(),
            generation: self.config.generation,
            boot_id: self.boot_id.clone(),
            sequence: self.sequence,
            state: self.session.state().clone(),
            machine: Some(self.machine.clone()),
            firmware: Some(self.runner.firmware()),
            wait_seconds: if self.work.is_some() { 0 } else { MAX_WAIT_SECONDS },
            logs,
        };
        (report, mark)
    }

    /// Starts a command, unless an earlier process of this boot has: then its outcome is unknown.
    fn start(&mut self, command: Command) {
        let refusal = if self.ledger.was_started(&command.id) {
            Some("the agent ended while it ran this command; what it had done by then is not known".to_owned())
        } else {
            self.ledger.start(&command.id).err().map(|error| format!("noting that the command begins failed: {error}"))
        };
        if let Some(message) = refusal {
            self.session.finish(Outcome::Failed(CommandError { code: ErrorCode::Internal, message, untouched: false }));
            return;
        }
        let id = &command.id;
        tracing::info!("begins {} of {}, attempt {}", id.step, id.operation, id.attempt);
        let (sender, progress) = watch::channel(Progress::default());
        let runner = self.runner.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let outcome = tokio::task::spawn_blocking(move || {
            runner.run(command.action, &|progress| {
                sender.send_replace(progress);
                if stopped.load(Ordering::Relaxed) { Flow::Cancel } else { Flow::Continue }
            })
        });
        self.work = Some(Work { progress, outcome, stop });
    }

    /// The server has let the machine go: whatever is being written or wiped is written and wiped no further.
    fn stop(&self) {
        if let Some(work) = &self.work
            && !work.stop.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("stops what it does: the server has let this machine go");
        }
    }

    fn finish(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        self.work = None;
        let outcome = outcome.unwrap_or_else(|error| {
            let message = format!("the agent failed while it ran the command: {error}");
            Outcome::Failed(CommandError { code: ErrorCode::Internal, message, untouched: false })
        });
        match &outcome {
            Outcome::Failed(error) => tracing::error!("failed: {}", error.message),
            _ => tracing::info!("done"),
        }
        self.session.finish(outcome);
    }

    /// Waits until the running command has news: its end at once, progress at most once a second.
    async fn wait_for_work(&mut self) {
        let Some(work) = &mut self.work else { return };
        let progress = &mut work.progress;
        let news = async {
            tokio::time::sleep(PROGRESS).await;
            // an error means that the command ends just now, which the other branch sees
            if let Ok(Err(_)) = tokio::time::timeout(HEARTBEAT - PROGRESS, progress.changed()).await {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            outcome = &mut work.outcome => self.finish(outcome),
            () = news => {}
        }
    }

    /// Pauses between attempts; a command's end ends the pause, for its outcome is waited for.
    async fn pause(&mut self, pause: Duration) {
        let Some(work) = &mut self.work else { return tokio::time::sleep(pause).await };
        tokio::select! {
            outcome = &mut work.outcome => self.finish(outcome),
            () = tokio::time::sleep(pause) => {}
        }
    }
}
