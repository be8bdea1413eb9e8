//! Images in registries: the pull secret that comes late, and the tag that moves.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use api::metamorph::{HostOperation, OperationType};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::plant::Plant;
use scenarios::shelf::Shelf;
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
const URL: &str = "oci://registry.example/team/os:stable";

fn says(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

async fn wish(site: &Site, image: Value) {
    let change = json!({"spec": {"image": image}});
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn put_secret(site: &Site, kind: &str, key: &str, text: &str) {
    let secrets: Api<Secret> = Api::default_namespaced(site.observer());
    let _ = secrets.delete("pull", &DeleteParams::default()).await;
    let secret = json!({"metadata": {"name": "pull"}, "type": kind, "stringData": {key: text}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// The operations that have written, or were to write, an image: in order, the layer of each.
async fn layers(site: &Site) -> Vec<Option<String>> {
    let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
    let mut all = operations.list(&ListParams::default()).await.unwrap().items;
    all.retain(|operation| operation.spec.operation == OperationType::Provision);
    all.sort_by_key(ResourceExt::name_any);
    all.into_iter().map(|operation| operation.status?.image.map(|image| image.layer)).collect()
}

#[test]
fn what_a_tag_named_first_is_written_and_a_pull_secret_that_comes_late_wakes_its_host() {
    scenarios::run(71, async |site| {
        let shelf = Shelf::default();
        let mut plant = Plant::new(site.weather.clone());
        plant.registries = shelf.registries();
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let first = shelf.push("stable", "one");
        wish(&site, json!({"url": URL, "ociAuthSecretName": "pull"})).await;
        site.wait("a", LONGEST, says("there is no Secret pull")).await;
        for (kind, key, text, fault) in [
            ("Opaque", "password", "hunter2", "is of another type than kubernetes.io/dockerconfigjson"),
            ("kubernetes.io/dockerconfigjson", ".dockerconfigjson", "{\"hunter2\": {}}", "is not JSON with users"),
            (
                "kubernetes.io/dockercfg",
                ".dockercfg",
                "{\"other\": {\"auth\": \"aHVudGVyMg==\"}}",
                "no entry for registry.example",
            ),
            (
                "kubernetes.io/dockercfg",
                ".dockercfg",
                "{\"registry.example\": {\"auth\": \"dTpodW50ZXIy\"}}",
                "refuses the user and password",
            ),
        ] {
            put_secret(&site, kind, key, text).await;
            let host = site.wait("a", 600, says(fault)).await;
            assert!(!serde_json::to_string(&host).unwrap().contains("hunter2"), "{host:?}");
        }
        assert!(!plant.effects().iter().any(|effect| effect.starts_with("write ")), "{:#?}", plant.effects());
        // From here on each attempt is for one wish; the first fails, and the tag moves before the second.
        plant.fail_writes(2);
        put_secret(
            &site,
            "kubernetes.io/dockerconfigjson",
            ".dockerconfigjson",
            "{\"auths\": {\"registry.example\": {\"auth\": \"dTpw\"}}}",
        )
        .await;
        site.wait("a", LONGEST, says("connection reset")).await;
        let second = shelf.push("stable", "two");
        server.kill();
        let server = plant.serve(&site);
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!((plant.image(), shelf.followed()), (Some(first.clone()), 1), "{:#?}", plant.effects());
        let shown = layers(&site).await;
        let digest = first.rsplit('/').next().map(ToOwned::to_owned);
        assert!(
            shown.iter().flatten().count() >= 3 && shown.iter().flatten().all(|layer| Some(layer) == digest.as_ref()),
            "{shown:?}"
        );
        // A provisioned host is left alone, whatever the tag names; a new wish follows it again.
        let effects = plant.effects();
        sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(plant.effects(), effects);
        wish(&site, Value::Null).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        wish(&site, json!({"url": URL, "ociAuthSecretName": "pull"})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!((plant.image(), shelf.followed()), (Some(second), 2));
        server.kill();
    });
}
