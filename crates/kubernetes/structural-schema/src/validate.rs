//! Validation of a value against a structural schema, with kube-apiserver's messages, in its order.
//!
//! Upstream's validator (kube-openapi `pkg/validation/validate`) runs a fixed sequence of validators at each place: type,
//! branches, string, format, number, list, enumeration, object. It counts the checks that hold: of several branches that
//! all fail, it reports the errors of the one with most matches. On updates, an invalid value that has not changed is accepted (ratcheting).

use std::collections::HashMap;

use field_errors::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::Object;
use crate::formats;
use crate::path::Path;
use crate::schema::{Additional, ListType, Rules, Schema};

/// Most errors reported for one object.
const MAX_ERRORS: usize = 200;

/// Checks a custom resource; `old` is its former state.
pub fn validate(schema: &Schema, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    // `node` takes values, but the object is only borrowed: validate its members directly.
    let mut verdict = Verdict::default();
    object_rules(schema, object, old, &Path::Root, &mut verdict);
    if schema.rules.has_branches() {
        let whole = Value::Object(object.clone());
        let mut first = Verdict::default();
        branches(&schema.rules, &whole, None, &Path::Root, &mut first);
        first.merge(verdict);
        verdict = first;
    }
    verdict.errors
}

/// Validates a part of a custom resource at `prefix`; messages contain only the path within the part.
pub fn validate_part(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut errors = node(schema, value, old, &Path::Root).errors;
    for error in &mut errors {
        error.field = if error.field.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", error.field) };
    }
    errors
}

/// Errors and matches at a place and below.
#[derive(Default)]
struct Verdict {
    errors: Vec<FieldError>,
    matches: u64,
}

impl Verdict {
    fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Verdict) {
        self.matches += other.matches;
        if self.errors.is_empty() {
            self.errors = other.errors;
            return;
        }
        for error in other.errors {
            self.push(error);
        }
    }

    fn good(&self) -> bool {
        self.errors.is_empty()
    }
}

fn node(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    types(schema, value, path, &mut verdict);
    if value.is_null() {
        choices(&schema.rules, value, path, &mut verdict);
        return ratchet(verdict, value, old);
    }
    verdict.matches += 3;
    if schema.rules.has_branches() {
        branches(&schema.rules, value, old, path, &mut verdict);
    } else {
        verdict.matches += 1;
    }
    match value {
        Value::String(text) => {
            string_rules(&schema.rules, text, value, path, &mut verdict);
            verdict.matches += 1;
        }
        Value::Number(number) => {
            number_rules(&schema.rules, number, value, path, &mut verdict);
            verdict.matches += 2;
        }
        Value::Array(list) => {
            list_rules(schema, list, old, path, &mut verdict);
            verdict.matches += 2;
        }
        _ => {}
    }
    choices(&schema.rules, value, path, &mut verdict);
    if let Value::Object(object) = value {
        object_rules(schema, object, old.and_then(Value::as_object), path, &mut verdict);
        verdict.matches += 1;
    }
    ratchet(verdict, value, old)
}

/// Ratcheting: drops the errors of an unchanged value.
fn ratchet(verdict: Verdict, value: &Value, old: Option<&Value>) -> Verdict {
    if !verdict.good() && old == Some(value) { Verdict::default() } else { verdict }
}

/// The JSON type of a value, and the format that upstream's validator assigns to it.
fn kind_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(n) if n.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Whether upstream treats a float as an integer: within the exact range of a double, and whole or nearly so.
fn whole(number: f64) -> bool {
    const MOST: f64 = 9_007_199_254_740_991.0;
    let rest = number.fract();
    number.abs() <= MOST && (rest == 0.0 || (number > 1.0 && rest / (2.0 * number - rest) < 1e-9))
}

fn type_error(named: &str, path: &str, wanted: &str, found: &str) -> FieldError {
    let value = Value::String(found.to_owned());
    let detail = format!("{named} in body must be of type {wanted}: {}", gotext::quote(found));
    FieldError::with_value(FieldErrorKind::TypeInvalid, path, &value, detail)
}

