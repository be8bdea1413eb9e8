//! What the checks of several kinds have in common, in upstream's words (`pkg/apis/*/validation`).

pub mod client_config;
pub mod formats;
pub mod selector;

use serde_json::{Value, json};

use crate::object::Object;
use crate::status::FieldError;

/// A text, empty if absent.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list, none if absent.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A member of an object, null if absent.
pub fn member<'a>(object: &'a Object, key: &str) -> &'a Value {
    object.get(key).unwrap_or(&Value::Null)
}

/// One error for each text of a check.
pub fn all_invalid(field: &str, value: &Value, texts: impl IntoIterator<Item = String>, errors: &mut Vec<FieldError>) {
    errors.extend(texts.into_iter().map(|detail| FieldError::invalid(field, value, detail)));
}

/// A value that may not change.
pub fn unchanged(field: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new != old {
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

/// Labels, or what has their form.
pub fn labels(field: &str, map: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in map.as_object().into_iter().flatten() {
        all_invalid(field, &json!(key), names::qualified_name(key), errors);
        all_invalid(field, value, names::label_value(value.as_str().unwrap_or_default()), errors);
    }
}

/// An annotation, if it is there.
pub fn annotation<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    crate::object::metadata(object).get("annotations")?.get(key)?.as_str()
}

/// Checks a reference to an object of whatever kind.
pub fn reference(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
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
