//! Quantities (`library/quantity.go`).

use std::sync::Arc;

use crate::ext::Ext;
use crate::ext::quantity::{NANO, Quantity};
use crate::fault::Fault;
use crate::value::{Outcome, Value};

fn ext(q: Quantity) -> Value {
    Value::Ext(Arc::new(Ext::Quantity(q)))
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    match (name, args) {
        ("quantity", [Value::String(s)]) => return Some(Quantity::parse(s).map(ext)),
        ("isQuantity", [Value::String(s)]) => return Some(Ok(Value::Bool(Quantity::parse(s).is_ok()))),
        _ => {}
    }
    let Some((Value::Ext(receiver), rest)) = args.split_first() else { return None };
    let Ext::Quantity(receiver) = **receiver else { return None };
    let other = match rest.first() {
        Some(Value::Ext(e)) => match **e {
            Ext::Quantity(q) => Some(q),
            _ => return None,
        },
        Some(Value::Int(n)) => Some(Quantity { nanos: i128::from(*n) * NANO, whole: true }),
        Some(_) => return None,
        None => None,
    };
    Some(Ok(match (name, other) {
        ("sign", None) => Value::Int(receiver.nanos.signum() as i64),
        ("asApproximateFloat", None) => Value::Double(receiver.nanos as f64 / NANO as f64),
        ("isInteger", None) => Value::Bool(receiver.integer().is_some()),
        ("asInteger", None) => match receiver.integer() {
            Some(n) => Value::Int(n),
            None => return Some(Err(Fault::new("cannot convert value to integer"))),
        },
        ("isGreaterThan", Some(q)) => Value::Bool(receiver.compare(&q).is_gt()),
        ("isLessThan", Some(q)) => Value::Bool(receiver.compare(&q).is_lt()),
        ("compareTo", Some(q)) => Value::Int(receiver.compare(&q) as i64),
        ("add", Some(q)) => ext(receiver.plus(q, 1)),
        ("sub", Some(q)) => ext(receiver.plus(q, -1)),
        _ => return None,
    }))
}
