//! Runtime cost of a call (cel-go's `interpreter/runtimecost.go`, Kubernetes' `library/cost.go`).

use crate::ext::Ext;
use crate::value::{Outcome, Value};

/// Cost of passing over one code point.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// Cost of one code point of a pattern.
pub(crate) const PATTERN: f64 = 0.25;
/// Cost of asking the authorizer.
pub(crate) const AUTHORIZE: u64 = 350_000;

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of parsing a selector of this length.
pub(crate) fn selector(length: u64) -> u64 {
    let requirements = scaled(length, 0.5);
    10u64.saturating_add(scaled(length, TRAVERSAL)).saturating_add(scaled(requirements, 50.0))
}

/// The cost of a call with these arguments (a receiver is the first one).
pub(crate) fn call(function: &str, overload: &str, args: &[Value], result: &Outcome) -> u64 {
    let size = |at: usize| args.get(at).map_or(1, Value::size);
    let factor = match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => Some(1),
        "list_sets_equivalent_list" => Some(2),
        _ => None,
    };
    if let Some(factor) = factor {
        return size(0).saturating_mul(size(1)).saturating_mul(factor).saturating_add(1);
    }
    match function {
        "check" => AUTHORIZE,
        "fieldSelector" | "labelSelector" => selector(size(1)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => scaled(size(0), TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => scaled(size(0), 2.0 * TRAVERSAL),
        "join" => scaled(result.as_ref().map_or(1, Value::size), 2.0 * TRAVERSAL),
        "find" | "findAll" => matching(size(0), size(1)),
        "ip" if overload == "cidr_ip" => 1,
        "ip" => scaled(size(0), TRAVERSAL),
        "containsIP" => {
            let base = scaled(size(0) + size(0), TRAVERSAL);
            base + if overload == "cidr_contains_ip_string" { scaled(size(1), TRAVERSAL) } else { 0 }
        }
        "containsCIDR" => {
            let base = scaled(size(0) + size(0), TRAVERSAL) + scaled(size(0), TRAVERSAL) + 1;
            base + if overload == "cidr_contains_cidr_string" { scaled(size(1), TRAVERSAL) } else { 0 }
        }
        "validate" => match args.first() {
            Some(Value::Ext(ext)) => match &**ext {
                Ext::Format(format) => matching(size(1), format.max_regex_size()),
                _ => 1,
            },
            _ => 1,
        },
        "_==_" if matches!(args.first(), Some(Value::Ext(_))) => 1,
        _ => standard(overload, function, size),
    }
}

fn matching(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TRAVERSAL).ceil() as u64;
    text.saturating_mul(scaled(pattern, PATTERN))
}

/// Whether the overload compares the order of texts or bytes, which costs by the shorter one.
pub(crate) fn is_order(overload: &str) -> bool {
    let of = overload.strip_suffix("_string").or_else(|| overload.strip_suffix("_bytes"));
    matches!(of, Some("less" | "greater" | "less_equals" | "greater_equals"))
}

fn standard(overload: &str, function: &str, size: impl Fn(usize) -> u64) -> u64 {
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => scaled(size(0), TRAVERSAL),
        "in_list" => size(1),
        _ if is_order(overload) => scaled(size(0).min(size(1)), TRAVERSAL),
        "add_string" | "add_bytes" => scaled(size(0) + size(1), TRAVERSAL),
        "matches_string" => matching(size(0), size(1)),
        "contains_string" => scaled(size(0), TRAVERSAL).saturating_mul(scaled(size(1), TRAVERSAL)),
        _ if matches!(function, "_==_" | "_!=_") => scaled(size(0).min(size(1)), TRAVERSAL),
        _ => 1,
    }
}

fn traversal(value: &Value) -> u64 {
    match value {
        Value::String(s) => (s.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(b) => (b.len() as f64 * TRAVERSAL) as u64,
        Value::List(l) => l.items.iter().map(traversal).fold(0, u64::saturating_add),
        Value::Map(m) => {
            m.entries.iter().map(|(k, v)| traversal(&k.value()) + traversal(v)).fold(0, u64::saturating_add)
        }
        _ => 1,
    }
}
