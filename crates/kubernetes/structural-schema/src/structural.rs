//! Checks that a schema is structural: every place has a type, and branches only restrict members that are named outside them.
//!
//! Upstream: apiextensions `pkg/apiserver/schema` (convert, validation, complete).

use field_errors::FieldError;
use serde_json::{Value, json};

use crate::schema;

/// Nesting below which a schema is looked at.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The reasons why the schema at `path` is not structural, in order of text.
pub fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if depth(schema) > MAX_DEPTH {
        errors.push(FieldError::invalid(path, &json!(""), "is nested too deeply"));
        return errors;
    }
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, schema, path, path, &mut errors);
    errors.sort_by_key(FieldError::to_string);
    errors
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(list) => list.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// A member that is a schema.
fn inner<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|v| v.is_object())
}

/// Named schemas of a member.
pub fn named<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let mut all: Vec<_> = schema.get(key).and_then(Value::as_object).into_iter().flatten().collect();
    all.sort_by_key(|(name, _)| name.as_str());
    all.into_iter()
}

/// The list of schemas of a member.
pub fn listed<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether a member is true.
pub fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// The type, empty if none is given.
pub fn ty(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a member is present, not null, and not empty.
fn given(schema: &Value, key: &str) -> bool {
    match schema.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty() || matches!(key, "not" | "items" | "additionalProperties"),
        Some(_) => true,
    }
}

/// The first keyword that structural schemas do not support.
pub fn unsupported(schema: &Value) -> Option<String> {
    for key in ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"] {
        let there = match key {
            "additionalItems" => schema.get(key).is_some_and(|v| !v.is_null()),
            _ => given(schema, key),
        };
        if there {
            return Some(format!(
                "OpenAPIV3Schema '{}' is not supported",
                if key == "$schema" { "schema" } else { key }
            ));
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(found) = listed(schema, key).iter().find_map(unsupported) {
            return Some(found);
        }
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let below = ["not", "items", "additionalProperties"].iter().filter_map(|key| inner(schema, key));
    below.chain(named(schema, "properties").map(|(_, s)| s)).find_map(unsupported)
}

fn invariants(s: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if ty(s) == "array" && inner(s, "items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = inner(s, "items") {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (key, member) in named(s, "properties") {
        invariants(member, Level::Field, &format!("{path}.properties[{key}]"), errors);
    }
    let additional = s.get("additionalProperties").filter(|v| !v.is_null());
    if additional.is_some() && level == Level::Root {
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
    }
    if let Some(schema) = inner(s, "additionalProperties") {
        invariants(schema, Level::Field, &format!("{path}.additionalProperties"), errors);
    }
    extensions(s, path, errors);
    let skip_any = int_or_string(listed(s, "anyOf"));
    let skip_all = listed(s, "allOf").first().is_some_and(|first| int_or_string(listed(first, "anyOf")));
    values(s, (skip_any, skip_all), level, path, errors);
    types(s, level, path, errors);
    metadata(s, level, path, errors);
    let preserve = flag(s, "x-kubernetes-preserve-unknown-fields");
    if flag(s, "x-kubernetes-embedded-resource") {
        if additional.is_some() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        if !preserve && !given(s, "properties") {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            errors.push(FieldError::required(format!("{path}.properties"), detail));
        }
    }
}

fn extensions(s: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if flag(s, "x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(s, key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(true), detail));
            }
        }
    }
}

fn types(s: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let at = format!("{path}.type");
    let ty = ty(s);
    if flag(s, "x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(at.as_str(), detail)
        } else {
            FieldError::invalid(at.as_str(), &json!(ty), detail)
        });
    } else if ty.is_empty()
        && !flag(s, "x-kubernetes-int-or-string")
        && !flag(s, "x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at.as_str(), detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(at, &json!(ty), "must be object at the root"));
    }
}

