//! Why a call ends before it is done.

use provisioner::{Failure, Outcome, RecordError, Verdict, Waiting, Working};

/// What is answered instead of "done".
#[derive(Debug)]
pub enum Stop {
    /// It is under way.
    Working(Working),
    /// Something has to happen first.
    Waiting(Waiting),
    /// It failed.
    Failed(Failure),
}

/// A part of a call.
pub type Step<T> = Result<T, Stop>;

impl Stop {
    /// Under way, with the sentence and the seconds until the next look.
    pub fn working(step: impl Into<String>, look_again: std::time::Duration) -> Self {
        Self::Working(Working { step: step.into(), look_again, ..Working::default() })
    }

    /// The same, and the targets of the request are taken.
    pub fn accepted(self) -> Self {
        match self {
            Self::Working(working) => Self::Working(Working { accepted: true, ..working }),
            other => other,
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Failed(error.into())
    }
}

/// The answer that a call gives.
pub fn answer<T>(step: Step<T>) -> Outcome<T> {
    match step {
        Ok(value) => Ok(Verdict::Done(value)),
        Err(Stop::Working(working)) => Ok(Verdict::Working(working)),
        Err(Stop::Waiting(waiting)) => Ok(Verdict::Waiting(waiting)),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}
