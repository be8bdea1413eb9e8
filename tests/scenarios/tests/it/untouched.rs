//! A provisioning that ends before anything is written: nobody's disks are wiped for it, and the host goes on with what is corrected.

use std::time::Duration;

use api::metal3::{BareMetalHost, ErrorType, ProvisioningState as State};
use api::metamorph::MachineRecord;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use scenarios::plant::{Plant, Running};
use scenarios::{Effect, Machines, Site, address, fixture, is};
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

fn failed(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| {
        let status = host.status.as_ref();
        host.state() == State::Provisioning
            && status.is_some_and(|status| {
                status.error_type == Some(ErrorType::Provisioning) && status.error_message.contains(words)
            })
    }
}

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn wish(site: &Site, url: &str) {
    let digest = "00".repeat(32);
    let image = json!({"url": url, "checksum": digest, "checksumType": "sha256", "format": "raw"});
    patch(site, json!({"spec": {"image": image}})).await;
}

fn count(plant: &Plant, what: &str) -> usize {
    plant.effects().iter().filter(|effect| effect.starts_with(&format!("{what} "))).count()
}

/// What the host said when it was deprovisioned.
async fn said(site: &Site) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let complete = |event: &Event| event.reason.as_deref() == Some("DeprovisioningComplete");
    all.into_iter().filter(complete).filter_map(|event| event.note).collect()
}

/// A host that is available, on a machine that its agent has inspected.
async fn available(site: &Site) -> (Plant, Running) {
    let plant = Plant::new(site.weather.clone());
    let server = plant.serve(site);
    site.create_host("a").await;
    site.wait("a", LONGEST, is(State::Available)).await;
    (plant, server)
}

#[test]
fn a_wrong_url_wipes_nothing_and_its_correction_is_written_at_once() {
    for dies in [false, true] {
        scenarios::run(41, async |site| {
            let (plant, mut server) = available(&site).await;
            plant.miss_images(1000);
            wish(&site, "http://192.0.2.8/tpyo").await;
            let thrice = |host: &BareMetalHost| {
                failed("404")(host) && host.status.as_ref().is_some_and(|status| status.provisioning_fail_count == 3)
            };
            site.wait("a", 24 * LONGEST, thrice).await;
            if dies {
                server.kill();
                server = plant.serve(&site);
            }
            plant.miss_images(0);
            wish(&site, "http://192.0.2.8/typo").await;
            site.wait("a", LONGEST, is(State::Provisioned)).await;
            assert_eq!(plant.image().as_deref(), Some("http://192.0.2.8/typo"));
            // A server that has not begun the attempt itself takes nobody's word for what it has written.
            let wipes = usize::from(dies);
            let effects = plant.effects();
            assert_eq!((count(&plant, "wipe"), count(&plant, "agent")), (wipes, 1), "{effects:#?}");
            let said = said(&site).await;
            assert!(dies || !said.is_empty() && said.iter().all(|note| note.contains("left as they are")), "{said:?}");
            // What has been written is wiped as ever.
            patch(&site, json!({"spec": {"image": null}})).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            assert_eq!((plant.image(), count(&plant, "wipe")), (None, wipes + 1), "{:#?}", plant.effects());
            server.kill();
        });
    }
}

#[test]
fn another_owners_disk_stays_as_it_is_when_its_host_is_emptied_or_deleted() {
    for deletes in [false, true] {
        scenarios::run(42, async |site| {
            let (plant, _server) = available(&site).await;
            plant.belongs_to("them");
            wish(&site, "http://192.0.2.8/i").await;
            site.wait("a", LONGEST, failed("another owner")).await;
            if deletes {
                site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
                site.gone("a", LONGEST).await;
            } else {
                patch(&site, json!({"spec": {"image": null}})).await;
                site.wait("a", LONGEST, is(State::Available)).await;
            }
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!(
                (plant.image().as_deref(), count(&plant, "wipe")),
                (Some("theirs"), 0),
                "{:#?}",
                plant.effects()
            );
        });
    }
}

#[test]
fn an_image_that_is_taken_back_before_it_is_written_wipes_nothing_and_afterwards_all() {
    for (seconds, writes) in [(0, 0), (2, 0), (50, 0), (0, 1), (100, 1)] {
        scenarios::run(43, async |site| {
            let (plant, _server) = available(&site).await;
            plant.belongs_to("them");
            // The agent has gone: the way to the write begins with a boot.
            patch(&site, json!({"spec": {"online": false}})).await;
            tokio::time::sleep(Duration::from_secs(600)).await;
            let consent = json!({"metadata": {"annotations": {"metamorph.metal3.io/overwrite-owner": "them"}}});
            patch(&site, consent).await;
            wish(&site, "http://192.0.2.8/i").await;
            patch(&site, json!({"spec": {"online": true}})).await;
            if writes == 0 {
                site.wait("a", LONGEST, is(State::Provisioning)).await;
            }
            while count(&plant, "write") < writes {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            assert_eq!(count(&plant, "write"), writes);
            patch(&site, json!({"spec": {"image": null}})).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(count(&plant, "wipe"), writes, "{seconds} s: {:#?}", plant.effects());
            assert_eq!(plant.image().is_some(), writes == 0, "{seconds} s: {:#?}", plant.effects());
        });
    }
}

#[test]
fn a_host_whose_record_is_lost_is_wiped() {
    scenarios::run(44, async |site| {
        let (plant, server) = available(&site).await;
        plant.miss_images(1000);
        wish(&site, "http://192.0.2.8/i").await;
        site.wait("a", LONGEST, failed("404")).await;
        server.kill();
        let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
        records.delete("a", &DeleteParams::default()).await.unwrap();
        let _server = plant.serve(&site);
        patch(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(count(&plant, "wipe"), 1, "{:#?}", plant.effects());
    });
}

/// So it is with a provisioner that has its machines in memory.
#[test]
fn the_fixture_leaves_alone_what_it_has_not_written() {
    scenarios::run(45, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        machines.put(&address("a"), Some(("theirs".to_owned(), "them".to_owned())));
        wish(&site, "http://192.0.2.8/i").await;
        site.wait("a", LONGEST, failed("them")).await;
        patch(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(
            !machines.effects(&address("a")).contains(&Effect::Deprovision),
            "{:?}",
            machines.effects(&address("a"))
        );
    });
}
