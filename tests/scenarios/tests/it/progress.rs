//! What a host tells of its work while it goes on, by the native provisioner: the step and how much of it is done, in the condition and in the
//! HostOperation, for each kind of work; and in how many writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::metal3::{
    BareMetalHost, HostFirmwareSettings, HostUpdatePolicy, OperationalStatus, ProvisioningState as State,
};
use api::metamorph::{HostOperation, OperationType};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::plant::Plant;
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
const LONGEST: u64 = 4 * 3600;

/// What was told, by the condition's reason, and by the operations' types.
#[derive(Default)]
struct Told {
    by_hosts: BTreeMap<String, BTreeSet<String>>,
    by_operations: BTreeMap<String, BTreeSet<String>>,
}

/// Listens until the host is as wanted, or gone.
async fn listen(site: &Site, told: &mut Told, wanted: impl Fn(&BareMetalHost) -> bool) {
    let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
    for _ in 0..LONGEST {
        let Some(host) = site.hosts().get_opt("a").await.unwrap() else { return };
        for condition in host.status.iter().flat_map(|status| &status.conditions) {
            if condition.type_ == "Progressing" {
                told.by_hosts.entry(condition.reason.clone()).or_default().insert(condition.message.clone());
            }
        }
        for operation in operations.list(&ListParams::default()).await.unwrap().items {
            for step in operation.status.iter().flat_map(|status| &status.steps) {
                let text =
                    format!("{} {} {}", step.name, step.message.clone().unwrap_or_default(), step.percent.is_some());
                told.by_operations.entry(format!("{:?}", operation.spec.operation)).or_default().insert(text);
            }
        }
        if wanted(&host) {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("it is never as wanted: {:?}", site.hosts().get("a").await.unwrap().status);
}

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Writes of the host's status since there were so many calls.
fn writes(site: &Site, before: usize) -> usize {
    let calls = site.weather.calls().split_off(before);
    calls.iter().filter(|call| call.starts_with("PUT ") && call.ends_with("/baremetalhosts/a/status")).count()
}

#[test]
fn each_kind_of_work_tells_its_step_in_the_condition_and_in_the_operation() {
    scenarios::run(71, async |site| {
        // Calls to the BMC take long enough that each kind of work takes minutes.
        site.weather.rough(0, Duration::from_secs(1));
        let plant = Plant::new(site.weather.clone());
        plant.inserts_in(Duration::from_secs(90));
        let _server = plant.serve(&site);
        let mut told = Told::default();
        site.create_host("a").await;
        listen(&site, &mut told, is(State::Available)).await;
        let policy = json!({"metadata": {"name": "a"}, "spec": {"firmwareSettings": "onReboot"}});
        let policies: Api<HostUpdatePolicy> = Api::default_namespaced(site.observer());
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        let image =
            |url: &str| json!({"url": url, "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"});
        let before = site.weather.calls().len();
        patch(&site, json!({"spec": {"image": image("http://192.0.2.8/i")}})).await;
        listen(&site, &mut told, |host| host.state() == State::Provisioned && host.status.as_ref().unwrap().powered_on)
            .await;
        assert!(writes(&site, before) <= 8, "{}", writes(&site, before));
        sleep(Duration::from_secs(600)).await;
        let settings: Api<HostFirmwareSettings> = Api::default_namespaced(site.observer());
        let wish = json!([{"op": "replace", "path": "/spec/settings", "value": {"BootDelay": "30"}}]);
        let wish = Patch::<()>::Json(serde_json::from_value(wish).unwrap());
        settings.patch("a", &PatchParams::default(), &wish).await.unwrap();
        patch(&site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
        let status = |host: &BareMetalHost| host.status.as_ref().unwrap().operational_status;
        listen(&site, &mut told, |host| status(host) == OperationalStatus::Servicing).await;
        listen(&site, &mut told, |host| status(host) == OperationalStatus::Ok).await;
        patch(&site, json!({"spec": {"image": null}})).await;
        listen(&site, &mut told, is(State::Available)).await;
        let iso =
            json!({"url": "http://192.0.2.8/rescue.iso", "format": "live-iso", "checksum": null, "checksumType": null});
        patch(&site, json!({"spec": {"image": iso}})).await;
        listen(&site, &mut told, is(State::Provisioned)).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        listen(&site, &mut told, |_| false).await;
        println!("{:#?}\n{:#?}", told.by_hosts, told.by_operations);
        for (reason, work) in [
            ("Inspecting", "The hardware is being inspected: "),
            ("Provisioning", "The image is being written: "),
            ("Deprovisioning", "What was provisioned is being removed: "),
        ] {
            assert!(told.by_hosts[reason].iter().any(|said| said.starts_with(work)), "{reason}: {:#?}", told.by_hosts);
        }
        let percent = |said: &String| said.contains("write") && said.ends_with(" %");
        assert!(told.by_hosts["Provisioning"].iter().any(percent), "{:#?}", told.by_hosts);
        for kind in
            [OperationType::Inspect, OperationType::Provision, OperationType::Deprovision, OperationType::Service]
        {
            let steps = told.by_operations.get(&format!("{kind:?}"));
            assert!(steps.is_some_and(|steps| steps.len() > 2), "{kind:?}: {:#?}", told.by_operations);
        }
        let live = |step: &String| step.contains("live");
        assert!(told.by_operations["Provision"].iter().any(live), "{:#?}", told.by_operations);
        assert!(told.by_operations["Provision"].iter().any(|step| step.ends_with("true")), "{:#?}", told.by_operations);
    });
}
