//! What a rule says, and what it is told: a hit, and the case.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::codes::{Code, Group};
use crate::evidence::{Evidence, FailureType, LogEntry, Part, PartKind};

/// How sure it is that this is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Certainty {
    /// It may be, or it is a fault that does not explain the failure.
    Possible,
    /// It explains the failure, and was seen.
    Likely,
    /// It was seen at the very place that fails.
    Certain,
}

impl Certainty {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Possible => "Possible",
            Self::Likely => "Likely",
            Self::Certain => "Certain",
        }
    }
}

/// How bad it is for the machine, whether it is the cause or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// To be looked at.
    Warning,
    /// To be put right.
    Critical,
}

impl Severity {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "Warning",
            Self::Critical => "Critical",
        }
    }
}

/// The part that a cause is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// What it is.
    pub kind: PartKind,
    /// Where it is.
    pub slot: String,
    /// Part number.
    pub part_number: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
}

impl From<&Part> for Component {
    fn from(part: &Part) -> Self {
        let slot = if part.slot.is_empty() { part.name.clone().unwrap_or_default() } else { part.slot.clone() };
        Self { kind: part.kind, slot, part_number: part.part_number.clone(), serial: part.serial.clone() }
    }
}

/// What one rule has found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    pub rule: &'static str,
    pub code: Code,
    pub certainty: Certainty,
    pub severity: Severity,
    pub component: Option<Component>,
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    pub count: u64,
    pub evidence: Vec<String>,
    pub advice: Option<String>,
    /// It is older than the failure, or over.
    pub past: bool,
    /// Somebody has asked for this very thing: it is an answer also where nothing else fails.
    pub asked: bool,
}

impl Hit {
    pub fn new(rule: &'static str, code: Code, certainty: Certainty, evidence: impl Into<String>) -> Self {
        Self {
            rule,
            code,
            certainty,
            severity: Severity::Critical,
            component: None,
            first: None,
            last: None,
            count: 1,
            evidence: vec![evidence.into()],
            advice: None,
            past: false,
            asked: false,
        }
    }

    pub fn of(mut self, component: Option<Component>) -> Self {
        self.component = component;
        self
    }

    pub fn at(mut self, at: Option<Timestamp>) -> Self {
        (self.first, self.last) = (at, at);
        self
    }

    pub fn minor(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    pub fn asked(mut self) -> Self {
        self.asked = true;
        self
    }

    pub fn advise(mut self, advice: Option<&String>) -> Self {
        self.advice = advice.filter(|advice| !advice.trim().is_empty()).cloned();
        self
    }
}

/// What was going on when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is known of a failure: nothing is its cause.
    Unknown,
    Registration,
    /// The agent was to be booted, or at work without disks.
    Inspection,
    /// The agent was to be booted, or at work with disks.
    Disks,
    Firmware,
    Power,
    Detach,
    /// No error, and nothing is under way: whatever is broken is worth a word.
    Rest,
}

/// What rules judge.
pub(crate) struct Case<'a> {
    pub evidence: &'a Evidence,
    pub phase: Phase,
}

impl<'a> Case<'a> {
    pub fn new(evidence: &'a Evidence) -> Self {
        let phase = evidence.failure.as_ref().map_or(Phase::Unknown, |failure| match failure.kind {
            FailureType::Registration | FailureType::ProvisionedRegistration => Phase::Registration,
            FailureType::Inspection => Phase::Inspection,
            FailureType::Provisioning => Phase::Disks,
            FailureType::Preparation | FailureType::Servicing => Phase::Firmware,
            FailureType::PowerManagement => Phase::Power,
            FailureType::Detach => Phase::Detach,
            FailureType::None => match failure.state.as_str() {
                "registering" => Phase::Registration,
                "inspecting" => Phase::Inspection,
                "provisioning" | "deprovisioning" => Phase::Disks,
                "preparing" => Phase::Firmware,
                "deleting" => Phase::Detach,
                "powering off before delete" => Phase::Power,
                _ => Phase::Rest,
            },
        });
        Self { evidence, phase }
    }

