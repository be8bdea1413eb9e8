//! Fast inspection by the native provisioner: the BMC lists the hardware and the machine stays as it is; later work does not take the list for more than
//! it is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use api::metal3::{BareMetalHost, DEVICES, HardwareData, NOT_LISTED, ProvisioningState as State};
use api::metamorph::{HostOperation, OperationPhase, OperationType};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use scenarios::plant::Plant;
use scenarios::{Site, is};
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// A host to be off, whose BMC alone is to tell its hardware.
async fn create(site: &Site, online: bool) {
    site.create_with("a", json!({}), json!({"online": online, "inspectionMode": "fast"})).await;
}

async fn data(site: &Site) -> HardwareData {
    Api::<HardwareData>::default_namespaced(site.observer()).get("a").await.unwrap()
}

/// Inspections that are shown: each with its steps, its phase and its message.
async fn inspections(site: &Site) -> Vec<(String, OperationPhase, String)> {
    let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
    let all = operations.list(&ListParams::default()).await.unwrap().items;
    let shown = |operation: HostOperation| {
        let status = operation.status.unwrap_or_default();
        let steps = status.steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(" ");
        (steps, status.phase, status.message.unwrap_or_default())
    };
    all.into_iter().filter(|operation| operation.spec.operation == OperationType::Inspect).map(shown).collect()
}

/// What Events of this reason say.
async fn said(site: &Site, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let all = events.list(&ListParams::default()).await.unwrap().items;
    all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.note).collect()
}

fn count(plant: &Plant, what: &str) -> usize {
    plant.effects().iter().filter(|effect| effect.starts_with(&format!("{what} "))).count()
}

/// Provisions, deprovisions and deletes a host that is available.
async fn lives(site: &Site, plant: &Plant) {
    let digest = "00".repeat(32);
    let image = json!({"url": "http://192.0.2.8/i", "checksum": digest, "checksumType": "sha256", "format": "raw"});
    patch(site, json!({"spec": {"online": true, "image": image}})).await;
    site.wait("a", LONGEST, is(State::Provisioned)).await;
    assert_eq!(plant.image().as_deref(), Some("http://192.0.2.8/i"));
    patch(site, json!({"spec": {"image": null}})).await;
    site.wait("a", LONGEST, is(State::Available)).await;
    assert_eq!(plant.image(), None, "{:#?}", plant.effects());
    site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
    site.gone("a", LONGEST).await;
}

#[test]
fn a_machine_that_is_off_is_inspected_as_it_is_and_lives_like_any_other() {
    scenarios::run(31, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        create(&site, false).await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(plant.effects(), [""; 0], "the machine was touched");
        // What the BMC does not list is told, and kept beside what it lists.
        let data = data(&site).await;
        assert_eq!(data.annotations().get(NOT_LISTED).map(String::as_str), Some("network interfaces"));
        let hardware = data.spec.hardware.unwrap();
        assert_eq!(host.status.unwrap().hardware.as_ref(), Some(&hardware));
        assert_eq!((hardware.storage.len(), hardware.nics.len(), hardware.hostname.as_ref()), (1, 0, None));
        assert_eq!(hardware.storage[0].name, None);
        let [(steps, phase, message)] = &inspections(&site).await[..] else { panic!("not one inspection") };
        assert_eq!((steps.as_str(), *phase), ("read-inventory", OperationPhase::Succeeded));
        assert!(message.contains("not completely: network interfaces"), "{message}");
        let [gaps] = &said(&site, "InspectionIncomplete").await[..] else { panic!("nothing is said") };
        assert!(gaps.contains("network interfaces"), "{gaps}");
        // No disk of the agent's is the drive that the BMC lists: it is wiped all the same.
        lives(&site, &plant).await;
        assert_eq!((count(&plant, "write"), count(&plant, "inspect")), (1, 0), "{:#?}", plant.effects());
        assert!(count(&plant, "wipe") >= 1, "{:#?}", plant.effects());
    });
}

