//! The order of an operation's steps, as a table, and what is next by what is recorded.

use std::time::Duration;

use api::metamorph::{HostOperationStatus, OperationStep, OperationType, StepPhase};

/// A step, by its name in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The agent runs.
    BootAgent,
    /// The agent tells the hardware.
    CollectInventory,
    /// The BMC lists the hardware.
    ReadInventory,
    /// The agent writes the image.
    WriteImage,
    /// The machine leaves for the disk.
    BootDisk,
    /// The agent wipes.
    WipeDisks,
    /// The agent erases.
    EraseDisks,
    /// The agent lists the steps of its hardware managers.
    ListSteps,
    /// The agent runs those that are asked for, an attempt each.
    RunSteps,
    /// The power is cut, and nothing else is done.
    PowerOff,
    /// The firmware switches Secure Boot; in no plan, because it is seldom needed.
    SwitchSecureBoot,
    /// The firmware applies other settings.
    SetFirmware,
    /// Instead of a lost agent's leave: the power is cut,
    SwitchOff,
    /// and comes again.
    SwitchOn,
    /// The same where the power must not be cut, or cannot be seen.
    Reset,
    /// The live ISO goes into its drive, from which the machine is to boot at each start.
    InsertLive,
    /// The machine is started from it.
    BootLive,
    /// Before the live ISO goes in, the power is cut,
    SwitchOffForLive,
    /// and comes again when it is in.
    SwitchOnLive,
    /// The same where the power must not be cut, or cannot be seen.
    ResetLive,
}

impl Step {
    /// All.
    pub const ALL: [Self; 20] = [
        Self::BootAgent,
        Self::CollectInventory,
        Self::ReadInventory,
        Self::WriteImage,
        Self::BootDisk,
        Self::WipeDisks,
        Self::EraseDisks,
        Self::ListSteps,
        Self::RunSteps,
        Self::PowerOff,
        Self::SwitchSecureBoot,
        Self::SetFirmware,
        Self::SwitchOff,
        Self::SwitchOn,
        Self::Reset,
        Self::InsertLive,
        Self::BootLive,
        Self::SwitchOffForLive,
        Self::SwitchOnLive,
        Self::ResetLive,
    ];

    /// Its name in the record.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BootAgent => "boot-agent",
            Self::CollectInventory => "collect-inventory",
            Self::ReadInventory => "read-inventory",
            Self::WriteImage => "write-image",
            Self::BootDisk => "boot-disk",
            Self::WipeDisks => "wipe-disks",
            Self::EraseDisks => "erase-disks",
            Self::ListSteps => "list-steps",
            Self::RunSteps => "run-steps",
            Self::PowerOff => "power-off",
            Self::SwitchSecureBoot => "switch-secure-boot",
            Self::SetFirmware => "set-firmware",
            Self::SwitchOff => "switch-off-for-disk",
            Self::SwitchOn => "switch-on-to-disk",
            Self::Reset => "reset-to-disk",
            Self::InsertLive => "insert-live-iso",
            Self::BootLive => "boot-live-iso",
            Self::SwitchOffForLive => "switch-off-for-live-iso",
            Self::SwitchOnLive => "switch-on-to-live-iso",
            Self::ResetLive => "reset-to-live-iso",
        }
    }

    /// What is recorded of it.
    #[must_use]
    pub fn recorded(self, status: &HostOperationStatus) -> OperationStep {
        status.steps.iter().find(|step| step.name == self.name()).cloned().unwrap_or_default()
    }

    /// Its intent has been recorded, or more.
    #[must_use]
    pub fn begun(self, status: &HostOperationStatus) -> bool {
        self.recorded(status).phase != StepPhase::Pending
    }

    /// It is under way or done.
    fn holds(self, status: &HostOperationStatus) -> bool {
        matches!(self.recorded(status).phase, StepPhase::Running | StepPhase::Done)
    }
}

/// Who does a planned step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Whoever boots the agent.
    Boot,
    /// The agent: it has to be there.
    Agent,
    /// The BMC, with or without an agent.
    Bmc,
}

/// A kind of work, with its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Look at the hardware, with the agent.
    Inspect,
    /// Have the BMC list it: nothing is done to the machine.
    FastInspect,
    /// Write an image and boot it.
    Provision,
    /// Boot an image as a medium, and leave the disks.
    BootLive,
    /// Wipe.
    Clean,
    /// Erase.
    Erase,
    /// List steps of hardware managers.
    ListSteps,
    /// The same, and run some.
    RunSteps,
    /// Let go as it is, off.
    SwitchOff,
    /// Change the firmware of an empty machine.
    Prepare,
    /// Change the firmware of a machine in use.
    Service,
}

