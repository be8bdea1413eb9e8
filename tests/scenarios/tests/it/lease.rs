//! The Lease by which one of several processes works: whatever a person does to it by hand, no two work at once.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::metal3::ProvisioningState as State;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use operator::{Candidate, Leader, Leadership, leader};
use scenarios::{Machines, Site, fixture};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The time of everybody's Lease, in seconds.
const LEASE: u64 = 15;

fn candidate(identity: &str) -> Candidate {
    let duration = Duration::from_secs(LEASE);
    Candidate { namespace: "default".into(), identity: identity.into(), duration, first: false, store: None }
}

async fn lead(client: Client, candidate: Candidate) -> Leader {
    candidate.lead(&client, |_, _| ()).await.unwrap()
}

/// What a person does to the Lease.
#[derive(Clone, Copy, Debug)]
enum ByHand {
    Deleted,
    /// Deleted and made again without a holder.
    Remade,
    /// Deleted and made again from a copy.
    Restored,
    Emptied,
}

impl ByHand {
    async fn happens(self, site: &Site) {
        let leases: Api<Lease> = Api::default_namespaced(site.observer());
        let mut copy = leases.get(leader::NAME).await.unwrap();
        copy.metadata.resource_version = None;
        copy.metadata.uid = None;
        if matches!(self, Self::Remade) {
            copy.spec = None;
        }
        if matches!(self, Self::Emptied) {
            let emptied = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
            leases.patch(leader::NAME, &PatchParams::default(), &emptied).await.unwrap();
            return;
        }
        leases.delete(leader::NAME, &DeleteParams::default()).await.unwrap();
        if !matches!(self, Self::Deleted) {
            leases.create(&PostParams::default(), &copy).await.unwrap();
        }
    }
}

const ALL: [ByHand; 4] = [ByHand::Deleted, ByHand::Remade, ByHand::Restored, ByHand::Emptied];

