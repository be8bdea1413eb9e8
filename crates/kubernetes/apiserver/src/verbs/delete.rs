//! delete and deletecollection, with finalizers, propagation and preconditions.

use http::StatusCode;
use serde_json::{Value, json};

use super::meta::{FOREGROUND, ORPHAN};
use super::{ATTEMPTS, Backend, body, list, strategy, write_failed};
use crate::admission::Subject;
use crate::change::Change;
use crate::crd::lifecycle;
use crate::media;
use crate::object::{self, Object, metadata_mut};
use crate::reply::{self, Response};
use crate::request::{Request, wrong_dry_run};
use crate::resource::{Flavor, Resource};
use crate::route::{Query, Verb};
use crate::status::{ApiError, ApiResult, Details, FieldError, StatusReason};
use crate::store::{Stored, WriteError};

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
    let resource = request.resource();
    let name = request.target.name.as_str();
    if resource.is("", "namespaces") && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(ApiError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
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
        // They are told as they were found, not as they are left.
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

/// Options in the query; they count when there is no body.
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

/// Options in the body. Upstream answers what it cannot read with 500 and the bare text.
fn from_body(request: &Request) -> ApiResult<Object> {
    media::readable(&request.content_type)?;
    body::options(request).map_err(|why| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, why))
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
            if !change.admitted {
                self.admission.admit_delete(self, change, Subject::of(resource, ns, asked_name), &object).await?;
            }
            mark(resource, &mut object, options, &self.given.stamp());
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
        self.seen(key, rev, None);
        Ok(stored)
    }
}

fn preconditions(resource: &Resource, object: &Object, rev: u64, options: &Options) -> ApiResult<()> {
    let name = object::name(object);
    let uid = object::meta_str(object, "uid");
    // Namespaces and definitions check for themselves, in words of their own.
    let own = resource.is("", "namespaces") || resource.group == "apiextensions.k8s.io";
    let what = if own { &resource.plural } else { &resource.kind };
    let refused = |why: String| Err(ApiError::conflict(&resource.group, what, name, &why));
    if let Some(asked) = options.uid.as_ref().filter(|asked| *asked != uid) {
        return refused(if own {
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}")
        } else {
            format!(
                "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated"
            )
        });
    }
    if let Some(asked) = options.rev.as_ref().filter(|asked| **asked != rev.to_string()) {
        return refused(if own {
            format!(
                "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {rev}"
            )
        } else {
            format!(
                "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({rev}). The \
                 object might have been modified"
            )
        });
    }
    Ok(())
}

/// Sets what a deletion leaves on the object: time, finalizers of the propagation, phase.
fn mark(resource: &Resource, object: &mut Object, options: &Options, now: &str) {
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
    meta.insert("deletionTimestamp".into(), json!(now));
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
            now,
        );
    }
}
