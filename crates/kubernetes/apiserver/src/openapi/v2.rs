//! The OpenAPI 2.0 document of all resources. As in kube-apiserver, what 2.0 cannot express is left out.

use serde_json::{Map, Value, json};

use super::common::{Custom, path_of, security};
use super::parameters::Parameter;
use super::paths;
use super::paths::{Item, Operation, UNAUTHORIZED};
use super::schemas::{self, Of};
use crate::discovery;
use crate::resource::{Catalog, Flavor};

const PREFIX: &str = "#/definitions/";

/// Request bodies shared by many operations: their definitions, and the names of the shared parameters.
const BODIES: [(&str, &str); 2] = [
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "body-2Y1dVQaQ"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "body-78PwaGsr"),
];

/// The document.
pub fn document(catalog: &Catalog, custom: &Custom) -> Value {
    let groups = super::common::builtin_groups(catalog);
    let mut items: Vec<Item> = paths::roots(&groups).into_iter().map(|(_, item)| item).collect();
    let mut base = String::new();
    for resource in catalog.all() {
        let path = format!("/{}", path_of(&resource.group, &resource.version));
        if path != base && matches!(resource.flavor, Flavor::Builtin(_)) {
            items.push(paths::version_root(&format!("{path}/")));
        }
        items.extend(paths::of(resource, &path));
        base = path;
    }
    let mut shared = Map::new();
    let path_items: Map<String, Value> = items.iter().map(|i| (i.path.clone(), item(i, &mut shared))).collect();
    let mut definitions = schemas::definitions(catalog, custom, Of::Everything, |_| true);
    definitions.values_mut().for_each(downgrade);
    schemas::keep_reached(&mut definitions, path_items.values().chain(shared.values()), PREFIX);
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": discovery::git_version()}, "paths": path_items,
        "definitions": definitions, "parameters": shared, "securityDefinitions": security(),
        "security": [{"BearerToken": []}]})
}

fn item(of: &Item, shared: &mut Map<String, Value>) -> Value {
    let mut out = Map::new();
    for one in &of.operations {
        out.insert(one.method.to_owned(), operation(one, shared));
    }
    if !of.parameters.is_empty() {
        out.insert("parameters".to_owned(), of.parameters.iter().map(|p| parameter(p, shared)).collect());
    }
    Value::Object(out)
}

fn operation(of: &Operation, shared: &mut Map<String, Value>) -> Value {
    let output = of.output.as_deref().map_or_else(|| json!({"type": "string"}), refer);
    let answer = |text: &str| json!({"description": text, "schema": output});
    let mut answers: Map<String, Value> =
        of.answers.iter().map(|(code, text)| (code.to_string(), answer(text))).collect();
    answers.insert(UNAUTHORIZED.0.to_string(), json!({"description": UNAUTHORIZED.1}));
    let mut out = json!({"description": of.text, "produces": of.produces, "schemes": ["https"], "tags": [of.tag],
        "operationId": of.id, "responses": answers});
    if !of.consumes.is_empty() {
        out["consumes"] = json!(of.consumes);
    }
    let mut list: Vec<Value> = Vec::new();
    for one in of.parameters.iter().filter(|p| p.name < "body") {
        list.push(parameter(one, shared));
    }
    if let Some(input) = &of.input {
        let schema = refer(&input.definition);
        let mut body = json!({"name": "body", "in": "body", "schema": schema});
        if input.required {
            body["required"] = json!(true);
        }
        match BODIES.iter().find(|(definition, _)| *definition == input.definition) {
            Some((_, name)) => list.push(share(name, body, shared)),
            None => list.push(body),
        }
    }
    for one in of.parameters.iter().filter(|p| p.name > "body") {
        list.push(parameter(one, shared));
    }
    if !list.is_empty() {
        out["parameters"] = Value::Array(list);
    }
    paths::add_kind(&mut out, of);
    out
}

fn parameter(of: &Parameter, shared: &mut Map<String, Value>) -> Value {
    let mut out = json!({"uniqueItems": true, "type": of.ty, "description": of.text, "name": of.name, "in": of.place});
    if of.place == "path" {
        out["required"] = json!(true);
    }
    if of.shared.is_empty() { out } else { share(&format!("{}-{}", of.name, of.shared), out, shared) }
}

/// Adds a shared parameter, and returns a reference to it.
fn share(name: &str, parameter: Value, shared: &mut Map<String, Value>) -> Value {
    shared.entry(name).or_insert(parameter);
    json!({"$ref": format!("#/parameters/{name}")})
}

fn refer(name: &str) -> Value {
    json!({"$ref": format!("{PREFIX}{name}")})
}

/// Converts a 3.0 schema to 2.0. Defaults are dropped: older clients misread them.
fn downgrade(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(schemas::PREFIX)) {
        let reference = format!("{PREFIX}{name}");
        map.insert("$ref".to_owned(), Value::String(reference));
    }
    let wrapped = map.get("allOf").and_then(|all| all.pointer("/0/$ref")).and_then(Value::as_str).map(str::to_owned);
    if let Some(name) = wrapped.as_deref().and_then(|r| r.strip_prefix(schemas::PREFIX)) {
        let reference = format!("{PREFIX}{name}");
        map.shift_remove("allOf");
        map.insert("$ref".to_owned(), Value::String(reference));
    }
    map.shift_remove("default");
    if map.shift_remove("oneOf").is_some() {
        // Quantities and int-or-string values.
        map.insert("type".to_owned(), json!("string"));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(downgrade);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            downgrade(inner);
        }
    }
}
