//! Waiting: how long as data, how by a [`Pacer`].

use std::time::Duration;

use async_trait::async_trait;

/// A bounded series of waits, each a multiple of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First wait.
    pub first: Duration,
    /// Each wait is this many times the one before.
    pub factor: u32,
    /// No wait is longer.
    pub most: Duration,
    /// How many waits there are; then it is given up.
    pub attempts: u32,
}

impl Backoff {
    /// The wait after failed attempt number `attempt` (from 0), or `None` when it is time to give up.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let factor = self.factor.max(1).saturating_pow(attempt);
        Some(self.first.saturating_mul(factor).min(self.most))
    }

    /// The wait after failed attempt number `attempt`: at least as long as the other side asked for, within [`Backoff::most`].
    #[must_use]
    pub fn wait_at_least(&self, attempt: u32, asked: Option<Duration>) -> Option<Duration> {
        let wait = self.wait(attempt)?;
        Some(asked.map_or(wait, |asked| wait.max(asked).min(self.most)))
    }

    /// Sum of all waits.
    #[must_use]
    pub fn total(&self) -> Duration {
        (0..self.attempts).filter_map(|attempt| self.wait(attempt)).fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Waits. Clients never sleep on their own, so that tests own the time.
#[async_trait]
pub trait Pacer: Send + Sync {
    /// Returns after this time.
    async fn wait(&self, time: Duration);
}

/// Waits on tokio's clock (which its test clock drives too).
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioPacer;

#[async_trait]
impl Pacer for TokioPacer {
    async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
