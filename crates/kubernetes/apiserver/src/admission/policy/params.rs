//! The parameters that a binding refers to.

use serde_json::json;

use super::definition::{ParamKind, ParamRef};
use crate::object::{self, Object};
use crate::objects::Objects;
use crate::selectors::Selector;
use crate::status::ApiError;

/// `group/version, Kind=K`, as Go prints it.
fn gvk(kind: &ParamKind) -> String {
    let slash = if kind.api_version.contains('/') { "" } else { "/" };
    format!("{slash}{}, Kind={}", kind.api_version, kind.kind)
}

/// Checks that the kind of a policy's parameters is served.
///
/// # Errors
/// Upstream's text if it is not.
pub fn known(objects: &Objects, kind: &ParamKind) -> Result<(), String> {
    let catalog = objects.registry.catalog();
    let served = catalog.all().any(|r| r.kind == kind.kind && r.api_version() == kind.api_version && !r.is_review());
    if served { Ok(()) } else { Err(format!("failed to find resource referenced by paramKind: '{}'", gvk(kind))) }
}

/// The parameters to evaluate a policy with, one after another. A `None` evaluates it without parameters. `ns` is the
/// namespace of the request.
///
/// # Errors
/// Upstream's text for an invalid binding.
pub async fn collect(
    objects: &Objects,
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    ns: &str,
) -> Result<Vec<Option<Object>>, String> {
    let (Some(kind), Some(reference)) = (kind, reference) else { return Ok(vec![None]) };
    let failed = |error: ApiError| error.message;
    let catalog = objects.registry.catalog();
    let resource = catalog.all().find(|r| r.kind == kind.kind && r.api_version() == kind.api_version);
    let Some(resource) = resource else { return known(objects, kind).map(|()| Vec::new()) };
    let ns = match (resource.namespaced, reference.namespace.as_str()) {
        (true, "") if ns.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "") => ns,
        (true, named) => named,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let mut found = Vec::new();
    if !reference.name.is_empty() {
        if let Some(stored) = objects.stored(&resource.key(ns, &reference.name)).await.map_err(failed)? {
            let stored = objects.converted(resource, stored).await.map_err(failed)?;
            found.push(objects.load(resource, &stored).map_err(failed)?);
        }
    } else if let Some(selector) = &reference.selector {
        let (_, mut rows) = objects.select(resource, ns, &Selector::default()).await.map_err(failed)?;
        objects.convert_rows(resource, &mut rows).await.map_err(failed)?;
        for row in rows {
            let object = resource.load(row.rev, &row.body).map_err(|e| e.to_string())?;
            let labels = object::metadata(&object).get("labels").and_then(serde_json::Value::as_object);
            if selector.matches(labels) {
                found.push(object);
            }
        }
    } else {
        return Err("one of name or selector must be provided".to_owned());
    }
    if found.is_empty() && reference.must_be {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    for object in &mut found {
        object.insert("apiVersion".into(), json!(kind.api_version));
        object.insert("kind".into(), json!(kind.kind));
    }
    Ok(found.into_iter().map(Some).collect())
}
