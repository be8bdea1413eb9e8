//! What the condition `Progressing` tells of work under way: its step, how much of it is done, and that it takes too long.
//!
//! A step moves on all the time, and each word of it is a write of the status. So a host tells of another step, or of another quarter of one, after a
//! minute at the earliest and after a quarter of the time that it has been at work: some ten writes for hours of work, none for work of a minute. The
//! HostOperation, which is nobody's status, shows more.

use std::time::Duration;

use api::metal3::{BareMetalHost, BareMetalHostStatus, OperationalStatus, ProvisioningState as State, finalizer};
use jiff::{SignedDuration, Timestamp};

use crate::budget::{self, LATE};
use crate::step::HostEvent;
use crate::view::View;

/// Words before the error of an earlier attempt.
pub(crate) const BEFORE: &str = "the last attempt failed: ";
/// The condition.
const CONDITION: &str = "Progressing";
/// Its message changes for a step no sooner.
const SHORTEST: Duration = Duration::from_secs(60);
/// Longest text of an Event, bytes (`core/v1` Event).
const MAX_EVENT: usize = 1024;
/// Longest words of a step, bytes.
const LONGEST: usize = 512;

/// The message, which names the work, with what is told of its step, and whether it is late.
pub(crate) fn of(view: &View<'_>, status: &BareMetalHostStatus, reason: &str, message: String) -> String {
    let Some((since, _)) = budget::spent_of(view.host, status) else { return message };
    if status.operational_status == OperationalStatus::Delayed {
        return message;
    }
    let (work, error) = match message.split_once(&format!("; {BEFORE}")) {
        Some((work, error)) => (work, Some(error)),
        None => (message.as_str(), None),
    };
    let mut work = work.to_owned();
    if let Some(others) = others(view.host).filter(|_| status.provisioning.state == State::Deleting) {
        work = format!("{work}; then its object stays until others take their finalizers away: {others}");
    }
    let mut told = work.clone();
    if let Some(step) = step(view, status, reason, &work, since) {
        told.push_str(": ");
        told.push_str(&step);
    }
    told.push_str(&budget::late(view, status).unwrap_or_default());
    if let Some(error) = error {
        told.push_str("; ");
        told.push_str(BEFORE);
        told.push_str(error);
    }
    told
}

/// The finalizers of others.
fn others(host: &BareMetalHost) -> Option<String> {
    let others = host.metadata.finalizers.iter().flatten().filter(|name| *name != finalizer::HOST);
    let others: Vec<&str> = others.map(String::as_str).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

/// The Event that goes with a status which is the first to say that the work takes too long: one for each time that a host is in a state.
#[must_use]
pub fn late_event(view: &View<'_>, status: &BareMetalHostStatus) -> Option<HostEvent> {
    let old = view.status();
    let is_told = view.heard.told_late || late(old).is_some() || old.provisioning.state != status.provisioning.state;
    let message = late(status).filter(|_| !is_told)?;
    let message = message.get(..message.floor_char_boundary(MAX_EVENT)).unwrap_or_default().to_owned();
    Some(HostEvent { reason: budget::REASON, message, warning: true })
}

/// Whether the condition says that the work takes too long.
fn late(status: &BareMetalHostStatus) -> Option<&str> {
    let found = status.conditions.iter().find(|condition| condition.type_ == CONDITION)?;
    found.message.contains(LATE).then_some(found.message.as_str())
}

fn step(view: &View<'_>, status: &BareMetalHostStatus, reason: &str, work: &str, since: Timestamp) -> Option<String> {
    let condition =
        status.conditions.iter().find(|condition| condition.type_ == CONDITION && condition.reason == reason);
    let known = condition.and_then(|condition| condition.message.strip_prefix(work)?.strip_prefix(": "));
    let known = known.and_then(|rest| rest.split(';').next());
    let Some((now, percent)) = view.heard.step else { return known.map(ToOwned::to_owned) };
    let words = words(now, percent);
    let is_news = known.is_none_or(|known| shape(known) != shape(&words));
    if is_news && is_due(view, since) { Some(words) } else { known.map(ToOwned::to_owned) }
}

/// One clause.
fn words(step: &str, percent: Option<u8>) -> String {
    let plain: String = step.chars().map(|c| if c == ';' || c.is_control() { ',' } else { c }).collect();
    let plain = plain.get(..plain.floor_char_boundary(LONGEST)).unwrap_or_default().trim();
    match percent {
        Some(percent) => format!("{plain}, {} %", percent.min(100)),
        None => plain.to_owned(),
    }
}

/// What two clauses share that tell of the same: their words without numbers, and the quarter that is done.
fn shape(words: &str) -> (String, Option<u32>) {
    let percent = words.strip_suffix(" %").and_then(|rest| rest.rsplit(' ').next()?.parse::<u32>().ok());
    (words.chars().filter(|c| !c.is_ascii_digit()).collect(), percent.map(|percent| percent / 25))
}

fn is_due(view: &View<'_>, since: Timestamp) -> bool {
    let Some(last) = view.status().last_updated.as_ref() else { return false };
    let passed = |then: Timestamp| {
        Duration::try_from(view.now.duration_since(then).max(SignedDuration::ZERO)).unwrap_or_default()
    };
    passed(last.0.max(since)) >= SHORTEST.max(passed(since) / 4)
}
