//! What a decision says: one provisioner call, or one change of the object.

use std::time::Duration;

use api::metal3::{BareMetalHostStatus, Image};
use api::metamorph::{AgentStep, EraseOptions, Erasure, StepsReport};
use inventory::{Inspected, RootDeviceHints};
use terms::{PowerWish, Retry};

use crate::children::ChildWrite;
use crate::orders::{FirmwareFacts, Targets};
use crate::request_view::Answer;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the provisioner, then pass its answer to [`crate::conclude`].
    Act(Action),
    /// No call is needed: write this (it may be empty, then only [`Change::next`] matters).
    Change(Box<Change>),
}

/// One call of the provisioner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Check access to the BMC. Answer: [`Outcome::Registered`].
    Register {
        /// The credentials are not those that last worked.
        credentials_changed: bool,
    },
    /// Take over a machine that is provisioned already. Answer: [`Outcome::Done`].
    Adopt,
    /// Look at the hardware. Answer: [`Outcome::Inspected`].
    Inspect {
        /// The last attempt failed: begin anew.
        restart: bool,
    },
    /// See whether the machine is on. Answer: [`Outcome::Power`].
    ReadPower,
    /// Bring the machine's power to the wish. Answer: [`Outcome::Power`].
    SetPower(PowerWish),
    /// Bring RAID volumes and firmware of a host without an image to what is wished. Called until it answers [`Outcome::Done`].
    ///
    /// Targets are handed over until they are accepted (or done), and then never again: the status records them. Without targets, the provisioner
    /// goes on with what it has accepted, and is done if there is nothing; it aborts firmware changes that are no longer wished.
    Prepare {
        /// What is to be made.
        targets: Box<Targets>,
        /// The last attempt failed: begin anew.
        restart: bool,
    },
    /// Bring the firmware of a provisioned host to what is wished; answers and targets are those of [`Action::Prepare`]. The machine is off, and its
    /// disks stay as they are. Without targets, and with nothing accepted that is still wished, the work under way is aborted.
    Service {
        /// What is to be made.
        targets: Box<Targets>,
        /// The last attempt failed: begin anew.
        restart: bool,
    },
    /// Show the machine this medium from its next boot on. Answer: [`Outcome::Done`].
    AttachMedia {
        /// Where it is.
        url: String,
    },
    /// Take the medium away. Answer: [`Outcome::Done`].
    DetachMedia,
    /// Find out whether this medium can be attached, touching nothing. Answer: [`Outcome::Done`].
    CheckMedia {
        /// Where it is.
        url: String,
    },
    /// See which medium is in. Answer: [`Outcome::Medium`], or [`Outcome::Done`] where that cannot be told.
    LookAtMedia,
    /// Read settings and versions of the firmware. Answer: [`Outcome::Firmware`].
    RefreshFacts,
    /// Find out what is wrong with the machine, touching nothing. Answer: [`Outcome::Diagnosed`].
    Diagnose,
    /// Put `status.lastAttemptedImage` (`spec.image` as it was when the attempt began) on the disk that
    /// `status.provisioning.rootDeviceHints` choose, and boot it. Answer: [`Outcome::Done`].
    ///
    /// A failed attempt is always followed by a [`Action::Deprovision`], so an attempt never has to be told to begin anew.
    Provision,
    /// Remove what was provisioned. Answer: [`Outcome::Wiped`], [`Outcome::Done`] if no disk was touched, or [`Outcome::Untouched`] if
    /// there was nothing to remove.
    Deprovision {
        /// Remove partition tables and signatures too.
        clean: bool,
        /// There is nothing to remove: the host was here to be erased, and that was withdrawn. Its work is ended, and no disk is touched.
        empty: bool,
        /// The last attempt failed: begin anew.
        restart: bool,
    },
    /// Erase disks of a machine that nobody uses. Answer: [`Outcome::Erased`].
    Erase {
        /// What, and how thoroughly.
        options: Box<EraseOptions>,
        /// The last attempt failed: begin anew.
        restart: bool,
    },
    /// List the steps of the agent's hardware managers on a machine that nobody uses, and run these. Answer: [`Outcome::Stepped`].
    RunSteps {
        /// Which, in order.
        steps: Vec<AgentStep>,
        /// The last attempt failed before a step was begun: begin anew.
        restart: bool,
    },
    /// Let go of the machine (before deletion, or because it is detached). Answer: [`Outcome::Done`].
    Release,
}

