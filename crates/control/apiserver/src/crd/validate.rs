//! Validation of a value against a structural schema, with kube-apiserver's texts.

use std::collections::HashSet;

use serde_json::Value;

use super::formats;
use super::schema::{JsonType, ListType, Rules, Schema};
use crate::object::Object;
use crate::status::{FieldError, FieldErrorKind};

/// Errors reported for one object; more would help nobody.
const MAX_ERRORS: usize = 200;

/// Checks a custom resource. `metadata` is checked elsewhere.
pub fn validate(schema: &Schema, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    members(schema, object, "", true, &mut errors);
    count_rules(&schema.rules, object.len() as u64, "", false, &mut errors);
    let rules = &schema.rules;
    if rules.not.is_some() || !(rules.any_of.is_empty() && rules.one_of.is_empty() && rules.all_of.is_empty()) {
        branches(rules, &Value::Object(object.clone()), "", &mut errors);
    }
    errors
}

/// Checks only the uniqueness and value rules below `path`, as for a subresource.
pub fn validate_value(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    if value.is_null() && schema.nullable {
        return;
    }
    if !type_fits(schema, value) {
        let wanted = wanted_type(schema);
        let found = Value::String(type_name(value).to_owned());
        let detail = format!("{} in body must be of type {wanted}: \"{}\"", shown(path), type_name(value));
        errors.push(FieldError::with_value(FieldErrorKind::TypeInvalid, path, &found, detail));
        return;
    }
    let rules = &schema.rules;
    match value {
        Value::Object(object) => {
            if schema.embedded {
                embedded(object, path, errors);
            }
            members(schema, object, path, schema.embedded, errors);
            count_rules(rules, object.len() as u64, path, false, errors);
        }
        Value::Array(list) => {
            count_rules(rules, list.len() as u64, path, true, errors);
            if let Some(items) = &schema.items {
                for (at, value) in list.iter().enumerate() {
                    validate_value(items, value, &format!("{path}[{at}]"), errors);
                }
            }
            unique(schema, list, path, errors);
        }
        Value::String(text) => string_rules(rules, text, value, path, errors),
        Value::Number(number) => number_rules(rules, number, value, path, errors),
        _ => {}
    }
    if !rules.choices.is_empty() && !rules.choices.contains(value) {
        let allowed: Vec<String> = rules.choices.iter().map(Value::to_string).collect();
        let detail = format!("supported values: {}", allowed.join(", "));
        errors.push(FieldError::with_value(FieldErrorKind::NotSupported, path, value, detail));
    }
    branches(rules, value, path, errors);
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "" } else { path }
}

fn members(schema: &Schema, object: &Object, path: &str, resource: bool, errors: &mut Vec<FieldError>) {
    for key in &schema.rules.required {
        if !object.contains_key(key) {
            errors.push(FieldError::required(join(path, key), ""));
        }
    }
    for (key, value) in object {
        if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(inner) = schema.property(key) {
            validate_value(inner, value, &join(path, key), errors);
        }
    }
}

fn embedded(object: &Object, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if object.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            errors.push(FieldError::required(join(path, key), "must not be empty"));
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wanted_type(schema: &Schema) -> &'static str {
    if schema.int_or_string { "integer,string" } else { schema.ty.map_or("object", JsonType::name) }
}

fn type_fits(schema: &Schema, value: &Value) -> bool {
    let found = type_name(value);
    if schema.int_or_string {
        return matches!(found, "integer" | "string");
    }
    match schema.ty {
        None => true,
        Some(JsonType::Number) => matches!(found, "integer" | "number"),
        Some(ty) => ty.name() == found,
    }
}

fn count_rules(rules: &Rules, count: u64, path: &str, list: bool, errors: &mut Vec<FieldError>) {
    let (least, most, what) = if list {
        (rules.min_items, rules.max_items, "items")
    } else {
        (rules.min_properties, rules.max_properties, "properties")
    };
    if let Some(most) = most
        && count > most
    {
        let noun = if most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {most} {noun}");
        errors.push(FieldError::with_value(FieldErrorKind::TooMany, path, &count.into(), detail));
    }
    if let Some(least) = least
        && count < least
    {
        let detail = format!("{path} in body should have at least {least} {what}");
        errors.push(FieldError::invalid(path, &count.into(), detail));
    }
}

