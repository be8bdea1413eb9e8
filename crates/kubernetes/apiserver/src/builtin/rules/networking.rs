//! Ingresses, IngressClasses and NetworkPolicies: stored for those who look after them; nothing here does.

use serde_json::{Value, json};

use super::selector::{self, Lenient};
use super::{all_invalid, annotation, formats, list, member, text, unchanged};
use crate::object::{Object, child};
use crate::status::FieldError;

const CLASS: &str = "kubernetes.io/ingress.class";
const MAX_CONTROLLER: usize = 250;
const TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// Fills in the scope of an IngressClass's parameters.
pub fn class_defaults(object: &mut Object) {
    let parameters = object.get_mut("spec").and_then(|s| s.get_mut("parameters")).and_then(Value::as_object_mut);
    if let Some(parameters) = parameters
        && parameters.get("scope").is_none_or(Value::is_null)
    {
        parameters.insert("scope".into(), json!("Cluster"));
    }
}

/// Fills in protocols of ports, and what a NetworkPolicy is about.
pub fn policy_defaults(object: &mut Object) {
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

/// Checks an IngressClass.
pub fn class(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    let controller = text(spec, "controller");
    if let Some(old) = old {
        unchanged("spec.controller", &json!(controller), &json!(text(member(old, "spec"), "controller")), errors);
    }
    if controller.len() > MAX_CONTROLLER {
        errors.push(FieldError::too_long("spec.controller", MAX_CONTROLLER as u64));
    }
    domain_path("spec.controller", controller, errors);
    let Some(parameters) = spec.get("parameters").filter(|p| !p.is_null()) else { return };
    let field = |key: &str| format!("spec.parameters.{key}");
    reference(parameters, "spec.parameters", errors);
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    match (text(parameters, "scope"), namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(FieldError::required(field("namespace"), "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(given)) => {
            all_invalid(&field("namespace"), &json!(given), names::dns_1123_label(given), errors);
        }
        ("Cluster", Some(_)) => {
            errors.push(FieldError::forbidden(field("namespace"), "`parameters.scope` is set to 'Cluster'"));
        }
        ("Cluster", None) => {}
        (other, _) => errors.push(FieldError::not_supported(field("scope"), &json!(other), &["Cluster", "Namespace"])),
    }
}

fn domain_path(field: &str, given: &str, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    match given.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            all_invalid(field, &json!(host), names::dns_1123_subdomain(host), errors);
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(field, &json!(given), detail));
        }
    }
}

/// An object of whatever kind.
fn reference(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(group) = value.get("apiGroup").and_then(Value::as_str) {
        all_invalid(&format!("{path}.apiGroup"), &json!(group), names::dns_1123_subdomain(group), errors);
    }
    for key in ["kind", "name"] {
        let (field, given) = (format!("{path}.{key}"), text(value, key));
        if given.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else {
            all_invalid(&field, &json!(given), names::path_segment(given), errors);
        }
    }
}

/// Checks an Ingress as `sub` writes it.
pub fn ingress(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    if sub == "status" {
        status(object, errors);
        return;
    }
    let spec = member(object, "spec");
    let rules = list(spec, "rules");
    let default = spec.get("defaultBackend").filter(|b| !b.is_null());
    if rules.is_empty() && default.is_none() {
        let value = spec.get("rules").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec", value, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(default) = default {
        backend(default, "spec.defaultBackend", errors);
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("spec.rules[{at}]");
        host(text(rule, "host"), &format!("{path}.host"), true, errors);
        if let Some(http) = rule.get("http").filter(|h| !h.is_null()) {
            paths(list(http, "paths"), &format!("{path}.http.paths"), errors);
        }
    }
    for (at, tls) in list(spec, "tls").iter().enumerate() {
        for (place, name) in list(tls, "hosts").iter().enumerate() {
            host(name.as_str().unwrap_or_default(), &format!("spec.tls[{at}].hosts[{place}]"), false, errors);
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            let wrong = names::dns_1123_subdomain(secret);
            all_invalid(&format!("spec.tls[{at}].secretName"), &json!(secret), wrong, errors);
        }
    }
    let class = spec.get("ingressClassName").and_then(Value::as_str);
    if let Some(class) = class {
        all_invalid("spec.ingressClassName", &json!(class), names::dns_1123_subdomain(class), errors);
        let named = annotation(object, CLASS).filter(|named| old.is_none() && *named != class);
        if let Some(named) = named {
            let detail = "must match `ingressClassName` when both are specified";
            errors.push(FieldError::invalid(format!("annotations.{CLASS}"), &json!(named), detail));
        }
    }
}

