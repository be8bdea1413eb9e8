//! What a HostClass shows: its status.

use std::fmt::Write as _;

use api::Time;
use api::metamorph::{
    ErroredHost, HostClassCondition, HostClassStatus, LabelConflict, PreviewedHost, RuleVerdict, UnmatchedHost,
};
use terms::clean;

use super::board::{Board, Seen};
use super::class::{COST_LIMIT, Class};
use super::vars::{Values, is_of_devices};

/// Most hosts that are listed by name.
const MAX_HOSTS: usize = 256;
/// Most hosts in error that are listed.
const MAX_ERRORED: usize = 64;
/// Most hosts of which it is told why they are not of the class.
const MAX_UNMATCHED: usize = 32;
/// Most hosts of which it is told what would change.
const MAX_PREVIEW: usize = 64;
/// Most labels of such a host.
const MAX_CHANGES: usize = 18;
/// Most conflicts that are told.
const MAX_CONFLICTS: usize = 32;
/// Longest message of a condition, characters.
const MAX_MESSAGE: usize = 512;

/// What the reasons of a status may cost together, or a little more; hosts beyond are counted, and not listed.
const MAX_COST: u64 = 4 * COST_LIMIT;

/// Adds the host; `cost` is what its reason has cost, and those before.
fn add(seen: &Seen<'_>, class: &Class, status: &mut HostClassStatus, cost: &mut u64) {
    if seen.is_matched {
        status.matched_count += 1;
        if status.hosts.len() < MAX_HOSTS {
            status.hosts.push(seen.name.to_owned());
        }
        if let Some(error) = seen.host.own.error {
            status.errored_count += 1;
            if status.errored.len() < MAX_ERRORED {
                status.errored.push(ErroredHost {
                    name: seen.name.to_owned(),
                    error_type: error.0.map(|kind| kind.as_str().to_owned()),
                    cause: seen.host.own.cause().map(|cause| clean(cause, 64)),
                });
            }
        }
    } else {
        status.unmatched_count += 1;
        status.unknown_count += i64::from(seen.is_unknown);
        if status.unmatched.len() < MAX_UNMATCHED && *cost < MAX_COST {
            let values = Values::of(&seen.host.own, seen.host.facts.as_ref());
            let (why, spent) = class.why(&values);
            *cost += spent;
            if let Some((rule, verdict, mut reason)) = why {
                let is_of_hardware = verdict == RuleVerdict::NotKnown && reason.contains("hardware.");
                if is_of_hardware && seen.host.facts.is_none() {
                    reason = clean(&format!("{reason}; the host has not been inspected"), 256);
                } else if is_of_hardware && is_of_devices(&reason) {
                    let how = "an inspection of this version with an agent tells it";
                    reason = clean(&format!("{reason}; {how}"), 256);
                }
                status.unmatched.push(UnmatchedHost { name: seen.name.to_owned(), rule, verdict, reason });
            }
        }
    }
    status.conflict_count += i64::from(!seen.conflicts.is_empty());
    for conflict in &seen.conflicts {
        if status.conflicts.len() < MAX_CONFLICTS {
            status.conflicts.push(LabelConflict {
                host: seen.name.to_owned(),
                label: conflict.key.clone(),
                wanted: conflict.wanted.clone(),
                found: clean(&conflict.found, 63),
                class: conflict.by.clone(),
            });
        }
    }
    if let Some(preview) = seen.preview {
        status.preview_count += 1;
        if status.preview.len() < MAX_PREVIEW {
            let gains = preview.gains.iter().take(MAX_CHANGES);
            status.preview.push(PreviewedHost {
                name: seen.name.to_owned(),
                gains: gains.map(|(key, value)| (key.clone(), value.clone())).collect(),
                loses: preview.loses.iter().take(MAX_CHANGES).cloned().collect(),
            });
        }
    }
}

/// Type, whether it is so, reason and message of the two conditions.
fn conditions(
    class: &Class,
    status: &HostClassStatus,
    refused: Option<&str>,
) -> [(&'static str, bool, &'static str, String); 2] {
    let accepted = match &class.fault {
        Some(fault) => ("Accepted", false, fault.reason, fault.message.clone()),
        None => (
            "Accepted",
            true,
            "RulesAccepted",
            format!("its rules cost at most {} of {COST_LIMIT} for a host", class.cost()),
        ),
    };
    let not = |reason, message| ("Applied", false, reason, message);
    let applied = if class.fault.is_some() {
        not("NotAccepted", "nobody is judged by it: labels that it has given stay as they are".to_owned())
    } else if class.is_preview() {
        let mut message = format!("spec.mode is Preview: labels of {} hosts would change", status.preview_count);
        if status.conflict_count > 0 {
            let _ = write!(
                message,
                "; {} hosts would not get a label of it, as somebody else has given it another value: see status.conflicts",
                status.conflict_count
            );
        }
        not("Preview", message)
    } else if let Some(why) = refused {
        not("WriteRefused", why.to_owned())
    } else if status.conflict_count > 0 {
        let message = format!(
            "{} hosts do not get a label of it, as somebody else has given it another value: see status.conflicts",
            status.conflict_count
        );
        not("LabelConflict", message)
    } else {
        ("Applied", true, "LabelsWritten", "hosts of the class bear its labels".to_owned())
    };
    [accepted, applied]
}

impl Board {
    /// The status of a class, if there is such a class. `before` is the one that it has: a condition that stays keeps its time. `refused` is why a label of it
    /// could not be written; `now` is the time.
    #[must_use]
    pub fn status(
        &self,
        namespace: &str,
        name: &str,
        (before, refused): (Option<&HostClassStatus>, Option<&str>),
        now: &Time,
    ) -> Option<HostClassStatus> {
        let class = self.class(namespace, name)?;
        let mut status = HostClassStatus { observed_generation: class.generation, ..HostClassStatus::default() };
        if class.fault.is_none() {
            let mut cost = 0;
            self.seen(namespace, name).for_each(|seen| add(&seen, class, &mut status, &mut cost));
        }
        let old = |kind: &str| before?.conditions.iter().find(|condition| condition.kind == kind);
        let all = conditions(class, &status, refused).map(|(kind, is, reason, message)| {
            let is = if is { "True" } else { "False" };
            let since = old(kind).filter(|old| old.status == is).map(|old| old.last_transition_time.clone());
            HostClassCondition {
                kind: kind.to_owned(),
                status: is.to_owned(),
                reason: reason.to_owned(),
                message: clean(&message, MAX_MESSAGE),
                observed_generation: class.generation,
                last_transition_time: since.unwrap_or_else(|| now.clone()),
            }
        });
        status.conditions = all.into();
        Some(status)
    }
}
