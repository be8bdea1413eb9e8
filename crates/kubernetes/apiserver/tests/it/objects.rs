//! Verbs on objects, driven without a Kubernetes client.

use crate::common::{self, Api, CONFIGMAPS, WIDGETS, answer, configmap, widget};
use serde_json::{Value, json};

#[tokio::test]
async fn creation_sets_what_only_the_server_may() {
    let api = Api::with_kinds().await;
    let mut wanted = widget("a", json!({"color": "red", "unknown": 1}));
    wanted["status"] = json!({"ready": true});
    wanted["metadata"]["uid"] = json!("mine");
    let made = api.post(WIDGETS, &wanted).await.expect(201);
    assert_eq!(made.body["spec"], json!({"color": "red", "size": 3}), "default and pruning");
    assert_eq!(made.body.get("status"), None, "status is for the subresource");
    assert_ne!(made.body["metadata"]["uid"], "mine");
    assert_eq!(made.body["metadata"]["generation"], 1);
    assert_eq!(made.warnings, ["299 - \"unknown field \\\"spec.unknown\\\"\""]);
    let again = api.post(WIDGETS, &wanted).await.expect(409);
    assert_eq!(again.body["reason"], "AlreadyExists");
    assert_eq!(again.message(), "widgets.example.com \"a\" already exists");
    let missing = api.get(&format!("{WIDGETS}/none")).await.expect(404);
    assert_eq!(missing.message(), "widgets.example.com \"none\" not found");
    assert_eq!(missing.body["details"], json!({"name": "none", "group": "example.com", "kind": "widgets"}));
}

#[tokio::test]
async fn bad_objects_are_refused_with_causes() {
    let api = Api::with_kinds().await;
    let bad = api.post(WIDGETS, &widget("Bad_Name", json!({"size": 0, "color": "green"}))).await.expect(422);
    assert_eq!(bad.body["reason"], "Invalid");
    let fields: Vec<&str> =
        bad.body["details"]["causes"].as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["metadata.name", "spec.color", "spec.size"]);
    assert!(bad.message().contains("spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""));
    let strict =
        api.post(&format!("{WIDGETS}?fieldValidation=Strict"), &widget("a", json!({"x": 1}))).await.expect(400);
    assert!(strict.message().ends_with("strict decoding error: unknown field \"spec.x\""), "{}", strict.message());
    let twice = api
        .request("POST", &format!("{WIDGETS}?fieldValidation=Strict"))
        .header("content-type", "application/json")
        .body(r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"size":2}}"#);
    assert!(answer(twice).await.expect(400).message().contains("duplicate field \"spec.size\""));
    let elsewhere = api.post("/apis/example.com/v1/namespaces/none/widgets", &widget("a", json!({}))).await.expect(404);
    assert_eq!(elsewhere.message(), "namespaces \"none\" not found");
    let mut other = widget("a", json!({}));
    other["metadata"]["namespace"] = json!("kube-system");
    api.post(WIDGETS, &other).await.expect(400);
    let broken = api.request("POST", WIDGETS).header("content-type", "application/json").body("{");
    answer(broken).await.expect(400);
    let unknown = api.request("POST", WIDGETS).header("content-type", "text/plain").body("{}");
    answer(unknown).await.expect(415);
    let proto =
        api.request("POST", WIDGETS).header("content-type", "application/vnd.kubernetes.protobuf").body("k8s\0");
    answer(proto).await.expect(400);
    let big =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "x".repeat(4 << 20)}});
    api.post(CONFIGMAPS, &big).await.expect(413);
}

