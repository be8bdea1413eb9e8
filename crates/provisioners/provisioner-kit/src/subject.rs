//! What the kit is given of a provisioner that it is to judge.

use std::sync::Arc;

use provisioner::{HostResource, MayAct};

use crate::condition::Condition;
use crate::tested::Tested;
use crate::trail::Trail;

/// A provisioner to be judged; of hosts, unless another kind is named.
pub trait Kind<R: Tested = HostResource>: Sync {
    /// Its name.
    fn name(&self) -> &str;

    /// A machine as it is delivered: off, its disk empty. What is done to it goes into the trail.
    fn machine(&self, trail: &Trail) -> Box<dyn Subject<R>>;
}

/// One machine, or what another kind has in its place. It outlives the processes that look after it.
pub trait Subject<R: Tested = HostResource>: Send {
    /// A process starts, and knows nothing but what is recorded. Where there are several, the machine turns to the first that runs.
    fn start(&mut self, process: u64, may_act: MayAct) -> Arc<R::Provisioner>;

    /// The process is gone, or does not answer any more.
    fn stop(&mut self, process: u64);

    /// The resource that is declared for it.
    fn facts(&self) -> R::Facts;

    /// How it is reached; the kit puts a password of its own in where there is one.
    fn access(&self) -> R::Access;

    /// Whether it can be in this condition.
    fn can_be(&self, condition: Condition) -> bool;

    /// From now on it is, or is not any more.
    fn set(&mut self, condition: Condition, on: bool);
}
