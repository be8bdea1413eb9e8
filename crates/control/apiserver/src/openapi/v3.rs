//! The OpenAPI 3.0 document of one group and version.

use serde_json::{Map, Value, json};

use super::paths::{self, Style};
use super::{Custom, path_of, schemas};
use crate::resource::Catalog;

const STYLE: Style = Style {
    parameter: |name, place, ty| json!({"name": name, "in": place, "required": place == "path", "schema": {"type": ty}}),
    body: |operation, schema, media| {
        let content: Map<String, Value> =
            media.iter().map(|m| ((*m).to_owned(), json!({"schema": schema.clone()}))).collect();
        operation["requestBody"] = json!({"content": content});
    },
    answer: |schema| json!({"description": "OK", "content": {"application/json": {"schema": schema}}}),
    refer,
};

fn refer(name: &str, doc: &str) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    if doc.is_empty() {
        return reference;
    }
    json!({"allOf": [reference], "default": {}, "description": doc})
}

/// The document of `gv`, a path such as `apis/metal3.io/v1alpha1`.
pub fn document(catalog: &Catalog, custom: Custom, gv: &str) -> Value {
    let mut all_paths = Map::new();
    for resource in catalog.all().filter(|r| path_of(&r.group, &r.version) == gv) {
        all_paths.extend(paths::of(resource, &STYLE));
    }
    let wanted = |r: &crate::resource::Resource| path_of(&r.group, &r.version) == gv;
    let mut schemas = schemas::definitions(catalog, custom, refer, wanted, |_| {});
    keep_reached(&mut schemas, &all_paths);
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.32.0"}, "paths": all_paths,
        "components": {"schemas": schemas}})
}

/// Drops definitions that nothing refers to.
fn keep_reached(schemas: &mut Map<String, Value>, paths: &Map<String, Value>) {
    let mut reached = std::collections::BTreeSet::new();
    let mut work: Vec<String> = Vec::new();
    paths.values().for_each(|p| references(p, &mut work));
    while let Some(name) = work.pop() {
        if let Some(schema) = schemas.get(&name)
            && reached.insert(name)
        {
            references(schema, &mut work);
        }
    }
    schemas.retain(|name, _| reached.contains(name));
}

fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => {
                        out.extend(text.strip_prefix("#/components/schemas/").map(str::to_owned));
                    }
                    other => references(other, out),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}
