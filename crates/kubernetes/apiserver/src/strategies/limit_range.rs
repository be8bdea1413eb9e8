//! LimitRanges. They are for pods, which are not served.

use core_kinds::quantity;
use serde_json::{Value, json};

use crate::checks::{all_invalid, list, member, text};
use crate::object::{Object, child};
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind =
    Kind { kind: "LimitRange", plural: "limitranges", short_names: &["limits"], strategy: &LimitRange, ..Kind::NEW };

/// The rules of LimitRanges.
#[derive(Debug)]
struct LimitRange;

impl Strategy for LimitRange {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, _: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, &mut found.errors);
    }
}

/// Fills in what a LimitRange says of containers by what else it says.
fn defaults(object: &mut Object) {
    let limits = object.get_mut("spec").and_then(|s| s.get_mut("limits")).and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten().filter(|l| text(l, "type") == "Container") {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let given = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, amount) in given {
                let Some(limit) = limit.as_object_mut() else { continue };
                child(limit, to).entry(name).or_insert(amount);
            }
        }
    }
}

/// Checks a LimitRange.
fn validate(object: &Object, errors: &mut Vec<FieldError>) {
    let limits = list(member(object, "spec"), "limits");
    for (at, limit) in limits.iter().enumerate() {
        let (path, kind) = (format!("spec.limits[{at}]"), text(limit, "type"));
        let wrong = names::qualified_name(kind);
        if !wrong.is_empty() {
            all_invalid(&format!("{path}.type"), &json!(kind), wrong, errors);
        } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(format!("{path}.type"), &json!(kind), detail));
        }
        if limits.iter().take(at).any(|other| text(other, "type") == kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &json!(kind)));
        }
        if kind == "Pod" {
            let given = |key: &str| limit.get(key).and_then(Value::as_object).is_some_and(|m| !m.is_empty());
            for key in ["default", "defaultRequest"].into_iter().filter(|key| given(key)) {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
            }
        }
        orders(limit, &path, errors);
    }
}

/// Checks the order of bounds. Upstream chooses the reported field and value case by case.
fn orders(limit: &Value, path: &str, errors: &mut Vec<FieldError>) {
    /// Smaller and larger bound, the reported field, the bound whose value is reported, and the names of both in the
    /// message.
    type Order = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);
    const ORDERS: [Order; 6] = [
        ("min", "max", "min", "min", "min", "max"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min", "default request"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request", "max"),
        ("defaultRequest", "default", "defaultRequest", "defaultRequest", "default request", "default limit"),
        ("min", "default", "default", "min", "min", "default"),
        ("default", "max", "default", "max", "default", "max"),
    ];
    let of = |part: &str, name: &str| limit.get(part).and_then(|p| p.get(name)).and_then(Value::as_str);
    let parts = ["max", "min", "default", "defaultRequest"];
    let mut names: Vec<&String> =
        parts.iter().filter_map(|p| limit.get(*p)?.as_object()).flatten().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    for name in names {
        for (low, high, field, printed, low_name, high_name) in ORDERS {
            let (Some(small), Some(large)) = (of(low, name), of(high, name)) else { continue };
            if quantity::nanos(small) > quantity::nanos(large) {
                let detail = format!("{low_name} value {small} is greater than {high_name} value {large}");
                let value = json!(of(printed, name).unwrap_or_default());
                errors.push(FieldError::invalid(format!("{path}.{field}[{name}]"), &value, detail));
            }
        }
    }
}
