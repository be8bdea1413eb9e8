//! Server-side apply and owners of fields, over HTTPS and with kubectl.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::common::{Answer, Api, CONFIGMAPS, WIDGETS, answer, configmap, widget};
use serde_json::{Value, json};

async fn apply(api: &Api, path: &str, query: &str, body: &str) -> Answer {
    let request = api.request("PATCH", &format!("{path}?{query}"));
    answer(request.header("content-type", "application/apply-patch+yaml").body(body.to_owned())).await
}

/// Manager, operation and subresource of all entries, with what they own, by manager (times may be those of one second).
fn owners(object: &Value) -> Vec<(String, String, String, Value)> {
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<_> = entries
        .iter()
        .map(|e| (text(e, "manager"), text(e, "operation"), text(e, "subresource"), e["fieldsV1"].clone()))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn owner(manager: &str, operation: &str, sub: &str, fields: Value) -> (String, String, String, Value) {
    (manager.to_owned(), operation.to_owned(), sub.to_owned(), fields)
}

const YAML: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  labels: {app: x}
data:
  a: '1'
";

#[tokio::test]
async fn apply_makes_changes_and_leaves_alone() {
    let api = Api::with_kinds().await;
    let path = format!("{CONFIGMAPS}/c");
    let made = apply(&api, &path, "fieldManager=one", YAML).await.expect(201);
    let owned = json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:app": {}}}});
    assert_eq!(owners(&made.body), [owner("one", "Apply", "", owned)]);
    let again = apply(&api, &path, "fieldManager=one", YAML).await.expect(200);
    assert_eq!(again.body, made.body, "what changes nothing is not written");
    let two = YAML.replace("a: '1'", "a: '2'\n  b: '2'");
    let conflict = apply(&api, &path, "fieldManager=two", &two).await.expect(409);
    assert_eq!(conflict.message(), "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    assert_eq!(conflict.body["reason"], "Conflict");
    assert_eq!(
        conflict.body["details"],
        json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"}]})
    );
    let dry = apply(&api, &path, "fieldManager=two&force=true&dryRun=All", &two).await.expect(200);
    assert_eq!(dry.body["data"], json!({"a": "2", "b": "2"}));
    assert_eq!(api.get(&path).await.expect(200).body, made.body, "dry run writes nothing");
    let forced = apply(&api, &path, "fieldManager=two&force=true", &two).await.expect(200);
    assert_eq!(forced.body["data"], json!({"a": "2", "b": "2"}));
    let less = YAML.replace("data:\n  a: '1'\n", "");
    let given_up = apply(&api, &path, "fieldManager=two", &less).await.expect(200);
    assert_eq!(given_up.body.get("data"), None, "{}", given_up.text);
}

#[tokio::test]
async fn apply_is_refused_with_upstreams_texts() {
    let api = Api::with_kinds().await;
    let path = format!("{CONFIGMAPS}/c");
    let message = |a: Answer| a.message().to_owned();
    assert_eq!(
        message(apply(&api, &path, "", YAML).await.expect(422)),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    assert_eq!(
        message(api.merge(&format!("{path}?force=true"), &json!({})).await.expect(422)),
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
    let other = YAML.replace("name: c", "name: d");
    assert_eq!(
        message(apply(&api, &path, "fieldManager=m", &other).await.expect(400)),
        "the name of the object (d) does not match the name on the URL (c)"
    );
    let unknown = YAML.replace("\ndata:", "\ndota:");
    assert_eq!(
        message(apply(&api, &path, "fieldManager=m", &unknown).await.expect(500)),
        "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .dota: field not declared in schema"
    );
    let kind = YAML.replace("ConfigMap", "Secret");
    assert_eq!(
        message(apply(&api, &path, "fieldManager=m", &kind).await.expect(400)),
        "invalid object type: /v1, Kind=Secret"
    );
    let uid = YAML.replace("name: c", "name: c\n  uid: abc");
    assert!(
        message(apply(&api, &path, "fieldManager=m", &uid).await.expect(409))
            .ends_with("uid mismatch: the provided object specified uid abc, and no existing object was found")
    );
    let twice = YAML.replace("  a: '1'\n", "  a: '1'\n  a: '2'\n");
    assert_eq!(
        message(apply(&api, &path, "fieldManager=m&fieldValidation=Strict", &twice).await.expect(400)),
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 8: key \"a\" already set in map"
    );
    assert!(message(apply(&api, &path, "fieldManager=m", "[]").await.expect(400)).starts_with("error decoding YAML: "));
    apply(&api, &path, "fieldManager=m", "a: [").await.expect(400);
    let made = apply(&api, &path, "fieldManager=m", &twice).await.expect(201);
    assert_eq!(made.body["data"]["a"], "2");
    assert_eq!(made.warnings.len(), 1, "{:?}", made.warnings);
    let stale = YAML.replace("name: c", "name: c\n  resourceVersion: '1'");
    let stale = apply(&api, &path, "fieldManager=m&force=true", &stale).await.expect(409);
    assert!(stale.message().contains("the object has been modified"));
    let binary =
        api.request("PATCH", &format!("{path}?fieldManager=m")).header("content-type", "application/apply-patch+cbor");
    answer(binary.body("x")).await.expect(415);
    let nowhere = format!("{WIDGETS}/none/status");
    let status =
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"none"},"status":{"ready":true}}"#;
    apply(&api, &nowhere, "fieldManager=m", status).await.expect(404);
}

#[tokio::test]
async fn an_apply_that_creates_needs_the_right_to_create() {
    let api = Api::with_kinds().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "patcher"}, "rules": rules});
    api.post(&format!("{roles}/roles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    api.post(&format!("{roles}/rolebindings"), &binding).await.expect(201);
    let ann = async || {
        let request = api.request("PATCH", &format!("{CONFIGMAPS}/c?fieldManager=ann&force=true"));
        let request = request.header("impersonate-user", "ann").header("content-type", "application/apply-patch+yaml");
        answer(request.body(YAML)).await
    };
    let refused = ann().await.expect(403);
    assert_eq!(
        refused.message(),
        "configmaps \"c\" is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    apply(&api, &format!("{CONFIGMAPS}/c"), "fieldManager=admin", YAML).await.expect(201);
    ann().await.expect(200);
}

#[tokio::test]
async fn all_writes_have_owners() {
    let api = Api::with_kinds().await;
    let path = format!("{WIDGETS}/a");
    let made =
        api.post(&format!("{WIDGETS}?fieldManager=maker"), &widget("a", json!({"color": "red"}))).await.expect(201);
    let owned = json!({"f:spec": {".": {}, "f:color": {}, "f:size": {}}});
    assert_eq!(owners(&made.body), [owner("maker", "Update", "", owned.clone())], "defaults belong to the maker");
    let labelled = api
        .merge(&format!("{path}?fieldManager=labeller"), &json!({"metadata": {"labels": {"l": "1"}}}))
        .await
        .expect(200);
    let labels = json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}});
    assert_eq!(owners(&labelled.body), [owner("labeller", "Update", "", labels), owner("maker", "Update", "", owned)]);
    let reported = api
        .merge(
            &format!("{path}/status?fieldManager=reporter"),
            &json!({"status": {"ready": true}, "spec": {"color": "blue"}}),
        )
        .await
        .expect(200);
    let status = json!({"f:status": {".": {}, "f:ready": {}}});
    assert!(owners(&reported.body).contains(&owner("reporter", "Update", "status", status)));
    assert_eq!(reported.body["spec"]["color"], "red");
    assert_eq!(reported.body["metadata"]["generation"], 1);
    let own_status =
        r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"status":{"ready":false}}"#;
    let conflict = apply(&api, &format!("{path}/status"), "fieldManager=m", own_status).await.expect(409);
    assert_eq!(
        conflict.message(),
        "Apply failed with 1 conflict: conflict with \"reporter\" with subresource \"status\" using example.com/v1: .status.ready"
    );
    let applied = apply(&api, &format!("{path}/status"), "fieldManager=m&force=true", own_status).await.expect(200);
    assert_eq!(applied.body["status"], json!({"ready": false}));
    assert_eq!(applied.body["spec"]["color"], "red");
    let reset = api
        .patch(&path, "json-patch", &json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]))
        .await;
    assert!(owners(&reset.expect(200).body).is_empty());
    let agent = api.request("POST", CONFIGMAPS).header("user-agent", "robot/1.0 (linux)").json(&configmap("r"));
    let agent = answer(agent).await.expect(201);
    assert_eq!(owners(&agent.body)[0].0, "robot");
    let long = format!("{CONFIGMAPS}?fieldManager={}", "x".repeat(129));
    assert_eq!(
        api.post(&long, &configmap("s")).await.expect(422).message(),
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"
    );
}

