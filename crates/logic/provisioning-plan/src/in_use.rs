//! Whether a machine is in use by what its record says was put on it, asked when a host is registered whose status no server has written since the host
//! was made: it has none, after a move or a restore that took it away, or one that is as old as the backup it comes from.
//!
//! The record is the truth about what was done to a machine, the status about what its host is. Where the status is a server's own, it counts. Otherwise the
//! machine is recognised by its record, or held: it is neither booted nor switched, written or wiped until somebody says what is to become of it.
//!
//! | record | no status | a status that was restored |
//! |---|---|---|
//! | runs what was provisioned or taken over | recognised if the host asks for just that; else held | held unless the status tells of that provisioning, or of a later one |
//! | was emptied, or anything else, or nothing | held if something beside the host tells of a past that the record does not account for | goes on as it says |
//!
//! A host that is registered is asked once more before something is done by which a system ends ([`is_behind`]): an old status may have been put back into the same
//! object.
//!
//! Consent names the owner whose data may be destroyed, or [`UNKNOWN`] where nobody knows whose they are.

use std::cmp::Ordering;

use jiff::Timestamp;

/// What consent names where it is not known what is on the machine.
pub const UNKNOWN: &str = "unknown";

/// What is on the machine, by its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing is recorded of any work.
    Nothing,
    /// It was looked at, prepared or erased, which is done to machines that nobody uses, and puts nothing on them.
    Unused,
    /// Something was done to it, and what is on it since is not known: an image was being written or removed, or the machine was left to others.
    Unclear,
    /// It was emptied, and no work has begun since.
    Emptied {
        /// When that ended, if that is known.
        ended: Option<Timestamp>,
    },
    /// It runs a system.
    Runs(Runs),
}

/// What a wish asks for: it without its time.
#[must_use]
pub fn asked(wish: &str) -> Option<&str> {
    wish.split_once(' ').map(|(_, asked)| asked)
}

/// When the host began with a wish.
#[must_use]
pub fn began(wish: &str) -> Option<Timestamp> {
    wish.split(' ').next()?.parse().ok()
}

/// What a machine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The wish that it was provisioned by: when its host began with it, a blank, and a digest of what was asked for. `None` where that is not known.
    pub wish: Option<String>,
    /// Whose mark is on the disk: the id of the host at that time.
    pub owner: String,
}

impl Runs {
    /// What was asked for: the wish without its time.
    #[must_use]
    pub fn asked(&self) -> Option<&str> {
        self.wish.as_deref().and_then(asked)
    }

    /// When the host began with it.
    #[must_use]
    pub fn began(&self) -> Option<Timestamp> {
        self.wish.as_deref().and_then(began)
    }

    /// Whether a status tells of it, or of something later.
    fn is_told_by(&self, status: &Told<'_>) -> bool {
        let Told::Restored { provisioning, runs } = status else { return false };
        let is_the_same = runs.is_some() && self.asked() == *runs;
        is_the_same
            || match (provisioning, self.began()) {
                (Some(told), Some(began)) => *told >= began,
                // Since when somebody else's is there, or what was taken over, nobody knows.
                _ => false,
            }
    }
}

/// What the host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// A server has written its status since the host was made.
    Here,
    /// It has no status.
    Lost {
        /// What its spec asks for, as [`Runs::asked`] says it.
        asks_for: &'a str,
        /// Something beside it says that it has had a life before: it has a consumer, or its hardware is known.
        has_past: bool,
        /// It has a consumer.
        is_claimed: bool,
        /// Since when its hardware is known, if it is.
        known_since: Option<Timestamp>,
    },
    /// It has one that is older than the host.
    Restored {
        /// When the last provisioning began that it tells of.
        provisioning: Option<Timestamp>,
        /// What it says is provisioned, as [`Runs::asked`] says it.
        runs: Option<&'a str>,
    },
}

