//! A host whose provisioner cannot be asked: nothing is done to its machine, no deletion gives it up, and no other provisioner is given it.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, ErrorType, ProvisioningState as State};
use api::metamorph::{HostOperation, MachineRecord};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use provisioner::Registry;
use provisioner_fixture::FixtureProvisioner;
use scenarios::plant::{Plant, Running};
use scenarios::{Machines, Site, address, is};
use serde_json::{Value, json};

const ANNOTATION: &str = "metamorph.metal3.io/provisioner";
const DETACHED: &str = "baremetalhost.metal3.io/detached";
/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
/// Far longer than a deletion insists, in seconds.
const LONG: u64 = 3 * 3600;
/// Seconds of it in which each is looked at.
const WATCHED: u64 = 300;

fn image() -> Value {
    json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"}}})
}

/// A machine of the native provisioner with its host, and machines of the fixture's beside it.
struct Place {
    site: Site,
    plant: Plant,
    machines: Machines,
    server: Option<Running>,
}

impl Place {
    /// The host has come to this state, in a server with both provisioners.
    async fn with_host(site: Site, state: State) -> Self {
        let (plant, machines) = (Plant::new(site.weather.clone()), Machines::default());
        let mut place = Self { site, plant, machines, server: None };
        place.serve_both();
        place.site.create_host("a").await;
        place.site.wait("a", LONGEST, is(State::Available)).await;
        if state != State::Available {
            place.patch(image()).await;
            place.site.wait("a", LONGEST, is(state)).await;
        }
        if state == State::Provisioned {
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert!(place.plant.runs_its_disk());
        }
        place
    }

    fn fixture(&self) -> Arc<FixtureProvisioner> {
        Arc::new(FixtureProvisioner::new(self.machines.clone()))
    }

    /// Kills the server, if there is one: BMC and agent turn to the provisioner that is made next.
    fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Another server, with both provisioners.
    fn serve_both(&mut self) {
        self.kill();
        let both = Registry::new(self.plant.provisioner()).with(self.fixture());
        self.server = Some(self.plant.serve_with(&self.site, both));
    }

    /// Another server, without the host's provisioner.
    fn serve_fixture_alone(&mut self) {
        self.kill();
        self.server = Some(self.plant.serve_with(&self.site, Registry::new(self.fixture())));
    }

    fn records(&self) -> Api<MachineRecord> {
        Api::default_namespaced(self.site.observer())
    }

    async fn patch(&self, change: Value) {
        self.site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    async fn annotate(&self, key: &str, value: Value) {
        self.patch(json!({ "metadata": { "annotations": { key: value } } })).await;
    }

    async fn delete(&self) {
        self.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
    }

    async fn is_gone(&self, seconds: u32) {
        for _ in 0..seconds {
            if self.site.hosts().get_opt("a").await.unwrap().is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the host never went: {:?}", self.site.hosts().get("a").await);
    }

    /// The host says these words as an error of its registration, and goes on saying them for hours in which nothing is done to its machine.
    async fn is_held(&self, words: &str) -> BareMetalHost {
        let before = self.plant.effects();
        let says =
            |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_message.contains(words));
        self.site.wait("a", LONGEST, says).await;
        for second in 0..WATCHED {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let host = self.site.hosts().get("a").await.unwrap();
            // A deletion says so all the time. Other work is tried again by a registration that goes well at first.
            assert!(says(&host) || !host.is_deleting(), "after {second} s: {:?}", host.status);
        }
        tokio::time::sleep(Duration::from_secs(LONG)).await;
        let host = self.site.wait("a", 60, says).await;
        let status = host.status.clone().unwrap();
        assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Registration), 1), "{status:?}");
        assert_eq!(self.plant.effects(), before, "{words}");
        assert_eq!(self.machines.effects(&address("a")), vec![], "{words}");
        host
    }

    async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|e| e.reason.as_deref() == Some(reason)).filter_map(|e| e.note).collect()
    }
}

