//! Defaulting: absent members get the schema's default, and so do nulls that are not allowed.

use serde_json::Value;

use crate::Object;
use crate::schema::{Additional, Schema};

/// Fills in the defaults of a custom resource.
pub fn apply_object(schema: &Schema, object: &mut Object) {
    let mut value = Value::Object(std::mem::take(object));
    apply(schema, &mut value);
    if let Value::Object(whole) = value {
        *object = whole;
    }
}

/// Drops nulls that are neither allowed nor replaced by a default. Lists keep them, so that indexes stay.
pub fn drop_nulls(schema: &Schema, object: &mut Object) {
    object.retain(|key, value| {
        let Some(inner) = schema.property(key) else { return true };
        if value.is_null() {
            return inner.nullable || inner.default.is_some();
        }
        drop_nulls_within(inner, value);
        true
    });
}

fn drop_nulls_within(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(object) => drop_nulls(schema, object),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|value| drop_nulls_within(items, value));
            }
        }
        _ => {}
    }
}

/// Fills in defaults, at any depth.
pub fn apply(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, member) in &schema.properties {
                let Some(default) = &member.default else { continue };
                let missing = match object.get(key) {
                    None => true,
                    Some(Value::Null) => !member.nullable,
                    Some(_) => false,
                };
                if missing {
                    object.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in object.iter_mut() {
                match (schema.properties.get(key), &schema.additional) {
                    (Some(inner), _) => apply(inner, value),
                    (None, Additional::Schema(inner)) => {
                        if value.is_null()
                            && !inner.nullable
                            && let Some(default) = &inner.default
                        {
                            *value = default.clone();
                        }
                        apply(inner, value);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for value in list {
                    if value.is_null()
                        && !items.nullable
                        && let Some(default) = &items.default
                    {
                        *value = default.clone();
                    }
                    apply(items, value);
                }
            }
        }
        _ => {}
    }
}
