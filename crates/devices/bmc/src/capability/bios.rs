//! The settings of the machine's firmware (BIOS attributes): read, described and changed. A change is pending until the machine restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::BmcError;

/// Type of an attribute, as its registry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// One of a list.
    Enumeration,
    /// Text.
    String,
    /// Whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// Text that is not shown.
    Password,
}

impl AttributeKind {
    /// Its name, as in registries and in a FirmwareSchema.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enumeration => "Enumeration",
            Self::String => "String",
            Self::Integer => "Integer",
            Self::Boolean => "Boolean",
            Self::Password => "Password",
        }
    }
}

/// What an attribute may be. What the BMC does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeSchema {
    /// Type.
    pub kind: Option<AttributeKind>,
    /// Values of an enumeration.
    pub allowed: Vec<String>,
    /// The smallest number.
    pub lower_bound: Option<i64>,
    /// The largest number.
    pub upper_bound: Option<i64>,
    /// The shortest text, in characters.
    pub min_length: Option<u32>,
    /// The longest text, in characters.
    pub max_length: Option<u32>,
    /// It cannot be set.
    pub read_only: Option<bool>,
    /// It is of this one machine, such as a serial number.
    pub unique: Option<bool>,
}

/// What all attributes may be, by name; machines with the same firmware share it.
pub type BiosSchema = Arc<BTreeMap<String, AttributeSchema>>;

/// What the BMC says of the change that was applied last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// When it was, and of which change, in the BMC's words: another text means another application.
    pub mark: Option<String>,
    /// Why parts of it were not applied, sentences.
    pub refusals: Vec<String>,
}

/// The attributes as the BMC shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BiosSeen {
    /// In force, by name. Numbers and Booleans are written as in JSON.
    pub current: BTreeMap<String, String>,
    /// What they will be after the next restart, as far as the BMC shows it: all attributes, or the changed ones only. Empty if it was not asked for.
    pub pending: BTreeMap<String, String>,
    /// The last application of a change.
    pub applied: Applied,
}

impl BiosSeen {
    /// The wishes that are not in force, by name.
    #[must_use]
    pub fn open(&self, wished: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let open = wished.iter().filter(|(name, value)| self.current.get(*name) != Some(*value));
        open.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Whether the BMC shows that the next restart brings these.
    #[must_use]
    pub fn is_pending(&self, open: &BTreeMap<String, String>) -> bool {
        open.iter().all(|(name, value)| self.pending.get(name) == Some(value))
    }

    /// What the next restart must not bring, by name, with the value that is in force instead: of what is wished and in force already, any other value
    /// that is pending; of what was `given` and is not wished any more, what is still pending.
    #[must_use]
    pub fn unwished(
        &self,
        wished: &BTreeMap<String, String>,
        given: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let is_unwished = |name: &String, pending: &String, current: &String| match wished.get(name) {
            Some(wish) => wish == current,
            None => given.get(name) == Some(pending),
        };
        let differing = self.pending.iter().filter_map(|(name, pending)| {
            let current = self.current.get(name).filter(|current| *current != pending)?;
            is_unwished(name, pending, current).then(|| (name.clone(), current.clone()))
        });
        differing.collect()
    }

    /// Whether the BMC shows all of these after the next restart: pending, or in force with nothing else pending.
    #[must_use]
    pub fn brings(&self, wished: &BTreeMap<String, String>) -> bool {
        wished.iter().all(|(name, value)| self.pending.get(name).or_else(|| self.current.get(name)) == Some(value))
    }
}

/// How far the BMC is with a job that applies a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a restart, or is at work; in the BMC's word.
    Open(String),
    /// It has ended well, or is no longer known.
    Over,
    /// It has failed, a sentence.
    Failed(String),
}

/// Reads and changes the firmware's settings.
#[async_trait]
pub trait Bios: Send + Sync {
    /// The settings; `None` when the BMC does not show them at the moment. One call, and another for what is pending.
    async fn seen(&self, with_pending: bool) -> Result<Option<BiosSeen>, BmcError>;
    /// What they may be; `None` when the BMC has no description of them. No call, once it is known.
    async fn schema(&self) -> Result<Option<BiosSchema>, BmcError>;
    /// Has the next restart bring these, and returns the address of the job that does so, if the BMC names one. Changes nothing else. An error names
    /// the settings that the BMC refuses.
    async fn set(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError>;
    /// How far a job is. One call.
    async fn job(&self, job: &str) -> Result<JobState, BmcError>;
}
