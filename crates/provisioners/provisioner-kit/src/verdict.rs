//! What the kit says of a provisioner.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::scenario::Class;

/// What must be true of every provisioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// What must not happen twice, and each boot of the provisioner's own system, stands recorded before it happens.
    IntentFirst,
    /// What destroys happens once for a wish.
    OnceAWish,
    /// What is done is done for this wish, and what was done for one that was taken back is over.
    OnlyThisWish,
    /// No call waits.
    AtOnce,
    /// What is done stays done, whoever asks again.
    Idempotent,
    /// The work comes to its end.
    Arrives,
    /// The answer is of the kind that was to be expected.
    Answer,
    /// A failure has a cause, and words.
    Typed,
    /// Nothing is done while the provisioner waits for room, for a registration, or for a record that it can read.
    Waits,
    /// Nothing is done by a process that does not lead.
    Leads,
    /// Nothing is done to a machine that was let go.
    LetsGo,
    /// Nothing is done to a machine, or a disk, that is not the host's.
    Proves,
    /// The host has what its capabilities say, and no more.
    Capabilities,
    /// A record that cannot be read stops the host, and what a later version has added is kept.
    Record,
    /// Calls and answers are the same after their way through JSON.
    Travels,
    /// Nothing secret stands in a record or a history.
    Secrets,
    /// People see what was done.
    Shown,
}

/// A law, and what was found against it.
pub type Found = (Law, String);

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The scenario.
    pub scenario: String,
    /// Its class.
    pub class: Class,
    /// The step, from 1, and its call.
    pub step: String,
    /// Where it was interrupted.
    pub run: String,
    /// The law.
    pub law: Law,
    /// What was found.
    pub found: String,
    /// What had happened in that part of the scenario.
    pub trail: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, class, step, run, law, found, trail } = self;
        write!(f, "{law:?} [{class:?}] {scenario} — {step}{run}: {found}\n    {}", trail.join("\n    "))
    }
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Runs, by class.
    pub runs: BTreeMap<Class, usize>,
    /// Scenarios that were left out, because the machine cannot be made so.
    pub left_out: Vec<String>,
    /// Laws that were broken.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "runs: {:?}, {} in all", self.runs, self.runs.values().sum::<usize>())?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}
