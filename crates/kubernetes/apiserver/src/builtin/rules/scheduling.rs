//! PriorityClasses, RuntimeClasses and PodDisruptionBudgets: stored for those who run pods; nothing here does.

use serde_json::{Value, json};

use super::selector::{self, Lenient};
use super::{all_invalid, member, unchanged};
use crate::object::{Object, name};
use crate::status::{FieldError, FieldErrorKind};

/// The highest priority that is not the system's.
const MAX_PRIORITY: i64 = 1_000_000_000;
/// The system's own classes: name, priority, description.
pub const SYSTEM: [(&str, i64, &str); 2] = [
    ("system-node-critical", 2_000_001_000, "For pods that their node cannot do without, not even elsewhere."),
    ("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without, wherever they run."),
];

/// Fills in what a PriorityClass leaves open.
pub fn priority_defaults(object: &mut Object) {
    if member(object, "preemptionPolicy").is_null() {
        object.insert("preemptionPolicy".into(), json!("PreemptLowerPriority"));
    }
}

/// Checks a PriorityClass.
pub fn priority(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let value = |object: &Object| member(object, "value").as_i64().unwrap_or_default();
    if let Some(old) = old {
        if value(object) != value(old) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        let policy = |object: &Object| member(object, "preemptionPolicy").clone();
        unchanged("preemptionPolicy", &policy(object), &policy(old), errors);
        return;
    }
    let own = name(object);
    if own.starts_with("system-") {
        let global = member(object, "globalDefault") == &json!(true);
        let why = match SYSTEM.iter().find(|(known, ..)| *known == own) {
            None => format!("{own} is not a known system priority class"),
            Some((_, wanted, _)) if *wanted != value(object) => {
                format!("value of {own} PriorityClass must be {wanted}")
            }
            Some(_) if global => format!("globalDefault of {own} PriorityClass must be false"),
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let detail =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if value(object) > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policy = member(object, "preemptionPolicy");
    match policy.as_str() {
        None | Some("Never" | "PreemptLowerPriority") => {}
        Some("") => errors.push(FieldError::required("preemptionPolicy", "")),
        Some(_) => {
            let known = ["PreemptLowerPriority", "Never"];
            errors.push(FieldError::not_supported("preemptionPolicy", policy, &known));
        }
    }
}

/// Checks a RuntimeClass.
pub fn runtime(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let handler = member(object, "handler");
    if let Some(old) = old {
        unchanged("handler", handler, member(old, "handler"), errors);
        return;
    }
    all_invalid("handler", handler, names::dns_1123_label(handler.as_str().unwrap_or_default()), errors);
}

/// Checks a PodDisruptionBudget.
pub fn budget(object: &Object, sub: &str, errors: &mut Vec<FieldError>) {
    if sub == "status" {
        for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            let number = member(object, "status").get(key).and_then(Value::as_i64).unwrap_or_default();
            if number < 0 {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(format!("status.{key}"), &json!(number), detail));
            }
        }
        return;
    }
    let spec = member(object, "spec");
    let given = |key: &str| spec.get(key).filter(|v| !v.is_null());
    if given("minAvailable").is_some() && given("maxUnavailable").is_some() {
        // As upstream's internal type prints it.
        let amount = |key: &str| match given(key) {
            Some(Value::String(text)) => json!(text),
            other => other.cloned().unwrap_or_default(),
        };
        let shown = json!({"MinAvailable": amount("minAvailable"), "Selector": spec.get("selector"),
            "MaxUnavailable": amount("maxUnavailable"),
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")});
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::of_struct(FieldErrorKind::Invalid, "spec", &shown, detail));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if let Some(amount) = given(key) {
            share(amount, &format!("spec.{key}"), errors);
        }
    }
    if let Some(pods) = given("selector") {
        selector::check(pods, "spec.selector", Lenient::default(), errors);
    }
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = given("unhealthyPodEvictionPolicy").filter(|p| !known.contains(&p.as_str().unwrap_or(""))) {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
}

/// A number, or a share of all.
fn share(amount: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let Some(written) = amount.as_str() else {
        if amount.as_i64().unwrap_or_default() < 0 {
            errors.push(FieldError::invalid(field, amount, "must be greater than or equal to 0"));
        }
        return;
    };
    let digits = written.strip_suffix('%').filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
    match digits {
        None => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                 '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(field, amount, detail));
        }
        Some(digits) if digits.parse::<u64>().unwrap_or(u64::MAX) > 100 => {
            errors.push(FieldError::invalid(field, amount, "must not be greater than 100%"));
        }
        Some(_) => {}
    }
}
