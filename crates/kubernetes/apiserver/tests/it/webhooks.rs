//! Admission webhooks on the embedded API: what they are asked, what becomes of what they say.

use crate::common::{Api, CONFIGMAPS, WIDGETS, answer, configmap, widget};
use crate::hooks::{Hooks, allow, configuration, patch};
use serde_json::{Value, json};

async fn configure(api: &Api, kind: &str, name: &str, hooks: &[Value]) {
    let (path, object) = configuration(kind, name, hooks);
    api.post(&path, &object).await.expect(201);
}

#[tokio::test]
async fn a_mutating_webhook_sees_what_was_sent_and_changes_it() {
    let api = Api::start().await;
    let hooks = Hooks::start(|_, review| {
        let object = &review["request"]["object"];
        patch(
            review,
            &json!([{"op": "add", "path": "/data/seen", "value": object["data"]["k"]},
            {"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]),
        )
    })
    .await;
    configure(&api, "Mutating", "m", &[hooks.hook("/m", "", &["configmaps"], json!({}))]).await;
    let query = format!("{CONFIGMAPS}?fieldManager=me&fieldValidation=Strict");
    let made = api.post(&query, &configmap("a")).await.expect(201);
    assert_eq!((&made.body["data"]["seen"], &made.body["metadata"]["labels"]["by"]), (&json!("v"), &json!("hook")));
    let review = hooks.asked("/m").remove(0);
    assert_eq!((&review["kind"], &review["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));
    let request = &review["request"];
    let gvk = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let gvr = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (key, wanted) in [("kind", &gvk), ("requestKind", &gvk), ("resource", &gvr), ("requestResource", &gvr)] {
        assert_eq!(&request[key], wanted, "{key}");
    }
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!((&request["oldObject"], &request["userInfo"]["username"]), (&Value::Null, &json!("admin")));
    let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
        "fieldValidation": "Strict"});
    assert_eq!(request["options"], options);
    assert_eq!(request["object"]["kind"], "ConfigMap");
    assert!(request["object"]["metadata"].get("uid").is_none(), "the server's own fields come later");
    // An update shows both states.
    api.merge(&format!("{CONFIGMAPS}/a"), &json!({"data": {"k": "w"}})).await.expect(200);
    let request = hooks.asked("/m").remove(1)["request"].clone();
    assert_eq!((&request["operation"], &request["options"]["kind"]), (&json!("UPDATE"), &json!("UpdateOptions")));
    assert_eq!((&request["oldObject"]["data"]["k"], &request["object"]["data"]["k"]), (&json!("v"), &json!("w")));
    assert_eq!(hooks.connections(), 1, "the connection is used again");
}

#[tokio::test]
async fn refusals_warnings_and_codes_are_passed_on() {
    let api = Api::start().await;
    let hooks = Hooks::start(|_, review| {
        let request = &review["request"];
        let uid = request["uid"].clone();
        let status = match request["object"]["data"]["k"].as_str() {
            Some("fine") => return allow(review, json!({"warnings": ["mind the gap"]})),
            Some("bare") => Value::Null,
            _ => json!({"code": 403, "message": "no such thing", "reason": "Forbidden"}),
        };
        let response = json!({"uid": uid, "allowed": false, "status": status, "warnings": ["so be it"]});
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Some((200, answer.to_string()))
    })
    .await;
    configure(&api, "Validating", "v", &[hooks.hook("/v", "", &["configmaps"], json!({}))]).await;
    let with = |k: &str| {
        let mut object = configmap("a");
        object["data"]["k"] = json!(k);
        object
    };
    let refused = api.post(CONFIGMAPS, &with("bad")).await.expect(403);
    assert_eq!(
        refused.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "admission webhook \"v.hooks.example.com\" denied the request: no such thing",
            "reason": "Forbidden", "code": 403})
    );
    assert_eq!(refused.warnings, ["299 - \"so be it\""]);
    let bare = api.post(CONFIGMAPS, &with("bare")).await.expect(400);
    assert_eq!(bare.message(), "admission webhook \"v.hooks.example.com\" denied the request without explanation");
    let fine = api.post(CONFIGMAPS, &with("fine")).await.expect(201);
    assert_eq!(fine.warnings, ["299 - \"mind the gap\""]);
    let seen = hooks.asked("/v").pop().unwrap();
    assert_eq!(seen["request"]["object"]["metadata"]["uid"], fine.body["metadata"]["uid"], "what would be stored");
    // A deletion shows the old object only; one of a collection has no name.
    api.delete(&format!("{CONFIGMAPS}/a")).await.expect(403);
    let request = hooks.asked("/v").pop().unwrap()["request"].clone();
    assert_eq!(
        (&request["operation"], &request["object"], &request["name"]),
        (&json!("DELETE"), &Value::Null, &json!("a"))
    );
    assert_eq!(request["oldObject"]["data"]["k"], "fine");
    assert_eq!(request["options"]["kind"], "DeleteOptions");
    api.delete(CONFIGMAPS).await.expect(403);
    assert!(hooks.asked("/v").pop().unwrap()["request"].get("name").is_none());
    api.get(&format!("{CONFIGMAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn failures_follow_the_policy_with_upstreams_texts() {
    let api = Api::start().await;
    let hooks = Hooks::start(|path, review| match path {
        "/slow" => None,
        "/rubbish" => Some((200, "rubbish".to_owned())),
        "/broken" => Some((500, "boom".to_owned())),
        "/patches" => patch(review, &json!([])),
        "/other" => Some((
            200,
            json!({"apiVersion": "v1", "kind": "X", "response": {"uid": review["request"]["uid"]}}).to_string(),
        )),
        _ => allow(review, json!({})),
    })
    .await;
    let message = |path: &str, why: &str| {
        let name = path.trim_start_matches('/');
        format!("Internal error occurred: failed calling webhook \"{name}.hooks.example.com\": {why}")
    };
    let url = |path: &str| format!("https://127.0.0.1:{}{path}?timeout=1s", hooks.port);
    let cases = [
        ("/slow", format!("failed to call webhook: Post \"{}\": context deadline exceeded", url("/slow"))),
        (
            "/rubbish",
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'r' looking for \
             beginning of value"
                .to_owned(),
        ),
        (
            "/broken",
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding".to_owned(),
        ),
        ("/patches", "received invalid webhook response: validating webhook may not return response.patch".to_owned()),
        (
            "/other",
            "failed to call webhook: no kind \"X\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:110\""
                .to_owned(),
        ),
    ];
    for (path, why) in cases {
        let mut hook = hooks.hook(path, "", &["configmaps"], json!({"timeoutSeconds": 1}));
        configure(&api, "Validating", "f", std::slice::from_ref(&hook)).await;
        let failed = api.post(CONFIGMAPS, &configmap("x")).await.expect(500);
        assert_eq!((failed.message(), &failed.body["reason"]), (message(path, &why).as_str(), &json!("InternalError")));
        hook["failurePolicy"] = json!("Ignore");
        let (list, _) = configuration("Validating", "f", &[]);
        api.merge(&format!("{list}/f"), &json!({"webhooks": [hook]})).await.expect(200);
        api.post(CONFIGMAPS, &configmap("x")).await.expect(201);
        api.delete(&format!("{CONFIGMAPS}/x")).await.expect(200);
        api.delete(&format!("{list}/f")).await.expect(200);
    }
    // A certificate of an unknown authority, and a port where nobody listens.
    let mut hook = hooks.hook("/ok", "", &["configmaps"], json!({"timeoutSeconds": 1}));
    let other = Hooks::start(|_, _| None).await;
    hook["clientConfig"]["caBundle"] = other.client("/")["caBundle"].clone();
    configure(&api, "Validating", "f", std::slice::from_ref(&hook)).await;
    let failed = api.post(CONFIGMAPS, &configmap("x")).await.expect(500);
    let why = format!(
        "failed to call webhook: Post \"{}\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
        url("/ok")
    );
    assert_eq!(failed.message(), message("/ok", &why));
}

#[tokio::test]
async fn selectors_rules_and_versions_decide_who_is_asked() {
    let api = Api::with_kinds().await;
    let hooks = Hooks::start(|_, review| allow(review, json!({}))).await;
    let of = |path: &str, more: Value| hooks.hook(path, "example.com", &["widgets"], more);
    let rule = |operations: &[&str], resources: &[&str], scope: &str| {
        json!({"rules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources,
            "scope": scope}]})
    };
    configure(
        &api,
        "Validating",
        "v",
        &[
            of("/equivalent", json!({})),
            of("/exact", json!({"matchPolicy": "Exact"})),
            of("/label", json!({"objectSelector": {"matchLabels": {"a": "b"}}})),
            of("/ns", json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}})),
            of("/otherns", json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}})),
            of("/status", rule(&["UPDATE"], &["*/status"], "*")),
            of("/cluster", rule(&["*"], &["*"], "Cluster")),
        ],
    )
    .await;
    let old = WIDGETS.replace("/v1/", "/v1beta1/");
    let mut object = widget("w", json!({"size": 2}));
    object["apiVersion"] = json!("example.com/v1beta1");
    api.post(&old, &object).await.expect(201);
    let mut paths = hooks.paths();
    paths.sort();
    assert_eq!(paths, ["/equivalent", "/ns"]);
    let request = hooks.asked("/equivalent").remove(0)["request"].clone();
    assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v1beta1")));
    assert_eq!(request["object"]["apiVersion"], "example.com/v1");
    // The status is another resource.
    api.merge(&format!("{WIDGETS}/w/status"), &json!({"status": {"ready": true}})).await.expect(200);
    assert_eq!(hooks.asked("/status")[0]["request"]["subResource"], "status");
    assert_eq!(hooks.asked("/equivalent").len(), 1);
    // Namespaces are of the cluster, with themselves as namespace.
    let ns = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    api.post("/api/v1/namespaces", &ns).await.expect(201);
    assert_eq!(hooks.asked("/cluster")[0]["request"]["namespace"], "n");
}

