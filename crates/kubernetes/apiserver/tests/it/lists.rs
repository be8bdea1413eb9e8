//! Lists, watches and tables, driven without a Kubernetes client.

use std::time::Duration;

use crate::common::{self, Api, CONFIGMAPS, SECRETS, WIDGETS, configmap, secret, widget};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";

/// A running watch.
struct Stream {
    response: reqwest::Response,
    rest: Vec<u8>,
}

impl Stream {
    async fn open(api: &Api, path: &str, accept: &str) -> Self {
        let response = api.request("GET", path).header("accept", accept).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        Self { response, rest: Vec::new() }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk =
                tokio::time::timeout(Duration::from_secs(20), self.response.chunk()).await.expect("no event came");
            self.rest.extend_from_slice(&chunk.unwrap()?);
        }
    }

    async fn named(&mut self) -> (String, String) {
        let event = self.next().await.expect("the watch ended");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (event["type"].as_str().unwrap().to_owned(), name)
    }
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn pages_are_consistent_while_others_write() {
    let api = Api::with_kinds().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.post(SECRETS, &secret(name)).await.expect(201);
    }
    let first = api.get(&format!("{SECRETS}?limit=2")).await.expect(200);
    assert_eq!(first.body["metadata"]["remainingItemCount"], 3);
    api.delete(&format!("{SECRETS}/d")).await.expect(200);
    api.post(SECRETS, &secret("bb")).await.expect(201);
    let mut names: Vec<String> = Vec::new();
    let mut page = first;
    loop {
        names.extend(
            page.body["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        let Some(token) = page.body["metadata"]["continue"].as_str() else { break };
        page = api.get(&format!("{SECRETS}?limit=2&continue={token}")).await.expect(200);
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    api.get(&format!("{SECRETS}?limit=2&continue=rubbish")).await.expect(400);
    api.get(&format!("{SECRETS}?limit=x")).await.expect(400);
}

#[tokio::test]
async fn versions_of_lists_mean_what_they_say() {
    let api = Api::start().await;
    let first = api.post(SECRETS, &secret("a")).await.expect(201).version();
    api.post(SECRETS, &secret("b")).await.expect(201);
    let count = |a: common::Answer| a.expect(200).body["items"].as_array().unwrap().len();
    assert_eq!(count(api.get(&format!("{SECRETS}?resourceVersion={first}&resourceVersionMatch=Exact")).await), 1);
    assert_eq!(
        count(api.get(&format!("{SECRETS}?resourceVersion={first}&resourceVersionMatch=NotOlderThan")).await),
        2
    );
    assert_eq!(count(api.get(&format!("{SECRETS}?resourceVersion=0")).await), 2);
    let future = api.get(&format!("{SECRETS}?resourceVersion=1000000")).await.expect(504);
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    api.get(&format!("{SECRETS}?resourceVersion=x")).await.expect(400);
    api.get(&format!("{CONFIGMAPS}?resourceVersionMatch=Exact")).await.expect(422);
    assert_eq!(future.body["details"]["retryAfterSeconds"], 1);
    assert_eq!(future.headers["retry-after"], "1");
}

#[tokio::test]
async fn namespaces_are_listed_in_the_order_of_their_keys() {
    let api = Api::start().await;
    for ns in ["x", "x-y"] {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
        api.post("/api/v1/namespaces", &space).await.expect(201);
        let path = format!("/api/v1/namespaces/{ns}/secrets");
        api.post(&path, &secret("a")).await.expect(201);
        api.post(&path, &secret("a.b")).await.expect(201);
    }
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = api.get(&format!("/api/v1/secrets?limit=1&continue={token}")).await.expect(200);
        for item in page.body["items"].as_array().unwrap() {
            let meta = &item["metadata"];
            if meta["namespace"].as_str().unwrap().starts_with('x') {
                found.push(format!("{}/{}", meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap()));
            }
        }
        match page.body["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, ["x-y/a", "x-y/a.b", "x/a", "x/a.b"]);
}

#[tokio::test]
async fn a_list_larger_than_a_part_comes_whole_and_compressed() {
    let api = Api::start().await;
    for i in 0..12 {
        let mut object = secret(&format!("c{i:02}"));
        object["data"]["k"] = json!("x".repeat(200_000));
        api.post(SECRETS, &object).await.expect(201);
    }
    let rows = |body: &Value, key: &str| body[key].as_array().unwrap().len();
    let plain = api.get(SECRETS).await.expect(200).body;
    assert_eq!((rows(&plain, "items"), plain["kind"].as_str()), (12, Some("SecretList")));
    let paged = api.get(&format!("{SECRETS}?limit=11")).await.expect(200).body;
    assert_eq!((rows(&paged, "items"), &paged["metadata"]["remainingItemCount"]), (11, &json!(1)));
    assert!(paged["metadata"]["continue"].is_string());
    assert_eq!(rows(&api.get_as(SECRETS, TABLE).await.expect(200).body, "rows"), 12);
    let packed = common::answer(api.request("GET", SECRETS).header("accept-encoding", "gzip")).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.text.len() < 100_000);
}

#[tokio::test]
async fn a_token_whose_revision_is_gone_offers_another() {
    let api = Api::start().await;
    for name in ["a", "b", "c"] {
        api.post(SECRETS, &secret(name)).await.expect(201);
    }
    let page = api.get(&format!("{SECRETS}?limit=1")).await.expect(200);
    let token = page.body["metadata"]["continue"].as_str().unwrap().to_owned();
    api.post(SECRETS, &secret("d")).await.expect(201);
    let rest = api.get(&format!("{SECRETS}?continue={token}")).await.expect(200);
    assert_eq!(rest.body["items"].as_array().unwrap().len(), 2);
    api.merge(&format!("{SECRETS}/d"), &json!({"data": {"k": "dw=="}})).await.expect(200);
    api.server.forget_history().await;
    let gone = api.get(&format!("{SECRETS}?limit=1&continue={token}")).await.expect(410);
    assert_eq!(gone.body["reason"], "Expired");
    let other = gone.body["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{SECRETS}?continue={other}")).await.expect(200);
    assert_eq!(rest.body["items"].as_array().unwrap().len(), 3);
    let old = page.version() - 1;
    let gone = api.get(&format!("{SECRETS}?resourceVersion={old}&resourceVersionMatch=Exact")).await.expect(410);
    assert_eq!(gone.message(), "The resourceVersion for the provided list is too old.");
}

#[tokio::test]
async fn a_deletion_by_selection_shows_the_object_as_it_was_selected() {
    let api = Api::with_kinds().await;
    let rev = api.get(WIDGETS).await.version();
    let path = format!("{WIDGETS}?watch=1&resourceVersion={rev}&fieldSelector=spec.color%3Dred");
    let mut red = Stream::open(&api, &path, "application/json").await;
    api.post(WIDGETS, &widget("a", json!({"color": "red"}))).await.expect(201);
    let left = api.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"color": "blue"}})).await.expect(200).version();
    assert_eq!(red.named().await, event("ADDED", "a"));
    let gone = red.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["spec"]["color"]), (&json!("DELETED"), &json!("red")));
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left.to_string());
}

