//! The OpenAPI 2.0 document of everything. What 2.0 cannot say is left out, as kube-apiserver does.

use serde_json::{Map, Value, json};

use super::paths::{self, Style};
use super::{Custom, schemas};
use crate::resource::Catalog;

const STYLE: Style = Style {
    parameter: |name, place, ty| json!({"name": name, "in": place, "required": place == "path", "type": ty, "uniqueItems": true}),
    body: |operation, schema, media| {
        operation["consumes"] = json!(media);
        if let Some(list) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            list.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
        }
    },
    answer: |schema| json!({"description": "OK", "schema": schema}),
    refer,
};

fn refer(name: &str, doc: &str) -> Value {
    let reference = format!("#/definitions/{name}");
    if doc.is_empty() { json!({"$ref": reference}) } else { json!({"$ref": reference, "description": doc}) }
}

/// The document.
pub fn document(catalog: &Catalog, custom: Custom) -> Value {
    let mut all = Map::new();
    for resource in catalog.all() {
        all.extend(paths::of(resource, &STYLE));
    }
    let definitions = schemas::definitions(catalog, custom, refer, |_| true, simplify);
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.32.0"}, "paths": all,
        "definitions": definitions})
}

/// Brings a structural schema down to what 2.0 and its readers understand.
fn simplify(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for key in ["oneOf", "anyOf", "allOf", "not", "default", "x-kubernetes-validations", "example"] {
        map.shift_remove(key);
    }
    let flag = |map: &Map<String, Value>, key: &str| map.get(key) == Some(&Value::Bool(true));
    if flag(map, "x-kubernetes-int-or-string") {
        map.shift_remove("type");
    }
    if flag(map, "nullable") {
        // 2.0 knows no null: without a type anything passes.
        for key in ["nullable", "type", "items", "properties"] {
            map.shift_remove(key);
        }
    }
    if flag(map, "x-kubernetes-preserve-unknown-fields") {
        map.shift_remove("properties");
        map.shift_remove("items");
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            simplify(inner);
        }
    }
}
