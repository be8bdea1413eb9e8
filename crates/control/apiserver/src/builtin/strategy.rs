//! Rules of the server's own kinds: what is filled in, what may not change, what must hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Defs, canonical};
use crate::jsonpath::JsonPath;
use crate::object::{Object, child, metadata_mut, name};
use crate::resource::Resource;
use crate::status::{FieldError, FieldErrorKind};

/// Bytes of a Secret's or ConfigMap's data.
const MAX_DATA: usize = 1 << 20;

/// Members of the core Event and of the events.k8s.io one that are the same under different names.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A core Event in the form of events.k8s.io/v1.
pub fn event_to_events_v1(object: &mut Object) {
    for (core, events) in EVENT_NAMES {
        if let Some(value) = object.shift_remove(core) {
            object.insert(events.to_owned(), value);
        }
    }
    settle("events.k8s.io", "Event", object);
}

/// An events.k8s.io/v1 Event in the form that is stored, the core one.
pub fn event_from_events_v1(object: &mut Object) {
    for (core, events) in EVENT_NAMES {
        if let Some(value) = object.shift_remove(events) {
            object.insert(core.to_owned(), value);
        }
    }
    settle("", "Event", object);
}

fn settle(group: &str, kind: &str, object: &mut Object) {
    if let Some(def) = Defs::get().kind(group, "v1", kind) {
        canonical::settle(def, object);
    }
}

/// Fields for selectors besides name and namespace.
pub fn selectable(group: &str, plural: &str) -> Vec<(String, JsonPath)> {
    let (label, path): (&[&str], &[&str]) = match (group, plural) {
        ("", "events") => (
            &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            &["", "", "", "", "", "", "", "", "", "source.component", ""],
        ),
        ("events.k8s.io", "events") => (
            &[
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "reason",
                "reportingController",
                "type",
            ],
            &["", "", "", "", "", "", "", ""],
        ),
        ("", "secrets") => (&["type"], &[""]),
        ("", "namespaces") => (&["status.phase"], &[""]),
        _ => (&[], &[]),
    };
    label
        .iter()
        .zip(path)
        .filter_map(|(label, path)| {
            let path = if path.is_empty() { label } else { path };
            Some(((*label).to_owned(), JsonPath::parse(&format!(".{path}")).ok()?))
        })
        .collect()
}

/// Fills in what a new or changed object of this kind needs, after decoding.
pub fn defaults(resource: &Resource, object: &mut Object) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => {
            let plain = object.shift_remove("stringData");
            if let Some(Value::Object(plain)) = plain {
                let data = child(object, "data");
                for (key, value) in plain {
                    let text = value.as_str().unwrap_or_default();
                    data.insert(key, json!(STANDARD.encode(text)));
                }
            }
            if object.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
                object.insert("type".into(), json!("Opaque"));
            }
        }
        ("", "namespaces") => {
            let label = name(object).to_owned();
            if !label.is_empty() {
                child(metadata_mut(object), "labels").insert("kubernetes.io/metadata.name".into(), json!(label));
            }
        }
        ("apiextensions.k8s.io", _) => crate::crd::lifecycle::defaults(object),
        _ => {}
    }
}

/// Sets what only the server may set on a new object.
pub fn prepare_create(resource: &Resource, object: &mut Object) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            let finalizers = child(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut()
                && !list.contains(&json!("kubernetes"))
            {
                list.push(json!("kubernetes"));
            }
            object.insert("status".into(), json!({"phase": "Active"}));
        }
        ("apiextensions.k8s.io", _) => {
            object.shift_remove("status");
        }
        _ => {}
    }
}

/// Keeps what an update may not change.
pub fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    if resource.is("", "namespaces") {
        for key in ["spec", "status"] {
            match old.get(key) {
                Some(value) => object.insert(key.into(), value.clone()),
                None => object.shift_remove(key),
            };
        }
    }
}

/// Checks an object; `old` is its former state.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => {
            data(object, &["data"], &mut errors);
            secret_type(object, &mut errors);
            if let Some(old) = old {
                unchanged(object, old, &["type"], "field is immutable", &mut errors);
                immutable(object, old, &["data"], &mut errors);
            }
        }
        ("", "configmaps") => {
            data(object, &["data", "binaryData"], &mut errors);
            if let Some(old) = old {
                immutable(object, old, &["data", "binaryData"], &mut errors);
            }
        }
        ("", "events") => event(object, &mut errors),
        ("events.k8s.io", "events") => events_v1(object, old, &mut errors),
        ("coordination.k8s.io", "leases") => lease(object, &mut errors),
        ("apiextensions.k8s.io", _) => errors = crate::crd::lifecycle::validate(object, old),
        _ => {}
    }
    errors
}

