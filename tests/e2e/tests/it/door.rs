//! What is said to whoever writes an object, and to whoever waits for one.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Options, World};
use http::Request;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::client::Body;
use serde_json::{Value, json};

/// Posts a BareMetalHost; status code, message and warnings of the answer.
async fn post(world: &World, host: &Value) -> (u16, String, Vec<String>) {
    let path = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(host.to_string().into_bytes())).unwrap();
    let answer = world.client.send(request).await.unwrap();
    let warnings =
        answer.headers().get_all("warning").iter().map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned());
    let warnings = warnings.collect();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    (code, body["message"].as_str().unwrap_or_default().to_owned(), warnings)
}

/// The Events with this reason, once there is one.
async fn events_of(world: &World, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::default_namespaced(world.client.clone());
    let looking = async {
        loop {
            let mut found = api.list(&ListParams::default()).await.unwrap().items;
            found.retain(|event| event.reason.as_deref() == Some(reason));
            if !found.is_empty() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.unwrap_or_else(|_| panic!("no Event {reason}"))
}

fn host(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": name }, "spec": spec })
}

/// Upstream's rules hold at the embedded API, and what is admitted without being served is warned of.
#[tokio::test]
async fn hosts_are_refused_and_warned_of_before_they_are_stored() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let wrong = host("node-1", json!({ "online": true, "bmc": { "address": "nonsense://x", "credentialsName": "s" } }));
    let (code, message, _) = post(&world, &wrong).await;
    assert_eq!(code, 403, "{message}");
    assert!(message.contains("baremetalhost.metal3.io") && message.contains("unknown scheme"), "{message}");
    let odd = json!({
        "online": true, "bootMode": "legacy", "bootMACAddress": "52:54:00:00:00:01",
        "bmc": { "address": "ipmi://192.0.2.1", "credentialsName": "s" },
        "taints": [{ "key": "a", "effect": "NoSchedule" }],
    });
    let (code, message, warnings) = post(&world, &host("node-2", odd)).await;
    assert_eq!(code, 201, "{message}");
    for word in ["bootMode", "ipmi", "taints"] {
        assert!(warnings.iter().any(|w| w.contains(word)), "{word}: {warnings:?}");
    }
    // The rule also holds for changes, and not for who is being deleted.
    let annotate = ["annotate", "bmh", "node-2", "reboot.metal3.io={\"mode\":\"gentle\"}"];
    let refused = world.kubectl(&annotate, "").await.unwrap_err().to_string();
    assert!(refused.contains("annotation reboot.metal3.io"), "{refused}");
    world.expect_error("node-2", "registration error", &["spec.bootMode"]).await.unwrap();
    world.delete("node-2").await.unwrap();
    world.wait_gone("node-2", 20).await.unwrap();
}

/// A host without `spec` is known and unmanaged, and keeps no other from being looked after.
#[tokio::test]
async fn a_host_without_a_spec_is_discovered_and_holds_up_nobody() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let bare = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": "bare" } });
    let (code, message, _) = post(&world, &bare).await;
    assert_eq!(code, 201, "{message}");
    world.apply_host("node-0", json!({ "inspectionMode": "disabled" })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    world.wait_state("bare", 60, ProvisioningState::Unmanaged).await.unwrap();
}

/// An object of a kind that nobody looks after gets one Event that says so.
#[tokio::test]
async fn kinds_that_are_not_served_are_told_of_once() {
    let mut world = World::start(Options::one_fake()).await.unwrap();
    let image = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "PreprovisioningImage",
        "metadata": { "name": "node-0", "finalizers": ["baremetalhost.metal3.io/preprovisioningImage"] },
        "spec": { "acceptFormats": ["iso"] } });
    world.kubectl(&["apply", "-f", "-"], &image.to_string()).await.unwrap();
    events_of(&world, "NotServed").await;
    world.server.stop().await.unwrap();
    world.start_server_again().await.unwrap();
    world.apply_host("node-0", json!({ "inspectionMode": "disabled" })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let found = events_of(&world, "NotServed").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].regarding.as_ref().unwrap().kind.as_deref(), Some("PreprovisioningImage"));
    // baremetal-operator has left its finalizer, which goes with the host: nobody else removes it.
    world.kubectl(&["delete", "preprovisioningimage", "node-0", "--timeout=60s"], "").await.unwrap();
}

/// What the API server refuses is said where the host is looked at, and the host goes on once it no longer does.
#[tokio::test]
async fn what_the_kubernetes_api_refuses_is_said_in_a_condition_and_an_event() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let policy = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "no-records" }, "spec": {
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["metamorph.metal3.io"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["machinerecords"] }] },
            "validations": [{ "expression": "false", "message": "exceeded quota: records" }] } });
    let binding = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "no-records" },
        "spec": { "policyName": "no-records", "validationActions": ["Deny"] } });
    for object in [policy, binding] {
        world.kubectl(&["apply", "-f", "-"], &object.to_string()).await.unwrap();
    }
    world.apply_host("node-0", json!({})).await.unwrap();
    let condition = |host: &Value| {
        let conditions = host["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == "Progressing").unwrap_or_default()
    };
    let says = |host: &Value| {
        let found = condition(host);
        let message = found["message"].as_str().unwrap_or_default().to_owned();
        found["reason"] == "KubernetesAPIFailed"
            && message.contains("exceeded quota")
            && message.contains("raise the ResourceQuota")
    };
    world.wait_for_state("node-0", "told what the API refuses", says).await.unwrap();
    let events = events_of(&world, "KubernetesAPIFailed").await;
    assert!(events[0].note.as_ref().is_some_and(|note| note.contains("exceeded quota")), "{events:?}");
    world.kubectl(&["delete", "validatingadmissionpolicybinding", "no-records"], "").await.unwrap();
    world.wait_state("node-0", 90, ProvisioningState::Available).await.unwrap();
    let host: BareMetalHost = world.hosts().get("node-0").await.unwrap();
    let host = serde_json::to_value(host).unwrap();
    assert_eq!(condition(&host)["message"], "Nothing is under way");
}
