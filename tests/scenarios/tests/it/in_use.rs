//! A status, or a record, that is older than the machine: a backup tells what was, and the machine in use is recognized by what was done to it, or held. The same
//! where the record is another name's, or another address's, and where what was done to the machine was done by somebody else.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use api::metamorph::MachineRecord;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use scenarios::is;
use scenarios::plant::Plant;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::disasters::{ALL, CONSENT, IMAGE, LONGEST, Place, REST, Reaches, annotate, count, image, patch, says};

/// What is provisioned after Monday's backup.
const TUESDAYS: &str = "http://192.0.2.8/tuesdays";

/// The host says these words for hours, and nothing is done to its machine.
async fn is_held(place: &Place, name: &str, words: &str) {
    let before = place.plant.effects();
    place.site.wait(name, LONGEST, says(words)).await;
    sleep(REST).await;
    let host = place.site.hosts().get(name).await.unwrap();
    assert!(says(words)(&host), "{:?}", host.status);
    assert_eq!(place.plant.effects(), before, "{words}");
}

/// A machine that has been rebuilt since Monday, and Monday's status.
async fn rebuilt(site: scenarios::Site) -> (Place, Value) {
    let Place { site, plant, host, .. } = Place::in_use(site, image(IMAGE)).await;
    let server = plant.serve(&site);
    patch(&site, json!({"spec": {"image": image(TUESDAYS)}})).await;
    let is_rebuilt = |host: &BareMetalHost| {
        is(State::Provisioned)(host) && host.status.as_ref().unwrap().provisioning.image.url == TUESDAYS
    };
    site.wait("a", LONGEST, is_rebuilt).await;
    sleep(Duration::from_secs(600)).await;
    server.kill();
    (Place::of(site, plant).await, serde_json::to_value(host.status).unwrap())
}

/// What a host tells that was available on Monday.
fn available(mut status: Value) -> Value {
    status["provisioning"]["state"] = json!("available");
    status["provisioning"]["image"] = json!({"url": ""});
    status["operationHistory"]["provision"] = json!({"start": null, "end": null});
    status.as_object_mut().unwrap().remove("lastAttemptedImage");
    status
}

#[test]
fn a_status_that_is_older_than_what_the_machine_runs_has_nothing_wiped_written_or_switched() {
    const WORDS: &str = "later than this host's status";
    for way in ["provisioned", "available", "off", "deleted", "newer", "consent"] {
        scenarios::run(71, async |site| {
            let (mut place, monday) = rebuilt(site).await;
            let monday = if matches!(way, "available" | "off") { available(monday) } else { monday };
            let before = place.plant.effects();
            let annotations = json!({annotation::STATUS: monday.to_string()});
            let edit = |host: &mut Value| {
                if way == "off" {
                    host["spec"]["online"] = json!(false);
                    host["spec"]["image"] = json!(null);
                }
            };
            place.moves(ALL, annotations, edit).await;
            is_held(&place, "a", WORDS).await;
            match way {
                "deleted" => {
                    place.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
                    is_held(&place, "a", "the deletion waits").await;
                }
                "newer" => {
                    let tuesday = serde_json::to_string(place.host.status.as_ref().unwrap()).unwrap();
                    annotate(&place.site, annotation::STATUS, json!(tuesday)).await;
                    let well = |host: &BareMetalHost| {
                        let status = host.status.as_ref().unwrap();
                        status.error_type.is_none() && status.provisioning.image.url == TUESDAYS
                    };
                    place.site.wait("a", LONGEST, well).await;
                    sleep(REST).await;
                    assert!(well(&place.site.hosts().get("a").await.unwrap()));
                    assert_eq!(place.plant.effects(), before, "a tenant was touched");
                }
                "consent" => {
                    annotate(&place.site, CONSENT, json!("somebody-else")).await;
                    is_held(&place, "a", WORDS).await;
                    annotate(&place.site, CONSENT, json!(place.host.status.as_ref().unwrap().provisioning.id)).await;
                    // By the old status another image is there than is asked for.
                    place.site.wait("a", LONGEST, is(State::Deprovisioning)).await;
                    place.site.wait("a", LONGEST, is(State::Provisioned)).await;
                    assert_eq!(count(&place.plant, "write "), 3, "{:#?}", place.plant.effects());
                }
                _ => assert!(place.plant.is_on() && place.plant.image().as_deref() == Some(TUESDAYS)),
            }
        });
    }
}

