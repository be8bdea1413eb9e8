//! One call in flight per BMC, and the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bmc::{Address, Backoff, BmcRegistry, CallOutcome, Credentials, CredentialsError, ErrorKind, Reuse};

fn address(host: &str) -> Address {
    Address::parse(&format!("redfish-virtualmedia://{host}/redfish/v1/Systems/1")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn calls_to_one_bmc_wait_for_each_other_and_other_bmcs_do_not() {
    let registry = BmcRegistry::new();
    let most = Arc::new(AtomicU32::new(0));
    let now = Arc::new(AtomicU32::new(0));
    let started = tokio::time::Instant::now();
    let mut tasks = Vec::new();
    let keep: Vec<_> = ["a", "b"].map(|host| registry.channel(&address(host))).into();
    for number in 0..8u64 {
        for (host, channel) in keep.iter().enumerate() {
            let (channel, most, now) = (Arc::clone(channel), Arc::clone(&most), Arc::clone(&now));
            tasks.push(tokio::spawn(async move {
                let call = channel.begin("GET", &format!("/{number}"), 0).await;
                if host == 0 {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                if host == 0 {
                    now.fetch_sub(1, Ordering::SeqCst);
                }
                call.end(CallOutcome::Status(200));
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(started.elapsed(), Duration::from_millis(800), "two BMCs are served side by side");
    assert_eq!(keep[0].ledger().counters().calls, 8);
    assert!(keep[0].ledger().entries().iter().all(|call| call.milliseconds == 100));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_call_frees_the_way_and_is_written_down() {
    let registry = BmcRegistry::new();
    let channel = registry.channel(&address("a"));
    let mark = channel.ledger().mark();
    let stuck = {
        let channel = Arc::clone(&channel);
        tokio::spawn(async move {
            let _call = channel.begin("POST", "/x?secret=1", 2).await;
            std::future::pending::<()>().await;
        })
    };
    tokio::task::yield_now().await;
    stuck.abort();
    assert!(stuck.await.unwrap_err().is_cancelled());
    channel.begin("GET", "/y", 0).await.end(CallOutcome::Failed(ErrorKind::Timeout));
    let calls = channel.ledger().entries_since(mark);
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[0].outcome, calls[0].path.as_str(), calls[0].retry), (CallOutcome::Abandoned, "/x", 2));
    assert_eq!(calls[1].sequence, calls[0].sequence + 1);
    let counters = channel.ledger().counters();
    assert_eq!((counters.calls, counters.failures, counters.retries), (2, 2, 1));
}

#[tokio::test]
async fn the_ring_is_bounded_and_the_counters_are_not() {
    let registry = BmcRegistry::new();
    let channel = registry.channel(&address("a"));
    let mark = channel.ledger().mark();
    for _ in 0..bmc::ledger::KEPT + 10 {
        channel.begin("GET", &"é".repeat(500), 0).await.end(CallOutcome::Status(200));
    }
    assert_eq!(channel.ledger().entries().len(), bmc::ledger::KEPT);
    assert_eq!(channel.ledger().calls_since(mark), bmc::ledger::KEPT as u64 + 10);
    assert!(channel.ledger().entries().iter().all(|call| call.path.len() <= 256));
}

#[test]
fn a_channel_lives_as_long_as_it_is_held() {
    let registry = BmcRegistry::new();
    let first = registry.channel(&address("a"));
    first.add_session("/s/1");
    assert!(registry.channel(&address("a")).holds_session("/s/1"));
    drop(first);
    assert!(!registry.channel(&address("a")).holds_session("/s/1"));
}

#[test]
fn waits_grow_and_end() {
    let backoff = Backoff { first: Duration::from_secs(1), factor: 2, most: Duration::from_secs(5), attempts: 5 };
    let waits: Vec<_> = (0..6).map(|attempt| backoff.wait(attempt).map(|wait| wait.as_secs())).collect();
    assert_eq!(waits, [Some(1), Some(2), Some(4), Some(5), Some(5), None]);
    assert_eq!(backoff.total(), Duration::from_secs(17));
    assert_eq!(backoff.wait_at_least(0, Some(Duration::from_secs(3600))), Some(Duration::from_secs(5)));
    let huge = Backoff { first: Duration::MAX, factor: u32::MAX, most: Duration::MAX, attempts: u32::MAX };
    assert_eq!(huge.wait(u32::MAX - 1), Some(Duration::MAX));
}

#[test]
fn credentials_are_checked_and_not_shown() {
    let make = |user: &str, password: &str| Credentials::new(user, password.to_owned().into());
    let good = make("root", "calvin-42").unwrap();
    assert!(!format!("{good:?}").contains("calvin-42"));
    assert_eq!(make("", "x").unwrap_err(), CredentialsError::NoUser);
    assert_eq!(make("x", "").unwrap_err(), CredentialsError::NoPassword);
    assert_eq!(make("x", "y\n").unwrap_err(), CredentialsError::Control);
    assert_eq!(make("x", &"y".repeat(2000)).unwrap_err(), CredentialsError::TooLong);
}

#[tokio::test(start_paused = true)]
async fn calls_to_all_bmcs_are_counted_together() {
    let registry = BmcRegistry::new();
    for host in ["a", "b"] {
        let channel = registry.channel(&address(host));
        let call = channel.begin("GET", "/redfish/v1", 0).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        call.received(700);
        call.end(CallOutcome::Status(200));
        channel.begin("POST", "/x", 1).await.end(CallOutcome::Status(503));
        channel.begin("POST", "/x", 2).await.end(CallOutcome::Failed(ErrorKind::Timeout));
        drop(channel.begin("BREW", "/x", 0).await);
    }
    let text = registry.totals().text();
    for line in [
        "metamorph_bmc_calls_total{method=\"GET\",outcome=\"2xx\"} 2\n",
        "metamorph_bmc_calls_total{method=\"POST\",outcome=\"5xx\"} 2\n",
        "metamorph_bmc_calls_total{method=\"POST\",outcome=\"timeout\"} 2\n",
        "metamorph_bmc_calls_total{method=\"other\",outcome=\"abandoned\"} 2\n",
        "metamorph_bmc_call_retries_total 4\n",
        "metamorph_bmc_answer_bytes_total 1400\n",
        "metamorph_bmc_call_duration_seconds_bucket{method=\"GET\",le=\"0.25\"} 0\n",
        "metamorph_bmc_call_duration_seconds_bucket{method=\"GET\",le=\"0.5\"} 2\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_lost_a_request_is_remembered_beyond_the_channel_and_for_ten_minutes() {
    let registry = BmcRegistry::new();
    assert_eq!(registry.channel(&address("a")).reuse(), Reuse::Untried);
    registry.channel(&address("a")).note_reuse(true);
    registry.channel(&address("b")).note_reuse(true);
    assert_eq!(registry.channel(&address("a")).reuse(), Reuse::Works);
    registry.channel(&address("a")).note_reuse(false);
    // Another client had a request under way that went well.
    registry.channel(&address("a")).note_reuse(true);
    assert_eq!(registry.channel(&address("a")).reuse(), Reuse::Loses);
    assert_eq!(registry.channel(&address("b")).reuse(), Reuse::Works);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(registry.channel(&address("a")).reuse(), Reuse::Untried);
}
