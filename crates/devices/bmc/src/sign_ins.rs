//! Limit on concurrent sign-ins: when this process starts, or a network comes back, it must sign in to all BMCs.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Duration, timeout};

/// Most concurrent sign-ins.
pub const MAX_SIGN_INS: usize = 50;
/// How long a sign-in occupies its place: a BMC that does not answer, or asks to retry later, blocks others only briefly.
const COUNTS: Duration = Duration::from_secs(10);

/// The places for sign-ins, in the order of requests. Clones share them.
#[derive(Clone, Debug)]
pub struct SignIns(Arc<Semaphore>);

impl Default for SignIns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SIGN_INS)))
    }
}

impl SignIns {
    /// Signs in when there is a place.
    pub async fn when_there_is_room<T>(&self, sign_in: impl Future<Output = T>) -> T {
        // The semaphore is never closed; if it were, there would be no limit to wait for.
        let place = self.0.acquire().await.ok();
        tokio::pin!(sign_in);
        if let Ok(done) = timeout(COUNTS, &mut sign_in).await {
            return done;
        }
        drop(place);
        sign_in.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A thousand sign-ins of this duration each: the most that ran at once, and the total time.
    async fn thousand(each: Duration) -> (usize, Duration) {
        let (places, begun) = (SignIns::default(), Instant::now());
        let [now, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let mut all = JoinSet::new();
        for _ in 0..1000 {
            let (places, now, most) = (places.clone(), Arc::clone(&now), Arc::clone(&most));
            all.spawn(async move {
                let sign_in = async {
                    most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    sleep(each).await;
                    now.fetch_sub(1, Ordering::Relaxed);
                };
                places.when_there_is_room(sign_in).await;
            });
        }
        while all.join_next().await.is_some() {}
        (most.load(Ordering::Relaxed), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_sign_in_fifty_at_a_time() {
        let (most, time) = thousand(Duration::from_secs(2)).await;
        assert_eq!((most, time.as_secs()), (MAX_SIGN_INS, 40));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_hang_keep_nobody_waiting_for_long() {
        let (_, time) = thousand(Duration::from_secs(180)).await;
        assert_eq!(time.as_secs(), 19 * 10 + 180);
    }
}
