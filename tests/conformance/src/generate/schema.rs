//! Sound structural schemas.

use serde_json::{Value, json};

use super::{Chance, value};

const NAMES: [&str; 15] = [
    "size", "name", "mode", "in", "a-b", "parts", "x.y", "key", "limit", "tags", "inner", "port", "when", "note", "$x",
];
const PATTERNS: [&str; 4] = ["^[a-z]+$", "^a.*b$", "[0-9]{2}", "^(red|blue)$"];
const FORMATS: [&str; 9] = ["date-time", "date", "ipv4", "ipv6", "uri", "uuid", "byte", "duration", "frob"];
const MOST_DEPTH: usize = 3;

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// Whether old and new values of it can be told to be the same one.
    correlated: bool,
}

impl Place {
    fn below(self, correlated: bool) -> Self {
        Self { depth: self.depth + 1, correlated: self.correlated && correlated }
    }
}

/// The schema of a whole object: `spec`, and sometimes `status`.
pub fn whole(c: &mut Chance) -> Value {
    let top = Place { depth: 0, correlated: true };
    let mut schema = json!({"type": "object", "properties": {"spec": object(c, top)}});
    if c.percent(50) {
        schema["properties"]["status"] = object(c, Place { depth: 2, correlated: true });
    }
    if c.percent(30) {
        schema["required"] = json!(["spec"]);
    }
    schema
}

fn node(c: &mut Chance, place: Place) -> Value {
    let mut schema = match c.below(if place.depth < MOST_DEPTH { 12 } else { 7 }) {
        0..=2 => text(c),
        3 | 4 => integer(c),
        5 => number(c),
        6 => json!({"type": "boolean"}),
        7 => json!({"x-kubernetes-int-or-string": true}),
        8 | 9 => list(c, place),
        10 => object(c, place),
        _ => dict(c, place),
    };
    if c.percent(15) {
        rule(c, place, &mut schema);
    } else if c.percent(25) && schema["type"] != json!("object") {
        schema["default"] = value::of(c, &schema, 0);
    }
    if c.percent(12) && schema.get("default").is_none() {
        schema["nullable"] = json!(true);
    }
    schema
}

fn text(c: &mut Chance) -> Value {
    let mut schema = json!({"type": "string"});
    match c.below(5) {
        0 => schema["enum"] = json!(["red", "green", "blue"]),
        1 => schema["pattern"] = json!(c.pick(&PATTERNS)),
        2 => schema["format"] = json!(c.pick(&FORMATS)),
        3 => schema["minLength"] = json!(1 + c.below(3)),
        _ => {}
    }
    if schema.get("enum").is_none() && schema.get("format").is_none() {
        schema["maxLength"] = json!(6 + c.below(6));
    }
    schema
}

fn integer(c: &mut Chance) -> Value {
    let mut schema = json!({"type": "integer"});
    match c.below(6) {
        0 => schema["format"] = json!(c.pick(&["int32", "int64"])),
        1 => schema["multipleOf"] = json!(1 + c.below(4)),
        2 => schema["anyOf"] = json!([{"maximum": 3}, {"minimum": 7}]),
        3 => schema["not"] = json!({"enum": [5, 6]}),
        4 => {
            schema["minimum"] = json!(c.below(5));
            schema["maximum"] = json!(5 + c.below(20));
        }
        _ => {}
    }
    schema
}

fn number(c: &mut Chance) -> Value {
    let mut schema = json!({"type": "number"});
    if c.percent(50) {
        schema["minimum"] = json!(1.5);
        schema["exclusiveMinimum"] = json!(c.percent(50));
    }
    schema
}