    /// Whether the machine is seen to be off.
    pub fn is_off(&self) -> bool {
        let state = self.evidence.power.read().and_then(|power| power.state.as_deref());
        state.is_some_and(|state| state.eq_ignore_ascii_case("off") || state.eq_ignore_ascii_case("poweringoff"))
    }

    /// Whether causes of this group can explain what failed.
    pub fn explains(&self, group: Group) -> bool {
        let boots = matches!(self.phase, Phase::Inspection | Phase::Disks | Phase::Firmware);
        match self.phase {
            Phase::Unknown => false,
            Phase::Rest => !matches!(group, Group::Boot | Group::Media | Group::Agent),
            _ => match group {
                Group::Configuration | Group::Own | Group::Access => true,
                // A machine that is on has the power it needs.
                Group::Power | Group::Thermal => self.phase == Phase::Power || boots && self.is_off(),
                Group::Memory | Group::Processor => boots || self.phase == Phase::Power,
                Group::Card | Group::Boot | Group::Media | Group::Agent => boots,
                Group::Image => self.phase == Phase::Disks,
                Group::Disk => matches!(self.phase, Phase::Disks | Phase::Firmware),
                Group::Firmware => self.phase == Phase::Firmware,
                Group::Bmc => matches!(self.phase, Phase::Registration | Phase::Power | Phase::Firmware),
            },
        }
    }

    /// Whether the entry is known to be newer than the last good moment: both its time and the error of the BMC's clock must be known.
    pub fn is_fresh(&self, entry: &LogEntry) -> bool {
        self.is_since_good(entry.created)
    }

    /// The same of a time by the BMC's clock.
    pub fn is_since_good(&self, at: Option<Timestamp>) -> bool {
        let good = self.evidence.failure.as_ref().and_then(|failure| failure.last_good);
        let skew = self.evidence.manager.read().and_then(|manager| manager.clock_skew_seconds);
        let (Some(good), Some(skew), Some(created)) = (good, skew, plausible(at)) else { return false };
        let Some(taken) = self.evidence.taken else { return false };
        let created = i128::from(created.as_second()) - i128::from(skew);
        // Clocks are compared to the minute.
        created > i128::from(good.as_second()) && created <= i128::from(taken.as_second()) + 60
    }

    /// The part of these kinds that the text names; of several the one with the longest name.
    pub fn part_named(&self, kinds: &[PartKind], texts: &[&str]) -> Option<Component> {
        let parts = self.evidence.parts.read()?;
        let named = parts.iter().filter(|part| kinds.contains(&part.kind)).filter(|part| {
            let names = [Some(part.slot.as_str()), part.serial.as_deref()];
            names.into_iter().flatten().any(|name| texts.iter().any(|text| names_it(text, name)))
        });
        named.max_by_key(|part| (part.slot.len(), &part.slot, &part.serial)).map(Component::from)
    }
}

/// A time that a clock which was set can show; one that was never set shows 1970 or 2000.
pub(crate) fn plausible(at: Option<Timestamp>) -> Option<Timestamp> {
    const FROM: i64 = 1_262_304_000; // 2010
    const TO: i64 = 4_070_908_800; // 2099
    at.filter(|at| (FROM..TO).contains(&at.as_second()))
}

/// Letters and digits in lower case.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether the text has this name, as a word of its own or as its end.
fn names_it(text: &str, name: &str) -> bool {
    let name = plain(name);
    if name.len() < 2 {
        return false;
    }
    let text = plain(text);
    text.match_indices(&name).any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        let ends_in_digit = name.ends_with(|c: char| c.is_ascii_digit());
        // "DIMM A1" is not in "DIMM A10".
        !(ends_in_digit && next.is_some_and(|c| c.is_ascii_digit()))
    })
}
