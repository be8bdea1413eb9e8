//! The native provisioner and the controller, a host's whole life: whatever is killed, lost or late, a disk is written once for a wish and emptied
//! once, an agent in work and a tenant are let alone, and the host arrives.

use std::collections::BTreeSet;
use std::time::Duration;

use api::metal3::{BareMetalHost, OperationalStatus, ProvisioningState as State};
use api::metamorph::{HostOperation, MachineRecord, OperationPhase};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use scenarios::plant::{Plant, Running};
use scenarios::{Site, is};
use serde_json::{Value, json};

/// Seeds of a run: `SCENARIO_SEEDS`, or this many.
const SEEDS: u64 = 30;

fn seeds() -> u64 {
    std::env::var("SCENARIO_SEEDS").ok().map_or(SEEDS, |count| count.parse().unwrap())
}

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn image() -> Value {
    let digest = "00".repeat(32);
    json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": digest, "checksumType": "sha256", "format": "raw"}}})
}

/// A site with its server and machine, and what happens between a wish and its end.
struct Life {
    site: Site,
    plant: Plant,
    server: Option<Running>,
}

impl Life {
    fn new(site: Site) -> Self {
        let plant = Plant::new(site.weather.clone());
        let server = Some(plant.serve(&site));
        Self { site, plant, server }
    }

    /// The server is killed; another begins from what is recorded.
    fn replace(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.server = Some(self.plant.serve(&self.site));
    }

    /// Creates, provisions, deprovisions and deletes the host; `between` is done after each wish.
    async fn live(&mut self, mut between: impl AsyncFnMut(&mut Self)) {
        self.site.create_host("a").await;
        between(self).await;
        self.site.wait("a", LONGEST, is(State::Available)).await;
        patch(&self.site, image()).await;
        between(self).await;
        self.site.wait("a", LONGEST, is(State::Provisioned)).await;
        // The tenant is let alone, whoever looks after the host.
        let (before, writes) = (self.plant.effects(), count(&self.plant.effects(), "write"));
        assert_eq!((self.plant.image().as_deref(), writes), (Some("http://192.0.2.8/i"), 1), "{before:#?}");
        between(self).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(self.plant.runs_its_disk(), "{:#?}", self.plant.effects());
        let since: Vec<String> = self.plant.effects().split_off(before.len());
        assert!(since.iter().all(|effect| effect == "leave"), "done to a tenant: {since:?} after {before:#?}");
        patch(&self.site, json!({"spec": {"image": null}})).await;
        between(self).await;
        self.site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(self.plant.image(), None, "{:#?}", self.plant.effects());
        self.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        between(self).await;
        self.site.gone("a", LONGEST).await;
    }
}

fn count(effects: &[String], what: &str) -> usize {
    effects.iter().filter(|effect| effect.starts_with(&format!("{what} "))).count()
}

/// What must be true of the effects of a whole life.
fn is_sound(seed: u64, effects: &[String]) {
    assert_eq!(count(effects, "write"), 1, "seed {seed}: {effects:#?}");
    // A provisioning that could not begin is cleaned up after; nothing is done twice for one operation.
    let wipes: Vec<&String> = effects.iter().filter(|effect| effect.starts_with("wipe ")).collect();
    let different: BTreeSet<&&String> = wipes.iter().collect();
    assert!(!wipes.is_empty() && wipes.len() == different.len(), "seed {seed}: {effects:#?}");
    assert!(!effects.iter().any(|e| e.ends_with("an agent in work")), "seed {seed}: {effects:#?}");
    let generations: Vec<&String> = effects.iter().filter(|effect| effect.starts_with("agent of")).collect();
    assert!(
        generations.windows(2).all(|pair| pair[0] != pair[1]),
        "a generation for two boots, seed {seed}: {effects:#?}"
    );
}

#[test]
fn a_life_without_trouble() {
    let began = std::time::Instant::now();
    let effects = scenarios::run(1, async |site| {
        let mut life = Life::new(site);
        life.live(async |_| {}).await;
        let operations: Api<api::metamorph::HostOperation> = Api::default_namespaced(life.site.observer());
        assert!(operations.list(&ListParams::default()).await.is_ok());
        life.plant.effects()
    });
    println!("a life: {:.0} ms, {effects:#?}", began.elapsed().as_secs_f64() * 1e3);
    is_sound(1, &effects);
    assert_eq!(count(&effects, "agent"), 2, "the agent stays from inspection to deployment");
}

