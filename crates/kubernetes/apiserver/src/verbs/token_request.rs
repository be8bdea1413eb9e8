//! `serviceaccounts/token`: a new token for a service account.
//!
//! Follows `k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage` (token).

use core_kinds::{Defs, canonical};
use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Backend, body, prepare};
use crate::admission::Subject;
use crate::auth::keys::ISSUER;
use crate::auth::tokens::{self, Binding};
use crate::change::Change;
use crate::decode::kind::Wanted;
use crate::fields::Scope;
use crate::fields::options::Options;
use crate::fields::views::Views;
use crate::given;
use crate::object::{self, Object, child, metadata_mut};
use crate::registry::token_request;
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, FieldError};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Creates the requested token.
pub async fn create(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Create.validate(&request.query)?;
    let change = request.change()?;
    let resource = token_request().ok_or_else(ApiError::unknown_path)?;
    let mut asked = decode(request)?;
    let catalog = backend.registry.catalog();
    let (manager, views, now) = (change.manager.as_str(), Views::none(), backend.given.now());
    Scope { resource: &resource, catalog: &catalog, sub: "token", manager, views, now }.update(None, &mut asked);
    let given = give(backend, request, &change, &resource, asked).await;
    request.warnings.append(&mut change.take_warnings());
    reply::value(request, StatusCode::CREATED, Value::Object(given?))
}

/// Admits the request and returns it with its token.
async fn give(
    backend: &Backend,
    request: &Request,
    change: &Change,
    resource: &Resource,
    mut asked: Object,
) -> ApiResult<Object> {
    let (ns, name) = (request.target.ns.clone(), request.target.name.clone());
    if object::meta_str(&asked, "namespace").is_empty() {
        metadata_mut(&mut asked).insert("namespace".into(), json!(ns));
    }
    let subject = Subject { kind: Some(resource), ..Subject::of(request.resource(), &ns, &name) };
    backend.admission.admit(backend, change, subject, &mut asked, None).await?;
    for (key, actual, what) in [("name", &name, "name"), ("namespace", &ns, "namespace")] {
        let given = object::meta_str(&asked, key);
        if !given.is_empty() && given != actual {
            let detail = format!("must match the service account {what} if specified");
            let error = FieldError::invalid(format!("metadata.{key}"), &json!(given), detail);
            return Err(ApiError::invalid(GROUP, KIND, &name, &[error]));
        }
    }
    let account = backend.auth.index.account(&ns, &name).ok_or_else(|| request.not_found())?;
    let given = object::meta_str(&asked, "uid");
    if !given.is_empty() && given != account.uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({})",
            account.uid
        );
        return Err(ApiError::conflict(GROUP, KIND, &name, &why));
    }
    let now = backend.given.now();
    let meta = metadata_mut(&mut asked);
    for (key, value) in [("name", &name), ("namespace", &ns), ("uid", &account.uid)] {
        meta.insert(key.to_owned(), json!(value));
    }
    meta.insert("creationTimestamp".into(), json!(given::stamp(now)));
    let spec = child(&mut asked, "spec");
    if object::strings(spec.get("audiences")).is_empty() {
        spec.insert("audiences".into(), json!([ISSUER]));
    }
    let seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
    check_seconds(seconds)?;
    backend.admission.admit_final(backend, change, subject, &asked, None).await?;
    let spec = child(&mut asked, "spec");
    let bound = match spec.entry("boundObjectRef").or_insert(Value::Null) {
        Value::Object(reference) => Some(bound(backend, &ns, &name, reference).await?),
        _ => None,
    };
    let audiences = object::strings(spec.get("audiences"));
    let claims = tokens::claims((&ns, &name, &account.uid), &audiences, now, seconds, bound.as_ref());
    let token =
        backend.auth.keys.sign(&claims).map_err(|e| ApiError::internal(format!("failed to generate token: {e}")))?;
    let until = now.checked_add(SignedDuration::from_secs(seconds)).map_err(ApiError::internal)?;
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    asked.insert("status".into(), json!({"token": token, "expirationTimestamp": until}));
    if let Some(def) = Defs::get().kind(GROUP, "v1", KIND) {
        canonical::canonicalize(def, &mut asked);
    }
    Ok(asked)
}

fn decode(request: &mut Request) -> ApiResult<Object> {
    let def = Defs::get().kind(GROUP, "v1", KIND).ok_or_else(ApiError::unknown_path)?;
    let mut asked = body::decode_builtin(request, &Wanted { group: GROUP, version: "v1", kind: KIND }, def)?;
    asked.shift_remove("status");
    // The UID is kept: it must match the account's.
    let uid = object::meta_str(&asked, "uid").to_owned();
    prepare::wipe(&mut asked);
    if !uid.is_empty() {
        metadata_mut(&mut asked).insert("uid".into(), json!(uid));
    }
    canonical::canonicalize(def, &mut asked);
    let seconds = child(&mut asked, "spec").entry("expirationSeconds").or_insert(Value::Null);
    if seconds.is_null() {
        *seconds = json!(3600);
    }
    Ok(asked)
}

fn check_seconds(seconds: i64) -> ApiResult<()> {
    let detail = if seconds < 600 {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError::invalid("spec.expirationSeconds", &json!(seconds), detail);
    Err(ApiError::invalid(GROUP, KIND, "", &[error]))
}

/// The object whose deletion invalidates the token.
async fn bound(backend: &Backend, ns: &str, account: &str, reference: &Object) -> ApiResult<Binding> {
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (plural, claim, ns) = match (version.contains('/'), kind) {
        (false, "Secret") => ("secrets", "secret", ns),
        (false, "Node") => ("nodes", "node", ""),
        (false, "Pod") => ("pods", "pod", ns),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(text));
        }
    };
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let catalog = backend.registry.catalog();
    let missing = || ApiError::not_found("", plural, name);
    let resource = catalog.find("", "v1", plural).ok_or_else(missing)?;
    let stored = backend.stored(&resource.key(ns, name)).await?.ok_or_else(missing)?;
    let uid = object::meta_str(&backend.load(resource, &stored)?, "uid").to_owned();
    tracing::debug!(account, plural, name, "a token is bound");
    let asked = text("uid");
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict("", kind, name, &why));
    }
    Ok(Binding { claim, name: name.to_owned(), uid })
}
