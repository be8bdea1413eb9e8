//! The scale subresource: the object's replicas read and written as an `autoscaling/v1` Scale.

use core_kinds::{Def, Defs, canonical, decode as typed};
use http::StatusCode;
use serde_json::{Value, json};

use super::{ATTEMPTS, Backend, apply, body, patch, prepare};
use crate::admission::Subject;
use crate::change::Change;
use crate::decode::kind;
use crate::fields::options::Options;
use crate::fields::views::Views;
use crate::fields::{Scope, apply as server_side, scale as owners};
use crate::media::Shape;
use crate::object::{self, Object, metadata, metadata_mut};
use crate::registry;
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::{Flavor, Resource};
use crate::route::Verb;
use crate::scale::Scale;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::table;

/// Stands in for replicas that were never set, to detect whether a patch sets them.
const UNSET: i64 = i32::MIN as i64;

fn paths(resource: &Resource) -> ApiResult<&Scale> {
    resource.scale.as_ref().ok_or_else(ApiError::unknown_path)
}

/// Answers with the Scale of the named object.
pub async fn get(backend: &Backend, request: &Request) -> ApiResult<Response> {
    let resource = request.resource();
    let scale = paths(resource)?;
    let stored = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let stored = backend.converted(resource, stored).await?;
    let (found, set) = scale.read(&backend.load(resource, &stored)?).map_err(ApiError::internal)?;
    if !set {
        return Err(ApiError::internal(format!("the spec replicas field {:?} does not exist", scale.spec)));
    }
    answer(request, found)
}

/// A Scale in the form that the client accepts.
fn answer(request: &Request, scale: Object) -> ApiResult<Response> {
    match &request.accept.shape {
        Shape::Plain => reply::value(request, StatusCode::OK, scale.into()),
        Shape::Partial => reply::value(request, StatusCode::OK, object::partial(&scale)),
        Shape::Table(version) => {
            let rev = object::meta_str(&scale, "resourceVersion").to_owned();
            let row = table::scale_row(scale, table::included(request.query.get("includeObject"))?, version);
            let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": {"resourceVersion": rev}, "columnDefinitions": table::scale_columns(), "rows": [row]});
            reply::value(request, StatusCode::OK, table)
        }
    }
}

/// Sets the replicas of the named object by the Scale in the body.
pub async fn update(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Update.validate(&request.query)?;
    let wanted = kind::Wanted { group: "autoscaling", version: "v1", kind: "Scale" };
    let unsound = |error: ApiError| if error.code == 400 { refused() } else { error };
    let mut given = body::decode_builtin(request, &wanted, scale_def()?).map_err(unsound)?;
    let target = request.target.clone();
    same_name(&given, &target.name)?;
    prepare::fit_namespace(request.resource(), &mut given, &target.ns)?;
    change(backend, request, |_| Ok(given.clone())).await
}

/// Changes the replicas of the named object by a patch of its Scale.
pub async fn patch(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    if request.content_type == apply::MEDIA {
        return applied(backend, request).await;
    }
    Options::Patch.validate(&request.query)?;
    let resource = request.resource().clone();
    let (patch, _) = patch::read(request, &resource)?;
    let name = request.target.name.clone();
    change(backend, request, |before| {
        let mut after = patch::apply(&patch, before, &resource)?;
        check(&mut after, &mut Vec::new())?;
        if object::meta_str(&after, "resourceVersion") == object::meta_str(before, "resourceVersion") {
            metadata_mut(&mut after).shift_remove("resourceVersion");
        }
        same_name(&after, &name)?;
        Ok(after)
    })
    .await
}

/// Applies a Scale. As upstream, every change of the replicas fails: an apply can only make its manager an owner of
/// the present replicas, or report conflicts.
async fn applied(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Apply.validate(&request.query)?;
    let (config, doubts) = apply::decode(request)?;
    let force = request.query.flag("force");
    let as_scale = registry::scale().ok_or_else(ApiError::unknown_path)?;
    let scaled = request.resource().clone();
    let catalog = backend.registry.catalog();
    let places = |version: &str| {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let found = catalog.find(group, version, &scaled.plural).filter(|r| r.storage == scaled.storage)?;
        Some(found.scale.as_ref().map_or_else(Vec::new, |s| scale_parts(&s.spec)))
    };
    let asked = Change { applied: true, admitted: true, ..request.change()? };
    let (views, now) = (Views::none(), backend.given.now());
    let scope = Scope { resource: &as_scale, catalog: &catalog, sub: "scale", manager: &asked.manager, views, now };
    let broken = |why: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, why);
    let owners = |object: &Object| metadata(object).get("managedFields").cloned();
    let make = |before: &Object, present: &mut Object| {
        let seen = owners::to_scale(owners(before).as_ref(), &places).map_err(broken)?;
        if let Some(seen) = seen {
            metadata_mut(present).insert("managedFields".into(), seen);
        }
        let wanted = server_side::apply(&scope, Some(present), &config, force)?;
        if bare(&wanted) != bare(present) {
            return Err(not_convertible(&config));
        }
        let after = owners(&wanted);
        let after = owners::to_parent(owners(before).as_ref(), after.as_ref(), &scaled.api_version(), &places);
        Ok((wanted, Some(after.map_err(broken)?)))
    };
    let written = write(backend, request, &asked, make).await;
    request.warnings.extend(doubts);
    request.warnings.append(&mut asked.take_warnings());
    answer(request, written?)
}

/// An object without its managed fields.
fn bare(object: &Object) -> Object {
    let mut object = object.clone();
    metadata_mut(&mut object).shift_remove("managedFields");
    object
}

