//! Definitions: what is refused and in which words, how names are accepted, and the scale subresource.

use crate::common::Api;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str, group: &str, schema: Value) -> Value {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn condition<'a>(crd: &'a Value, ty: &str) -> &'a Value {
    crd["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == ty).unwrap()
}

#[tokio::test]
async fn schemas_that_are_not_structural_are_refused_in_upstreams_words() {
    let api = Api::start().await;
    for (schema, wanted) in [
        (
            json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}}),
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "array"}),
            "spec.validation.openAPIV3Schema.type: Invalid value: \"array\": must be object at the root",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}),
            "spec.validation.openAPIV3Schema.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \
             \"string\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
                "items": {"type": "object"}}}}),
            "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if \
             x-kubernetes-list-type is map",
        ),
    ] {
        let answer = api.post(CRDS, &definition("things", "example.org", schema)).await.expect(422);
        let text = format!("CustomResourceDefinition.apiextensions.k8s.io \"things.example.org\" is invalid: {wanted}");
        assert!(answer.message().starts_with("CustomResourceDefinition.apiextensions.k8s.io"), "{}", answer.text);
        assert!(
            answer.message().contains(&text[text.find(": ").unwrap() + 2..]),
            "{}\nwanted {text}",
            answer.message()
        );
    }
}

#[tokio::test]
async fn names_are_accepted_after_the_write_and_freed_names_are_taken() {
    let api = Api::start().await;
    let first = definition("things", "example.org", json!({"type": "object"}));
    let answer = api.post(CRDS, &first).await.expect(201);
    assert_eq!(answer.body["status"]["storedVersions"], json!(["v1"]));
    let found = api.get(&format!("{CRDS}/things.example.org")).await.expect(200);
    assert_eq!(condition(&found.body, "NamesAccepted")["message"], "no conflicts found");
    assert_eq!(condition(&found.body, "Established")["reason"], "InitialNamesAccepted");
    let mut second = definition("others", "example.org", json!({"type": "object"}));
    second["spec"]["names"]["kind"] = json!("Thing");
    api.post(CRDS, &second).await.expect(201);
    let found = api.get(&format!("{CRDS}/others.example.org")).await.expect(200);
    assert_eq!(condition(&found.body, "NamesAccepted")["reason"], "ListKindConflict");
    assert_eq!(condition(&found.body, "NamesAccepted")["message"], "\"ThingList\" is already in use");
    assert_eq!(condition(&found.body, "Established")["status"], "False");
    api.delete(&format!("{CRDS}/things.example.org")).await.expect(200);
    api.until(&format!("{CRDS}/things.example.org"), 404).await;
    api.until("/apis/example.org/v1/others", 200).await;
}

#[tokio::test]
async fn protected_groups_want_approval() {
    let api = Api::start().await;
    let mut crd = definition("things", "test.k8s.io", json!({"type": "object"}));
    let answer = api.post(CRDS, &crd).await.expect(422);
    assert!(
        answer.message().contains("metadata.annotations[api-approved.kubernetes.io]: Required value"),
        "{}",
        answer.text
    );
    crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    api.post(CRDS, &crd).await.expect(201);
    let found = api.get(&format!("{CRDS}/things.test.k8s.io")).await.expect(200);
    let approval = condition(&found.body, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!(approval["reason"], "UnapprovedAnnotation");
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let api = Api::start().await;
    let mut crd = definition(
        "things",
        "example.org",
        json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}),
    );
    crd["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    api.post(CRDS, &crd).await.expect(201);
    let base = "/apis/example.org/v1/namespaces/default/things";
    api.post(base, &json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "t"}}))
        .await
        .expect(201);
    let scale = format!("{base}/t/scale");
    let none = api.get(&scale).await.expect(500);
    assert_eq!(none.message(), "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist");
    let refused = api.merge(&scale, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(400);
    assert_eq!(refused.message(), "the spec replicas field \".spec.replicas\" cannot be empty");
    let set = api.merge(&scale, &json!({"spec": {"replicas": 3}})).await.expect(200);
    assert_eq!((&set.body["kind"], &set.body["spec"]), (&json!("Scale"), &json!({"replicas": 3})));
    let mut wanted = set.body;
    wanted["spec"]["replicas"] = json!(-1);
    let refused = api.put(&scale, &wanted).await.expect(422);
    assert!(refused.message().contains(".spec.replicas: Invalid value: -1: should be a non-negative integer"));
    wanted["spec"]["replicas"] = json!(5);
    api.put(&scale, &wanted).await.expect(200);
    api.put(&scale, &wanted).await.expect(409);
    assert_eq!(api.get(&format!("{base}/t")).await.expect(200).body["spec"]["replicas"], 5);
}
