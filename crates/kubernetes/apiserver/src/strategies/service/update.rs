//! Updates of Services: immutable fields, and effects of a changed type.

use serde_json::{Value, json};

use super::{externally_accessible, families, headless, spec_text};
use crate::checks::{list, member, text};
use crate::object::{Object, child};
use crate::status::FieldError;

fn needs_ip(spec: &Value) -> bool {
    matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether its ports get node ports automatically.
pub fn needs_node_port(spec: &Value) -> bool {
    text(spec, "type") == "NodePort"
        || text(spec, "type") == "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts") != Some(&json!(false))
}

/// Whether it needs a node port for health checks.
pub fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Keeps fields that the client omitted, and drops those that the new type does not have.
pub fn prepare_update(object: &mut Object, old: &Object) {
    let before = member(old, "spec").clone();
    let spec = child(object, "spec");
    let after = Value::Object(spec.clone());
    keep_addresses(spec, &before);
    if needs_node_port(&before) && needs_node_port(&after) {
        keep_node_ports(spec, &before);
    }
    let checked = spec.get("healthCheckNodePort").is_some_and(|port| *port != json!(0));
    if needs_health_check(&before) && needs_health_check(&after) && !checked {
        let port = before.get("healthCheckNodePort").cloned().unwrap_or_else(|| json!(0));
        spec.insert("healthCheckNodePort".into(), port);
    }
    if needs_ip(&before) && !needs_ip(&after) {
        if after.get("clusterIP") == before.get("clusterIP") || text(&after, "clusterIP").is_empty() {
            spec.shift_remove("clusterIP");
            spec.shift_remove("clusterIPs");
        }
        drop_same(spec, &before, &["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]);
    }
    let node_ports = |spec: &Value| -> Vec<Value> {
        list(spec, "ports").iter().map(|p| p.get("nodePort").cloned().unwrap_or_default()).collect()
    };
    if needs_node_port(&before) && !needs_node_port(&after) && node_ports(&before) == node_ports(&after) {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.shift_remove("nodePort");
            }
        }
    }
    if needs_health_check(&before) && !needs_health_check(&after) {
        drop_same(spec, &before, &["healthCheckNodePort"]);
    }
    if text(&before, "type") == "LoadBalancer" && text(&after, "type") != "LoadBalancer" {
        drop_same(spec, &before, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if externally_accessible(&before) && !externally_accessible(&after) {
        drop_same(spec, &before, &["externalTrafficPolicy"]);
    }
    if needs_ip(&after) {
        families(spec);
    }
}

fn drop_same(spec: &mut Object, before: &Value, keys: &[&str]) {
    for key in keys {
        if spec.get(*key) == before.get(*key) {
            spec.shift_remove(*key);
        }
    }
}

/// The node port of a Service's port, 0 if it has none.
pub fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or_default()
}

/// Ports without a node port keep the former one by name, unless another port uses it.
fn keep_node_ports(spec: &mut Object, before: &Value) {
    let after: Vec<i64> = list(&Value::Object(spec.clone()), "ports").iter().map(node_port).collect();
    let old = list(before, "ports");
    let mut used: Vec<i64> = old.iter().map(node_port).filter(|port| after.contains(port)).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if node_port(port) != 0 {
            continue;
        }
        let former = old.iter().rfind(|o| text(o, "name") == text(port, "name")).map_or(0, node_port);
        if former != 0 && !used.contains(&former) {
            port["nodePort"] = json!(former);
            used.push(former);
        }
    }
}

