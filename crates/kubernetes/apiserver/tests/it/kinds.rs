//! The server's own kinds: what is filled in, what is refused and in which words, what clients are warned of.

use crate::common::{self, Api};
use serde_json::{Value, json};

const DEFAULT: &str = "/api/v1/namespaces/default";

fn named(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

#[tokio::test]
async fn services_are_filled_in_and_checked() {
    let api = Api::start().await;
    let path = format!("{DEFAULT}/services");
    let web = named("v1", "Service", "web", json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}));
    let made = api.post(&path, &web).await.expect(201).body;
    assert_eq!(
        made["spec"],
        json!({"clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "ClusterIP"})
    );
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
    for (spec, text) in [
        (json!({}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 0}]}),
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"type": "Odd", "ports": [{"port": 1}]}),
            "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (
            json!({"ports": [{"port": 1, "nodePort": 30_000}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (json!({"ports": [{"port": 1}, {"port": 2}]}), "spec.ports[0].name: Required value"),
        (
            json!({"clusterIP": "1.2.3", "ports": [{"port": 1}]}),
            "spec.clusterIPs[0]: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
    ] {
        let refused = api.post(&path, &named("v1", "Service", "bad", json!({"spec": spec}))).await.expect(422);
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    let fixed = named("v1", "Service", "ip", json!({"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 1}]}}));
    api.post(&path, &fixed).await.expect(201);
    let other = json!({"spec": {"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.8"]}});
    let moved = api.merge(&format!("{path}/ip"), &other).await.expect(422);
    assert!(moved.message().contains("may not change once set"));
    let headless = json!({"spec": {"externalName": "x.y"}});
    let merged = api.merge(&format!("{path}/web"), &headless).await.expect(200);
    assert_eq!(merged.warnings, ["299 - \"spec.externalName is ignored when spec.type is not \\\"ExternalName\\\"\""]);
    let balanced = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}});
    let refused = api.merge(&format!("{path}/web/status"), &balanced).await.expect(422);
    assert!(refused.message().contains("may only be used when `spec.type` is 'LoadBalancer'"));
}

#[tokio::test]
async fn endpoints_and_slices_are_checked_and_endpoints_warn() {
    let api = Api::start().await;
    let path = format!("{DEFAULT}/endpoints");
    let good = json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]});
    let made = api.post(&path, &named("v1", "Endpoints", "e", good)).await.expect(201);
    assert_eq!(made.body["subsets"][0]["ports"][0]["protocol"], "TCP");
    let deprecated = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    assert_eq!(made.warnings, [format!("299 - \"{deprecated}\"")]);
    let loopback = json!({"subsets": [{"addresses": [{"ip": "127.0.0.1"}]}]});
    let refused = api.post(&path, &named("v1", "Endpoints", "l", loopback)).await.expect(422);
    assert!(refused.message().contains("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
    let made = api.post(slices, &named("discovery.k8s.io/v1", "EndpointSlice", "s", slice)).await.expect(201).body;
    assert_eq!(made["endpoints"], json!([{"addresses": ["10.0.0.1"], "conditions": {}}]));
    assert_eq!(made["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    assert_eq!(made["metadata"]["generation"], 1);
    let labelled = api.merge(&format!("{slices}/s"), &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(labelled.body["metadata"]["generation"], 2);
    let odd = json!({"addressType": "IPv6", "endpoints": [{"addresses": ["10.0.0.1"]}]});
    let refused = api.post(slices, &named("discovery.k8s.io/v1", "EndpointSlice", "o", odd)).await.expect(422);
    assert!(refused.message().contains("must be an IPv6 address"), "{}", refused.message());
    let typed = api.merge(&format!("{slices}/s"), &json!({"addressType": "FQDN", "endpoints": []})).await.expect(422);
    assert!(typed.message().contains("addressType: Invalid value: \"FQDN\": field is immutable"));
}

#[tokio::test]
async fn nodes_keep_their_status_and_guard_their_identity() {
    let api = Api::start().await;
    let node =
        json!({"spec": {"podCIDR": "10.1.0.0/24", "providerID": "p://1"}, "status": {"capacity": {"cpu": "4000m"}}});
    let made = api.post("/api/v1/nodes", &named("v1", "Node", "n", node)).await.expect(201).body;
    assert_eq!(made["status"]["allocatable"], json!({"cpu": "4"}));
    assert_eq!(made["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
    assert_eq!(made["status"]["nodeInfo"]["kubeletVersion"], "");
    let one = "/api/v1/nodes/n";
    for (change, text) in [
        (json!({"spec": {"providerID": "p://2"}}), "node updates may not change providerID except from \"\" to valid"),
        (
            json!({"spec": {"taints": [{"key": "a", "effect": "Odd"}]}}),
            "metadata.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\"",
        ),
    ] {
        let refused = api.merge(one, &change).await.expect(422);
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    api.merge(one, &json!({"spec": {"unschedulable": true}})).await.expect(200);
    api.post("/api/v1/nodes", &named("v1", "Node", "m", json!({}))).await.expect(201);
    for (selector, count) in
        [("spec.unschedulable=true", 1), ("spec.unschedulable=false", 1), ("spec.unschedulable=x", 0)]
    {
        let found = api.get(&format!("/api/v1/nodes?fieldSelector={selector}")).await.expect(200);
        assert_eq!(found.body["items"].as_array().unwrap().len(), count, "{selector}");
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let status = api.merge(&format!("{one}/status"), &ready).await.expect(200).body;
    assert_eq!(status["status"]["conditions"][0]["lastTransitionTime"], Value::Null);
}

#[tokio::test]
async fn events_of_both_groups_are_one() {
    let api = Api::start().await;
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"eventTime": "2026-01-02T03:04:05.500000Z", "reportingController": "x.io/c", "reportingInstance": "i",
        "action": "Act", "reason": "Because", "type": "Normal", "note": "text",
        "regarding": {"kind": "ConfigMap", "name": "c", "namespace": "default"}});
    let made = api.post(path, &named("events.k8s.io/v1", "Event", "e", event.clone())).await.expect(201).body;
    assert_eq!(made["eventTime"], "2026-01-02T03:04:05.500000Z");
    assert_eq!(made["deprecatedSource"], json!({}));
    let core = api.get(&format!("{DEFAULT}/events/e")).await.expect(200).body;
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("text"), &json!("c")));
    assert_eq!(core["firstTimestamp"], Value::Null);
    let found = api.get(&format!("{DEFAULT}/events?fieldSelector=involvedObject.name=c,type=Normal")).await;
    assert_eq!(found.expect(200).body["items"].as_array().unwrap().len(), 1);
    let mut odd = named("events.k8s.io/v1", "Event", "o", event);
    (odd["type"], odd["deprecatedCount"]) = (json!("Odd"), json!(2));
    let refused = api.post(path, &odd).await.expect(422);
    for text in ["type: Invalid value: \"\": has invalid value: Odd", "count: Invalid value: \"\": needs to be unset"] {
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    let changed = api.merge(&format!("{path}/e"), &json!({"note": "other"})).await.expect(422);
    assert!(changed.message().contains("message: Invalid value: \"other\": field is immutable"));
    let stray = named("v1", "Event", "s", json!({"involvedObject": {"namespace": "kube-system"}}));
    let refused = api.post(&format!("{DEFAULT}/events"), &stray).await.expect(422);
    assert!(refused.message().contains("involvedObject.namespace: Invalid value: \"kube-system\": does not match"));
}

/// Names of core Events are path segments: baremetal-operator's begin with their reason.
#[tokio::test]
async fn core_events_may_have_names_that_are_no_subdomains() {
    let api = Api::start().await;
    let about = json!({"involvedObject": {"kind": "ConfigMap", "name": "c", "namespace": "default"}});
    let path = format!("{DEFAULT}/events");
    api.post(&path, &named("v1", "Event", "Registered.17a", about.clone())).await.expect(201);
    let mut generated = named("v1", "Event", "", about.clone());
    generated["metadata"] = json!({"generateName": "Registered-"});
    api.post(&path, &generated).await.expect(201);
    api.post(&path, &named("v1", "Event", "a/b", about)).await.expect(422);
}

/// Objects beyond a quota's count are refused, and there is room again after a deletion.
#[tokio::test]
async fn quotas_of_counts_are_enforced() {
    let api = Api::start().await;
    let quota = named("v1", "ResourceQuota", "few", json!({"spec": {"hard": {"count/secrets": "1"}}}));
    api.post(&format!("{DEFAULT}/resourcequotas"), &quota).await.expect(201);
    let path = format!("{DEFAULT}/secrets");
    api.post(&path, &named("v1", "Secret", "a", json!({}))).await.expect(201);
    let refused = api.post(&path, &named("v1", "Secret", "b", json!({}))).await.expect(403);
    assert!(refused.message().contains("exceeded quota: few"), "{}", refused.message());
    api.delete(&format!("{path}/a")).await.expect(200);
    api.post(&path, &named("v1", "Secret", "b", json!({}))).await.expect(201);
}

#[tokio::test]
async fn protobuf_is_answered_and_taken_in_every_place() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let api = Api::with_kinds().await;
    let path = format!("{DEFAULT}/configmaps");
    api.post(&path, &named("v1", "ConfigMap", "c", json!({"data": {"k": "v"}}))).await.expect(201);
    let bytes = |path: String, accept: String| {
        let request = api.request("GET", &path).header("accept", accept);
        async move { request.send().await.unwrap() }
    };
    let one = bytes(format!("{path}/c"), PROTOBUF.into()).await;
    assert_eq!(one.headers()["content-type"], PROTOBUF);
    let body = one.bytes().await.unwrap();
    assert!(body.starts_with(b"k8s\0"));
    // What was answered can be sent back.
    let put = api.request("PUT", &format!("{path}/c")).header("content-type", PROTOBUF).body(body.to_vec());
    common::answer(put).await.expect(200);
    common::answer(api.request("POST", &path).header("content-type", PROTOBUF).body(body.to_vec())).await.expect(500);
    let cut = api.request("POST", &path).header("content-type", PROTOBUF).body(body[..body.len() - 9].to_vec());
    assert!(common::answer(cut).await.expect(400).message().ends_with(" ...)"));
    let widget = common::widget("w", json!({}));
    api.post(common::WIDGETS, &widget).await.expect(201);
    let plain = bytes(format!("{}/w", common::WIDGETS), PROTOBUF.into()).await;
    assert_eq!(plain.status(), 406);
    for (path, kind) in [
        (format!("{}/w", common::WIDGETS), "PartialObjectMetadata"),
        (common::WIDGETS.to_owned(), "PartialObjectMetadataList"),
    ] {
        let answer = bytes(path, format!("{PROTOBUF};as={kind};g=meta.k8s.io;v=v1")).await;
        assert_eq!((answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()), (200, PROTOBUF));
        let body = answer.bytes().await.unwrap();
        assert!(body.windows(kind.len()).any(|w| w == kind.as_bytes()));
    }
    let watch = bytes(format!("{path}?watch=1&timeoutSeconds=1"), format!("{PROTOBUF};stream=watch")).await;
    assert_eq!(watch.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let stream = watch.bytes().await.unwrap();
    let length = u32::from_be_bytes(stream[..4].try_into().unwrap()) as usize;
    assert!(stream.len() >= 4 + length && stream[4..].starts_with(b"\x0a\x05ADDED"));
}

#[tokio::test]
async fn the_servers_own_service_is_there() {
    let api = Api::start().await;
    let service = api.get(&format!("{DEFAULT}/services/kubernetes")).await.expect(200).body;
    assert_eq!(service["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));
    let endpoints = api.get(&format!("{DEFAULT}/endpoints/kubernetes")).await.expect(200).body;
    let port = u64::from(api.server.local_addr().port());
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{"name": "https", "port": port, "protocol": "TCP"}]));
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = api.get(slice).await.expect(200).body;
    assert_eq!(slice["endpoints"], json!([{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}]));
}
