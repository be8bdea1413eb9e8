//! ResourceQuotas and LimitRanges. What of a quota is enforced is in [`crate::quota`]; limits are for pods, which are not
//! served.

use core_kinds::quantity;
use serde_json::{Value, json};

use super::{all_invalid, list, member, text, unchanged};
use crate::object::Object;
use crate::status::FieldError;

/// Names without a domain that a quota may have and whose amounts need not be whole.
const AMOUNTS: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
/// Those whose amounts are numbers of objects.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

fn amounts(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names: Vec<(&String, &Value)> = list.as_object().into_iter().flatten().collect();
    names.sort_by_key(|(name, _)| *name);
    for (name, amount) in names {
        let field = format!("{path}[{name}]");
        let wrong = names::qualified_name(name);
        let well_formed = wrong.is_empty();
        all_invalid(&field, &json!(name), wrong, errors);
        if !name.contains('/')
            && !AMOUNTS.iter().chain(&WHOLE).any(|known| known == name)
            && !name.starts_with("hugepages-")
        {
            let general = well_formed.then_some("must be a standard resource type or fully qualified");
            for detail in general.into_iter().chain(["must be a standard resource for quota"]) {
                errors.push(FieldError::invalid(&field, &json!(name), detail));
            }
        }
        let nanos = amount.as_str().and_then(quantity::nanos).unwrap_or_default();
        if nanos < 0 {
            errors.push(FieldError::invalid(&field, amount, "must be greater than or equal to 0"));
        }
        if WHOLE.contains(&name.as_str()) && nanos % 1_000_000_000 != 0 {
            errors.push(FieldError::invalid(&field, amount, "must be an integer"));
        }
    }
}

/// Checks a ResourceQuota as `sub` writes it.
pub fn quota(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    if sub == "status" {
        let status = member(object, "status");
        for part in ["hard", "used"] {
            amounts(status.get(part).unwrap_or(&Value::Null), &format!("status.{part}"), errors);
        }
        return;
    }
    let spec = member(object, "spec");
    amounts(spec.get("hard").unwrap_or(&Value::Null), "spec.hard", errors);
    if let Some(old) = old {
        let scopes = |object: &Object| member(object, "spec").get("scopes").cloned().unwrap_or_default();
        unchanged("spec.scopes", &scopes(object), &scopes(old), errors);
    }
}

/// Fills in what a LimitRange says of containers by what else it says.
pub fn limit_defaults(object: &mut Object) {
    let limits = object.get_mut("spec").and_then(|s| s.get_mut("limits")).and_then(Value::as_array_mut);
    for limit in limits.into_iter().flatten().filter(|l| text(l, "type") == "Container") {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let given = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, amount) in given {
                let Some(limit) = limit.as_object_mut() else { continue };
                crate::object::child(limit, to).entry(name).or_insert(amount);
            }
        }
    }
}

/// Checks a LimitRange.
pub fn limits(object: &Object, errors: &mut Vec<FieldError>) {
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

/// No smaller bound is above a larger one. Upstream tells that of fields, and with values, that it chooses case by case.
fn orders(limit: &Value, path: &str, errors: &mut Vec<FieldError>) {
    /// Smaller, larger, the field that is told, the one whose value is told, and what they are called.
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
        for (low, high, field, shown, low_name, high_name) in ORDERS {
            let (Some(small), Some(large)) = (of(low, name), of(high, name)) else { continue };
            if quantity::nanos(small) > quantity::nanos(large) {
                let detail = format!("{low_name} value {small} is greater than {high_name} value {large}");
                let value = json!(of(shown, name).unwrap_or_default());
                errors.push(FieldError::invalid(format!("{path}.{field}[{name}]"), &value, detail));
            }
        }
    }
}
