//! Conversion webhooks: several versions of a kind through every verb.

use crate::common::{Api, answer};
use crate::hooks::Hooks;
use futures::StreamExt as _;
use serde_json::{Value, json};

const V1: &str = "/apis/example.com/v1/namespaces/default/hosts";
const V2: &str = "/apis/example.com/v2/namespaces/default/hosts";

/// v1 says `spec.address` = "host:port", v2 says `spec.host` and `spec.port`.
fn definition(client: &Value, storage: &str) -> Value {
    let version = |name: &str, spec: Value| {
        json!({"name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}})
    };
    let text = json!({"type": "string"});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hosts.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
            "versions": [version("v1", json!({"address": text})), version("v2", json!({"host": text, "port": text}))]}})
}

fn convert(object: &Value, wanted: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = json!(wanted);
    out["spec"] = match (object.pointer("/spec/address").and_then(Value::as_str), object.pointer("/spec/host")) {
        (Some(address), None) if wanted.ends_with("v2") => {
            let (host, port) = address.split_once(':').unwrap();
            json!({"host": host, "port": port})
        }
        (None, Some(host)) if wanted.ends_with("v1") => {
            let port = object["spec"]["port"].as_str().unwrap();
            json!({"address": format!("{}:{port}", host.as_str().unwrap())})
        }
        _ => panic!("not to be converted: {object} to {wanted}"),
    };
    out
}

/// A server that converts; hosts of address `bad` it refuses, `liar` it gives another name.
async fn converter() -> Hooks {
    Hooks::start(|_, review| {
        let request = &review["request"];
        let wanted = request["desiredAPIVersion"].as_str().unwrap();
        let objects = request["objects"].as_array().unwrap();
        let mut result = json!({"status": "Success"});
        if objects.iter().any(|o| o["spec"].to_string().contains("bad")) {
            result = json!({"status": "Failed", "message": "no bad ones"});
        }
        let mut converted: Vec<Value> = objects.iter().map(|o| convert(o, wanted)).collect();
        for object in &mut converted {
            if object["spec"].to_string().contains("liar") {
                object["metadata"]["name"] = json!("other");
            }
        }
        let response = json!({"uid": request["uid"], "result": result, "convertedObjects": converted});
        let answer = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        Some((200, answer.to_string()))
    })
    .await
}

fn host(name: &str, address: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Host", "metadata": {"name": name}, "spec": {"address": address}})
}

#[tokio::test]
async fn every_verb_speaks_every_version() {
    let api = Api::start().await;
    let hooks = converter().await;
    api.server.install(definition(&hooks.client("/c"), "v2")).await.unwrap();
    let made = api.post(V1, &host("a", "x:1")).await.expect(201);
    assert_eq!(made.body["spec"], json!({"address": "x:1"}));
    let second = api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(
        (&second.body["apiVersion"], &second.body["spec"]),
        (&json!("example.com/v2"), &json!({"host": "x", "port": "1"}))
    );
    assert_eq!(second.body["metadata"]["uid"], made.body["metadata"]["uid"]);
    let calls = hooks.paths().len();
    api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(hooks.paths().len(), calls, "the stored version needs no conversion");
    // A patch, an update and the status through the other version.
    let patched = api.merge(&format!("{V1}/a"), &json!({"spec": {"address": "y:2"}})).await.expect(200);
    assert_eq!(
        (&patched.body["spec"], &patched.body["metadata"]["generation"]),
        (&json!({"address": "y:2"}), &json!(2))
    );
    let mut whole = patched.body.clone();
    whole["spec"]["address"] = json!("z:3");
    let updated = api.put(&format!("{V1}/a"), &whole).await.expect(200);
    let same = api.put(&format!("{V1}/a"), &updated.body).await.expect(200);
    assert_eq!(same.version(), updated.version(), "nothing changed, nothing is written");
    api.merge(&format!("{V1}/a/status"), &json!({"status": {"ready": true}})).await.expect(200);
    let now = api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!((&now.body["spec"]["host"], &now.body["status"]["ready"]), (&json!("z"), &json!(true)));
    // Lists and watches.
    api.post(V1, &host("b", "w:4")).await.expect(201);
    let list = api.get(V1).await.expect(200);
    let addresses: Vec<&Value> = list.body["items"].as_array().unwrap().iter().map(|i| &i["spec"]["address"]).collect();
    assert_eq!(addresses, ["z:3", "w:4"]);
    let watch = api.request("GET", &format!("{V1}?watch=1&resourceVersion={}&timeoutSeconds=20", list.version() - 1));
    let mut stream = watch.send().await.unwrap().bytes_stream();
    let frame: Value = serde_json::from_slice(&stream.next().await.unwrap().unwrap()).unwrap();
    assert_eq!((&frame["type"], &frame["object"]["spec"]), (&json!("ADDED"), &json!({"address": "w:4"})));
    api.delete(&format!("{V1}/a")).await.expect(200);
    api.get(&format!("{V2}/a")).await.expect(404);
}

#[tokio::test]
async fn what_a_webhook_may_not_do_has_upstreams_message() {
    let api = Api::start().await;
    let hooks = converter().await;
    api.server.install(definition(&hooks.client("/c"), "v2")).await.unwrap();
    let refused = api.post(V1, &host("a", "bad:1")).await.expect(500);
    assert_eq!(refused.message(), "conversion webhook for example.com/v1, Kind=Host failed: no bad ones");
    let lied = api.post(V1, &host("a", "liar:1")).await.expect(500);
    assert_eq!(
        lied.message(),
        "conversion webhook for example.com/v1, Kind=Host returned invalid object: must have the same name: a != other"
    );
    assert!(lied.body.get("reason").is_none());
    let fine = json!({"apiVersion": "example.com/v2", "kind": "Host", "metadata": {"name": "a"},
        "spec": {"host": "bad", "port": "1"}});
    api.post(V2, &fine).await.expect(201);
    let text = "conversion webhook for example.com/v2, Kind=Host failed: no bad ones";
    assert_eq!(api.get(&format!("{V1}/a")).await.expect(500).message(), text);
    assert_eq!(api.get(V1).await.expect(500).message(), text);
    api.get(V2).await.expect(200);
}

#[tokio::test]
async fn rows_stay_readable_when_the_stored_version_moves() {
    let api = Api::start().await;
    let hooks = converter().await;
    // One version without a webhook first: its rows say nothing of versions.
    let mut one = definition(&Value::Null, "v1");
    one["spec"]["conversion"] = json!({"strategy": "None"});
    one["spec"]["versions"].as_array_mut().unwrap().truncate(1);
    api.server.install(one).await.unwrap();
    api.post(V1, &host("a", "x:1")).await.expect(201);
    api.server.install(definition(&hooks.client("/c"), "v2")).await.unwrap();
    let old = api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(old.body["spec"], json!({"host": "x", "port": "1"}));
    assert_eq!(api.get(&format!("{V1}/a")).await.expect(200).body["spec"]["address"], "x:1");
    // An update that changes nothing writes the new form: this is how storage is migrated.
    let migrated = api.put(&format!("{V2}/a"), &old.body).await.expect(200);
    assert!(migrated.version() > old.version());
    let calls = hooks.paths().len();
    api.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!(hooks.paths().len(), calls);
    let _ = answer(api.request("GET", V1)).await.expect(200);
}
