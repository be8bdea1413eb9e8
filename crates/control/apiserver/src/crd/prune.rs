//! Pruning: what the schema does not know is dropped, and told to those who ask.

use serde_json::Value;

use super::schema::{Additional, Schema};
use crate::object::Object;

/// Drops unknown members of a custom resource and pushes their paths to `unknown`.
pub fn prune(schema: &Schema, object: &mut Object, unknown: &mut Vec<String>) {
    members(schema, object, "", true, unknown);
}

fn members(schema: &Schema, object: &mut Object, path: &str, resource: bool, unknown: &mut Vec<String>) {
    let mut drop = Vec::new();
    for (key, value) in object.iter_mut() {
        let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            // Object metadata has its own check.
            continue;
        }
        match schema.property(key) {
            Some(inner) => walk(inner, value, &at, unknown),
            None if schema.preserve_unknown || matches!(schema.additional, Additional::Any) => {}
            None => {
                unknown.push(at);
                drop.push(key.clone());
            }
        }
    }
    for key in drop {
        object.shift_remove(&key);
    }
}

fn walk(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => members(schema, object, path, schema.embedded, unknown),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, value) in list.iter_mut().enumerate() {
                    walk(items, value, &format!("{path}[{at}]"), unknown);
                }
            }
        }
        _ => {}
    }
}
