//! What a worker may say: how much, how long, how often.

use std::time::Duration;

use serde_json::Value;
use terms::is_printable;

/// Largest message, bytes, both ways: gRPC's own limit. A Secret ends at 1 MiB, the record at 64 KiB.
pub const MAX_MESSAGE: usize = 4 << 20;
/// How long a call may take. A BMC may need 60 s to take in a medium.
pub const CALL_DEADLINE: Duration = Duration::from_secs(120);
/// How long a connection, its `Hello` and what asks no machine may take.
pub const SHORT: Duration = Duration::from_secs(10);
/// How often it is looked whether this process still leads, while a call is under way.
pub const LEADERSHIP_LOOK: Duration = Duration::from_millis(100);
/// Most messages of a worker in one call: a call is one step.
pub const MAX_MESSAGES: usize = 1000;
/// Most of them that are for people, each of which may be a write to the Kubernetes API; more are dropped.
pub const MAX_SHOWN: usize = 64;
/// Largest record of a machine that a worker writes, bytes: every server holds them all in memory.
pub const MAX_MACHINE: usize = 64 << 10;
/// Highest number of a piece of work in the history.
pub const MAX_NUMBER: u64 = 1_000_000;
/// Longest text within a document, bytes: a log.
const MAX_WITHIN: usize = 256 << 10;
/// Most values within a document.
pub const MAX_VALUES: usize = 100_000;
/// Longest document of what a worker can do, bytes.
pub const MAX_CAPABILITIES: usize = 16 << 10;
/// Most values within it: it may be another for each host, and an empty one takes as much memory as a name.
pub const MAX_CAPABILITY_VALUES: usize = 256;
/// Longest entry of a host's history, bytes: servers keep twenty of each host.
pub const MAX_TOLD: usize = 128 << 10;
/// Calls of one worker that are under way at once, where its entry names no number.
pub const CALLS: usize = 64;
/// Longest text of a worker that is shown, characters.
pub const MAX_TEXT: usize = 1000;
/// Longest id of a machine, bytes.
pub const MAX_ID: usize = 253;

/// Makes a worker's document fit for objects and terminals: no control characters but line ends. False if it has more
/// values than that, or too long a text.
pub fn tame(value: &mut Value, most: usize) -> bool {
    let mut left = most;
    tame_within(value, &mut left)
}

fn tame_within(value: &mut Value, left: &mut usize) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    match value {
        Value::String(text) => {
            let is_fit = |c: char| c == '\n' || is_printable(c);
            if text.len() > MAX_WITHIN {
                return false;
            }
            if !text.chars().all(is_fit) {
                *text = text.chars().map(|c| if is_fit(c) { c } else { ' ' }).collect();
            }
            true
        }
        Value::Array(all) => all.iter_mut().all(|one| tame_within(one, left)),
        Value::Object(all) => all
            .iter_mut()
            .all(|(name, one)| name.len() <= 1024 && name.chars().all(is_printable) && tame_within(one, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// When to look again: not sooner than 100 ms, and not later than an hour.
pub fn look_again(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_secs(10)).clamp(Duration::from_millis(100), Duration::from_secs(3600))
}

/// Room for long answers to one worker, in KiB: what it does not read is kept.
pub const LONG_ANSWERS: usize = 64 << 10;

/// How long a worker may take to read long answers before it gets no more of them.
pub const READS_WITHIN: Duration = Duration::from_secs(60);

/// Below it an answer takes none of that room, in KiB.
pub const SHORT_ANSWER: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn tame(value: &mut Value) -> bool {
        super::tame(value, MAX_VALUES)
    }

    #[test]
    fn what_a_worker_says_is_bounded() {
        let mut value = serde_json::json!({ "a": ["x\u{1b}[2J\ny", 7], "b": "\u{202e}" });
        assert!(tame(&mut value));
        assert_eq!((value["a"][0].as_str(), value["b"].as_str()), (Some("x [2J\ny"), Some(" ")));
        assert!(tame(&mut "z".repeat(MAX_WITHIN).into()) && !tame(&mut "z".repeat(MAX_WITHIN + 1).into()));
        assert!(!tame(&mut Value::from(vec![0; MAX_VALUES])) && tame(&mut Value::from(vec![0; MAX_VALUES - 1])));
        assert!(!tame(&mut serde_json::json!({ "a\u{7}": 1 })));
        assert_eq!(look_again(Some(Duration::ZERO)), Duration::from_millis(100));
        assert_eq!(look_again(Some(Duration::MAX)), Duration::from_secs(3600));
    }
}
