//! Scenarios as data: what is asked of a resource one after the other, how what stands behind it is meanwhile, what interrupts it, and how it has to end.
//! They are of hosts, unless another kind is named.

use provisioner::{Cause, HostResource, Resource};
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::trail::Effect;

/// What a scenario is about. A class can be left out, to see what gets through without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing happens.
    Plain,
    /// The same is asked again and again.
    Repeated,
    /// The process is killed at each place.
    Killed,
    /// A second process does the same at each place.
    Concurrent,
    /// The process stands still at each place, another takes its place, and it awakes.
    Frozen,
    /// Something else is asked in the middle.
    Cancelled,
    /// The machine is to be booted anew in the middle.
    Forced,
    /// The machine is slow.
    Slow,
    /// The machine fails, refuses, or does not answer.
    Failing,
    /// The provisioner has no room.
    Busy,
    /// The provisioner has forgotten the machine.
    Forgotten,
    /// Somebody edits, deletes or overtakes the record.
    Record,
    /// The process does not lead.
    Leading,
    /// The machine was let go.
    Released,
    /// The machine is another, or another's.
    Identity,
    /// What the host says that it has.
    Capabilities,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Plain,
        Self::Repeated,
        Self::Killed,
        Self::Concurrent,
        Self::Frozen,
        Self::Cancelled,
        Self::Forced,
        Self::Slow,
        Self::Failing,
        Self::Busy,
        Self::Forgotten,
        Self::Record,
        Self::Leading,
        Self::Released,
        Self::Identity,
        Self::Capabilities,
    ];
}

/// How a call has to be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expected {
    /// Done, sooner or later, without a failure.
    #[default]
    Done,
    /// The same, and it is under way in between.
    Working,
    /// The same, and the targets are accepted in between.
    Accepted,
    /// No room; done when there is some.
    Busy,
    /// The machine is to be registered again; done after that.
    Registration,
    /// A failure, and done when it is tried again.
    FailsFirst,
    /// Failures are allowed; done in the end.
    Arrives,
    /// A failure for this cause, and nothing is done to the machine.
    Refused(Cause),
}

/// What somebody does to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// It is of a newer version.
    Newer,
    /// It is no record any more.
    Nonsense,
    /// It is another provisioner's.
    Foreign,
    /// It has a member that this version does not know.
    Unknown,
}

/// What happens in the middle of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub enum Interruption<R: Resource = HostResource> {
    /// Nothing.
    #[default]
    Nothing,
    /// Each look is taken twice, and once more when all is done, by this process and by the next.
    Repeated,
    /// The process dies before and after each write and effect, and between looks; one run each.
    Killed,
    /// Another process makes the same call there.
    Concurrent,
    /// The process stands still there, another one takes its place, and it goes on when that has ended.
    Frozen,
    /// Somebody else writes the record there.
    Overtaken,
    /// After each look something else is asked, and has to be done with this effect; one run each.
    CancelledBy(Box<R::Call>, Option<Effect>),
    /// After each look the machine is like that for three looks; one run each.
    Machine(Condition),
    /// After the first look the record is edited, and another process finds it so, until it is put back.
    Record(Edit),
    /// After each look the record is deleted; one run each.
    RecordDeleted,
    /// After each look the history is deleted.
    HistoryDeleted,
    /// The process does not lead for three looks.
    NotLeading,
    /// After each look the machine is to be booted anew, until that is under way; one run each.
    Forced,
}

/// One thing that is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Step<R: Resource = HostResource> {
    /// What.
    pub call: R::Call,
    /// How it is answered.
    #[serde(default)]
    pub expected: Expected,
    /// How the machine is meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<Condition>,
    /// What happens in the middle.
    #[serde(default)]
    pub interruption: Interruption<R>,
    /// What must have been done to the machine when it is done; nothing else that may happen only once must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

impl<R: Resource> Step<R> {
    /// It is asked, and is done with this effect.
    #[must_use]
    pub fn of(call: R::Call, effect: Option<Effect>) -> Self {
        Self { call, expected: Expected::Done, machine: Vec::new(), interruption: Interruption::Nothing, effect }
    }
}

/// A scenario. Only its last step is interrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Scenario<R: Resource = HostResource> {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub class: Class,
    /// What is asked, one after the other. A scenario without steps compares what the host says that it has with what it has.
    pub steps: Vec<Step<R>>,
}
