//! Rules in CEL, over the wire.

use crate::common::Api;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RULED: &str = "/apis/rules.example.com/v1/namespaces/default/ruleds";

fn definition(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ruleds.rules.example.com"},
        "spec": {
            "group": "rules.example.com", "scope": "Namespaced",
            "names": {"plural": "ruleds", "singular": "ruled", "kind": "Ruled", "listKind": "RuledList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

fn ruled(spec: Value) -> Value {
    json!({"apiVersion": "rules.example.com/v1", "kind": "Ruled", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn rules_are_enforced_with_upstreams_texts() {
    let api = Api::with_kinds().await;
    let spec = json!({"type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.low <= self.high", "messageExpression": "'low is too high in ' + self.name"},
            {"rule": "self.low >= oldSelf.low", "message": "low may not shrink", "fieldPath": ".low", "reason": "FieldValueForbidden"}],
        "properties": {
            "low": {"type": "integer"}, "high": {"type": "integer"},
            "name": {"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": "self.startsWith('n')"}]}}});
    api.post(CRDS, &definition(spec)).await.expect(201);
    api.until(RULED, 200).await;
    let bad = api.post(RULED, &ruled(json!({"low": 3, "high": 1, "name": "x"}))).await.expect(422);
    assert_eq!(
        bad.message(),
        "Ruled.rules.example.com \"a\" is invalid: [spec: Invalid value: \"object\": low is too high in x, \
         spec.name: Invalid value: \"string\": failed rule: self.startsWith('n')]"
    );
    let missing = api.post(RULED, &ruled(json!({"low": 3}))).await.expect(422);
    let why = "spec: Invalid value: \"object\": no such key: high evaluating rule: self.low <= self.high";
    assert!(missing.message().contains(why), "{}", missing.message());
    api.post(RULED, &ruled(json!({"low": 3, "high": 5, "name": "n"}))).await.expect(201);
    let path = format!("{RULED}/a");
    let shrunk = api.merge(&path, &json!({"spec": {"low": 2}})).await.expect(422);
    assert_eq!(shrunk.message(), "Ruled.rules.example.com \"a\" is invalid: spec.low: Forbidden: low may not shrink");
    api.merge(&path, &json!({"spec": {"low": 4}})).await.expect(200);
}

#[tokio::test]
async fn bad_rules_are_refused_when_they_are_defined() {
    let api = Api::with_kinds().await;
    let with = |rule: &str| {
        definition(json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"list": {"type": "array", "items": {"type": "string"}}}}))
    };
    let at = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    let unknown = api.post(CRDS, &with("self.nope == 1")).await.expect(422);
    let why = "compilation failed: ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^";
    assert!(unknown.message().contains(at) && unknown.message().contains(why), "{}", unknown.message());
    let costly = api.post(CRDS, &with("self.list.all(a, self.list.all(b, a == b))")).await.expect(422);
    let why = "Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or \
               adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    assert!(costly.message().contains(why), "{}", costly.message());
}

#[tokio::test]
async fn an_update_is_forgiven_what_it_did_not_change() {
    let api = Api::with_kinds().await;
    let loose = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    api.post(CRDS, &definition(loose)).await.expect(201);
    api.until(RULED, 200).await;
    api.post(RULED, &ruled(json!({"a": "x", "b": "y"}))).await.expect(201);
    let strict = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "minLength": 3},
            "b": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != 'y'"}]},
            "c": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != 'z'"}]}}}}}}}]}});
    api.merge(&format!("{CRDS}/ruleds.rules.example.com"), &strict).await.expect(200);
    let path = format!("{RULED}/a");
    let fine = api.merge(&path, &json!({"spec": {"c": "ok"}})).await.expect(200);
    assert!(fine.warnings.iter().any(|w| w.contains("failed rule: self != 'y'")), "{:?}", fine.warnings);
    let changed = api.merge(&path, &json!({"spec": {"a": "w"}})).await.expect(422);
    assert!(changed.message().contains("should be at least 3 chars long"), "{}", changed.message());
    api.merge(&path, &json!({"spec": {"c": "z"}})).await.expect(422);
}
