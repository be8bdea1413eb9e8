//! The server's commands, run on a machine.

mod download;
mod erase;
mod failure;
mod inspect;
mod marks;
mod runner;
mod shared;
mod wipe;
mod write;

use agent_protocol::{Action, CommandError, ErrorCode, Outcome, WriteImage};

pub use runner::Runner;
pub use shared::Tell;

impl Runner {
    /// Runs an action to its end, or until `report` says to stop. Blocks: not to be called on a thread of the runtime.
    pub fn run(&self, action: Action, report: Tell<'_>) -> Outcome {
        if matches!(action, Action::ListSteps | Action::RunStep(_)) {
            let message = "this agent has no steps of hardware managers; ironic-python-agent has".to_owned();
            return Outcome::Failed(CommandError { code: ErrorCode::Refused, message, untouched: true });
        }
        if let Some(listener) = self.listener.as_ref().filter(|_| action != Action::Inspect) {
            listener.end();
        }
        let result = match action {
            Action::Inspect => inspect::inspect(self, report),
            Action::WriteImage(command) => write::write(self, &command, None, report),
            Action::WipeDisks(command) => wipe::wipe(self, &command, report),
            Action::EraseDisks(command) => erase::erase(self, &command, report),
            // the session performs the leave
            Action::Leave { .. } | Action::ListSteps | Action::RunStep(_) => Ok(Outcome::Leaving),
        };
        result.unwrap_or_else(|failure| Outcome::Failed(failure.into()))
    }

    /// Like [`Runner::run`] with [`Action::WriteImage`], with a config drive that is a volume already (ISO 9660, as Ironic sends one).
    pub fn write(&self, command: &WriteImage, volume: Option<Vec<u8>>, report: Tell<'_>) -> Outcome {
        let result = write::write(self, command, volume, report);
        result.unwrap_or_else(|failure| Outcome::Failed(failure.into()))
    }
}
