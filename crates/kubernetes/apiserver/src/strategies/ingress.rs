//! Ingresses: stored for those who look after them; nothing here does.

use serde_json::{Value, json};

use crate::checks::{all_invalid, annotation, formats, list, member, reference, text};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    plural: "ingresses",
    short_names: &["ing"],
    status: true,
    strategy: &Ingress,
    ..Kind::NEW
};

const CLASS: &str = "kubernetes.io/ingress.class";

const TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// The rules of Ingresses.
#[derive(Debug)]
struct Ingress;

impl Strategy for Ingress {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, writing.sub, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }
}

/// Checks an Ingress as `sub` writes it.
fn validate(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
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
