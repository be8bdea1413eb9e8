//! A definition's own defaults, checks and conditions.

use serde_json::{Value, json};

use super::names;
use super::schema::Schema;
use crate::fields::Scope;
use crate::object::{Object, child, name, now, strings};
use crate::resource::{Catalog, Resource};
use crate::status::{FieldError, FieldErrorKind};
use crate::verbs::names::{is_dns_label, is_dns_subdomain};

/// Settles names and conditions as upstream's controllers do right after a definition is written: they own what they set.
pub fn settle_owned(resource: &Resource, crd: &mut Object, catalog: &Catalog) {
    let before = crd.clone();
    settle(crd, catalog);
    let scope = Scope { resource, catalog, sub: "status", manager: "kube-apiserver" };
    scope.update(Some(&before), crd);
}

/// Finalizer that keeps a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in names and conversion.
pub fn defaults(crd: &mut Object) {
    let Some(Value::Object(spec)) = crd.get_mut("spec") else { return };
    complete_names(child(spec, "names"));
    if spec.get("conversion").is_none() {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
    spec.shift_remove("preserveUnknownFields");
}

fn complete_names(names: &mut Object) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (key, made) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() && !kind.is_empty() {
            names.insert(key.to_owned(), json!(made));
        }
    }
}

/// Checks a definition; `old` is its former state.
pub fn validate(crd: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, plural) = names(crd);
    let spec = crd.get("spec").cloned().unwrap_or_default();
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !is_dns_subdomain(&group) || !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
    let wanted = format!("{plural}.{group}");
    if name(crd) != wanted {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name(crd)),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let pointer = format!("spec.names.{key}");
        match spec.pointer(&format!("/names/{key}")).and_then(Value::as_str).unwrap_or_default() {
            "" => errors.push(FieldError::required(pointer, "")),
            text if !is_dns_label(&text.to_lowercase()) => {
                errors.push(FieldError::invalid(pointer, &json!(text), "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"));
            }
            _ => {}
        }
    }
    let scope = spec.get("scope").cloned().unwrap_or_default();
    if scope != "Namespaced" && scope != "Cluster" {
        let detail = "supported values: \"Cluster\", \"Namespaced\"";
        errors.push(FieldError::with_value(FieldErrorKind::NotSupported, "spec.scope", &scope, detail));
    }
    crate::conversion::validate(&spec, &mut errors);
    versions(&spec, &mut errors);
    if let Some(old) = old {
        for pointer in ["/group", "/scope", "/names/plural", "/names/kind"] {
            let before = old.get("spec").and_then(|s| s.pointer(pointer));
            if before != spec.pointer(pointer) && super::established(old) {
                let value = spec.pointer(pointer).unwrap_or(&Value::Null);
                let field = format!("spec{}", pointer.replace('/', "."));
                errors.push(FieldError::invalid(field, value, "field is immutable"));
            }
        }
    }
    errors
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let list = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored = list.iter().filter(|v| v.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            &json!(""),
            "must have exactly one version marked as storage version",
        ));
    }
    for (at, version) in list.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        if !is_dns_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), "must be a DNS-1035 label"));
        }
        if list[..at].iter().any(|v| v.get("name") == version.get("name")) {
            errors.push(FieldError::invalid("spec.versions", &json!(name), "must contain unique version names"));
        }
        let schema_path = format!("{path}.schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None => errors.push(FieldError::required(schema_path, "schemas are required")),
            Some(schema) => match Schema::parse(schema) {
                Err((inner, why)) => {
                    errors.push(FieldError::invalid(format!("{schema_path}{inner}"), &json!(""), why));
                }
                Ok(_) => structural(schema, &schema_path, true, errors),
            },
        }
        for (at, column) in
            version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let path = format!("{path}.additionalPrinterColumns[{at}].jsonPath");
            let text = column.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
            if text.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if let Err(why) = crate::jsonpath::JsonPath::parse(text) {
                errors.push(FieldError::invalid(path, &json!(text), format!("is not valid JSONPath: {why}")));
            }
        }
    }
}

