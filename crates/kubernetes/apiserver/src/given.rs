//! Time and randomness. With a fixed clock and seed, a server produces the same timestamps and names in every run.

use std::sync::{Arc, Mutex, PoisonError};

use clock::{Clock, SystemClock};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Sources of time and randomness.
pub struct Given {
    clock: Arc<dyn Clock>,
    /// `None` uses the system's.
    seeded: Option<Mutex<StdRng>>,
}

impl Default for Given {
    /// The system's clock and randomness.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), seeded: None }
    }
}

impl Given {
    /// A clock, and an optional seed. Names, uids and choices derive from it, but never cryptographic keys.
    pub fn new(clock: Arc<dyn Clock>, seed: Option<u64>) -> Self {
        Self { clock, seeded: seed.map(|seed| Mutex::new(StdRng::seed_from_u64(seed))) }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present time as `meta/v1` time: RFC 3339 in whole seconds, UTC.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }

    /// A new uid.
    pub fn uid(&self) -> String {
        match &self.seeded {
            None => uuid::Uuid::new_v4(),
            Some(_) => uuid::Builder::from_random_bytes(self.random().to_ne_bytes()).into_uuid(),
        }
        .to_string()
    }

    /// A random number below `end`, which must be greater than 0.
    pub fn below(&self, end: u64) -> u64 {
        // With 128 bits the modulo bias is negligible.
        u64::try_from(self.random() % u128::from(end)).unwrap_or_default()
    }

    fn random(&self) -> u128 {
        match &self.seeded {
            None => rand::random(),
            Some(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).random(),
        }
    }
}

/// Formats a `meta/v1` time.
pub fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Timestamp {
            "2026-01-02T03:04:05.678Z".parse().unwrap()
        }
    }

    fn seeded(seed: u64) -> Given {
        Given::new(Arc::new(Stopped), Some(seed))
    }

    #[test]
    fn a_seed_gives_the_same_again_and_another_seed_does_not() {
        let run = |seed| {
            let given = seeded(seed);
            (given.uid(), given.uid(), (0..100).map(|_| given.below(1000)).collect::<Vec<_>>())
        };
        let first = run(7);
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
        assert_ne!(first.0, first.1);
        assert!(first.2.iter().all(|n| *n < 1000) && first.2.iter().any(|n| *n > 900));
    }

    #[test]
    fn uids_are_of_version_4_and_times_of_whole_seconds() {
        let uid: uuid::Uuid = seeded(1).uid().parse().unwrap();
        assert_eq!((uid.get_version_num(), uid.get_variant()), (4, uuid::Variant::RFC4122));
        assert_eq!(seeded(1).stamp(), "2026-01-02T03:04:05Z");
        assert_ne!(Given::default().uid(), Given::default().uid());
    }
}
