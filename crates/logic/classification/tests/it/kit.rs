//! Classifications and hosts to judge.

use std::sync::Arc;

use api::metal3::{BareMetalHost, HardwareClassification, HardwareData};
use classification::Class;
use serde_json::{Value, json};

/// A classification that asks for this.
pub fn object(name: &str, wanted: &Value) -> HardwareClassification {
    let metadata = json!({ "name": name, "namespace": "metal3", "uid": format!("uid-{name}") });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "hardwareCharacteristics": wanted } })).unwrap()
}

pub fn class(name: &str, wanted: &Value) -> Class {
    Class::of(&object(name, wanted))
}

/// HardwareData with these facts.
pub fn data(hardware: &Value) -> Arc<HardwareData> {
    let object = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": { "name": "h" },
        "spec": { "hardware": hardware } });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// A host with this status.
pub fn host(status: &Value) -> Arc<BareMetalHost> {
    Arc::new(serde_json::from_value(json!({ "metadata": { "name": "h" }, "status": status })).unwrap())
}

/// The status of a host in error.
pub fn failed(kind: &str) -> Value {
    json!({ "operationalStatus": "error", "errorType": kind, "errorMessage": "x", "provisioning": { "ID": "", "state": "", "image": { "url": "" } } })
}
