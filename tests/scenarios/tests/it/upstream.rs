//! What each scenario of baremetal-operator's end-to-end suite is about, that it runs with the fixture on a bare control plane: a test here for each, which
//! needs none of upstream's programs. `tests/conformance/upstream/scenarios.yaml` says which is whose; `make test-bmo` runs upstream's own.

use std::time::Duration;

use api::metal3::{BareMetalHost, DataImage, HardwareData, OperationalStatus, ProvisioningState as State, finalizer};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use scenarios::{Effect, Machines, Site, address, fixture, is};
use serde_json::{Value, json};

/// Longest way to a state, in seconds.
const LONGEST: u32 = 600;
const REBOOT: &str = "reboot.metal3.io";
const POWER_OFF: &str = "reboot.metal3.io/poweroff";
const DETACHED: &str = "baremetalhost.metal3.io/detached";
const STATUS: &str = "baremetalhost.metal3.io/status";
const DETAILS: &str = "inspect.metal3.io/hardwaredetails";

fn run<T>(scenario: impl AsyncFnOnce(Site, Machines) -> T) -> T {
    scenarios::run(71, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        scenario(site, machines).await
    })
}

fn is_on(on: bool) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.powered_on == on)
}

fn is_detached(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| status.operational_status == OperationalStatus::Detached)
}

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn annotate(site: &Site, key: &str, value: Value) {
    patch(site, json!({"metadata": {"annotations": {key: value}}})).await;
}

fn image() -> Value {
    json!({"url": "http://192.0.2.8/cirros.img", "checksum": "00".repeat(16), "checksumType": "md5"})
}

async fn delete(site: &Site) {
    site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
}

fn images(site: &Site) -> Api<DataImage> {
    Api::default_namespaced(site.observer())
}

async fn create_image(site: &Site) {
    let image = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "DataImage", "metadata": {"name": "a"}, "spec": {"url": "http://192.0.2.8/data.iso"}});
    images(site).create(&PostParams::default(), &serde_json::from_value(image).unwrap()).await.unwrap();
}