const INSPECT: &[(Step, By)] = &[(Step::BootAgent, By::Boot), (Step::CollectInventory, By::Agent)];
const FAST_INSPECT: &[(Step, By)] = &[(Step::ReadInventory, By::Bmc)];
const PROVISION: &[(Step, By)] =
    &[(Step::BootAgent, By::Boot), (Step::WriteImage, By::Agent), (Step::BootDisk, By::Bmc)];
const BOOT_LIVE: &[(Step, By)] = &[(Step::InsertLive, By::Bmc), (Step::BootLive, By::Bmc)];
const CLEAN: &[(Step, By)] = &[(Step::BootAgent, By::Boot), (Step::WipeDisks, By::Agent)];
const ERASE: &[(Step, By)] = &[(Step::BootAgent, By::Boot), (Step::EraseDisks, By::Agent)];
const LIST_STEPS: &[(Step, By)] = &[(Step::BootAgent, By::Boot), (Step::ListSteps, By::Agent)];
const RUN_STEPS: &[(Step, By)] =
    &[(Step::BootAgent, By::Boot), (Step::ListSteps, By::Agent), (Step::RunSteps, By::Agent)];
const SWITCH_OFF: &[(Step, By)] = &[(Step::PowerOff, By::Bmc)];
const CHANGE_FIRMWARE: &[(Step, By)] = &[(Step::SetFirmware, By::Bmc)];

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The agent is to be there, and is given this step.
    WithAgent(Step),
    /// This step, whether an agent is there or not.
    Alone(Step),
}

impl Work {
    const fn table(self) -> &'static [(Step, By)] {
        match self {
            Self::Inspect => INSPECT,
            Self::FastInspect => FAST_INSPECT,
            Self::Provision => PROVISION,
            Self::BootLive => BOOT_LIVE,
            Self::Clean => CLEAN,
            Self::Erase => ERASE,
            Self::ListSteps => LIST_STEPS,
            Self::RunSteps => RUN_STEPS,
            Self::SwitchOff => SWITCH_OFF,
            Self::Prepare | Self::Service => CHANGE_FIRMWARE,
        }
    }

    /// A deprovisioning, as wished.
    #[must_use]
    pub const fn deprovisioning(clean: bool) -> Self {
        if clean { Self::Clean } else { Self::SwitchOff }
    }

    /// An inspection, as wished.
    #[must_use]
    pub const fn inspection(fast: bool) -> Self {
        if fast { Self::FastInspect } else { Self::Inspect }
    }

    /// The type of the operation that records it.
    #[must_use]
    pub const fn operation(self) -> OperationType {
        match self {
            Self::Inspect | Self::FastInspect => OperationType::Inspect,
            Self::Provision | Self::BootLive => OperationType::Provision,
            Self::Clean | Self::SwitchOff => OperationType::Deprovision,
            Self::Erase => OperationType::Erase,
            Self::ListSteps | Self::RunSteps => OperationType::Steps,
            Self::Prepare => OperationType::Prepare,
            Self::Service => OperationType::Service,
        }
    }

    /// The plan, by the steps' names.
    #[must_use]
    pub fn plan(self) -> Vec<&'static str> {
        self.table().iter().map(|(step, _)| step.name()).collect()
    }

    /// Whether the wish has changed since this was recorded, with the disks still untouched: it is other work then.
    #[must_use]
    pub fn turned(self, status: &HostOperationStatus) -> bool {
        self.recorded(status) != self && !Step::WipeDisks.begun(status)
    }

    /// Whether what is recorded as done is this work, or more: a machine that was let go unwiped has not been cleaned.
    #[must_use]
    pub fn is_done_by(self, status: &HostOperationStatus) -> bool {
        self != Self::Clean || self.recorded(status) == Self::Clean
    }

    /// The work that the record is of, whatever the mode has been changed to meanwhile.
    #[must_use]
    pub fn recorded(self, status: &HostOperationStatus) -> Self {
        let has = |step: Step| status.steps.iter().any(|recorded| recorded.name == step.name());
        match self {
            Self::Clean | Self::SwitchOff => Self::deprovisioning(has(Step::WipeDisks)),
            Self::Provision | Self::BootLive if !status.steps.is_empty() => {
                if has(Step::InsertLive) {
                    Self::BootLive
                } else {
                    Self::Provision
                }
            }
            Self::Inspect | Self::FastInspect => Self::inspection(has(Step::ReadInventory)),
            other => other,
        }
    }

    /// What is next by what is recorded: the last begun step that needs no agent, or else the step that the agent is for.
    #[must_use]
    pub fn next(self, status: &HostOperationStatus) -> Next {
        let first = self.table().first().map_or(Step::PowerOff, |(step, _)| *step);
        let mut next = Next::Alone(first);
        for (step, by) in self.table() {
            match by {
                By::Agent => next = Next::WithAgent(*step),
                By::Bmc if step.holds(status) => next = Next::Alone(*step),
                By::Bmc | By::Boot => {}
            }
        }
        next
    }
}