/// The object is the same, and somebody gives it a status that it had before.
#[test]
fn an_old_status_put_back_into_the_same_host_ends_no_system() {
    const WORDS: &str = "an older status has been put back";
    for (state, serves) in [
        (State::Inspecting, true),
        // The BMC alone is to be asked.
        (State::Inspecting, false),
        (State::Preparing, true),
        (State::Available, true),
        (State::Available, false),
        (State::Provisioning, false),
        (State::Provisioned, true),
        (State::Deprovisioning, false),
    ] {
        scenarios::run(74, async |site| {
            let (mut place, monday) = rebuilt(site).await;
            let mut status = match state {
                State::Provisioned => monday,
                // The same image was there before, and was being removed.
                State::Deprovisioning => {
                    let mut removing = monday;
                    removing["operationHistory"]["deprovision"]["start"] =
                        removing["operationHistory"]["provision"]["end"].clone();
                    removing["provisioning"]["image"] = image(TUESDAYS);
                    removing
                }
                State::Provisioning => {
                    let began = monday["operationHistory"]["provision"]["start"].clone();
                    let mut begun = available(monday);
                    begun["operationHistory"]["provision"] = json!({"start": began, "end": null});
                    begun
                }
                _ => available(monday),
            };
            status["provisioning"]["state"] = serde_json::to_value(state).unwrap();
            if state == State::Inspecting && !serves {
                patch(&place.site, json!({"spec": {"inspectionMode": "fast"}})).await;
            }
            if serves {
                place.server = Some(place.plant.serve(&place.site));
                sleep(REST).await;
            }
            let before = place.plant.effects();
            let mut host = place.site.hosts().get("a").await.unwrap();
            let tuesday = host.status.clone();
            host.status = serde_json::from_value(status).unwrap();
            place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
            if !serves {
                place.server = Some(place.plant.serve(&place.site));
            }
            is_held(&place, "a", WORDS).await;
            assert_eq!(place.plant.image().as_deref(), Some(TUESDAYS), "{state:?}");
            if state == State::Available && !serves {
                // What it had begun to do by the old status is no word of what the machine runs.
                patch(&place.site, json!({"spec": {"image": null}})).await;
                place.site.wait("a", LONGEST, is(State::Deprovisioning)).await;
                is_held(&place, "a", WORDS).await;
                patch(&place.site, json!({"spec": {"image": image(TUESDAYS)}})).await;
            }
            if state == State::Available && serves {
                let owner = &place.host.status.as_ref().unwrap().provisioning.id;
                annotate(&place.site, CONSENT, json!(owner)).await;
                place.site.wait("a", LONGEST, is(State::Provisioned)).await;
                assert_eq!(count(&place.plant, "write "), 3, "{:#?}", place.plant.effects());
            } else {
                let mut host = place.site.hosts().get("a").await.unwrap();
                host.status = tuesday;
                place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
                sleep(REST).await;
                let host = place.site.hosts().get("a").await.unwrap();
                assert!(is(State::Provisioned)(&host) && host.status.unwrap().error_type.is_none());
                assert_eq!(place.plant.effects(), before, "a tenant was touched");
            }
        });
    }
}

/// A host that goes is no reason to end what its old status does not tell of.
#[test]
fn a_host_with_an_old_status_that_is_deleted_leaves_its_machine_on() {
    for state in [State::Inspecting, State::Preparing, State::Available] {
        scenarios::run(77, async |site| {
            let (mut place, monday) = rebuilt(site).await;
            let mut status = available(monday);
            status["provisioning"]["state"] = serde_json::to_value(state).unwrap();
            let before = place.plant.effects();
            let mut host = place.site.hosts().get("a").await.unwrap();
            let tuesday = host.status.clone();
            host.status = serde_json::from_value(status).unwrap();
            place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
            place.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            place.server = Some(place.plant.serve(&place.site));
            is_held(&place, "a", "the deletion waits").await;
            assert!(place.plant.is_on(), "{state:?}");
            let mut host = place.site.hosts().get("a").await.unwrap();
            assert!(says("an older status has been put back")(&host), "{:?}", host.status);
            assert_eq!(place.plant.effects(), before, "{state:?}: a tenant was touched");
            // With the status that it had last, its own system is removed as always.
            host.status = tuesday;
            place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
            place.site.gone("a", LONGEST).await;
            assert_eq!((place.plant.image(), place.plant.is_on()), (None, false), "{:#?}", place.plant.effects());
        });
    }
}

/// What is off is not switched off: nothing is to be known before that.
#[test]
fn a_host_with_an_old_status_is_deleted_when_its_machine_is_off() {
    scenarios::run(79, async |site| {
        let (mut place, monday) = rebuilt(site).await;
        let mut host = place.site.hosts().get("a").await.unwrap();
        host.status = serde_json::from_value(available(monday)).unwrap();
        place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
        place.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        place.server = Some(place.plant.serve(&place.site));
        is_held(&place, "a", "the deletion waits").await;
        place.plant.somebody_switches_off();
        let (image, before) = (place.plant.image(), place.plant.effects());
        place.site.gone("a", LONGEST).await;
        assert_eq!((place.plant.image(), place.plant.effects()), (image, before), "what is on its disk stays");
    });
}