fn string_rules(rules: &Rules, text: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if rules.max_length.is_some() || rules.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(most) = rules.max_length
            && length > most
        {
            let detail = format!("may not be more than {most} bytes");
            errors.push(FieldError {
                value: String::new(),
                ..FieldError::with_value(FieldErrorKind::TooLong, path, value, detail)
            });
        }
        if let Some(least) = rules.min_length
            && length < least
        {
            let detail = format!("{path} in body should be at least {least} chars long");
            errors.push(FieldError::invalid(path, value, detail));
        }
    }
    if let Some(pattern) = &rules.pattern
        && pattern.matches(text) != Some(true)
    {
        let detail = format!("{path} in body should match '{}'", pattern.source);
        errors.push(FieldError::invalid(path, value, detail));
    }
    if let Some(format) = &rules.format
        && !formats::string(format, text)
    {
        let detail = format!("{path} in body must be of type {format}: {value}");
        errors.push(FieldError::invalid(path, value, detail));
    }
}

fn number_rules(rules: &Rules, number: &serde_json::Number, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let n = number.as_f64().unwrap_or_default();
    let mut push =
        |what: String| errors.push(FieldError::invalid(path, value, format!("{path} in body should be {what}")));
    if let Some((most, exclusive)) = rules.maximum {
        if exclusive && n >= most {
            push(format!("less than {most}"));
        } else if !exclusive && n > most {
            push(format!("less than or equal to {most}"));
        }
    }
    if let Some((least, exclusive)) = rules.minimum {
        if exclusive && n <= least {
            push(format!("greater than {least}"));
        } else if !exclusive && n < least {
            push(format!("greater than or equal to {least}"));
        }
    }
    if let Some(factor) = rules.multiple_of
        && factor > 0.0
        && ((n / factor) - (n / factor).round()).abs() > 1e-9
    {
        push(format!("a multiple of {factor}"));
    }
    if let Some(format) = &rules.format
        && !formats::number(format, number)
    {
        errors.push(FieldError::invalid(path, value, format!("{path} in body must be of type {format}: {value}")));
    }
}

/// The value's canonical text, for comparing within sets.
fn canonical(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    sorted.to_string()
}

fn unique(schema: &Schema, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    let mut duplicate = |at: usize, value: &Value| {
        let at = format!("{path}[{at}]");
        errors.push(FieldError::with_value(FieldErrorKind::Duplicate, at, value, ""));
    };
    match &schema.list_type {
        ListType::Atomic if schema.rules.unique_items => {
            if !list.iter().all(|v| seen.insert(canonical(v))) {
                let detail = format!("{path} in body shouldn't contain duplicates");
                errors.push(FieldError { value: String::new(), ..FieldError::invalid(path, &Value::Null, detail) });
            }
        }
        ListType::Atomic => {}
        ListType::Set => {
            for (at, value) in list.iter().enumerate() {
                if !seen.insert(canonical(value)) {
                    duplicate(at, value);
                }
            }
        }
        ListType::Map(keys) => {
            for (at, value) in list.iter().enumerate() {
                let of_keys: Object = keys
                    .iter()
                    .filter_map(|k| {
                        let default = || schema.items.as_ref()?.properties.get(k)?.default.clone();
                        Some((k.clone(), value.get(k).cloned().or_else(default)?))
                    })
                    .collect();
                let of_keys = Value::Object(of_keys);
                if !seen.insert(canonical(&of_keys)) {
                    duplicate(at, &of_keys);
                }
            }
        }
    }
}

fn holds(schema: &Schema, value: &Value) -> bool {
    let mut errors = Vec::new();
    validate_value(schema, value, "", &mut errors);
    errors.is_empty()
}

fn branches(rules: &Rules, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut push = |what: &str| {
        let empty = Value::String(String::new());
        errors.push(FieldError::invalid(path, &empty, format!("\"{path}\" must {what}")));
    };
    if !rules.any_of.is_empty() && !rules.any_of.iter().any(|s| holds(s, value)) {
        push("validate at least one schema (anyOf)");
    }
    if !rules.one_of.is_empty() {
        match rules.one_of.iter().filter(|s| holds(s, value)).count() {
            1 => {}
            0 => push("validate one and only one schema (oneOf). Found none valid"),
            many => push(&format!("validate one and only one schema (oneOf). Found {many} valid alternatives")),
        }
    }
    if let Some(not) = &rules.not
        && holds(not, value)
    {
        push("not validate the schema (not)");
    }
    let mut all = true;
    for schema in &rules.all_of {
        let before = errors.len();
        validate_value(schema, value, path, errors);
        all &= errors.len() == before;
    }
    if !all {
        let empty = Value::String(String::new());
        errors.push(FieldError::invalid(path, &empty, format!("\"{path}\" must validate all the schemas (allOf)")));
    }
}
