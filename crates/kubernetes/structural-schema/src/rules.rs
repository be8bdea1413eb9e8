//! The rules of custom resources in CEL (`x-kubernetes-validations`): their check when they are defined and their
//! run on objects.

use std::sync::OnceLock;

use cel::schema::check;
use cel::schema::rules::{Reason, RuleError, Validator};
use field_errors::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::Object;

/// The rules of one version, compiled when they are first run.
#[derive(Debug, Default)]
pub struct CelRules {
    source: Option<Box<Value>>,
    compiled: OnceLock<Option<Validator>>,
}

impl CelRules {
    /// The rules in a schema.
    pub fn new(schema: &Value) -> Self {
        Self { source: Some(Box::new(schema.clone())), compiled: OnceLock::new() }
    }

    /// Runs the rules, unless earlier errors prevent that. Returns warnings.
    pub fn run(&self, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) -> Vec<String> {
        let Some(source) = &self.source else { return Vec::new() };
        let Some(validator) = self.compiled.get_or_init(|| Validator::new(source)) else { return Vec::new() };
        if errors.iter().any(blocks_rules) {
            errors.push(FieldError::invalid(
                "",
                &Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors to \
                 complete validation",
            ));
            return Vec::new();
        }
        let (object, old) = (Value::Object(object.clone()), old.cloned().map(Value::Object));
        let report = validator.validate(&object, old.as_ref());
        errors.extend(report.errors.into_iter().map(field_error));
        report.warnings.into_iter().map(|w| field_error(w).to_string()).collect()
    }
}

/// Whether CEL rules must not run after such an error.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

fn field_error(error: RuleError) -> FieldError {
    match error.reason {
        Reason::Required => FieldError::required(error.path, error.detail),
        Reason::Forbidden => FieldError::forbidden(error.path, error.detail),
        Reason::Duplicate => FieldError::with_value(FieldErrorKind::Duplicate, error.path, &error.value, ""),
        Reason::Internal => FieldError::internal(error.path, error.detail),
        Reason::Invalid => match &error.value {
            Value::Object(rule) => FieldError {
                kind: FieldErrorKind::Invalid,
                field: error.path,
                value: as_written(rule),
                detail: error.detail,
            },
            value => FieldError::invalid(error.path, value, error.detail),
        },
    }
}

/// A whole rule, its parts in the order that they have upstream, where it is no map.
fn as_written(rule: &Object) -> String {
    let parts = rule.iter().map(|(key, value)| format!("\"{key}\":{}", gotext::json(value)));
    format!("{{{}}}", parts.collect::<Vec<_>>().join(","))
}

/// Checks the rules of a structural schema. `found` are its other errors: rules at their paths and above are skipped.
pub fn check_schema(schema: &Value, path: &str, found: &[FieldError]) -> Vec<FieldError> {
    let sound = |at: &str| {
        let below = |e: &FieldError| {
            e.field.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !found.iter().any(below)
    };
    check::check(schema, path, &sound).into_iter().map(field_error).collect()
}

/// Runs the rules of a schema on its default, which is at `path`. `root`: whether it is the default of a whole object.
pub fn check_default(schema: &Value, root: bool, default: &Value, path: &str) -> Vec<FieldError> {
    let Some(validator) = Validator::of(schema, root) else { return Vec::new() };
    validator.validate_default(default, path).into_iter().map(field_error).collect()
}
