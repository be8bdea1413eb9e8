//! What a definition's schema may say, beyond being structural: types, list and map types, rules, defaults.
//!
//! Upstream: apiextensions `ValidateCustomResourceDefinitionOpenAPISchema` and `defaulting.ValidateDefaults`.

use cel::schema::field_path;
use serde_json::{Value, json};
use structural_schema::schema::Schema;
use structural_schema::structural::{self, flag, listed, named, ty};
use structural_schema::{prune, rules, validate};

use crate::crd::embedded;
use crate::object::strings;
use crate::status::FieldError;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What holds for the part of the schema that is looked at.
#[derive(Clone, Default)]
struct Within {
    /// Why defaults may not stand here.
    no_defaults: Option<String>,
    /// It describes the kind, the version or the metadata of an object.
    meta: bool,
}

/// What is wrong with a schema.
pub fn validate_schema(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, path, &Within::default(), true, &mut errors);
    errors
}

fn node(s: &Value, path: &str, within: &Within, root: bool, errors: &mut Vec<FieldError>) {
    standard(s, path, within, errors);
    if flag(s, "uniqueItems") {
        errors.push(FieldError::forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    additional(s, path, within, errors);
    for (key, member) in named(s, "properties") {
        let mut inside = within.clone();
        if (root || flag(s, "x-kubernetes-embedded-resource"))
            && matches!(key.as_str(), "metadata" | "kind" | "apiVersion")
        {
            inside.meta = true;
            if root {
                inside.no_defaults = Some(format!(" in top-level {key}"));
            }
        }
        node(member, &format!("{path}.properties[{key}]"), &inside, false, errors);
    }
    if let Some(not) = s.get("not").filter(|n| n.is_object()) {
        node(not, &format!("{path}.not"), within, false, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (at, branch) in listed(s, key).iter().enumerate() {
            node(branch, &format!("{path}.{key}[{at}]"), within, false, errors);
        }
    }
    for (key, member) in named(s, "definitions") {
        node(member, &format!("{path}.definitions[{key}]"), within, false, errors);
    }
    match s.get("items") {
        Some(items @ Value::Object(_)) => node(items, &format!("{path}.items"), within, false, errors),
        Some(Value::Array(list)) => {
            for (at, items) in list.iter().enumerate() {
                node(items, &format!("{path}.items[{at}]"), within, false, errors);
            }
        }
        _ => {}
    }
    if s.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, &json!(false), "must be true or undefined"));
    }
    map_type(s, path, errors);
    list_type(s, path, errors);
    map_keys(s, path, errors);
    for (at, rule) in listed(s, "x-kubernetes-validations").iter().enumerate() {
        rule_texts(rule, s, &format!("{path}.x-kubernetes-validations[{at}]"), errors);
    }
}

fn standard(s: &Value, path: &str, within: &Within, errors: &mut Vec<FieldError>) {
    let at = |key: &str| format!("{path}.{key}");
    let there = |key: &str| s.get(key).is_some_and(|v| !v.is_null());
    let filled = |key: &str| match s.get(key) {
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        _ => false,
    };
    if !ty(s).is_empty() && !TYPES.contains(&ty(s)) {
        errors.push(FieldError::not_supported(at("type"), &json!(ty(s)), &TYPES));
    }
    if let Some(why) = within.no_defaults.as_ref().filter(|_| there("default")) {
        errors.push(FieldError::forbidden(at("default"), format!("must not be set{why}")));
    }
    for (key, there) in [
        ("id", filled("id")),
        ("additionalItems", there("additionalItems")),
        ("patternProperties", filled("patternProperties")),
        ("definitions", filled("definitions")),
        ("dependencies", there("dependencies")),
        ("$ref", there("$ref")),
    ] {
        if there {
            errors.push(FieldError::forbidden(at(key), format!("{key} is not supported")));
        }
    }
    if ty(s) == "null" {
        errors.push(FieldError::forbidden(at("type"), "type cannot be set to null, use nullable as an alternative"));
    }
    if s.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if within.meta && flag(s, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(at("x-kubernetes-embedded-resource"), detail));
    }
}

