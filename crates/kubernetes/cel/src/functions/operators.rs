//! Operators, `size`, membership and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use super::time;
use crate::fault::Fault;
use crate::value::{Index, Key, List, ListKind, Outcome, Value, keys_of};

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("_==_", [a, b]) => Ok(Value::Bool(a.equals(b))),
        ("_!=_", [a, b]) => Ok(Value::Bool(!a.equals(b))),
        ("_<_", [a, b]) => compare(a, b).map(|o| Value::Bool(o.is_lt())),
        ("_<=_", [a, b]) => compare(a, b).map(|o| Value::Bool(o.is_le())),
        ("_>_", [a, b]) => compare(a, b).map(|o| Value::Bool(o.is_gt())),
        ("_>=_", [a, b]) => compare(a, b).map(|o| Value::Bool(o.is_ge())),
        ("!_", [Value::Bool(b)]) => Ok(Value::Bool(!b)),
        ("-_", [Value::Int(n)]) => whole(n.checked_neg()),
        ("-_", [Value::Double(d)]) => Ok(Value::Double(-d)),
        ("-_" | "!_", [_]) => Err(Fault::overload()),
        ("_+_", [a, b]) => add(a, b),
        ("_-_", [a, b]) => subtract(a, b),
        ("_*_", [a, b]) => multiply(a, b),
        ("_/_", [a, b]) => divide(a, b),
        ("_%_", [a, b]) => modulo(a, b),
        ("@in", [element, Value::List(list)]) => Ok(Value::Bool(list.items.iter().any(|v| v.equals(element)))),
        ("@in", [key, Value::Map(map)]) => match Key::of(key).and_then(|k| map.entries.get(&k)) {
            Some(Value::Broken(fault)) => Err(fault.clone()),
            found => Ok(Value::Bool(found.is_some())),
        },
        ("@in", [_, _]) => Err(Fault::overload()),
        ("size", [v @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))]) => {
            Ok(Value::Int(v.size() as i64))
        }
        ("sets.contains", [Value::List(a), Value::List(b)]) => Ok(Value::Bool(contains(a, b))),
        ("sets.equivalent", [Value::List(a), Value::List(b)]) => Ok(Value::Bool(contains(a, b) && contains(b, a))),
        ("sets.intersects", [Value::List(a), Value::List(b)]) => {
            Ok(Value::Bool(a.items.iter().any(|x| b.items.iter().any(|y| x.equals(y)))))
        }
        _ => return None,
    })
}

fn contains(all: &List, some: &List) -> bool {
    some.items.iter().all(|x| all.items.iter().any(|y| x.equals(y)))
}

/// The order of two values that have one.
pub(super) fn compare(a: &Value, b: &Value) -> Result<Ordering, Fault> {
    Ok(match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (a, b) => match a.compare_numbers(b) {
            Some(order) => order,
            None if is_nan(a) || is_nan(b) => return Err(Fault::new("NaN values cannot be ordered")),
            None => return Err(Fault::overload()),
        },
    })
}

fn is_nan(value: &Value) -> bool {
    matches!(value, Value::Double(d) if d.is_nan())
}

fn whole(n: Option<i64>) -> Outcome {
    n.map(Value::Int).ok_or_else(|| Fault::new("integer overflow"))
}

fn unsigned(n: Option<u64>) -> Outcome {
    n.map(Value::Uint).ok_or_else(|| Fault::new("unsigned integer overflow"))
}

fn add(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => Ok(Value::string(&format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes(a.iter().chain(b.iter()).copied().collect())),
        (Value::List(a), Value::List(b)) => Ok(Value::List(Arc::new(join(a, b)))),
        (Value::Duration(a), Value::Duration(b)) => time::duration(a.checked_add(*b)),
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => {
            time::timestamp(t + i128::from(*d))
        }
        _ => Err(Fault::overload()),
    }
}

/// Concatenates two lists, by the rules of the first one's kind.
fn join(a: &List, b: &List) -> List {
    let mut items = a.items.clone();
    match &a.kind {
        ListKind::Plain => items.extend(b.items.iter().cloned()),
        ListKind::Set => {
            let mut index = Index::new(&a.items, |v| Some(vec![v.clone()]));
            for value in &b.items {
                if index.find(std::slice::from_ref(value)).is_none() {
                    index.insert(vec![value.clone()], items.len());
                    items.push(value.clone());
                }
            }
        }
        ListKind::Map(keys) => {
            let index = Index::new(&a.items, |v| keys_of(v, keys));
            for value in &b.items {
                let found = keys_of(value, keys).and_then(|k| index.find(&k));
                match found.and_then(|at| items.get_mut(at)) {
                    Some(slot) => *slot = value.clone(),
                    None => items.push(value.clone()),
                }
            }
        }
    }
    List { items, kind: a.kind.clone() }
}

fn subtract(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => time::duration(a.checked_sub(*b)),
        (Value::Timestamp(t), Value::Duration(d)) => time::timestamp(t - i128::from(*d)),
        (Value::Timestamp(a), Value::Timestamp(b)) => time::duration(i64::try_from(a - b).ok()),
        _ => Err(Fault::overload()),
    }
}

fn multiply(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => whole(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(Fault::overload()),
    }
}

fn divide(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Fault::new("division by zero")),
        (Value::Int(a), Value::Int(b)) => whole(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(Fault::overload()),
    }
}

fn modulo(a: &Value, b: &Value) -> Outcome {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Fault::new("modulus by zero")),
        (Value::Int(a), Value::Int(b)) => whole(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => unsigned(a.checked_rem(*b)),
        _ => Err(Fault::overload()),
    }
}