#[test]
fn a_record_with_a_number_at_the_end_of_all_numbers_is_held_with_a_true_word() {
    let last = i64::MAX;
    for (edit, words) in [
        (
            json!({ "data": { "boot": { "generation": last }, "operation": { "status": { "boot": { "generation": last } } } } }),
            "boot.generation",
        ),
        (json!({ "data": { "number": last } }), "number"),
        (json!({ "revision": last }), "spec.provisioner.revision"),
    ] {
        scenarios::run(40, async |site| {
            let mut place = Place::with_host(site, State::Provisioned).await;
            let good = place.records().get("a").await.unwrap();
            let edit = json!({ "spec": { "provisioner": edit.clone() } });
            place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
            place.serve_both();
            place.patch(json!({ "spec": { "image": null } })).await;
            place.is_held(words).await;
            place.delete().await;
            place.is_held(words).await;
            let restored = json!({ "spec": { "provisioner": good.spec.provisioner } });
            place.records().patch("a", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
            place.is_gone(LONGEST).await;
            assert_eq!(place.plant.image(), None, "{:#?}", place.plant.effects());
        });
    }
}

#[test]
fn an_edit_of_the_record_that_keeps_its_revision_is_seen_by_the_server_that_runs() {
    scenarios::run(41, async |site| {
        let place = Place::with_host(site, State::Provisioned).await;
        let good = place.records().get("a").await.unwrap();
        let edit = json!({ "spec": { "provisioner": { "version": 99 } } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        place.patch(json!({ "spec": { "image": null } })).await;
        place.is_held("later one").await;
        let restored = json!({ "spec": { "provisioner": good.spec.provisioner } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
        place.site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(place.plant.image(), None);
    });
}

#[test]
fn numbers_of_operations_go_on_whatever_is_deleted() {
    scenarios::run(42, async |site| {
        let (plant, machines) = (Plant::new(site.weather.clone()), Machines::default());
        let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
        // Names that somebody else has.
        for name in ["a-001-inspect", "a-002-inspect"] {
            let spec = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": name },
                "spec": { "type": "Inspect", "host": { "name": "a" } } });
            operations.create(&PostParams::default(), &serde_json::from_value(spec).unwrap()).await.unwrap();
        }
        let mut place = Place { site, plant, machines, server: None };
        place.serve_both();
        place.site.create_host("a").await;
        place.site.wait("a", LONGEST, is(State::Available)).await;
        let mut newest = 0;
        let mut grown = async |place: &Place, what: &str| {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let all = operations.list(&ListParams::default()).await.unwrap().items;
            let owned = all.iter().filter(|operation| operation.metadata.owner_references.is_some());
            let number = |name: &str| name.rsplit('-').nth(1).unwrap().parse::<u64>().unwrap();
            let now = owned.map(|o| number(o.metadata.name.as_deref().unwrap())).max().unwrap_or(0);
            assert!(now > newest, "{what}: {now} after {newest}: {:?}", place.plant.effects());
            newest = now;
            for operation in all {
                let name = operation.metadata.name.unwrap();
                operations.delete(&name, &DeleteParams::default()).await.unwrap();
            }
        };
        grown(&place, "inspected").await;
        place.patch(image()).await;
        place.site.wait("a", LONGEST, is(State::Provisioned)).await;
        grown(&place, "provisioned").await;
        place.records().delete("a", &DeleteParams::default()).await.unwrap();
        place.patch(json!({ "spec": { "image": null } })).await;
        place.site.wait("a", LONGEST, is(State::Available)).await;
        grown(&place, "deprovisioned, without a record").await;
    });
}

#[test]
fn a_deletion_waits_for_a_server_that_has_the_hosts_provisioner() {
    for state in [State::Provisioned, State::Available] {
        scenarios::run(31, async |site| {
            let mut place = Place::with_host(site, state).await;
            place.serve_fixture_alone();
            place.delete().await;
            let host = place.is_held("the host is registered with \"metamorph\": run a server that has it").await;
            assert!(host.status.unwrap().error_message.contains(DETACHED), "the way out");
            assert_eq!(place.events("DeletionGaveUp").await, Vec::<String>::new());
            place.serve_both();
            place.is_gone(LONGEST).await;
            assert_eq!(place.plant.image(), None, "{:#?}", place.plant.effects());
            assert_eq!(place.events("DeletionGaveUp").await, Vec::<String>::new());
        });
    }
}

#[test]
fn a_host_that_goes_is_let_go_by_its_own_provisioner_whatever_its_annotation_names() {
    for name in ["fixture", "ironic"] {
        scenarios::run(32, async |site| {
            let place = Place::with_host(site, State::Provisioned).await;
            place.annotate(ANNOTATION, json!(name)).await;
            place.is_held("and its annotation asks for").await;
            place.delete().await;
            place.is_gone(LONGEST).await;
            assert_eq!(place.plant.image(), None, "{:#?}", place.plant.effects());
            assert_eq!(place.machines.effects(&address("a")), vec![]);
            assert_eq!(place.events("DeletionGaveUp").await, Vec::<String>::new());
        });
    }
}

#[test]
fn a_deletion_waits_for_a_record_that_cannot_be_read() {
    for (edit, words) in [
        (json!({"version": 99}), "later one"),
        (json!({"data": {"number": "many"}}), "no record"),
        (json!({"name": "ironic"}), "\"ironic\""),
    ] {
        scenarios::run(33, async |site| {
            let mut place = Place::with_host(site, State::Provisioned).await;
            let good = place.records().get("a").await.unwrap();
            let edit = json!({ "spec": { "provisioner": edit.clone() } });
            place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
            place.serve_both();
            place.delete().await;
            place.is_held(words).await;
            assert_eq!(place.events("DeletionGaveUp").await, Vec::<String>::new());
            let restored = json!({ "spec": { "provisioner": good.spec.provisioner } });
            place.records().patch("a", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
            place.is_gone(LONGEST).await;
            assert_eq!(place.plant.image(), None, "{:#?}", place.plant.effects());
        });
    }
}

#[test]
fn a_host_is_let_go_by_force_where_its_provisioner_cannot_be_asked() {
    for state in [State::Provisioned, State::Available] {
        scenarios::run(34, async |site| {
            let mut place = Place::with_host(site, state).await;
            let before = place.plant.image();
            place.serve_fixture_alone();
            place.delete().await;
            let host = place.is_held("run a server that has it").await;
            if state == State::Available {
                assert_eq!(host.state(), State::PoweringOffBeforeDelete);
            }
            place.annotate(DETACHED, json!("{\"force\":true}")).await;
            place.is_gone(600).await;
            assert_eq!(place.plant.image(), before);
            let notes = place.events("DeletionGaveUp").await;
            assert!(notes.len() == 1 && notes[0].contains("\"metamorph\""), "{notes:?}");
        });
    }
}

#[test]
fn a_host_at_rest_is_detached_by_force_where_its_provisioner_cannot_be_asked() {
    scenarios::run(35, async |site| {
        let mut place = Place::with_host(site, State::Provisioned).await;
        place.serve_fixture_alone();
        place.annotate(DETACHED, json!("{\"force\":true}")).await;
        let detached = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|s| s.operational_status == api::metal3::OperationalStatus::Detached)
        };
        place.site.wait("a", 600, detached).await;
        assert_eq!(place.events("DetachedByForce").await.len(), 1);
        assert!(place.plant.runs_its_disk());
        place.serve_both();
        place.annotate(DETACHED, Value::Null).await;
        let well = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|s| s.operational_status == api::metal3::OperationalStatus::Ok)
        };
        place.site.wait("a", LONGEST, well).await;
        assert!(place.plant.runs_its_disk());
    });
}