#[tokio::test]
async fn a_watch_of_the_future_waits_and_with_initial_events_is_refused_in_the_stream() {
    let api = Api::start().await;
    let path = format!("{SECRETS}?watch=1&resourceVersion=100000");
    let mut quiet = Stream::open(&api, &format!("{path}&timeoutSeconds=1"), "application/json").await;
    api.post(SECRETS, &secret("a")).await.expect(201);
    assert_eq!(quiet.next().await, None);
    let path = format!("{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut refused = Stream::open(&api, &path, "application/json").await;
    let first = refused.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["code"]), (&json!("ERROR"), &json!(504)));
    assert_eq!(refused.next().await, None);
}

#[tokio::test]
async fn a_bookmark_ends_the_initial_events_of_a_plain_watch_and_comes_before_its_end() {
    let api = Api::start().await;
    let rev = api.post(SECRETS, &secret("a")).await.expect(201).version();
    let path = format!("{SECRETS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3");
    let mut stream = Stream::open(&api, &path, "application/json").await;
    assert_eq!(stream.named().await, event("ADDED", "a"));
    let first = stream.next().await.unwrap();
    assert_eq!(first["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let last = stream.next().await.unwrap();
    assert_eq!(last["type"], "BOOKMARK");
    assert!(last["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() >= rev);
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_watch_shows_what_happens_after_its_version() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("old", json!({}))).await.expect(201);
    let rev = api.get(WIDGETS).await.version();
    let mut all = Stream::open(&api, &format!("{WIDGETS}?watch=1&resourceVersion={rev}"), "application/json").await;
    let mut red = Stream::open(
        &api,
        &format!("{WIDGETS}?watch=1&resourceVersion={rev}&labelSelector=l%3Dred"),
        "application/json",
    )
    .await;
    api.post(WIDGETS, &widget("a", json!({}))).await.expect(201);
    api.merge(&format!("{WIDGETS}/a"), &json!({"metadata": {"labels": {"l": "red"}}})).await.expect(200);
    api.merge(&format!("{WIDGETS}/a"), &json!({"metadata": {"labels": {"l": "blue"}}})).await.expect(200);
    api.delete(&format!("{WIDGETS}/a")).await.expect(200);
    for wanted in [event("ADDED", "a"), event("MODIFIED", "a"), event("MODIFIED", "a"), event("DELETED", "a")] {
        assert_eq!(all.named().await, wanted);
    }
    assert_eq!(red.named().await, event("ADDED", "a"));
    assert_eq!(red.named().await, event("DELETED", "a"));
    let mut present = Stream::open(&api, &format!("{WIDGETS}?watch=1"), "application/json").await;
    assert_eq!(present.named().await, event("ADDED", "old"));
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({}))).await.expect(201);
    let path = format!("{WIDGETS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true");
    api.get(&path).await.expect(422);
    let mut stream = Stream::open(&api, &format!("{path}&resourceVersionMatch=NotOlderThan"), "application/json").await;
    assert_eq!(stream.named().await, event("ADDED", "a"));
    let mark = stream.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    api.post(WIDGETS, &widget("b", json!({}))).await.expect(201);
    assert_eq!(stream.named().await, event("ADDED", "b"));
}

#[tokio::test]
async fn watches_end_in_time_and_with_the_server() {
    let api = Api::start().await;
    let mut short = Stream::open(&api, "/api/v1/secrets?watch=1&timeoutSeconds=1", "application/json").await;
    assert_eq!(short.next().await, None);
    let mut long = Stream::open(&api, "/api/v1/secrets?watch=1", "application/json").await;
    api.server.shutdown().await;
    assert_eq!(long.next().await, None);
}

#[tokio::test]
async fn a_client_that_never_finishes_does_not_hold_up_the_end() {
    let api = Api::start().await;
    let mut half = tokio::net::TcpStream::connect(api.server.local_addr()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut half, &[0x16, 3, 1]).await.unwrap();
    api.get("/version").await.expect(200);
    let Api { server, dir, .. } = api;
    tokio::time::timeout(Duration::from_secs(15), server.shutdown()).await.expect("the end did not come");
    Api::start_in(dir).await.get("/version").await.expect(200);
    drop(half);
}

#[tokio::test]
async fn a_watch_survives_a_restart_of_the_server() {
    let api = Api::start().await;
    let rev = api.post(SECRETS, &secret("a")).await.expect(201).version();
    api.post(SECRETS, &secret("b")).await.expect(201);
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    let mut stream = Stream::open(&api, &format!("{SECRETS}?watch=1&resourceVersion={rev}"), "application/json").await;
    assert_eq!(stream.named().await, event("ADDED", "b"));
}

#[tokio::test]
async fn tables_and_partial_metadata() {
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("a", json!({"color": "red"}))).await.expect(201);
    let table = api.get_as(WIDGETS, TABLE).await.expect(200).body;
    assert_eq!(table["kind"], "Table");
    let names: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Size", "Color"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "red"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = api.get_as(&format!("{WIDGETS}?includeObject=Object"), TABLE).await.expect(200).body;
    assert_eq!(whole["rows"][0]["object"]["spec"]["color"], "red");
    let partial = api.get_as(&format!("{WIDGETS}/a"), PARTIAL).await.expect(200).body;
    assert_eq!(partial["kind"], "PartialObjectMetadata");
    assert_eq!((partial.get("spec"), &partial["metadata"]["name"]), (None, &json!("a")));
    let mut stream = Stream::open(&api, &format!("{WIDGETS}?watch=1"), TABLE).await;
    let first = stream.next().await.unwrap();
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    assert!(first["object"]["columnDefinitions"].is_array());
    api.post(WIDGETS, &widget("b", json!({}))).await.expect(201);
    assert!(stream.next().await.unwrap()["object"]["columnDefinitions"].is_null());
    let spaces = api.get_as("/api/v1/namespaces", TABLE).await.expect(200).body;
    assert_eq!(spaces["rows"][0]["cells"][1], "Active");
}

