//! Objects beside hosts whose name is no host's.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use scenarios::{Machines, Site, fixture};
use serde_json::json;

/// The kinds, with their plurals.
const KINDS: [(&str, &str); 4] = [
    ("DataImage", "dataimages"),
    ("HostFirmwareComponents", "hostfirmwarecomponents"),
    ("HostFirmwareSettings", "hostfirmwaresettings"),
    ("HostUpdatePolicy", "hostupdatepolicies"),
];

fn objects(site: &Site, (kind, plural): (&str, &str)) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", kind);
    Api::default_namespaced_with(site.observer(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

async fn create(site: &Site, of: (&str, &str), name: &str) {
    let spec = match of.0 {
        "DataImage" => json!({"url": "http://192.0.2.8/data.iso"}),
        "HostFirmwareComponents" => json!({"updates": []}),
        "HostFirmwareSettings" => json!({"settings": {}}),
        _ => json!({"firmwareSettings": "onReboot"}),
    };
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": of.0, "metadata": {"name": name}, "spec": spec});
    objects(site, of).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Kind, name and type of the Events with one of these reasons, sorted.
async fn said(site: &Site, reason: &str) -> Vec<(String, String, String)> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let found = events.list(&ListParams::default()).await.unwrap().items;
    let found = found.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    let mut found: Vec<_> = found
        .map(|event| {
            assert!(event.series.is_none() && event.note.as_ref().unwrap().contains("BareMetalHost"), "{event:?}");
            let about = event.regarding.unwrap();
            (about.kind.unwrap(), about.name.unwrap(), event.type_.unwrap())
        })
        .collect();
    found.sort();
    found
}

fn all(name: &str, of_type: &str) -> Vec<(String, String, String)> {
    KINDS.iter().map(|(kind, _)| ((*kind).to_owned(), name.to_owned(), of_type.to_owned())).collect()
}

async fn minutes(count: u64) {
    tokio::time::sleep(Duration::from_secs(60 * count)).await;
}

#[test]
fn an_object_whose_name_is_no_hosts_says_so_once_and_then_that_its_host_has_come() {
    scenarios::run(41, async |site| {
        let controller = site.controller(fixture(&Machines::default()));
        site.create_host("a").await;
        let is_available = |host: &BareMetalHost| host.state() == State::Available;
        site.wait("a", 3600, is_available).await;
        for of in KINDS {
            create(&site, of, "mistyped").await;
            create(&site, of, "removed").await;
            create(&site, of, "late").await;
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        for of in KINDS {
            objects(&site, of).delete("removed", &DeleteParams::default()).await.unwrap();
        }
        site.create_host("late").await;
        minutes(8).await;
        assert_eq!(said(&site, "NoSuchHost").await, all("mistyped", "Warning"));
        controller.abort();
        let _controller = site.controller(fixture(&Machines::default()));
        minutes(8).await;
        assert_eq!(said(&site, "NoSuchHost").await, all("mistyped", "Warning"));
        let edit = json!({"spec": {"url": "http://192.0.2.8/other.iso"}});
        objects(&site, KINDS[0]).patch("mistyped", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        minutes(8).await;
        assert_eq!(said(&site, "NoSuchHost").await.len(), KINDS.len() + 1, "another generation");
        assert_eq!(said(&site, "HostFound").await, []);
        let before = site.weather.calls().len();
        minutes(3).await;
        let calls = site.weather.calls().split_off(before);
        assert!(!calls.iter().any(|call| call.contains("events")), "{calls:?}");
        site.create_host("mistyped").await;
        site.wait("mistyped", 3600, is_available).await;
        minutes(5).await;
        assert_eq!(said(&site, "HostFound").await, all("mistyped", "Normal"));
    });
}
