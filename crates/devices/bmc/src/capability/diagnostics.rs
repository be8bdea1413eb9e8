//! Evidence of what is wrong with a machine or its BMC, for whoever judges it.

use std::time::Duration;

use async_trait::async_trait;
use diagnosis::Evidence;
use jiff::Timestamp;

/// When one look for evidence is taken, and what it may cost. What does not fit is left out, and the evidence says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceBudget {
    /// The time by the server's clock.
    pub now: Timestamp,
    /// Most calls, the one that signs in not counted.
    pub calls: u32,
    /// No call is made after so many bytes were answered.
    pub bytes: u64,
    /// No call lasts beyond this.
    pub time: Duration,
}

impl EvidenceBudget {
    /// The usual one: 40 calls, 16 MiB, 90 s.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self { now, calls: diagnosis::MOST_CALLS, bytes: 16 << 20, time: Duration::from_secs(90) }
    }
}

/// Reads evidence.
#[async_trait]
pub trait Diagnostics: Send + Sync {
    /// What the BMC says of itself and of the machine: the sources of [`Evidence`] that are a BMC's, and its failed calls of late (`ours.calls`). Reads alone, and signs in
    /// once if nobody has. The BMC's turn is given up after each call, so that others who wait for it go between.
    ///
    /// It never fails: a BMC that cannot be reached or used is what the evidence tells then. Texts are clean; in logs there is nothing of who has used the BMC.
    async fn evidence(&self, budget: &EvidenceBudget) -> Evidence;
}
