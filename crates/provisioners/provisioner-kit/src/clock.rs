//! The time of day, as it passes on tokio's clock.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisioner::Now;
use tokio::time::Instant;

/// A clock that begins on a day in 2026 and goes as tokio's does: paused and advanced with it.
#[must_use]
pub fn paused_clock() -> Now {
    let begun = Instant::now();
    let first = Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH);
    Arc::new(move || {
        let passed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::ZERO);
        first.checked_add(passed).unwrap_or(first)
    })
}
