//! patch: an object is changed by a JSON patch, a merge patch or a strategic merge patch.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Backend, Request, strategy};
use crate::fields::options::Options;
use crate::gotext;
use crate::gotext::json_type;
use crate::json as text;
use crate::object::{self, Object};
use crate::patch::{json as rfc6902, merge, strategic};
use crate::reply::{self, Response};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// A decoded patch.
pub enum Patch {
    /// Operations.
    Json(Vec<rfc6902::Operation>),
    /// What changes, null for what goes.
    Merge(Value),
    /// The same with directives.
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
    let (patch, strict) = decode(request, &resource)?;
    let target = request.target.clone();
    let mut unknown = Vec::new();
    let printed = |wanted: &Object| match &patch {
        Patch::Strategic(given) => gotext::map(given),
        _ => gotext::json(&Value::Object(wanted.clone())),
    };
    let refused = |printed: String, why: &str| {
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", &json!(printed), why)])
    };
    let mut early = Vec::new();
    let stored = backend
        .change(&change, &resource, &target.ns, &target.name, |before| {
            unknown.clear();
            let mut wanted = apply(&patch, before, &resource)?;
            let shown = printed(&wanted);
            strategy::decode(&resource, &mut wanted, &mut unknown).map_err(|e| {
                let cannot = format!(" cannot be handled as a {}: ", resource.kind);
                e.message.split_once(&cannot).map_or_else(|| e.clone(), |(_, why)| refused(shown.clone(), why))
            })?;
            request.report_strict(&strict, &unknown).map_err(|why| refused(shown, &why))?;
            early = std::mem::take(&mut request.warnings);
            object::resource_version(&wanted).map_err(|text| super::update::bad_version(&text))?;
            strategy::fit_namespace(&resource, &mut wanted, &target.ns)?;
            if object::name(&wanted) != target.name {
                let (given, asked) = (object::name(&wanted), &target.name);
                let why = format!("the name of the object ({given}) does not match the name on the URL ({asked})");
                return Err(ApiError::bad_request(why));
            }
            // A patch that does not speak of the version is applied to whatever is there.
            if object::meta_str(&wanted, "resourceVersion") == object::meta_str(before, "resourceVersion") {
                object::metadata_mut(&mut wanted).shift_remove("resourceVersion");
            }
            Ok(wanted)
        })
        .await;
    request.warnings.append(&mut early);
    request.warnings.append(&mut change.take_warnings());
    reply::stored(request, StatusCode::OK, &stored?)
}

/// Reads the body, and the keys that it has twice.
pub fn decode(request: &Request, resource: &Resource) -> ApiResult<(Patch, Vec<String>)> {
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    let accepted = if custom {
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    } else {
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
         application/apply-patch+yaml"
    };
    let parsed = |body| text::from_json(body).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")));
    match request.content_type.as_str() {
        "application/json-patch+json" => {
            let (value, twice) = parsed(&request.body)?;
            let (operations, mut told) = rfc6902::parse(value)?;
            told.extend(twice.iter().map(|p| format!("json patch duplicate field \"{p}\"")));
            Ok((Patch::Json(operations), told))
        }
        "application/merge-patch+json" => {
            let (value, twice) = parsed(&request.body)?;
            Ok((Patch::Merge(of_object(value)?), duplicates(&twice)))
        }
        "application/strategic-merge-patch+json" if !custom => {
            let (value, twice) = text::from_json(&request.body).map_err(ApiError::bad_request)?;
            Ok((Patch::Strategic(of_object(value)?), duplicates(&twice)))
        }
        other if custom => Err(ApiError::unsupported_media_type(other, accepted)),
        _ => {
            let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let error = ApiError::new(code, "UnsupportedMediaType", "415: Unsupported Media Type");
            Err(ApiError { details: Some(Box::default()), ..error })
        }
    }
}

fn duplicates(twice: &[String]) -> Vec<String> {
    twice.iter().map(|p| format!("duplicate field \"{p}\"")).collect()
}

/// A patch that merges is an object.
fn of_object(value: Value) -> ApiResult<Value> {
    if value.is_object() {
        return Ok(value);
    }
    let kind = json_type(&value);
    let text =
        format!("error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
    Err(ApiError::bad_request(text))
}

/// 422 for a patch that does not apply. Upstream does not say why either.
pub fn rejected() -> ApiError {
    let text = "the server rejected our request due to an error in our request";
    ApiError { details: Some(Box::default()), ..ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text) }
}

/// The object as the patch leaves it.
pub fn apply(patch: &Patch, before: &Object, resource: &Resource) -> ApiResult<Object> {
    let mut value = Value::Object(before.clone());
    match patch {
        Patch::Json(operations) => rfc6902::apply(&mut value, operations).map_err(|why| {
            tracing::debug!(why, "a JSON patch does not apply");
            rejected()
        })?,
        Patch::Merge(patch) => merge::apply(&mut value, patch),
        Patch::Strategic(patch) => match &resource.flavor {
            Flavor::Builtin(def) => strategic::apply(def, &mut value, patch).map_err(ApiError::bad_request)?,
            Flavor::Custom { .. } => merge::apply(&mut value, patch),
        },
    }
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(ApiError::bad_request("the patch leaves no object")),
    }
}
