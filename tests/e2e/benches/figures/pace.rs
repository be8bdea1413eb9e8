//! How fast this machine's cores are at the moment. Limits in processor time were set at one pace; a core that is slower, or shares its caches with busy
//! neighbours, takes longer for the same work, and its time tells nothing of the program.
//!
//! The same work is done each time: digests, which take the core alone, and a walk through memory that does not fit its first caches. It allocates nothing while
//! it is timed, so that a slower allocator grants itself no time.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest as _, Sha256};

/// Processor time that the work took where the limits were set, worked out from what was measured there (16 s for a thousand fixture hosts, 25,000 looks a second)
/// and, by the same program, elsewhere beside this work (27 to 30 s, 14,000 looks, 48 ms).
const NOMINAL: Duration = Duration::from_millis(27);
/// Bytes that are digested.
const BYTES: usize = 16 << 20;
/// Places of the walk: 8 MiB.
const PLACES: usize = 1 << 20;
/// Steps of the walk.
const STEPS: usize = 1 << 19;
/// The most that a limit is stretched: beyond that the machine says nothing of the program.
const MOST: f64 = 2.0;

/// How many times slower a core is than where the limits were set.
#[derive(Clone, Copy, Debug)]
pub struct Pace(f64);

impl Pace {
    /// Does the work on so many threads at once, and takes their mean.
    ///
    /// # Errors
    /// When a thread fails.
    #[allow(clippy::cast_precision_loss, reason = "few threads")]
    pub fn now(threads: usize) -> anyhow::Result<Self> {
        let running = (0..threads).map(|_| thread::Builder::new().spawn(work)).collect::<Result<Vec<_>, _>>();
        let mut all = Duration::ZERO;
        for thread in running.context("start a thread")? {
            all += thread.join().map_err(|_| anyhow!("a thread has panicked"))??;
        }
        Ok(Self((all.as_secs_f64() / threads.max(1) as f64 / NOMINAL.as_secs_f64()).min(MOST)))
    }

    /// The pace between two moments.
    pub const fn until(self, later: Self) -> Self {
        Self(f64::midpoint(self.0, later.0))
    }

    /// A limit in processor time, as long as it is at this pace.
    pub const fn time(self, limit: f64) -> f64 {
        limit * self.0
    }

    /// A limit in things a second of processor time, as many as they are at this pace.
    pub const fn rate(self, limit: f64) -> f64 {
        limit / self.0
    }

    /// For a remark.
    pub fn told(self) -> String {
        format!("the limit is for a core {:.2} times as slow as where it was set, as this one is now", self.0)
    }
}

/// What this thread has taken of the processor so far.
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn work() -> anyhow::Result<Duration> {
    let bytes = vec![0x5a; BYTES];
    // One circle through all places, in an order that no core foresees (Sattolo's algorithm; Knuth's multiplier of linear congruential generators, MMIX).
    let mut next = (0..PLACES).collect::<Vec<_>>();
    let mut key = 1_u64;
    for last in (1..PLACES).rev() {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        next.swap(last, usize::try_from(key >> 33).unwrap_or_default() % last);
    }
    let begun = thread_time();
    black_box(Sha256::digest(black_box(&bytes)));
    let mut at = 0;
    for _ in 0..STEPS {
        at = next.get(at).copied().unwrap_or_default();
    }
    ensure!(black_box(at) < PLACES, "the walk has left its places");
    Ok(thread_time().saturating_sub(begun))
}
