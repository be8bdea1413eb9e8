//! A patched object of a core kind in the form of errors. Upstream's library for JSON and merge patches parses only the parts that it must: those
//! maps come out with their keys sorted, everything else unchanged, in the order of Go's structs (by field number).

use std::collections::HashMap;

use core_kinds::{Def, Defs, Object, Type};
use serde_json::Value;

use crate::json::Operation;

/// The parts of an object that a patch has parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// All from here on.
    All,
    /// Not parsed: as the client wrote it.
    Given,
    /// This map, and its named members.
    Map(HashMap<String, Opened>),
}

impl Opened {
    /// The parts that a merge patch parses.
    pub fn by_merge(patch: &Value) -> Self {
        match patch {
            Value::Object(members) => Self::Map(members.iter().map(|(k, v)| (k.clone(), Self::by_merge(v))).collect()),
            _ => Self::All,
        }
    }

    /// The parts that a JSON patch parses.
    pub fn by_operations(operations: &[Operation]) -> Self {
        let mut root = Self::Map(HashMap::new());
        for operation in operations {
            match operation {
                Operation::Add(path, _) | Operation::Replace(path, _) => root.open(path, true),
                Operation::Remove(path) | Operation::Test(path, _) => root.open(path, false),
                Operation::Move(path, from) | Operation::Copy(path, from) => {
                    root.open(from, false);
                    root.open(path, false);
                }
                Operation::Bad(_) => {}
            }
        }
        root
    }

    fn open(&mut self, path: &[String], given: bool) {
        let Self::Map(members) = self else { return };
        match path {
            [] => {}
            [last] if given => {
                members.insert(last.clone(), Self::Given);
            }
            [_] => {}
            [first, rest @ ..] => {
                members.entry(first.clone()).or_insert_with(|| Self::Map(HashMap::new())).open(rest, given);
            }
        }
    }
}

/// The object's text.
pub fn text(def: &Def, object: &Object, opened: &Opened) -> String {
    let mut out = String::new();
    members(Some(def), object, Some(opened), &mut out);
    gotext::escape_html(&out)
}

fn members(def: Option<&Def>, object: &Object, opened: Option<&Opened>, out: &mut String) {
    let mut entries: Vec<(&String, &Value)> = object.iter().collect();
    match (opened, def) {
        (Some(Opened::Given), _) => {}
        (None, Some(def)) => entries.sort_by_key(|(key, _)| def.field(key).map(|f| &f.path)),
        _ => entries.sort_by_key(|(key, _)| *key),
    }
    out.push('{');
    for (at, (key, member)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        let below = match opened {
            Some(Opened::Map(named)) => named.get(key),
            all => all,
        };
        value(def.and_then(|d| d.field(key)).map(|f| &f.ty), member, below, out);
    }
    out.push('}');
}

fn value(ty: Option<&Type>, given: &Value, opened: Option<&Opened>, out: &mut String) {
    match given {
        Value::Object(object) => {
            let def = match ty {
                Some(Type::Ref(name)) => Defs::get().def(name),
                _ => None,
            };
            members(def, object, opened, out);
        }
        Value::Array(items) => {
            let inner = match ty {
                Some(Type::List(inner)) => Some(inner.as_ref()),
                _ => None,
            };
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let below = match opened {
                    Some(Opened::Map(named)) => named.get(&at.to_string()),
                    all => all,
                };
                value(inner, item, below, out);
            }
            out.push(']');
        }
        Value::Number(number) => out.push_str(&gotext::as_written(number)),
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_opened_keeps_the_order_of_gos_fields() {
        let def = Defs::get().kind("", "v1", "ConfigMap").unwrap();
        let Value::Object(object) = json!({"metadata": {"labels": {"b": "<", "a": ""}, "uid": "u", "name": "n"},
            "kind": "ConfigMap", "data": {"z": {"y": 1, "x": 1e21}}})
        else {
            panic!()
        };
        let merge = Opened::by_merge(&json!({"data": {"z": 1}}));
        assert_eq!(
            text(def, &object, &merge),
            r#"{"data":{"z":{"x":1e+21,"y":1}},"kind":"ConfigMap","metadata":{"name":"n","uid":"u","labels":{"a":"","b":"\u003c"}}}"#
        );
        let (operations, _) = crate::json::parse(json!([{"op": "add", "path": "/data/z", "value": 1},
            {"op": "remove", "path": "/metadata/x"}]))
        .unwrap();
        assert_eq!(
            text(def, &object, &Opened::by_operations(&operations)),
            r#"{"data":{"z":{"y":1,"x":1e+21}},"kind":"ConfigMap","metadata":{"labels":{"a":"","b":"\u003c"},"name":"n","uid":"u"}}"#
        );
    }
}