fn not_convertible(config: &Object) -> ApiError {
    let text = format!(
        "failed to convert new object ({}/{}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an \
         invalid group/version: autoscaling/v1",
        object::meta_str(config, "namespace"),
        object::name(config)
    );
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text)
}

fn scale_parts(path: &str) -> Vec<String> {
    crate::scale::parts(path).into_iter().map(str::to_owned).collect()
}

fn same_name(scale: &Object, name: &str) -> ApiResult<()> {
    let given = object::name(scale);
    if given == name {
        return Ok(());
    }
    let text = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(text))
}

async fn change(
    backend: &Backend,
    request: &mut Request,
    mut make: impl FnMut(&Object) -> ApiResult<Object>,
) -> ApiResult<Response> {
    let asked = Change { admitted: true, ..request.change()? };
    let written = write(backend, request, &asked, |_, present| Ok((make(present)?, None))).await;
    request.warnings.append(&mut asked.take_warnings());
    answer(request, written?)
}

/// The wanted Scale, and the managed fields of the object if they change.
type Wanted = (Object, Option<Option<Value>>);

/// Changes the object as `make` changes its Scale; returns the new Scale.
async fn write(
    backend: &Backend,
    request: &Request,
    asked: &Change,
    mut make: impl FnMut(&Object, &mut Object) -> ApiResult<Wanted>,
) -> ApiResult<Object> {
    let resource = request.resource();
    let scale = paths(resource)?;
    let (ns, name) = (request.target.ns.as_str(), request.target.name.as_str());
    for _ in 0..ATTEMPTS {
        let seen = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
        let before = backend.load(resource, &backend.converted(resource, seen.clone()).await?)?;
        let (mut present, set) = scale.read(&before).map_err(ApiError::internal)?;
        let current = present.clone();
        if !set {
            present.insert("spec".into(), json!({"replicas": UNSET}));
        }
        let (mut wanted, owners) = make(&before, &mut present)?;
        if wanted.get("spec").and_then(|s| s.get("replicas")) == Some(&json!(UNSET)) {
            let text = format!("the spec replicas field {:?} cannot be empty", scale.spec);
            return Err(ApiError::bad_request(text));
        }
        admit(backend, asked, request, &mut wanted, (&before, current)).await?;
        let mut overtaken = false;
        let stored = backend
            .change(asked, resource, ns, name, |now| {
                overtaken = object::meta_str(now, "resourceVersion") != seen.rev.to_string();
                if overtaken {
                    return Err(ApiError::modified(&resource.group, &resource.plural, name));
                }
                let mut next = now.clone();
                scale.write(&mut next, &wanted).map_err(ApiError::internal)?;
                match &owners {
                    None => {}
                    Some(None) => drop(metadata_mut(&mut next).shift_remove("managedFields")),
                    Some(Some(owners)) => drop(metadata_mut(&mut next).insert("managedFields".into(), owners.clone())),
                }
                Ok(next)
            })
            .await;
        if !overtaken {
            let (after, _) =
                scale.read(&backend.load(resource, &stored?)?).map_err(|why| ApiError::bad_request(why.to_string()))?;
            return Ok(after);
        }
    }
    Err(ApiError::modified(&resource.group, &resource.plural, name))
}

/// Admission sees Scales, not the objects behind them. Mutating webhooks see the wanted Scale, all others the Scale
/// of the resulting object.
async fn admit(
    backend: &Backend,
    asked: &Change,
    request: &Request,
    wanted: &mut Object,
    (before, mut present): (&Object, Object),
) -> ApiResult<()> {
    let kind = registry::scale();
    let (ns, name) = (request.target.ns.as_str(), request.target.name.as_str());
    let subject = Subject { kind: kind.as_ref(), ..Subject::of(request.resource(), ns, name) };
    let canonicalize = |scale: &mut Object| {
        if let Some(Flavor::Builtin(def)) = kind.as_ref().map(|k| &k.flavor) {
            canonical::canonicalize(def, scale);
        }
    };
    let version = object::meta_str(before, "resourceVersion");
    let versioned = |object: &mut Object| {
        metadata_mut(object).entry("resourceVersion").or_insert_with(|| json!(version));
    };
    canonicalize(wanted);
    canonicalize(&mut present);
    if asked.verb == Verb::Patch {
        versioned(wanted);
    }
    backend.admission.admit(backend, asked, subject, wanted, Some(&present)).await?;
    let scale = paths(request.resource())?;
    let mut next = before.clone();
    scale.write(&mut next, wanted).map_err(ApiError::internal)?;
    versioned(&mut next);
    let (mut seen, _) = scale.read(&next).map_err(ApiError::internal)?;
    canonicalize(&mut seen);
    backend.admission.admit_final(backend, asked, subject, &seen, Some(&present)).await
}

/// The error for a body that is no valid Scale. Upstream intends a longer text, but does not know the kind where it
/// builds it.
fn refused() -> ApiError {
    ApiError::bad_request("no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:110\"")
}

fn scale_def() -> ApiResult<&'static Def> {
    Defs::get().kind("autoscaling", "v1", "Scale").ok_or_else(ApiError::unknown_path)
}

/// Checks kind and types of a patched Scale, and drops unknown fields.
fn check(scale: &mut Object, unknown: &mut Vec<String>) -> ApiResult<()> {
    let text = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if !matches!(kind.as_str(), "Scale" | "") || !matches!(version.as_str(), "autoscaling/v1" | "") {
        return Err(refused());
    }
    typed::decode(scale_def()?, scale, unknown).map_err(|_| refused())
}
