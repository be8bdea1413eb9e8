//! update: an object is replaced, or one of its subresources.

use http::StatusCode;
use serde_json::json;

use super::write::same_uid;
use super::{ATTEMPTS, Backend, body, prepare};
use crate::change::Change;
use crate::fields::options::Options;
use crate::object::{self, Object};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};
use crate::store::Stored;

/// Replaces the named object by the body.
pub async fn update(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Update.validate(&request.query)?;
    let change = request.change()?;
    let resource = request.resource().clone();
    let mut object = body::object(request, &resource)?;
    let target = request.target.clone();
    prepare::fit_namespace(&resource, &mut object, &target.ns)?;
    let name = object::name(&object);
    if name.is_empty() {
        let text =
            format!("the name of the object ({} based on URL) was undeterminable: name must be provided", target.name);
        return Err(ApiError::bad_request(text));
    }
    if name != target.name {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(text));
    }
    let given = object::resource_version(&object).map_err(|text| bad_version(&text))?;
    if given.is_none() && !resource.strategy.allows_unconditional_update() {
        if backend.stored(&resource.key(&target.ns, &target.name)).await?.is_none() {
            return Err(ApiError::not_found(&resource.group, &resource.plural, &target.name));
        }
        return Err(unversioned(&resource, &target.name));
    }
    let written = write(backend, request, &change, &object).await;
    request.warnings.append(&mut change.take_warnings());
    let (code, stored) = written?;
    reply::stored(request, code, &stored)
}

/// 422 for an update without the resourceVersion that its kind requires.
pub fn unversioned(resource: &Resource, name: &str) -> ApiError {
    let zero = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
    ApiError::invalid(&resource.group, &resource.plural, name, &[zero])
}

async fn write(
    backend: &Backend,
    request: &Request,
    change: &Change,
    object: &Object,
) -> ApiResult<(StatusCode, Stored)> {
    let (resource, target) = (request.resource(), &request.target);
    let makes = resource.strategy.allows_create_on_update() && target.sub.is_empty();
    let mut attempts = 0..ATTEMPTS;
    loop {
        let last = attempts.next().is_none();
        match backend.change(change, resource, &target.ns, &target.name, |_| Ok(object.clone())).await {
            Err(error) if makes && error.reason == StatusReason::NotFound => {}
            other => return other.map(|stored| (StatusCode::OK, stored)),
        }
        let mut made = object.clone();
        let mut nothing = Object::new();
        for key in ["name", "namespace"] {
            object::metadata_mut(&mut nothing).insert(key.into(), json!(object::meta_str(object, key)));
        }
        same_uid(change, resource, &made, &nothing)?;
        object::metadata_mut(&mut made).shift_remove("resourceVersion");
        super::apply::may_create(backend, request)?;
        match backend.insert(change, resource, made, &target.ns).await {
            // Created in the meantime: change it.
            Err(error) if error.reason == StatusReason::AlreadyExists && !last => {}
            other => return other.map(|stored| (StatusCode::CREATED, stored)),
        }
    }
}

/// The error for a resourceVersion that is not a number, as bare as upstream's.
pub fn bad_version(text: &str) -> ApiError {
    let text = format!("strconv.ParseUint: parsing {}: invalid syntax", gotext::quote(text));
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text)
}
