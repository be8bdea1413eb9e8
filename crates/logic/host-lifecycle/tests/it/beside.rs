//! What is refused of the objects beside hosts before they are stored.

use api::metal3::BareMetalHost;
use host_lifecycle::{Beside, Review, references, review_beside};
use serde_json::{Value, json};

fn kind(name: &str) -> Beside {
    Beside::ALL.into_iter().find(|kind| kind.kind() == name).unwrap()
}

fn object(case: &Value, field: &str) -> Option<Value> {
    let mut object = case.get(field)?.clone();
    object["metadata"]["name"] = json!("worker-0");
    object["metadata"]["namespace"] = json!("metal");
    Some(object)
}

fn reviewed(kind: Beside, new: Option<&Value>, old: Option<&Value>, hosts: &Value) -> Review {
    let hosts: Result<Vec<BareMetalHost>, _> = serde_json::from_value(hosts.clone());
    review_beside(kind, new, old, |namespace, name| match &hosts {
        Ok(hosts) => Ok(references(hosts, namespace, name)),
        Err(_) => Err("the API does not answer".to_owned()),
    })
}

#[test]
fn the_same_is_refused_beside_hosts_as_upstream_refuses() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/beside.json")).unwrap();
    let mut differ = Vec::new();
    for kind in Beside::ALL {
        let of = |denied: bool| cases.iter().any(|case| case["kind"] == kind.kind() && case["denied"] == denied);
        assert!(of(true) && of(false), "{} has cases of both", kind.kind());
    }
    for case in &cases {
        let name = format!("{} {}", case["kind"], case["name"]);
        let hosts = case.get("hosts").cloned().unwrap_or_else(|| json!([]));
        let (new, old) = (object(case, "new"), object(case, "old"));
        let found = reviewed(kind(case["kind"].as_str().unwrap()), new.as_ref(), old.as_ref(), &hosts);
        if found.denials.is_empty() == case["denied"].as_bool().unwrap() {
            differ.push(format!("{name}: {:?}", found.denials));
        }
    }
    assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), cases.len(), differ.join("\n"));
}

#[test]
fn an_object_that_is_being_deleted_is_let_go_whatever_is_wrong_with_it() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/beside.json")).unwrap();
    for case in cases.iter().filter(|case| case["denied"] == true && case.get("new").is_some()) {
        let mut new = object(case, "new").unwrap();
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let found =
            reviewed(kind(case["kind"].as_str().unwrap()), Some(&new), object(case, "old").as_ref(), &json!([]));
        assert_eq!(found.denials, [""; 0], "{}", case["name"]);
    }
}

#[test]
fn who_holds_an_attachment_is_named() {
    let old = json!({"metadata": {"name": "net", "namespace": "n"}, "spec": {"nativeVLAN": 1}});
    let host = json!([{"metadata": {"name": "h", "namespace": "n"}, "spec": {"online": true, "networkInterfaces": [
        {"macAddress": "00:11:22:33:44:55", "hostNetworkAttachment": {"name": "net"}}]}}]);
    let found = reviewed(Beside::HostNetworkAttachment, None, Some(&old), &host);
    assert!(found.denials[0].contains("n/h[00:11:22:33:44:55]"), "{found:?}");
    let unknown = reviewed(Beside::HostNetworkAttachment, None, Some(&old), &json!("unknown"));
    assert!(unknown.denials[0].contains("the API does not answer"), "{unknown:?}");
}

#[test]
fn what_a_claim_asks_for_in_vain_is_warned_of() {
    let warned = |claim: Value| {
        let found = reviewed(Beside::HostClaim, Some(&claim), None, &json!([]));
        assert_eq!(found.denials, [""; 0]);
        found.warnings
    };
    let metadata = json!({"name": "c", "namespace": "n", "annotations": {"baremetalhost.metal3.io/detached": ""}});
    assert!(warned(json!({"metadata": metadata}))[0].contains("detached"));
    let theirs =
        json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"userData": {"name": "s", "namespace": "m"}}});
    assert!(warned(theirs)[0].contains("spec.userData.namespace is m"));
    assert_eq!(warned(json!({"metadata": {"name": "c", "namespace": "n"}})), [""; 0]);
}
