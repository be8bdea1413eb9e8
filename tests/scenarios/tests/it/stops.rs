//! What stops a host, or turns its wish, stops what has been begun for it as well.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use api::metal3::{BareMetalHost, ErrorType, ProvisioningState as State};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use scenarios::plant::Plant;
use scenarios::{Machines, Site, Trouble, address, fixture, is};
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
/// The annotation that asks for a reboot.
const REBOOT: &str = "reboot.metal3.io";
/// How long the BMC takes to put a medium in.
const INSERTION: Duration = Duration::from_secs(50);

async fn patch(site: &Site, change: &Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn annotated(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

#[test]
fn what_stops_a_host_stops_it_between_insertion_and_reset() {
    for stop in ["freeze", "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"] {
        scenarios::run(21, async |site| {
            let plant = Plant::new(site.weather.clone());
            plant.inserts_in(INSERTION);
            let _server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Inspecting)).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            match stop {
                "freeze" => site.freeze(Some("maintenance")).await,
                // A detachment alone waits for the end of the work.
                key => patch(&site, &annotated(key, Some(r#"{"force": true}"#))).await,
            }
            tokio::time::sleep(Duration::from_secs(900)).await;
            assert_eq!(plant.effects(), Vec::<String>::new(), "{stop}");
            match stop {
                "freeze" => {
                    let host = site.hosts().get("a").await.unwrap();
                    let said = host.status.unwrap().error_message;
                    assert!(said.contains("frozen") && said.contains("maintenance"), "{said}");
                    site.freeze(None).await;
                }
                key => patch(&site, &annotated(key, None)).await,
            }
            site.wait("a", LONGEST, is(State::Available)).await;
            assert!(plant.effects().iter().any(|effect| effect.starts_with("agent of")), "{stop}");
        });
    }
}

#[test]
fn a_frozen_namespace_is_told_by_the_conditions_of_its_hosts() {
    scenarios::run(23, async |site| {
        let _controller = site.controller(scenarios::fixture(&scenarios::Machines::default()));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        site.freeze(Some("maintenance")).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
        patch(&site, &json!({"spec": {"image": image}})).await;
        let progress = |host: &BareMetalHost| {
            let conditions = host.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            conditions.into_iter().find(|condition| condition.type_ == "Progressing").map(|found| found.message)
        };
        tokio::time::sleep(Duration::from_secs(300)).await;
        let said = progress(&site.hosts().get("a").await.unwrap()).unwrap();
        assert!(said.contains("frozen") && said.contains("maintenance"), "{said}");
        site.freeze(None).await;
        let host = site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert!(!progress(&host).unwrap().contains("frozen"));
    });
}

/// A host whose image has been taken back, while the machine is on its way into the agent.
async fn emptied(site: &Site, plant: &Plant, mode: &str) {
    let image =
        json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
    site.create_host("a").await;
    site.wait("a", LONGEST, is(State::Available)).await;
    patch(site, &json!({"spec": {"automatedCleaningMode": mode, "image": image}})).await;
    site.wait("a", LONGEST, is(State::Provisioned)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    plant.inserts_in(INSERTION);
    patch(site, &json!({"spec": {"image": null}})).await;
    site.wait("a", LONGEST, is(State::Deprovisioning)).await;
}

#[test]
fn cleaning_that_is_called_off_before_it_begins_leaves_the_disks() {
    // In the insertion, in the self-test.
    for second in [20, 80] {
        scenarios::run(22, async |site| {
            let plant = Plant::new(site.weather.clone());
            let _server = plant.serve(&site);
            emptied(&site, &plant, "metadata").await;
            tokio::time::sleep(Duration::from_secs(second)).await;
            patch(&site, &json!({"spec": {"automatedCleaningMode": "disabled"}})).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            tokio::time::sleep(Duration::from_secs(900)).await;
            let effects = plant.effects();
            assert!(plant.image().is_some(), "{second} s: {effects:#?}");
            assert!(!effects.iter().any(|effect| effect.starts_with("wipe")), "{second} s: {effects:#?}");
        });
    }
}

#[test]
fn cleaning_that_is_wished_before_the_machine_is_let_go_is_made() {
    scenarios::run(23, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        emptied(&site, &plant, "disabled").await;
        patch(&site, &json!({"spec": {"automatedCleaningMode": "metadata"}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(plant.image(), None, "{:#?}", plant.effects());
    });
}

#[test]
fn no_more_hosts_are_emptied_at_once_than_the_limit_says() {
    scenarios::run(27, async |mut site| {
        site.deprovisioning_limit = 1;
        let _controller = site.controller(scenarios::fixture(&Machines::default()));
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "format": "raw"});
        let change = |image: Value| Patch::Merge(json!({"spec": {"image": image}}));
        for name in ["a", "b"] {
            site.create_host(name).await;
            site.wait(name, LONGEST, is(State::Available)).await;
            site.hosts().patch(name, &PatchParams::default(), &change(image.clone())).await.unwrap();
            site.wait(name, LONGEST, is(State::Provisioned)).await;
        }
        for name in ["a", "b"] {
            site.hosts().patch(name, &PatchParams::default(), &change(Value::Null)).await.unwrap();
        }
        site.wait("a", 300, is(State::Available)).await;
        let host = site.hosts().get("b").await.unwrap();
        assert_eq!(host.state(), State::Provisioned);
        let reported = host.status.unwrap().error_message;
        assert!(reported.contains("--deprovisioning-limit"), "{reported}");
        site.wait("b", 900, is(State::Available)).await;
    });
}

#[test]
fn a_secret_that_may_not_be_read_is_not_said_to_be_missing() {
    scenarios::run(28, async |site| {
        site.weather.refuses(|method, path| {
            (method == "GET" && path.contains("/secrets/")).then(|| (403, "you may not get secrets".to_owned()))
        });
        let _controller = site.controller(scenarios::fixture(&Machines::default()));
        site.create_host("a").await;
        let reported = |host: &BareMetalHost| host.status.as_ref().map(|s| s.error_message.clone()).unwrap_or_default();
        let host = site.wait("a", 300, |host| !reported(host).is_empty()).await;
        assert!(reported(&host).contains("may not be read"), "{}", reported(&host));
        // Other errors say nothing of the Secret.
        site.weather.refuses(|method, path| {
            (method == "GET" && path.contains("/secrets/")).then(|| (500, "out of order".to_owned()))
        });
        site.create_annotated("b", json!({})).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let host = site.hosts().get("b").await.unwrap();
        assert!(!reported(&host).contains("does not exist"), "{}", reported(&host));
        site.weather.refuses(|_, _| None);
        for name in ["a", "b"] {
            site.wait(name, LONGEST, is(State::Available)).await;
        }
    });
}

#[test]
fn a_scheme_that_is_not_served_ends_the_registration_with_its_name() {
    scenarios::run(29, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        site.create_host("a").await;
        let odd = json!({"spec": {"bmc": {"address": "ipmi://192.0.2.7"}}});
        patch(&site, &odd).await;
        let refused = |host: &BareMetalHost| {
            let status = host.status.as_ref();
            status.is_some_and(|s| s.error_type == Some(ErrorType::Registration) && s.error_message.contains("ipmi"))
        };
        site.wait("a", 600, refused).await;
    });
}

/// Between the writes that say that the system has come, somebody edits the host.
#[test]
fn a_reboot_of_before_the_system_came_does_not_hit_it_whoever_edits_the_host() {
    scenarios::run(30, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "format": "raw"});
        patch(&site, &json!({"spec": {"image": image}})).await;
        while !plant.effects().iter().any(|effect| effect.starts_with("write")) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        patch(&site, &annotated(REBOOT, Some(r#"{"mode": "hard"}"#))).await;
        let edits = AtomicU32::new(3);
        site.weather.refuses(move |method, path| {
            let meant = method == "PATCH" && path.ends_with("/baremetalhosts/a");
            let edited = meant && edits.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            edited.then(|| (409, "the host has been edited".to_owned()))
        });
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        let before = plant.effects().len();
        tokio::time::sleep(Duration::from_secs(900)).await;
        let effects = plant.effects();
        assert!(
            !effects.iter().skip(before).any(|effect| effect.contains("Off") || effect.contains("Restart")),
            "{effects:#?}"
        );
        assert!(plant.runs_its_disk(), "{effects:#?}");
        let events = Api::<Event>::default_namespaced(site.observer()).list(&ListParams::default()).await.unwrap();
        for reason in ["ProvisioningComplete", "RebootDropped"] {
            let reported = events.items.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
            assert_eq!(reported, 1, "{reason}");
        }
    });
}

#[test]
fn a_dialogue_without_end_is_reported_and_begun_anew() {
    scenarios::run(26, async |site| {
        let plant = Plant::new(site.weather.clone());
        plant.inserts_in(Duration::from_secs(LONGEST.into()));
        let _server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Inspecting)).await;
        let reported =
            |host: &BareMetalHost| host.status.as_ref().is_some_and(|s| s.error_message.contains("no end within"));
        site.wait("a", 1800, reported).await;
        plant.inserts_in(INSERTION);
        site.wait("a", 1800, is(State::Available)).await;
    });
}

#[test]
fn an_agent_that_hangs_is_booted_anew_when_somebody_insists() {
    scenarios::run(24, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "format": "raw"});
        patch(&site, &json!({"spec": {"image": image}})).await;
        while !plant.effects().iter().any(|effect| effect.starts_with("write")) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        plant.hangs();
        patch(&site, &annotated(REBOOT, Some("{}"))).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(site.hosts().get("a").await.unwrap().state(), State::Provisioning, "it does not insist");
        patch(&site, &annotated(REBOOT, Some(r#"{"force": true}"#))).await;
        // Nobody has to wait until its silence counts.
        let host = site.wait("a", 240, is(State::Provisioned)).await;
        assert!(!host.metadata.annotations.unwrap_or_default().contains_key(REBOOT));
        let effects = plant.effects();
        assert_eq!(effects.iter().filter(|effect| effect.starts_with("write")).count(), 2, "{effects:#?}");
        assert!(plant.image().is_some());
    });
}

/// What hints named before they were corrected is not this host's: only what it has written, by its mark, and what is named now.
#[test]
fn a_wipe_names_the_disk_that_the_host_names_when_it_is_made() {
    scenarios::run(25, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let hints = |name: &str| json!({"deviceName": name});
        patch(&site, &json!({"spec": {"rootDeviceHints": hints("/dev/vda")}})).await;
        let in_force = |host: &BareMetalHost| {
            let hints = host.status.as_ref().and_then(|status| status.provisioning.root_device_hints.clone());
            is(State::Available)(host) && hints.is_some()
        };
        site.wait("a", LONGEST, in_force).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "format": "raw"});
        patch(&site, &json!({"spec": {"image": image}})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        patch(&site, &json!({"spec": {"rootDeviceHints": hints("/dev/vdb"), "image": null}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let effects = plant.effects();
        let wipes: Vec<&String> = effects.iter().filter(|effect| effect.starts_with("wipe")).collect();
        assert!(wipes.len() == 1 && wipes[0].ends_with(" naming /dev/vdb"), "{effects:#?}");
    });
}

#[test]
fn an_image_that_is_taken_back_in_the_middle_is_not_written_to_its_end() {
    let machines = Machines::default();
    machines.trouble(&address("a"), Trouble::Slow, true);
    scenarios::run(23, async |site| {
        let _controller = site.controller(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "format": "raw"});
        patch(&site, &json!({"spec": {"image": image}})).await;
        site.wait("a", LONGEST, is(State::Provisioning)).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(site.hosts().get("a").await.unwrap().state(), State::Provisioning);
        patch(&site, &json!({"spec": {"image": null}})).await;
        let mut seen = Vec::new();
        for _ in 0..LONGEST * 4 {
            let state = site.hosts().get("a").await.unwrap().state();
            if seen.last() != Some(&state) {
                seen.push(state);
            }
            if state == State::Available {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        assert!(seen.contains(&State::Deprovisioning) && !seen.contains(&State::Provisioned), "{seen:?}");
        assert_eq!(seen.last(), Some(&State::Available));
    });
}