/// The error of a value at `path` (called `named` in the message) of another type than `wanted`.
pub fn wrong_type(named: &str, path: &str, wanted: &str, value: &Value) -> FieldError {
    type_error(named, path, wanted, kind_of(value).0)
}

fn types(schema: &Schema, value: &Value, path: &Path<'_>, verdict: &mut Verdict) {
    let wanted: &[&str] = match (schema.int_or_string, schema.ty) {
        (true, _) => &["integer", "string"],
        (false, None) => &[],
        (false, Some(ty)) => ty.names(),
    };
    let wanted_format = schema.rules.format.as_deref().filter(|f| formats::known(f));
    if wanted.is_empty() && wanted_format.is_none() {
        return;
    }
    let (found, format) = kind_of(value);
    let mut wrong =
        |wanted: &str, found: &str| verdict.push(type_error(&path.to_string(), &path.to_string(), wanted, found));
    if value.is_null() {
        if !wanted.is_empty() && !schema.nullable {
            wrong(&wanted.join(","), found);
        }
        return;
    }
    let has = |ty: &str| wanted.contains(&ty);
    let whole = || value.as_f64().is_some_and(whole);
    let compatible =
        has(found) || (found == "number" && has("integer") && whole()) || (found == "integer" && has("number"));
    let textual = matches!(found, "string" | "array");
    if let Some(wanted_format) = wanted_format {
        if !textual && !compatible && format != wanted_format {
            return wrong(wanted_format, format);
        }
        if textual && !has("number") && !has("integer") {
            verdict.matches += 1;
            return;
        }
    }
    if compatible { verdict.matches += 1 } else { wrong(&wanted.join(","), found) }
}

fn choices(rules: &Rules, value: &Value, path: &Path<'_>, verdict: &mut Verdict) {
    if rules.choices.is_empty() || (!value.is_null() && rules.choices.iter().any(|c| same(c, value))) {
        return;
    }
    let allowed: Vec<String> = rules
        .choices
        .iter()
        .map(|c| gotext::quote(&c.as_str().map_or_else(|| gotext::json(c), str::to_owned)))
        .collect();
    let detail = format!("supported values: {}", allowed.join(", "));
    verdict.push(FieldError::with_value(FieldErrorKind::NotSupported, path.to_string(), value, detail));
}

fn same(choice: &Value, value: &Value) -> bool {
    match (choice, value) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => choice == value,
    }
}

fn string_rules(rules: &Rules, text: &str, value: &Value, path: &Path<'_>, verdict: &mut Verdict) {
    if let Some(error) = string_rule(rules, text, value, path) {
        verdict.push(error);
    }
    if let Some(format) = rules.format.as_deref().filter(|f| formats::known(f)) {
        verdict.matches += 1;
        if !formats::string(format, text) {
            let detail = format!("{path} in body must be of type {format}: {}", gotext::quote(text));
            verdict.push(FieldError::with_value(FieldErrorKind::TypeInvalid, path.to_string(), value, detail));
        }
    }
}

/// The first of length and pattern that does not hold.
fn string_rule(rules: &Rules, text: &str, value: &Value, path: &Path<'_>) -> Option<FieldError> {
    if rules.max_length.is_some() || rules.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(most) = rules.max_length.filter(|most| length > *most) {
            return Some(FieldError::too_long(path.to_string(), most));
        }
        if let Some(least) = rules.min_length.filter(|least| length < *least) {
            let detail = format!("{path} in body should be at least {least} chars long");
            return Some(FieldError::invalid(path.to_string(), value, detail));
        }
    }
    let pattern = rules.pattern.as_ref().filter(|p| p.matches(text) != Some(true))?;
    let detail = format!("{path} in body should match '{}'", pattern.source);
    Some(FieldError::invalid(path.to_string(), value, detail))
}

