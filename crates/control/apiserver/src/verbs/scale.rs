//! The scale subresource: the object's replicas read and written as an `autoscaling/v1` Scale.

use http::StatusCode;
use serde_json::{Value, json};

use super::patch;
use super::{ATTEMPTS, Backend, Change, Request, Stored, strategy};
use crate::admission::Subject;
use crate::builtin::canonical;
use crate::crd::scale::Scale;
use crate::gotext::json_type;
use crate::object::{self, Object, metadata_mut};
use crate::reply::{self, Response};
use crate::resource::{self, Flavor, Resource};
use crate::route::Verb;
use crate::status::{ApiError, ApiResult};

/// What stands for replicas that were never set, so that a patch can be told from silence.
const UNSET: i64 = i32::MIN as i64;

fn paths(resource: &Resource) -> ApiResult<&Scale> {
    resource.scale.as_ref().ok_or_else(ApiError::unknown_path)
}

/// Answers with the Scale of the named object.
pub async fn get(backend: &Backend, request: &Request) -> ApiResult<Response> {
    let resource = request.resource();
    let scale = paths(resource)?;
    let stored = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let (found, set) = scale.read(&backend.load(resource, &stored)?).map_err(ApiError::internal)?;
    if !set {
        return Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", scale.spec)));
    }
    reply::value(request, StatusCode::OK, found.into())
}

/// Sets the replicas of the named object by the Scale in the body.
pub async fn update(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let (value, twice) = request.decode()?;
    let Value::Object(mut given) = value else {
        return Err(ApiError::bad_request("the body must be an object"));
    };
    let mut unknown = Vec::new();
    check(&mut given, &mut unknown)?;
    request.report_fields(&unknown, &twice).map_err(|why| refused(&why))?;
    let target = request.target.clone();
    let name = object::name(&given);
    if name != target.name {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(text));
    }
    strategy::fit_namespace(request.resource(), &mut given, &target.ns)?;
    change(backend, request, |_| Ok(given.clone())).await
}

/// Changes the replicas of the named object by a patch of its Scale.
pub async fn patch(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let resource = request.resource().clone();
    let (patch, _) = patch::decode(request, &resource)?;
    let name = request.target.name.clone();
    change(backend, request, |before| {
        let mut after = patch::apply(&patch, before, &resource)?;
        check(&mut after, &mut Vec::new())?;
        if object::meta_str(&after, "resourceVersion") == object::meta_str(before, "resourceVersion") {
            metadata_mut(&mut after).shift_remove("resourceVersion");
        }
        let given = object::name(&after);
        if given != name {
            let text = format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(ApiError::bad_request(text));
        }
        Ok(after)
    })
    .await
}

async fn change(
    backend: &Backend,
    request: &mut Request,
    make: impl FnMut(&Object) -> ApiResult<Object>,
) -> ApiResult<Response> {
    let asked = Change { admitted: true, ..request.change()? };
    let resource = request.resource().clone();
    let stored = write(backend, request, &asked, make).await;
    request.warnings.append(&mut asked.take_warnings());
    let (after, _) = paths(&resource)?.read(&backend.load(&resource, &stored?)?).map_err(ApiError::bad_request)?;
    reply::value(request, StatusCode::OK, after.into())
}

async fn write(
    backend: &Backend,
    request: &Request,
    asked: &Change,
    mut make: impl FnMut(&Object) -> ApiResult<Object>,
) -> ApiResult<Stored> {
    let resource = request.resource();
    let scale = paths(resource)?;
    let (ns, name) = (request.target.ns.as_str(), request.target.name.as_str());
    for _ in 0..ATTEMPTS {
        let seen = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
        let before = backend.load(resource, &backend.converted(resource, seen.clone()).await?)?;
        let (mut present, set) = scale.read(&before).map_err(ApiError::internal)?;
        let shown = present.clone();
        if !set {
            present.insert("spec".into(), json!({"replicas": UNSET}));
        }
        let mut wanted = make(&present)?;
        if wanted.get("spec").and_then(|s| s.get("replicas")) == Some(&json!(UNSET)) {
            let text = format!("the spec replicas field {:?} cannot be empty", scale.spec);
            return Err(ApiError::bad_request(text));
        }
        admit(backend, asked, request, &mut wanted, (&before, shown)).await?;
        let mut overtaken = false;
        let stored = backend
            .change(asked, resource, ns, name, |now| {
                overtaken = object::meta_str(now, "resourceVersion") != seen.rev.to_string();
                if overtaken {
                    return Err(ApiError::modified(&resource.group, &resource.plural, name));
                }
                let mut next = now.clone();
                scale.write(&mut next, &wanted).map_err(ApiError::internal)?;
                Ok(next)
            })
            .await;
        if !overtaken {
            return stored;
        }
    }
    Err(ApiError::modified(&resource.group, &resource.plural, name))
}