#[tokio::test]
async fn webhooks_come_in_order_and_again_if_they_want() {
    let api = Api::start().await;
    let hooks = Hooks::start(|path, review| {
        let data = &review["request"]["object"]["data"];
        match path {
            "/first" => allow(review, json!({})),
            "/second" if data.get("second").is_none() => {
                patch(review, &json!([{"op": "add", "path": "/data/second", "value": "2"}]))
            }
            _ => allow(review, json!({})),
        }
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(&api, "Mutating", "b", &[hooks.hook("/second", "", &["configmaps"], json!({}))]).await;
    configure(&api, "Mutating", "a", &[hooks.hook("/first", "", &["configmaps"], again)]).await;
    configure(&api, "Mutating", "c", &[hooks.hook("/third", "", &["configmaps"], json!({}))]).await;
    api.post(CONFIGMAPS, &configmap("a")).await.expect(201);
    assert_eq!(hooks.paths(), ["/first", "/second", "/third", "/first"]);
    let last = hooks.asked("/first").pop().unwrap();
    assert_eq!(last["request"]["object"]["data"]["second"], "2");
}

#[tokio::test]
async fn dry_runs_generated_names_and_the_configurations_themselves() {
    let api = Api::start().await;
    let hooks = Hooks::start(|_, review| match review["request"]["object"]["metadata"]["name"].as_str() {
        Some("bad") => Some((200, String::new())),
        _ => allow(review, json!({})),
    })
    .await;
    let everything =
        json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    configure(&api, "Mutating", "m", &[hooks.hook("/m", "", &["x"], everything.clone())]).await;
    configure(&api, "Validating", "v", &[hooks.hook("/v", "", &["x"], everything)]).await;
    assert!(hooks.paths().is_empty(), "configurations are exempt");
    let dry = format!("{CONFIGMAPS}?dryRun=All");
    api.post(&dry, &configmap("a")).await.expect(201);
    assert_eq!(hooks.asked("/v")[0]["request"]["dryRun"], true);
    assert_eq!(hooks.asked("/v")[0]["request"]["options"]["dryRun"], json!(["All"]));
    let mut generated = configmap("");
    generated["metadata"] = json!({"generateName": "gen-"});
    let made = api.post(CONFIGMAPS, &generated).await.expect(201);
    assert!(hooks.asked("/m")[1]["request"].get("name").is_none());
    assert_eq!(hooks.asked("/v")[1]["request"]["name"], made.body["metadata"]["name"]);
    let empty = api.post(CONFIGMAPS, &configmap("bad")).await.expect(500);
    let text = "0-length response with status code: 200 and content type: application/json";
    assert!(empty.message().ends_with(text), "{}", empty.text);
    // Nobody is asked about a namespace that is not there.
    let before = hooks.paths().len();
    api.post("/api/v1/namespaces/none/configmaps", &configmap("a")).await.expect(404);
    assert_eq!(hooks.paths().len(), before);
}

#[tokio::test]
async fn configurations_are_checked_and_completed() {
    let api = Api::start().await;
    let (path, mut object) = configuration(
        "Validating",
        "v",
        &[json!({"name": "a.b.c", "sideEffects": "Some",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://x/"}})],
    );
    let refused = api.post(&path, &object).await.expect(422);
    assert_eq!(
        refused.message(),
        "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"v\" is invalid: webhooks[0].sideEffects: \
         Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\""
    );
    object["webhooks"][0]["sideEffects"] = json!("None");
    let made = api.post(&path, &object).await.expect(201);
    assert_eq!(
        (&made.body["webhooks"][0]["failurePolicy"], &made.body["metadata"]["generation"]),
        (&json!("Fail"), &json!(1))
    );
    let mut blind = made.body.clone();
    blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    api.put(&format!("{path}/v"), &blind).await.expect(422);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = api.merge(&format!("{path}/v"), &label).await.expect(200);
    assert_eq!(labelled.body["metadata"]["generation"], 1);
    let _ = answer(api.request("GET", &path)).await.expect(200);
}

#[tokio::test]
async fn services_are_found_through_slices_and_endpoints() {
    let api = Api::start().await;
    let hooks = Hooks::start(|_, review| allow(review, json!({}))).await;
    let mut hook = hooks.hook("/s", "", &["configmaps"], json!({}));
    hook["clientConfig"] = json!({"caBundle": hook["clientConfig"]["caBundle"],
        "service": {"namespace": "default", "name": "hook", "path": "/s", "port": 8443}});
    configure(&api, "Validating", "s", &[hook]).await;
    let message = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"s.hooks.example.com\": failed to call webhook: Post \
             \"https://hook.default.svc:8443/s?timeout=10s\": {why}"
        )
    };
    let missing = api.post(CONFIGMAPS, &configmap("a")).await.expect(500);
    assert_eq!(missing.message(), message("service \"hook\" not found"));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 8443, "protocol": "TCP", "targetPort": 9}]}});
    api.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let nobody = api.post(CONFIGMAPS, &configmap("a")).await.expect(500);
    assert_eq!(nobody.message(), message("no endpoints available for service \"hook\""));
    // Where an endpoint is found is tested beside the code: neither kind takes the addresses of the loopback.
    assert!(hooks.paths().is_empty());
}
