//! kube-rs as the client.

use crate::common::{self, Api, WIDGETS, widget};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

async fn kube(api: &Api) -> kube::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::from_yaml(&api.server.admin_kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

fn widgets() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Widget"), "widgets")
}

#[tokio::test]
async fn kube_rs_lists_watches_and_changes() {
    let server = Api::with_kinds().await;
    let client = kube(&server).await;
    let resource = widgets();
    let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(client.clone(), "default", &resource);
    let object: DynamicObject = serde_json::from_value(widget("a", json!({"size": 1}))).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.data["spec"]["size"], 1);
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 2}}))).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(2));
    let status = json!({"status": {"ready": true}});
    let ready = api.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    assert_eq!(ready.data["status"]["ready"], true);
    let error = api.create(&PostParams::default(), &object).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(ref e) if e.code == 409 && e.reason == "AlreadyExists"), "{error}");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn kube_rs_watchers_see_every_change_in_both_ways_of_starting() {
    let server = Api::with_kinds().await;
    server.post(WIDGETS, &widget("a", json!({}))).await.expect(201);
    let client = kube(&server).await;
    let resource = widgets();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(client.clone(), "default", &resource);
        let mut stream = watcher(api, config).applied_objects().boxed();
        let first = stream.try_next().await.unwrap().unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("a"));
        server
            .merge(&format!("{WIDGETS}/a"), &json!({"spec": {"free": {"n": common::widget("x", json!(0))["spec"]}}}))
            .await
            .expect(200);
        let generation = first.metadata.generation;
        server.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"size": generation.unwrap() + 10}})).await.expect(200);
        let next = stream.try_next().await.unwrap().unwrap();
        assert!(next.metadata.generation > generation);
    }
}

#[tokio::test]
async fn kube_rs_typed_core_kinds() {
    let server = Api::start().await;
    let client = kube(&server).await;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(client.clone(), "default");
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).unwrap();
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!(made.data.unwrap()["a"].0, b"b");
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c"}, "data": {"a": "b"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let strategic = Patch::Strategic(json!({"data": {"c": "d"}}));
    assert_eq!(maps.patch("c", &PatchParams::default(), &strategic).await.unwrap().data.unwrap().len(), 2);
    let leases: kube::Api<Lease> = kube::Api::namespaced(client.clone(), "default");
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000006Z"}}))
    .unwrap();
    let made = leases.create(&PostParams::default(), &lease).await.unwrap();
    leases.replace("l", &PostParams::default(), &made).await.unwrap();
    let spaces: kube::Api<Namespace> = kube::Api::all(client.clone());
    assert_eq!(spaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
    let recorder = kube::runtime::events::Recorder::new(
        client.clone(),
        kube::runtime::events::Reporter { controller: "tests".into(), instance: None },
    );
    let event = kube::runtime::events::Event {
        type_: kube::runtime::events::EventType::Normal,
        reason: "Tried".into(),
        note: Some("it works".into()),
        action: "Try".into(),
        secondary: None,
    };
    let target = k8s_openapi::api::core::v1::ObjectReference {
        kind: Some("ConfigMap".into()),
        name: Some("c".into()),
        namespace: Some("default".into()),
        ..Default::default()
    };
    recorder.publish(&event, &target).await.unwrap();
    recorder.publish(&event, &target).await.unwrap();
    let events: kube::Api<Event> = kube::Api::namespaced(client, "default");
    let found = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!((found.len(), found[0].message.as_deref()), (1, Some("it works")));
    assert_eq!(found[0].series.as_ref().unwrap().count, Some(2));
}
