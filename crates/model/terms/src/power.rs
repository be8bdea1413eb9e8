//! Power: where a machine is to be brought, and what its BMC is told for that.

use serde::{Deserialize, Serialize};

/// Where the machine is to be brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerWish {
    /// On.
    On,
    /// Off: asked politely first, cut after the provisioner's grace period.
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

/// What a BMC is told: a change of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// Switch on.
    On,
    /// Cut the power.
    HardOff,
    /// Ask the system to shut down.
    SoftOff,
    /// Restart, politely where the BMC can ask; never off: for a machine whose power must not be cut.
    SoftRestart,
    /// Reset, for a machine that runs nothing that could be asked; switches a machine that is off on.
    Restart,
}

impl PowerAction {
    /// Whether the machine is on when it has been carried out.
    #[must_use]
    pub const fn on(self) -> bool {
        !matches!(self, Self::SoftOff | Self::HardOff)
    }
}
