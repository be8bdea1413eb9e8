//! Erasing on request, from the HostOperation to the agent and back: once, whatever is killed, with a report of each disk.

use std::collections::BTreeSet;
use std::time::Duration;

use api::metal3::{ProvisioningState as State, annotation};
use api::metamorph::{HostOperation, MachineRecord, OperationPhase as Phase, OperationType};
use inventory::EraseResult;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use scenarios::plant::Plant;
use scenarios::{Effect, Machines, Site, address, fixture, is};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::requests::{all, an_image, ask, ended, image};

/// Seeds of a run.
const SEEDS: u64 = 12;
const LONGEST: u32 = 4 * 3600;

fn erase(method: &str) -> Value {
    json!({"type": "Erase", "host": {"name": "a"}, "erase": {"method": method}})
}

/// What was done to the machine for erasing, each order once.
fn erased(plant: &Plant) -> Vec<String> {
    plant.effects().into_iter().filter(|effect| effect.starts_with("erase ")).collect()
}

/// The operations of this type that the server has written of its own work.
async fn shown(site: &Site) -> Vec<HostOperation> {
    let all = all(site).list(&ListParams::default()).await.unwrap().items;
    let own = |operation: &HostOperation| operation.metadata.owner_references.is_some();
    all.into_iter().filter(|one| own(one) && one.spec.operation == OperationType::Erase).collect()
}

#[test]
fn an_available_host_is_erased_and_is_as_good_as_before() {
    let machines = Machines::default();
    scenarios::run(51, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        ask(&site, "purge", erase("Purge")).await;
        let status = ended(&site, "purge").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        let disks = status.erasure.unwrap().disks;
        let results: Vec<EraseResult> = disks.iter().map(|disk| disk.result).collect();
        assert_eq!(results, [EraseResult::Purged; 2], "{disks:?}");
        let done = |what| machines.effects(&address("a")).iter().filter(|effect| **effect == what).count();
        assert_eq!((done(Effect::Erase), done(Effect::Deprovision)), (1, 0));
        let host = site.hosts().get("a").await.unwrap();
        assert_eq!(host.state(), State::Available);
        assert_eq!([host.annotation(annotation::ERASE), host.annotation(annotation::REQUEST)], [None, None]);
        // One disk alone.
        let serial = disks[1].serial_number.clone().unwrap();
        let one = json!({"method": "Overwrite", "disks": [{"serialNumber": serial}]});
        ask(&site, "one", json!({"type": "Erase", "host": {"name": "a"}, "erase": one})).await;
        let status = ended(&site, "one").await;
        assert_eq!(status.erasure.unwrap().disks.len(), 1);
        // And then it is used like any other.
        image(&site, an_image()).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        ask(&site, "late", erase("Purge")).await;
        let error = ended(&site, "late").await.error.unwrap();
        assert!(error.cause == "NotNow" && error.message.contains("only one that is available"), "{error:?}");
        assert_eq!(done(Effect::Erase), 2);
    });
}

#[test]
fn the_agent_erases_with_a_password_that_is_recorded_and_the_server_shows_its_work() {
    scenarios::run(52, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        ask(&site, "purge", erase("Purge")).await;
        let status = ended(&site, "purge").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        let [operation] = &shown(&site).await[..] else { panic!("not one operation") };
        let of_its_own = operation.status.clone().unwrap();
        let steps: Vec<&str> = of_its_own.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!((steps, of_its_own.phase), (vec!["boot-agent", "erase-disks"], Phase::Succeeded));
        assert_eq!(of_its_own.erasure, status.erasure);
        let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
        let record = records.list(&ListParams::default()).await.unwrap().items.remove(0);
        let data = record.spec.provisioner.unwrap().data;
        let password = data["drivePassword"].as_str().unwrap();
        assert!(password.starts_with("Metamorph-") && password.len() == 32, "{password}");
        let shown = serde_json::to_string(&[status, of_its_own]).unwrap();
        assert!(!shown.contains(password), "it is for the record alone");
        assert_eq!(erased(&plant).len(), 1, "{:#?}", plant.effects());
    });
}

#[test]
fn whoever_is_killed_whatever_is_lost_disks_are_erased_once() {
    for seed in 0..SEEDS {
        let effects = scenarios::run(seed, async |mut site| {
            site.weather.rough(20, Duration::from_millis(500));
            site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let plant = Plant::new(site.weather.clone());
            let mut server = plant.serve_requests(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            ask(&site, "purge", erase("Purge")).await;
            for _ in 0..site.weather.below(4) {
                sleep(Duration::from_millis(site.weather.below(200_000))).await;
                server.kill();
                if site.weather.below(2) == 0 {
                    site.restart().await;
                }
                server = plant.serve_requests(&site);
            }
            let status = ended(&site, "purge").await;
            assert_eq!(status.phase, Phase::Succeeded, "seed {seed}: {status:?}");
            assert_eq!(status.erasure.unwrap().disks.len(), 1, "seed {seed}");
            site.wait("a", LONGEST, is(State::Available)).await;
            sleep(Duration::from_secs(3600)).await;
            server.kill();
            erased(&plant)
        });
        let different: BTreeSet<&String> = effects.iter().collect();
        assert_eq!((effects.len(), different.len()), (1, 1), "seed {seed}: {effects:#?}");
    }
}

#[test]
fn another_owners_disk_is_not_erased_and_the_host_is_not_left_hanging() {
    scenarios::run(53, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        plant.belongs_to("somebody");
        ask(&site, "purge", erase("Purge")).await;
        let error = ended(&site, "purge").await.error.unwrap();
        assert_eq!(error.cause, "NotErased", "{error:?}");
        assert!(error.message.contains("another owner's") && error.message.contains("overwrite-owner"), "{error:?}");
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(plant.image().is_some(), "it is there");
        // Consent is for the next one, and is used up by it.
        let consent = json!({"metadata": {"annotations": {(annotation::OVERWRITE_OWNER): "somebody"}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(consent)).await.unwrap();
        ask(&site, "again", erase("Purge")).await;
        let status = ended(&site, "again").await;
        assert_eq!((status.phase, plant.image()), (Phase::Succeeded, None), "{status:?}");
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(host.annotation(annotation::OVERWRITE_OWNER), None);
    });
}

#[test]
fn a_request_that_is_deleted_in_the_middle_leaves_a_host_that_comes_back_unwiped() {
    scenarios::run(54, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        ask(&site, "purge", erase("Purge")).await;
        site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        while erased(&plant).is_empty() {
            sleep(Duration::from_secs(1)).await;
        }
        all(&site).delete("purge", &DeleteParams::default()).await.unwrap();
        site.wait("a", LONGEST, |host| is(State::Available)(host) && host.annotation(annotation::ERASE).is_none())
            .await;
        assert_eq!(erased(&plant).len(), 1);
        sleep(Duration::from_secs(3600)).await;
        assert!(!plant.effects().iter().any(|effect| effect.starts_with("wipe ")), "{:#?}", plant.effects());
    });
}
