//! How many wake-ups of one worker count, and how many of its questions are answered at once. Pure: time is given.

use std::time::Duration;

use tokio::time::Instant;

/// Wake-ups that may come at once.
const BURST: u32 = 256;
/// How long it takes until one more may come.
const EACH: Duration = Duration::from_millis(20);
/// Questions of one worker that are answered at once, in all its calls.
const QUESTIONS: u32 = 1000;
/// How long it takes until one more is.
const EACH_QUESTION: Duration = Duration::from_millis(5);

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

/// A bucket of tokens that fills with time, from which nothing is dropped: who comes too early waits for its turn.
#[derive(Debug)]
pub struct Pace {
    /// When it is full again.
    full: Instant,
}

impl Pace {
    /// A full one.
    pub const fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// When a question that comes now has its turn.
    pub fn turn(&mut self, now: Instant) -> Instant {
        self.full = self.full.max(now) + EACH_QUESTION;
        self.full.checked_sub(EACH_QUESTION * QUESTIONS).map_or(now, |turn| turn.max(now))
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

    #[test]
    fn who_asks_too_often_waits_for_its_turn() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert!((0..1000).all(|_| pace.turn(begin) == begin));
        let waits: Vec<u128> = (0..3).map(|_| (pace.turn(begin) - begin).as_millis()).collect();
        assert_eq!(waits, [5, 10, 15], "200 a second, and none is forgotten");
        let later = begin + Duration::from_secs(1);
        assert!((0..197).all(|_| pace.turn(later) == later), "those that waited have had theirs");
        assert_eq!(pace.turn(later) - later, Duration::from_millis(5));
        let calm = later + Duration::from_secs(60);
        assert!((0..1000).all(|_| pace.turn(calm) == calm) && pace.turn(calm) > calm);
    }
}
