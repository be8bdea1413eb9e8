//! Implementations of the functions. Names are cel-go's internal ones (`_+_`, `@in`); receivers are the first argument.

mod authz;
pub(crate) mod convert;
mod format_text;
mod formats;
mod lists;
mod net;
mod operators;
mod quantity;
pub(crate) mod regexes;
mod semver;
mod strings;
mod time;
mod url;

use std::sync::Arc;

use crate::fault::Fault;
use crate::value::{Key, Map, Outcome, Value};

/// Calls a function by name; the values select the overload.
pub(crate) fn call(name: &str, args: &[Value]) -> Outcome {
    if let Some(Value::Broken(fault)) = args.iter().find(|a| matches!(a, Value::Broken(_))) {
        return Err(fault.clone());
    }
    let found = operators::call(name, args)
        .or_else(|| convert::call(name, args))
        .or_else(|| time::call(name, args))
        .or_else(|| strings::call(name, args))
        .or_else(|| lists::call(name, args))
        .or_else(|| regexes::call(name, args))
        .or_else(|| optional(name, args))
        .or_else(|| net::call(name, args))
        .or_else(|| url::call(name, args))
        .or_else(|| quantity::call(name, args))
        .or_else(|| semver::call(name, args))
        .or_else(|| formats::call(name, args))
        .or_else(|| authz::call(name, args));
    found.unwrap_or_else(|| Err(Fault::overload()))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(n) => *n == 0,
        Value::Uint(n) => *n == 0,
        Value::Double(d) => *d == 0.0,
        Value::String(s) => s.is_empty(),
        Value::Bytes(b) => b.is_empty(),
        Value::List(l) => l.items.is_empty(),
        Value::Map(m) => m.entries.is_empty(),
        Value::Duration(d) => *d == 0,
        Value::Optional(o) => o.is_none(),
        _ => false,
    }
}

fn optional(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("optional.of", [v]) => Ok(Value::Optional(Some(Arc::new(v.clone())))),
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", [v]) => {
            Ok(Value::Optional(if is_zero(v) { None } else { Some(Arc::new(v.clone())) }))
        }
        ("value", [Value::Optional(Some(v))]) => Ok((**v).clone()),
        ("value", [Value::Optional(None)]) => Err(Fault::new("optional.none() dereference")),
        ("hasValue", [Value::Optional(o)]) => Ok(Value::Bool(o.is_some())),
        ("cel.@mapInsert", [Value::Map(map), Value::Map(more)]) => {
            insert(map, more.entries.iter().map(|(k, v)| (k.clone(), v.clone())))
        }
        ("cel.@mapInsert", [Value::Map(map), key, value]) => match Key::of(key) {
            Some(key) => insert(map, [(key, value.clone())]),
            None => Err(Fault::new("unsupported key type")),
        },
        _ => return None,
    })
}

fn insert(map: &Arc<Map>, entries: impl IntoIterator<Item = (Key, Value)>) -> Outcome {
    let mut map = (**map).clone();
    for (key, value) in entries {
        let name = convert::show(&key.value());
        if map.entries.insert(key, value).is_some() {
            return Err(Fault::new(format!("insert failed: key {name} already exists")));
        }
    }
    Ok(Value::Map(Arc::new(map)))
}