#[tokio::test]
async fn updates_need_the_present_version_and_move_the_generation_by_spec_alone() {
    let api = Api::with_kinds().await;
    let path = format!("{WIDGETS}/a");
    let made = api.post(WIDGETS, &widget("a", json!({"size": 1}))).await.expect(201).body;
    let mut next = made.clone();
    next["metadata"]["labels"] = json!({"x": "y"});
    let labelled = api.put(&path, &next).await.expect(200);
    assert_eq!(labelled.body["metadata"]["generation"], 1);
    next["spec"]["size"] = json!(2);
    let stale = api.put(&path, &next).await.expect(409);
    assert_eq!(stale.body["reason"], "Conflict");
    assert!(stale.message().contains("the object has been modified"));
    next["metadata"]["resourceVersion"] = labelled.body["metadata"]["resourceVersion"].clone();
    let moved = api.put(&path, &next).await.expect(200);
    assert_eq!(moved.body["metadata"]["generation"], 2);
    let same = api.put(&path, &moved.body).await.expect(200);
    assert_eq!(same.version(), moved.version(), "an update that changes nothing writes nothing");
    next["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    api.put(&path, &next).await.expect(422);
    let mut foreign = moved.body.clone();
    foreign["metadata"]["uid"] = json!("other");
    api.put(&path, &foreign).await.expect(409);
}

#[tokio::test]
async fn the_status_subresource_changes_status_alone() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({"size": 1}))).await.expect(201);
    let path = format!("{WIDGETS}/a");
    let patched = api
        .merge(&format!("{path}/status"), &json!({"status": {"ready": true}, "spec": {"size": 9}}))
        .await
        .expect(200);
    assert_eq!((&patched.body["status"]["ready"], &patched.body["spec"]["size"]), (&json!(true), &json!(1)));
    assert_eq!(patched.body["metadata"]["generation"], 1);
    let main = api.merge(&path, &json!({"status": {"ready": false}, "spec": {"size": 2}})).await.expect(200);
    assert_eq!((&main.body["status"]["ready"], &main.body["spec"]["size"]), (&json!(true), &json!(2)));
    assert_eq!(main.body["metadata"]["generation"], 2);
    api.merge(&format!("{path}/status"), &json!({"status": {"ready": "x"}})).await.expect(422);
    api.get(&format!("{CONFIGMAPS}/none/status")).await.expect(404);
}

#[tokio::test]
async fn patches_of_all_kinds() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({"size": 1}))).await.expect(201);
    let path = format!("{WIDGETS}/a");
    let good =
        json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "replace", "path": "/spec/size", "value": 5}]);
    assert_eq!(api.patch(&path, "json-patch", &good).await.expect(200).body["spec"]["size"], 5);
    api.patch(&path, "json-patch", &good).await.expect(422);
    let strategic = api.patch(&path, "strategic-merge-patch", &json!({})).await.expect(415);
    assert_eq!(strategic.body["reason"], "UnsupportedMediaType");
    let apply = api.request("PATCH", &path).header("content-type", "application/apply-patch+yaml").body("{}");
    assert!(
        answer(apply).await.expect(422).message().contains("fieldManager: Required value: is required for apply patch")
    );
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"size": 6}});
    api.merge(&path, &stale).await.expect(409);
    let strict = api.merge(&format!("{path}?fieldValidation=Strict"), &json!({"spec": {"x": 1}})).await.expect(422);
    assert!(strict.message().contains("strict decoding error: unknown field \"spec.x\""));
    api.post(CONFIGMAPS, &configmap("c")).await.expect(201);
    let merged = api
        .patch(
            &format!("{CONFIGMAPS}/c"),
            "strategic-merge-patch",
            &json!({"data": {"k": null, "l": "w"}, "metadata": {"finalizers": ["a.b/c"]}}),
        )
        .await
        .expect(200);
    assert_eq!(merged.body["data"], json!({"l": "w"}));
    let more = api
        .patch(&format!("{CONFIGMAPS}/c"), "strategic-merge-patch", &json!({"metadata": {"finalizers": ["a.b/d"]}}))
        .await
        .expect(200);
    assert_eq!(more.body["metadata"]["finalizers"], json!(["a.b/d", "a.b/c"]), "the patch's own come first");
}

