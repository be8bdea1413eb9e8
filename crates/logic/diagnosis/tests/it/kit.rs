//! Evidence of a machine that is well, in each phase, and changes of it.

use diagnosis::Evidence;
use serde_json::{Value, json};

/// Evidence of a machine that is well, all sources read, whose host fails in this phase.
pub fn base(phase: &str) -> Value {
    let (kind, state, cause) = match phase {
        "registration" => ("Registration", "registering", "Other"),
        "inspection" => ("Inspection", "inspecting", "AgentSilent"),
        "provisioning" => ("Provisioning", "provisioning", "Other"),
        "preparation" => ("Preparation", "preparing", "Other"),
        "servicing" => ("Servicing", "provisioned", "Other"),
        "power" => ("PowerManagement", "provisioned", "Other"),
        other => panic!("no phase {other}"),
    };
    let off = phase == "power";
    let old: Vec<Value> = (0..64)
        .map(|index| {
            json!({
                "log": "Log1", "id": index.to_string(), "created": "2018-08-12T12:46:22Z", "written": "2018-08-12T12:46:22+00:00",
                "text": "[ OEM ] Correctable ECC @DIMMB1", "sensorType": "Memory",
            })
        })
        .collect();
    json!({
        "taken": "2026-03-01T12:00:00Z",
        "failure": {
            "kind": kind, "state": state, "cause": cause, "message": "it did not work",
            "since": "2026-03-01T11:55:00Z", "lastGood": "2026-03-01T11:00:00Z",
        },
        "access": { "read": {
            "address": "10.0.0.1:443",
            "connection": { "read": { "contact": "answered", "status": 200 } },
            "account": { "read": { "locked": false, "enabled": true, "role": "Administrator" } },
            "root": { "read": { "vendor": "ACME", "systems": ["1"], "systemKnown": true, "virtualMedia": true } },
        } },
        "power": { "read": { "state": if off { "Off" } else { "On" }, "allowableResets": ["On", "ForceOff", "ForceRestart"] } },
        "boot": { "read": {} },
        "media": { "read": { "slots": [] } },
        "parts": { "read": [
            { "kind": "Memory", "slot": "DIMM A1", "partNumber": "M1", "serial": "SA1", "health": "OK", "state": "Enabled" },
            { "kind": "Memory", "slot": "DIMM A10", "health": "OK", "state": "Enabled" },
            { "kind": "Processor", "slot": "CPU 1", "health": "OK", "state": "Enabled" },
            { "kind": "Drive", "slot": "Bay 1", "serial": "D1", "health": "OK", "state": "Enabled" },
            { "kind": "PowerSupply", "slot": "PSU 2", "serial": "P2", "health": "OK", "inputGood": true },
            { "kind": "Fan", "slot": "Fan 3", "health": "OK" },
        ] },
        "tasks": { "read": [] },
        "logs": { "read": { "entries": old } },
        "manager": { "read": { "health": "OK", "clockSkewSeconds": 2 } },
        "ours": { "calls": { "read": [] }, "medium": { "skipped": "" }, "agent": { "skipped": "" }, "smart": { "read": [] }, "image": { "skipped": "" } },
        "differences": { "read": [] },
    })
}

/// Puts one into the other: fields of objects by name, items of lists behind, all else in its place.
pub fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            // Another reading replaces the one that was.
            let variants = ["read", "skipped", "failed", "notAvailable"];
            if change.len() == 1
                && change.keys().all(|key| variants.contains(&key.as_str()))
                && change.keys().all(|key| !into.contains_key(key))
            {
                into.clear();
            }
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(change)) => into.extend(change.iter().cloned()),
        (into, change) => *into = change.clone(),
    }
}

/// The evidence of this phase with this change.
pub fn evidence(phase: &str, change: &Value) -> Evidence {
    let mut value = base(phase);
    merge(&mut value, change);
    serde_json::from_value(value).expect("evidence")
}
