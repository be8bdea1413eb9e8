//! What stops a host, or turns its wish, stops what has been begun for it as well.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::Site;
use scenarios::plant::Plant;
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
/// How long the BMC takes to put a medium in.
const INSERTION: Duration = Duration::from_secs(50);

fn is(state: State) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.state() == state
}

async fn patch(site: &Site, change: &Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn annotated(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

async fn freeze(site: &Site, value: Option<&str>) {
    let namespaces: Api<Namespace> = Api::all(site.observer());
    let change = annotated("metamorph.metal3.io/freeze", value);
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
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
                "freeze" => freeze(&site, Some("maintenance")).await,
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
                    freeze(&site, None).await;
                }
                key => patch(&site, &annotated(key, None)).await,
            }
            site.wait("a", LONGEST, is(State::Available)).await;
            assert!(plant.effects().iter().any(|effect| effect.starts_with("agent of")), "{stop}");
        });
    }
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