#[tokio::test]
async fn racing_patches_are_all_kept() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({"free": {}}))).await.expect(201);
    let path = format!("{WIDGETS}/a");
    let keys: Vec<String> = (0..12).map(|i| format!("k{i}")).collect();
    let all = keys.iter().map(|k| {
        let (api, path) = (&api, &path);
        async move { api.merge(path, &json!({"spec": {"free": {k.clone(): 1}}})).await.expect(200) }
    });
    futures::future::join_all(all).await;
    let free = api.get(&path).await.body["spec"]["free"].clone();
    assert_eq!(free.as_object().unwrap().len(), keys.len());
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_goes() {
    let api = Api::with_kinds().await;
    let mut held = widget("a", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(WIDGETS, &held).await.expect(201);
    let path = format!("{WIDGETS}/a");
    let going = api.delete(&path).await.expect(200);
    assert_eq!(going.body["kind"], "Widget");
    assert!(going.body["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going.body["metadata"]["generation"], 2);
    let again = api.delete(&path).await.expect(200);
    assert_eq!(again.version(), going.version());
    let more = api
        .merge(&path, &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}))
        .await
        .expect(422);
    assert!(more.message().contains("no new finalizers can be added if the object is being deleted"));
    api.merge(&path, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.get(&path).await.expect(404);
}

#[tokio::test]
async fn deletion_answers_preconditions_and_collections() {
    let api = Api::with_kinds().await;
    let made = api.post(WIDGETS, &widget("a", json!({}))).await.expect(201);
    let path = format!("{WIDGETS}/a");
    api.delete_with(&path, &json!({"preconditions": {"uid": "other"}})).await.expect(409);
    api.delete_with(&path, &json!({"preconditions": {"resourceVersion": "1"}})).await.expect(409);
    api.delete_with(&path, &json!({"propagationPolicy": "Sideways"})).await.expect(422);
    api.delete_with(&path, &json!({"dryRun": ["All"]})).await.expect(200);
    let gone =
        api.delete_with(&path, &json!({"preconditions": {"uid": made.body["metadata"]["uid"]}})).await.expect(200);
    assert_eq!(gone.body["status"], "Success");
    assert_eq!(gone.body["details"]["uid"], made.body["metadata"]["uid"]);
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        api.post(WIDGETS, &widget(name, json!({"color": color}))).await.expect(201);
    }
    let deleted = api.delete(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(deleted.body["items"].as_array().unwrap().len(), 2);
    assert_eq!(api.get(WIDGETS).await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn dry_runs_leave_nothing_behind() {
    let api = Api::with_kinds().await;
    let dry = api.post(&format!("{WIDGETS}?dryRun=All"), &widget("a", json!({}))).await.expect(201);
    assert_eq!(dry.body["spec"]["size"], 3);
    assert_eq!(dry.body["metadata"].get("resourceVersion"), None);
    api.get(&format!("{WIDGETS}/a")).await.expect(404);
    api.post(WIDGETS, &widget("a", json!({}))).await.expect(201);
    api.post(&format!("{WIDGETS}?dryRun=All"), &widget("a", json!({}))).await.expect(409);
    let patched = api.merge(&format!("{WIDGETS}/a?dryRun=All"), &json!({"spec": {"size": 7}})).await.expect(200);
    assert_eq!(patched.body["spec"]["size"], 7);
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.body["spec"]["size"], 3);
    api.delete(&format!("{WIDGETS}/a?dryRun=All")).await.expect(200);
    api.get(&format!("{WIDGETS}/a")).await.expect(200);
    api.post(&format!("{WIDGETS}?dryRun=Some"), &widget("b", json!({}))).await.expect(422);
}

#[tokio::test]
async fn versions_share_one_object_and_deprecated_ones_warn() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({"size": 2}))).await.expect(201);
    let old = api.get("/apis/example.com/v1beta1/namespaces/default/widgets/a").await.expect(200);
    assert_eq!((&old.body["apiVersion"], &old.body["spec"]["size"]), (&json!("example.com/v1beta1"), &json!(2)));
    assert_eq!(old.warnings, ["299 - \"example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget\""]);
}

