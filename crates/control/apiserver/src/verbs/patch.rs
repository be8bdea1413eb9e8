//! patch: an object is changed by a JSON patch, a merge patch or a strategic merge patch.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Backend, Request, strategy};
use crate::fields::options::Options;
use crate::json as text;
use crate::object::{self, Object};
use crate::patch::{json as rfc6902, merge, strategic};
use crate::reply::{self, Response};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// A decoded patch.
enum Patch {
    Json(Vec<rfc6902::Operation>),
    Merge(Value),
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
    let (patch, twice) = decode(request, &resource)?;
    let target = request.target.clone();
    let mut unknown = Vec::new();
    let printed = String::from_utf8_lossy(&request.body).into_owned();
    let strict_failed = |why: String| {
        let error = FieldError::invalid("patch", &json!(printed), why);
        ApiError::invalid(&resource.group, &resource.kind, &target.name, &[error])
    };
    let mut early = Vec::new();
    let stored = backend
        .change(&change, &resource, &target.ns, &target.name, |before| {
            unknown.clear();
            let mut wanted = apply(&patch, before, &resource)?;
            strategy::decode(&resource, &mut wanted, &mut unknown)?;
            request.report_fields(&unknown, &twice).map_err(&strict_failed)?;
            early = std::mem::take(&mut request.warnings);
            object::resource_version(&wanted).map_err(|text| {
                let error = FieldError::invalid("metadata.resourceVersion", &json!(text), "must be a number");
                ApiError::invalid(&resource.group, &resource.kind, &target.name, &[error])
            })?;
            if object::name(&wanted) != target.name {
                let why = "the name of the object does not match the name on the URL";
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

fn decode(request: &Request, resource: &Resource) -> ApiResult<(Patch, Vec<String>)> {
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
            let (value, _) = parsed(&request.body)?;
            let operations = rfc6902::parse(value).map_err(ApiError::bad_request)?;
            Ok((Patch::Json(operations), Vec::new()))
        }
        "application/merge-patch+json" => {
            let (value, twice) = parsed(&request.body)?;
            Ok((Patch::Merge(value), twice))
        }
        "application/strategic-merge-patch+json" if !custom => {
            let (value, twice) = parsed(&request.body)?;
            Ok((Patch::Strategic(value), twice))
        }
        other => Err(ApiError::unsupported_media_type(other, accepted)),
    }
}

fn apply(patch: &Patch, before: &Object, resource: &Resource) -> ApiResult<Object> {
    let mut value = Value::Object(before.clone());
    match patch {
        Patch::Json(operations) => rfc6902::apply(&mut value, operations).map_err(|why| {
            ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {why}"),
            )
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
