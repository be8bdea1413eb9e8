//! The transitions that an operation's record may take; others are refused.
//!
//! An operation begins once and ends once. A step's attempts count up, and each belongs to one boot of the agent. What is recorded as under way
//! or done never goes back.

use api::metamorph::{HostOperationStatus, OperationPhase, StepPhase};

use crate::steps::Step;

/// A change of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The step is about to have its effect.
    Intend {
        /// Attempt, from 1.
        attempt: u32,
        /// Boot of the agent that it is given to.
        boot_id: Option<&'a str>,
    },
    /// The step is done.
    Done,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The operation has ended.
    Ended(OperationPhase),
    /// Attempts count from 1, and up by one.
    Attempt {
        /// Recorded.
        recorded: u32,
        /// Asked for.
        asked: u32,
    },
    /// The attempt was given to another boot of the agent.
    AnotherBoot,
    /// The step has failed, which is final unless it is begun again.
    Failed,
    /// The step was never begun.
    NotBegun,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(phase) => write!(f, "the operation has ended ({phase:?})"),
            Self::Attempt { recorded, asked } => write!(f, "attempt {asked} cannot follow attempt {recorded}"),
            Self::AnotherBoot => f.write_str("the attempt was given to another boot of the agent"),
            Self::Failed => f.write_str("the step has failed"),
            Self::NotBegun => f.write_str("the step was never begun"),
        }
    }
}

/// Whether the record of `step` may take this change.
///
/// # Errors
/// Why not.
pub fn check(status: &HostOperationStatus, step: Step, change: Change<'_>) -> Result<(), Refused> {
    if status.phase.is_final() {
        return Err(Refused::Ended(status.phase));
    }
    let recorded = step.recorded(status);
    let before = recorded.attempt.unwrap_or(0);
    match change {
        Change::Intend { attempt, boot_id } => {
            let anew = before.checked_add(1) == Some(attempt);
            // Once more, after a wait: for the same boot, if for any.
            // An agent that hangs may be given up by force, and is booted once more.
            let again = attempt == before
                && attempt > 0
                && (recorded.phase == StepPhase::Running
                    || recorded.phase == StepPhase::Done && step == Step::BootAgent);
            match (anew, again) {
                (true, _) => Ok(()),
                (false, true) if recorded.boot_id.as_deref() == boot_id => Ok(()),
                (false, true) => Err(Refused::AnotherBoot),
                (false, false) => Err(Refused::Attempt { recorded: before, asked: attempt }),
            }
        }
        Change::Done => match recorded.phase {
            StepPhase::Running | StepPhase::Done => Ok(()),
            // The agent may have been booted by an earlier operation.
            StepPhase::Pending | StepPhase::Failed if step == Step::BootAgent => Ok(()),
            StepPhase::Pending => Err(Refused::NotBegun),
            StepPhase::Failed => Err(Refused::Failed),
        },
    }
}

/// Whether an operation may go from phase to phase.
#[must_use]
pub fn may_become(from: OperationPhase, to: OperationPhase) -> bool {
    use OperationPhase::{Cancelled, Failed, Pending, Running, Succeeded};
    match (from, to) {
        (Pending, Running | Failed | Cancelled) | (Running, Running | Succeeded | Failed | Cancelled) => true,
        (Pending, Pending | Succeeded) | (Running, Pending) => false,
        (Succeeded | Failed | Cancelled, _) => false,
    }
}
