//! What all hosts of a provisioner share.

use crate::journal::Memory;
use crate::machines::Machines;

/// What all hosts share.
pub struct Shared {
    /// The machines.
    pub machines: Machines,
    /// What this process knows of its hosts.
    pub memory: Memory,
}
