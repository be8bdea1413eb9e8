//! The rows of a status: how many there is room for, which of them are as they were, and which of them the API does not take.

use std::collections::BTreeSet;

use api::metamorph::{
    DiscoveredMachine, DiscoveryPhase, HostDiscoveryStatus, MAX_REPORT_BYTES, MAX_REPORTS, ReportOutcome,
    ReportedMachine,
};
use serde::Serialize;

use crate::claims::seen;

/// How many bytes a row takes where it is stored: as JSON, in which the API's server writes some characters as six (Go's `encoding/json`, `HTMLEscape`).
pub(crate) fn weight(row: &impl Serialize) -> usize {
    let text = serde_json::to_string(row).unwrap_or_default();
    let more = |c: char| match c {
        '<' | '>' | '&' => 5,
        '\u{2028}' | '\u{2029}' => 3,
        _ => 0,
    };
    text.len() + 1 + text.chars().map(more).sum::<usize>()
}

/// The list with this row, at most [`MAX_REPORTS`] and [`MAX_REPORT_BYTES`]: what is of no host goes first, and of that the oldest. A row takes the place of
/// one that says the same of the same machine, and of no other; one from before digests were kept says it, too.
#[must_use]
pub fn listed(before: &[ReportedMachine], mut row: ReportedMachine) -> Vec<ReportedMachine> {
    let is_it = |other: &&ReportedMachine| {
        let is_same = other.digest == row.digest || other.digest.is_empty();
        is_same && other.identity == row.identity && other.bmc_addresses == row.bmc_addresses
    };
    if let Some(old) = before.iter().find(is_it)
        && (ReportedMachine { last_seen: row.last_seen.clone(), ..old.clone() }) == row
        && let Some(now) = row.last_seen.take()
    {
        row.last_seen = seen(old.last_seen.clone(), &now);
        if row == *old {
            return before.to_vec();
        }
    }
    let mut rows: Vec<ReportedMachine> = before.iter().filter(|other| !is_it(other)).cloned().collect();
    let mut bytes = weight(&row) + rows.iter().map(weight).sum::<usize>();
    while rows.len() >= MAX_REPORTS || bytes > MAX_REPORT_BYTES {
        let rank = |row: &ReportedMachine| match row.outcome {
            ReportOutcome::Host => 2,
            ReportOutcome::Known if row.host.is_some() => 1,
            _ => 0,
        };
        let age = |row: &ReportedMachine| (rank(row), row.last_seen.as_ref().map(|seen| seen.0));
        let oldest = rows.iter().enumerate().min_by_key(|(_, row)| age(row)).map(|(index, _)| index);
        let Some(oldest) = oldest else { break };
        bytes = bytes.saturating_sub(weight(&rows.remove(oldest)));
    }
    rows.push(row);
    rows
}

/// The machines in the order in which they were listed before, with the times of those that are as they were.
#[must_use]
pub fn as_listed(before: &[DiscoveredMachine], mut machines: Vec<DiscoveredMachine>) -> Vec<DiscoveredMachine> {
    let mut all = Vec::with_capacity(machines.len());
    for old in before {
        let is_it = |one: &DiscoveredMachine| one.address == old.address && one.uuid == old.uuid;
        let Some(index) = machines.iter().position(is_it) else { continue };
        let mut machine = machines.swap_remove(index);
        if (DiscoveredMachine { last_seen: machine.last_seen.clone(), ..old.clone() }) == machine
            && let Some(now) = machine.last_seen.take()
        {
            machine.last_seen = seen(old.last_seen.clone(), &now);
        }
        all.push(machine);
    }
    all.extend(machines);
    all
}

/// A status without the rows that the API does not take.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// The rest.
    pub status: HostDiscoveryStatus,
    /// Reports that are left out.
    pub reports: Vec<ReportedMachine>,
    /// Addresses of machines that are left out.
    pub machines: Vec<String>,
}

/// What is left of a status without the rows that the API has refused: those that the fields of its answer name (`status.reports[3].uuid`), or where they
/// name none the reports that are new. `None` where that is no row, or one that must be remembered.
#[must_use]
pub fn without_refused(status: &HostDiscoveryStatus, before: &[ReportedMachine], fields: &[&str]) -> Option<Taken> {
    // One without a field says that rules were not looked at for the other faults.
    let fields: Vec<&str> = fields.iter().copied().filter(|field| !matches!(*field, "" | "<nil>")).collect();
    let index = |field: &str, list: &str| -> Option<usize> {
        let rest = field.strip_prefix("status.")?.strip_prefix(list)?.strip_prefix('[')?;
        rest.split_once(']')?.0.parse().ok()
    };
    let of = |list: &str| -> BTreeSet<usize> { fields.iter().filter_map(|field| index(field, list)).collect() };
    let (mut reports, machines) = (of("reports"), of("machines"));
    let is_row = |field: &&&str| index(field, "reports").or_else(|| index(field, "machines")).is_some();
    if reports.is_empty() && machines.is_empty() {
        let is_new = |(_, row): &(usize, &ReportedMachine)| !before.contains(row);
        reports = status.reports.iter().enumerate().filter(is_new).map(|(index, _)| index).collect();
    } else if fields.iter().filter(is_row).count() < fields.len() {
        return None;
    }
    let must_stay = |index: &usize| {
        let is_kept = |one: &DiscoveredMachine| one.phase == DiscoveryPhase::Dismissed || one.host_uid.is_some();
        status.machines.get(*index).is_none_or(is_kept)
    };
    if (reports.is_empty() && machines.is_empty()) || machines.iter().any(must_stay) {
        return None;
    }
    let mut less = status.clone();
    less.reports = rest(&status.reports, &reports);
    less.machines = rest(&status.machines, &machines);
    Some(Taken {
        status: less,
        reports: reports.iter().filter_map(|index| status.reports.get(*index).cloned()).collect(),
        machines: machines.iter().filter_map(|index| Some(status.machines.get(*index)?.address.clone())).collect(),
    })
}

fn rest<T: Clone>(rows: &[T], without: &BTreeSet<usize>) -> Vec<T> {
    rows.iter().enumerate().filter(|(index, _)| !without.contains(index)).map(|(_, row)| row.clone()).collect()
}
