//! Whether trying again can help.

use serde::{Deserialize, Serialize};

/// Whether trying failed work again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retry {
    /// With back-off: the cause may pass.
    Later,
    /// Only after a change that wakes the host (spec, Secret).
    AfterChange,
    /// The operation is still running and must not be started again: the host reports what it waits for, and the same call is repeated soon.
    Waiting,
    /// The machine was not touched, and stays so until the operator fixes the reported cause: the same call is repeated now and then. It does not
    /// count as a failure, and a deletion waits for it.
    Held,
    /// The machine is not this host's: retried with back-off, since cables and addresses may be fixed; a deletion does not wait for it.
    AnotherMachine,
    /// It may have been done, and nothing shows whether it was: it is not done again unless somebody asks for it anew.
    Unknown,
}
