//! Validation of a custom resource, in kube-apiserver's order: schema, scale, embedded resources, sets and keyed
//! lists, CEL rules.

use structural_schema::schema::Schema;
use structural_schema::{lists, validate as rules};

use super::embedded;
use crate::object::Object;
use crate::resource::{Flavor, Resource};
use crate::scale;
use crate::status::FieldError;

/// Validates an object (`old`: its former state) that is written through the subresource `sub`. Returns warnings for
/// the client.
pub fn validate(
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
    sub: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let Flavor::Custom { schema, rules: cel, .. } = &resource.flavor else { return Vec::new() };
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
    cel.run(object, old, errors)
}

fn status(schema: &Schema, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if let (Some(inner), Some(value)) = (schema.properties.get("status"), object.get("status")) {
        let old = old.and_then(|old| old.get("status"));
        errors.extend(rules::validate_part(inner, value, old, "status"));
    }
}
