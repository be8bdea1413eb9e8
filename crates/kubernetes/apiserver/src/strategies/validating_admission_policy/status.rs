//! What must hold for the status of a policy.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::checks::text;
use crate::object::Object;
use crate::status::FieldError;

const MAX_REASON: u64 = 1024;
const MAX_MESSAGE: u64 = 32 * 1024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
    'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Checks the status of a policy.
pub fn check(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let none = Value::Null;
    let status = object.get("status").unwrap_or(&none);
    let list = |pointer: &str| status.pointer(pointer).and_then(Value::as_array).into_iter().flatten().enumerate();
    for (at, warning) in list("/typeChecking/expressionWarnings") {
        let path = format!("status.typeChecking.expressionWarnings[{at}]");
        if text(warning, "warning").is_empty() {
            errors.push(FieldError::required(format!("{path}.warning"), ""));
        }
        if text(warning, "fieldRef").trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.fieldRef"), ""));
        }
    }
    let mut types = BTreeSet::new();
    for (at, given) in list("/conditions") {
        let path = format!("status.conditions[{at}]");
        if !types.insert(text(given, "type")) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &json!(text(given, "type"))));
        }
        condition(given, &path, &mut errors);
    }
    errors
}

fn condition(given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let ty = text(given, "type");
    for why in names::qualified_name(ty) {
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(ty), why));
    }
    let known = ["False", "True", "Unknown"];
    if !known.contains(&text(given, "status")) {
        errors.push(FieldError::not_supported(format!("{path}.status"), &json!(text(given, "status")), &known));
    }
    if let Some(generation) = given.get("observedGeneration").and_then(Value::as_i64).filter(|g| *g < 0) {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(format!("{path}.observedGeneration"), &json!(generation), detail));
    }
    if text(given, "lastTransitionTime").is_empty() {
        errors.push(FieldError::required(format!("{path}.lastTransitionTime"), ""));
    }
    let reason = text(given, "reason");
    let bytes = reason.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"_,:".contains(b);
    let ends = bytes.last().is_some_and(|b| *b == b'_' || b.is_ascii_alphanumeric());
    if reason.is_empty() {
        errors.push(FieldError::required(format!("{path}.reason"), ""));
    } else if !(bytes[0].is_ascii_alphabetic() && ends && bytes.iter().all(inner)) {
        errors.push(FieldError::invalid(format!("{path}.reason"), &json!(reason), REASON));
    }
    for (key, most) in [("reason", MAX_REASON), ("message", MAX_MESSAGE)] {
        if text(given, key).len() as u64 > most {
            errors.push(FieldError::too_long(format!("{path}.{key}"), most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_judged_as_upstream_does() {
        let validation_errors = |status: Value| -> Vec<String> {
            let Value::Object(object) = json!({ "status": status }) else { return Vec::new() };
            check(&object).iter().map(ToString::to_string).collect()
        };
        let good = json!({"type": "A", "status": "True", "reason": "R", "lastTransitionTime": "2024-01-01T00:00:00Z"});
        assert!(validation_errors(json!({"conditions": [good], "typeChecking": {}})).is_empty());
        let bad = json!({"type": "A", "status": "Maybe", "reason": "1", "observedGeneration": -1});
        let found = validation_errors(json!({"conditions": [good, bad]}));
        assert_eq!(
            (found.len(), found[0].as_str(), found[3].as_str()),
            (
                5,
                "status.conditions[1].type: Duplicate value: \"A\"",
                "status.conditions[1].lastTransitionTime: Required value"
            )
        );
        assert_eq!(validation_errors(json!({"typeChecking": {"expressionWarnings": [{}]}})).len(), 2);
    }
}
