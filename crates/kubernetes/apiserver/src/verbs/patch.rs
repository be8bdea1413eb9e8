//! patch: an object is changed by a JSON patch, a merge patch or a strategic merge patch.

use core_kinds::{convert, decode};
use gotext::json_type;
use http::StatusCode;
use patches::json::{self as rfc6902, Unreadable};
use patches::merge;
use patches::printable::{self, Opened};
use patches::strategic::{self, Refused};
use serde_json::{Value, json};

use super::{Backend, prepare};
use crate::decode::decode as decode_object;
use crate::decode::kind::Unfit;
use crate::fields::options::Options;
use crate::object::{self, Object};
use crate::reply::{self, Response};
use crate::request::{FieldValidation, Request};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};

/// A decoded patch.
pub enum Patch {
    /// Operations.
    Json(Vec<rfc6902::Operation>),
    /// The changed members; null deletes a member.
    Merge(Value),
    /// A merge patch with directives.
    Strategic(Value),
}

/// Changes the named object by the body.
pub async fn patch(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    if request.content_type == super::apply::MEDIA {
        return super::apply::apply(backend, request).await;
    }
    Options::Patch.validate(&request.query)?;
    let change = request.change()?;
    let resource = request.resource().clone();
    let (patch, strict) = read(request, &resource)?;
    let target = request.target.clone();
    let known = std::mem::take(&mut request.warnings);
    let mut early = Vec::new();
    let stored = backend
        .change(&change, &resource, &target.ns, &target.name, |before| {
            let mut wanted = apply(&patch, before, &resource)?;
            let refused = |why: &str| {
                let value = json!(printable_object(&patch, before, &resource));
                ApiError::invalid("", "", "", &[FieldError::invalid("patch", &value, why)])
            };
            let errors = typed(&patch, &resource, &mut wanted).map_err(|error| match error {
                Untyped::Value(why) => refused(&why),
                Untyped::Other(error) => error,
            })?;
            request
                .report_strict_errors(strict.iter().cloned().chain(errors).collect())
                .map_err(|why| refused(&why))?;
            early = std::mem::take(&mut request.warnings);
            object::resource_version(&wanted).map_err(|text| super::update::bad_version(&text))?;
            prepare::fit_namespace(&resource, &mut wanted, &target.ns)?;
            if object::name(&wanted) != target.name {
                let (given, asked) = (object::name(&wanted), &target.name);
                let why = format!("the name of the object ({given}) does not match the name on the URL ({asked})");
                return Err(ApiError::bad_request(why));
            }
            // A patch that does not set the version applies to any version.
            if object::meta_str(&wanted, "resourceVersion") == object::meta_str(before, "resourceVersion") {
                object::metadata_mut(&mut wanted).shift_remove("resourceVersion");
            }
            Ok(wanted)
        })
        .await;
    request.warnings = known;
    request.warnings.append(&mut early);
    request.warnings.append(&mut change.take_warnings());
    reply::stored(request, StatusCode::OK, &stored?)
}

/// Why a patched object is refused.
enum Untyped {
    /// One of its values is invalid: the message for the client.
    Value(String),
    /// Any other reason.
    Other(ApiError),
}

/// Converts a patched object to its kind's types. Returns what a strict decoder reports.
fn typed(patch: &Patch, resource: &Resource, wanted: &mut Object) -> Result<Vec<String>, Untyped> {
    let decode = |wanted: &mut Object, unknown: &mut Vec<String>| {
        decode_object(resource, wanted, unknown).map_err(|unfit| match unfit {
            Unfit::Value { why, .. } => Untyped::Value(why),
            Unfit::Other(error) => Untyped::Other(error),
        })
    };
    let mut unknown = Vec::new();
    if let (Flavor::Builtin(def), Patch::Strategic(_)) = (&resource.flavor, patch) {
        let errors = convert::check(def, wanted).map_err(|why| Untyped::Value(why.to_string()))?;
        decode(wanted, &mut unknown)?;
        return Ok(errors);
    }
    let given = matches!(resource.flavor, Flavor::Builtin(_)).then(|| wanted.clone());
    decode(wanted, &mut unknown)?;
    if let (Flavor::Builtin(def), Some(given), false) = (&resource.flavor, given, unknown.is_empty()) {
        // Reported in the order of the patched text.
        let text = printable::text(def, &given, &opened(patch));
        let node = gojson::parse(text.as_bytes()).map_err(|why| Untyped::Value(why.to_string()))?;
        let (_, errors) = decode::read(def, &node).map_err(|why| Untyped::Value(why.to_string()))?;
        return Ok(errors.iter().map(ToString::to_string).collect());
    }
    Ok(unknown.iter().map(|p| format!("unknown field \"{p}\"")).collect())
}

