//! Who says that a BMC is its own, and whether two do.
//!
//! It is kept beside the machine that answers there, and not beside the reports: whoever repeats another's identity, or invents as many as the list has room
//! for, makes nobody forget who has said so before.

use api::Time;
use api::metamorph::{BmcClaimant, DiscoveredMachine, DiscoveryPhase, MAX_CLAIMANTS};

/// How long a report counts against another machine's, seconds.
const CONTESTS: i64 = 24 * 3600;
/// How exact the time is that is kept of what says the same again, seconds: what has not changed is not written.
const EXACT: i64 = 3600;

/// What a machine says in a message that is claimed twice.
const CONTESTED: &str = "; more than one machine has reported within a day that it has this BMC";

/// What a report's claim to a BMC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No machine has said within a day that it has that BMC.
    New,
    /// The one that has said so says it again.
    Same,
    /// Another machine has said so within a day.
    Contested,
}

/// Notes that this machine (by [`crate::Sighted::digest`]) says that it has the BMC.
pub fn claim(machine: &mut DiscoveredMachine, digest: &str, now: &Time) -> Claim {
    let claimants = &mut machine.claimants;
    claimants.retain(|one| is_late(one.last_seen.as_ref(), now));
    let is_new = claimants.is_empty();
    match claimants.iter_mut().find(|one| one.digest == digest) {
        Some(own) => own.last_seen = seen(own.last_seen.take(), now),
        None => {
            // Of those that contest the first one's claim the last is as good as any.
            claimants.truncate(MAX_CLAIMANTS - 1);
            claimants.push(BmcClaimant { digest: digest.to_owned(), last_seen: Some(now.clone()) });
        }
    }
    let claim = match (is_new, claimants.len()) {
        (true, _) => Claim::New,
        (false, 1) => Claim::Same,
        (false, _) => Claim::Contested,
    };
    say(machine, now);
    claim
}

/// Says so where more than one has claimed it.
pub(crate) fn say(machine: &mut DiscoveredMachine, now: &Time) {
    let late = machine.claimants.iter().filter(|one| is_late(one.last_seen.as_ref(), now)).count();
    let is_said = machine.message.ends_with(CONTESTED);
    if late > 1 && machine.phase == DiscoveryPhase::Found && !is_said {
        machine.message.push_str(CONTESTED);
    }
}

/// When something was last seen that is as it was: the time before, where that is not long ago.
pub(crate) fn seen(before: Option<Time>, now: &Time) -> Option<Time> {
    let is_recent = |before: &Time| (0..EXACT).contains(&since(before, now));
    Some(before.filter(is_recent).unwrap_or_else(|| now.clone()))
}

fn is_late(at: Option<&Time>, now: &Time) -> bool {
    at.is_some_and(|at| since(at, now) <= CONTESTS)
}

fn since(at: &Time, now: &Time) -> i64 {
    now.0.as_second().saturating_sub(at.0.as_second())
}
