//! What a decision is made from: the object, what was read beside it, the settings and the time.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api::metal3::{BareMetalHost, BareMetalHostStatus};
use api::metamorph::{AgentStep, EraseOptions};
use inventory::HardwareDetails;
use jiff::Timestamp;
use terms::HealthLevel;

use crate::children::Children;
use crate::served::Served;

/// Everything a decision may depend on.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The host as last read.
    pub host: &'a BareMetalHost,
    /// `spec.hardware` of the HardwareData of the same name, if there is one.
    pub hardware_data: Option<&'a Arc<HardwareDetails>>,
    /// The objects beside it.
    pub children: Children<'a>,
    /// What became of reading the Secret that `spec.bmc.credentialsName` names.
    pub credentials: Credentials<'a>,
    /// When this process last tried to read the machine's firmware, if it has.
    pub firmware_read: Option<Timestamp>,
    /// Whether it has tried so since the wishes of HostFirmwareSettings and HostFirmwareComponents are what they are.
    pub firmware_tried: bool,
    /// When this process last asked for the medium of the DataImage as it is now, if it has.
    pub media_seen: Option<Timestamp>,
    /// How the machine was when its BMC was last asked.
    pub health: HealthHeard,
    /// The machine has shown a sign of life that failed work may have been waiting for.
    pub news: bool,
    /// A request that has not ended asks for the host's rebuild, as its annotation says.
    pub rebuild: bool,
    /// What a request that has not ended asks to be erased, as the host's annotation says.
    pub erase: Option<&'a EraseOptions>,
    /// Which steps of hardware managers a request that has not ended asks for, as the host's annotation says; none are only listed.
    pub steps: Option<&'a [AgentStep]>,
    /// What this process has heard of the work that is done in the host's state.
    pub heard: Heard<'a>,
    /// Settings of the server.
    pub settings: &'a Settings,
    /// The time.
    pub now: Timestamp,
}

/// What a machine's BMC says of its health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthHeard {
    /// This process has not asked it: what the host says stays.
    #[default]
    Unasked,
    /// It says nothing.
    Silence,
    /// This.
    Level(HealthLevel),
}

/// What this process has heard of a host's work: the next one begins with nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard<'a> {
    /// What is being done or waited for, a sentence, and how much of it is done, 0 to 100, if that is known.
    pub step: Option<(&'a str, Option<u8>)>,
    /// Until when nobody was to work on it: it waited for its turn, was paused or frozen, or no process saw to it.
    pub waited: Option<Timestamp>,
    /// An Event has told that the host is in its state for longer than it should be.
    pub told_late: bool,
}

/// The BMC's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// The host names no Secret.
    NotNeeded,
    /// The Secret does not exist.
    Missing {
        /// Name of the Secret.
        name: &'a str,
    },
    /// The server may not read the Secret.
    Forbidden {
        /// Name of the Secret.
        name: &'a str,
    },
    /// The Secret exists and cannot be used.
    Invalid {
        /// Name of the Secret.
        name: &'a str,
        /// What is wrong with it, a clause such as "has no password".
        what: String,
    },
    /// User and password are there, neither empty after trimming white space.
    Present {
        /// Name of the Secret.
        name: &'a str,
        /// Its namespace.
        namespace: &'a str,
        /// Its resourceVersion.
        resource_version: &'a str,
        /// Others under which this same Secret held the same user and password: each write to it makes a new one, a claim by another host too.
        same: &'a [String],
    },
}

/// Settings of the server that the life cycle depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Failed attempts to provision the same image after which no more are made; 0 is unlimited.
    pub max_provisioning_retries: u32,
    /// How often the power of a settled host is looked at.
    pub steady_state_poll: Duration,
    /// How often an unmanaged or detached host is looked at.
    pub unmanaged_poll: Duration,
    /// How soon a missing Secret is looked for again, in case no event tells of it.
    pub secret_poll: Duration,
    /// How old what is known of the firmware of an available host may get.
    pub facts_poll: Duration,
    /// How soon an image that somebody else builds is looked at again, in case no event tells of it.
    pub image_poll: Duration,
    /// Unit of the back-off: the n-th failure in a row is retried after this times 2 to the power of min(n, 9), less up to half.
    pub backoff_unit: Duration,
    /// Work that has failed before this moment is done again without waiting, as if whoever asks for it had just come.
    pub anew_since: Option<Timestamp>,
    /// What the provisioner serves.
    pub served: Served,
}

impl Default for Settings {
    /// Upstream's figures (baremetal-operator `baremetalhost_controller.go`, flag `--max-provisioning-retries`).
    fn default() -> Self {
        Self {
            max_provisioning_retries: 5,
            steady_state_poll: Duration::from_secs(60),
            unmanaged_poll: Duration::from_secs(600),
            secret_poll: Duration::from_secs(10),
            facts_poll: Duration::from_secs(300),
            image_poll: Duration::from_secs(300),
            backoff_unit: Duration::from_secs(60),
            anew_since: None,
            served: Served::default(),
        }
    }
}

/// Whether a server has registered the host, or begun to, since it was made. The times of a status that was restored are older than its host, and so may be
/// all that it tells.
#[must_use]
pub fn is_registered_since_made(host: &BareMetalHost) -> bool {
    let (Some(status), Some(made)) = (&host.status, &host.metadata.creation_timestamp) else { return true };
    let register = &status.operation_history.register;
    [&register.start, &register.end].into_iter().flatten().any(|time| time.0 >= made.0)
}

impl<'a> View<'a> {
    /// The status, empty if the host has none yet.
    pub(crate) fn status(&self) -> &'a BareMetalHostStatus {
        static NONE: LazyLock<BareMetalHostStatus> = LazyLock::new(BareMetalHostStatus::default);
        self.host.status.as_ref().unwrap_or(&NONE)
    }

    /// What is to be erased, where that is served.
    pub(crate) fn erasure(&self) -> Option<&'a EraseOptions> {
        self.erase.filter(|_| self.settings.served.erase)
    }

    /// The steps of hardware managers that are asked for, where they are served.
    pub(crate) fn asked_steps(&self) -> Option<&'a [AgentStep]> {
        self.steps.filter(|_| self.settings.served.steps)
    }

    /// Whether the host says how its BMC is reached (any field counts, as upstream).
    pub(crate) fn has_bmc(&self) -> bool {
        self.host.spec.bmc.as_ref().is_some_and(|b| !b.address.is_empty() || !b.credentials_name.is_empty())
    }

    /// Whether the provisioner knows the machine.
    pub(crate) fn is_registered(&self) -> bool {
        self.host.status.as_ref().is_some_and(|s| !s.provisioning.id.is_empty())
    }
}