#[test]
fn whatever_is_killed_lost_or_late_nothing_is_done_twice() {
    let began = std::time::Instant::now();
    for seed in 0..seeds() {
        let effects = scenarios::run(seed, async |site| {
            site.weather.rough(20, Duration::from_millis(500));
            // To every other one the watches tell late what has long been written.
            site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let mut life = Life::new(site);
            life.live(async |life| {
                for _ in 0..life.site.weather.below(3) {
                    tokio::time::sleep(Duration::from_millis(life.site.weather.below(240_000))).await;
                    match life.site.weather.below(3) {
                        0 => life.site.restart().await,
                        1 => life.replace(),
                        _ => {
                            life.site.restart().await;
                            life.replace();
                        }
                    }
                }
            })
            .await;
            life.plant.effects()
        });
        is_sound(seed, &effects);
    }
    println!("{} lives: {:.0} ms each", seeds(), began.elapsed().as_secs_f64() * 1e3 / seeds() as f64);
}

#[test]
fn history_is_deleted_by_anybody_without_harm() {
    let effects = scenarios::run(3, async |site| {
        let mut life = Life::new(site);
        life.live(async |life| {
            let operations: Api<api::metamorph::HostOperation> = Api::default_namespaced(life.site.observer());
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                operations.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
                life.replace();
            }
        })
        .await;
        life.plant.effects()
    });
    is_sound(3, &effects);
}

/// The host as somebody declares it again elsewhere: the same spec, its status in the annotation that upstream has for that.
fn again(host: &BareMetalHost) -> BareMetalHost {
    let status = serde_json::to_string(host.status.as_ref().unwrap()).unwrap();
    let metadata = json!({"name": "a", "annotations": {"baremetalhost.metal3.io/status": status}});
    let object =
        json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": host.spec});
    serde_json::from_value(object).unwrap()
}

/// What `clusterctl move` does: objects with its label are made anew in an empty cluster, and no status comes with them.
async fn moves(life: &mut Life) {
    let client = life.site.observer();
    let host = life.site.hosts().get("a").await.unwrap();
    let secret: Secret = Api::default_namespaced(client.clone()).get("a-bmc").await.unwrap();
    let record: MachineRecord = Api::default_namespaced(client).get("a").await.unwrap();
    if let Some(server) = life.server.take() {
        server.kill();
    }
    life.site.empty().await;
    let client = life.site.observer();
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata: metadata("a-bmc"), data: secret.data, ..Secret::default() };
    Api::<Secret>::default_namespaced(client.clone()).create(&PostParams::default(), &secret).await.unwrap();
    let record = MachineRecord { metadata: metadata("a"), spec: record.spec };
    Api::<MachineRecord>::default_namespaced(client).create(&PostParams::default(), &record).await.unwrap();
    life.site.hosts().create(&PostParams::default(), &again(&host)).await.unwrap();
    life.server = Some(life.plant.serve(&life.site));
}

/// Declares the host with an image, up to `state`.
async fn provisioned(site: Site, state: State) -> Life {
    let life = Life::new(site);
    life.site.create_host("a").await;
    life.site.wait("a", LONGEST, is(State::Available)).await;
    patch(&life.site, image()).await;
    life.site.wait("a", LONGEST, is(state)).await;
    life
}

/// The image is taken back, and that is done, once.
async fn ends(life: &Life) {
    patch(&life.site, json!({"spec": {"image": null}})).await;
    life.site.wait("a", LONGEST, is(State::Available)).await;
    assert_eq!(life.plant.image(), None);
    is_sound(0, &life.plant.effects());
}

#[test]
fn a_host_that_is_detached_deleted_and_declared_again_keeps_its_tenant() {
    scenarios::run(5, async |site| {
        let life = provisioned(site, State::Provisioned).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let before = life.plant.effects();
        patch(&life.site, json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}})).await;
        let detached = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|status| status.operational_status == OperationalStatus::Detached)
        };
        let host = life.site.wait("a", LONGEST, detached).await;
        life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        life.site.gone_but_for_its_secret("a", LONGEST).await;
        life.site.hosts().create(&PostParams::default(), &again(&host)).await.unwrap();
        let ok = |host: &BareMetalHost| {
            let status = host.status.as_ref();
            host.state() == State::Provisioned && status.is_some_and(|s| s.operational_status == OperationalStatus::Ok)
        };
        life.site.wait("a", LONGEST, ok).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.plant.effects(), before, "a tenant was touched");
        ends(&life).await;
    });
}

#[test]
fn a_host_that_is_moved_keeps_its_tenant() {
    scenarios::run(6, async |site| {
        let mut life = provisioned(site, State::Provisioned).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let before = life.plant.effects();
        moves(&mut life).await;
        life.site.wait("a", LONGEST, is(State::Provisioned)).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.plant.effects(), before, "a tenant was touched");
        ends(&life).await;
    });
}