/// The provisioner's answer, or why it could not be asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The machine is registered.
    Registered {
        /// The provisioner's id of it.
        id: String,
        /// Power state, if it was seen.
        powered_on: Option<bool>,
    },
    /// The same of a host that has no status any more: by the provisioner's record, what it asks for is on the machine.
    Recognized {
        /// The provisioner's id of the machine, which its disks are marked with.
        id: String,
        /// Power state, if it was seen.
        powered_on: Option<bool>,
        /// The image that the host asked for when it was compared.
        image: Box<Image>,
        /// The same of the disk.
        root_device_hints: Option<Box<RootDeviceHints>>,
    },
    /// Done.
    Done,
    /// A deprovisioning is done, and has wiped disks, whether the call still asked for it or not.
    Wiped,
    /// A deprovisioning is done without having done anything: nothing had begun to be written to the disks.
    Untouched,
    /// Erasing has come to its end: what has become of each disk.
    Erased(Box<Erasure>),
    /// Steps of hardware managers have come to their end: what has become of each.
    Stepped(Box<StepsReport>),
    /// The power state seen.
    Power(bool),
    /// The same to [`Action::ReadPower`], and something is to be known of the machine beside it.
    PowerTold {
        /// The power state seen.
        on: bool,
        /// What was found, what to do.
        message: String,
    },
    /// What inspection found.
    Inspected(Box<Inspected>),
    /// Address of the medium that is in; `None` if none of ours is.
    Medium(Option<String>),
    /// What was read of the firmware.
    Firmware(Box<FirmwareFacts>),
    /// What is wrong with the machine.
    Diagnosed {
        /// The finding, a few sentences.
        finding: String,
    },
    /// What was handed over is taken, and being made: it is noted once, and not handed over again.
    Accepted {
        /// When to look again at the latest.
        look_again: Duration,
    },
    /// Nothing was begun: the provisioner has no capacity. The host is `delayed`.
    Busy {
        /// What is waited for.
        message: String,
        /// When to look again at the latest.
        look_again: Duration,
    },
    /// The provisioner does not know the machine (any more): it is registered again, and then the work goes on.
    NeedsRegistration,
    /// The work boots an image that somebody else builds: it is asked for, and waited for.
    NeedsImage,
    /// Not yet.
    Working {
        /// When to look again at the latest.
        look_again: Duration,
    },
    /// The call was not made: something it needs is not there yet, such as a Secret with user data. It is no failed attempt; it
    /// is looked for again soon.
    Blocked {
        /// What is needed, what was found, what to do.
        message: String,
    },
    /// The machine was not called, and cannot be until the operator corrects something: the host's provisioner is unknown, say. The host stays in its
    /// state, and a deletion waits too; detaching the host by force releases it anyway.
    Held {
        /// What is wrong, what to do.
        message: String,
    },
    /// It failed.
    Failed {
        /// What was attempted, what was found, what to do.
        message: String,
        /// Whether trying again can help; [`Retry::Waiting`] says what [`Outcome::Blocked`] says, [`Retry::Held`] what [`Outcome::Held`] says.
        retry: Retry,
    },
}

impl Outcome {
    /// The outcome in one form: work that waits for something, or is held, has not failed.
    pub(crate) fn normalized(self) -> Self {
        match self {
            Self::Failed { message, retry: Retry::Waiting } => Self::Blocked { message },
            Self::Failed { message, retry: Retry::Held } => Self::Held { message },
            other => other,
        }
    }

