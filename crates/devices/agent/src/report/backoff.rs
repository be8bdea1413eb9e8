//! Pauses between attempts: doubling, bounded, with jitter, so that a thousand machines do not knock at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);
/// Pause after the server refused this agent: the agent itself cannot change that.
const REFUSED: Duration = Duration::from_secs(30);

/// Counts failures.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    /// An attempt worked.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// How long to pause now, between half and the whole of the present step.
    pub(super) fn pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(LONGEST);
        jitter(step)
    }

    /// How long to pause after a refusal.
    pub(super) fn refused() -> Duration {
        jitter(REFUSED)
    }
}

fn jitter(step: Duration) -> Duration {
    step.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound() {
        let mut backoff = Backoff::new();
        let mut step = FIRST;
        for _ in 0..10 {
            let pause = backoff.pause();
            assert!(pause >= step / 2 && pause <= step, "{pause:?} of {step:?}");
            step = (step * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
