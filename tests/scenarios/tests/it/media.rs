//! DataImages: attached and detached across reboots of provisioned hosts, by the native provisioner and on the fixture.

use std::time::Duration;

use api::metal3::{BareMetalHost, DataImage, ProvisioningState as State};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use scenarios::plant::Plant;
use scenarios::{Machines, Site, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

const URL: &str = "https://media.example/tools.iso";

fn images(site: &Site) -> Api<DataImage> {
    Api::default_namespaced(site.observer())
}

async fn change(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn provisioned(site: &Site) {
    site.create_host("a").await;
    let image = json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"}}});
    change(site, image).await;
    let is = |host: &BareMetalHost| host.state() == State::Provisioned && host.status.as_ref().unwrap().powered_on;
    site.wait("a", 7200, is).await;
}

async fn image(site: &Site, url: &str) {
    let object = json!({"metadata": {"name": "a"}, "spec": {"url": url}});
    images(site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn reboot(site: &Site) {
    change(site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
    let at_rest = |host: &BareMetalHost| {
        host.status.as_ref().unwrap().powered_on && !host.annotations().contains_key("reboot.metal3.io")
    };
    site.wait("a", 7200, at_rest).await;
}

/// The DataImage as soon as it is as wanted; `None` is one that is gone.
async fn wait(site: &Site, wanted: impl Fn(Option<&DataImage>) -> bool) -> Option<DataImage> {
    for _ in 0..3600 {
        let object = images(site).get_opt("a").await.unwrap();
        if wanted(object.as_ref()) {
            return object;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("it is not as wanted: {:?}", images(site).get_opt("a").await.unwrap());
}

fn attached(image: &DataImage) -> &str {
    let status = image.status.as_ref();
    status.and_then(|status| status.attached_image.as_ref()).map(|image| image.url.as_str()).unwrap_or_default()
}

fn error(image: &DataImage) -> &str {
    let status = image.status.as_ref();
    status.and_then(|status| status.error.as_ref()).map(|error| error.message.as_str()).unwrap_or_default()
}

async fn is_attached(site: &Site, url: &str) {
    wait(site, |image| image.is_some_and(|image| attached(image) == url && error(image).is_empty())).await;
}

/// A DataImage's whole life on a provisioned host; `there` is what is in the drive.
async fn lives(site: &Site, there: impl Fn() -> Option<String>) {
    provisioned(site).await;
    image(site, URL).await;
    let held = wait(site, |image| image.is_some_and(|image| !image.finalizers().is_empty())).await.unwrap();
    let owners = held.owner_references();
    assert_eq!((held.finalizers(), owners.len()), (["dataimage.metal3.io".to_owned()].as_slice(), 1));
    assert!(owners[0].kind == "BareMetalHost" && owners[0].name == "a" && owners[0].controller.is_none());
    sleep(Duration::from_secs(1200)).await;
    assert_eq!(there(), None, "nothing is done without a reboot");
    reboot(site).await;
    is_attached(site, URL).await;
    assert_eq!(there().as_deref(), Some(URL));
    let other = "https://media.example/other.iso";
    let patch = Patch::Merge(json!({"spec": {"url": other}}));
    images(site).patch("a", &PatchParams::default(), &patch).await.unwrap();
    reboot(site).await;
    is_attached(site, other).await;
    assert_eq!(there().as_deref(), Some(other));
    images(site).delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(images(site).get_opt("a").await.unwrap().is_some(), "it is in until the next reboot");
    reboot(site).await;
    wait(site, |image| image.is_none()).await;
    assert_eq!(there(), None);
}

#[test]
fn a_data_image_comes_changes_and_goes_at_reboots() {
    scenarios::run(81, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        lives(&site, || plant.data_medium()).await;
        let media = |effect: &String| effect.starts_with("data medium");
        let done: Vec<String> = plant.effects().into_iter().filter(media).collect();
        let (put, taken) = ("data medium in under nothing", "data medium out under nothing");
        assert_eq!(done, [put, taken, put, taken], "only while the machine is off");
    });
    scenarios::run(82, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        lives(&site, || machines.medium(&scenarios::address("a"))).await;
    });
}

#[test]
fn whatever_is_killed_or_lost_a_data_image_is_attached_and_taken_out_in_the_end() {
    for seed in 0..8 {
        scenarios::run(seed, async |mut site| {
            let plant = Plant::new(site.weather.clone());
            let mut server = plant.serve(&site);
            provisioned(&site).await;
            site.weather.rough(20, Duration::from_millis(500));
            image(&site, URL).await;
            for gone in [false, true] {
                if gone {
                    images(&site).delete("a", &DeleteParams::default()).await.unwrap();
                }
                change(&site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
                for _ in 0..4 {
                    sleep(Duration::from_millis(site.weather.below(40_000))).await;
                    server.kill();
                    if site.weather.below(3) == 0 {
                        site.restart().await;
                    }
                    server = plant.serve(&site);
                }
                if gone {
                    wait(&site, |image| image.is_none()).await;
                    assert_eq!(plant.data_medium(), None);
                } else {
                    is_attached(&site, URL).await;
                    assert_eq!(plant.data_medium().as_deref(), Some(URL));
                }
                let rests =
                    |host: &BareMetalHost| host.status.as_ref().unwrap().powered_on && host.annotations().is_empty();
                site.wait("a", 7200, rests).await;
            }
            assert!(
                plant.runs_its_disk() || {
                    sleep(Duration::from_secs(120)).await;
                    plant.runs_its_disk()
                }
            );
        });
    }
}

#[test]
fn a_data_image_that_the_bmc_has_lost_is_told_and_attached_at_the_next_reboot() {
    scenarios::run(83, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        provisioned(&site).await;
        image(&site, URL).await;
        reboot(&site).await;
        is_attached(&site, URL).await;
        plant.bmc_restarts();
        let told = wait(&site, |image| image.is_some_and(|image| !error(image).is_empty())).await.unwrap();
        assert!(error(&told).starts_with("It is not attached any more") && attached(&told).is_empty(), "{told:?}");
        // Told once: nothing is written while nothing changes.
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(images(&site).get("a").await.unwrap().resource_version(), told.resource_version());
        reboot(&site).await;
        is_attached(&site, URL).await;
    });
}

#[test]
fn a_data_image_goes_with_the_system_and_comes_with_the_next() {
    scenarios::run(84, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        provisioned(&site).await;
        image(&site, URL).await;
        reboot(&site).await;
        is_attached(&site, URL).await;
        change(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", 7200, |host| host.state() == State::Available).await;
        is_attached(&site, "").await;
        assert_eq!(plant.data_medium(), None);
        // A host that is deleted leaves nothing in its drives.
        let image = json!({"spec": {"image": {"url": "http://192.0.2.8/j", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"}}});
        change(&site, image).await;
        site.wait("a", 7200, |host| host.state() == State::Provisioned && host.status.as_ref().unwrap().powered_on)
            .await;
        reboot(&site).await;
        is_attached(&site, URL).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 7200).await;
        wait(&site, |image| image.is_none()).await;
        assert_eq!(plant.data_medium(), None);
    });
}

#[test]
fn a_data_image_without_a_host_is_not_held() {
    scenarios::run(85, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        // As another server left it.
        let object =
            json!({"metadata": {"name": "nobody", "finalizers": ["dataimage.metal3.io"]}, "spec": {"url": URL}});
        images(&site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        images(&site).delete("nobody", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(images(&site).get_opt("nobody").await.unwrap().is_none());
        // One of an earlier host of the name, restored from a backup: the host that is there does not own it.
        site.create_host("a").await;
        let earlier =
            json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "a", "uid": "of-long-ago"});
        let object = json!({"metadata": {"name": "a", "finalizers": ["dataimage.metal3.io"], "ownerReferences": [earlier]}, "spec": {"url": URL}});
        images(&site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let _ = images(&site).delete("a", &DeleteParams::default()).await;
        sleep(Duration::from_secs(60)).await;
        assert!(images(&site).get_opt("a").await.unwrap().is_none());
    });
}
