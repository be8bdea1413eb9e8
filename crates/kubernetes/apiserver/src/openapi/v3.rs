//! The OpenAPI 3.0 documents: one for each group and version, and some for discovery endpoints.

use serde_json::{Map, Value, json};

use super::common::{Custom, path_of, security};
use super::parameters::Parameter;
use super::paths;
use super::paths::{Item, Operation, UNAUTHORIZED};
use super::schemas::{self, Of, PREFIX};
use crate::discovery;
use crate::resource::{Catalog, Flavor, Resource};

/// The document of `name`: a path such as `apis/metal3.io/v1alpha1`, or `version`.
pub fn document(catalog: &Catalog, custom: &Custom, name: &str) -> Value {
    let wanted = |r: &Resource| path_of(&r.group, &r.version) == name;
    let base = format!("/{name}");
    let mut items: Vec<Item> = catalog.all().filter(|r| wanted(r)).flat_map(|r| paths::of(r, &base)).collect();
    let of_custom = catalog.all().any(|r| wanted(r) && matches!(r.flavor, Flavor::Custom { .. }));
    if items.is_empty() {
        let groups = super::common::builtin_groups(catalog);
        items.extend(paths::roots(&groups).into_iter().filter(|(root, _)| root == name).map(|(_, item)| item));
    } else if !of_custom {
        items.push(paths::version_root(&format!("{base}/")));
    }
    let path_items: Map<String, Value> = items.iter().map(|i| (i.path.clone(), item(i))).collect();
    let of = if of_custom { Of::Custom } else { Of::Builtin };
    let mut components = Map::new();
    let mut schemas = schemas::definitions(catalog, custom, of, wanted);
    schemas::keep_reached(&mut schemas, path_items.values(), PREFIX);
    if !schemas.is_empty() {
        components.insert("schemas".to_owned(), Value::Object(schemas));
    }
    let info = if of_custom {
        json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
    } else {
        components.insert("securitySchemes".to_owned(), security());
        json!({"title": "Kubernetes", "version": discovery::git_version()})
    };
    json!({"openapi": "3.0.0", "info": info, "paths": path_items, "components": components})
}

fn item(of: &Item) -> Value {
    let mut out: Map<String, Value> = of.operations.iter().map(|o| (o.method.to_owned(), operation(o))).collect();
    if !of.parameters.is_empty() {
        out.insert("parameters".to_owned(), of.parameters.iter().map(parameter).collect());
    }
    Value::Object(out)
}

fn operation(of: &Operation) -> Value {
    let schema = |name: &str| schemas::refer(name, "", false);
    let content = |media: &[&str], schema: &Value| -> Map<String, Value> {
        media.iter().map(|m| ((*m).to_owned(), json!({"schema": schema}))).collect()
    };
    let output = of.output.as_deref().map_or_else(|| json!({"type": "string"}), schema);
    let mut answers = Map::new();
    for (code, text) in of.answers {
        let answer = json!({"description": text, "content": content(of.produces, &output)});
        answers.insert(code.to_string(), answer);
    }
    answers.insert(UNAUTHORIZED.0.to_string(), json!({"description": UNAUTHORIZED.1}));
    let mut out = json!({"tags": [of.tag], "description": of.text, "operationId": of.id, "responses": answers});
    if !of.parameters.is_empty() {
        out["parameters"] = of.parameters.iter().map(parameter).collect();
    }
    if let Some(input) = &of.input {
        out["requestBody"] = json!({"content": content(of.consumes, &schema(&input.definition))});
        if input.required {
            out["requestBody"]["required"] = json!(true);
        }
    }
    paths::add_kind(&mut out, of);
    out
}

fn parameter(of: &Parameter) -> Value {
    let mut out = json!({"name": of.name, "in": of.place, "description": of.text,
        "schema": {"type": of.ty, "uniqueItems": true}});
    if of.place == "path" {
        out["required"] = json!(true);
    }
    out
}
