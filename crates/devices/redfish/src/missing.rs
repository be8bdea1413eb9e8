//! What a BMC hides, and for how long.

use tokio::time::{Duration, Instant};

/// How long a drive that is not shown may be hidden: then it counts as gone. BMCs that restart, or update themselves, show only a part of what they have for minutes.
pub const HIDDEN: Duration = Duration::from_secs(600);

/// What the BMC does not show, though it is known of.
#[derive(Debug)]
pub struct Missing {
    /// Its address.
    pub path: String,
    since: Instant,
    last: Instant,
}

impl Missing {
    /// It is missed now for the first time.
    pub fn new(path: &str) -> Self {
        let now = Instant::now();
        Self { path: path.to_owned(), since: now, last: now }
    }

    /// It was looked for so long ago that what was found then says nothing of now.
    pub fn is_old(&self) -> bool {
        self.last.elapsed() >= HIDDEN
    }

    /// It is missed once more.
    pub fn is_missed_again(&mut self) {
        let now = Instant::now();
        if self.is_old() {
            self.since = now;
        }
        self.last = now;
    }

    /// For how long it has been missed.
    pub fn lasts(&self) -> Duration {
        self.since.elapsed()
    }
}
