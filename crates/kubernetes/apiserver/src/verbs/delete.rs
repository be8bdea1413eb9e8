//! delete and deletecollection, with finalizers, propagation and preconditions.

use http::StatusCode;
use serde_json::{Value, json};

use super::deletion::{Deleted, Options, Propagation};
use super::{Backend, body, list};
use crate::change::Change;
use crate::media;
use crate::object::{self, Object};
use crate::reply::{self, Response};
use crate::request::{Request, wrong_dry_run};
use crate::resource::Flavor;
use crate::route::Query;
use crate::status::{ApiError, ApiResult, Details, FieldError, StatusReason};
use crate::store::Stored;

/// Deletes the named object.
pub async fn delete(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let (change, options) = asked(request)?;
    let resource = request.resource();
    let name = request.target.name.as_str();
    if resource.strategy.is_protected(name) {
        let why = format!("this {} may not be deleted", resource.singular);
        return Err(ApiError::forbidden(&resource.group, &resource.plural, name, &why));
    }
    let removed = {
        let target = &request.target;
        backend.remove(&change, &target.resource, &target.ns, &target.name, &options).await
    };
    request.warnings.append(&mut change.take_warnings());
    let (target, resource) = (&request.target, request.resource());
    match removed? {
        // Upstream answers with the object itself for a few kinds.
        Deleted::Gone(stored) if resource.strategy.shows_deleted() => reply::stored(request, StatusCode::OK, &stored),
        Deleted::Waiting(stored) => reply::stored(request, StatusCode::OK, &stored),
        Deleted::Gone(stored) => {
            let uid = object::meta_str(&backend.load(resource, &stored)?, "uid").to_owned();
            let details = Details {
                name: target.name.clone(),
                group: resource.group.clone(),
                kind: resource.plural.clone(),
                uid,
                ..Details::default()
            };
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": details.to_json()});
            reply::value(request, StatusCode::OK, status)
        }
    }
}

/// Deletes all objects of the collection that the selectors match, or a page of them.
pub async fn delete_collection(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let resource = request.resource().clone();
    let which = super::options::Options::read(&request.query, &resource, false)?;
    let (change, options) = asked(request)?;
    let (meta, found) = list::taken(backend, request, which).await?;
    let mut items = Vec::new();
    for row in found {
        let removed = backend.remove(&change, &resource, &row.ns, &row.name, &options).await;
        request.warnings.append(&mut change.take_warnings());
        removed.map(drop).or_else(|error| if error.code == 404 { Ok(()) } else { Err(error) })?;
        // The response lists the objects as they were before the deletion.
        let mut item = backend.load(&resource, &Stored { rev: row.rev, tail: row.body })?;
        if matches!(resource.flavor, Flavor::Builtin(_)) {
            item.retain(|key, _| key != "apiVersion" && key != "kind");
        }
        items.push(Value::Object(item));
    }
    let list = json!({"apiVersion": resource.api_version(), "kind": resource.list_kind,
        "metadata": meta, "items": items});
    reply::value(request, StatusCode::OK, list)
}

fn asked(request: &Request) -> ApiResult<(Change, Options)> {
    let mut change = request.change()?;
    let given = if request.body.is_empty() { from_query(&request.query)? } else { from_body(request)? };
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let orphan = given.get("orphanDependents").and_then(Value::as_bool);
    let policy = text("propagationPolicy");
    let mut errors = Vec::new();
    let at = "propagationPolicy";
    if let Some(policy) = policy {
        if orphan.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(at, &json!(policy), detail));
        }
        let known = ["Foreground", "Background", "Orphan", "nil"];
        if !known[..3].contains(&policy) {
            errors.push(FieldError::not_supported(at, &json!(policy), &known));
        }
    }
    let dry = object::strings(given.get("dryRun"));
    errors.extend(wrong_dry_run(&dry.iter().map(String::as_str).collect::<Vec<_>>()));
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    change.dry = !dry.is_empty();
    if !request.body.is_empty() {
        change.options = given.clone();
        change.options.retain(|key, _| key != "apiVersion" && key != "kind");
    }
    let propagation = match (policy, orphan) {
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some(_), _) | (None, Some(false)) => Some(Propagation::Background),
        (None, None) => None,
    };
    let precondition =
        |key: &str| given.get("preconditions").and_then(|p| p.get(key)).and_then(Value::as_str).map(str::to_owned);
    let (uid, rev) = (precondition("uid"), precondition("resourceVersion"));
    Ok((change, Options { propagation, uid, rev }))
}

/// Options in the query, used when the body is empty.
fn from_query(query: &Query) -> ApiResult<Object> {
    let mut out = Object::new();
    let seconds = query.get("gracePeriodSeconds");
    if !seconds.is_empty() && seconds.parse::<i64>().is_err() {
        let text = format!("strconv.ParseInt: parsing {}: invalid syntax", gotext::quote(seconds));
        return Err(ApiError::bad_request(text));
    }
    if !query.get("propagationPolicy").is_empty() {
        out.insert("propagationPolicy".into(), json!(query.get("propagationPolicy")));
    }
    if !query.get("orphanDependents").is_empty() {
        out.insert("orphanDependents".into(), json!(query.flag("orphanDependents")));
    }
    let mut conditions = Object::new();
    for key in ["uid", "resourceVersion"] {
        let value = query.get(key);
        if !value.is_empty() {
            conditions.insert(key.to_owned(), json!(value));
        }
    }
    if !conditions.is_empty() {
        out.insert("preconditions".into(), conditions.into());
    }
    let dry: Vec<&str> = query.all("dryRun").collect();
    out.insert("dryRun".into(), json!(dry));
    Ok(out)
}

/// Options in the body. Upstream answers an unreadable body with 500 and the bare text.
fn from_body(request: &Request) -> ApiResult<Object> {
    media::readable(&request.content_type)?;
    body::options(request).map_err(|why| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, why))
}