/// What others have put on the machine is theirs, whatever was done to it before.
#[test]
fn an_old_status_put_back_into_a_host_that_others_look_after_ends_no_system() {
    for state in [State::Inspecting, State::Deprovisioning] {
        scenarios::run(75, async |site| {
            let Place { site, plant, host, .. } = Place::in_use(site, image(IMAGE)).await;
            let mut old = serde_json::to_value(host.status).unwrap();
            if state == State::Inspecting {
                old = available(old);
            } else {
                old["operationHistory"]["deprovision"]["start"] = old["operationHistory"]["provision"]["end"].clone();
            }
            old["provisioning"]["state"] = serde_json::to_value(state).unwrap();
            let server = plant.serve(&site);
            patch(&site, json!({"spec": {"image": null}})).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            patch(&site, json!({"spec": {"externallyProvisioned": true}})).await;
            site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
            sleep(REST).await;
            server.kill();
            let mut place = Place::of(site, plant).await;
            let before = place.plant.effects();
            let mut host = place.site.hosts().get("a").await.unwrap();
            host.status = serde_json::from_value(old).unwrap();
            place.site.hosts().replace_status("a", &PostParams::default(), &host).await.unwrap();
            place.server = Some(place.plant.serve(&place.site));
            is_held(&place, "a", "somebody else's (spec.externallyProvisioned)").await;
            assert_eq!(place.plant.effects(), before, "{state:?}");
        });
    }
}

/// A status and a record of one moment, or a record that is older.
#[test]
fn a_status_that_tells_of_what_the_machine_runs_is_gone_on_with() {
    for way in ["one moment", "no record", "older record"] {
        scenarios::run(72, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            sleep(Duration::from_secs(600)).await;
            let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
            let early = records.get("a").await.unwrap();
            let mut place = Place::provisioned(site, plant, server, image(IMAGE)).await;
            let before = place.plant.effects();
            if way == "older record" {
                place.record = early;
            }
            let status = serde_json::to_string(place.host.status.as_ref().unwrap()).unwrap();
            let reaches = Reaches { record: way != "no record", hardware: true };
            place.moves(reaches, json!({annotation::STATUS: status}), |_| {}).await;
            place.goes_on(&before).await;
        });
    }
}

/// A record from before the machine was used knows less than what stands beside it.
#[test]
fn a_record_from_before_the_machine_was_used_is_no_reason_to_boot_it() {
    for way in ["older", "emptied", "without its operation"] {
        scenarios::run(73, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            if way == "emptied" {
                patch(&site, json!({"spec": {"image": image(TUESDAYS)}})).await;
                site.wait("a", LONGEST, is(State::Provisioned)).await;
                patch(&site, json!({"spec": {"image": null}})).await;
                site.wait("a", LONGEST, is(State::Available)).await;
            }
            sleep(Duration::from_secs(600)).await;
            let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
            let early = records.get("a").await.unwrap();
            let mut place = Place::provisioned(site, plant, server, image(IMAGE)).await;
            if way == "without its operation" {
                let data = &mut place.record.spec.provisioner.as_mut().unwrap().data;
                for known in ["operation", "runs"] {
                    data.as_object_mut().unwrap().remove(known).unwrap();
                }
            } else {
                place.record = early;
            }
            let consumer = json!({"kind": "Metal3Machine", "name": "m", "namespace": "default"});
            place.moves(ALL, json!({}), |host| host["spec"]["consumerRef"] = consumer).await;
            place.is_held("may be in use").await;
        });
    }
}

/// The mark on the disk is that of the host that was provisioned, not of the one that began the record, and not of the one that is registered now.
#[test]
fn a_machine_is_recognized_by_the_mark_that_is_on_its_disk() {
    for way in ["second host of its name", "server's keys lost"] {
        scenarios::run(74, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            site.create_host("a").await;
            if way == "second host of its name" {
                let first = site.wait("a", LONGEST, is(State::Available)).await;
                site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
                site.gone_but_for_its_secret("a", LONGEST).await;
                let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"}, "spec": first.spec});
                site.hosts().create(&Default::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
            }
            let mut place = Place::provisioned(site, plant, server, image(IMAGE)).await;
            let data = &mut place.record.spec.provisioner.as_mut().unwrap().data;
            let id = place.host.status.as_ref().unwrap().provisioning.id.clone();
            if way == "second host of its name" {
                assert_ne!(data["subject"], json!(id));
            } else {
                data["claim"] = json!("another server's");
            }
            let before = place.plant.effects();
            let wipes = count(&place.plant, "wipe");
            place.moves(ALL, json!({}), |_| {}).await;
            let host = place.site.wait("a", LONGEST, is(State::Provisioned)).await;
            assert_eq!(host.status.unwrap().provisioning.id, id, "{way}");
            sleep(REST).await;
            assert_eq!(place.plant.effects(), before);
            patch(&place.site, json!({"spec": {"image": null}})).await;
            place.site.wait("a", LONGEST, is(State::Available)).await;
            assert_eq!((place.plant.image(), count(&place.plant, "wipe")), (None, wipes + 1), "{way}");
        });
    }
}