#[tokio::test]
async fn secrets_and_configmaps_follow_their_rules() {
    let api = Api::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}, "immutable": true});
    let made = api.post(secrets, &secret).await.expect(201);
    assert_eq!((&made.body["data"]["a"], &made.body["type"]), (&json!("Yg=="), &json!("Opaque")));
    assert_eq!(made.body.get("stringData"), None);
    let changed = api.merge(&format!("{secrets}/s"), &json!({"stringData": {"a": "c"}})).await.expect(422);
    assert!(changed.message().contains("field is immutable when `immutable` is set"));
    let typed = api.merge(&format!("{secrets}/s"), &json!({"type": "other"})).await.expect(422);
    assert!(typed.message().contains("type: Invalid value: \"other\": field is immutable"));
    let bad = api.post(secrets, &json!({"metadata": {"name": "t"}, "data": {"a": "%"}})).await.expect(400);
    assert!(bad.message().contains("illegal base64 data"));
    let wrong = api.post(CONFIGMAPS, &json!({"metadata": {"name": "t"}, "data": {"a": 1}})).await.expect(400);
    assert!(
        wrong.message().contains("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        "{}",
        wrong.message()
    );
    let named = api.post(CONFIGMAPS, &json!({"metadata": {"generateName": "gen-"}})).await.expect(201);
    assert!(named.body["metadata"]["name"].as_str().unwrap().starts_with("gen-"));
    api.post(CONFIGMAPS, &json!({"metadata": {}})).await.expect(422);
}

#[tokio::test]
async fn events_are_one_storage_under_two_groups() {
    let api = Api::start().await;
    let event = json!({"metadata": {"name": "e", "namespace": "default"}, "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "note": "text",
        "regarding": {"kind": "Widget", "name": "w", "namespace": "default"}});
    api.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await.expect(201);
    let core = api
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dw,involvedObject.kind%3DWidget")
        .await
        .expect(200);
    let found = &core.body["items"][0];
    // Items of own kinds do not name themselves.
    assert_eq!((&found["message"], &found["kind"]), (&json!("text"), &Value::Null));
    assert_eq!(core.body["kind"], "EventList");
    let none = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dx").await.expect(200);
    assert_eq!(none.body["items"], json!([]));
    let mut incomplete = event;
    incomplete["metadata"]["name"] = json!("f");
    incomplete.as_object_mut().unwrap().remove("reason");
    api.post("/apis/events.k8s.io/v1/namespaces/default/events", &incomplete).await.expect(422);
}

#[tokio::test]
async fn yaml_goes_in_and_comes_out() {
    let api = Api::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yam}\ndata: {a: 'true'}\n";
    let posted = api.request("POST", CONFIGMAPS).header("content-type", "application/yaml").body(text);
    answer(posted).await.expect(201);
    let yaml = api.get_as(&format!("{CONFIGMAPS}/yam"), "application/yaml").await.expect(200);
    let back: Value = serde_saphyr::from_str(&yaml.text).unwrap();
    assert_eq!(back["data"], json!({"a": "true"}));
    let protobuf = "application/vnd.kubernetes.protobuf";
    let missing = api.get_as(&format!("{CONFIGMAPS}/y"), protobuf).await.expect(404);
    assert_eq!(missing.headers["content-type"], protobuf);
    assert!(missing.text.starts_with("k8s\0") && missing.text.contains("NotFound"));
    let table = format!("{protobuf};as=Table;g=meta.k8s.io;v=v1");
    let refused = api.get_as(&format!("{CONFIGMAPS}/yam"), &table).await.expect(406);
    assert_eq!(refused.headers["content-type"], "application/json");
}

