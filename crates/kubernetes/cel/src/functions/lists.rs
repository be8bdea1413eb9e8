//! List functions (`library/lists.go`).

use super::operators::compare;
use crate::fault::Fault;
use crate::value::{Outcome, Value};

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let Some((Value::List(list), rest)) = args.split_first() else { return None };
    let items = &list.items;
    Some(match (name, rest) {
        ("isSorted", []) => sorted(items),
        ("sum", []) => sum(items),
        ("max", []) => extreme(items, "max"),
        ("min", []) => extreme(items, "min"),
        ("indexOf", [wanted]) => Ok(place(items.iter().position(|v| v.equals(wanted)))),
        ("lastIndexOf", [wanted]) => Ok(place(items.iter().rposition(|v| v.equals(wanted)))),
        _ => return None,
    })
}

fn place(at: Option<usize>) -> Value {
    Value::Int(at.map_or(-1, |n| n as i64))
}

fn sorted(items: &[Value]) -> Outcome {
    for pair in items.windows(2) {
        if let [a, b] = pair
            && compare(a, b)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(items: &[Value]) -> Outcome {
    let mut total = match items.first() {
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        _ => Value::Int(0),
    };
    for item in items {
        total = super::call("_+_", &[total, item.clone()])?;
    }
    Ok(total)
}

fn extreme(items: &[Value], name: &str) -> Outcome {
    let Some((first, rest)) = items.split_first() else {
        return Err(Fault::new(format!("{name} called on empty list")));
    };
    let mut best = first;
    for item in rest {
        let order = compare(item, best)?;
        if (name == "max" && order.is_gt()) || (name == "min" && order.is_lt()) {
            best = item;
        }
    }
    Ok(best.clone())
}
