//! delete and deletecollection, with finalizers, propagation and preconditions.

use http::StatusCode;
use serde_json::{Value, json};

use super::{ATTEMPTS, Backend, Change, Request, Stored, strategy, write_failed};
use crate::crd::lifecycle;
use crate::media;
use crate::object::{self, Object, metadata_mut};
use crate::reply::{self, Response};
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, Details};
use crate::store::WriteError;

/// Finalizer of deletions that wait for dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of deletions whose dependents are set free.
pub const ORPHAN: &str = "orphan";

/// What becomes of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What becomes of dependents; `None` is the default, background, unless a finalizer says otherwise.
    pub propagation: Option<Propagation>,
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must be at this revision.
    pub rev: Option<String>,
}

/// What a deletion came to.
pub enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Stored),
    /// Finalizers keep it; this is its state.
    Waiting(Stored),
}

/// Deletes the named object.
pub async fn delete(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let (change, options) = asked(request)?;
    let removed = {
        let target = &request.target;
        backend.remove(&change, &target.resource, &target.ns, &target.name, &options).await
    };
    request.warnings.append(&mut change.take_warnings());
    let (target, resource) = (&request.target, request.resource());
    match removed? {
        // Upstream answers with the object itself for a few kinds.
        Deleted::Gone(stored) if resource.is("", "serviceaccounts") => reply::stored(request, StatusCode::OK, &stored),
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

/// Deletes all objects of the collection that the selectors match.
pub async fn delete_collection(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    let (change, options) = asked(request)?;
    let resource = request.resource().clone();
    let selector = Selector::parse(request.query.get("labelSelector"), request.query.get("fieldSelector"), &resource)?;
    let (rev, found) = backend.select(&resource, &request.target.ns, &selector).await?;
    let mut items = Vec::new();
    for row in found {
        let removed = backend.remove(&change, &resource, &row.ns, &row.name, &options).await;
        request.warnings.append(&mut change.take_warnings());
        match removed {
            Ok(Deleted::Gone(stored) | Deleted::Waiting(stored)) => {
                items.push(Value::Object(backend.load(&resource, &stored)?));
            }
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let list = json!({"apiVersion": resource.api_version(), "kind": resource.list_kind,
        "metadata": {"resourceVersion": rev.to_string()}, "items": items});
    reply::value(request, StatusCode::OK, list)
}

fn asked(request: &Request) -> ApiResult<(Change, Options)> {
    let mut change = request.change()?;
    let mut options = Options::default();
    let mut body = Value::Null;
    if !request.body.is_empty() {
        body = media::decode(&request.content_type, &request.body)?.0;
    }
    let orphan = body.get("orphanDependents").and_then(Value::as_bool);
    let policy = match body.get("propagationPolicy").and_then(Value::as_str) {
        Some(policy) => policy.to_owned(),
        None => request.query.get("propagationPolicy").to_owned(),
    };
    options.propagation = match (policy.as_str(), orphan) {
        ("Background", _) => Some(Propagation::Background),
        ("Foreground", _) => Some(Propagation::Foreground),
        ("Orphan", _) | ("", Some(true)) => Some(Propagation::Orphan),
        ("", Some(false)) => Some(Propagation::Background),
        ("", None) => None,
        (other, _) => {
            let text = format!(
                "invalid DeleteOptions: propagationPolicy: Unsupported value: {other:?}: supported values: \"Foreground\", \
                 \"Background\", \"Orphan\", \"nil\""
            );
            return Err(ApiError::bad_request(text));
        }
    };
    for value in object::strings(body.get("dryRun")) {
        if value != "All" {
            return Err(ApiError::bad_request(format!(
                "dryRun: Unsupported value: {value:?}: supported values: \"All\""
            )));
        }
        change.dry = true;
    }
    let precondition =
        |key: &str| body.get("preconditions").and_then(|p| p.get(key)).and_then(Value::as_str).map(str::to_owned);
    if let Value::Object(given) = &body {
        change.options = given.clone();
        for key in ["apiVersion", "kind"] {
            change.options.shift_remove(key);
        }
    }
    options.uid = precondition("uid");
    options.rev = precondition("resourceVersion");
    Ok((change, options))
}

impl Backend {
    /// Begins or completes the deletion of an object.
    pub async fn remove(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        name: &str,
        options: &Options,
    ) -> ApiResult<Deleted> {
        for _ in 0..ATTEMPTS {
            let key = resource.key(ns, name);
            let missing = || ApiError::not_found(&resource.group, &resource.plural, name);
            let old = self.stored(&key).await?.ok_or_else(missing)?;
            let seen = self.converted(resource, old.clone()).await?;
            let mut object = self.load(resource, &seen)?;
            preconditions(resource, &object, old.rev, options)?;
            let was_deleting = object::is_deleting(&object);
            let asked_name = if change.verb == Verb::DeleteCollection { "" } else { name };
            self.admit_delete(change, resource, ns, asked_name, &object).await?;
            mark(resource, &mut object, options);
            let gone = strategy::may_go(resource, &object);
            if gone && !was_deleting {
                // What goes at once never shows the marks of a slow deletion.
                object = self.load(resource, &seen)?;
            }
            if change.dry {
                let stored = Stored { rev: old.rev, tail: resource.tail(object) };
                return Ok(if gone { Deleted::Gone(stored) } else { Deleted::Waiting(stored) });
            }
            let outcome = if gone {
                self.drop_now(resource, &key, object, &old).await
            } else {
                let (object, kept) = self.to_storage(resource, object).await?;
                self.put(kept.as_deref().unwrap_or(resource), key, object, Some(&old), None).await
            };
            match outcome {
                Ok(stored) if gone => return Ok(Deleted::Gone(stored)),
                Ok(stored) => return Ok(Deleted::Waiting(self.converted(resource, stored).await?)),
                Err(WriteError::Conflict) => {}
                Err(other) => return Err(write_failed(other)),
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, name))
    }

    async fn drop_now(
        &self,
        resource: &Resource,
        key: &crate::store::Key,
        object: Object,
        old: &Stored,
    ) -> Result<Stored, WriteError> {
        use crate::store::{Expect, Op, Write};
        let tail = resource.tail(object);
        let write = Write { key: key.clone(), expect: Expect::Rev(old.rev), op: Op::Delete(tail.clone()), guard: None };
        let rev = self.store.write(write).await?;
        let stored = Stored { rev, tail };
        if resource.group == "apiextensions.k8s.io" {
            self.definition_changed(&key.name, &stored, true);
        }
        self.auth.index.see(&key.resource, &key.ns, &key.name, rev, None);
        Ok(stored)
    }
}

fn preconditions(resource: &Resource, object: &Object, rev: u64, options: &Options) -> ApiResult<()> {
    let name = object::name(object);
    let uid = object::meta_str(object, "uid");
    if let Some(asked) = &options.uid
        && asked != uid
    {
        let why = format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}");
        return Err(ApiError::conflict(&resource.group, &resource.plural, name, &why));
    }
    if let Some(asked) = &options.rev
        && *asked != rev.to_string()
    {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {rev}"
        );
        return Err(ApiError::conflict(&resource.group, &resource.plural, name, &why));
    }
    Ok(())
}

/// Sets what a deletion leaves on the object: time, finalizers of the propagation, phase.
fn mark(resource: &Resource, object: &mut Object, options: &Options) {
    let mut finalizers = object::finalizers(object);
    let before = finalizers.clone();
    if let Some(chosen) = options.propagation {
        finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
        match chosen {
            Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
            Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
            Propagation::Background => {}
        }
    }
    let first = !object::is_deleting(object);
    if first && resource.group == "apiextensions.k8s.io" && !finalizers.iter().any(|f| f == lifecycle::CLEANUP) {
        finalizers.push(lifecycle::CLEANUP.to_owned());
    }
    if finalizers != before {
        object::set_finalizers(object, &finalizers);
    }
    if !first {
        return;
    }
    let meta = metadata_mut(object);
    meta.insert("deletionTimestamp".into(), json!(object::now()));
    meta.insert("deletionGracePeriodSeconds".into(), json!(0));
    if strategy::counts_generations(resource) {
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(1);
        meta.insert("generation".into(), json!(generation + 1));
    }
    if resource.is("", "namespaces") {
        metadata_mut(object).shift_remove("deletionGracePeriodSeconds");
        object::child(object, "status").insert("phase".into(), json!("Terminating"));
    }
    if resource.group == "apiextensions.k8s.io" {
        let status = object::child(object, "status");
        lifecycle::set_condition(
            status,
            "Terminating",
            true,
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        );
    }
}
