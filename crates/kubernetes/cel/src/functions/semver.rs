//! Semantic versions (`library/semverlib.go`).

use std::sync::Arc;

use crate::ext::Ext;
use crate::ext::semver::Semver;
use crate::fault::Fault;
use crate::value::{Outcome, Value};

fn parse(text: &str, lenient: bool) -> Result<Semver, Fault> {
    if lenient { Semver::lenient(text) } else { Semver::parse(text) }
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let lenient = matches!(args.get(1), Some(Value::Bool(true)));
    if let (Some(Value::String(text)), None | Some(Value::Bool(_))) = (args.first(), args.get(1)) {
        return Some(match name {
            "semver" => parse(text, lenient).map(|v| Value::Ext(Arc::new(Ext::Semver(v)))),
            "isSemver" => Ok(Value::Bool(parse(text, lenient).is_ok())),
            _ => return None,
        });
    }
    let Some((Value::Ext(receiver), rest)) = args.split_first() else { return None };
    let Ext::Semver(receiver) = &**receiver else { return None };
    let small = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let [major, minor, patch] = receiver.numbers;
    if rest.is_empty() {
        return Some(Ok(small(match name {
            "major" => major,
            "minor" => minor,
            "patch" => patch,
            _ => return None,
        })));
    }
    let [Value::Ext(other)] = rest else { return None };
    let Ext::Semver(other) = &**other else { return None };
    let order = receiver.compare(other);
    Some(Ok(match name {
        "isGreaterThan" => Value::Bool(order.is_gt()),
        "isLessThan" => Value::Bool(order.is_lt()),
        "compareTo" => Value::Int(order as i64),
        _ => return None,
    }))
}