/// Admission sees Scales, not the objects behind them: mutating webhooks the wanted one, all others that of the object
/// that it would make.
async fn admit(
    backend: &Backend,
    asked: &Change,
    request: &Request,
    wanted: &mut Object,
    (before, mut present): (&Object, Object),
) -> ApiResult<()> {
    let kind = resource::scale();
    let (ns, name) = (request.target.ns.as_str(), request.target.name.as_str());
    let subject = Subject { kind: kind.as_ref(), ..Subject::of(request.resource(), ns, name) };
    let settle = |scale: &mut Object| {
        if let Some(Flavor::Builtin(def)) = kind.as_ref().map(|k| &k.flavor) {
            canonical::settle(def, scale);
        }
    };
    let version = object::meta_str(before, "resourceVersion");
    let versioned = |object: &mut Object| {
        metadata_mut(object).entry("resourceVersion").or_insert_with(|| json!(version));
    };
    settle(wanted);
    settle(&mut present);
    if asked.verb == Verb::Patch {
        versioned(wanted);
    }
    backend.admit(asked, subject, wanted, Some(&present)).await?;
    let scale = paths(request.resource())?;
    let mut next = before.clone();
    scale.write(&mut next, wanted).map_err(ApiError::internal)?;
    versioned(&mut next);
    let (mut seen, _) = scale.read(&next).map_err(ApiError::internal)?;
    settle(&mut seen);
    backend.admit_final(asked, subject, &seen, Some(&present)).await
}

fn refused(why: &str) -> ApiError {
    ApiError::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
}

/// Checks kind and types of a Scale, and drops what it does not have.
fn check(scale: &mut Object, unknown: &mut Vec<String>) -> ApiResult<()> {
    let text = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind != "Scale" && !kind.is_empty() {
        let text = format!(
            "{kind} in version {version:?} cannot be handled as a Scale: no kind {kind:?} is registered for version {version:?} in scheme"
        );
        return Err(ApiError::bad_request(text));
    }
    if version != "autoscaling/v1" && !version.is_empty() {
        let text =
            format!("the API version in the data ({version}) does not match the expected API version (autoscaling/v1)");
        return Err(ApiError::bad_request(text));
    }
    for (part, keys) in [("spec", &["replicas"][..]), ("status", &["replicas", "selector"][..])] {
        match scale.get_mut(part) {
            None | Some(Value::Null) => {}
            Some(Value::Object(inner)) => {
                let gone: Vec<String> = inner.keys().filter(|k| !keys.contains(&k.as_str())).cloned().collect();
                for key in gone {
                    inner.shift_remove(&key);
                    unknown.push(format!("{part}.{key}"));
                }
                let bad = inner
                    .get("replicas")
                    .filter(|r| !r.is_null() && r.as_i64().is_none_or(|n| i32::try_from(n).is_err()));
                if let Some(bad) = bad {
                    let owner = if part == "spec" { "ScaleSpec" } else { "ScaleStatus" };
                    let why = format!(
                        "json: cannot unmarshal {} into Go struct field {owner}.{part}.replicas of type int32",
                        json_type(bad)
                    );
                    return Err(refused(&why));
                }
            }
            Some(other) => {
                let why = format!("json: cannot unmarshal {} into Go struct field Scale.{part}", json_type(other));
                return Err(refused(&why));
            }
        }
    }
    let gone: Vec<String> = scale
        .keys()
        .filter(|k| !matches!(k.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status"))
        .cloned()
        .collect();
    for key in gone {
        scale.shift_remove(&key);
        unknown.push(key);
    }
    Ok(())
}