#[tokio::test]
async fn who_may_ask_is_checked() {
    let api = Api::start().await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        answer(api.raw("GET", path)).await.expect(200);
    }
    let nobody = answer(api.raw("GET", "/api/v1/namespaces")).await.expect(403);
    assert_eq!(
        nobody.message(),
        "namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \"\" at the \
         cluster scope"
    );
    answer(api.raw("GET", "/apis/none.example.com/v1/things")).await.expect(403);
    answer(api.raw("GET", "/healthz").bearer_auth("wrong")).await.expect(401);
    api.get("/api/v1/namespaces").await.expect(200);
    let named = api.request("GET", "/api/v1/namespaces").header("Audit-ID", "mine");
    assert_eq!(answer(named).await.expect(200).headers["audit-id"], "mine");
    let given = api.get("/api/v1/namespaces").await.expect(200).headers["audit-id"].clone();
    let audit = std::fs::read_to_string(api.dir.path().join("audit.log")).unwrap();
    let last: Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["auditID"], &last["verb"], &last["objectRef"], &last["user"]["username"], &last["responseStatus"]),
        (
            &json!(given.to_str().unwrap()),
            &json!("list"),
            &json!({"resource": "namespaces", "apiVersion": "v1"}),
            &json!("admin"),
            &json!({"metadata": {}, "code": 200})
        )
    );
    assert_eq!(last["annotations"]["authorization.k8s.io/decision"], "allow");
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let api = Api::with_kinds().await;
    let made = api.post(WIDGETS, &widget("a", json!({"size": 2}))).await.expect(201);
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    let found = api.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!(found.body, made.body);
    let later = api.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"size": 4}})).await.expect(200);
    assert!(later.version() > made.version());
}

#[tokio::test]
async fn a_folder_belongs_to_one_server() {
    let api = Api::start().await;
    for file in ["store.db", "store.db-wal", "pki/ca.key"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(api.dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} can be read by others");
    }
    let error = apiserver::Server::start(common::config(api.dir.path())).await.err().unwrap();
    assert!(error.to_string().contains("is in use by another server"), "{error}");
}

#[tokio::test]
async fn hostile_documents_are_refused() {
    let api = Api::start().await;
    let deep_block = format!("{}a\n", "- ".repeat(50_000));
    let deep_flow = "[".repeat(100_000);
    let deep_keys: String = (0..1500).map(|i| format!("{}k:\n", " ".repeat(i))).collect();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")));
    }
    for text in [deep_block, deep_flow, deep_keys, bomb, "\u{0}".to_owned(), "a: b: c".to_owned()] {
        let posted = api.request("POST", CONFIGMAPS).header("content-type", "application/yaml").body(text);
        answer(posted).await.expect(400);
    }
    let deep = format!("{{\"data\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let posted = api.request("POST", CONFIGMAPS).header("content-type", "application/json").body(deep.clone());
    answer(posted).await.expect(400);
    let merged = api
        .request("PATCH", &format!("{CONFIGMAPS}/x"))
        .header("content-type", "application/merge-patch+json")
        .body(deep);
    answer(merged).await.expect(400);
    let posted =
        api.request("POST", CONFIGMAPS).header("content-type", "application/json").body(vec![b'"', 0xff, b'"']);
    answer(posted).await.expect(400);
    api.get("/api/v1/namespaces").await.expect(200);
}

#[tokio::test]
async fn changes_of_annotations_that_consent_are_logged_with_who_and_what() {
    const KEY: &str = "example.com/consent";
    let api = Api::start().await;
    api.server.audit_annotations(&[KEY]);
    let at = format!("{CONFIGMAPS}/a");
    let consent = |value: Value| json!({"metadata": {"annotations": {KEY: value, "example.com/other": "x"}}});
    let mut made = configmap("a");
    made["metadata"]["annotations"] = json!({KEY: "one"});
    api.post(CONFIGMAPS, &made).await.expect(201);
    api.merge(&format!("{at}?dryRun=All"), &consent(json!("tried"))).await.expect(200);
    for value in [json!("two"), json!("two"), Value::Null] {
        api.merge(&at, &consent(value)).await.expect(200);
    }
    let audit = std::fs::read_to_string(api.dir.path().join("audit.log")).unwrap();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged: Vec<(String, String, String)> = lines
        .filter_map(|line| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let change = line["annotations"].get(KEY)?;
            Some((text(&line["user"]["username"]), text(&line["verb"]), text(change)))
        })
        .collect();
    let row = |verb: &str, change: &str| ("admin".to_owned(), verb.to_owned(), change.to_owned());
    let wanted =
        [row("create", "nothing -> \"one\""), row("patch", "\"one\" -> \"two\""), row("patch", "\"two\" -> nothing")];
    assert_eq!(logged, wanted);
}
