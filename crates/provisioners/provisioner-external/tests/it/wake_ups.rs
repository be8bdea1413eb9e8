//! Wake-ups: of hosts that the server has to do with, not too many, and all of them after the stream broke.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use provisioner::{Answer, Call, HostKey, Provisioner, Verdict, Waiting, WakeUps};
use provisioner_external::{ExternalProvisioner, v1};
use provisioner_fixture::FixtureProvisioner;
use tokio::time::timeout;

use crate::fixture::{about, in_memory, machines, site};
use crate::scripted::{Declared, Process, Scripted, done, say};

fn woken(key: &HostKey, news: bool) -> v1::SubscribeResponse {
    let host = v1::HostKey { namespace: key.namespace.clone(), name: key.name.clone(), uid: key.uid.clone() };
    v1::SubscribeResponse { host: Some(host), news }
}

async fn heard(wake_ups: &mut WakeUps, within: Duration) -> BTreeMap<String, usize> {
    let mut heard = BTreeMap::new();
    let all = async {
        while let Some(woken) = wake_ups.recv().await {
            *heard.entry(woken.key.name).or_default() += 1;
        }
    };
    let _ = timeout(within, all).await;
    heard
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_dropped_and_hosts_of_others_are_not_woken() {
    let (host, other) = (Declared::new("mine"), Declared::new("theirs"));
    let mut worker = Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    });
    let forged = HostKey { name: "forged".into(), ..host.key() };
    worker.wakes = vec![woken(&other.key(), false), woken(&forged, false)];
    worker.wakes.extend((0..5000).map(|_| woken(&host.key(), true)));
    let process = Process::start(worker);
    let acme = ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone()));
    host.ask(&acme, Call::PowerState).await.unwrap();
    assert!(!acme.has_news(&host.key()));
    let mut wake_ups = acme.subscribe();
    let heard = heard(&mut wake_ups, Duration::from_millis(500)).await;
    assert_eq!(heard, BTreeMap::from([("mine".to_owned(), 254)]), "256 at once, of which two are of others");
    assert!(acme.has_news(&host.key()));
    acme.acknowledge_news(&host.key());
    assert!(!acme.has_news(&host.key()));
}

#[tokio::test(start_paused = true)]
async fn all_hosts_are_looked_at_after_the_stream_broke() {
    let worker = Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    });
    let process = Process::start(worker);
    let acme = ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone()));
    let (one, two) = (Declared::new("one"), Declared::new("two"));
    one.ask(&acme, Call::PowerState).await.unwrap();
    two.ask(&acme, Call::PowerState).await.unwrap();
    acme.forget(&two.key());
    let mut wake_ups = acme.subscribe();
    let heard = heard(&mut wake_ups, Duration::from_millis(1500)).await;
    assert_eq!(
        heard,
        BTreeMap::from([("one".to_owned(), 1)]),
        "its stream ends at once, and is made anew after a second"
    );
}

/// A host that an earlier process of the worker could not serve hears of one that can.
#[tokio::test(start_paused = true)]
async fn all_hosts_are_looked_at_when_the_stream_could_not_be_made_at_first() {
    let worker = Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    });
    let deaf = Arc::clone(&worker.deaf);
    deaf.store(true, Ordering::SeqCst);
    let process = Process::start(worker);
    let (acme, host) =
        (ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone())), Declared::new("one"));
    host.ask(&acme, Call::PowerState).await.unwrap();
    let mut wake_ups = acme.subscribe();
    assert_eq!(heard(&mut wake_ups, Duration::from_millis(500)).await, BTreeMap::new());
    deaf.store(false, Ordering::SeqCst);
    assert_eq!(heard(&mut wake_ups, Duration::from_secs(1)).await, BTreeMap::from([("one".to_owned(), 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_at_once_is_made_anew_less_and_less_often() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    }));
    let (acme, host) =
        (ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone())), Declared::new("one"));
    host.ask(&acme, Call::PowerState).await.unwrap();
    let mut wake_ups = acme.subscribe();
    let heard = heard(&mut wake_ups, Duration::from_secs(200)).await;
    assert_eq!(heard["one"], 8, "after 1, 3, 7, 15, 31, 63, 123 and 183 s");
}

/// Its program dies soon after each start: its hosts are not all looked at each time.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_soon_again_and_again_wakes_its_hosts_less_and_less_often() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    }));
    let (acme, host) =
        (ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone())), Declared::new("one"));
    host.ask(&acme, Call::PowerState).await.unwrap();
    let mut wake_ups = acme.subscribe();
    let dying = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            process.dies().await;
        }
    };
    let heard = tokio::select! {
        heard = heard(&mut wake_ups, Duration::from_secs(200)) => heard,
        () = dying => unreachable!(),
    };
    assert!((5..25).contains(&heard["one"]), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_served_provisioner_wakes_its_hosts_and_drains() {
    let fixture_ = Arc::new(FixtureProvisioner::new(machines()));
    let worker = provisioner_external::serve::worker(Arc::clone(&fixture_) as Arc<_>, about(), None);
    let provisioner = ExternalProvisioner::new(site("fixture"), Arc::new(in_memory(worker.clone())));
    let host = Declared::new("h");
    assert!(matches!(host.ask(&provisioner, Call::PowerState).await, Ok(Verdict::Done(Answer::Power(Some(false))))));
    let mut wake_ups = provisioner.subscribe();
    let _ = heard(&mut wake_ups, Duration::from_secs(1)).await;
    fixture_.wake(&host.key());
    assert_eq!(heard(&mut wake_ups, Duration::from_secs(1)).await.get("h"), Some(&1));
    worker.drain(true);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let answer = host.ask(&provisioner, Call::PowerState).await;
    assert!(
        matches!(&answer, Ok(Verdict::Waiting(Waiting::Busy { reason, .. })) if reason.contains("about to end")),
        "{answer:?}"
    );
    worker.drain(false);
    assert_eq!(heard(&mut wake_ups, Duration::from_secs(11)).await.get("h"), Some(&1), "it is told that it may go on");
    assert!(matches!(host.ask(&provisioner, Call::PowerState).await, Ok(Verdict::Done(_))));
}
