//! What was read about a host, source by source, and what could not be read and why.
//!
//! Whoever reads fills an [`Evidence`]; rules read nothing else. A source is a [`Reading`]: a BMC that does not show a thing is never taken for one
//! that shows it healthy. Fields that a reader does not know are left out, those that a writer does not know are as if nobody had looked. What comes
//! from outside is cut to bounds by [`Evidence::bounded`] before it is judged.
//!
//! The order of the parts is the order in which they are read: what tells most for the fewest calls comes first.

mod access;
mod boot;
mod logs;
mod ours;
mod parts;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use access::{Access, Account, Answer, Certificate, Connection, Contact, License, ServiceRoot};
pub use boot::{Boot, BootOverride, BootProgress, Media, PowerCap, PowerFacts, PowerOrder, Slot};
pub use logs::{LogEntry, Logs, Manager, Message, RegistryText, Task, TaskKind};
pub use ours::{
    AgentFacts, CallError, DiskSmart, ImageFault, ImageProbe, LinkState, MediumReads, Ours, Probe, ProbeOutcome,
    TestEnd, TestMedium,
};
pub use parts::{Change, Difference, Part, PartKind};

use terms::clean;

/// Most items of any list.
pub const MAX_ITEMS: usize = 512;
/// Most calls to a BMC for one look, the one that signs in not counted.
pub const MOST_CALLS: u32 = 40;
/// Longest text, characters.
pub const MAX_TEXT: usize = 400;

/// One source: what it says, or why it says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading<T> {
    /// It was read.
    Read(T),
    /// The machine does not have it, or does not show it: a sentence. It is no sign of health.
    NotAvailable(String),
    /// It was asked and did not answer as it should: a sentence.
    Failed(String),
    /// It was not asked: a sentence. Empty if nobody has thought of it.
    Skipped(String),
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::Skipped(String::new())
    }
}

impl<T> Reading<T> {
    /// What was read, if it was.
    pub const fn read(&self) -> Option<&T> {
        match self {
            Self::Read(value) => Some(value),
            Self::NotAvailable(_) | Self::Failed(_) | Self::Skipped(_) => None,
        }
    }

    /// Why it was not read; `None` if it was.
    pub fn unread(&self) -> Option<String> {
        match self {
            Self::Read(_) => None,
            Self::NotAvailable(why) => Some(format!("not available: {why}")),
            Self::Failed(why) => Some(format!("could not be read: {why}")),
            Self::Skipped(why) if why.is_empty() => Some("not asked for".to_owned()),
            Self::Skipped(why) => Some(format!("left out: {why}")),
        }
    }
}

/// All that was read about a host for one diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evidence {
    /// When it was taken, by the server's clock.
    pub taken: Option<Timestamp>,
    /// What the host says of its failure: filled in by the controller, not by a provisioner.
    pub failure: Option<FailureFacts>,
    /// Whether its BMC can be reached and lets this server in.
    pub access: Reading<Access>,
    /// Whether it has power, and takes orders about it.
    pub power: Reading<PowerFacts>,
    /// How far it has come in starting.
    pub boot: Reading<Boot>,
    /// What is in its virtual drives.
    pub media: Reading<Media>,
    /// The machine's parts, healthy ones too.
    pub parts: Reading<Vec<Part>>,
    /// What the BMC works at, or has worked at.
    pub tasks: Reading<Vec<Task>>,
    /// What the BMC has written down, in any order.
    pub logs: Reading<Logs>,
    /// The BMC itself.
    pub manager: Reading<Manager>,
    /// What this server knows by itself.
    pub ours: Ours,
    /// How the machine differs from its HardwareData: what is missing, new or another.
    pub differences: Reading<Vec<Difference>>,
    /// Kinds of parts of which each one that the BMC lists is among `parts`. Of another kind, one that is not there was perhaps not asked for.
    pub whole: Vec<PartKind>,
    /// What was not read beyond the sources above (a single collection, a page of a log), and why.
    pub skipped: Vec<Unread>,
    /// What it has cost.
    pub spent: Spent,
}

/// Something that was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Unread {
    /// What, in the field's words: `Drives of Storage 1`.
    pub what: String,
    /// Why not, a sentence.
    pub why: String,
}

/// What reading has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spent {
    /// Calls to the BMC.
    pub calls: u32,
    /// Bytes that it has answered.
    pub bytes: u64,
    /// Milliseconds from the first call to the last answer.
    pub milliseconds: u64,
}

/// Which of the eight types of errors a BareMetalHost has (baremetal-operator `apis/metal3.io/v1alpha1/baremetalhost_types.go`, `ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailureType {
    /// `provisioned registration error`.
    ProvisionedRegistration,
    /// `registration error`.
    Registration,
    /// `inspection error`.
    Inspection,
    /// `preparation error`.
    Preparation,
    /// `provisioning error`.
    Provisioning,
    /// `power management error`.
    PowerManagement,
    /// `detach error`.
    Detach,
    /// `servicing error`.
    Servicing,
    /// It shows no error: it takes too long, or somebody asks.
    #[serde(other)]
    None,
}