/// Keeps `clusterIP` and `clusterIPs` consistent, and the former values if the client omits them.
fn keep_addresses(spec: &mut Object, before: &Value) {
    let after = Value::Object(spec.clone());
    if !needs_ip(&after) || !needs_ip(before) {
        let one = text(&after, "clusterIP").to_owned();
        if !one.is_empty() && list(&after, "clusterIPs").is_empty() {
            spec.insert("clusterIPs".into(), json!([one]));
        }
        return;
    }
    if spec_text(spec, "clusterIP").is_empty() && !text(before, "clusterIP").is_empty() {
        spec.insert("clusterIP".into(), json!(text(before, "clusterIP")));
    }
    let one = spec_text(spec, "clusterIP").to_owned();
    let same = one == text(before, "clusterIP");
    if list(&Value::Object(spec.clone()), "clusterIPs").is_empty() {
        match before.get("clusterIPs").filter(|_| same) {
            Some(all) => {
                spec.insert("clusterIPs".into(), all.clone());
            }
            None if !one.is_empty() => {
                spec.insert("clusterIPs".into(), json!([one]));
            }
            None => {}
        }
    } else if !same
        && spec.get("clusterIPs") == before.get("clusterIPs")
        && let Some(first) = spec.get_mut("clusterIPs").and_then(|c| c.get_mut(0))
    {
        *first = json!(one);
    }
    for key in ["clusterIPs", "ipFamilies"] {
        // A client that only requests a single family gives up the second one.
        if spec_text(spec, "ipFamilyPolicy") == "SingleStack" && spec.get(key) == before.get(key) {
            spec.get_mut(key).and_then(Value::as_array_mut).into_iter().for_each(|all| all.truncate(1));
        }
    }
    for key in ["ipFamilies", "ipFamilyPolicy"] {
        if spec.get(key).is_none_or(Value::is_null)
            && let Some(value) = before.get(key)
        {
            spec.insert(key.into(), value.clone());
        }
    }
}

/// Validates the changes of an update.
pub fn check(spec: &Value, before: &Value, errors: &mut Vec<FieldError>) {
    let named = text(spec, "type") == "ExternalName" || text(before, "type") == "ExternalName";
    if !(named || headless(spec) && headless(before)) {
        let (new, old) = (list(spec, "clusterIPs"), list(before, "clusterIPs"));
        let value = spec.get("clusterIPs").unwrap_or(&Value::Null);
        let fixed = |at: usize| FieldError::invalid(format!("spec.clusterIPs[{at}]"), value, "may not change once set");
        if new.len() == old.len() {
            errors.extend((0..new.len()).filter(|at| new.get(*at) != old.get(*at)).map(fixed));
        } else if new.is_empty() {
            let detail = "primary clusterIP can not be unset";
            errors.push(FieldError::invalid("spec.clusterIPs[0]", value, detail));
        } else {
            errors.extend((!old.is_empty() && new.first() != old.first()).then(|| fixed(0)));
            released(spec, new.len() < old.len() && new.len() == 1, "clusterIP", errors);
        }
    }
    if !named && !headless(spec) && !headless(before) {
        let (new, old) = (list(spec, "ipFamilies"), list(before, "ipFamilies"));
        let value = spec.get("ipFamilies").unwrap_or(&Value::Null);
        let changed = new.iter().zip(old).filter(|(a, b)| a != b).count();
        let count = if new.len() == old.len() { changed } else { usize::from(new.first() != old.first()) };
        let fixed = || FieldError::invalid("spec.ipFamilies[0]", value, "may not change once set");
        if !old.is_empty() {
            errors.extend((0..count).map(|_| fixed()));
        }
        released(spec, new.len() < old.len() && new.len() == 1, "ipFamily", errors);
    }
    let both = |kind: &str| text(spec, "type") == kind && text(before, "type") == kind;
    if both("LoadBalancer") && spec.get("loadBalancerClass") != before.get("loadBalancerClass") {
        let value = spec.get("loadBalancerClass").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.loadBalancerClass", value, "may not change once set"));
    }
    let checks = needs_health_check(spec) && needs_health_check(before);
    if checks && spec.get("healthCheckNodePort") != before.get("healthCheckNodePort") {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
}

fn released(spec: &Value, released: bool, what: &str, errors: &mut Vec<FieldError>) {
    if released && text(spec, "ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        let value = spec.get("ipFamilyPolicy").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", value, detail));
    }
}
