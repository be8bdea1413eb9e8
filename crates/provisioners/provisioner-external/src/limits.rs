//! What a worker may say: how much, how long, how often.

use std::time::Duration;

use terms::is_printable;

/// Largest message, bytes, both ways: gRPC's own limit. A Secret ends at 1 MiB, the record at 64 KiB.
pub const MAX_MESSAGE: usize = 4 << 20;
/// How long a call may take. A BMC may need 60 s to take in a medium.
pub const CALL_DEADLINE: Duration = Duration::from_secs(120);
/// How long a connection, its `Hello` and what asks no machine may take.
pub const SHORT: Duration = Duration::from_secs(10);
/// How often it is looked whether this process still leads, while a call is under way.
pub const LEADERSHIP_LOOK: Duration = Duration::from_millis(100);
/// Most messages of a worker in one call.
pub const MAX_MESSAGES: usize = 10_000;
/// Calls of one worker that are under way at once, where its entry names no number.
pub const CALLS: usize = 64;
/// Longest text of a worker that is shown, characters.
pub const MAX_TEXT: usize = 1000;
/// Longest id of a machine, bytes.
pub const MAX_ID: usize = 253;

/// A worker's text on one line: control characters and runs of blanks become one blank, and it is cut after `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    // Cut first: a text of megabytes is not gone through.
    for c in text.chars().take(most.saturating_mul(4)) {
        let c = if c.is_whitespace() || !is_printable(c) { ' ' } else { c };
        if c == ' ' && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if count == most {
            line.push('…');
            return line;
        }
        line.push(c);
        count += 1;
    }
    line.truncate(line.trim_end().len());
    line
}

/// When to look again: not sooner than 100 ms, and not later than an hour.
pub fn look_again(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_secs(10)).clamp(Duration::from_millis(100), Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_is_bounded() {
        assert_eq!(clean(" a\r\n\u{1b}[2J b\u{202e}c ", 100), "a [2J b c");
        assert_eq!(clean(&"x".repeat(1 << 20), 3), "xxx…");
        assert_eq!(look_again(Some(Duration::ZERO)), Duration::from_millis(100));
        assert_eq!(look_again(Some(Duration::MAX)), Duration::from_secs(3600));
    }
}