fn additional(s: &Value, path: &str, within: &Within, errors: &mut Vec<FieldError>) {
    let Some(given) = s.get("additionalProperties").filter(|v| !v.is_null()) else { return };
    let at = format!("{path}.additionalProperties");
    let members = s.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    if members && given != &Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(at.as_str(), detail));
    }
    if given.is_object() {
        let mut inside = within.clone();
        if within.meta {
            inside.no_defaults = Some(" inside additionalProperties applying to object metadata".to_owned());
        }
        node(given, &at, &inside, false, errors);
    }
}

fn map_type(s: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(given) = s.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    if ty(s) != "object" {
        errors.push(wrong_type(s, path, "must be object if x-kubernetes-map-type is specified"));
    }
    if !matches!(given, "atomic" | "granular") {
        let at = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(at, &json!(given), &["atomic", "granular"]));
    }
}

fn wrong_type(s: &Value, path: &str, detail: &str) -> FieldError {
    let at = format!("{path}.type");
    if ty(s).is_empty() { FieldError::required(at, detail) } else { FieldError::invalid(at, &json!(ty(s)), detail) }
}

fn list_type(s: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(given) = s.get("x-kubernetes-list-type").and_then(Value::as_str) else { return };
    let items = s.get("items").filter(|i| i.is_object());
    if ty(s) != "array" {
        errors.push(wrong_type(s, path, "must be array if x-kubernetes-list-type is specified"));
    } else if let Some(items) = items.filter(|_| given == "set") {
        let text = |key: &str| items.get(key).and_then(Value::as_str);
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let of_list = text("x-kubernetes-list-type");
        let bad = match ty(items) {
            "array" => of_list.is_some_and(|t| t != "atomic").then_some("x-kubernetes-list-type"),
            "object" => (text("x-kubernetes-map-type") != Some("atomic")).then_some("x-kubernetes-map-type"),
            _ => None,
        };
        if let Some(key) = bad {
            errors.push(FieldError::invalid(format!("{path}.items.{key}"), &json!(of_list), detail));
        }
    }
    if !matches!(given, "atomic" | "set" | "map") {
        let at = format!("{path}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(at, &json!(given), &["atomic", "set", "map"]));
    }
}

fn map_keys(s: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys = strings(s.get("x-kubernetes-list-map-keys"));
    let given = s.get("x-kubernetes-list-type").and_then(Value::as_str);
    let type_at = format!("{path}.x-kubernetes-list-type");
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match given {
        _ if keys.is_empty() => {}
        None => errors.push(FieldError::required(type_at, detail)),
        Some("map") => {}
        Some(other) => errors.push(FieldError::invalid(type_at, &json!(other), detail)),
    }
    let items = s.get("items").filter(|i| !i.is_null());
    if given == Some("map") {
        let keys_at = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(keys_at.as_str(), detail));
        }
        match items {
            None => errors.push(FieldError::required(
                format!("{path}.items"),
                "must have a schema if x-kubernetes-list-type is map",
            )),
            Some(items) if ty(items) != "object" => errors.push(FieldError::invalid(
                format!("{path}.items.type"),
                &json!(ty(items)),
                "must be object if parent array's x-kubernetes-list-type is map",
            )),
            Some(items) => keys_of_items(&keys, items, path, &keys_at, errors),
        }
    }
    if let (Some(kind @ ("set" | "map")), Some(items)) = (given, items.filter(|i| i.is_object())) {
        null_keys(&keys, kind, items, path, errors);
    }
}

