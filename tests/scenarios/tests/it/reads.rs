//! What the controller asks the Kubernetes API, and what it knows without asking.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use provisioner::{HostKey, Provisioner, Registry};
use scenarios::Site;
use scenarios::{Effect, FixtureProvisioner, Machines, address, fixture, is};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The host `a`, as its machine knows it.
fn key() -> HostKey {
    HostKey { namespace: "default".into(), name: "a".into(), uid: String::new() }
}

/// Calls since there were so many.
fn since(site: &Site, before: usize) -> Vec<String> {
    site.weather.calls().split_off(before)
}

async fn make_available(site: &Site, name: &str) {
    site.create_host(name).await;
    site.wait(name, 7200, is(State::Available)).await;
}

async fn patch_secret(site: &Site, name: &str, change: Value) -> Secret {
    let secrets: Api<Secret> = Api::default_namespaced(site.observer());
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap()
}

#[test]
fn a_look_at_a_settled_host_makes_no_call_and_no_write() {
    scenarios::run(11, async |site| {
        let machines = Machines::default();
        let provisioner = Arc::new(FixtureProvisioner::new(machines.clone()));
        let _controller = site.controller(Registry::new(Arc::clone(&provisioner) as Arc<dyn Provisioner>));
        make_available(&site, "a").await;
        sleep(Duration::from_secs(300)).await;
        let (before, asked) = (site.weather.calls().len(), machines.power_reads());
        for _ in 0..200 {
            provisioner.wake(&key());
            sleep(Duration::from_millis(50)).await;
        }
        assert!(machines.power_reads() >= asked + 200, "each look asks for the power");
        let calls = since(&site, before);
        assert!(calls.is_empty(), "{} calls to the Kubernetes API: {:?}", calls.len(), calls.first());
    });
}

#[test]
fn a_settled_host_of_which_nothing_is_new_is_asked_for_its_power_when_that_is_due_alone() {
    scenarios::run(12, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        make_available(&site, "a").await;
        sleep(Duration::from_secs(300)).await;
        let (before, asked) = (site.weather.calls().len(), machines.power_reads());
        // The Secret of its BMC is written all the time, as by other hosts that share it, and holds what it held.
        for round in 0..200 {
            patch_secret(&site, "a-bmc", json!({"metadata": {"annotations": {"round": round.to_string()}}})).await;
            sleep(Duration::from_secs(3)).await;
        }
        let polls = machines.power_reads() - asked;
        assert!((10..=13).contains(&polls), "{polls} in ten minutes");
        let calls = since(&site, before);
        let reads = calls.iter().filter(|call| *call == "GET /api/v1/namespaces/default/secrets/a-bmc").count();
        // What a poll finds, the status may say of another version.
        let others = calls.len() - reads;
        assert!(reads <= 200 && others <= 40, "each version is read once: {reads}, {others} others");
    });
}

#[test]
fn a_new_password_is_used_at_once() {
    scenarios::run(13, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        make_available(&site, "a").await;
        sleep(Duration::from_secs(300)).await;
        let secret = patch_secret(&site, "a-bmc", json!({"stringData": {"password": "another"}})).await;
        let version = secret.resource_version();
        let tried = |host: &BareMetalHost| {
            let good = host.status.as_ref().and_then(|status| status.good_credentials.credentials_version.clone());
            good == version
        };
        site.wait("a", 3, tried).await;
    });
}

