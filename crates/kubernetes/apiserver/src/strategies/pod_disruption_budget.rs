//! PodDisruptionBudgets: stored for those who run pods; nothing here does.

use serde_json::{Value, json};

use crate::checks::member;
use crate::checks::selector::{self, Lenient};
use crate::object::Object;
use crate::status::{FieldError, FieldErrorKind};
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    short_names: &["pdb"],
    status: true,
    strategy: &PodDisruptionBudget,
    ..Kind::NEW
};

/// The rules of PodDisruptionBudgets.
#[derive(Debug)]
struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.sub, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }
}

/// Checks a PodDisruptionBudget.
fn validate(object: &Object, sub: &str, errors: &mut Vec<FieldError>) {
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
        let printed = json!({"MinAvailable": amount("minAvailable"), "Selector": spec.get("selector"),
            "MaxUnavailable": amount("maxUnavailable"),
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy")});
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::of_struct(FieldErrorKind::Invalid, "spec", &printed, detail));
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
