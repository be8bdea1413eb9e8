//! Decoding of an object by its kind: checks types, drops unknown fields, fills in defaults, and puts fields into
//! canonical order.
//!
//! [`kind`] checks the kind itself.

pub mod kind;

use core_kinds::decode::{self as typed, DecodeError};
use core_kinds::{Defs, canonical};
use serde_json::{Value, json};

use self::kind::Unfit;
use crate::crd;
use crate::object::{self, Object};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, FieldError};

/// Why a custom resource does not have its shape.
#[derive(Debug, thiserror::Error)]
pub enum Misshapen {
    /// Its metadata has a wrong type.
    #[error(transparent)]
    Metadata(#[from] DecodeError),
    /// A part that is an object of its own is none.
    #[error("{0}")]
    Embedded(Box<FieldError>),
}

impl From<FieldError> for Misshapen {
    fn from(error: FieldError) -> Self {
        Self::Embedded(Box::new(error))
    }
}

/// Checks types, drops unknown fields (their paths go to `unknown`) and fills in defaults.
pub fn decode(resource: &Resource, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), Unfit> {
    identify(resource, object)?;
    match &resource.flavor {
        Flavor::Builtin(def) => typed::decode(def, object, unknown).map_err(|why| Unfit::value(resource, why))?,
        Flavor::Custom { schema, .. } => {
            shape(Some(schema), object, unknown).map_err(|why| Unfit::value(resource, why))?
        }
    }
    fill(resource, object);
    Ok(())
}

/// Like [`decode`], for objects built internally: nulls without a default survive, and validation rejects them.
pub fn decode_internal(resource: &Resource, object: &mut Object) -> Result<(), Unfit> {
    let Flavor::Custom { schema, .. } = &resource.flavor else { return decode(resource, object, &mut Vec::new()) };
    identify(resource, object)?;
    let coerced = prune(Some(schema), object, &mut Vec::new())
        .and_then(|()| Ok(crd::embedded::coerce(schema, object, &mut Vec::new())?));
    coerced.map_err(|why| Unfit::value(resource, why))?;
    fill(resource, object);
    Ok(())
}

/// Prunes and coerces a custom resource by its schema and the type of its metadata; without a schema only the latter.
pub fn shape(
    schema: Option<&structural_schema::schema::Schema>,
    object: &mut Object,
    unknown: &mut Vec<String>,
) -> Result<(), Misshapen> {
    prune(schema, object, unknown)?;
    if let Some(schema) = schema {
        structural_schema::default::drop_nulls(schema, object);
        crd::embedded::coerce(schema, object, unknown)?;
    }
    Ok(())
}

/// Drops fields that neither object metadata nor the schema defines.
fn prune(
    schema: Option<&structural_schema::schema::Schema>,
    object: &mut Object,
    unknown: &mut Vec<String>,
) -> Result<(), Misshapen> {
    decode_metadata(object, unknown)?;
    if let Some(schema) = schema {
        structural_schema::prune::prune(schema, object, unknown);
    }
    Ok(())
}

/// Fills in the defaults of a decoded object.
pub fn fill(resource: &Resource, object: &mut Object) {
    if let Flavor::Custom { schema, .. } = &resource.flavor {
        structural_schema::default::apply_object(schema, object);
    }
    resource.strategy.defaults(object);
    canonicalize(resource, object);
}

/// Puts an object of a built-in kind into the form of Go's encoder.
pub fn canonicalize(resource: &Resource, object: &mut Object) {
    if let Flavor::Builtin(def) = &resource.flavor {
        canonical::canonicalize_sent(def, object);
    }
}

/// Checks that the object has the resource's kind and version.
fn identify(resource: &Resource, object: &mut Object) -> Result<(), Unfit> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let wanted = resource.api_version();
    let other_version = !api_version.is_empty() && api_version != wanted;
    let other_kind = !kind.is_empty() && kind != resource.kind;
    match &resource.flavor {
        Flavor::Custom { .. } => {
            if kind.is_empty() {
                let body = gotext::json(&Value::Object(object.clone()));
                let start: String = body.chars().take(30).collect();
                let more = if body.len() > 30 { " ..." } else { "" };
                let text = format!(
                    "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({start}{more})",
                    resource.kind
                );
                return Err(ApiError::bad_request(text).into());
            }
            if other_version {
                let text = format!(
                    "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
                );
                return Err(ApiError::bad_request(text).into());
            }
            if other_kind {
                let why = format!("must be {}", resource.kind);
                let error = FieldError::invalid("kind", &json!(kind), why);
                return Err(ApiError::invalid(&resource.group, &kind, object::name(object), &[error]).into());
            }
        }
        Flavor::Builtin(_) if other_version || other_kind => kind::identify(resource, object)?,
        Flavor::Builtin(_) => {}
    }
    object.insert("apiVersion".into(), json!(wanted));
    object.insert("kind".into(), json!(resource.kind));
    Ok(())
}

fn decode_metadata(object: &mut Object, unknown: &mut Vec<String>) -> Result<(), Misshapen> {
    let Some(def) = Defs::get().object_meta() else { return Ok(()) };
    match object.get_mut("metadata") {
        None | Some(Value::Null) => {
            object.insert("metadata".into(), json!({}));
        }
        Some(Value::Object(meta)) => {
            let mut found = Vec::new();
            typed::decode(def, meta, &mut found)?;
            unknown.extend(found.into_iter().map(|p| format!("metadata.{p}")));
        }
        Some(other) => {
            let kind = gotext::json_type(other);
            let ty = "v1.ObjectMeta".to_owned();
            return Err(DecodeError::Value { found: kind.to_owned(), ty }.into());
        }
    }
    Ok(())
}