#[test]
fn a_secret_that_was_missing_is_seen_when_it_comes() {
    scenarios::run(14, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        make_available(&site, "a").await;
        let image = json!({"spec": {"userData": {"name": "user"}, "image":
            {"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
        sleep(Duration::from_secs(605)).await;
        assert!(!machines.effects(&address("a")).contains(&Effect::Provision));
        let secret = json!({"metadata": {"name": "user"}, "stringData": {"userData": "#cloud-config"}});
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(machines.effects(&address("a")).contains(&Effect::Provision));
        // Its body is read once, however often the work is looked at.
        site.wait("a", 600, is(State::Provisioned)).await;
        let read = site
            .weather
            .calls()
            .iter()
            .filter(|call| call.ends_with("GET /api/v1/namespaces/default/secrets/user"))
            .count();
        let after = site.weather.calls().len();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(since(&site, after).iter().filter(|call| call.ends_with("secrets/user")).count(), 0);
        assert!(read <= 70, "{read}: every ten seconds while it was missing, and once since");
    });
}

#[test]
fn a_restart_among_settled_hosts_asks_for_each_object_once_and_goes_apart() {
    scenarios::run(15, async |site| {
        let machines = Machines::default();
        let controller = site.controller(fixture(&machines));
        for host in 0..40 {
            site.create_host(&format!("h{host}")).await;
        }
        for host in 0..40 {
            site.wait(&format!("h{host}"), 7200, is(State::Available)).await;
        }
        sleep(Duration::from_secs(300)).await;
        controller.abort();
        let before = site.weather.calls().len();
        let _controller = site.controller(fixture(&machines));
        sleep(Duration::from_secs(5)).await;
        let calls = since(&site, before);
        let writes: Vec<_> = calls.iter().filter(|call| !call.starts_with("GET ")).collect();
        // Whether the definition of the records keeps what is written is asked by a creation that is a dry run.
        let asked = ["POST /apis/metamorph.metal3.io/v1alpha1/namespaces/default/machinerecords"];
        assert_eq!(writes, asked.iter().collect::<Vec<_>>());
        let of = |part: &str| calls.iter().filter(|call| call.contains(part)).count();
        let (hosts, secrets) = (of("/baremetalhosts/"), of("/secrets/"));
        assert_eq!((hosts, secrets), (0, 40), "hosts are known by their watch, Secrets are read once");
        // Their polls go apart: in no second of the next minute more than a tenth of them.
        let mut most = 0;
        let (begun, mut asked) = (Instant::now(), machines.power_reads());
        while begun.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_secs(1)).await;
            most = most.max(machines.power_reads() - asked);
            asked = machines.power_reads();
        }
        assert!(most <= 6, "{most} in one second");
    });
}

#[test]
fn a_watch_that_is_lost_is_not_decided_on() {
    scenarios::run(16, async |mut site| {
        let machines = Machines::default();
        let provisioner = Arc::new(FixtureProvisioner::new(machines.clone()));
        let _controller = site.controller(Registry::new(Arc::clone(&provisioner) as Arc<dyn Provisioner>));
        make_available(&site, "a").await;
        for round in 0..5 {
            site.restart().await;
            let online = round % 2 == 0;
            let change = json!({"spec": {"online": !online}});
            site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            let wanted = |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.powered_on != online);
            site.wait("a", 300, wanted).await;
        }
        let before = site.weather.calls().len();
        sleep(Duration::from_secs(120)).await;
        // Just after a poll, whose moment is drawn: none other falls into the second that is counted.
        let polled = machines.power_reads();
        while machines.power_reads() == polled {
            sleep(Duration::from_secs(1)).await;
        }
        let (asked, calls) = (machines.power_reads(), since(&site, before).len());
        provisioner.wake(&key());
        sleep(Duration::from_secs(1)).await;
        assert_eq!((machines.power_reads(), since(&site, before).len()), (asked + 1, calls), "in step again");
    });
}

#[test]
fn power_is_not_switched_by_a_wish_that_has_been_taken_back() {
    for seed in 20..30 {
        scenarios::run(seed, async |site| {
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            make_available(&site, "a").await;
            sleep(Duration::from_secs(300)).await;
            assert_eq!(machines.effects(&address("a")).last(), Some(&Effect::On));
            // What is told a minute late is true no more.
            site.weather.lags(Duration::from_secs(60));
            for online in [false, true] {
                let change = json!({"spec": {"online": online}});
                site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            }
            sleep(Duration::from_secs(600)).await;
            assert_eq!(
                machines.effects(&address("a")).last(),
                Some(&Effect::On),
                "{:?}",
                machines.effects(&address("a"))
            );
            let offs = machines.effects(&address("a")).iter().filter(|effect| **effect == Effect::Off).count();
            assert_eq!(offs, 0, "{:?}", machines.effects(&address("a")));
        });
    }
}

/// What a definition takes and this program does not understand stops its own host alone.
#[test]
fn an_object_that_cannot_be_read_stops_no_other_host() {
    scenarios::run(37, async |site| {
        let meta = |name: &str| json!({"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let record = json!({"apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "MachineRecord", "metadata": meta("evil"),
            "spec": {"host": {"name": "evil", "uid": "x"}, "provisioner": {"name": "fixture", "version": 4_294_967_296_u64, "revision": 1, "data": {}}}});
        site.put_as_left(record).await;
        site.put_as_left(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": meta("odd"),
            "spec": {"online": true}, "status": {"provisioning": {"state": "nonsense", "ID": ""}}}))
            .await;
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", 4 * 3600, |host| host.state() == State::Available).await;
        let events = Api::<Event>::default_namespaced(site.observer()).list(&ListParams::default()).await.unwrap();
        for name in ["evil", "odd"] {
            let about = |event: &&Event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name));
            let is_reported =
                events.items.iter().filter(about).any(|event| event.reason.as_deref() == Some("ObjectUnreadable"));
            assert!(is_reported, "{name}: {:#?}", events.items);
        }
    });
}

/// A correction of its status alone wakes nobody.
#[test]
fn a_host_is_gone_on_with_soon_after_its_status_can_be_read_again() {
    scenarios::run(38, async |site| {
        site.create_host("a").await;
        let mut odd = serde_json::to_value(site.hosts().get("a").await.unwrap()).unwrap();
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        odd["status"] = json!({"provisioning": {"state": "nonsense", "ID": ""}});
        site.put_as_left(odd).await;
        let _controller = site.controller(fixture(&Machines::default()));
        sleep(Duration::from_secs(3600)).await;
        let corrected = Patch::Merge(json!({ "status": null }));
        site.hosts().patch_status("a", &PatchParams::default(), &corrected).await.unwrap();
        site.wait("a", 60, |host| host.state() != State::None).await;
    });
}