fn number_rules(rules: &Rules, number: &serde_json::Number, value: &Value, path: &Path<'_>, verdict: &mut Verdict) {
    let n = number.as_f64().unwrap_or_default();
    let integer = number.as_i64();
    // A bound of an integer is cut to an integer, in the check and in the text.
    let bound =
        |b: f64| if integer.is_some() { (b.trunc(), format!("{:.0}", b.trunc())) } else { (b, gotext::float(b)) };
    let mut push = |what: String| {
        verdict.push(FieldError::invalid(path.to_string(), value, format!("{path} in body should be {what}")));
    };
    if let Some(factor) = rules.multiple_of {
        let (factor, text) = bound(factor);
        if factor > 0.0 {
            let ratio = if factor < 1.0 { n * (1.0 / factor) } else { n / factor };
            let good =
                integer.map_or_else(|| (ratio - ratio.round()).abs() < 1e-9, |i| i % (factor as i64).max(1) == 0);
            if !good {
                push(format!("a multiple of {text}"));
            }
        } else {
            // A small factor becomes 0 when truncated to an integer.
            let detail = format!("factor MultipleOf declared for {path} must be positive: {text}");
            verdict.push(FieldError::invalid(path.to_string(), &0.into(), detail));
        }
    }
    let mut push = |what: String| {
        verdict.push(FieldError::invalid(path.to_string(), value, format!("{path} in body should be {what}")));
    };
    if let Some((least, exclusive)) = rules.minimum {
        let (least, text) = bound(least);
        if exclusive && n <= least {
            push(format!("greater than {text}"));
        } else if !exclusive && n < least {
            push(format!("greater than or equal to {text}"));
        }
    }
    if let Some((most, exclusive)) = rules.maximum {
        let (most, text) = bound(most);
        if exclusive && n >= most {
            push(format!("less than {text}"));
        } else if !exclusive && n > most {
            push(format!("less than or equal to {text}"));
        }
    }
}

fn list_rules(schema: &Schema, list: &[Value], old: Option<&Value>, path: &Path<'_>, verdict: &mut Verdict) {
    let rules = &schema.rules;
    if let Some(items) = &schema.items {
        let before = old.and_then(Value::as_array).map(|before| Counterparts::new(&schema.list_type, before));
        for (at, value) in list.iter().enumerate() {
            if verdict.errors.len() >= MAX_ERRORS {
                return;
            }
            let old = before.as_ref().and_then(|before| before.of(value));
            verdict.merge(node(items, value, old, &Path::Index(path, at)));
        }
    }
    let count = list.len() as u64;
    if let Some(least) = rules.min_items.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        verdict.push(FieldError::invalid(path.to_string(), &count.into(), detail));
    }
    if let Some(most) = rules.max_items.filter(|most| count > *most) {
        verdict.push(FieldError::too_many(path.to_string(), count, most));
    }
}

/// The former items of a keyed list by their keys: looked up, and not searched for, because lists may be long.
struct Counterparts<'a> {
    keys: &'a [String],
    items: HashMap<Vec<Option<String>>, &'a Value>,
}

impl<'a> Counterparts<'a> {
    fn new(list_type: &'a ListType, before: &'a [Value]) -> Self {
        let ListType::Map(keys) = list_type else { return Self { keys: &[], items: HashMap::new() } };
        let mut items = HashMap::with_capacity(before.len());
        for item in before {
            items.entry(Self::id(keys, item)).or_insert(item);
        }
        Self { keys, items }
    }

    fn id(keys: &[String], item: &Value) -> Vec<Option<String>> {
        keys.iter().map(|key| item.get(key).map(Value::to_string)).collect()
    }

    /// The former item with the same keys.
    fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() { None } else { self.items.get(&Self::id(self.keys, item)).copied() }
    }
}