/// Whether the DataImage comes to be held (`Some`), or to be gone (`None`), within ten minutes.
async fn image_comes_to(site: &Site, held: Option<bool>) -> bool {
    for _ in 0..600 {
        let found = images(site).get_opt("a").await.unwrap();
        let holds = |image: DataImage| image.metadata.finalizers.iter().flatten().any(|f| f == finalizer::DATA_IMAGE);
        if found.map(holds) == held {
            return true;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    false
}

async fn without_inspection(site: &Site) {
    site.create_with("a", json!({}), json!({"inspectionMode": "disabled", "automatedCleaningMode": "disabled"})).await;
}

#[test]
fn an_available_host_is_rebooted_and_kept_off_by_annotations() {
    run(async |site, machines| {
        site.create_host("a").await;
        site.wait("a", LONGEST, |host| is(State::Available)(host) && is_on(true)(host)).await;
        // It may be off for no time at all.
        annotate(&site, REBOOT, json!("{\"force\": true}")).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(is_on(true)(&site.hosts().get("a").await.unwrap()));
        annotate(&site, POWER_OFF, json!("{\"force\": true}")).await;
        site.wait("a", LONGEST, is_on(false)).await;
        annotate(&site, POWER_OFF, Value::Null).await;
        site.wait("a", LONGEST, is_on(true)).await;
        let turned: Vec<Effect> =
            machines.effects(&address("a")).into_iter().filter(|e| *e != Effect::Inspect).collect();
        assert_eq!(turned, [Effect::On, Effect::Off, Effect::On, Effect::Off, Effect::On]);
    });
}

#[test]
fn a_host_without_a_bmc_is_unmanaged() {
    run(async |site, _| {
        site.create_with("a", json!({}), json!({"bmc": null, "online": true})).await;
        site.wait("a", LONGEST, is(State::Unmanaged)).await;
    });
}

#[test]
fn a_host_whose_secret_is_missing_fails_to_register() {
    run(async |site, _| {
        site.create_with("a", json!({}), json!({"bmc": {"address": address("a"), "credentialsName": "missing"}})).await;
        let failed = |host: &BareMetalHost| {
            is(State::Registering)(host)
                && host.status.as_ref().is_some_and(|status| status.operational_status == OperationalStatus::Error)
        };
        site.wait("a", LONGEST, failed).await;
    });
}

fn inspected(mode: &Value) {
    let data: HardwareData = run(async |site, _| {
        site.create_with("a", json!({}), json!({"inspectionMode": mode.clone()})).await;
        site.wait("a", LONGEST, is(State::Inspecting)).await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        assert!(host.status.unwrap().hardware.is_some());
        Api::default_namespaced(site.observer()).get("a").await.unwrap()
    });
    let hardware = data.spec.hardware.unwrap();
    assert!(!hardware.nics.is_empty() && !hardware.storage.is_empty(), "{hardware:?}");
}

#[test]
fn a_new_host_is_inspected() {
    inspected(&Value::Null);
}

#[test]
fn a_new_host_is_inspected_by_its_bmc_alone() {
    inspected(&json!("fast"));
}

/// Hardware details as somebody else has found them.
fn details() -> Value {
    json!({
        "cpu": {"arch": "x86_64", "count": 2, "clockMegahertz": 2100.0, "model": "Intel"},
        "hostname": "wrong",
        "nics": [{"name": "eth0", "mac": "02:00:00:00:00:01", "ip": "192.0.2.10"}],
        "ramMebibytes": 4096,
        "storage": [{"name": "/dev/sda", "sizeBytes": 10_737_418_240_u64}],
    })
}

#[test]
fn an_annotation_has_an_available_host_inspected_anew() {
    run(async |site, _| {
        let annotations = json!({DETAILS: details().to_string(), "inspect.metal3.io": "disabled"});
        site.create_annotated("a", annotations).await;
        let hostname = |host: &BareMetalHost| host.status.as_ref()?.hardware.as_ref()?.hostname.clone();
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(hostname(&host).as_deref(), Some("wrong"));
        annotate(&site, "inspect.metal3.io", json!("")).await;
        site.wait("a", LONGEST, is(State::Inspecting)).await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        assert_ne!(hostname(&host).as_deref(), Some("wrong"));
        assert!(!host.metadata.annotations.unwrap_or_default().contains_key("inspect.metal3.io"));
    });
}

fn was_not_inspected(host: &BareMetalHost) {
    let status = host.status.clone().unwrap();
    assert!(status.operation_history.inspect.start.is_none());
    let hardware = serde_json::to_value(status.hardware.unwrap()).unwrap();
    assert_eq!((&hardware["hostname"], &hardware["ramMebibytes"]), (&json!("wrong"), &json!(4096)));
}

#[test]
fn hardware_details_of_an_annotation_take_the_place_of_an_inspection() {
    run(async |site, machines| {
        let annotations = json!({DETAILS: details().to_string()});
        site.create_with("a", annotations, json!({"inspectionMode": "disabled"})).await;
        was_not_inspected(&site.wait("a", LONGEST, is(State::Available)).await);
        assert!(!machines.effects(&address("a")).contains(&Effect::Inspect));
    });
}

#[test]
fn hardware_data_that_is_there_takes_the_place_of_an_inspection() {
    run(async |site, machines| {
        let data = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": {"name": "a"}, "spec": {"hardware": details()}});
        let all: Api<HardwareData> = Api::default_namespaced(site.observer());
        all.create(&PostParams::default(), &serde_json::from_value(data).unwrap()).await.unwrap();
        site.create_with("a", json!({}), json!({"inspectionMode": "disabled"})).await;
        was_not_inspected(&site.wait("a", LONGEST, is(State::Available)).await);
        assert!(!machines.effects(&address("a")).contains(&Effect::Inspect));
    });
}

#[test]
fn a_host_that_is_detached_deleted_and_declared_with_its_status_is_provisioned_as_before() {
    run(async |site, machines| {
        without_inspection(&site).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, json!({"spec": {"image": image()}})).await;
        site.wait("a", LONGEST, is(State::Provisioning)).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        annotate(&site, DETACHED, json!("")).await;
        let status = site.wait("a", LONGEST, is_detached).await.status;
        let before = machines.effects(&address("a"));
        delete(&site).await;
        site.gone("a", LONGEST).await;
        // The Secret goes with its only host.
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(secrets.get_opt("a-bmc").await.unwrap().is_none());
        let annotations = json!({STATUS: serde_json::to_string(&status).unwrap()});
        site.create_with("a", annotations, json!({"inspectionMode": "disabled", "image": image()})).await;
        let goes_on = |host: &BareMetalHost| {
            let is_ok = host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Ok);
            is(State::Provisioned)(host) && is_ok
        };
        let host = site.wait("a", LONGEST, |host| seen_in(host, goes_on)).await;
        assert!(!host.metadata.annotations.unwrap_or_default().contains_key(STATUS));
        assert_eq!(machines.effects(&address("a")), before);
        patch(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        site.wait("a", LONGEST, is(State::Available)).await;
    });
}

/// As wanted, and in none of the states of a machine that is worked on.
fn seen_in(host: &BareMetalHost, wanted: impl Fn(&BareMetalHost) -> bool) -> bool {
    let worked_on = [State::Inspecting, State::Preparing, State::Available, State::Provisioning, State::Deprovisioning];
    assert!(!worked_on.contains(&host.state()), "{:?}", host.state());
    wanted(host)
}

/// One scenario's machine is the next one's.
#[test]
fn a_machine_that_was_given_back_unwiped_is_the_next_hosts() {
    run(async |site, machines| {
        without_inspection(&site).await;
        patch(&site, json!({"spec": {"image": image()}})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        patch(&site, json!({"spec": {"image": null}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        delete(&site).await;
        site.gone("a", LONGEST).await;
        assert!(machines.system(&address("a")).is_some());
        externally(&site, json!({})).await;
        patch(&site, json!({"spec": {"externallyProvisioned": false}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(machines.system(&address("a")).is_none());
    });
}

async fn externally(site: &Site, besides: Value) {
    let mut spec = json!({"externallyProvisioned": true});
    spec.as_object_mut().unwrap().extend(besides.as_object().unwrap().clone());
    site.create_with("a", json!({}), spec).await;
    let host = site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
    let history = host.status.unwrap().operation_history;
    assert!(history.inspect.start.is_none() && history.provision.start.is_none());
}

#[test]
fn a_host_that_is_externally_provisioned_no_more_is_emptied() {
    run(async |site, machines| {
        externally(&site, json!({})).await;
        patch(&site, json!({"spec": {"externallyProvisioned": false}})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(machines.effects(&address("a")).contains(&Effect::Deprovision));
    });
}

#[test]
fn a_host_that_is_externally_provisioned_no_more_keeps_the_image_that_it_names() {
    run(async |site, machines| {
        externally(&site, json!({"image": image()})).await;
        patch(&site, json!({"spec": {"externallyProvisioned": false}})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let host = site.hosts().get("a").await.unwrap();
        let history = &host.status.as_ref().unwrap().operation_history;
        assert!(is(State::Provisioned)(&host) && history.provision.start.is_some());
        let effects = machines.effects(&address("a"));
        assert!(!effects.contains(&Effect::Provision) && !effects.contains(&Effect::Deprovision), "{effects:?}");
    });
}

#[test]
fn an_available_host_can_come_to_be_externally_provisioned() {
    run(async |site, machines| {
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Inspecting)).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, json!({"spec": {"externallyProvisioned": true}})).await;
        site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
        assert!(!machines.effects(&address("a")).contains(&Effect::Provision));
    });
}

#[test]
fn a_data_image_is_its_hosts_from_the_beginning() {
    run(async |site, _| {
        without_inspection(&site).await;
        create_image(&site).await;
        assert!(image_comes_to(&site, Some(true)).await);
    });
}

#[test]
fn a_data_image_without_a_host_goes_at_once() {
    run(async |site, _| {
        let image = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "DataImage", "spec": {"url": "http://192.0.2.8/data.iso"},
            "metadata": {"name": "a", "finalizers": [finalizer::DATA_IMAGE]}});
        images(&site).create(&PostParams::default(), &serde_json::from_value(image).unwrap()).await.unwrap();
        assert!(image_comes_to(&site, Some(false)).await);
        images(&site).delete("a", &DeleteParams::default()).await.unwrap();
        assert!(image_comes_to(&site, None).await);
    });
}

#[test]
fn a_data_image_of_a_detached_host_goes_at_once() {
    run(async |site, _| {
        without_inspection(&site).await;
        create_image(&site).await;
        assert!(image_comes_to(&site, Some(true)).await);
        annotate(&site, DETACHED, json!("")).await;
        site.wait("a", LONGEST, is_detached).await;
        images(&site).delete("a", &DeleteParams::default()).await.unwrap();
        assert!(image_comes_to(&site, None).await);
    });
}

#[test]
fn a_data_image_that_is_not_attached_goes_at_once() {
    run(async |site, _| {
        without_inspection(&site).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        create_image(&site).await;
        assert!(image_comes_to(&site, Some(true)).await);
        images(&site).delete("a", &DeleteParams::default()).await.unwrap();
        assert!(image_comes_to(&site, None).await);
    });
}