/// A command to the agent of this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// It has been given: what has become of this attempt?
    Look(u32),
    /// Record this attempt, then give it.
    Give(u32),
}

/// What to ask of the agent of this boot for a step: an attempt stays with the boot that got it. A step that is done but whose end could not be
/// recorded is looked at again, not run again.
#[must_use]
pub fn command(recorded: &OperationStep, boot_id: &str) -> Command {
    let attempt = recorded.attempt.unwrap_or(0);
    let begun = matches!(recorded.phase, StepPhase::Running | StepPhase::Done);
    if begun && recorded.boot_id.as_deref() == Some(boot_id) {
        Command::Look(attempt.max(1))
    } else {
        Command::Give(attempt.saturating_add(1))
    }
}

/// The step has been given to the agent of this boot: its machine has proved itself before.
#[must_use]
pub fn given(recorded: &OperationStep, boot_id: &str) -> bool {
    recorded.phase != StepPhase::Pending && recorded.boot_id.as_deref() == Some(boot_id)
}

/// How the machine leaves for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The agent restarts it.
    Agent,
    /// The agent may report yet.
    Wait,
    /// The agent is dead, the image is on the disk: the BMC does what the agent would have done.
    Bmc,
}

/// Who boots the machine into its disk. `waited`: for how long this process has known the host.
#[must_use]
pub fn leave(agent: bool, waited: Duration, reconnect: Duration) -> Leave {
    match (agent, waited < reconnect) {
        (true, _) => Leave::Agent,
        (false, true) => Leave::Wait,
        (false, false) => Leave::Bmc,
    }
}

/// What the BMC does to boot a machine into its disk when the agent is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Cut the power; `begun`: that is recorded already.
    SwitchOff {
        /// The intent is recorded.
        begun: bool,
    },
    /// Switch on.
    SwitchOn,
    /// Reset: this attempt.
    Reset {
        /// Attempt.
        attempt: u32,
    },
    /// A reset was requested. Whether it happened is unknown, and a tenant may be booting: it is not repeated.
    LeaveAlone,
    /// The power has to be seen, and the BMC does not report it.
    Unreported,
}

/// Two steps that can be told apart afterwards: the machine is seen off before the intent to switch it on is recorded, so a machine found on after
/// that runs the new system and is left alone. If the power must not be cut, or is not shown, one reset instead. The record keeps the way
/// taken, whatever the BMC shows later. `refused`: the BMC refused the reset to this process, or was not sent it, which proves that nothing happened.
#[must_use]
pub fn way_into_disk(status: &HostOperationStatus, powered_on: Option<bool>, may_cut: bool, refused: bool) -> Way {
    let reset = Step::Reset.recorded(status);
    let off_begun = Step::SwitchOff.begun(status);
    if Step::SwitchOn.begun(status) {
        return Way::SwitchOn;
    }
    if reset.phase != StepPhase::Pending && !refused {
        return Way::LeaveAlone;
    }
    if reset.phase != StepPhase::Pending || !off_begun && (powered_on.is_none() || !may_cut) {
        return Way::Reset { attempt: reset.attempt.unwrap_or(0).saturating_add(1) };
    }
    if powered_on.is_none() {
        return Way::Unreported;
    }
    Way::SwitchOff { begun: off_begun }
}

/// Whether the machine has been ordered to boot its disk: from here on a tenant may be running.
#[must_use]
pub fn ordered_into_disk(status: &HostOperationStatus) -> bool {
    Step::SwitchOn.begun(status) || Step::Reset.begun(status)
}
