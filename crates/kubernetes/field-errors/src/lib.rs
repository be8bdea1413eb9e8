//! Errors in the fields of objects, in the form that Kubernetes' clients get (apimachinery, `pkg/util/validation/field`): a kind, the field's path,
//! the value as Go prints it, and what was expected.

use serde_json::Value;

/// Kind of error (`field.ErrorType` of apimachinery).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A needed value is missing.
    Required,
    /// A duplicate of a value that must be unique.
    Duplicate,
    /// The value breaks a rule.
    Invalid,
    /// The value is of the wrong type.
    TypeInvalid,
    /// The value is not in the enumeration.
    NotSupported,
    /// The value may not be set.
    Forbidden,
    /// A string is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// The value could not be judged.
    Internal,
}

impl FieldErrorKind {
    /// The reason of the cause that a Status has for it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One broken field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The kind.
    pub kind: FieldErrorKind,
    /// Path such as `spec.bmc.address`.
    pub field: String,
    /// The offending value as printed; empty to leave it out.
    pub value: String,
    /// What was expected.
    pub detail: String,
}

impl FieldError {
    /// A missing value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Required, field: field.into(), value: String::new(), detail: detail.into() }
    }

    /// A value that may not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Forbidden, field: field.into(), value: String::new(), detail: detail.into() }
    }

    /// A value that could not be judged.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Internal, field: field.into(), value: String::new(), detail: detail.into() }
    }

    /// A value that breaks a rule.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::with_value(FieldErrorKind::Invalid, field, value, detail)
    }

    /// An error with the value in its text.
    pub fn with_value(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: &Value,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value: printed(value), detail: detail.into() }
    }

    /// An error with a value of a Go struct in its text: keeps the members' order.
    pub fn of_struct(kind: FieldErrorKind, field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self { kind, field: field.into(), value: gotext::json_in_order(value), detail: detail.into() }
    }

    /// A string longer than this many bytes; the text omits the string.
    pub fn too_long(field: impl Into<String>, most: u64) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {most} {unit}");
        Self { kind: FieldErrorKind::TooLong, field: field.into(), value: String::new(), detail }
    }

    /// More entries than there may be.
    pub fn too_many(field: impl Into<String>, count: u64, most: u64) -> Self {
        let noun = if most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {most} {noun}");
        Self { kind: FieldErrorKind::TooMany, field: field.into(), value: count.to_string(), detail }
    }

    /// A duplicate value.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::with_value(FieldErrorKind::Duplicate, field, value, "")
    }

    /// A value that is not among the supported ones.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| gotext::quote(s)).collect();
        Self::with_value(FieldErrorKind::NotSupported, field, value, format!("supported values: {}", list.join(", ")))
    }

    /// The field's path as Kubernetes prints it.
    pub fn path(&self) -> &str {
        if self.field.is_empty() { "<nil>" } else { &self.field }
    }

    /// The text without the field's path.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if !self.value.is_empty() {
            text.push_str(": ");
            text.push_str(&self.value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path(), self.body())
    }
}

/// A value for an error text, truncated to a reasonable length.
fn printed(value: &Value) -> String {
    let text = gotext::error_value(value);
    match text.char_indices().nth(32_768) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_read_as_upstreams() {
        let kinds = ["a", "b\""];
        for (error, text) in [
            (FieldError::required("a.b", ""), "a.b: Required value"),
            (FieldError::forbidden("", "not here"), "<nil>: Forbidden: not here"),
            (FieldError::invalid("a", &json!("x\n"), "one line"), r#"a: Invalid value: "x\n": one line"#),
            (FieldError::invalid("a", &json!({"c": 1, "b": "<"}), ""), r#"a: Invalid value: {"b":"\u003c","c":1}"#),
            (
                FieldError::of_struct(FieldErrorKind::Invalid, "a", &json!({"c": 1, "b": 2}), ""),
                r#"a: Invalid value: {"c":1,"b":2}"#,
            ),
            (FieldError::too_long("a", 1), "a: Too long: may not be more than 1 byte"),
            (FieldError::too_many("a", 3, 2), "a: Too many: 3: must have at most 2 items"),
            (FieldError::duplicate("a", &json!(1)), "a: Duplicate value: 1"),
            (
                FieldError::not_supported("a", &json!("c"), &kinds),
                r#"a: Unsupported value: "c": supported values: "a", "b\"""#,
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
        let long = FieldError::invalid("a", &json!("é".repeat(40_000)), "");
        assert!(long.value.ends_with('…') && long.value.chars().count() == 32_769);
    }
}
