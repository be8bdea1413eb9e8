//! EndpointSlices.

use serde_json::{Value, json};

use super::endpoints::{list_of, node_name};
use super::service::{app_protocol, protocol};
use crate::checks::{all_invalid, formats, labels, list, member, text, unchanged};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    strategy: &EndpointSlice,
    ..Kind::NEW
};

/// The rules of EndpointSlices.
#[derive(Debug)]
struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn prepare_create(&self, object: &mut Object) {
        prepare(object, None);
    }

    fn prepare_update(&self, object: &mut Object, old: &Object) {
        prepare(object, Some(old));
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn warnings(&self, writing: &Writing<'_>, object: &Object) -> Vec<String> {
        warnings(object, writing.old.is_none())
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn labels_are_desired(&self) -> bool {
        // Consumers of slices look for them by label.
        true
    }
}

/// Ports of EndpointSlices are TCP and have the empty name unless said otherwise.
fn defaults(object: &mut Object) {
    for port in object.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        for (key, value) in [("name", ""), ("protocol", "TCP")] {
            if port.get(key).is_none_or(Value::is_null) {
                port[key] = json!(value);
            }
        }
    }
}

/// Drops what v1 does not take any more, unless the endpoints are as before.
fn prepare(object: &mut Object, old: Option<&Object>) {
    if old.is_some_and(|old| old.get("endpoints") == object.get("endpoints")) {
        return;
    }
    for endpoint in object.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(endpoint) = endpoint.as_object_mut() {
            endpoint.shift_remove("deprecatedTopology");
        }
    }
}

/// Checks an EndpointSlice.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let kind = object.get("addressType").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "" => errors.push(FieldError::required("addressType", "")),
        "IPv4" | "IPv6" | "FQDN" => {}
        other => errors.push(FieldError::not_supported("addressType", &json!(other), &["FQDN", "IPv4", "IPv6"])),
    }
    ports(list_of(object, "ports"), errors);
    let mut found = Vec::new();
    endpoints(list_of(object, "endpoints"), kind, &mut found);
    if old.is_none_or(|old| old.get("endpoints") != object.get("endpoints")) {
        errors.append(&mut found);
    }
    if let Some(old) = old {
        unchanged("addressType", member(object, "addressType"), member(old, "addressType"), errors);
    }
}

fn ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    if ports.len() > 20_000 {
        errors.push(FieldError::too_many("ports", ports.len() as u64, 20_000));
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let (path, name) = (format!("ports[{at}]"), text(port, "name"));
        if !name.is_empty() {
            all_invalid(&format!("{path}.name"), &json!(name), names::dns_1123_label(name), errors);
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
        // An empty protocol is given here, and so none that is known.
        match text(port, "protocol") {
            "" => {
                errors.push(FieldError::not_supported(format!("{path}.protocol"), &json!(""), &["SCTP", "TCP", "UDP"]))
            }
            _ => protocol(&format!("{path}.protocol"), port, errors),
        }
        app_protocol(&format!("{path}.appProtocol"), port, errors);
    }
}

fn endpoints(endpoints: &[Value], kind: &str, errors: &mut Vec<FieldError>) {
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many("endpoints", endpoints.len() as u64, 1000));
        return;
    }
    for (at, endpoint) in endpoints.iter().enumerate() {
        let path = format!("endpoints[{at}]");
        let (field, addresses) = (format!("{path}.addresses"), list(endpoint, "addresses"));
        if addresses.is_empty() {
            errors.push(FieldError::required(&field, "must contain at least 1 address"));
        } else if addresses.len() > 100 {
            errors.push(FieldError::too_many(&field, addresses.len() as u64, 100));
        }
        for (at, address) in addresses.iter().enumerate() {
            address_of(&field, at, address.as_str().unwrap_or_default(), kind, errors);
        }
        node_name(&path, endpoint, errors);
        let topology = endpoint.get("deprecatedTopology").unwrap_or(&Value::Null);
        labels(&format!("{path}.deprecatedTopology"), topology, errors);
        if let Some(host) = endpoint.get("hostname").and_then(Value::as_str) {
            all_invalid(&format!("{path}.hostname"), &json!(host), names::dns_1123_label(host), errors);
        }
        hints(&format!("{path}.hints"), endpoint.get("hints").unwrap_or(&Value::Null), errors);
    }
}

