//! Label selectors in objects (`meta/v1` LabelSelector; apimachinery, `pkg/apis/meta/v1/validation`).

use serde_json::{Value, json};

use super::{all_invalid, labels, list, text};
use crate::status::FieldError;

/// What is let pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lenient {
    /// Values that no label can have.
    pub values: bool,
    /// Operators that are not known here.
    pub operators: bool,
}

/// Checks a selector.
pub fn check(selector: &Value, path: &str, lenient: Lenient, errors: &mut Vec<FieldError>) {
    labels(&format!("{path}.matchLabels"), selector.get("matchLabels").unwrap_or(&Value::Null), errors);
    for (at, expression) in list(selector, "matchExpressions").iter().enumerate() {
        requirement(expression, &format!("{path}.matchExpressions[{at}]"), lenient, errors);
    }
}

/// Checks one of its expressions.
pub fn requirement(requirement: &Value, path: &str, lenient: Lenient, errors: &mut Vec<FieldError>) {
    operator(requirement, path, lenient, errors);
    let key = text(requirement, "key");
    all_invalid(&format!("{path}.key"), &json!(key), names::qualified_name(key), errors);
    for (at, value) in list(requirement, "values").iter().enumerate().filter(|_| !lenient.values) {
        let wrong = names::label_value(value.as_str().unwrap_or_default());
        all_invalid(&format!("{path}.values[{at}]"), value, wrong, errors);
    }
}

/// Checks that an expression, of labels or of fields, has values if its operator takes some.
pub fn operator(requirement: &Value, path: &str, lenient: Lenient, errors: &mut Vec<FieldError>) {
    let empty = list(requirement, "values").is_empty();
    match text(requirement, "operator") {
        "In" | "NotIn" if empty => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !empty => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other if !lenient.operators => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), detail));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_paths(selector: &Value, lenient: Lenient) -> Vec<String> {
        let mut errors = Vec::new();
        check(selector, "s", lenient, &mut errors);
        errors.iter().map(|e| e.path().to_owned()).collect()
    }

    #[test]
    fn each_part_is_checked_and_what_is_lenient_is_not() {
        let broken = json!({"matchLabels": {"-k": "-v"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "", "operator": "Exists"},
            {"key": "b", "operator": "Gt", "values": ["1", "-"]}]});
        let strict = invalid_paths(&broken, Lenient::default());
        let e = |rest: &str| format!("s.matchExpressions[{rest}");
        assert_eq!(strict[..2], ["s.matchLabels", "s.matchLabels"]);
        assert_eq!(strict[2..5], [e("0].values"), e("1].key"), e("1].key")]);
        assert_eq!(strict[5..], [e("2].operator"), e("2].values[1]")]);
        assert_eq!(invalid_paths(&broken, Lenient { values: true, operators: true }).len(), 5);
        assert!(invalid_paths(&json!({}), Lenient::default()).is_empty());
    }
}