#[test]
fn a_host_that_is_moved_in_the_middle_of_a_write_goes_on() {
    for second in [5, 30, 90, 125] {
        scenarios::run(7, async |site| {
            let mut life = provisioned(site, State::Provisioning).await;
            tokio::time::sleep(Duration::from_secs(second)).await;
            moves(&mut life).await;
            life.site.wait("a", LONGEST, is(State::Provisioned)).await;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            let effects = life.plant.effects();
            assert_eq!((count(&effects, "write"), count(&effects, "agent")), (1, 1), "{second} s: {effects:#?}");
            assert!(life.plant.runs_its_disk(), "{second} s: {effects:#?}");
            ends(&life).await;
        });
    }
}

#[test]
fn a_host_whose_finalizers_are_taken_away_in_the_middle_of_a_write_goes_on_when_it_is_declared_again() {
    scenarios::run(17, async |site| {
        let life = provisioned(site, State::Provisioning).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let host = life.site.hosts().get("a").await.unwrap();
        // The controller leaves a paused host alone: all that it sees is that it goes.
        patch(&life.site, json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}})).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        patch(&life.site, json!({"metadata": {"finalizers": null}})).await;
        life.site.gone("a", LONGEST).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        life.site.hosts().create(&PostParams::default(), &again(&host)).await.unwrap();
        life.site.wait("a", LONGEST, is(State::Provisioned)).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let effects = life.plant.effects();
        assert_eq!((count(&effects, "write"), count(&effects, "agent")), (1, 1), "{effects:#?}");
        assert!(life.plant.runs_its_disk(), "{effects:#?}");
    });
}

#[test]
fn an_inspection_that_is_given_up_is_not_shown_as_under_way() {
    scenarios::run(18, async |site| {
        let life = Life::new(site);
        life.site.create_host("a").await;
        life.site.wait("a", LONGEST, is(State::Inspecting)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        patch(&life.site, json!({"metadata": {"annotations": {"inspect.metal3.io": "disabled"}}})).await;
        life.site.wait("a", LONGEST, is(State::Available)).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let operations: Api<HostOperation> = Api::default_namespaced(life.site.observer());
        let listed = operations.list(&ListParams::default()).await.unwrap().items;
        let phases: Vec<_> = listed.iter().map(|o| o.status.as_ref().unwrap().phase).collect();
        assert_eq!(phases, [OperationPhase::Cancelled]);
    });
}

#[test]
fn a_record_that_is_edited_or_of_a_newer_version_stops_the_host_with_a_word() {
    for (edit, word) in [
        (json!({"spec": {"provisioner": {"version": 99}}}), "later one"),
        (json!({"spec": {"provisioner": {"data": {"number": "many"}}}}), "no record"),
        (json!({"spec": {"provisioner": {"name": "ironic"}}}), "\"ironic\""),
    ] {
        scenarios::run(8, async |site| {
            let mut life = provisioned(site, State::Provisioned).await;
            tokio::time::sleep(Duration::from_secs(300)).await;
            let before = life.plant.effects();
            let records: Api<MachineRecord> = Api::default_namespaced(life.site.observer());
            let good = records.get("a").await.unwrap();
            records.patch("a", &PatchParams::default(), &Patch::Merge(edit.clone())).await.unwrap();
            life.replace();
            patch(&life.site, json!({"spec": {"image": null}})).await;
            let reported =
                |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_message.contains(word));
            life.site.wait("a", LONGEST, reported).await;
            assert_eq!(life.plant.effects(), before, "{word}");
            // Whoever puts it right need do no more.
            let restored = json!({ "spec": { "provisioner": good.spec.provisioner } });
            records.patch("a", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
            life.site.wait("a", LONGEST, is(State::Available)).await;
            is_sound(8, &life.plant.effects());
        });
    }
}

#[test]
fn a_definition_that_drops_the_record_lets_nothing_be_done_and_says_so() {
    scenarios::run(9, async |site| {
        let life = Life::new(site);
        let definitions: Api<CustomResourceDefinition> = Api::all(life.site.observer());
        let name = "machinerecords.metamorph.metal3.io";
        let mut old = definitions.get(name).await.unwrap();
        let schema = old.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().remove("provisioner");
        definitions.replace(name, &PostParams::default(), &old).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        life.site.create_host("a").await;
        let reported = |host: &BareMetalHost| serde_json::to_string(&host.status).unwrap().contains("metamorph crds");
        let host = life.site.wait("a", LONGEST, reported).await;
        let reported = serde_json::to_string(&host.status).unwrap();
        assert!(!reported.contains("at the way to it"), "advice that leads nowhere: {reported}");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.plant.effects(), Vec::<String>::new(), "an effect without a record");
    });
}