impl FailureType {
    /// All of them, with upstream's words; [`Self::None`] has none.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::ProvisionedRegistration, "provisioned registration error"),
        (Self::Registration, "registration error"),
        (Self::Inspection, "inspection error"),
        (Self::Preparation, "preparation error"),
        (Self::Provisioning, "provisioning error"),
        (Self::PowerManagement, "power management error"),
        (Self::Detach, "detach error"),
        (Self::Servicing, "servicing error"),
        (Self::None, ""),
    ];

    /// The type with these words; [`Self::None`] for words that are not known.
    #[must_use]
    pub fn named(words: &str) -> Self {
        Self::ALL.iter().find(|(_, name)| *name == words).map_or(Self::None, |(kind, _)| *kind)
    }
}

/// What the host says of its failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureFacts {
    /// `status.errorType`.
    pub kind: FailureType,
    /// `status.provisioning.state`.
    pub state: String,
    /// Name of the contract's cause (`provisioner::Cause`), if the last failure had one.
    pub cause: Option<String>,
    /// `status.errorMessage`.
    pub message: String,
    /// Since when it shows this error.
    pub since: Option<Timestamp>,
    /// When the host was last seen to work: the end of the last step that succeeded. What is older than this is no cause of the failure.
    pub last_good: Option<Timestamp>,
}

impl Default for FailureFacts {
    fn default() -> Self {
        Self {
            kind: FailureType::None,
            state: String::new(),
            cause: None,
            message: String::new(),
            since: None,
            last_good: None,
        }
    }
}

impl Evidence {
    /// Whether any source was read.
    #[must_use]
    pub const fn says_something(&self) -> bool {
        self.access.read().is_some()
            || self.power.read().is_some()
            || self.boot.read().is_some()
            || self.media.read().is_some()
            || self.parts.read().is_some()
            || self.tasks.read().is_some()
            || self.logs.read().is_some()
            || self.manager.read().is_some()
    }

    /// The same within bounds: texts of at most [`MAX_TEXT`] printable characters on one line, lists of at most [`MAX_ITEMS`]. Of logs the newest entries
    /// stay.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Reading::Read(logs) = &mut self.logs {
            logs.entries
                .sort_by(|a, b| (b.created, &b.written, &b.id, &b.log).cmp(&(a.created, &a.written, &a.id, &a.log)));
        }
        // By way of its JSON: no field can be forgotten.
        let Ok(mut value) = serde_json::to_value(&self) else { return Self::default() };
        cut(&mut value);
        serde_json::from_value(value).unwrap_or_default()
    }

    /// Each text of it as `by` has it; for what no text may hold. If a word of this crate's own is changed by that, all stays as it is.
    #[must_use]
    pub fn with_texts(self, by: impl Fn(&str) -> String) -> Self {
        let Ok(mut value) = serde_json::to_value(&self) else { return self };
        change(&mut value, &by);
        serde_json::from_value(value).unwrap_or(self)
    }
}

/// Changes each text.
fn change(value: &mut Value, by: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = by(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, by)),
        Value::Object(fields) => fields.iter_mut().for_each(|(_, field)| change(field, by)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if text.len() > MAX_TEXT || !text.chars().all(terms::is_printable) {
                *text = clean(text, MAX_TEXT);
            }
        }
        Value::Array(items) => {
            items.truncate(MAX_ITEMS);
            items.iter_mut().for_each(cut);
        }
        Value::Object(fields) => {
            if fields.len() > MAX_ITEMS {
                *fields = std::mem::take(fields).into_iter().take(MAX_ITEMS).collect();
            }
            fields.iter_mut().for_each(|(_, field)| cut(field));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_known_is_left_out_and_what_is_missing_was_not_asked_for() {
        let read: Evidence = serde_json::from_value(json!({
            "weather": "sunny",
            "access": { "read": { "connection": { "read": { "contact": "teleported" } }, "answers": [{ "call": "GET /", "smell": 3 }] } },
            "failure": { "kind": "Boredom" },
        }))
        .unwrap();
        let access = read.access.read().unwrap();
        assert_eq!(access.connection.read().unwrap().contact, Contact::Other);
        assert_eq!(read.failure.unwrap().kind, FailureType::None);
        assert_eq!(read.power.unread().unwrap(), "not asked for");
        assert_eq!(access.account, Reading::default());
    }

    #[test]
    fn bounds_hold_for_each_text_and_list_and_keep_the_newest_entries() {
        let at = |second| Timestamp::from_second(second).ok();
        let entries = (0..2000).map(|second| LogEntry {
            created: at(second),
            text: "x\u{1b}[2J".repeat(1000),
            ..LogEntry::default()
        });
        let logs = Logs { entries: entries.collect(), ..Logs::default() };
        let bounded = Evidence { logs: Reading::Read(logs), ..Evidence::default() }.bounded();
        let entries = &bounded.logs.read().unwrap().entries;
        assert_eq!((entries.len(), entries[0].created), (MAX_ITEMS, at(1999)));
        assert!(entries.iter().all(|entry| entry.text.chars().count() <= MAX_TEXT && !entry.text.contains('\u{1b}')));
        assert_eq!(bounded.clone().bounded(), bounded);
    }
}