fn kubectl(api: &Api, arguments: &str, input: &str) -> (bool, String) {
    let kubeconfig = api.dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.server.admin_kubeconfig()).unwrap();
    let mut child = Command::new("kubectl")
        .args(arguments.split_whitespace())
        .env("KUBECONFIG", &kubeconfig)
        .env("HOME", api.dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl must be installed");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_server_side() {
    let api = Api::with_kinds().await;
    let run = async |arguments: &str, input: &str| tokio::task::block_in_place(|| kubectl(&api, arguments, input));
    let (good, text) = run("apply --server-side -f -", YAML).await;
    assert!(good && text == "configmap/c serverside-applied\n", "{text}");
    let other = YAML.replace("a: '1'", "a: '2'");
    let (good, text) = run("apply --server-side --field-manager=other -f -", &other).await;
    assert!(!good, "{text}");
    assert!(text.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.a"), "{text}");
    assert!(text.contains("--force-conflicts"), "{text}");
    let (good, text) = run("apply --server-side --field-manager=other --force-conflicts -f -", &other).await;
    assert!(good, "{text}");
    let (_, fields) = run("get cm c --show-managed-fields -o json", "").await;
    let object: Value = serde_json::from_str(&fields).unwrap();
    let managers: Vec<String> = owners(&object).into_iter().map(|o| o.0).collect();
    assert_eq!(managers, ["kubectl", "other"]);
    // From client-side apply to server-side apply: kubectl's own old entry is no conflict.
    let migrated = YAML.replace("name: c", "name: m");
    assert!(run("apply -f -", &migrated).await.0);
    let (good, text) = run("apply --server-side -f -", &migrated.replace("a: '1'", "a: '3'")).await;
    assert!(good, "{text}");
    assert_eq!(run("get cm m -o jsonpath={.data.a}", "").await.1, "3");
    let (good, text) = run("diff --server-side -f -", &migrated.replace("a: '1'", "a: '4'")).await;
    assert!(!good && text.contains("+  a: \"4\""), "{text}");
}
