//! Schemas of custom resources as clients see them, from the stored ones. The 2.0 form leaves out what its clients
//! misread.

use serde_json::{Map, Value, json};

use super::schemas::{self, API_VERSION, KIND, METADATA, OBJECT_META};
use crate::resource::Resource;

/// The stored properties of one version of a custom resource.
#[derive(Debug, Default, Clone)]
pub struct Stored {
    /// Its structural schema.
    pub schema: Option<Value>,
    /// Whether unknown fields are preserved in all versions.
    pub preserves: bool,
    /// Paths of selectable fields, without the leading dot.
    pub selectable: Vec<String>,
}

/// Keywords that are copied from a schema.
const PLAIN: [&str; 25] = [
    "type",
    "nullable",
    "description",
    "title",
    "default",
    "format",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];
/// Keywords that are copied only if true.
const FLAGS: [&str; 3] =
    ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"];

/// The definitions of a custom resource and of its list, for version 2.0 if `two`.
pub fn schemas(resource: &Resource, stored: Option<&Stored>, two: bool) -> (Value, Value) {
    let gone = Stored::default();
    let stored = stored.unwrap_or(&gone);
    let mut object = match &stored.schema {
        Some(schema) if !(two && (stored.preserves || flag(schema, FLAGS[0]))) => {
            let mut out = structural(schema, two);
            embed(&mut out, two);
            set(&mut out, "metadata", schemas::refer(OBJECT_META, METADATA, false));
            set(&mut out, "apiVersion", json!({"type": "string", "description": API_VERSION}));
            set(&mut out, "kind", json!({"type": "string", "description": KIND}));
            out
        }
        // No properties: clients reject fields that are not listed.
        _ => json!({"type": "object"}),
    };
    object["x-kubernetes-group-version-kind"] = schemas::gvk(resource, &resource.kind);
    let mut list =
        schemas::list(resource, schemas::refer(&schemas::name_of(resource), "", false), schemas::list_meta(false));
    if !stored.selectable.is_empty() {
        let fields: Vec<Value> = stored.selectable.iter().map(|path| json!({"fieldPath": path})).collect();
        object["x-kubernetes-selectable-fields"] = json!(fields);
        list["x-kubernetes-selectable-fields"] = json!(fields);
    }
    (object, list)
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn set(schema: &mut Value, property: &str, value: Value) {
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema["properties"] = json!({});
    }
    schema["properties"][property] = value;
}