fn keys_of_items(keys: &[String], items: &Value, path: &str, keys_at: &str, errors: &mut Vec<FieldError>) {
    for (at, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|p| p.get(key)) {
            Some(member) if matches!(ty(member), "array" | "object") => errors.push(FieldError::invalid(
                format!("{path}.items.properties[{key}].type"),
                &json!(ty(items)),
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            )),
            Some(_) => {}
            None => {
                errors.push(FieldError::invalid(keys_at, &json!(keys), "entries must all be names of item properties"));
            }
        }
        if keys[..at].contains(key) {
            errors.push(FieldError::invalid(keys_at, &json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn null_keys(keys: &[String], kind: &str, items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if kind != "map" {
        return;
    }
    let required = strings(items.get("required"));
    for key in keys {
        let Some(member) = items.get("properties").and_then(|p| p.get(key)) else { continue };
        let at = format!("{path}.items.properties[{key}]");
        let default = member.get("default").is_some_and(|d| !d.is_null());
        if !required.contains(key) && !default {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{at}.default"), detail));
        }
        if flag(member, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{at}.nullable"), detail));
        }
    }
}

fn rule_texts(rule: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
    let lines = |text: &str| text.contains(['\n', '\r']);
    let at = |key: &str| format!("{path}.{key}");
    let (whole, message) = (text("rule").trim(), text("message").trim());
    if whole.is_empty() {
        errors.push(FieldError::required(at("rule"), "rule is not specified"));
    } else if !text("message").is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(at("message"), &json!(text("message")), "must be non-empty if specified"));
    } else if lines(message) {
        errors.push(FieldError::invalid(at("message"), &json!(text("message")), "must not contain line breaks"));
    } else if lines(whole) && message.is_empty() {
        errors.push(FieldError::required(at("message"), "message must be specified if rule contains line breaks"));
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        errors.push(FieldError::required(at("messageExpression"), "messageExpression must be non-empty if specified"));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str).filter(|r| !REASONS.contains(r)) {
        errors.push(FieldError::not_supported(at("reason"), &json!(reason), &REASONS));
    }
    let field = text("fieldPath");
    if !field.is_empty() && field.trim().is_empty() {
        errors.push(FieldError::invalid(at("fieldPath"), &json!(field), "must be non-empty if specified"));
    }
    if lines(field) {
        errors.push(FieldError::invalid(at("fieldPath"), &json!(field), "must not contain line breaks"));
    }
    if !field.is_empty() && structural::unsupported(schema).is_none() && !field_path::valid(field, schema) {
        errors.push(FieldError::invalid(at("fieldPath"), &json!(field), "must be a valid path"));
    }
}

/// Checks that defaults follow the schema that they stand in.
pub fn validate_defaults(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    defaults(schema, path, true, &mut errors);
    errors
}

fn defaults(s: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = s.get("default").filter(|d| !d.is_null()) {
        default_of(s, root, default, &format!("{path}.default"), errors);
    }
    if let Some(items) = s.get("items").filter(|i| i.is_object()) {
        defaults(items, &format!("{path}.items"), false, errors);
    }
    for (key, member) in named(s, "properties") {
        let meta = matches!(key.as_str(), "metadata" | "apiVersion" | "kind");
        if !(meta && (root || flag(s, "x-kubernetes-embedded-resource"))) {
            defaults(member, &format!("{path}.properties[{key}]"), false, errors);
        }
    }
}

/// The schema without "integer or string", which upstream does not ask of defaults.
fn without_unions(s: &Value) -> Value {
    match s {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "x-kubernetes-int-or-string");
            Value::Object(kept.map(|(key, value)| (key.clone(), without_unions(value))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(without_unions).collect()),
        plain => plain.clone(),
    }
}

fn default_of(s: &Value, root: bool, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if !ty(s).is_empty() && !TYPES.contains(&ty(s)) {
        return errors.push(validate::wrong_type("", at, ty(s), default));
    }
    let Ok(mut schema) = Schema::parse(s) else { return };
    // A default of the whole is an object with kind and version.
    schema.embedded |= root;
    schema.has_embedded |= root;
    let mut pruned = default.clone();
    prune::prune_value(&schema, &mut pruned);
    if pruned != *default {
        errors.push(FieldError::invalid(at, default, "must not have unknown fields"));
    }
    if let Value::Object(object) = default {
        let found = embedded::validate(&schema, object);
        if !found.is_empty() {
            errors.extend(found.into_iter().map(|e| FieldError { field: format!("{at}.{}", e.field), ..e }));
            return;
        }
    }
    let found = Schema::parse(&without_unions(s))
        .map_or_else(|_| Vec::new(), |s| validate::validate_part(&s, default, None, at));
    if found.is_empty() {
        errors.extend(rules::check_default(s, root || flag(s, "x-kubernetes-embedded-resource"), default, at));
    }
    errors.extend(found);
}