#[tokio::test]
async fn selectors_select_and_bad_ones_are_refused() {
    let api = Api::with_kinds().await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let mut object = widget(name, json!({"color": color}));
        object["metadata"]["labels"] = json!({"app": name});
        api.post(WIDGETS, &object).await.expect(201);
    }
    for (query, count) in [
        ("labelSelector=app%20in%20(a,b)", 2),
        ("labelSelector=app%3Da", 1),
        ("labelSelector=!app", 0),
        ("fieldSelector=spec.color%3Dblue", 1),
        ("fieldSelector=metadata.name%3Da", 1),
        ("fieldSelector=metadata.name!%3Da", 1),
    ] {
        let found = api.get(&format!("{WIDGETS}?{query}")).await.expect(200);
        assert_eq!(found.body["items"].as_array().unwrap().len(), count, "{query}");
    }
    let unknown = api.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await.expect(400);
    assert!(unknown.message().contains("field label not supported: spec.size"));
    api.get(&format!("{WIDGETS}?labelSelector=a%20in%20b")).await.expect(400);
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_can() {
    let api = Api::start().await;
    for i in 0..4 {
        let mut object = secret(&format!("c{i}"));
        object["data"]["k"] = json!("x".repeat(100_000));
        api.post(SECRETS, &object).await.expect(201);
    }
    let packed = common::answer(api.request("GET", SECRETS).header("accept-encoding", "gzip")).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.text.len() < 50_000);
    assert!(api.get(SECRETS).await.headers.get("content-encoding").is_none());
}