fn opened(patch: &Patch) -> Opened {
    match patch {
        Patch::Json(operations) => Opened::by_operations(operations),
        Patch::Merge(patch) | Patch::Strategic(patch) => Opened::by_merge(patch),
    }
}

/// The object that errors print: the patched one, or what a strategic merge leaves of the patch.
fn printable_object(patch: &Patch, before: &Object, resource: &Resource) -> String {
    match (patch, &resource.flavor) {
        (Patch::Strategic(given), Flavor::Builtin(def)) => {
            let mut left = given.clone();
            let _ = strategic::apply(def, &mut Value::Object(before.clone()), &mut left);
            gotext::map(&left)
        }
        (_, flavor) => match (apply(patch, before, resource), flavor) {
            (Ok(patched), Flavor::Builtin(def)) => printable::text(def, &patched, &opened(patch)),
            (Ok(patched), Flavor::Custom { .. }) => gotext::json(&Value::Object(patched)),
            (Err(_), _) => String::new(),
        },
    }
}

/// Parses the body, and reports duplicate keys.
pub fn read(request: &Request, resource: &Resource) -> ApiResult<(Patch, Vec<String>)> {
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    let accepted = if custom {
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    } else {
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
         application/apply-patch+yaml"
    };
    let lenient = request.field_validation() == FieldValidation::Ignore;
    let parsed = |body| {
        gojson::from_json(body).map_err(|why| {
            ApiError::bad_request(if lenient { why.to_string() } else { format!("error decoding patch: {why}") })
        })
    };
    match request.content_type.as_str() {
        "application/json-patch+json" => {
            let (value, twice) = parsed(&request.body)?;
            let (operations, mut errors) = rfc6902::parse(value).map_err(|why| match why {
                Unreadable::Form { .. } => ApiError::bad_request(why.to_string()),
                Unreadable::TooMany(_) => ApiError::too_large_because(&why.to_string()),
            })?;
            errors.extend(duplicates(&twice).iter().map(|text| format!("json patch {text}")));
            Ok((Patch::Json(operations), errors))
        }
        "application/merge-patch+json" => match parsed(&request.body) {
            Ok((Value::Null, _)) => Err(ApiError::bad_request("Invalid JSON Patch")),
            Ok((value, twice)) => Ok((Patch::Merge(of_object(value, "error decoding patch: ")?), duplicates(&twice))),
            Err(_) if lenient => Err(ApiError::bad_request("Invalid JSON Patch")),
            Err(error) => Err(error),
        },
        "application/strategic-merge-patch+json" if !custom => {
            let (value, twice) =
                gojson::from_json(&request.body).map_err(|why| ApiError::bad_request(why.to_string()))?;
            let value = if value.is_null() { json!({}) } else { value };
            Ok((Patch::Strategic(of_object(value, "")?), duplicates(&twice)))
        }
        other if custom => Err(ApiError::unsupported_media_type(other, accepted)),
        _ => {
            let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let error = ApiError::new(code, StatusReason::UnsupportedMediaType, "415: Unsupported Media Type");
            Err(ApiError { details: Some(Box::default()), ..error })
        }
    }
}

fn duplicates(twice: &[String]) -> Vec<String> {
    twice.iter().map(|p| format!("duplicate field {}", gotext::quote(p))).collect()
}

/// A merge patch must be an object.
fn of_object(value: Value, place: &str) -> ApiResult<Value> {
    if value.is_object() {
        return Ok(value);
    }
    let kind = json_type(&value);
    let text = format!("{place}json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
    Err(ApiError::bad_request(text))
}

/// 422 for a patch that does not apply, without the reason, as upstream.
pub fn rejected() -> ApiError {
    let text = "the server rejected our request due to an error in our request";
    ApiError {
        details: Some(Box::default()),
        ..ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, StatusReason::Invalid, text)
    }
}

fn unmerged(refused: Refused) -> ApiError {
    match refused {
        Refused::Form(why) => ApiError::bad_request(why),
        Refused::Unprocessable(why) => {
            tracing::debug!(why, "a strategic merge patch does not apply");
            rejected()
        }
        Refused::Other(why) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, why),
    }
}

/// The object as the patch leaves it.
pub fn apply(patch: &Patch, before: &Object, resource: &Resource) -> ApiResult<Object> {
    let mut value = Value::Object(before.clone());
    match patch {
        Patch::Json(operations) => rfc6902::apply(&mut value, operations).map_err(|why| {
            tracing::debug!(%why, "a JSON patch does not apply");
            rejected()
        })?,
        Patch::Merge(patch) => merge::apply(&mut value, patch),
        Patch::Strategic(patch) => match &resource.flavor {
            Flavor::Builtin(def) => strategic::apply(def, &mut value, &mut patch.clone()).map_err(unmerged)?,
            Flavor::Custom { .. } => merge::apply(&mut value, patch),
        },
    }
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(ApiError::bad_request("the patch leaves no object")),
    }
}