fn data(object: &Object, members: &[&str], errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for member in members {
        for (key, value) in object.get(*member).and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            let good = !key.is_empty()
                && key.len() <= 253
                && key != "."
                && !key.starts_with("..")
                && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            if !good {
                errors.push(FieldError::invalid(
                    format!("{member}[{key}]"),
                    &json!(key),
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                ));
            }
            total += if members.len() == 1 || *member == "binaryData" { text.len() / 4 * 3 } else { text.len() };
        }
    }
    if total > MAX_DATA {
        let field = if members.len() == 1 { "data" } else { "" };
        errors.push(FieldError {
            kind: FieldErrorKind::TooLong,
            field: field.to_owned(),
            value: String::new(),
            detail: format!("may not be more than {MAX_DATA} bytes"),
        });
    }
}

fn secret_type(object: &Object, errors: &mut Vec<FieldError>) {
    let needed: &[&str] = match object.get("type").and_then(Value::as_str).unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        _ => &[],
    };
    for key in needed {
        if object.get("data").and_then(|d| d.get(key)).is_none() {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    }
}

fn immutable(object: &Object, old: &Object, members: &[&str], errors: &mut Vec<FieldError>) {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for member in members {
        if object.get(*member) != old.get(*member) {
            errors.push(FieldError::forbidden(*member, "field is immutable when `immutable` is set"));
        }
    }
}

fn unchanged(object: &Object, old: &Object, members: &[&str], detail: &str, errors: &mut Vec<FieldError>) {
    for member in members {
        if object.get(*member) != old.get(*member) {
            errors.push(FieldError::invalid(*member, object.get(*member).unwrap_or(&Value::Null), detail));
        }
    }
}

fn event(object: &Object, errors: &mut Vec<FieldError>) {
    let of =
        |key: &str| object.get("involvedObject").and_then(|o| o.get(key)).and_then(Value::as_str).unwrap_or_default();
    let namespace = crate::object::meta_str(object, "namespace");
    let involved = of("namespace");
    if involved != namespace && !(involved.is_empty() && namespace == "default") {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &json!(involved),
            "does not match event.namespace",
        ));
    }
}

fn events_v1(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if old.is_some() {
        return;
    }
    for key in ["eventTime", "reportingController", "reportingInstance", "action", "reason", "type"] {
        if object.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            let field = if key == "type" { "type" } else { key };
            errors.push(FieldError::required(field, ""));
        }
    }
    if let Some(kind) = object.get("type").and_then(Value::as_str)
        && !kind.is_empty()
        && kind != "Normal"
        && kind != "Warning"
    {
        errors.push(FieldError::invalid("type", &json!(kind), ""));
    }
    if object.get("note").and_then(Value::as_str).is_some_and(|n| n.len() > 1024) {
        errors.push(FieldError::invalid("note", &json!(""), "can have at most 1024 characters"));
    }
}

fn lease(object: &Object, errors: &mut Vec<FieldError>) {
    let Some(spec) = object.get("spec") else { return };
    for (key, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        if let Some(number) = spec.get(key).and_then(Value::as_i64)
            && number < least
        {
            let what = if least == 1 { "must be greater than 0" } else { "must be greater than or equal to 0" };
            errors.push(FieldError::invalid(format!("spec.{key}"), &json!(number), what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_convert_there_and_back() {
        let core = json!({"involvedObject": {"name": "x"}, "message": "m", "count": 2, "reason": "r"});
        let Value::Object(mut object) = core.clone() else { panic!() };
        event_to_events_v1(&mut object);
        assert_eq!(object.get("regarding"), Some(&json!({"name": "x"})));
        assert_eq!(object.get("deprecatedCount"), Some(&json!(2)));
        event_from_events_v1(&mut object);
        assert_eq!(object.get("source"), Some(&json!({})));
        object.retain(|key, _| core.get(key).is_some());
        assert_eq!(Value::Object(object), core);
    }
}