/// Declared again under another name, or at another address of its BMC, without its status.
#[test]
fn a_machine_that_another_names_record_says_is_in_use_is_held() {
    for way in ["name", "address"] {
        scenarios::run(75, async |site| {
            let mut place = Place::in_use(site, image(IMAGE)).await;
            let name = if way == "name" { "b" } else { "a" };
            let reaches = Reaches { record: true, hardware: false };
            let edit = |host: &mut Value| {
                host["metadata"]["name"] = json!(name);
                if way == "address" {
                    let address =
                        host["spec"]["bmc"]["address"].as_str().unwrap().replace("192.0.2.7", "bmc-a.example.com");
                    host["spec"]["bmc"]["address"] = json!(address);
                }
            };
            place.moves(reaches, json!({}), edit).await;
            is_held(&place, name, "for a host that is gone (MachineRecord default/a").await;
            let records: Api<MachineRecord> = Api::default_namespaced(place.site.observer());
            let kept = records.get("a").await.unwrap().spec.provisioner;
            assert_eq!(kept, place.record.spec.provisioner, "{way}: it is not replaced");
            let owner = place.host.status.as_ref().unwrap().provisioning.id.clone();
            let consent = json!({"metadata": {"annotations": {CONSENT: owner}}});
            place.site.hosts().patch(name, &PatchParams::default(), &Patch::Merge(consent)).await.unwrap();
            place.site.wait(name, LONGEST, is(State::Provisioned)).await;
            assert_eq!(count(&place.plant, "write "), 2, "{way}: {:#?}", place.plant.effects());
        });
    }
}

/// Who has been released properly is no reason to hold anybody: whatever the next host of that machine is called.
#[test]
fn a_machine_that_was_released_is_anybodys() {
    for name in ["a", "b"] {
        scenarios::run(76, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            site.create_host("a").await;
            let mut place = Place::provisioned(site, plant, server, image(IMAGE)).await;
            let server = place.plant.serve(&place.site);
            place.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            place.site.gone("a", LONGEST).await;
            sleep(Duration::from_secs(600)).await;
            server.kill();
            let records: Api<MachineRecord> = Api::default_namespaced(place.site.observer());
            place.record = records.get("a").await.unwrap();
            let reaches = Reaches { record: true, hardware: false };
            place.moves(reaches, json!({}), |host| host["metadata"]["name"] = json!(name)).await;
            place.site.wait(name, LONGEST, is(State::Provisioned)).await;
            assert_eq!(count(&place.plant, "write "), 2, "{name}");
        });
    }
}

/// What was done to the machine last counts, whichever host's record tells it: an old one holds nobody, and one beside the host's own is not passed over.
#[test]
fn of_all_records_of_a_machine_the_newest_tells() {
    for way in ["emptied since", "in use since"] {
        scenarios::run(77, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            site.create_host("a").await;
            let mut place = Place::provisioned(site, plant, server, image(IMAGE)).await;
            let mut other = place.record.clone();
            other.metadata = kube::api::ObjectMeta { name: Some("b".to_owned()), ..Default::default() };
            other.spec.host.name = "b".to_owned();
            other.spec.host.uid = Some("gone".to_owned());
            // The host's own record is of a time when the machine was empty.
            let own = &mut place.record.spec.provisioner.as_mut().unwrap().data;
            own.as_object_mut().unwrap().remove("runs");
            own["operation"]["operation"] = json!("Deprovision");
            if way == "emptied since" {
                let ended = own["operation"]["status"]["endTime"].as_str().unwrap().replace("2026", "2027");
                own["operation"]["status"]["endTime"] = json!(ended);
            } else {
                own["operation"]["status"]["endTime"] = json!("2020-01-01T00:00:00Z");
                own["operation"]["status"]["startTime"] = json!("2020-01-01T00:00:00Z");
            }
            let reaches = Reaches { record: true, hardware: false };
            // Before the server begins, it has the record of another name, too.
            place.beside = Some(other);
            place.moves(reaches, json!({}), |host| host["spec"]["image"] = json!(null)).await;
            if way == "emptied since" {
                place.site.wait("a", LONGEST, is(State::Available)).await;
            } else {
                is_held(&place, "a", "for a host that is gone (MachineRecord default/b").await;
            }
        });
    }
}
