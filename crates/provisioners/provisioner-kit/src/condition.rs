//! How what stands behind a resource can be: a host's machine, or whatever another kind has.

use serde::{Deserialize, Serialize};

/// How a machine can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Condition {
    /// Its work takes ten times as long.
    Slow,
    /// Its next work fails, once.
    Failing,
    /// Its next order is refused, once.
    Refusing,
    /// Nothing answers at its address.
    Silent,
    /// The provisioner has no room for its work.
    Busy,
    /// The provisioner has forgotten it.
    Forgotten,
    /// Another machine answers at its address.
    Another,
    /// Its disk carries the mark of [`FOREIGN_OWNER`].
    Foreign,
    /// A medium that somebody else has put there is in the virtual drive that it boots from.
    Occupied,
    /// Its BMC reads nothing of what is put into a drive.
    Unread,
}

/// Whose mark a machine in [`Condition::Foreign`] carries.
pub const FOREIGN_OWNER: &str = "another-owner";
