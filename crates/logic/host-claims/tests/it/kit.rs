//! Claims and hosts to judge.

use api::metal3::{BareMetalHost, HostClaim, HostDeployPolicy};
use serde_json::{Value, json};

pub fn claim(name: &str, spec: Value) -> HostClaim {
    let metadata = json!({"name": name, "namespace": "tenant", "uid": format!("uid-{name}"), "generation": 1});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

pub fn host(name: &str) -> BareMetalHost {
    let metadata = json!({"name": name, "namespace": "infra", "uid": format!("uid-{name}"), "resourceVersion": "1"});
    let spec = json!({"online": false, "bmc": {"address": "x", "credentialsName": "y"}});
    let status = json!({"operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": false,
        "provisioning": {"ID": "i", "state": "available", "image": {"url": ""}}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// With this changed, a JSON merge patch.
pub fn with<T: serde::Serialize + serde::de::DeserializeOwned>(object: &T, patch: &Value) -> T {
    let mut value = json!(object);
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(target.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

pub fn policy(namespaces: Value) -> HostDeployPolicy {
    let spec = json!({"hostClaimNamespaces": namespaces});
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "infra"}, "spec": spec})).unwrap()
}

/// The host names the claim.
pub fn held(host: &BareMetalHost, claim: &HostClaim) -> BareMetalHost {
    with(host, &json!({"spec": {"consumerRef": host_claims::consumer(claim)}}))
}

/// The claim names the host, and says whether it has it and whether it was given its work.
pub fn names(claim: &HostClaim, host: &str, associated: bool, synchronized: bool) -> HostClaim {
    let condition = |kind: &str, value: bool| {
        let reason = if value { "Yes" } else { "NotAssociated" };
        json!({"type": kind, "status": if value { "True" } else { "False" }, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let conditions = json!([condition("Associated", associated), condition("Synchronized", synchronized)]);
    let status = json!({"bareMetalHost": {"namespace": "infra", "name": host}, "conditions": conditions});
    with(claim, &json!({"status": status}))
}