    /// Its name in messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Registered { .. } => "registered",
            Self::Recognized { .. } => "recognized",
            Self::Done => "done",
            Self::Wiped => "wiped",
            Self::Untouched => "untouched",
            Self::Erased(_) => "erased",
            Self::Stepped(_) => "stepped",
            Self::Power(_) | Self::PowerTold { .. } => "power",
            Self::Inspected(_) => "inspected",
            Self::Medium(_) => "medium",
            Self::Firmware(_) => "firmware",
            Self::Diagnosed { .. } => "diagnosed",
            Self::Accepted { .. } => "accepted",
            Self::Busy { .. } => "busy",
            Self::NeedsRegistration => "needs registration",
            Self::NeedsImage => "needs an image",
            Self::Working { .. } => "working",
            Self::Blocked { .. } => "blocked",
            Self::Held { .. } => "held",
            Self::Failed { .. } => "failed",
        }
    }
}

/// What to write, and when to look again.
///
/// To be written in this order: `hardware_data`, `erasure`, `steps`, `children`, annotations that are used up (consent to overwrite, reboots), `status`,
/// `set_architecture` and other annotations and finalizer, `events`. A crash in between is safe: what is left over is decided again.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The whole new status; equal to the old one if it need not be written.
    pub status: BareMetalHostStatus,
    /// Add the host's finalizer.
    pub add_finalizer: bool,
    /// Annotations to remove.
    pub remove_annotations: Vec<String>,
    /// What the host answers to the request that its annotation names; written with the removal of what that has asked for.
    pub answer: Option<Answer>,
    /// Value for `spec.architecture`.
    pub set_architecture: Option<String>,
    /// Create the HardwareData of the host, or replace it.
    pub hardware_data: Option<Box<Inspected>>,
    /// What has become of the disks that the request was to have erased, for its status.
    pub erasure: Option<Box<Erasure>>,
    /// What has become of the steps that the request was to have run, for its status.
    pub steps: Option<Box<StepsReport>>,
    /// Writes to the objects beside the host.
    pub children: Vec<ChildWrite>,
    /// Events to publish.
    pub events: Vec<HostEvent>,
    /// When to look again.
    pub next: Next,
}

impl Change {
    /// Whether nothing is to be written for the status that the host has.
    #[must_use]
    pub fn is_empty(&self, old: Option<&BareMetalHostStatus>) -> bool {
        !self.status_differs(old)
            && !self.add_finalizer
            && self.remove_annotations.is_empty()
            && self.answer.is_none()
            && self.set_architecture.is_none()
            && self.hardware_data.is_none()
            && self.erasure.is_none()
            && self.steps.is_none()
            && self.children.is_empty()
            && self.events.is_empty()
    }

    /// Whether it is nothing but another status, with what is said of it.
    #[must_use]
    pub fn is_move(&self) -> bool {
        !self.add_finalizer
            && self.remove_annotations.is_empty()
            && self.set_architecture.is_none()
            && self.hardware_data.is_none()
            && self.erasure.is_none()
            && self.steps.is_none()
            && self.children.is_empty()
            && self.next != Next::Gone
    }

    /// Whether the status is to be written.
    #[must_use]
    pub fn status_differs(&self, old: Option<&BareMetalHostStatus>) -> bool {
        match old {
            Some(old) => self.status != *old,
            None => self.status != BareMetalHostStatus::default(),
        }
    }
}

/// An Event about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// Reason, CamelCase; upstream's where it has one.
    pub reason: &'static str,
    /// Text, at most 1024 bytes.
    pub message: String,
    /// Type `Warning` rather than `Normal`.
    pub warning: bool,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After this time, or when something wakes the host.
    After(Duration),
    /// When something wakes the host.
    Wait,
    /// Nothing is left to do: release the Secrets, remove the finalizers of HardwareData and host.
    Gone,
}
