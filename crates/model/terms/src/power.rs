//! Power: the target state of a machine, and the request to its BMC.

use serde::{Deserialize, Serialize};

/// Where the machine is to be brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerWish {
    /// On.
    On,
    /// Off: gracefully first, forced after the provisioner's grace period.
    SoftOff,
    /// Off at once.
    HardOff,
}

impl PowerWish {
    /// Whether the machine is on when it is fulfilled.
    #[must_use]
    pub const fn on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// A power request to a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// Switch on.
    On,
    /// Cut the power.
    HardOff,
    /// Ask the operating system to shut down.
    SoftOff,
    /// Restart, gracefully where the BMC supports it; never off: for a machine whose power must not be cut.
    SoftRestart,
    /// Reset, for a machine without a system that could shut down; switches on a machine that is off.
    Restart,
}

impl PowerAction {
    /// Whether the machine is on when it has been carried out.
    #[must_use]
    pub const fn on(self) -> bool {
        !matches!(self, Self::SoftOff | Self::HardOff)
    }
}
