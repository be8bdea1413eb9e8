//! Every call to a BMC, written down: a bounded ring of the last ones, and counters of all.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::ErrorKind;

/// Calls that are kept.
pub const KEPT: usize = 256;
/// Longest path that is kept, bytes.
const MAX_PATH: usize = 256;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The BMC answered with this status.
    Status(u16),
    /// There was no usable answer.
    Failed(ErrorKind),
    /// The caller went away before the answer.
    Abandoned,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the call at this BMC, from 1.
    pub sequence: u64,
    /// HTTP method, or another protocol's verb.
    pub method: String,
    /// Path, cut to 256 bytes; never a query, header or body.
    pub path: String,
    /// How it ended.
    pub outcome: CallOutcome,
    /// From sending to the end of the answer, milliseconds.
    pub milliseconds: u64,
    /// 0 for the first try, then counted up.
    pub retry: u32,
    /// Whether it went on beside the others: a stream of events, of which nothing depends on its answer.
    pub is_beside: bool,
}

/// Counters over all calls ever made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All calls.
    pub calls: u64,
    /// Those that ended without an answer or with a status of 400 and above.
    pub failures: u64,
    /// Those that repeated an earlier one.
    pub retries: u64,
}

/// A moment in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The ledger of one BMC.
#[derive(Debug, Default)]
pub struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counters: Counters,
    last: VecDeque<Call>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a call down; `sequence` is given here.
    pub(crate) fn record(&self, mut call: Call) {
        let cut = call.path.find('?').unwrap_or(MAX_PATH).min(MAX_PATH);
        call.path.truncate(call.path.floor_char_boundary(cut));
        let mut inner = self.lock();
        inner.counters.calls += 1;
        inner.counters.retries += u64::from(call.retry > 0);
        inner.counters.failures += u64::from(!matches!(call.outcome, CallOutcome::Status(status) if status < 400));
        call.sequence = inner.counters.calls;
        if inner.last.len() >= KEPT {
            inner.last.pop_front();
        }
        inner.last.push_back(call);
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Now.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.lock().counters.calls)
    }

    /// Calls ended since the mark.
    #[must_use]
    pub fn calls_since(&self, mark: Mark) -> u64 {
        self.lock().counters.calls.saturating_sub(mark.0)
    }

    /// The calls since the mark that are still kept, oldest first.
    #[must_use]
    pub fn entries_since(&self, mark: Mark) -> Vec<Call> {
        self.lock().last.iter().filter(|call| call.sequence > mark.0).cloned().collect()
    }

    /// The last calls, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Call> {
        self.lock().last.iter().cloned().collect()
    }
}
