//! Values for a schema: ones that fit, or with something wrong here and there.

use serde_json::{Map, Value, json};

use super::{Chance, keys};

/// A value for the schema, each part of it wrong so many times of a hundred.
pub fn of(c: &mut Chance, schema: &Value, wrong: usize) -> Value {
    if c.percent(wrong) {
        return bad(c, schema, wrong);
    }
    if schema["nullable"] == json!(true) && c.percent(20) {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return if c.percent(50) { json!(c.below(100)) } else { json!("80%") };
    }
    match schema["type"].as_str() {
        Some("string") => json!(text(c, schema)),
        Some("integer") => json!(integer(c, schema)),
        Some("number") => json!(c.pick(&[&2.5, &7.25, &40.0])),
        Some("boolean") => json!(c.percent(50)),
        Some("array") => list(c, schema, wrong),
        _ => object(c, schema, wrong, 70),
    }
}

/// Most fields of an object.
pub fn whole(c: &mut Chance, schema: &Value, wrong: usize) -> Value {
    object(c, schema, wrong, 75)
}

/// Some fields of an object.
pub fn part(c: &mut Chance, schema: &Value, wrong: usize) -> Value {
    object(c, schema, wrong, 35)
}

fn text(c: &mut Chance, schema: &Value) -> String {
    if schema.get("enum").is_some() {
        return c.pick(&["blue", "green"]).to_owned();
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        let samples = match pattern {
            "^[a-z]+$" => ["abc", "word"],
            "^a.*b$" => ["ab", "a-b b"],
            "[0-9]{2}" => ["42", "x11y"],
            _ => ["red", "blue"],
        };
        return c.pick(&samples).to_owned();
    }
    let samples = match schema["format"].as_str() {
        Some("date-time") => ["2024-02-29T10:20:30Z", "2023-01-01T00:00:00.5+01:00"],
        Some("date") => ["2024-02-29", "1999-12-31"],
        Some("ipv4") => ["10.0.0.1", "192.168.0.255"],
        Some("ipv6") => ["::1", "fe80::1"],
        Some("uri") => ["https://example.com/x?y=z", "urn:a:b"],
        Some("uuid") => ["7d444840-9dc0-11d1-b245-5ffdce74fad2", "7D444840-9DC0-11D1-B245-5FFDCE74FAD2"],
        Some("byte") => ["aGk=", "AAEC"],
        Some("duration") => ["1h30m", "250ms"],
        _ => ["hello", "wörld"],
    };
    c.pick(&samples).to_owned()
}

fn integer(c: &mut Chance, schema: &Value) -> i64 {
    let number = |key: &str, or: i64| schema[key].as_i64().unwrap_or(or);
    let chosen = i64::try_from(c.below(8)).unwrap_or_default();
    if schema.get("anyOf").is_some() {
        return if chosen > 3 { 7 + chosen } else { chosen };
    }
    if schema.get("not").is_some() {
        return 8 + chosen;
    }
    if schema.get("minimum").is_some() {
        return number("minimum", 0).max(chosen.min(number("maximum", 5)));
    }
    chosen * number("multipleOf", 1)
}

fn list(c: &mut Chance, schema: &Value, wrong: usize) -> Value {
    let least = usize::try_from(schema["minItems"].as_u64().unwrap_or_default()).unwrap_or_default();
    let count = least.max(c.below(4));
    let mut items: Vec<Value> = Vec::new();
    for at in 0..count {
        let mut item = of(c, &schema["items"], wrong);
        let twin = c.percent(wrong);
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") if items.contains(&item) && !twin => continue,
            Some("map") if item.is_object() && !twin => item["id"] = json!(format!("i{at}")),
            _ => {}
        }
        items.push(item);
    }
    json!(items)
}

fn object(c: &mut Chance, schema: &Value, wrong: usize, present: usize) -> Value {
    let mut map = Map::new();
    if let Some(values) = schema.get("additionalProperties") {
        let least = usize::try_from(schema["minProperties"].as_u64().unwrap_or_default()).unwrap_or_default();
        for at in 0..least.max(c.below(3)) {
            map.insert(format!("k{at}"), of(c, values, wrong));
        }
        return json!(map);
    }
    let listed = |key: &str, name: &str| schema[key].as_array().is_some_and(|r| r.contains(&json!(name)));
    for name in keys(&schema["properties"]) {
        if c.percent(present) || (listed("required", &name) && !c.percent(wrong)) {
            map.insert(name.clone(), of(c, &schema["properties"][&name], wrong));
        }
    }
    if !c.percent(wrong) {
        fit(c, schema, &mut map);
    }
    if c.percent(wrong) {
        map.insert("surprise".into(), json!({"deep": [c.below(9)]}));
    }
    json!(map)
}

/// Gives the object what its composed parts ask for.
fn fit(c: &mut Chance, schema: &Value, map: &mut Map<String, Value>) {
    let name = |pointer: &str| schema.pointer(pointer).and_then(Value::as_str);
    for pointer in ["/anyOf/0/required/0", "/oneOf/0/required/0", "/allOf/0/required/0"] {
        if let Some(name) = name(pointer).filter(|n| !map.contains_key(*n)) {
            map.insert(name.to_owned(), of(c, &schema["properties"][name], 0));
        }
    }
    if let Some(name) = name("/oneOf/1/required/0").filter(|n| Some(*n) != name("/oneOf/0/required/0")) {
        map.remove(name);
    }
    if let Some(name) = name("/not/required/0") {
        map.remove(name);
    }
    if let Some(path) = name("/x-kubernetes-validations/0/fieldPath") {
        let first = path.trim_start_matches('.').to_owned();
        if !map.contains_key(&first) {
            let value = of(c, &schema["properties"][&first], 0);
            map.insert(first, value);
        }
    }
}

fn bad(c: &mut Chance, schema: &Value, wrong: usize) -> Value {
    let other = |c: &mut Chance| {
        let all = [
            json!("a text"),
            json!(12),
            json!(2.5),
            json!(true),
            json!({"a": "b"}),
            json!(["x"]),
            json!({}),
            Value::Null,
        ];
        all[c.below(all.len())].clone()
    };
    match schema["type"].as_str() {
        _ if c.percent(40) => other(c),
        Some("string") => json!(c.pick(&["", "A LONG TEXT OF CAPITALS", "q", "ünï", "1.2.3.4.5"])),
        Some("integer") => {
            let all = [
                json!(-1),
                json!(5),
                json!(13),
                json!(3_000_000_000_i64),
                json!(2.0),
                json!(1.5),
                json!("4"),
                json!(1e30),
            ];
            all[c.below(all.len())].clone()
        }
        Some("number") => json!(c.pick(&[&1.5, &-3.25, &1000.0])),
        Some("array") => {
            let items: Vec<Value> = (0..c.below(8)).map(|_| of(c, &schema["items"], wrong)).collect();
            json!(items)
        }
        Some("object") => {
            let mut object = object(c, schema, wrong, 40);
            object["unknown"] = other(c);
            object
        }
        _ => other(c),
    }
}
