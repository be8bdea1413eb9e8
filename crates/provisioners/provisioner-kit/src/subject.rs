//! What the kit is given of a provisioner that it is to judge.

use std::sync::Arc;

use provisioner::{BmcAccess, HostFacts, MayAct, Provisioner};
use serde::{Deserialize, Serialize};

use crate::trail::Trail;

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
}

/// Whose mark a machine in [`Condition::Foreign`] carries.
pub const FOREIGN_OWNER: &str = "another-owner";

/// A provisioner to be judged.
pub trait Kind: Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// A machine as it is delivered: off, its disk empty. What is done to it goes into the trail.
    fn machine(&self, trail: &Trail) -> Box<dyn Subject>;
}

/// One machine, which outlives the processes that look after it.
pub trait Subject: Send {
    /// A process starts, and knows nothing but what is recorded. Where there are several, the machine turns to the first that runs.
    fn start(&mut self, process: u64, may_act: MayAct) -> Arc<dyn Provisioner>;

    /// The process is gone, or does not answer any more.
    fn stop(&mut self, process: u64);

    /// The host that is declared for it.
    fn facts(&self) -> HostFacts;

    /// How its BMC is reached; the kit puts its own password in.
    fn access(&self) -> BmcAccess;

    /// Whether it can be in this condition.
    fn can_be(&self, condition: Condition) -> bool;

    /// From now on it is, or is not any more.
    fn set(&mut self, condition: Condition, on: bool);
}