fn object_rules(schema: &Schema, object: &Object, old: Option<&Object>, path: &Path<'_>, verdict: &mut Verdict) {
    let rules = &schema.rules;
    let count = object.len() as u64;
    if let Some(least) = rules.min_properties.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} properties");
        verdict.push(FieldError::invalid(path.to_string(), &count.into(), detail));
    }
    if let Some(most) = rules.max_properties.filter(|most| count > *most) {
        verdict.push(FieldError::too_many(path.to_string(), count, most));
    }
    if let Additional::Schema(inner) = &schema.additional {
        for (key, value) in object.iter().filter(|(k, _)| !schema.properties.contains_key(*k)) {
            verdict.merge(node(inner, value, old.and_then(|o| o.get(key)), &Path::Key(path, key)));
        }
    }
    for (key, inner) in &schema.properties {
        if verdict.errors.len() >= MAX_ERRORS {
            return;
        }
        if let Some(value) = object.get(key) {
            verdict.merge(node(inner, value, old.and_then(|o| o.get(key)), &Path::Key(path, key)));
        }
    }
    for key in rules.required.iter().filter(|k| !object.contains_key(*k)) {
        verdict.push(FieldError::required(Path::Key(path, key).to_string(), ""));
    }
}

fn branches(rules: &Rules, value: &Value, old: Option<&Value>, path: &Path<'_>, verdict: &mut Verdict) {
    let composite = |what: String| {
        let empty = Value::String(String::new());
        FieldError::invalid("", &empty, format!("{} must {what}", gotext::quote(&path.to_string())))
    };
    // A branch is not a place of its own: its errors are not ratcheted.
    let try_one = |schema: &Schema| node(schema, value, old.filter(|old| *old != value), path);
    let mut out = Verdict::default();
    any_of(rules, try_one, composite, &mut out);
    one_of(rules, try_one, composite, &mut out);
    if !rules.all_of.is_empty() {
        let mut good = 0;
        for schema in &rules.all_of {
            let found = try_one(schema);
            good += usize::from(found.good());
            out.merge(found);
        }
        if good != rules.all_of.len() {
            let more = if good == 0 { ". None validated" } else { "" };
            out.push(composite(format!("validate all the schemas (allOf){more}")));
        }
    }
    if let Some(not) = &rules.not
        && try_one(not).good()
    {
        out.push(composite("not validate the schema (not)".to_owned()));
    }
    out.matches += 1;
    verdict.merge(out);
}

fn any_of(
    rules: &Rules,
    try_one: impl Fn(&Schema) -> Verdict,
    composite: impl Fn(String) -> FieldError,
    out: &mut Verdict,
) {
    let mut best: Option<Verdict> = None;
    for schema in &rules.any_of {
        let found = try_one(schema);
        if found.good() {
            return out.merge(found);
        }
        if best.as_ref().is_none_or(|b| found.matches > b.matches) {
            best = Some(found);
        }
    }
    if let Some(best) = best {
        out.push(composite("validate at least one schema (anyOf)".to_owned()));
        out.merge(best);
    }
}

fn one_of(
    rules: &Rules,
    try_one: impl Fn(&Schema) -> Verdict,
    composite: impl Fn(String) -> FieldError,
    out: &mut Verdict,
) {
    if rules.one_of.is_empty() {
        return;
    }
    let (mut good, mut first, mut best): (usize, Option<Verdict>, Option<Verdict>) = (0, None, None);
    for schema in &rules.one_of {
        let found = try_one(schema);
        if found.good() {
            good += 1;
            best = None;
            first.get_or_insert(found);
        } else if good == 0 && best.as_ref().is_none_or(|b| found.matches > b.matches) {
            best = Some(found);
        }
    }
    match (good, first) {
        (1, Some(first)) => out.merge(first),
        (0, _) => {
            out.push(composite("validate one and only one schema (oneOf). Found none valid".to_owned()));
            out.merge(best.unwrap_or_default());
        }
        (many, _) => {
            out.push(composite(format!("validate one and only one schema (oneOf). Found {many} valid alternatives")))
        }
    }
}

impl Rules {
    /// Whether the schema has branches.
    pub fn has_branches(&self) -> bool {
        self.not.is_some() || !(self.any_of.is_empty() && self.one_of.is_empty() && self.all_of.is_empty())
    }
}