#[test]
fn whether_the_definition_keeps_records_is_looked_at_before_there_is_a_host() {
    scenarios::run(9, async |site| {
        let mut life = Life::new(site);
        let at_work = |life: &Life| life.server.as_ref().unwrap().observer.not_at_work();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(at_work(&life), None);
        let definitions: Api<CustomResourceDefinition> = Api::all(life.site.observer());
        let name = "machinerecords.metamorph.metal3.io";
        let good = definitions.get(name).await.unwrap();
        let mut old = good.clone();
        let schema = old.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().remove("provisioner");
        definitions.replace(name, &PostParams::default(), &old).await.unwrap();
        life.replace();
        tokio::time::sleep(Duration::from_secs(30)).await;
        let why = at_work(&life).map(|why| why.to_string()).unwrap_or_default();
        assert!(why.contains("MachineRecords") && why.contains("metamorph crds"), "{why:?}");
        let records: Api<MachineRecord> = Api::default_namespaced(life.site.observer());
        assert!(records.list(&ListParams::default()).await.unwrap().items.is_empty(), "the look has left something");
        // Whoever puts it right need not start the server again.
        let spec = json!({ "spec": { "versions": good.spec.versions } });
        definitions.patch(name, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(at_work(&life), None);
        // One that comes later is seen by the first host that is worked on.
        let mut old = definitions.get(name).await.unwrap();
        let schema = old.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap().remove("provisioner");
        definitions.replace(name, &PostParams::default(), &old).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        life.site.create_host("a").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(at_work(&life).is_some());
    });
}

#[test]
fn events_that_say_something_else_are_other_events() {
    scenarios::run(10, async |site| {
        let life = provisioned(site, State::Provisioned).await;
        patch(&life.site, json!({"spec": {"image": null}})).await;
        life.site.wait("a", LONGEST, is(State::Available)).await;
        patch(&life.site, json!({"spec": {"image": {"url": "http://192.0.2.8/second", "checksum": "00".repeat(32)}}}))
            .await;
        life.site.wait("a", LONGEST, is(State::Provisioned)).await;
        let events: Api<Event> = Api::default_namespaced(life.site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let notes: Vec<String> = all
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("ProvisioningStarted"))
            .filter_map(|event| event.note)
            .collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(notes.iter().filter(|note| note.contains("192.0.2.8/second")).count(), 1, "{notes:?}");
    });
}

#[test]
fn a_host_whose_record_is_deleted_with_it_goes_without_a_wrong_word() {
    for state in [State::Provisioned, State::Provisioning, State::Available] {
        scenarios::run(11, async |site| {
            let life = if state == State::Available {
                let life = Life::new(site);
                life.site.create_host("a").await;
                life.site.wait("a", LONGEST, is(state)).await;
                life
            } else {
                provisioned(site, state).await
            };
            tokio::time::sleep(Duration::from_secs(60)).await;
            let records: Api<MachineRecord> = Api::default_namespaced(life.site.observer());
            life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            records.delete("a", &DeleteParams::default()).await.unwrap();
            let mut reported = BTreeSet::new();
            for _ in 0..LONGEST * 4 {
                let Some(host) = life.site.hosts().get_opt("a").await.unwrap() else { break };
                let status = host.status.unwrap_or_default();
                if !status.error_message.is_empty() {
                    reported.insert(status.error_message);
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            life.site.gone("a", LONGEST).await;
            assert_eq!(reported, BTreeSet::new(), "{state:?}");
            assert_eq!(life.plant.image(), None, "{state:?}: {:#?}", life.plant.effects());
        });
    }
}

#[test]
fn a_record_that_is_another_hosts_is_said_to_be() {
    scenarios::run(12, async |site| {
        let mut life = provisioned(site, State::Provisioned).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let before = life.plant.effects();
        let records: Api<MachineRecord> = Api::default_namespaced(life.site.observer());
        // What a copy of another host's record looks like.
        let evidence = json!({ "systemUUID": "9b7f6f8e-3c1d-4f53-9a30-5d1c5a6b0e77", "serialNumber": "OTHER-1",
            "macAddresses": ["0c:c4:7a:00:00:99"], "disks": ["OTHER-DISK"] });
        let copy =
            json!({ "spec": { "host": { "name": "node-x", "uid": "other" }, "bmc": evidence, "agent": evidence } });
        records.patch("a", &PatchParams::default(), &Patch::Merge(copy)).await.unwrap();
        life.replace();
        patch(&life.site, json!({"spec": {"image": null}})).await;
        let failed = |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_type.is_some());
        let host = life.site.wait("a", LONGEST, failed).await;
        let reported = host.status.unwrap().error_message;
        assert!(reported.contains("node-x") && reported.contains("MachineRecord"), "{reported}");
        assert!(!reported.contains("cables"), "{reported}");
        assert_eq!(life.plant.effects(), before);
    });
}