/// The schema for clients. Its depth was limited when it was stored.
fn structural(schema: &Value, two: bool) -> Value {
    let mut out = Map::new();
    for key in PLAIN {
        let empty = |v: &Value| v.is_null() || v == "" || v == false || v.as_array().is_some_and(Vec::is_empty);
        if let Some(value) = schema.get(key).filter(|v| key == "default" && !v.is_null() || !empty(v)) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    for key in FLAGS.into_iter().filter(|k| flag(schema, k)) {
        out.insert(key.to_owned(), Value::Bool(true));
    }
    for key in ["properties", "items", "additionalProperties"] {
        let converted = match (key, schema.get(key)) {
            ("properties", Some(Value::Object(members))) => {
                members.iter().map(|(name, member)| (name.clone(), structural(member, two))).collect()
            }
            (_, Some(inner @ Value::Object(_))) => structural(inner, two),
            ("additionalProperties", Some(Value::Bool(all))) => Value::Bool(*all),
            _ => continue,
        };
        out.insert(key.to_owned(), converted);
    }
    if two {
        simplify(&mut out, schema);
    } else {
        for key in ["allOf", "anyOf", "oneOf", "not"] {
            if let Some(value) = schema.get(key).filter(|v| !v.is_null()) {
                out.insert(key.to_owned(), value.clone());
            }
        }
        unfold(&mut out);
    }
    Value::Object(out)
}

/// Expresses int-or-string in standard keywords.
fn unfold(schema: &mut Map<String, Value>) {
    if schema.get(FLAGS[2]) != Some(&Value::Bool(true)) {
        return;
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let is_either = |value: Option<&Value>| value == Some(&either);
    let first_is = schema.get("allOf").and_then(|all| all.pointer("/0/anyOf"));
    if is_either(schema.get("anyOf")) || is_either(first_is) {
        return;
    }
    if schema.contains_key("anyOf") {
        let mut all = vec![json!({"anyOf": either})];
        all.extend(schema.get("allOf").and_then(Value::as_array).cloned().unwrap_or_default());
        schema.insert("allOf".to_owned(), Value::Array(all));
    } else {
        schema.insert("anyOf".to_owned(), either);
    }
}

/// Drops what 2.0 cannot express, and what kubectl misreads in it.
fn simplify(out: &mut Map<String, Value>, schema: &Value) {
    let is = |ty: &str| schema.get("type").is_some_and(|t| t == ty);
    let (nullable, preserves) = (flag(schema, "nullable"), flag(schema, FLAGS[0]));
    if nullable || preserves {
        out.shift_remove("items");
        out.shift_remove("properties");
    }
    if nullable || preserves && is("object") || is("array") && !out.contains_key("items") {
        out.shift_remove("nullable");
        out.shift_remove("type");
    }
    let nullable_member = |name: &Value| {
        let member = out.get("properties").and_then(|_| schema.pointer("/properties")?.get(name.as_str()?));
        member.is_some_and(|m| flag(m, "nullable"))
    };
    let values = schema.get("additionalProperties").is_some_and(|inner| flag(inner, "nullable"));
    let required: Vec<Value> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let kept: Vec<Value> = required.into_iter().filter(|name| !values && !nullable_member(name)).collect();
    if kept.is_empty() {
        out.shift_remove("required");
    } else {
        out.insert("required".to_owned(), Value::Array(kept));
    }
}

/// Adds the common fields of objects to embedded objects.
fn embed(schema: &mut Value, two: bool) {
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        members.values_mut().for_each(|member| embed(member, two));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key).filter(|v| v.is_object()) {
            embed(inner, two);
        }
    }
    if !flag(schema, FLAGS[1]) || two && flag(schema, FLAGS[0]) {
        return;
    }
    set(schema, "apiVersion", json!({"type": "string", "description": API_VERSION}));
    set(schema, "kind", json!({"type": "string", "description": KIND}));
    set(schema, "metadata", schemas::refer(OBJECT_META, METADATA, false));
    let mut required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|r| r == name) {
            required.push(json!(name));
        }
    }
    schema["required"] = Value::Array(required);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_client_gets_nothing_that_it_misreads() {
        let schema = json!({"type": "object", "required": ["a", "b"], "oneOf": [{"required": ["a"]}], "properties": {
            "a": {"type": "array", "nullable": true, "items": {"type": "string"}},
            "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"d": {"type": "string"}}},
            "e": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "string"}}}});
        assert_eq!(
            structural(&schema, true),
            json!({"type": "object", "required": ["b"], "properties": {
                "a": {}, "b": {"x-kubernetes-int-or-string": true},
                "c": {"x-kubernetes-preserve-unknown-fields": true},
                "e": {"x-kubernetes-preserve-unknown-fields": true}}})
        );
        let mut whole = structural(&schema, false);
        assert_eq!(whole, schema);
        whole["properties"]["b"] = json!({"x-kubernetes-int-or-string": true});
        assert_eq!(structural(&whole, false), schema);
    }

    #[test]
    fn numbers_or_texts_are_beside_other_choices() {
        let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"minimum": 1}], "allOf": [{"maximum": 2}]});
        let converted = structural(&schema, false);
        assert_eq!(converted["allOf"], json!([{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maximum": 2}]));
        assert_eq!(converted["anyOf"], json!([{"minimum": 1}]));
    }

    #[test]
    fn an_object_within_names_its_kind() {
        let mut schema = json!({"properties": {"t": {"x-kubernetes-embedded-resource": true, "required": ["kind"]}}});
        embed(&mut schema, false);
        assert_eq!(schema.pointer("/properties/t/required"), Some(&json!(["kind", "apiVersion"])));
        assert!(schema.pointer("/properties/t/properties/metadata/allOf/0/$ref").is_some());
    }
}
