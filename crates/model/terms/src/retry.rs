//! Whether trying again can help.

use serde::{Deserialize, Serialize};

/// Whether trying failed work again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retry {
    /// With back-off: the cause may go away by itself.
    Later,
    /// Only after somebody changed something that wakes the host (spec, Secret).
    AfterChange,
    /// The operation is not over and must not be begun anew: the host says what it waits for, and the same call is made again soon.
    Waiting,
    /// Nothing was asked of the machine, and nothing is until somebody puts right what the failure names: the same call is made again now and then. It
    /// counts as no failure, and a deletion waits for it.
    Held,
    /// The machine is not this host's: with back-off, for cables and addresses are put right; a deletion does not wait for it.
    AnotherMachine,
}