fn address_of(list: &str, at: usize, address: &str, kind: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{list}[{at}]");
    let value = json!(address);
    match kind {
        "IPv4" => {
            if let Some(ip) = formats::legacy_ip(&field, address, errors) {
                if !formats::is_ipv4(&ip) {
                    errors.push(FieldError::invalid(list, &value, "must be an IPv4 address"));
                }
                formats::endpoint_ip(&field, address, errors);
            }
        }
        "IPv6" => strict_ip(list, &field, address, errors),
        "FQDN" => {
            let name = address.strip_suffix('.').unwrap_or(address);
            let bad = names::dns_1123_subdomain(name);
            if address.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else if !bad.is_empty() {
                errors.push(FieldError::invalid(field, &json!(name), bad.join(",")));
            } else if !name.contains('.') {
                let detail = "should be a domain with at least two segments separated by dots";
                errors.push(FieldError::invalid(field, &json!(name), detail));
            } else if let Some(label) = name.split('.').find(|l| !names::dns_1123_label(l).is_empty()) {
                errors.push(FieldError::invalid(field, &json!(label), names::dns_1123_label(label).join(",")));
            }
        }
        _ => {}
    }
}

/// An address in its one form.
fn strict_ip(list: &str, field: &str, address: &str, errors: &mut Vec<FieldError>) {
    let Some(ip) = formats::legacy_ip(field, address, errors) else { return };
    let value = json!(address);
    let detail = match address.parse::<std::net::IpAddr>() {
        Err(_) => Some("must not have leading 0s".to_owned()),
        Ok(ip) if ip.to_canonical() != ip => Some("must not be an IPv4-mapped IPv6 address".to_owned()),
        Ok(ip) if ip.to_string() != address => Some(format!("must be in canonical form ({:?})", ip.to_string())),
        Ok(_) => None,
    };
    if let Some(detail) = detail {
        errors.push(FieldError::invalid(field, &value, detail));
        return;
    }
    if formats::is_ipv4(&ip) {
        errors.push(FieldError::invalid(list, &value, "must be an IPv6 address"));
    }
    formats::endpoint_ip(field, address, errors);
}

fn hints(path: &str, hints: &Value, errors: &mut Vec<FieldError>) {
    for (key, check) in [("forZones", names::label_value as names::Rule), ("forNodes", names::dns_1123_subdomain)] {
        let all = list(hints, key);
        if all.len() > 8 {
            errors.push(FieldError::too_many(format!("{path}.{key}"), all.len() as u64, 8));
            return;
        }
        for (at, hint) in all.iter().enumerate() {
            let (field, name) = (format!("{path}.{key}[{at}].name"), text(hint, "name"));
            if all.iter().take(at).any(|other| text(other, "name") == name) {
                errors.push(FieldError::duplicate(&field, &json!(name)));
            }
            all_invalid(&field, &json!(name), check(name), errors);
        }
    }
}

/// Warnings for the client of an EndpointSlice.
fn warnings(object: &Object, created: bool) -> Vec<String> {
    let kind = object.get("addressType").and_then(Value::as_str).unwrap_or_default();
    let mut out = Vec::new();
    if created && kind == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    for (at, endpoint) in list_of(object, "endpoints").iter().enumerate() {
        for (index, address) in list(endpoint, "addresses").iter().enumerate() {
            let field = format!("endpoints[{at}].addresses[{index}]");
            out.extend(formats::ip_warning(&field, address.as_str().unwrap_or_default()));
        }
    }
    out
}
