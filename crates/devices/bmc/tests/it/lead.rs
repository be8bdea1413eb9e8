//! No call is begun, or goes on, while another process may act.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bmc::{Lead, NotLeading, Term};
use tokio::time::{Instant, sleep};

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_begun_after_the_end() {
    for term in [Term::Over, Term::Until(Instant::now())] {
        let lead = Lead::new(move || term);
        let begun = Mutex::new(false);
        let call = async { *begun.lock().unwrap() = true };
        assert_eq!(lead.during(call).await, Err(NotLeading { begun: false }));
        assert!(!*begun.lock().unwrap());
    }
    assert_eq!(Lead::default().during(async { sleep(seconds(1_000_000)).await }).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_lasts_too_long_is_cut_at_the_end() {
    let begun = Instant::now();
    let lead = Lead::new(move || Term::Until(begun + seconds(12)));
    assert_eq!(lead.during(sleep(seconds(11))).await, Ok(()));
    assert_eq!(lead.during(sleep(seconds(60))).await, Err(NotLeading { begun: true }));
    assert_eq!(begun.elapsed(), seconds(12));
    // What is done at the end itself is done.
    assert_eq!(lead.during(async {}).await, Err(NotLeading { begun: false }));
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_made_longer_lets_a_call_go_on() {
    let begun = Instant::now();
    let until = Arc::new(Mutex::new(begun + seconds(12)));
    let lead = Lead::new({
        let until = Arc::clone(&until);
        move || Term::Until(*until.lock().unwrap())
    });
    let renewals = tokio::spawn(async move {
        for _ in 0..10 {
            sleep(seconds(2)).await;
            *until.lock().unwrap() = Instant::now() + seconds(12);
        }
    });
    assert_eq!(lead.during(sleep(seconds(25))).await, Ok(()));
    renewals.await.unwrap();
    assert_eq!(lead.during(sleep(seconds(60))).await, Err(NotLeading { begun: true }));
    assert_eq!(begun.elapsed(), seconds(20 + 12));
}