fn list(c: &mut Chance, place: Place) -> Value {
    let mut schema = json!({"type": "array", "maxItems": 3 + c.below(3)});
    match c.below(4) {
        0 => {
            schema["x-kubernetes-list-type"] = json!("set");
            schema["items"] = if c.percent(50) { text(c) } else { integer(c) };
        }
        1 => {
            let mut items = object(c, place.below(true));
            for composed in ["anyOf", "oneOf", "not", "allOf", "x-kubernetes-preserve-unknown-fields"] {
                items.as_object_mut().map(|i| i.remove(composed));
            }
            items["properties"]["id"] = json!({"type": "string", "maxLength": 8});
            items["required"] = json!(["id"]);
            schema["x-kubernetes-list-type"] = json!("map");
            schema["x-kubernetes-list-map-keys"] = json!(["id"]);
            schema["items"] = items;
        }
        other => {
            if other == 2 {
                schema["x-kubernetes-list-type"] = json!("atomic");
            }
            schema["items"] = node(c, place.below(false));
        }
    }
    if c.percent(25) {
        schema["minItems"] = json!(1);
    }
    schema
}

fn dict(c: &mut Chance, place: Place) -> Value {
    let mut schema = json!({"type": "object", "maxProperties": 3 + c.below(2)});
    schema["additionalProperties"] = node(c, place.below(true));
    if c.percent(20) {
        schema["minProperties"] = json!(1);
    }
    if c.percent(20) {
        schema["x-kubernetes-map-type"] = json!(c.pick(&["atomic", "granular"]));
    }
    schema
}

fn object(c: &mut Chance, place: Place) -> Value {
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..(3 + c.below(4)) {
        let name = c.pick(&NAMES);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut schema = json!({"type": "object", "properties": {}});
    for name in &names {
        schema["properties"][*name] = node(c, place.below(true));
    }
    let required: Vec<&str> = names.iter().copied().filter(|_| c.percent(15)).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    match c.below(14) {
        0 => schema["anyOf"] = json!([{"required": [names[0]]}, {"required": [names[names.len() - 1]]}]),
        1 => schema["oneOf"] = json!([{"required": [names[0]]}, {"required": [names[names.len() - 1]]}]),
        2 => schema["allOf"] = json!([{"required": [names[0]]}]),
        3 if !required.contains(&names[0]) => schema["not"] = json!({"required": [names[0]]}),
        4 => schema["x-kubernetes-preserve-unknown-fields"] = json!(true),
        5 if required.is_empty() => schema["default"] = json!({}),
        6 => schema["x-kubernetes-map-type"] = json!("atomic"),
        7 | 8 => pair_rule(c, &names, &mut schema),
        _ => {}
    }
    schema
}

/// Adds a rule that fits the type.
fn rule(c: &mut Chance, place: Place, schema: &mut Value) {
    let (plain, transition) = match schema["type"].as_str() {
        Some("string") if schema.get("format").is_none() => {
            (c.pick(&["self.size() > 2", "self != 'red'"]), "self == oldSelf")
        }
        Some("integer") => (c.pick(&["self % 2 == 0", "self != 3"]), "self >= oldSelf"),
        Some("number") => ("self < 100.0", "self != oldSelf + 1.0"),
        Some("array") => ("self.size() != 2", "self.size() >= oldSelf.size()"),
        Some("boolean") => ("self || !self", "self || !oldSelf"),
        _ => return,
    };
    let transition_is = place.correlated && c.percent(40);
    let mut rule = json!({"rule": if transition_is { transition } else { plain }});
    if c.percent(50) {
        rule["message"] = json!("not like this");
    }
    if transition_is && c.percent(25) {
        rule["optionalOldSelf"] = json!(true);
        rule["rule"] = json!("!oldSelf.hasValue() || self == oldSelf.value()");
    }
    schema["x-kubernetes-validations"] = json!([rule]);
}

/// A rule about two fields, with everything that a rule may have.
fn pair_rule(c: &mut Chance, names: &[&str], schema: &mut Value) {
    let plain: Vec<&str> =
        names.iter().copied().filter(|n| n.bytes().all(|b| b.is_ascii_lowercase()) && *n != "in").collect();
    let [first, .., last] = plain.as_slice() else { return };
    let mut rule = json!({"rule": format!("has(self.{first}) || !has(self.{last})"), "fieldPath": format!(".{first}")});
    rule["messageExpression"] = json!(format!("has(self.{last}) ? '{first} goes with {last}' : 'no {first}'"));
    let reasons = ["FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate"];
    rule["reason"] = json!(c.pick(&reasons));
    schema["x-kubernetes-validations"] = json!([rule]);
}
