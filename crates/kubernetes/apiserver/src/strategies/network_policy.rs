//! NetworkPolicies: stored for those who look after them; nothing here does.

use serde_json::{Value, json};

use crate::checks::selector::{self, Lenient};
use crate::checks::{all_invalid, formats, list, member, text};
use crate::object::{Object, child};
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    short_names: &["netpol"],
    strategy: &NetworkPolicy,
    ..Kind::NEW
};

/// The rules of NetworkPolicies.
#[derive(Debug)]
struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, _: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }
}

/// Fills in protocols of ports, and what a NetworkPolicy is about.
fn defaults(object: &mut Object) {
    let spec = child(object, "spec");
    for direction in ["ingress", "egress"] {
        let rules = spec.get_mut(direction).and_then(Value::as_array_mut);
        let ports = rules.into_iter().flatten().filter_map(|r| r.get_mut("ports")).filter_map(Value::as_array_mut);
        for port in ports.flatten().filter_map(Value::as_object_mut) {
            if port.get("protocol").is_none_or(Value::is_null) {
                port.insert("protocol".into(), json!("TCP"));
            }
        }
    }
    let spec_value = Value::Object(spec.clone());
    if list(&spec_value, "policyTypes").is_empty() {
        let egress = !list(&spec_value, "egress").is_empty();
        spec.insert("policyTypes".into(), if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
    }
}

/// Checks a NetworkPolicy.
fn validate(object: &Object, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    let pods = spec.get("podSelector").unwrap_or(&Value::Null);
    selector::check(pods, "spec.podSelector", Lenient::default(), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (at, rule) in list(spec, direction).iter().enumerate() {
            let path = format!("spec.{direction}[{at}]");
            for (at, one) in list(rule, "ports").iter().enumerate() {
                policy_port(one, &format!("{path}.ports[{at}]"), errors);
            }
            for (at, one) in list(rule, peers).iter().enumerate() {
                peer(one, &format!("{path}.{peers}[{at}]"), errors);
            }
        }
    }
    let types = list(spec, "policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid("spec.policyTypes", &json!(types), detail));
        return;
    }
    for (at, one) in types.iter().enumerate().filter(|(_, t)| !matches!(t.as_str(), Some("Ingress" | "Egress"))) {
        errors.push(FieldError::not_supported(format!("spec.policyTypes[{at}]"), one, &["Ingress", "Egress"]));
    }
}

fn policy_port(one: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let protocol = text(one, "protocol");
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        let known = ["TCP", "UDP", "SCTP"];
        errors.push(FieldError::not_supported(format!("{path}.protocol"), &json!(protocol), &known));
    }
    let (port, end) = (one.get("port").filter(|p| !p.is_null()), one.get("endPort").and_then(Value::as_i64));
    let (at, end_at) = (format!("{path}.port"), format!("{path}.endPort"));
    match (port, end) {
        (Some(Value::String(name)), end) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(end_at, &json!(end), detail));
            }
            all_invalid(&at, &json!(name), formats::port_name(name), errors);
        }
        (Some(number), end) => {
            let number = number.as_i64().unwrap_or_default();
            all_invalid(&at, &json!(number), formats::port_number(number), errors);
            if let Some(end) = end {
                if end < number {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(&end_at, &json!(number), detail));
                }
                all_invalid(&end_at, &json!(end), formats::port_number(end), errors);
            }
        }
        (None, Some(end)) => {
            let detail = "may not be specified when `port` is not specified";
            errors.push(FieldError::invalid(end_at, &json!(end), detail));
        }
        (None, None) => {}
    }
}

fn peer(peer: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let part = |key: &str| peer.get(key).filter(|v| !v.is_null());
    for key in ["podSelector", "namespaceSelector"] {
        if let Some(given) = part(key) {
            selector::check(given, &format!("{path}.{key}"), Lenient::default(), errors);
        }
    }
    let selectors = part("podSelector").is_some() || part("namespaceSelector").is_some();
    match part("ipBlock") {
        Some(block) => {
            ip_block(block, &format!("{path}.ipBlock"), errors);
            if selectors {
                errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
            }
        }
        None if !selectors => errors.push(FieldError::required(path, "must specify a peer")),
        None => {}
    }
}

fn ip_block(block: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let range = text(block, "cidr");
    if range.is_empty() {
        errors.push(FieldError::required(format!("{path}.cidr"), ""));
        return;
    }
    formats::legacy_cidr(&format!("{path}.cidr"), range, errors);
    let Some(whole) = formats::cidr(range) else { return };
    for (at, except) in list(block, "except").iter().enumerate() {
        let (field, given) = (format!("{path}.except[{at}]"), except.as_str().unwrap_or_default());
        formats::legacy_cidr(&field, given, errors);
        let Some(part) = formats::cidr(given) else { continue };
        if !formats::contains(whole, part.0) || whole.1 >= part.1 {
            errors.push(FieldError::invalid(field, except, "must be a strict subset of `cidr`"));
        }
    }
}
