//! Lists of type set and map must not contain duplicates (`x-kubernetes-list-type`).

use std::collections::HashMap;

use field_errors::FieldError;
use serde_json::{Value, json};

use crate::Object;
use crate::schema::{Additional, ListType, Schema};

/// Duplicate values and keys in the object's sets and maps. Reports only the first repetition of each.
pub fn validate(schema: &Schema, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    members(schema, object, "", &mut errors);
    errors
}

fn members(schema: &Schema, object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in object {
        let child = |named: bool| match (named, path.is_empty()) {
            (true, true) => key.clone(),
            (true, false) => format!("{path}.{key}"),
            (false, _) => format!("{path}[{key}]"),
        };
        match (schema.properties.get(key), &schema.additional) {
            (Some(inner), _) if inner.has_lists => walk(inner, value, &child(true), errors),
            (None, Additional::Schema(inner)) if inner.has_lists => walk(inner, value, &child(false), errors),
            _ => {}
        }
    }
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(object) => members(schema, object, path, errors),
        Value::Array(list) => {
            unique(schema, list, path, errors);
            if let Some(items) = schema.items.as_ref().filter(|i| i.has_lists) {
                for (at, value) in list.iter().enumerate() {
                    walk(items, value, &format!("{path}[{at}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn unique(schema: &Schema, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let at_index = |at: usize| format!("{path}[{at}]");
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            for at in repeated(list.iter().map(canonical)) {
                errors.push(FieldError::duplicate(at_index(at), &list[at]));
            }
        }
        ListType::Map(keys) => {
            if let Some((at, bad)) = list.iter().enumerate().find(|(_, v)| !v.is_object() && !v.is_null()) {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(at_index(at), bad, detail));
                return;
            }
            let of_keys = |value: &Value| -> Value {
                keys.iter().filter_map(|k| Some((k.clone(), value.get(k)?.clone()))).collect::<Object>().into()
            };
            let all: Vec<Value> = list.iter().map(of_keys).collect();
            for at in repeated(all.iter().map(canonical)) {
                errors.push(FieldError::duplicate(at_index(at), &all[at]));
            }
        }
    }
}

/// The indexes of second occurrences.
fn repeated(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut out = Vec::new();
    for (at, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            out.push(at);
        }
    }
    out
}

/// The value's text, the same for all orders of members.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => {
            let mut sorted = value.clone();
            sorted.sort_all_objects();
            sorted.to_string()
        }
        scalar => json!(scalar).to_string(),
    }
}
