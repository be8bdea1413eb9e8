//! From what the rules find to a verdict: one cause a code and part, the surest and earliest link of the chain first.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::codes::{Code, Fixer};
use crate::evidence::{Evidence, Reading, Spent, Unread};
use crate::hit::{Case, Certainty, Component, Hit, Severity};
use crate::rules;
use terms::clean;

/// Most causes of a verdict.
pub const MAX_CAUSES: usize = 16;
/// Most pieces of evidence of a cause.
pub const MAX_EVIDENCE: usize = 5;
/// Longest serialised verdict, bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// Longest text of a verdict, characters.
const MAX_TEXT: usize = 300;
/// Longest name of a part, characters.
const MAX_NAME: usize = 64;
/// Most sources that are named as read, or as not read.
pub const MAX_SOURCES: usize = 32;

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Its class.
    pub code: Code,
    /// Id of the rule that was surest.
    pub rule: String,
    /// Who puts it right.
    pub fixer: Fixer,
    /// The part.
    pub component: Option<Component>,
    /// How sure it is.
    pub certainty: Certainty,
    /// How bad it is.
    pub severity: Severity,
    /// It is no explanation of this failure: it was there before, or is about something else.
    pub background: bool,
    /// Oldest piece of evidence, by the clock of whoever wrote it.
    pub first_seen: Option<Timestamp>,
    /// Newest piece of evidence.
    pub last_seen: Option<Timestamp>,
    /// Pieces of evidence, those that are not shown counted.
    pub count: u64,
    /// The same for the same class and part, on any host: 16 hexadecimal digits.
    pub fingerprint: String,
    /// What was seen, sentences: calls with their answers, entries of logs.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
}

impl Cause {
    /// The cause in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let part = self.component.as_ref().map(|part| format!(" ({} {})", kind(part), part.slot)).unwrap_or_default();
        format!("{}{part} — {}", self.code.meaning(), self.advice)
    }
}

fn kind(part: &Component) -> String {
    format!("{:?}", part.kind)
}

/// What a diagnosis has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Causes, the best explanation first; those in the background last.
    pub causes: Vec<Cause>,
    /// Sources that were read.
    pub read: Vec<String>,
    /// Those that were not, and why.
    pub not_read: Vec<Unread>,
    /// What it has cost.
    pub spent: Spent,
}

impl Verdict {
    /// The best explanation. `None`: no cause was found.
    #[must_use]
    pub fn first(&self) -> Option<&Cause> {
        self.causes.first().filter(|cause| !cause.background)
    }

    /// The verdict in one line.
    #[must_use]
    pub fn line(&self) -> String {
        match self.first() {
            Some(cause) => cause.line(),
            None => {
                let unread = self.not_read.iter().map(|unread| unread.what.as_str()).collect::<Vec<_>>().join(", ");
                let unread = if unread.is_empty() { String::new() } else { format!("; not read: {unread}") };
                clean(&format!("No cause was found in {}{unread}", self.read.join(", ")), MAX_TEXT)
            }
        }
    }
}

/// Judges what was read.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Verdict {
    let evidence = &evidence.clone().bounded();
    let case = Case::new(evidence);
    let mut merged: BTreeMap<(Code, Option<Component>), Cause> = BTreeMap::new();
    let mut hits = rules::hits(&case);
    // The order of lists in the evidence is nobody's word.
    hits.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
    for hit in hits {
        let cause = cause(&case, hit);
        match merged.entry((cause.code, cause.component.clone())) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(cause);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().add(cause),
        }
    }
    let mut causes: Vec<Cause> = merged.into_values().collect();
    let heard = evidence.ours.agent.read().is_some_and(|agent| agent.heard.is_some());
    causes.sort_by_key(|cause| {
        let group = cause.code.group();
        // An agent that was heard was booted: what could have kept it from that goes behind.
        let passed = heard
            && matches!(group, crate::codes::Group::Media | crate::codes::Group::Boot | crate::codes::Group::Agent);
        (
            cause.background,
            std::cmp::Reverse(cause.certainty),
            passed,
            group,
            std::cmp::Reverse(cause.severity),
            std::cmp::Reverse(cause.last_seen),
            cause.code,
            cause.fingerprint.clone(),
        )
    });
    causes.truncate(MAX_CAUSES);
    let (read, not_read) = sources(evidence);
    let mut verdict = Verdict { causes, read, not_read, spent: evidence.spent };
    while serde_json::to_vec(&verdict).map_or(usize::MAX, |text| text.len()) > MAX_BYTES
        && verdict.causes.pop().is_some()
    {}
    verdict
}