/// What becomes of a leader whose Lease is changed by hand, while another waits since `waits` (or comes just then). Whether the first one leads at the
/// end, and whether the second one does.
async fn changed(site: Site, by_hand: ByHand, waits: bool, cut: bool) -> (bool, bool) {
    // The first one's way to the API can be cut.
    let first = lead(site.client(), Candidate { first: true, ..candidate("first") }).await;
    let leadership = first.leadership();
    let kept = tokio::spawn(first.keep(std::future::pending()));
    let second: Cell<Option<Leadership>> = Cell::new(None);
    let come = async {
        if !waits {
            sleep(Duration::from_secs(31)).await;
        }
        let leader = lead(site.observer(), candidate("second")).await;
        second.set(Some(leader.leadership()));
        leader.keep(std::future::pending()).await;
    };
    let trouble = async {
        sleep(Duration::from_secs(30)).await;
        // It has renewed a moment ago: it believes for as long as it can.
        sleep(Duration::from_millis(100)).await;
        if cut {
            site.weather.rough(1000, Duration::ZERO);
        }
        by_hand.happens(&site).await;
        std::future::pending::<()>().await;
    };
    let watch = async {
        let end = Instant::now() + Duration::from_secs(120);
        while Instant::now() < end {
            let other = second.take();
            let both = leadership.holds() && other.as_ref().is_some_and(Leadership::holds);
            assert!(!both, "{by_hand:?}: two work at once, at {:?}", end - Instant::now());
            second.set(other);
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = watch => {}
        () = come => panic!("{by_hand:?}: the second one lost it"),
        () = trouble => {}
    }
    kept.abort();
    (leadership.holds(), second.take().is_some_and(|second| second.holds()))
}

#[test]
fn a_lease_that_is_changed_by_hand_makes_no_second_worker() {
    for by_hand in ALL {
        for waits in [true, false] {
            let ends = scenarios::run(1, async |site| changed(site, by_hand, waits, false).await);
            assert_eq!(ends, (true, false), "{by_hand:?}, the second one waits: {waits}");
        }
    }
}

#[test]
fn a_holder_that_cannot_hear_of_it_is_followed_when_it_believes_no_longer() {
    for by_hand in ALL {
        for waits in [true, false] {
            let ends = scenarios::run(1, async |site| changed(site, by_hand, waits, true).await);
            assert_eq!(ends, (false, true), "{by_hand:?}, the second one waits: {waits}");
        }
    }
}

#[test]
fn a_lease_that_is_let_go_is_taken_at_once_and_so_is_an_earlier_one_of_the_same_store() {
    scenarios::run(1, async |site| {
        let taken = async |candidate: Candidate| {
            let began = Instant::now();
            (lead(site.observer(), candidate).await, began.elapsed())
        };
        let (first, took) = taken(Candidate { first: true, ..candidate("host_1") }).await;
        assert!(took < Duration::from_secs(1), "nobody was there: {took:?}");
        assert!(!first.keep(std::future::ready(())).await);
        // A holder that keeps nothing: it was killed.
        let of_store = |n: u8| Candidate { store: Some("s".into()), ..candidate(&format!("up_host_s_{n}")) };
        for n in 1..3 {
            let (_, took) = taken(of_store(n)).await;
            assert!(took < Duration::from_secs(1), "number {n} waited: {took:?}");
        }
        let (_, took) = taken(candidate("host_2")).await;
        assert!(took >= Duration::from_secs(LEASE), "it was not waited for: {took:?}");
        let (_, took) = taken(of_store(3)).await;
        assert!(took >= Duration::from_secs(LEASE), "it was not waited for: {took:?}");
    });
}

#[test]
fn nobody_begins_to_lead_while_baremetal_operator_does() {
    scenarios::run(11, async |site| {
        let leases: Api<Lease> = Api::default_namespaced(site.observer());
        // Just renewed, by a clock that is fast: how long it goes on is seen by this one.
        let spec =
            json!({"holderIdentity": "bmo", "leaseDurationSeconds": LEASE, "renewTime": "2999-01-01T00:00:00.000000Z"});
        let kept = json!({"metadata": {"name": leader::UPSTREAMS}, "spec": spec});
        leases.create(&PostParams::default(), &serde_json::from_value(kept).unwrap()).await.unwrap();
        let (begin, client) = (Instant::now(), site.client());
        let mut stood_by = Vec::new();
        let first = Candidate { first: true, ..candidate("first") };
        let leader = first.lead(&client, |lease, holder| stood_by.push((lease.to_owned(), holder.to_owned())));
        leader.await.unwrap();
        assert!(begin.elapsed() >= Duration::from_secs(LEASE), "{:?}", begin.elapsed());
        assert!(stood_by.iter().all(|(lease, holder)| lease == leader::UPSTREAMS && holder == "bmo"), "{stood_by:?}");
    });
}

/// A process loses the Lease between any two of its questions whether it has it.
#[test]
fn who_leads_no_more_records_nothing() {
    let mut stopped = 0;
    for asks in 1..60 {
        let machines = Machines::default();
        let (seen, written) = scenarios::run(u64::from(asks), async |mut site| {
            let (asked, lost_at) = (AtomicU32::new(0), Arc::new(OnceLock::new()));
            let (weather, lost) = (site.weather.clone(), Arc::clone(&lost_at));
            site.may_act = Arc::new(move || {
                let leads = asked.fetch_add(1, Relaxed) < asks;
                if !leads {
                    lost.get_or_init(|| weather.calls().len());
                }
                leads
            });
            let _controller = site.controller(fixture(&machines));
            site.create_host("a").await;
            for _ in 0..120 {
                sleep(Duration::from_secs(1)).await;
                if site.hosts().get("a").await.unwrap().state() == State::Available {
                    break;
                }
            }
            let calls = lost_at.get().map_or_else(Vec::new, |at| site.weather.calls().split_off(*at));
            let records = |call: &String| !call.starts_with("GET ") && call.contains("/machinerecords");
            (lost_at.get().is_some(), calls.into_iter().filter(records).collect::<Vec<_>>())
        });
        assert_eq!(written, Vec::<String>::new(), "it was asked {asks} times before");
        stopped += u32::from(seen);
    }
    assert!(stopped > 20, "{stopped} of the runs lost the Lease on the host's way");
}
