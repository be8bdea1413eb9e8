//! How old the word of a request is. Two clocks tell it: that of the Kubernetes API writes when a request was created, and that of the server which took it when it was taken. Pure.

use api::Time;
use jiff::{SignedDuration, Timestamp};

/// A request that is older when it is first seen is not taken any more.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);
/// How far the clocks of two servers may be apart.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Whether the word of this time may still be taken. One of the future is none; clocks of servers may differ a little.
pub(crate) fn is_fresh(time: Option<&Time>, now: Timestamp) -> bool {
    time.is_some_and(|time| {
        let age = now.duration_since(time.0);
        (-CLOCKS_DIFFER..=LONGEST_WAIT).contains(&age)
    })
}

/// Whether a time is of the future by more than clocks may differ.
pub(crate) fn is_ahead(time: Option<&Time>, now: Timestamp) -> bool {
    time.is_some_and(|time| time.0.duration_since(now) > CLOCKS_DIFFER)
}

/// Cause and sentence of a word that is not taken any more; of one whose time is ahead of this server's clock, that clocks differ. `since` is what is of
/// this time, and `what` what has not been done since.
pub(crate) fn stale(time: Option<&Time>, now: Timestamp, since: &str, what: &str) -> (&'static str, String) {
    let Some(at) = time.map(|time| time.0) else {
        return ("Expired", format!("it does not say when it was {since}: {what}"));
    };
    if !is_ahead(time, now) {
        return ("Expired", format!("{what} (it was {since} at {at}, and by this server's clock it is {now})"));
    }
    let text = format!(
        "it was {since} at {at}, {} minutes ahead of this server's clock, so that nobody can tell how old it is: {AHEAD}",
        at.duration_since(now).as_mins()
    );
    ("ClocksDiffer", text)
}

/// What to do where a time is ahead of this server's clock.
pub(crate) const AHEAD: &str =
    "set the clocks of this server and of the Kubernetes API (metamorph doctor compares them)";
