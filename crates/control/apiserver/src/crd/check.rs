//! All checks of a custom resource, in kube-apiserver's order: schema, scale, embedded resources, sets and keyed lists.

use serde_json::Value;

use super::schema::Schema;
use super::{embedded, lists, scale, validate as rules};
use crate::object::Object;
use crate::resource::{Flavor, Resource};
use crate::status::{FieldError, FieldErrorKind};

/// Pushes what is wrong with an object (`old`: its former state) that is written by this subresource.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    let Flavor::Custom { schema, .. } = &resource.flavor else { return };
    if sub == "status" {
        status(schema, object, old, errors);
        scale::validate_status(resource.scale.as_ref(), object, errors);
    } else {
        errors.extend(rules::validate(schema, object, old));
        scale::validate_spec(resource.scale.as_ref(), object, errors);
        scale::validate_status(resource.scale.as_ref(), object, errors);
        errors.extend(embedded::validate(schema, object));
    }
    if schema.has_lists && old.is_none_or(|old| lists::validate(schema, old).is_empty()) {
        errors.extend(lists::validate(schema, object));
    }
    if schema.has_cel() && errors.iter().any(blocks_rules) {
        errors.push(FieldError::invalid(
            "",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete \
             validation",
        ));
    }
}

fn status(schema: &Schema, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if let (Some(inner), Some(value)) = (schema.properties.get("status"), object.get("status")) {
        let old = old.and_then(|old| old.get("status"));
        errors.extend(rules::validate_part(inner, value, old, "status"));
    }
}

/// Whether CEL rules cannot be asked after such an error.
pub fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}
