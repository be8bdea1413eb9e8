//! Endpoints.

use serde_json::{Value, json};

use super::service::{app_protocol, protocol};
use crate::checks::{all_invalid, formats, list, member, text};
use crate::object::Object;
use crate::resource::Resource;
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    short_names: &["ep"],
    deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    strategy: &Endpoints,
    ..Kind::NEW
};

/// The rules of Endpoints.
#[derive(Debug)]
struct Endpoints;

impl Strategy for Endpoints {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn warnings(&self, _: &Writing<'_>, object: &Object) -> Vec<String> {
        warnings(object)
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn registry_folder(&self, _: &Resource) -> String {
        "services/endpoints".to_owned()
    }
}

/// Ports of Endpoints are TCP unless said otherwise.
fn defaults(object: &mut Object) {
    for subset in object.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten() {
        for port in subset.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if text(port, "protocol").is_empty() {
                port["protocol"] = json!("TCP");
            }
        }
    }
}

/// Checks Endpoints. What did not change stays allowed.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    for (at, subset) in list_of(object, "subsets").iter().enumerate() {
        let path = format!("subsets[{at}]");
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            found.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for key in ["addresses", "notReadyAddresses"] {
            for (at, address) in list(subset, key).iter().enumerate() {
                endpoint_address(&format!("{path}.{key}[{at}]"), address, &mut found);
            }
        }
        let ports = list(subset, "ports");
        for (at, port) in ports.iter().enumerate() {
            let (path, name) = (format!("{path}.ports[{at}]"), text(port, "name"));
            if name.is_empty() && ports.len() > 1 {
                found.push(FieldError::required(format!("{path}.name"), ""));
            } else if !name.is_empty() {
                all_invalid(&format!("{path}.name"), &json!(name), names::dns_1123_label(name), &mut found);
            }
            let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            all_invalid(&format!("{path}.port"), &json!(number), formats::port_number(number), &mut found);
            protocol(&format!("{path}.protocol"), port, &mut found);
            app_protocol(&format!("{path}.appProtocol"), port, &mut found);
        }
    }
    if old.is_none_or(|old| old.get("subsets") != object.get("subsets")) {
        errors.append(&mut found);
    }
}

/// The items of a list, none if absent.
pub(super) fn list_of<'a>(object: &'a Object, key: &str) -> &'a [Value] {
    member(object, key).as_array().map(Vec::as_slice).unwrap_or_default()
}

fn endpoint_address(path: &str, address: &Value, errors: &mut Vec<FieldError>) {
    let (ip, host) = (text(address, "ip"), text(address, "hostname"));
    let field = format!("{path}.ip");
    formats::legacy_ip(&field, ip, errors);
    if !host.is_empty() {
        all_invalid(&format!("{path}.hostname"), &json!(host), names::dns_1123_label(host), errors);
    }
    node_name(path, address, errors);
    formats::endpoint_ip(&field, ip, errors);
}

/// Checks the name of an endpoint's node.
pub(super) fn node_name(path: &str, endpoint: &Value, errors: &mut Vec<FieldError>) {
    if let Some(name) = endpoint.get("nodeName").and_then(Value::as_str) {
        all_invalid(&format!("{path}.nodeName"), &json!(name), names::dns_1123_subdomain(name), errors);
    }
}

/// Warnings about the addresses of Endpoints.
fn warnings(object: &Object) -> Vec<String> {
    let mut out = Vec::new();
    for (at, subset) in list_of(object, "subsets").iter().enumerate() {
        for key in ["addresses", "notReadyAddresses"] {
            for (index, address) in list(subset, key).iter().enumerate() {
                let field = format!("subsets[{at}].{key}[{index}].ip");
                out.extend(formats::ip_warning(&field, text(address, "ip")));
            }
        }
    }
    out
}
