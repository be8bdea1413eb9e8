//! Schemas with something wrong at some place.

use serde_json::{Value, json};

use super::{Chance, keys};

/// Spoils one place of a schema, below the top; says what was done.
pub fn spoil(c: &mut Chance, schema: &mut Value) -> &'static str {
    let mut places = Vec::new();
    collect(schema, String::new(), &mut places);
    let place = places[c.below(places.len())].clone();
    let Some(node) = schema.pointer_mut(&place) else { return "nothing" };
    let Some(map) = node.as_object_mut() else { return "nothing" };
    let mut set = |key: &str, value: Value| map.insert(key.into(), value);
    let wrongs: [(&str, &str, Value); 24] = [
        ("no type", "type", Value::Null),
        ("an unknown type", "type", json!("text")),
        ("unique items", "uniqueItems", json!(true)),
        ("a reference", "$ref", json!("#/definitions/x")),
        ("a default of another type", "default", json!([[{}]])),
        ("a default with an unknown field", "default", json!({"unknown": 1})),
        ("a list type without list", "x-kubernetes-list-type", json!("map")),
        ("keys without a map", "x-kubernetes-list-map-keys", json!(["nope"])),
        ("an unknown map type", "x-kubernetes-map-type", json!("heap")),
        ("a pattern that is none", "pattern", json!("(")),
        ("a pattern with a look ahead", "pattern", json!("^(?=a)b")),
        ("properties and additional properties", "additionalProperties", json!({"type": "string"})),
        ("a preserved leaf", "x-kubernetes-preserve-unknown-fields", json!(true)),
        ("preserve is false", "x-kubernetes-preserve-unknown-fields", json!(false)),
        ("int or string with a type", "x-kubernetes-int-or-string", json!(true)),
        ("embedded without an object", "x-kubernetes-embedded-resource", json!(true)),
        ("a type within anyOf", "anyOf", json!([{"type": "string"}, {"description": "no"}])),
        ("a field within allOf", "allOf", json!([{"properties": {"hidden": {"minLength": 1}}}])),
        ("a default within not", "not", json!({"default": 1})),
        ("a rule of another type", "x-kubernetes-validations", json!([{"rule": "self.size() + 1 == 'x'"}])),
        ("a rule about an unknown field", "x-kubernetes-validations", json!([{"rule": "self.unknown.deep > 1"}])),
        ("a rule that is no condition", "x-kubernetes-validations", json!([{"rule": "self"}])),
        ("a rule about the old self", "x-kubernetes-validations", json!([{"rule": "self == oldSelf"}])),
        (
            "a path to nowhere",
            "x-kubernetes-validations",
            json!([{"rule": "true", "fieldPath": ".nowhere", "reason": "Odd"}]),
        ),
    ];
    let (what, key, value) = wrongs[c.below(wrongs.len())].clone();
    set(key, value);
    if what == "no type" {
        map.remove("type");
    }
    what
}

fn collect(schema: &Value, at: String, places: &mut Vec<String>) {
    for name in keys(&schema["properties"]) {
        let inner = format!("{at}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
        collect(&schema["properties"][&name], inner.clone(), places);
        places.push(inner);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            collect(&schema[key], format!("{at}/{key}"), places);
            places.push(format!("{at}/{key}"));
        }
    }
}
