//! Data as values, the way its schema asks for (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use serde_json::{Map as JsonMap, Value as Json};

use super::decl::preserves;
use super::escape::escape;
use super::{additional, embedded, flag, int_or_string, items, properties, text, with_metadata};
use crate::fault::Fault;
use crate::functions;
use crate::source::deep;
use crate::value::{Key, List, ListKind, Map, Value};

fn broken(why: impl AsRef<str>) -> Value {
    Value::Broken(Fault::new(why))
}

fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(n) if n.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

/// Converts `json` by its schema. A part that does not match the schema becomes a value that fails when it is used.
pub fn to_value(json: &Json, schema: &Json, root: bool) -> Value {
    if json.is_null() {
        let why = "invalid data, got null for schema with nullable=false";
        return if flag(schema, "nullable") { Value::Null } else { broken(why) };
    }
    if int_or_string(schema) {
        return match json {
            Json::String(s) => Value::string(s),
            Json::Number(n) if n.as_i64().is_some() => Value::Int(n.as_i64().unwrap_or_default()),
            _ => broken("invalid data, expected XIntOrString value to be either a string or integer"),
        };
    }
    match text(schema, "type") {
        "object" => match json {
            Json::Object(object) if root || embedded(schema) => deep(|| fields(object, &with_metadata(schema))),
            Json::Object(object) => deep(|| fields(object, schema)),
            _ => broken("invalid data, expected a map for the provided schema with type=object"),
        },
        "array" => match (json, items(schema)) {
            (Json::Array(list), Some(of)) => deep(|| elements(list, of, schema)),
            (Json::Array(_), None) => broken("invalid array type, expected Items with a non-empty Schema"),
            _ => broken("invalid data, expected an array for the provided schema with type=array"),
        },
        "string" => match json {
            Json::String(s) => string(s, text(schema, "format")),
            other => broken(format!("invalid data, expected string, got {}", go_type(other))),
        },
        "number" => match json.as_f64() {
            Some(n) => Value::Double(n),
            None => broken(format!("invalid data, expected float, got {}", go_type(json))),
        },
        "integer" => match json.as_i64() {
            Some(n) => Value::Int(n),
            None => broken(format!("invalid data, expected int, got {}", go_type(json))),
        },
        "boolean" => match json {
            Json::Bool(b) => Value::Bool(*b),
            other => broken(format!("invalid data, expected bool, got {}", go_type(other))),
        },
        _ if preserves(schema) => Value::Unknown(Arc::new(json.clone())),
        _ => broken(
            "invalid type, expected object, array, number, integer, boolean or string, or no type with \
             x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true",
        ),
    }
}

fn fields(object: &JsonMap<String, Json>, schema: &Json) -> Value {
    let mut entries = BTreeMap::new();
    if let Some(known) = properties(schema) {
        for (key, json) in object.iter().filter(|(_, v)| !v.is_null()) {
            if let (Some(schema), Some(name)) = (known.get(key), escape(key)) {
                entries.insert(Key::String(name.into()), to_value(json, schema, false));
            }
        }
    } else if let Some(schema) = additional(schema) {
        for (key, json) in object {
            entries.insert(Key::String(key.as_str().into()), to_value(json, schema, false));
        }
    }
    let hidden = object.len() - entries.len();
    Value::Map(Arc::new(Map { entries, hidden }))
}

fn elements(list: &[Json], of: &Json, schema: &Json) -> Value {
    let kind = match text(schema, "x-kubernetes-list-type") {
        "set" => ListKind::Set,
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
            let name = |k: &Json| k.as_str().map(|k| escape(k).unwrap_or_else(|| k.to_owned()));
            ListKind::Map(keys.into_iter().flatten().filter_map(name).collect())
        }
        _ => ListKind::Plain,
    };
    Value::List(Arc::new(List { items: list.iter().map(|v| to_value(v, of, false)).collect(), kind }))
}

fn string(text: &str, format: &str) -> Value {
    match format {
        "duration" => match functions::call("duration", &[Value::string(text)]) {
            Ok(value) => value,
            Err(_) => broken(format!("Invalid duration {text}: time: invalid duration {text:?}")),
        },
        "date" | "date-time" => {
            let full = if format == "date" { format!("{text}T00:00:00Z") } else { text.to_owned() };
            match functions::call("timestamp", &[Value::string(&full)]) {
                Ok(value) => value,
                Err(_) => broken(format!("Invalid {format} formatted string {text}")),
            }
        }
        "byte" => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => Value::Bytes(bytes.into()),
            Err(_) => broken(format!("Invalid byte formatted string {text}")),
        },
        _ => Value::string(text),
    }
}
