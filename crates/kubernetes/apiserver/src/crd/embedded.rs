//! Embedded resources (`x-kubernetes-embedded-resource`), whose kind, version and metadata follow the rules of any
//! object.

use core_kinds::{Defs, decode as typed};
use gotext::json_type;
use serde_json::{Value, json};
use structural_schema::schema::{Additional, Schema};

use crate::meta;
use crate::object::{self, Object};
use crate::status::FieldError;

/// Converts the metadata of embedded resources to their types. Unknown members are dropped and reported in `unknown`;
/// a wrong type is an error.
pub fn coerce(schema: &Schema, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    let mut found = Vec::new();
    let result = coerce_members(schema, object, "", &mut found);
    found.sort();
    unknown.append(&mut found);
    result
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn coerce_members(
    schema: &Schema,
    object: &mut Object,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if schema.embedded {
        for key in ["apiVersion", "kind"] {
            if let Some(value) = object.get(key).filter(|v| !v.is_string()) {
                return Err(FieldError::invalid(join(path, key), value, "must be a string"));
            }
        }
        coerce_metadata(object, &join(path, "metadata"), unknown)?;
    }
    for (key, value) in object.iter_mut() {
        match (schema.properties.get(key), &schema.additional) {
            (Some(inner), _) => coerce_value(inner, value, &join(path, key), unknown)?,
            (None, Additional::Schema(inner)) => coerce_value(inner, value, &format!("{path}[{key}]"), unknown)?,
            _ => {}
        }
    }
    Ok(())
}

fn coerce_metadata(object: &mut Object, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    let Some(given) = object.get("metadata").cloned() else { return Ok(()) };
    let Some(Value::Object(meta)) = object.get_mut("metadata") else {
        if given.is_null() {
            object.insert("metadata".into(), json!({}));
            return Ok(());
        }
        let kind = json_type(&given);
        let detail = format!("json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta");
        return Err(FieldError::invalid(path, &given, detail));
    };
    let Some(def) = Defs::get().object_meta() else { return Ok(()) };
    let mut found = Vec::new();
    typed::decode(def, meta, &mut found).map_err(|why| FieldError::invalid(path, &given, why.to_string()))?;
    unknown.extend(found.into_iter().map(|p| format!("{path}.{p}")));
    Ok(())
}

fn coerce_value(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    if !schema.has_embedded {
        return Ok(());
    }
    match (value, &schema.items) {
        (Value::Object(object), _) => coerce_members(schema, object, path, unknown),
        (Value::Array(list), Some(items)) => list
            .iter_mut()
            .enumerate()
            .try_for_each(|(at, value)| coerce_value(items, value, &format!("{path}[{at}]"), unknown)),
        _ => Ok(()),
    }
}

/// Validates kind, version and metadata of embedded resources.
pub fn validate(schema: &Schema, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.has_embedded {
        members(schema, object, "", &mut errors);
    }
    errors
}

fn members(schema: &Schema, object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    if schema.embedded {
        validate_embedded(object, path, errors);
    }
    for (key, value) in object {
        match (schema.properties.get(key), &schema.additional) {
            (Some(inner), _) => walk(inner, value, &join(path, key), errors),
            (None, Additional::Schema(inner)) => walk(inner, value, &format!("{path}[{key}]"), errors),
            _ => {}
        }
    }
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !schema.has_embedded {
        return;
    }
    match (value, &schema.items) {
        (Value::Object(object), _) => members(schema, object, path, errors),
        (Value::Array(list), Some(items)) => {
            for (at, value) in list.iter().enumerate() {
                walk(items, value, &format!("{path}[{at}]"), errors);
            }
        }
        _ => {}
    }
}

fn validate_embedded(object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        let at = join(path, key);
        match object.get(key) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, &json!(""), "must not be empty"));
            }
            Some(Value::String(text)) if key == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(at, &json!(text), detail));
                }
            }
            Some(Value::String(text)) => {
                if let Some(why) = names::joined(names::dns_1035_label(&text.to_lowercase())) {
                    let detail = format!("may have mixed case, but should otherwise match: {why}");
                    errors.push(FieldError::invalid(at, &json!(text), detail));
                }
            }
            Some(other) => errors.push(FieldError::invalid(at, other, "must be a string")),
        }
    }
    if object.get("metadata").is_some_and(Value::is_object) {
        let mut found = Vec::new();
        meta::validate_meta(object::metadata(object), &mut found);
        for mut error in found {
            error.field = join(path, &error.field);
            errors.push(error);
        }
    }
}
