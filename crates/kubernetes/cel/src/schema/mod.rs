//! Kubernetes' structural schemas: the types, sizes and values that they give to expressions, and the rules in them.
//!
//! A schema is the JSON of `openAPIV3Schema`. Facts are from `k8s.io/apiserver/pkg/cel/common` and
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`.

pub mod check;
pub mod decl;
pub mod escape;
pub mod field_path;
mod ratchet;
pub mod rules;
pub mod value;

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};

pub(crate) fn text<'a>(schema: &'a Json, key: &str) -> &'a str {
    schema.get(key).and_then(Json::as_str).unwrap_or_default()
}

pub(crate) fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key).and_then(Json::as_bool).unwrap_or(false)
}

pub(crate) fn count(schema: &Json, key: &str) -> Option<i64> {
    schema.get(key).and_then(Json::as_i64).map(|n| n.max(0))
}

pub(crate) fn properties(schema: &Json) -> Option<&Map<String, Json>> {
    schema.get("properties").and_then(Json::as_object)
}

pub(crate) fn additional(schema: &Json) -> Option<&Json> {
    schema.get("additionalProperties").filter(|s| s.is_object())
}

/// The elements' schema.
pub(crate) fn items(schema: &Json) -> Option<&Json> {
    schema.get("items").filter(|s| s.is_object())
}

pub(crate) fn embedded(schema: &Json) -> bool {
    flag(schema, "x-kubernetes-embedded-resource")
}

pub(crate) fn int_or_string(schema: &Json) -> bool {
    flag(schema, "x-kubernetes-int-or-string")
}

/// The key fields of a list of type map; `None` for other lists.
pub(crate) fn map_keys(schema: &Json) -> Option<Vec<&str>> {
    if text(schema, "type") != "array" || text(schema, "x-kubernetes-list-type") != "map" {
        return None;
    }
    let keys: Vec<&str> =
        schema.get("x-kubernetes-list-map-keys")?.as_array()?.iter().filter_map(Json::as_str).collect();
    (!keys.is_empty()).then_some(keys)
}

/// An object's schema, with the members of every object added: apiVersion, kind, and the metadata's name and generateName.
pub(crate) fn with_metadata(schema: &Json) -> Cow<'_, Json> {
    let is = |path: &[&str], ty: &str| {
        let mut at = Some(schema);
        for key in path {
            at = at.and_then(properties).and_then(|p| p.get(*key));
        }
        at.is_some_and(|s| text(s, "type") == ty)
    };
    if is(&["kind"], "string")
        && is(&["apiVersion"], "string")
        && is(&["metadata"], "object")
        && is(&["metadata", "name"], "string")
        && is(&["metadata", "generateName"], "string")
    {
        return Cow::Borrowed(schema);
    }
    let mut extended = schema.clone();
    let text = json!({"type": "string"});
    let metadata = json!({"type": "object", "properties": {"name": text, "generateName": text}});
    if let Some(object) = extended.as_object_mut() {
        let fields = object.entry("properties").or_insert_with(|| json!({}));
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("kind".into(), text.clone());
            fields.insert("apiVersion".into(), text);
            fields.insert("metadata".into(), metadata);
        }
    }
    Cow::Owned(extended)
}