fn metadata(s: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let check = level == Level::Root || flag(s, "x-kubernetes-embedded-resource");
    for key in ["kind", "apiVersion"] {
        let member = s.get("properties").and_then(|p| p.get(key));
        if let Some(member) = member.filter(|m| check && ty(m) != "string") {
            let at = format!("{path}.properties[{key}].type");
            errors.push(FieldError::invalid(at, &json!(ty(member)), "must be string"));
        }
    }
    let Some(meta) = s.get("properties").and_then(|p| p.get("metadata")) else { return };
    let at = format!("{path}.properties[metadata]");
    if check && ty(meta) != "object" {
        errors.push(FieldError::invalid(format!("{at}.type"), &json!(ty(meta)), "must be object"));
    }
    if level == Level::Root {
        let names_only = named(meta, "properties").all(|(k, _)| k == "name" || k == "generateName");
        let other = meta.as_object().into_iter().flatten().any(|(key, _)| {
            !matches!(key.as_str(), "type" | "default" | "properties" | "example" | "externalDocs") && given(meta, key)
        });
        if other || !names_only {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(at, detail));
        }
    }
}

/// Whether the branches are exactly those of "integer or string", the only ones that may have types.
fn int_or_string(branches: &[Value]) -> bool {
    let only = |s: &Value, wanted: &str| ty(s) == wanted && s.as_object().is_some_and(|o| o.len() == 1);
    matches!(branches, [a, b] if only(a, "integer") && only(b, "string"))
}

fn values(s: &Value, skip: (bool, bool), level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if !skip.0 {
        for (at, v) in listed(s, "anyOf").iter().enumerate() {
            nested(v, false, level, &format!("{path}.anyOf[{at}]"), errors);
        }
    }
    for (at, v) in listed(s, "allOf").iter().enumerate() {
        nested(v, skip.1 && at == 0, level, &format!("{path}.allOf[{at}]"), errors);
    }
    for (at, v) in listed(s, "oneOf").iter().enumerate() {
        nested(v, false, level, &format!("{path}.oneOf[{at}]"), errors);
    }
    if let Some(not) = inner(s, "not") {
        nested(not, false, level, &format!("{path}.not"), errors);
    }
    if let Some(pattern) = s.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty())
        && let Some(why) = schema::pattern_error(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &json!(pattern), detail));
    }
}

fn nested(v: &Value, skip_any: bool, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    values(v, (skip_any, false), level, path, errors);
    if let Some(items) = inner(v, "items") {
        nested(items, false, level, &format!("{path}.items"), errors);
    }
    for (key, member) in named(v, "properties") {
        nested(member, false, Level::Field, &format!("{path}.properties[{key}]"), errors);
    }
    for (key, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let there = if key == "default" { v.get(key).is_some_and(|d| !d.is_null()) } else { given(v, key) };
        if there {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if v.get("properties").is_some_and(|p| p.get("metadata").is_some()) {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Everything that a branch names must be named outside of branches too.
fn complete(v: &Value, s: &Value, s_path: &str, v_path: &str, errors: &mut Vec<FieldError>) {
    if let Some(not) = inner(v, "not") {
        complete_nested(not, s, s_path, &format!("{v_path}.not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (at, branch) in listed(v, key).iter().enumerate() {
            complete_nested(branch, s, s_path, &format!("{v_path}.{key}[{at}]"), errors);
        }
    }
}

fn complete_nested(v: &Value, s: &Value, s_path: &str, v_path: &str, errors: &mut Vec<FieldError>) {
    complete(v, s, s_path, v_path, errors);
    let mut missing =
        |at: String, by: String| errors.push(FieldError::required(at, format!("because it is defined in {by}")));
    if let Some(items) = inner(v, "items") {
        let (at, by) = (format!("{s_path}.items"), format!("{v_path}.items"));
        match inner(s, "items") {
            None => missing(at, by),
            Some(outer) => complete_nested(items, outer, &at, &by, errors),
        }
    }
    for (key, member) in named(v, "properties") {
        let (at, by) = (format!("{s_path}.properties[{key}]"), format!("{v_path}.properties[{key}]"));
        match s.get("properties").and_then(|p| p.get(key)) {
            None => errors.push(FieldError::required(at, format!("because it is defined in {by}"))),
            Some(outer) => complete_nested(member, outer, &at, &by, errors),
        }
    }
}