/// What a host tells of its machine's past, once it is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past<'a> {
    /// When the host was made.
    pub made: Option<Timestamp>,
    /// When the provisioning began that its status tells of.
    pub provisioned: Option<Timestamp>,
    /// When the machine was last emptied.
    pub emptied: Option<Timestamp>,
    /// What the status says is provisioned, as [`Runs::asked`] says it; `None` while a provisioning has not come to its end.
    pub runs: Option<&'a str>,
    /// Since when that is being removed, if it is.
    pub removing: Option<Timestamp>,
    /// Its spec says that somebody else looks after what is on the machine.
    pub externally: bool,
}

/// Whether a status is older than what its machine runs: it tells neither of that provisioning, nor of a later one, nor that the machine was emptied since. So it
/// is when somebody has put an old one back into the same object, and what is done by it would end a system that is in use.
#[must_use]
pub fn is_behind(past: &Past<'_>, runs: &Runs) -> bool {
    // Nobody knows when others have put their system there: it is theirs for as long as the host says so.
    let Some(began) = runs.began() else { return past.externally };
    let is_since = |at: Option<Timestamp>| at.is_some_and(|at| at >= began);
    // A host that was made since was compared when it was registered.
    if past.made.is_some_and(|made| made > began) {
        return false;
    }
    // The same image may have been provisioned again since what the status removes.
    let is_the_same = past.runs.is_some() && past.runs == runs.asked() && past.removing.is_none_or(|at| at >= began);
    // One that has not come to its end tells of nothing but itself: its server may have ended when it had.
    let is_told = past.provisioned.is_some_and(|at| match at.as_second().cmp(&began.as_second()) {
        Ordering::Less => false,
        Ordering::Equal => true,
        Ordering::Greater => past.runs.is_some(),
    });
    !is_the_same && !is_told && !is_since(past.emptied)
}

/// What is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// By the record.
    pub recorded: &'a Recorded,
    /// By the host.
    pub told: Told<'a>,
    /// Whether the machine is on; `None` where the BMC does not tell.
    pub powered_on: Option<bool>,
    /// Owners whose data may be destroyed, separated by commas.
    pub consent: Option<&'a str>,
}

/// What becomes of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// It is registered as what it says it is.
    GoOn,
    /// It is what this machine runs.
    Recognise(&'a Runs),
    /// Nothing is done to the machine.
    Hold(Why<'a>),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why<'a> {
    /// It runs something else than the host, which has no status, asks for.
    Runs(&'a Runs),
    /// It runs what the host's status does not tell of yet.
    RunsSince(&'a Runs),
    /// It may be in use: the host has a past of which nothing tells what has become of it.
    Past,
}

/// Whether consent names this owner.
#[must_use]
pub fn names(consent: Option<&str>, owner: &str) -> bool {
    consent.is_some_and(|owners| owners.split(',').any(|named| named.trim() == owner))
}

/// The rule.
#[must_use]
pub fn found<'a>(facts: &Facts<'a>) -> Found<'a> {
    match (&facts.told, facts.recorded) {
        (Told::Here, _) => Found::GoOn,
        (Told::Lost { asks_for, .. }, Recorded::Runs(runs)) if runs.asked() == Some(asks_for) => Found::Recognise(runs),
        (_, Recorded::Runs(runs)) if names(facts.consent, &runs.owner) || runs.is_told_by(&facts.told) => Found::GoOn,
        (Told::Lost { .. }, Recorded::Runs(runs)) => Found::Hold(Why::Runs(runs)),
        (Told::Restored { .. }, Recorded::Runs(runs)) => Found::Hold(Why::RunsSince(runs)),
        (Told::Restored { .. }, _) => Found::GoOn,
        (Told::Lost { has_past, is_claimed, known_since, .. }, recorded) => {
            let accounted = match recorded {
                // The hardware was known before the machine was emptied.
                Recorded::Emptied { ended } => {
                    !is_claimed && ended.zip(*known_since).is_some_and(|(end, known)| end > known)
                }
                // Only whoever is to use it tells of a past: it is not in use while it is off.
                Recorded::Nothing => known_since.is_none() && facts.powered_on == Some(false),
                _ => false,
            };
            if !has_past || accounted || names(facts.consent, UNKNOWN) { Found::GoOn } else { Found::Hold(Why::Past) }
        }
    }
}
