//! HostOperations that somebody creates: done once, whatever is killed or lost, and each with an end that says how.

use std::time::Duration;

use api::metal3::{ProvisioningState as State, annotation};
use api::metamorph::{HostOperation, HostOperationStatus, OperationPhase as Phase};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use scenarios::{Effect, Machines, Site, address, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Seeds of a run.
const SEEDS: u64 = 12;

pub fn all(site: &Site) -> Api<HostOperation> {
    Api::default_namespaced(site.observer())
}

pub async fn ask(site: &Site, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": {"name": name}, "spec": spec
    });
    all(site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

pub async fn ended(site: &Site, name: &str) -> HostOperationStatus {
    for _ in 0..7200 {
        let status = all(site).get(name).await.unwrap().status.unwrap_or_default();
        if status.phase.is_final() {
            return status;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} has no end: {:?}", all(site).get(name).await.unwrap());
}

pub async fn image(site: &Site, image: Value) {
    let change = Patch::Merge(json!({"spec": {"image": image}}));
    site.hosts().patch("a", &PatchParams::default(), &change).await.unwrap();
}

pub fn an_image() -> Value {
    json!({"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"})
}

fn count(machines: &Machines, what: Effect) -> usize {
    machines.effects(&address("a")).iter().filter(|effect| **effect == what).count()
}

#[test]
fn a_host_is_inspected_rebooted_and_rebuilt_on_request() {
    let machines = Machines::default();
    scenarios::run(41, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", 7200, |host| host.state() == State::Available).await;
        ask(&site, "look", json!({"type": "Inspect", "host": {"name": "a"}})).await;
        let status = ended(&site, "look").await;
        assert_eq!((status.phase, count(&machines, Effect::Inspect)), (Phase::Succeeded, 2), "{status:?}");
        image(&site, an_image()).await;
        site.wait("a", 7200, |host| host.state() == State::Provisioned).await;
        ask(&site, "again", json!({"type": "Reboot", "host": {"name": "a"}, "reboot": {"mode": "hard"}})).await;
        let status = ended(&site, "again").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        ask(&site, "anew", json!({"type": "Rebuild", "host": {"name": "a"}})).await;
        let status = ended(&site, "anew").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        let done = [Effect::Deprovision, Effect::Provision].map(|what| count(&machines, what));
        assert_eq!(done, [1, 2], "{:?}", machines.effects(&address("a")));
        let host = site.hosts().get("a").await.unwrap();
        for key in [annotation::REQUEST, annotation::REBOOT, annotation::INSPECT, annotation::REBUILD] {
            assert_eq!(host.annotation(key), None, "{key}");
        }
        // What the host's own controller writes is history, and asks for nothing.
        let shown = all(&site).list(&ListParams::default()).await.unwrap().items;
        assert!(shown.len() >= 8, "{shown:#?}");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!([Effect::Inspect, Effect::Provision].map(|what| count(&machines, what)), [2, 2]);
    });
}

#[test]
fn what_is_not_done_on_request_is_refused_and_a_request_does_not_change() {
    let machines = Machines::default();
    scenarios::run(42, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", 7200, |host| host.state() == State::Available).await;
        for (name, spec, cause) in [
            ("no-host", json!({"type": "Inspect", "host": {"name": "b"}}), "HostNotFound"),
            ("another", json!({"type": "Inspect", "host": {"name": "a", "uid": "x"}}), "HostNotFound"),
            ("install", json!({"type": "Provision", "host": {"name": "a"}}), "NotOnRequest"),
            ("reboot", json!({"type": "Reboot", "host": {"name": "a"}}), "NotNow"),
            ("rebuild", json!({"type": "Rebuild", "host": {"name": "a"}}), "NotNow"),
            ("erase", json!({"type": "Erase", "host": {"name": "b"}, "erase": {"method": "Purge"}}), "HostNotFound"),
        ] {
            ask(&site, name, spec).await;
            let status = ended(&site, name).await;
            let error = status.error.unwrap();
            assert_eq!((status.phase, error.cause.as_str()), (Phase::Failed, cause), "{name}: {}", error.message);
            assert!(error.advice.is_some(), "{name}");
        }
        let change = Patch::Merge(json!({"spec": {"type": "Inspect"}}));
        let refused = all(&site).patch("rebuild", &PatchParams::default(), &change).await.unwrap_err();
        assert!(refused.to_string().contains("create another one"), "{refused}");
        let of_another_type = json!({
            "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": {"name": "hard"},
            "spec": {"type": "Inspect", "host": {"name": "a"}, "reboot": {"mode": "hard"}}
        });
        let refused =
            all(&site).create(&PostParams::default(), &serde_json::from_value(of_another_type).unwrap()).await;
        assert!(refused.unwrap_err().to_string().contains("reboot is of the type Reboot"));
        for (spec, says) in [
            (json!({"type": "Erase", "host": {"name": "a"}}), "needs erase.method"),
            (json!({"type": "Rebuild", "host": {"name": "a"}, "erase": {"method": "Purge"}}), "of the type Erase"),
            (json!({"type": "Erase", "host": {"name": "a"}, "erase": {"method": "Burn"}}), "Burn"),
            (
                json!({"type": "Erase", "host": {"name": "a"}, "erase": {"method": "Purge", "disks": []}}),
                "should have at least 1 items",
            ),
            (json!({"type": "Diagnose", "host": {"name": "a"}, "diagnose": {"allowInUse": true}}), "is not asked for"),
            (
                json!({"type": "Inspect", "host": {"name": "a"}, "diagnose": {"testMedium": true}}),
                "of the type Diagnose",
            ),
            (json!({"type": "Inspect", "host": {"name": "a"}, "steps": [{"step": "a"}]}), "of the type Steps"),
            (json!({"type": "Steps", "host": {"name": "a"}, "steps": [{"step": ""}]}), "spec.steps[0].step"),
            (
                json!({"type": "Erase", "host": {"name": "a"}, "erase": {"method": "Purge", "disks": [{}]}}),
                "a disk is named by serialNumber",
            ),
        ] {
            let object = json!({
                "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": {"name": "bad"}, "spec": spec
            });
            let raw = Api::<kube::api::DynamicObject>::default_namespaced_with(
                site.observer(),
                &kube::api::ApiResource::erase::<HostOperation>(&()),
            );
            let refused = raw.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(says), "{says}: {refused}");
        }
        assert_eq!(count(&machines, Effect::Inspect), 1);
    });
}

