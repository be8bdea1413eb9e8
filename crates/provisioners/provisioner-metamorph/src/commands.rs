//! Giving the agent a command: intent first, the same attempt only to the same boot.

use agent_protocol::{Action, Command, CommandId, Outcome as AgentOutcome, Phase, Progress};
use provisioner::{Cause, Failure, Working};
use provisioning_plan::steps::{self, Step};
use tokio::time::{Duration, Instant};

use crate::host::NativeHost;
use crate::hub::CommandState;
use crate::journal::{Operation, StepProgress};
use crate::record::intend;

/// Where a command is.
pub enum Ran {
    /// Not ended.
    Working(Working),
    /// Ended with this outcome; to be acknowledged when it is persisted.
    Finished(CommandId, AgentOutcome),
}

impl NativeHost {
    /// Whether the agent of this boot has begun with this step's order, or ended it: what it holds is not read again then.
    pub fn is_with_agent(&self, operation: &Operation, step: Step, boot_id: &str) -> bool {
        match steps::command(&step.recorded(operation.status()), boot_id) {
            steps::Command::Give(_) => false,
            steps::Command::Look(attempt) => {
                let (operation, step) = (operation.id(), step.name().to_owned());
                let id = CommandId { operation, step, attempt, boot_id: boot_id.to_owned() };
                self.shared.hub.has_begun(self.uid(), &id)
            }
        }
    }

    /// Gives `action` to the agent of this boot as `step` of the operation, or looks what has become of it.
    pub async fn run(
        &self,
        operation: &mut Operation,
        step: Step,
        boot_id: &str,
        action: Action,
    ) -> Result<Ran, Failure> {
        let asked = steps::command(&step.recorded(operation.status()), boot_id);
        let attempt = match asked {
            steps::Command::Look(attempt) => attempt,
            steps::Command::Give(attempt) => {
                intend(operation, step, attempt, Some(boot_id)).await?;
                attempt
            }
        };
        let step = step.name();
        let id = CommandId { operation: operation.id(), step: step.to_owned(), attempt, boot_id: boot_id.to_owned() };
        if let steps::Command::Look(_) = asked
            && !self.shared.hub.has_begun(self.uid(), &id)
            && let Err(failure) = self.still_wanted().await
        {
            self.shared.hub.take_back(self.uid(), &id);
            return Err(failure);
        }
        let command = Command { id: id.clone(), action };
        let working = |text: String, percent: Option<u8>| {
            Ran::Working(Working { step: text, percent, look_again: Duration::from_secs(15), ..Working::default() })
        };
        let state = self.shared.hub.command(self.uid(), command, &self.context.record);
        self.watch_for_stall(&id, &state)?;
        match state {
            CommandState::Given => Ok(working(format!("{step}: given to the agent"), None)),
            CommandState::Running(progress) => {
                let text = sentence(&progress);
                operation
                    .progress(
                        step,
                        StepProgress {
                            percent: Some(u32::from(progress.percent.min(100))),
                            bytes: (progress.bytes > 0).then_some(progress.bytes),
                            total_bytes: progress.total_bytes,
                            message: text.clone(),
                        },
                    )
                    .await;
                Ok(working(format!("{step}: {text}"), Some(progress.percent.min(100))))
            }
            CommandState::Finished(outcome) => Ok(Ran::Finished(id, outcome)),
        }
    }
}

impl NativeHost {
    /// A command that shows nothing new for too long has hung: a disk that does not answer, a download that trickles.
    fn watch_for_stall(&self, id: &CommandId, state: &CommandState) -> Result<(), Failure> {
        let step = &id.step;
        if matches!(state, CommandState::Finished(_)) {
            // What is waited for is not the agent, and what comes next has shown nothing yet.
            self.live.timers().progress = None;
            return Ok(());
        }
        let progress = format!("{step} {state:?}");
        let progress = format!("{} {} {progress}", id.operation, id.attempt);
        let mut timers = self.live.timers();
        let limit = self.shared.settings.timing.stall;
        match &timers.progress {
            Some((before, since)) if *before == progress && since.elapsed() >= limit => {
                timers.progress = None;
                let text = format!("{step}: nothing has changed for {} s", limit.as_secs());
                Err(Failure::new(Cause::HardwareFailed, text)
                    .advise("look at the machine's disks and at the image's server; it is tried again"))
            }
            Some((before, _)) if *before == progress => Ok(()),
            _ => {
                timers.progress = Some((progress, Instant::now()));
                Ok(())
            }
        }
    }
}

fn sentence(progress: &Progress) -> String {
    let what = match progress.phase {
        Phase::Starting => "starting",
        Phase::Writing => "writing the image",
        Phase::Finishing => "image verified; partition table, config drive and mark",
        Phase::BootEntry => "making the boot entry",
        Phase::Wiping => "removing signatures",
        Phase::Inspecting => "looking at the hardware",
        Phase::Erasing => "erasing disks",
        Phase::Stepping => "running the hardware manager's step",
    };
    let from = if progress.source.is_empty() { String::new() } else { format!(" from {}", progress.source) };
    match progress.total_bytes {
        Some(total) if progress.bytes > 0 => {
            format!("{what}: {} of {} MB{from}", progress.bytes / 1_000_000, total / 1_000_000)
        }
        _ if progress.bytes > 0 => format!("{what}: {} MB{from}", progress.bytes / 1_000_000),
        _ => what.to_owned(),
    }
}
