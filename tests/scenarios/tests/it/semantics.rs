//! What clients of baremetal-operator find beside a host: its config drive, its HardwareData, its Events.

use std::time::Duration;

use api::metal3::{BareMetalHost, BareMetalSwitch, HardwareData, HostNetworkAttachment, ProvisioningState as State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use provisioner::HealthLevel;
use scenarios::plant::Plant;
use scenarios::{Machines, Site, fixture, is};
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn secret(site: &Site, name: &str, data: Value) {
    let secrets: Api<Secret> = Api::default_namespaced(site.observer());
    let secret = json!({"metadata": {"name": name}, "stringData": data});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

fn image() -> Value {
    json!({"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "format": "raw"})
}

/// What is written beside the image of a host with these fields: meta data, network data, user data.
async fn drive(site: &Site, plant: &Plant, fields: Value) -> (Value, Option<Value>, Option<String>) {
    let mut wish = fields;
    wish["image"] = image();
    patch(site, json!({"spec": wish})).await;
    site.wait("a", LONGEST, is(State::Provisioned)).await;
    let drive = plant.ordered().unwrap().config_drive.unwrap();
    let text = |coded: &String| String::from_utf8(STANDARD.decode(coded).unwrap()).unwrap();
    let document = |coded: &String| serde_json::from_str::<Value>(&text(coded)).unwrap();
    let found =
        (document(&drive.meta_data), drive.network_data.as_ref().map(document), drive.user_data.as_ref().map(text));
    patch(site, json!({"spec": {"image": null, "userData": null, "networkData": null, "metaData": null}})).await;
    site.wait("a", LONGEST, is(State::Available)).await;
    found
}

#[test]
fn a_config_drive_has_what_upstream_puts_into_it() {
    scenarios::run(101, async |site| {
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        secret(&site, "user", json!({"userData": "#cloud-config\n", "value": "not this"})).await;
        secret(&site, "value", json!({"value": "a: 1"})).await;
        secret(&site, "empty", json!({"userData": "", "networkData": "", "metaData": ""})).await;
        secret(&site, "meta", json!({"metaData": "name: other\nrack: 7"})).await;
        secret(&site, "network", json!({"networkData": "{\"links\": []}"})).await;
        site.create_host("a").await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        let of = |name: &str| json!({"name": name});
        let (meta, network, user) = drive(&site, &plant, json!({})).await;
        let defaults = json!({"uuid": host.uid(), "metal3-namespace": "default", "metal3-name": "a",
            "local-hostname": "a", "local_hostname": "a", "name": "a"});
        assert_eq!((meta, network, user), (defaults.clone(), None, None));
        let named = json!({"userData": of("user"), "networkData": of("network"), "metaData": of("meta")});
        let (meta, network, user) = drive(&site, &plant, named).await;
        let mut overridden = defaults.clone();
        (overridden["name"], overridden["rack"]) = (json!("other"), json!(7));
        assert_eq!((meta, network), (overridden, Some(json!({"links": []}))));
        assert_eq!(user.as_deref(), Some("#cloud-config\n"));
        let named = json!({"userData": of("value"), "networkData": of("value"), "metaData": of("value")});
        let (meta, network, user) = drive(&site, &plant, named).await;
        assert_eq!((&meta["a"], network, user.as_deref()), (&json!(1), Some(json!({"a": 1})), Some("a: 1")));
        // What is there and empty holds nothing up.
        let named = json!({"userData": of("empty"), "networkData": of("empty"), "metaData": of("empty")});
        assert_eq!(drive(&site, &plant, named).await, (defaults.clone(), None, None));
        let agents = json!({"preprovisioningNetworkDataName": "network"});
        assert_eq!(drive(&site, &plant, agents).await.1, Some(json!({"links": []})));
        let both = json!({"preprovisioningNetworkDataName": "network", "networkData": of("value")});
        assert_eq!(drive(&site, &plant, both).await.1, Some(json!({"a": 1})));
        server.kill();
    });
}

#[test]
fn hardware_data_is_the_hosts_by_name_owner_and_finalizer_and_replaced_by_the_next_inspection() {
    scenarios::run(102, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        site.create_host("a").await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        let all: Api<HardwareData> = Api::default_namespaced(site.observer());
        let data = all.get("a").await.unwrap();
        let hardware = host.status.as_ref().unwrap().hardware.clone();
        assert!(hardware.is_some() && data.spec.hardware == hardware);
        assert_eq!(data.finalizers(), ["baremetalhost.metal3.io/hardwareData".to_owned()]);
        let [owner] = data.owner_references() else { panic!("{:?}", data.owner_references()) };
        assert_eq!((owner.uid.as_str(), owner.controller), (host.uid().unwrap().as_str(), Some(true)));
        let old = json!({"spec": {"hardware": {"ramMebibytes": 1}}});
        all.patch("a", &PatchParams::default(), &Patch::Merge(old)).await.unwrap();
        patch(&site, json!({"metadata": {"annotations": {"inspect.metal3.io": ""}}})).await;
        site.wait("a", LONGEST, |host| host.state() == State::Available && host.annotations().is_empty()).await;
        assert_eq!(all.get("a").await.unwrap().spec.hardware, hardware);
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", LONGEST).await;
        let left = all.get_opt("a").await.unwrap().map(|data| data.metadata.finalizers.unwrap_or_default());
        assert!(left.is_none_or(|finalizers| finalizers.is_empty()));
    });
}

#[test]
fn events_name_the_consumer_of_their_host_and_upstreams_reasons() {
    scenarios::run(103, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        let consumer = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
            "name": "m", "namespace": "default"});
        site.create_with("a", json!({}), json!({"consumerRef": consumer, "image": image()})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        patch(&site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
        site.wait("a", LONGEST, |host| host.annotations().is_empty()).await;
        patch(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        for reason in [
            "Registered",
            "BMCAccessValidated",
            "ProfileSet",
            "InspectionStarted",
            "InspectionComplete",
            "ProvisioningStarted",
            "ProvisioningComplete",
            "PowerOff",
            "PowerOn",
            "DeprovisioningStarted",
            "DeprovisioningComplete",
        ] {
            let found = all.iter().find(|event| event.reason.as_deref() == Some(reason));
            let found = found.unwrap_or_else(|| panic!("{reason} is not there"));
            let about = found.regarding.as_ref().unwrap();
            assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("BareMetalHost"), Some("a")));
            let related = found.related.as_ref().unwrap_or_else(|| panic!("{reason} is related to nothing"));
            assert_eq!((related.kind.as_deref(), related.name.as_deref()), (Some("Metal3Machine"), Some("m")));
        }
    });
}

#[test]
fn a_switch_and_an_attachment_are_told_that_nobody_sets_them_up() {
    scenarios::run(104, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        let switch = json!({"metadata": {"name": "tor"}, "spec": {"address": "192.0.2.9", "macAddress": "00:00:00:00:00:09",
            "deviceType": "netmiko_cisco_ios", "credentials": {"name": "tor"}}});
        let switches: Api<BareMetalSwitch> = Api::default_namespaced(site.observer());
        switches.create(&PostParams::default(), &serde_json::from_value(switch).unwrap()).await.unwrap();
        let network = json!({"metadata": {"name": "net"}, "spec": {"mode": "access", "nativeVLAN": 7}});
        let networks: Api<HostNetworkAttachment> = Api::default_namespaced(site.observer());
        networks.create(&PostParams::default(), &serde_json::from_value(network).unwrap()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let conditions = switches.get("tor").await.unwrap().status.unwrap().conditions;
        let [valid] = &conditions[..] else { panic!("{conditions:?}") };
        assert_eq!(
            (valid.type_.as_str(), valid.status.as_str(), valid.reason.as_str()),
            ("Valid", "False", "SwitchesNotSupported")
        );
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told = all.iter().filter(|event| event.reason.as_deref() == Some("SwitchesNotSupported"));
        let mut kinds: Vec<_> = told.filter_map(|event| event.regarding.as_ref()?.kind.clone()).collect();
        kinds.sort();
        assert_eq!(kinds, ["BareMetalSwitch", "HostNetworkAttachment"]);
    });
}

#[test]
fn the_machines_health_is_seen_with_its_power() {
    scenarios::run(105, async |site| {
        let plant = Plant::new(site.weather.clone());
        plant.fares(Some(HealthLevel::OK));
        let server = plant.serve(&site);
        site.create_host("a").await;
        let says = |reason: &'static str| {
            move |host: &BareMetalHost| {
                let conditions = host.status.iter().flat_map(|status| &status.conditions);
                let mut healthy = conditions.filter(|condition| condition.type_ == "Healthy");
                healthy.any(|condition| condition.reason == reason)
            }
        };
        site.wait("a", LONGEST, says("Unknown")).await;
        site.wait("a", LONGEST, says("Healthy")).await;
        plant.fares(Some(HealthLevel::Critical));
        site.wait("a", 600, says("CriticalError")).await;
        // Another server has not asked yet, and leaves it.
        server.kill();
        let server = plant.serve(&site);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(says("CriticalError")(&site.hosts().get("a").await.unwrap()));
        // It has nothing to say of it any more: it may be another machine's.
        plant.fares(None);
        site.wait("a", 600, says("Unknown")).await;
        server.kill();
    });
}
