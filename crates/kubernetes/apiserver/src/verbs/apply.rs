//! apply: server-side apply changes an object, or creates a missing one.

use gojson::Yaml;
use http::StatusCode;
use serde_json::Value;

use super::{ATTEMPTS, Backend, prepare, update};
use crate::change::Change;
use crate::decode::decode_internal;
use crate::fields::options::Options;
use crate::fields::views::Views;
use crate::fields::{Scope, apply as server_side};
use crate::object::{self, Object, meta_str};
use crate::rbac::attributes::Attributes;
use crate::reply::{self, Response};
use crate::request::{FieldValidation, Request, lines};
use crate::resource::Resource;
use crate::route::ResourceTarget;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::Stored;

/// Media type of the body: YAML, of which JSON is a subset.
pub const MEDIA: &str = "application/apply-patch+yaml";

/// Applies the body to the named object.
pub async fn apply(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Apply.validate(&request.query)?;
    let change = Change { applied: true, ..request.change()? };
    let (config, doubts) = decode(request)?;
    let force = request.query.flag("force");
    let written = write(backend, request, &change, &config, force).await;
    request.warnings.extend(doubts);
    request.warnings.append(&mut change.take_warnings());
    let (code, stored) = written?;
    reply::stored(request, code, &stored)
}

async fn write(
    backend: &Backend,
    request: &Request,
    change: &Change,
    config: &Object,
    force: bool,
) -> ApiResult<(StatusCode, Stored)> {
    let target = &request.target;
    let resource = request.resource();
    let views = Views::of(resource);
    let mut attempts = 0..ATTEMPTS;
    loop {
        let last = attempts.next().is_none();
        let merge = |before: Option<&Object>| {
            let catalog = backend.registry.catalog();
            let (manager, now) = (&change.manager, backend.given.now());
            let scope = Scope { resource, catalog: &catalog, sub: &change.sub, manager, views: &views, now };
            let merged = server_side::apply(&scope, before, config, force)?;
            finish(resource, target, merged, before.is_some())
        };
        if backend.stored(&request.key()).await?.is_some() {
            let changed =
                backend.change(change, resource, &target.ns, &target.name, |before| merge(Some(before))).await;
            if let Some(need) = views.need() {
                // The attempt is void: some owners name another version, which must be converted first.
                backend.learn(&views, need, resource).await?;
                attempts = 0..ATTEMPTS;
                continue;
            }
            match changed {
                // Deleted in the meantime: create it.
                Err(error) if error.reason == StatusReason::NotFound && !last => {}
                other => return other.map(|stored| (StatusCode::OK, stored)),
            }
        } else if target.sub.is_empty() {
            let mut made = merge(None)?;
            let uid = meta_str(&made, "uid");
            if !uid.is_empty() {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(ApiError::conflict(&resource.group, &resource.plural, &target.name, &why));
            }
            object::metadata_mut(&mut made).shift_remove("resourceVersion");
            may_create(backend, request)?;
            match backend.insert(change, resource, made, &target.ns).await {
                // Created in the meantime: change it.
                Err(error) if error.reason == StatusReason::AlreadyExists && !last => {}
                other => return other.map(|stored| (StatusCode::CREATED, stored)),
            }
        } else {
            return Err(request.not_found());
        }
    }
}

/// Checks the right to create: patching or updating an absent object needs it, too.
pub fn may_create(backend: &Backend, request: &Request) -> ApiResult<()> {
    let resource = request.resource();
    let mut asked = Attributes::of("create", &resource.group, &resource.plural, "");
    asked.version.clone_from(&resource.version);
    asked.ns.clone_from(&request.target.ns);
    asked.name.clone_from(&request.target.name);
    let decision = backend.auth.decide(&request.user, &asked);
    if decision.allowed { Ok(()) } else { Err(asked.refusal(&request.user, &decision.reason)) }
}

/// Decodes the merged object with its defaults, and checks that it is the object of the request.
fn finish(resource: &Resource, target: &ResourceTarget, mut merged: Object, exists: bool) -> ApiResult<Object> {
    decode_internal(resource, &mut merged)?;
    prepare::fit_namespace(resource, &mut merged, &target.ns)?;
    let name = object::name(&merged);
    if name.is_empty() {
        let text =
            format!("the name of the object ({} based on URL) was undeterminable: name must be provided", target.name);
        return Err(ApiError::bad_request(text));
    }
    if name != target.name {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(text));
    }
    let version = object::resource_version(&merged).map_err(|text| update::bad_version(&text))?;
    // A configuration without a resourceVersion keeps the present one.
    if exists && version.is_none() && !resource.strategy.allows_unconditional_update() {
        return Err(update::unversioned(resource, &target.name));
    }
    Ok(merged)
}

/// The configuration, with warnings about it.
pub fn decode(request: &Request) -> ApiResult<(Object, Vec<String>)> {
    let failed = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let Yaml { value, doubled } = gojson::from_yaml_or_json(&request.body)
        .map_err(|why| failed(&format!("error converting YAML to JSON: {why}")))?;
    let config = match value {
        Value::Object(config) => config,
        // An empty document.
        Value::Null => Object::new(),
        other => {
            let kind = gotext::json_type(&other);
            return Err(failed(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type \
                 map[string]interface {{}}"
            )));
        }
    };
    let doubt = doubled.map(|why| format!("error converting YAML to JSON: {why}"));
    match (request.field_validation(), doubt) {
        (FieldValidation::Strict, Some(why)) => {
            Err(ApiError::bad_request(format!("error strict decoding YAML: {why}")))
        }
        (FieldValidation::Warn, Some(why)) => Ok((config, lines(&why))),
        _ => Ok((config, Vec::new())),
    }
}
