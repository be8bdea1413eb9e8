//! How many wake-ups of one worker count. Pure: time is given.

use std::time::Duration;

use tokio::time::Instant;

/// Wake-ups that may come at once.
const BURST: u32 = 256;
/// How long it takes until one more may come.
const EACH: Duration = Duration::from_millis(20);

/// What becomes of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It counts.
    Yes,
    /// It is dropped, the first of a flood: to be told once.
    FirstDropped,
    /// It is dropped.
    Dropped,
}

/// A bucket of tokens that fills with time.
#[derive(Debug)]
pub struct Limiter {
    left: u32,
    filled: Instant,
    is_told: bool,
}

impl Limiter {
    /// A full one.
    pub const fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, is_told: false }
    }

    /// A wake-up comes now.
    pub fn admit(&mut self, now: Instant) -> Admitted {
        let passed = now.saturating_duration_since(self.filled).as_millis() / EACH.as_millis();
        let tokens = u32::try_from(passed).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(tokens).min(BURST);
        self.filled = if self.left == BURST { now } else { self.filled + EACH * tokens };
        if self.left == BURST {
            self.is_told = false;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Admitted::Yes
            }
            None if self.is_told => Admitted::Dropped,
            None => {
                self.is_told = true;
                Admitted::FirstDropped
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_dropped_and_told_once() {
        let begin = Instant::now();
        let mut limiter = Limiter::new(begin);
        let all: Vec<Admitted> = (0..1000).map(|_| limiter.admit(begin)).collect();
        assert_eq!(all.iter().filter(|one| **one == Admitted::Yes).count(), 256);
        assert_eq!(all.iter().filter(|one| **one == Admitted::FirstDropped).count(), 1);
        let later = begin + Duration::from_secs(1);
        let again: Vec<Admitted> = (0..100).map(|_| limiter.admit(later)).collect();
        assert_eq!(again.iter().filter(|one| **one == Admitted::Yes).count(), 50, "50 a second");
        assert!(!again.contains(&Admitted::FirstDropped), "the same flood");
        let calm = later + Duration::from_secs(60);
        assert!((0..256).all(|_| limiter.admit(calm) == Admitted::Yes));
        assert_eq!(limiter.admit(calm), Admitted::FirstDropped, "another flood");
    }
}