#[test]
fn a_machine_is_inspected_again_only_when_that_is_asked_for_and_as_it_is_wished_then() {
    scenarios::run(32, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        create(&site, true).await;
        let on = |host: &BareMetalHost| {
            host.state() == State::Available && host.status.as_ref().is_some_and(|status| status.powered_on)
        };
        site.wait("a", LONGEST, on).await;
        let before = plant.effects();
        let annotated = || json!({"metadata": {"annotations": {"inspect.metal3.io": ""}}});
        let again = |count: usize| {
            let site = &site;
            async move {
                for _ in 0..LONGEST {
                    let all = inspections(site).await;
                    let ended = all.iter().filter(|(_, phase, _)| *phase == OperationPhase::Succeeded).count();
                    if ended == count && site.hosts().get("a").await.unwrap().state() == State::Available {
                        return all;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                panic!("not inspected again");
            }
        };
        // The machine is on: now its interfaces are listed.
        patch(&site, annotated()).await;
        again(2).await;
        let found = data(&site).await;
        assert_eq!((found.annotations().get(NOT_LISTED), plant.effects()), (None, before.clone()));
        assert_eq!(found.annotations().get(DEVICES), None);
        assert_eq!(found.spec.hardware.unwrap().nics.len(), 1);
        // Another mode alone asks for nothing.
        patch(&site, json!({"spec": {"inspectionMode": "agent"}})).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!((plant.effects(), inspections(&site).await.len()), (before, 2));
        patch(&site, annotated()).await;
        let all = again(3).await;
        assert!(all.iter().any(|(steps, ..)| steps == "boot-agent collect-inventory"), "{all:?}");
        assert_eq!(count(&plant, "inspect"), 1, "{:#?}", plant.effects());
        let found = data(&site).await;
        // An agent has looked for PCI devices, and the BMC had not.
        assert_eq!(found.annotations().get(DEVICES).map(String::as_str), Some("{\"pci\":[]}"));
        assert_eq!(found.spec.hardware.unwrap().storage[0].name.as_deref(), Some("/dev/vda"));
        // What is found again is not written again.
        patch(&site, annotated()).await;
        again(4).await;
        assert_eq!(data(&site).await.metadata.resource_version, found.metadata.resource_version);
        // By the BMC alone nothing is known of them any more.
        patch(&site, json!({"spec": {"inspectionMode": "fast"}})).await;
        patch(&site, annotated()).await;
        again(5).await;
        assert_eq!(data(&site).await.annotations().get(DEVICES), None);
    });
}

/// What has ended is shown once it can be, though nothing of it could be before.
#[test]
fn an_inspection_of_which_no_write_came_through_is_shown_afterwards_unless_it_is_deleted() {
    scenarios::run(33, async |site| {
        let refuses = Arc::new(AtomicBool::new(true));
        let refused = Arc::clone(&refuses);
        site.weather.refuses(move |method, path| {
            let refuses = refused.load(Relaxed) && method != "GET" && path.contains("/hostoperations");
            refuses.then(|| (500, "not now".to_owned()))
        });
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        create(&site, false).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(inspections(&site).await.is_empty());
        refuses.store(false, Relaxed);
        tokio::time::sleep(Duration::from_secs(900)).await;
        let [(_, phase, _)] = &inspections(&site).await[..] else { panic!("not one inspection") };
        assert_eq!(*phase, OperationPhase::Succeeded);
        // What people delete stays deleted.
        let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
        operations.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert!(inspections(&site).await.is_empty());
    });
}

#[test]
fn whatever_is_killed_lost_or_late_the_machine_is_only_looked_at() {
    for seed in 800..812 {
        scenarios::run(seed, async |site| {
            site.weather.rough(20, Duration::from_millis(500));
            let plant = Plant::new(site.weather.clone());
            let mut server = plant.serve(&site);
            create(&site, false).await;
            for _ in 0..site.weather.below(4) {
                tokio::time::sleep(Duration::from_millis(site.weather.below(20_000))).await;
                server.kill();
                server = plant.serve(&site);
            }
            site.wait("a", LONGEST, is(State::Available)).await;
            assert_eq!(plant.effects(), [""; 0], "seed {seed}");
            assert_eq!(data(&site).await.spec.hardware.unwrap().storage.len(), 1, "seed {seed}");
            // It is shown when it has ended; a write of that which was lost is made again.
            let succeeded = async || {
                let all = inspections(&site).await;
                all.iter().filter(|(_, phase, _)| *phase == OperationPhase::Succeeded).count()
            };
            for _ in 0..60 {
                if succeeded().await == 1 {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            assert_eq!(succeeded().await, 1, "seed {seed}: {:?}", inspections(&site).await);
            lives(&site, &plant).await;
        });
    }
}