#[tokio::test]
async fn discovery_in_both_forms() {
    let api = Api::with_kinds().await;
    let groups = api.get("/apis").await.expect(200).body;
    let example = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "example.com").unwrap().clone();
    assert_eq!(example["preferredVersion"]["version"], "v1");
    let list = api.get("/apis/example.com/v1").await.expect(200).body;
    let names: Vec<&str> = list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/status"]);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let all = api.get_as("/apis", aggregated).await.expect(200);
    assert!(all.headers["content-type"].to_str().unwrap().contains("APIGroupDiscoveryList"));
    assert!(all.body["items"].as_array().unwrap().iter().any(|g| g["metadata"]["name"] == "metal3.io"));
    assert_eq!(api.get("/version").await.expect(200).body["major"], "1");
    api.get("/apis/none.example.com/v1").await.expect(404);
    api.get("/api/v1/pods").await.expect(404);
    let v3 = api.get("/openapi/v3").await.expect(200).body;
    let url = v3["paths"]["apis/metal3.io/v1alpha1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = api.get(&url).await.expect(200).body;
    assert!(document["components"]["schemas"]["io.metal3.v1alpha1.BareMetalHost"]["properties"]["spec"].is_object());
    let v2 = api.get_as("/openapi/v2", "application/json").await.expect(200).body;
    assert!(v2["definitions"]["io.metal3.v1alpha1.BareMetalHost"].is_object());
}

#[tokio::test]
async fn health_is_reported_check_by_check_and_metrics_count() {
    let api = Api::start().await;
    let report = api.get("/readyz?verbose").await.expect(200).text;
    let all = ["ping", "log", "storage", "storage-room", "shutdown"].map(|name| format!("[+]{name} ok\n")).concat();
    assert_eq!(report, format!("{all}readyz check passed\n"));
    assert_eq!(api.get("/livez/storage").await.expect(200).text, "ok");
    api.get("/livez/none").await.expect(404);
    api.post(CONFIGMAPS, &configmap("a")).await.expect(201);
    let _watch = api.request("GET", &format!("{CONFIGMAPS}?watch=1")).send().await.unwrap();
    let metrics = api.get("/metrics").await.expect(200).text;
    for wanted in [
        "apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"POST\",version=\"v1\"} 1\n",
        "apiserver_request_duration_seconds_bucket{component=\"apiserver\"",
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n",
        "apiserver_longrunning_requests{verb=\"WATCH\"} 1\n",
        "apiserver_storage_objects{resource=\"namespaces\"}",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(wanted), "{wanted} is not in\n{metrics}");
    }
    let answer = api.get(CONFIGMAPS).await;
    assert_eq!(answer.headers["cache-control"], "no-cache, private");
    assert!(answer.headers.contains_key("audit-id"));
    let refused = api.get(&format!("{CONFIGMAPS}?timeout=x")).await.expect(400);
    assert!(refused.message().starts_with("invalid timeout specified in the request URL"), "{}", refused.text);
    let large =
        api.request("POST", CONFIGMAPS).header("content-type", "application/json").body("x".repeat(3 << 20 | 1));
    let large = common::answer(large).await.expect(413);
    assert_eq!(large.message(), "Request entity too large: limit is 3145728");
}
