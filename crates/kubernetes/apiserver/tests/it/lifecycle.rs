//! Garbage collection, namespaces and definitions over their whole life.

use crate::common::{self, Api, CONFIGMAPS, WIDGETS, configmap, widget};
use serde_json::{Value, json};

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut object = configmap(name);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Widget",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]);
    object
}

#[tokio::test]
async fn dependents_follow_their_owner_in_the_background() {
    let api = Api::with_kinds().await;
    let owner = api.post(WIDGETS, &widget("w", json!({}))).await.expect(201).body;
    let other = api.post(WIDGETS, &widget("v", json!({}))).await.expect(201).body;
    api.post(CONFIGMAPS, &owned("a", &owner, false)).await.expect(201);
    let mut shared = owned("b", &owner, false);
    let second = owned("b", &other, false)["metadata"]["ownerReferences"][0].clone();
    shared["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    api.post(CONFIGMAPS, &shared).await.expect(201);
    api.delete(&format!("{WIDGETS}/w")).await.expect(200);
    api.until(&format!("{CONFIGMAPS}/a"), 404).await;
    for _ in 0..100 {
        let left = api.get(&format!("{CONFIGMAPS}/b")).await.expect(200).body;
        if left["metadata"]["ownerReferences"].as_array().unwrap().len() == 1 {
            assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "v");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the dangling reference stayed");
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let api = Api::with_kinds().await;
    let owner = api.post(WIDGETS, &widget("w", json!({}))).await.expect(201).body;
    let mut held = owned("a", &owner, true);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(CONFIGMAPS, &held).await.expect(201);
    let going = api.delete_with(&format!("{WIDGETS}/w"), &json!({"propagationPolicy": "Foreground"})).await.expect(200);
    assert_eq!(going.body["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    for _ in 0..100 {
        if api.get(&format!("{CONFIGMAPS}/a")).await.body["metadata"]["deletionTimestamp"].is_string() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    api.get(&format!("{WIDGETS}/w")).await.expect(200);
    api.merge(&format!("{CONFIGMAPS}/a"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.until(&format!("{WIDGETS}/w"), 404).await;
    api.get(&format!("{CONFIGMAPS}/a")).await.expect(404);
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let api = Api::with_kinds().await;
    let owner = api.post(WIDGETS, &widget("w", json!({}))).await.expect(201).body;
    api.post(CONFIGMAPS, &owned("a", &owner, true)).await.expect(201);
    api.delete_with(&format!("{WIDGETS}/w"), &json!({"propagationPolicy": "Orphan"})).await.expect(200);
    api.until(&format!("{WIDGETS}/w"), 404).await;
    let orphan = api.get(&format!("{CONFIGMAPS}/a")).await.expect(200).body;
    assert_eq!(orphan["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn owners_that_never_were_take_their_dependents_along() {
    let api = Api::with_kinds().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}});
    api.post(CONFIGMAPS, &owned("a", &ghost, false)).await.expect(201);
    api.until(&format!("{CONFIGMAPS}/a"), 404).await;
}

#[tokio::test]
async fn garbage_left_by_a_stop_is_collected_after_the_start() {
    let api = Api::with_kinds().await;
    let owner = api.post(WIDGETS, &widget("w", json!({}))).await.expect(201).body;
    api.post(CONFIGMAPS, &owned("a", &owner, false)).await.expect(201);
    api.delete(&format!("{WIDGETS}/w")).await.expect(200);
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    api.until(&format!("{CONFIGMAPS}/a"), 404).await;
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along() {
    let api = Api::with_kinds().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        api.get(&format!("/api/v1/namespaces/{name}")).await.expect(200);
    }
    let made = api.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.expect(201).body;
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    assert_eq!((&made["status"]["phase"], &made["spec"]["finalizers"]), (&json!("Active"), &json!(["kubernetes"])));
    let widgets = "/apis/example.com/v1/namespaces/n/widgets";
    let mut held = widget("w", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(widgets, &held).await.expect(201);
    api.post("/api/v1/namespaces/n/configmaps", &configmap("c")).await.expect(201);
    let going = api.delete("/api/v1/namespaces/n").await.expect(200).body;
    assert_eq!(going["status"]["phase"], "Terminating");
    api.until("/api/v1/namespaces/n/configmaps/c", 404).await;
    let refused = api.post("/api/v1/namespaces/n/configmaps", &configmap("d")).await.expect(403);
    assert!(refused.message().contains("because it is being terminated"));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    api.get("/api/v1/namespaces/n").await.expect(200);
    api.merge(&format!("{widgets}/w"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.until("/api/v1/namespaces/n", 404).await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let api = Api::with_kinds().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    let crd = api.get(path).await.expect(200).body;
    let condition = |ty: &str| {
        crd["status"]["conditions"].as_array().unwrap().iter().any(|c| c["type"] == ty && c["status"] == "True")
    };
    assert!(condition("Established") && condition("NamesAccepted"));
    assert_eq!(
        (&crd["status"]["storedVersions"], &crd["status"]["acceptedNames"]["listKind"]),
        (&json!(["v1"]), &json!("WidgetList"))
    );
    api.post(WIDGETS, &widget("w", json!({}))).await.expect(201);
    api.delete(path).await.expect(200);
    api.until(path, 404).await;
    api.get(WIDGETS).await.expect(404);
    api.server.install(common::widgets()).await.unwrap();
    assert_eq!(api.get(WIDGETS).await.expect(200).body["items"], json!([]));
}

#[tokio::test]
async fn new_defaults_reach_old_objects() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("w", json!({}))).await.expect(201);
    let mut next = common::widgets();
    for version in 0..2 {
        next["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["default"] =
            json!("blue");
    }
    api.server.install(next).await.unwrap();
    assert_eq!(api.get(&format!("{WIDGETS}/w")).await.expect(200).body["spec"]["color"], "blue");
    assert_eq!(api.get(WIDGETS).await.expect(200).body["items"][0]["spec"]["color"], "blue");
}

#[tokio::test]
async fn bad_definitions_are_refused() {
    let api = Api::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut untyped = common::widgets();
    untyped["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] = json!({});
    let answer = api.post(crds, &untyped).await.expect(422);
    assert!(
        answer.message().contains("properties[x].type: Required value: must not be empty for specified object fields"),
        "{}",
        answer.message()
    );
    let mut twice = common::widgets();
    twice["spec"]["versions"][1]["storage"] = json!(true);
    assert!(
        api.post(crds, &twice).await.expect(422).message().contains("exactly one version marked as storage version")
    );
    let mut pattern = common::widgets();
    pattern["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["pattern"] =
        json!("(");
    api.post(crds, &pattern).await.expect(422);
    let mut misnamed = common::widgets();
    misnamed["metadata"]["name"] = json!("gadgets.example.com");
    api.post(crds, &misnamed).await.expect(422);
}

#[tokio::test]
async fn objects_of_metal3_are_checked_by_its_own_schemas() {
    let api = Api::with_kinds().await;
    let hosts = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "h"},
        "spec": {"online": true, "bmc": {"address": "redfish://192.0.2.1", "credentialsName": "s"}}});
    let made = api.post(hosts, &host).await.expect(201).body;
    assert_eq!(made["spec"]["automatedCleaningMode"], "metadata");
    let bad = json!({"spec": {"bootMode": "BIOS", "bmc": {"address": 1}}});
    let refused = api.merge(&format!("{hosts}/h"), &bad).await.expect(422);
    assert!(
        refused.message().contains("spec.bmc.address in body must be of type string: \"integer\""),
        "{}",
        refused.message()
    );
    assert!(refused.message().contains("spec.bootMode: Unsupported value: \"BIOS\""), "{}", refused.message());
    // The same definitions again: nothing is written.
    let before = api.get(hosts).await.version();
    for file in common::upstream() {
        api.server.apply_crd_yaml(&std::fs::read_to_string(file).unwrap()).await.unwrap();
    }
    assert_eq!(api.get(hosts).await.version(), before);
}
