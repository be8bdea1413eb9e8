//! The rules of custom resources in CEL (`x-kubernetes-validations`): their check when they are defined and their
//! run on objects.

use std::sync::OnceLock;

use cel::schema::check;
use cel::schema::rules::{Reason, RuleError, Validator};
use serde_json::Value;

use super::check::blocks_rules;
use crate::object::Object;
use crate::status::{FieldError, FieldErrorKind};

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

    /// Runs the rules, unless what else was found makes that senseless. Gives warnings back.
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

fn field_error(error: RuleError) -> FieldError {
    match error.reason {
        Reason::Required => FieldError::required(error.path, error.detail),
        Reason::Forbidden => FieldError::forbidden(error.path, error.detail),
        Reason::Duplicate => FieldError::with_value(FieldErrorKind::Duplicate, error.path, &error.value, ""),
        Reason::Invalid => FieldError::invalid(error.path, &error.value, error.detail),
    }
}

/// Checks the rules of a definition whose schemas are sound. Schemas that did not change are not checked again.
pub fn check_definition(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let schemas = |spec: &Value| -> Vec<(Value, Value)> {
        let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
        let part = |v: &Value, pointer: &str| v.pointer(pointer).cloned().unwrap_or_default();
        versions.iter().map(|v| (part(v, "/name"), part(v, "/schema/openAPIV3Schema"))).collect()
    };
    let before = old.map(schemas).unwrap_or_default();
    let now = schemas(spec);
    // Upstream keeps a schema that all versions share once, and names it so.
    let shared = now.windows(2).all(|pair| matches!(pair, [a, b] if a.1 == b.1));
    for (at, (name, schema)) in now.iter().enumerate() {
        if before.iter().any(|(n, s)| n == name && s == schema) {
            continue;
        }
        let path = if shared {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{at}].schema.openAPIV3Schema")
        };
        errors.extend(check::check(schema, &path).into_iter().map(field_error));
        if shared {
            return;
        }
    }
}