#[test]
fn a_rebuild_that_would_lack_a_secret_leaves_the_disks_as_they_are() {
    let machines = Machines::default();
    scenarios::run(44, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        image(&site, an_image()).await;
        site.wait("a", 7200, |host| host.state() == State::Provisioned).await;
        for (number, (change, says)) in [
            (json!({"userData": {"name": "missing"}}), "spec.userData names is missing"),
            (json!({"userData": {"name": "no name"}}), "spec.userData names is missing"),
            // Whether there is one is told to nobody.
            (json!({"userData": {"name": "a-bmc", "namespace": "other"}}), "spec.userData.namespace is other"),
            (
                json!({"userData": null, "preprovisioningNetworkDataName": "missing"}),
                "spec.preprovisioningNetworkDataName names is missing",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let change = Patch::Merge(json!({ "spec": change }));
            site.hosts().patch("a", &PatchParams::default(), &change).await.unwrap();
            let name = format!("anew-{number}");
            ask(&site, &name, json!({"type": "Rebuild", "host": {"name": "a"}})).await;
            let error = ended(&site, &name).await.error.unwrap();
            assert!(error.cause == "NotNow" && error.message.contains(says), "{number}: {}", error.message);
        }
        assert_eq!([Effect::Deprovision, Effect::Provision].map(|what| count(&machines, what)), [0, 1]);
    });
}

#[test]
fn a_request_that_was_made_while_nobody_served_it_is_not_taken_later() {
    let machines = Machines::default();
    scenarios::run(43, async |site| {
        let controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        image(&site, an_image()).await;
        site.wait("a", 7200, |host| host.state() == State::Provisioned).await;
        controller.abort();
        ask(&site, "old", json!({"type": "Rebuild", "host": {"name": "a"}})).await;
        sleep(Duration::from_secs(3 * 3600)).await;
        let _controller = site.requested(fixture(&machines));
        let status = ended(&site, "old").await;
        assert_eq!(status.error.unwrap().cause, "Expired");
        assert_eq!(count(&machines, Effect::Deprovision), 0);
    });
}

#[test]
fn whoever_is_killed_whatever_is_lost_a_request_is_done_once() {
    for seed in 0..SEEDS {
        let machines = Machines::default();
        let effects = scenarios::run(seed, async |mut site| {
            site.weather.rough(30, Duration::from_millis(500));
            site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let mut controller = site.requested(fixture(&machines));
            site.create_host("a").await;
            image(&site, an_image()).await;
            site.wait("a", 7200, |host| host.state() == State::Provisioned).await;
            ask(&site, "anew", json!({"type": "Rebuild", "host": {"name": "a"}})).await;
            for _ in 0..site.weather.below(4) {
                sleep(Duration::from_millis(site.weather.below(20_000))).await;
                controller.abort();
                if site.weather.below(2) == 0 {
                    site.restart().await;
                }
                controller = site.requested(fixture(&machines));
            }
            let status = ended(&site, "anew").await;
            assert_eq!(status.phase, Phase::Succeeded, "seed {seed}: {status:?}");
            sleep(Duration::from_secs(3600)).await;
            machines.effects(&address("a"))
        });
        let done = [Effect::Deprovision, Effect::Provision]
            .map(|what| effects.iter().filter(|effect| **effect == what).count());
        assert_eq!(done, [1, 2], "seed {seed}: {effects:?}");
    }
}

#[test]
fn logs_are_collected_in_any_state_and_a_paused_host_is_not_called_for_them() {
    let machines = Machines::default();
    scenarios::run(47, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        image(&site, an_image()).await;
        site.wait("a", 7200, |host| host.state() == State::Provisioning).await;
        ask(&site, "logs", json!({"type": "CollectLogs", "host": {"name": "a"}})).await;
        let status = ended(&site, "logs").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        assert!(status.logs[0].text.contains("the fixture's machine is"), "{status:?}");
        site.wait("a", 7200, |host| host.state() == State::Provisioned).await;
        let pause = Patch::Merge(json!({"metadata": {"annotations": {annotation::PAUSED: ""}}}));
        site.hosts().patch("a", &PatchParams::default(), &pause).await.unwrap();
        ask(&site, "paused", json!({"type": "CollectLogs", "host": {"name": "a"}})).await;
        let error = ended(&site, "paused").await.error.unwrap();
        assert_eq!(error.cause, "NotNow", "{error:?}");
        assert!(error.message.contains("is paused"), "{error:?}");
        ask(&site, "nobody", json!({"type": "CollectLogs", "host": {"name": "b"}})).await;
        assert_eq!(ended(&site, "nobody").await.error.unwrap().cause, "HostNotFound");
        assert_eq!(count(&machines, Effect::Provision), 1);
    });
}
