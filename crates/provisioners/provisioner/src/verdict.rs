//! What a call is answered with, if it did not fail.

use std::time::Duration;

use api::metal3::BootFormat;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Answer of a call that did not fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict<T> {
    /// Done.
    Done(T),
    /// Begun, and not done yet.
    Working(Working),
    /// Not begun: something else has to happen first. It is no failed attempt.
    Waiting(Waiting),
}

/// Under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Working {
    /// What is being done or waited for, a sentence.
    pub step: String,
    /// 0 to 100, if the step can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Bytes moved in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The targets of the request are the machine's business from now on: they are saved as the host's (baremetal-operator's `started`), and of
    /// volumes, that those before count no longer. Of a request with `force_reboot`: the boot that it asks for is under way.
    #[serde(default)]
    pub accepted: bool,
    /// Look again at the latest after this time; a wake-up may come sooner.
    pub look_again: Duration,
}

/// What has to happen before the work can begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// The provisioner has as much to do as it can: the host is `delayed` (Ironic's limits; a native server's boots and image streams).
    Busy {
        /// What is exhausted, a clause.
        reason: String,
        /// Look again at the latest after this time.
        look_again: Duration,
    },
    /// The provisioner does not know the machine any more (its own store was lost): the host is registered again, and then asked again.
    Registration {
        /// What was found, a clause.
        reason: String,
    },
    /// A system to boot has to be built for this host first: a PreprovisioningImage.
    AgentImage {
        /// Formats that fit, the best first.
        formats: Vec<BootFormat>,
    },
}

impl<T> Verdict<T> {
    /// Working, with the sentence and the time in seconds.
    #[must_use]
    pub fn working(step: impl Into<String>, seconds: u64) -> Self {
        Self::Working(Working { step: step.into(), look_again: Duration::from_secs(seconds), ..Working::default() })
    }

    /// The same, if it is not done; else what `done` makes of the result.
    pub fn map<U>(self, done: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Self::Done(value) => Verdict::Done(done(value)),
            Self::Working(working) => Verdict::Working(working),
            Self::Waiting(waiting) => Verdict::Waiting(waiting),
        }
    }

    /// The result, or else why there is none yet, as the answer to another call.
    ///
    /// # Errors
    /// The verdict, if it is not [`Verdict::Done`].
    pub fn done<U>(self) -> Result<T, Verdict<U>> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Working(working) => Err(Verdict::Working(working)),
            Self::Waiting(waiting) => Err(Verdict::Waiting(waiting)),
        }
    }
}

/// Answer of a call.
pub type Outcome<T> = Result<Verdict<T>, Failure>;
