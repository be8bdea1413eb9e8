//! The way from whatever runs on a machine to its first boot from a live ISO.
//!
//! The machine is seen off before the ISO goes in, the ISO is in and the boot source is set before the intent to switch it on is recorded: a machine
//! that is found on after that runs its live system, and is left alone. Where the power must not be cut, or is not shown, one reset instead, as on the
//! way into a disk ([`crate::steps::way_into_disk`]).

use api::metamorph::{HostOperationStatus, StepPhase};

use crate::steps::Step;

/// What is known of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether it is on; `None` where the BMC does not tell.
    pub powered_on: Option<bool>,
    /// Its power may be cut.
    pub may_cut: bool,
    /// The BMC refused the reset to this process, or was not sent it, which proves that nothing happened.
    pub refused: bool,
    /// The live ISO is in its drive and the next start is from there, as this process has just seen to.
    pub ready: bool,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Cut the power, and see it gone.
    SwitchOff {
        /// The intent is recorded.
        begun: bool,
    },
    /// Put the ISO in and set the boot source; then ask again.
    MakeReady,
    /// Switch on.
    SwitchOn,
    /// Reset: this attempt.
    Reset {
        /// Attempt.
        attempt: u32,
    },
    /// The machine has come on from the ISO.
    Arrived,
    /// A reset was requested. Whether it happened is unknown, and a live system may be running: it is not repeated.
    LeaveAlone,
    /// The power has to be seen, and the BMC does not report it.
    Unreported,
}

/// The next step of the way. The record keeps the way taken, whatever the BMC shows later; only a machine whose power must not be cut, and that has come
/// on again before it was told to, is reset instead.
#[must_use]
pub fn way(status: &HostOperationStatus, facts: &Facts) -> Way {
    let reset = Step::ResetLive.recorded(status);
    let off = Step::SwitchOffForLive.recorded(status).phase;
    let begun = off != StepPhase::Pending;
    let anew = Way::Reset { attempt: reset.attempt.unwrap_or(0).saturating_add(1) };
    let order = match facts.powered_on {
        _ if Step::SwitchOnLive.begun(status) => match facts.powered_on {
            Some(true) => return Way::Arrived,
            Some(false) => Way::SwitchOn,
            None => return Way::Unreported,
        },
        _ if reset.phase != StepPhase::Pending && !facts.refused => return Way::LeaveAlone,
        _ if reset.phase != StepPhase::Pending => anew,
        Some(false) if off == StepPhase::Done => Way::SwitchOn,
        Some(false) => return Way::SwitchOff { begun },
        Some(true) if facts.may_cut => return Way::SwitchOff { begun },
        Some(true) => anew,
        None if begun => return Way::Unreported,
        None => anew,
    };
    if facts.ready { order } else { Way::MakeReady }
}

/// Whether the machine has been ordered to boot the ISO: from here on a live system may be running.
#[must_use]
pub fn ordered(status: &HostOperationStatus) -> bool {
    Step::BootLive.begun(status)
}