/// What orders hits: the surest first.
fn order_of(
    hit: &Hit,
) -> (std::cmp::Reverse<Certainty>, std::cmp::Reverse<Option<Timestamp>>, &'static str, &[String]) {
    (std::cmp::Reverse(hit.certainty), std::cmp::Reverse(hit.last), hit.rule, &hit.evidence)
}

fn cause(case: &Case<'_>, hit: Hit) -> Cause {
    let explains = (hit.asked || case.explains(hit.code.group())) && !hit.past;
    let component = hit.component.map(|part| Component {
        kind: part.kind,
        slot: clean(&part.slot, MAX_NAME),
        part_number: part.part_number.map(|text| clean(&text, MAX_NAME)),
        serial: part.serial.map(|text| clean(&text, MAX_NAME)),
    });
    let part = component.as_ref().map_or_else(|| "the part".to_owned(), |part| format!("{} {}", kind(part), part.slot));
    let own = hit.code.advice().replace("{part}", &part);
    let advice = hit.advice.map_or_else(|| own.clone(), |said| format!("{own}; the BMC advises: {said}"));
    Cause {
        code: hit.code,
        rule: hit.rule.to_owned(),
        fixer: hit.code.fixer(),
        certainty: if explains { hit.certainty } else { Certainty::Possible },
        severity: hit.severity,
        background: !explains,
        first_seen: hit.first,
        last_seen: hit.last,
        count: hit.count,
        fingerprint: fingerprint(hit.code, component.as_ref()),
        evidence: hit.evidence.iter().map(|text| clean(text, MAX_TEXT)).collect(),
        advice: clean(&advice, MAX_TEXT),
        component,
    }
}

impl Cause {
    /// Adds more evidence of the same.
    fn add(&mut self, other: Self) {
        let surer = (other.certainty, !other.background) > (self.certainty, !self.background);
        if surer {
            (self.certainty, self.background) = (other.certainty, other.background);
            (self.rule, self.advice) = (other.rule, other.advice);
            self.evidence.splice(0..0, other.evidence);
        } else {
            self.evidence.extend(other.evidence);
        }
        self.severity = self.severity.max(other.severity);
        self.first_seen = [self.first_seen, other.first_seen].into_iter().flatten().min();
        self.last_seen = self.last_seen.max(other.last_seen);
        self.count = self.count.saturating_add(other.count);
        self.evidence.truncate(MAX_EVIDENCE);
    }
}

/// FNV-1a of 64 bits: an identity that people compare, no secret.
fn fingerprint(code: Code, part: Option<&Component>) -> String {
    let part = part.map(|part| (kind(part), &part.slot, &part.serial));
    let text = format!("{}/{part:?}", code.as_str());
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn sources(evidence: &Evidence) -> (Vec<String>, Vec<Unread>) {
    fn unread<T>(reading: &Reading<T>) -> Option<String> {
        reading.unread()
    }
    let ours = &evidence.ours;
    let all = [
        ("access", unread(&evidence.access)),
        ("power", unread(&evidence.power)),
        ("boot progress", unread(&evidence.boot)),
        ("virtual media", unread(&evidence.media)),
        ("parts", unread(&evidence.parts)),
        ("tasks", unread(&evidence.tasks)),
        ("logs", unread(&evidence.logs)),
        ("manager", unread(&evidence.manager)),
        ("failed calls", unread(&ours.calls)),
        ("medium reads", unread(&ours.medium)),
        ("agent", unread(&ours.agent)),
        ("SMART", unread(&ours.smart)),
        ("image", unread(&ours.image)),
        ("test medium", unread(&ours.test)),
        ("HardwareData", unread(&evidence.differences)),
    ];
    // A test is made on request alone: that there was none is not worth a word.
    let untested = ours.test == Reading::default();
    let all = all.into_iter().filter(|(what, _)| !(untested && *what == "test medium"));
    let all: Vec<(&str, Option<String>)> = all.collect();
    let read = all.iter().filter(|(_, why)| why.is_none()).map(|(what, _)| (*what).to_owned()).collect();
    let left =
        all.into_iter().filter_map(|(what, why)| Some(Unread { what: what.to_owned(), why: clean(&why?, MAX_TEXT) }));
    let more =
        evidence.skipped.iter().map(|one| Unread { what: clean(&one.what, MAX_NAME), why: clean(&one.why, MAX_TEXT) });
    (read, left.chain(more).take(MAX_SOURCES).collect())
}
