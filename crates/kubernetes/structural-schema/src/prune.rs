//! Pruning: drops members that the schema does not know, and reports their paths.

use serde_json::Value;

use crate::Object;
use crate::path::Path;
use crate::schema::{Additional, Schema};

/// Drops unknown members of a custom resource and pushes their paths to `unknown`.
pub fn prune(schema: &Schema, object: &mut Object, unknown: &mut Vec<String>) {
    let mut found = Vec::new();
    members(schema, object, &Path::Root, true, &mut found);
    found.sort();
    unknown.append(&mut found);
}

/// Drops unknown members of a part of a custom resource.
pub fn prune_value(schema: &Schema, value: &mut Value) {
    walk(schema, value, &Path::Root, &mut Vec::new());
}

fn members(schema: &Schema, object: &mut Object, path: &Path<'_>, resource: bool, unknown: &mut Vec<String>) {
    let mut drop = Vec::new();
    for (key, value) in object.iter_mut() {
        if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            // Object metadata has its own check.
            continue;
        }
        match schema.property(key) {
            Some(inner) => walk(inner, value, &Path::Key(path, key), unknown),
            None if schema.preserve_unknown || matches!(schema.additional, Additional::Any) => {}
            None => {
                unknown.push(Path::Key(path, key).to_string());
                drop.push(key.clone());
            }
        }
    }
    for key in drop {
        object.shift_remove(&key);
    }
}

/// Below a place that preserves unknown members: prunes only within members that the schema names.
fn skip(schema: &Schema, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                let reserved = schema.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
                if let Some(inner) = schema.property(key).filter(|_| !reserved) {
                    walk(inner, value, &Path::Key(path, key), unknown);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, value) in list.iter_mut().enumerate() {
                    skip(items, value, &Path::Index(path, at), unknown);
                }
            }
        }
        _ => {}
    }
}

fn walk(schema: &Schema, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) {
    if schema.preserve_unknown {
        return skip(schema, value, path, unknown);
    }
    match value {
        Value::Object(object) => members(schema, object, path, schema.embedded, unknown),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, value) in list.iter_mut().enumerate() {
                    walk(items, value, &Path::Index(path, at), unknown);
                }
            }
        }
        _ => {}
    }
}