/// Every member needs a type (unless it is int-or-string or keeps unknown fields), and what is not structural is refused.
fn structural(schema: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let ty = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let free = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
    if ty.is_empty() && (root || !free) {
        let detail =
            if root { "must not be empty at the root" } else { "must not be empty for specified object fields" };
        errors.push(FieldError::required(format!("{path}.type"), detail));
    } else if root && ty != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(ty), "must be object at the root"));
    }
    for key in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"] {
        if schema.get(key).is_some_and(|v| !v.is_null()) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
        }
    }
    if flag("uniqueItems") {
        errors.push(FieldError::forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if ty == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    let map_keys = strings(schema.get("x-kubernetes-list-map-keys"));
    if schema.get("x-kubernetes-list-type") == Some(&json!("map")) && map_keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.x-kubernetes-list-map-keys"), detail));
    }
    for (key, member) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if root && key == "metadata" {
            continue;
        }
        structural(member, &format!("{path}.properties[{key}]"), false, errors);
    }
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        structural(items, &format!("{path}.items"), false, errors);
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|i| i.is_object()) {
        structural(inner, &format!("{path}.additionalProperties"), false, errors);
    }
}

/// Sets the status that the definition has now: names, conditions and stored versions.
pub fn settle(crd: &mut Object, catalog: &Catalog) {
    let (group, plural) = names(crd);
    let wanted = crd.get("spec").and_then(|s| s.get("names")).cloned().unwrap_or_default();
    let conflict = conflict(&group, &plural, &wanted, catalog);
    let storage = crd
        .get("spec")
        .and_then(|s| s.get("versions"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .and_then(|v| v.get("name"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let status = child(crd, "status");
    match &conflict {
        None => {
            set_condition(status, "NamesAccepted", true, "NoConflicts", "no conflicts found");
            set_condition(status, "Established", true, "InitialNamesAccepted", "the initial names have been accepted");
            status.insert("acceptedNames".into(), wanted);
        }
        Some((reason, message)) => {
            set_condition(status, "NamesAccepted", false, reason, message);
            if !status.contains_key("acceptedNames") {
                set_condition(status, "Established", false, "NotAccepted", "not all names are accepted");
                status.insert("acceptedNames".into(), json!({"kind": "", "plural": ""}));
            }
        }
    }
    let mut stored = strings(status.get("storedVersions"));
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
    }
    status.insert("storedVersions".into(), json!(stored));
}

/// Another resource of the group that has one of the names.
fn conflict(group: &str, plural: &str, wanted: &Value, catalog: &Catalog) -> Option<(&'static str, String)> {
    let text = |key: &str| wanted.get(key).and_then(Value::as_str).unwrap_or_default();
    for other in catalog.all().filter(|r| r.group == group && r.plural != plural) {
        let mut taken = vec![other.plural.as_str(), other.singular.as_str()];
        taken.extend(other.short_names.iter().map(String::as_str));
        let mut asked = vec![text("plural").to_owned(), text("singular").to_owned()];
        asked.extend(strings(wanted.get("shortNames")));
        if let Some(name) = asked.iter().find(|n| taken.contains(&n.as_str())) {
            return Some(("NameConflict", format!("{name:?} is already in use")));
        }
        if other.kind == text("kind") || other.list_kind == text("listKind") || other.kind == text("listKind") {
            return Some(("KindConflict", format!("{:?} is already in use", text("kind"))));
        }
    }
    None
}

/// Sets one condition; the time moves only when the status does.
pub fn set_condition(status: &mut Object, ty: &str, good: bool, reason: &str, message: &str) {
    let wanted = if good { "True" } else { "False" };
    if !status.get("conditions").is_some_and(Value::is_array) {
        status.insert("conditions".into(), json!([]));
    }
    let Some(Value::Array(list)) = status.get_mut("conditions") else { return };
    let found = list.iter().position(|c| c.get("type").and_then(Value::as_str) == Some(ty));
    let time = match found {
        Some(at) if list[at].get("status").and_then(Value::as_str) == Some(wanted) => {
            list[at].get("lastTransitionTime").cloned().unwrap_or_else(|| json!(now()))
        }
        _ => json!(now()),
    };
    let condition =
        json!({"type": ty, "status": wanted, "lastTransitionTime": time, "reason": reason, "message": message});
    match found {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}