/// Its own provisioner is there to be asked: nothing is given up.
#[test]
fn a_host_is_detached_by_force_by_its_own_provisioner_whatever_its_annotation_names() {
    scenarios::run(46, async |site| {
        let place = Place::with_host(site, State::Provisioned).await;
        place.annotate(ANNOTATION, json!("fixture")).await;
        place.is_held("and its annotation asks for").await;
        place.annotate(DETACHED, json!("{\"force\":true}")).await;
        let detached = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|s| s.operational_status == api::metal3::OperationalStatus::Detached)
        };
        let host = place.site.wait("a", 600, detached).await;
        assert_eq!(host.status.unwrap().error_message, "");
        assert_eq!(place.events("DetachedByForce").await, Vec::<String>::new());
        assert!(place.plant.runs_its_disk());
        assert_eq!(place.machines.effects(&address("a")), vec![]);
    });
}

#[test]
fn a_host_is_never_given_to_a_provisioner_that_has_not_made_its_id() {
    scenarios::run(36, async |site| {
        let mut place = Place::with_host(site, State::Provisioned).await;
        let good = place.records().get("a").await.unwrap();
        let edit = json!({ "spec": { "provisioner": { "name": "fixture" } } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        place.serve_both();
        place.patch(json!({ "spec": { "image": null } })).await;
        place.is_held("names \"fixture\", which has not made the id").await;
        place.delete().await;
        place.is_held("names \"fixture\", which has not made the id").await;
        let restored = json!({ "spec": { "provisioner": good.spec.provisioner } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
        place.is_gone(LONGEST).await;
        assert_eq!((place.plant.image(), place.machines.effects(&address("a"))), (None, vec![]));
    });
}

#[test]
fn a_host_without_a_record_keeps_the_provisioner_that_has_made_its_id() {
    scenarios::run(37, async |site| {
        let mut place = Place::with_host(site, State::Provisioned).await;
        let namespaces: Api<Namespace> = Api::all(place.site.observer());
        let change = json!({ "metadata": { "annotations": { ANNOTATION: "fixture" } } });
        namespaces.patch("default", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        place.records().delete("a", &DeleteParams::default()).await.unwrap();
        place.serve_both();
        tokio::time::sleep(Duration::from_secs(300)).await;
        place.patch(json!({ "spec": { "image": null } })).await;
        place.site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!((place.plant.image(), place.machines.effects(&address("a"))), (None, vec![]));
    });
}

#[test]
fn a_record_that_names_no_provisioner_is_made_to_name_the_hosts() {
    scenarios::run(38, async |site| {
        let mut place = Place::with_host(site, State::Provisioned).await;
        // As a version has written it that knew of no choice.
        let edit = json!({ "spec": { "provisioner": null } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        place.serve_both();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let part = place.records().get("a").await.unwrap().spec.provisioner;
        assert_eq!(part.map(|part| part.name).as_deref(), Some("metamorph"), "at the first look");
        assert!(place.plant.runs_its_disk());
        place.patch(json!({ "spec": { "image": null } })).await;
        place.site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(place.plant.image(), None);
    });
}

/// What admission refuses is not tried with each step of each look.
#[test]
fn a_name_that_the_record_does_not_take_is_tried_now_and_then() {
    scenarios::run(64, async |site| {
        let mut place = Place::with_host(site, State::Provisioned).await;
        let edit = json!({ "spec": { "provisioner": null } });
        place.records().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        let bindings = records_are_refused(&place.site).await;
        let before = place.site.weather.calls().len();
        place.serve_both();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let calls = place.site.weather.calls().split_off(before);
        let tries = calls.iter().filter(|call| call.starts_with("PUT ") && call.contains("/machinerecords/")).count();
        // Work that must be recorded before it begins is tried once a minute, the name beside it every five minutes.
        assert!((1..=80).contains(&tries), "{tries} in an hour");
        bindings.delete("no-records", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        let part = place.records().get("a").await.unwrap().spec.provisioner;
        assert_eq!(part.map(|part| part.name).as_deref(), Some("metamorph"));
    });
}

#[test]
fn a_refused_choice_undoes_no_write_and_is_told_when_the_host_is_at_rest() {
    for name in ["fixture", "ironic"] {
        scenarios::run(39, async |site| {
            let place = Place::with_host(site, State::Provisioning).await;
            tokio::time::sleep(Duration::from_secs(100)).await;
            place.annotate(ANNOTATION, json!(name)).await;
            place.site.wait("a", 1800, is(State::Provisioned)).await;
            let host = place.is_held("and its annotation asks for").await;
            assert_eq!(host.state(), State::Provisioned);
            let effects = place.plant.effects();
            assert_eq!(effects.iter().filter(|effect| effect.starts_with("write ")).count(), 1, "{effects:#?}");
            assert!(!effects.iter().any(|effect| effect.starts_with("wipe ")), "{effects:#?}");
            assert!(place.plant.runs_its_disk());
            place.annotate(ANNOTATION, Value::Null).await;
            let well = |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_type.is_none());
            place.site.wait("a", 600, well).await;
        });
    }
}

/// The namespace with a host in it that has been given an image.
async fn in_a_namespace(site: &Site, plant: &Plant, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(site.observer());
    let of = |value: Value| serde_json::from_value::<Namespace>(value).unwrap();
    namespaces.create(&PostParams::default(), &of(json!({"metadata": {"name": namespace}}))).await.unwrap();
    let secret = json!({"metadata": {"name": "a-bmc"}, "stringData": {"username": "u", "password": "p"}});
    let secrets: Api<Secret> = Api::namespaced(site.observer(), namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"},
        "spec": {"online": true, "bootMACAddress": "02:00:00:00:00:01", "bmc": {"address": address("a"), "credentialsName": "a-bmc"}}});
    host["spec"]["image"] = image()["spec"]["image"].clone();
    let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), namespace);
    hosts.create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
    for _ in 0..LONGEST {
        if hosts.get("a").await.unwrap().state() == State::Provisioned {
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert!(plant.runs_its_disk());
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("never provisioned: {:?}", hosts.get("a").await);
}

#[test]
fn a_namespace_that_is_deleted_leaves_no_disk_behind() {
    // What is killed on the way: nothing, or the server, which then remembers nothing of the record.
    for killed in [false, true] {
        for seed in 0..5 {
            scenarios::run(seed, async |site| {
                let plant = Plant::new(site.weather.clone());
                let mut server = plant.serve(&site);
                in_a_namespace(&site, &plant, "rack").await;
                let namespaces: Api<Namespace> = Api::all(site.observer());
                namespaces.delete("rack", &DeleteParams::default()).await.unwrap();
                if killed {
                    tokio::time::sleep(Duration::from_millis(site.weather.below(120_000))).await;
                    server.kill();
                    server = plant.serve(&site);
                }
                for _ in 0..LONGEST {
                    if namespaces.get_opt("rack").await.unwrap().is_none() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), "rack");
                let left = hosts.list(&ListParams::default()).await.unwrap().items;
                assert!(left.is_empty(), "seed {seed}: {left:?}");
                assert_eq!(plant.image(), None, "seed {seed}, killed: {killed}: {:#?}", plant.effects());
                let wipes = plant.effects().iter().filter(|effect| effect.starts_with("wipe ")).count();
                assert!(wipes == 1 || killed, "seed {seed}: {:#?}", plant.effects());
                server.kill();
            });
        }
    }
}

#[test]
fn a_namespace_that_is_deleted_takes_no_older_hosts_machine_with_it() {
    for seed in 0..5 {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let server = plant.serve(&site);
            in_a_namespace(&site, &plant, "rack").await;
            // Another host is recorded to have this very machine, and for longer. It rests.
            site.create_annotated("b", json!({ "baremetalhost.metal3.io/paused": "" })).await;
            let older = site.hosts().get("b").await.unwrap();
            let records: Api<MachineRecord> = Api::namespaced(site.observer(), "rack");
            let mut record = serde_json::to_value(records.get("a").await.unwrap()).unwrap();
            record["spec"]["host"] = json!({ "name": "b", "uid": older.metadata.uid });
            record["metadata"] = json!({ "name": "b", "namespace": "default", "creationTimestamp": "2020-01-01T00:00:00Z",
                "uid": "00000000-0000-4000-8000-00000000000b" });
            let since = "2020-01-01T00:00:00Z".parse().unwrap();
            let seal = Site::seal_keys().seal(&serde_json::from_value(record.clone()).unwrap(), since);
            record["spec"]["seal"] = json!(seal.unwrap());
            site.put_as_left(record).await;
            tokio::time::sleep(Duration::from_secs(300)).await;
            let before = plant.effects();
            let namespaces: Api<Namespace> = Api::all(site.observer());
            namespaces.delete("rack", &DeleteParams::default()).await.unwrap();
            for _ in 0..LONGEST {
                if namespaces.get_opt("rack").await.unwrap().is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(namespaces.get_opt("rack").await.unwrap().is_none(), "seed {seed}");
            assert_eq!(plant.effects(), before, "seed {seed}");
            assert!(plant.runs_its_disk() && plant.image().is_some(), "seed {seed}");
            server.kill();
        });
    }
}

/// A tenant's host goes, and its record stays. The machine is another tenant's when the first one declares his host again, of the same name and address.
#[test]
fn a_tenant_of_before_takes_no_machine_by_declaring_his_host_again() {
    for seed in 0..3 {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let _server = plant.serve(&site);
            site.create_host("a").await;
            let before = site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            let gone = async || site.hosts().get_opt("a").await.unwrap().is_none();
            for _ in 0..LONGEST {
                if gone().await {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(gone().await, "seed {seed}");
            tokio::time::sleep(Duration::from_secs(60)).await;

            in_a_namespace(&site, &plant, "rack").await;
            let mut again = BareMetalHost::new("a", before.spec);
            again.spec.online = false;
            site.hosts().create(&PostParams::default(), &again).await.unwrap();
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert!(plant.runs_its_disk(), "seed {seed}");

            let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), "rack");
            hosts.delete("a", &DeleteParams::default()).await.unwrap();
            for _ in 0..LONGEST {
                if hosts.get_opt("a").await.unwrap().is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(hosts.get_opt("a").await.unwrap().is_none(), "seed {seed}");
            assert_eq!(
                plant.image(),
                None,
                "seed {seed}: the host went, and its disk was left: {:#?}",
                plant.effects()
            );
        });
    }
}

/// From now on no MachineRecord can be written; what takes that back is to be deleted.
async fn records_are_refused(site: &Site) -> Api<ValidatingAdmissionPolicyBinding> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(site.observer());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(site.observer());
    let policy = json!({ "metadata": { "name": "no-records" }, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": [{ "apiGroups": ["metamorph.metal3.io"], "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"], "resources": ["machinerecords"] }] },
        "validations": [{ "expression": "false", "message": "no records today" }],
    } });
    let binding = json!({ "metadata": { "name": "no-records" },
        "spec": { "policyName": "no-records", "validationActions": ["Deny"] } });
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    bindings
}

#[test]
fn a_deletion_waits_until_its_record_can_be_written() {
    scenarios::run(42, async |site| {
        let place = Place::with_host(site, State::Provisioned).await;
        let bindings = records_are_refused(&place.site).await;
        place.delete().await;
        place.is_held("no records today").await;
        assert!(place.plant.image().is_some());
        bindings.delete("no-records", &DeleteParams::default()).await.unwrap();
        place.is_gone(LONGEST).await;
        assert_eq!(place.plant.image(), None);
    });
}