fn host(name: &str, field: &str, of_rule: bool, errors: &mut Vec<FieldError>) {
    if name.is_empty() && of_rule {
        return;
    }
    if of_rule && formats::sloppy_ip(name).is_some() {
        errors.push(FieldError::invalid(field, &json!(name), "must be a DNS name, not an IP address"));
    }
    let wrong = if name.contains('*') { formats::wildcard(name) } else { names::dns_1123_subdomain(name) };
    all_invalid(field, &json!(name), wrong, errors);
}

fn paths(paths: &[Value], field: &str, errors: &mut Vec<FieldError>) {
    if paths.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    for (at, path) in paths.iter().enumerate() {
        let (field, given) = (format!("{field}[{at}]"), text(path, "path"));
        let mut wrong = |detail: String| {
            errors.push(FieldError::invalid(format!("{field}.path"), &json!(given), detail));
        };
        match path.get("pathType").and_then(Value::as_str) {
            Some("Exact" | "Prefix") => {
                if !given.starts_with('/') {
                    wrong("must be an absolute path".to_owned());
                }
                let within = ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|bad| given.contains(bad));
                within.for_each(|bad| wrong(format!("must not contain '{bad}'")));
                let ends = ["/..", "/."].into_iter().filter(|bad| given.ends_with(bad));
                ends.for_each(|bad| wrong(format!("cannot end with '{bad}'")));
            }
            Some("ImplementationSpecific") if !given.is_empty() && !given.starts_with('/') => {
                wrong("must be an absolute path".to_owned());
            }
            Some("ImplementationSpecific") => {}
            None => errors.push(FieldError::required(format!("{field}.pathType"), "pathType must be specified")),
            Some(other) => {
                errors.push(FieldError::not_supported(format!("{field}.pathType"), &json!(other), &TYPES));
            }
        }
        backend(path.get("backend").unwrap_or(&Value::Null), &format!("{field}.backend"), errors);
    }
}

fn backend(backend: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let part = |key: &str| backend.get(key).filter(|v| !v.is_null());
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(path, &json!(""), detail));
    match (part("resource"), part("service")) {
        (Some(_), Some(_)) => wrong("cannot set both resource and service backends"),
        (None, None) => wrong("resource or service backend is required"),
        (Some(resource), None) => reference(resource, &format!("{path}.resource"), errors),
        (None, Some(service)) => {
            let name = text(service, "name");
            if name.is_empty() {
                errors.push(FieldError::required(format!("{path}.service.name"), ""));
            } else {
                all_invalid(&format!("{path}.service.name"), &json!(name), names::dns_1035_label(name), errors);
            }
            let port = service.get("port").unwrap_or(&Value::Null);
            let (name, number) = (text(port, "name"), port.get("number").and_then(Value::as_i64).unwrap_or_default());
            let field = |key: &str| format!("{path}.service.port.{key}");
            match (name.is_empty(), number) {
                (true, 0) => errors.push(FieldError::required(path, "port name or number is required")),
                (true, _) => all_invalid(&field("number"), &json!(number), formats::port_number(number), errors),
                (false, 0) => all_invalid(&field("name"), &json!(name), formats::port_name(name), errors),
                (false, _) => {
                    errors.push(FieldError::invalid(path, &json!(""), "cannot set both port name & port number"));
                }
            }
        }
    }
}

fn status(object: &Object, errors: &mut Vec<FieldError>) {
    let ingress = member(object, "status").pointer("/loadBalancer/ingress").and_then(Value::as_array);
    for (at, one) in ingress.into_iter().flatten().enumerate() {
        let field = |key: &str| format!("status.loadBalancer.ingress[{at}].{key}");
        let (ip, host) = (text(one, "ip"), text(one, "hostname"));
        if !ip.is_empty() {
            formats::legacy_ip(&field("ip"), ip, errors);
        }
        if !host.is_empty() {
            all_invalid(&field("hostname"), &json!(host), names::dns_1123_subdomain(host), errors);
            if formats::sloppy_ip(host).is_some() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(field("hostname"), &json!(host), detail));
            }
        }
    }
}

/// Checks a NetworkPolicy.
pub fn policy(object: &Object, errors: &mut Vec<FieldError>) {
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
