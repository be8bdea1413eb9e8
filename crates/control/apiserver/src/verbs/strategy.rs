//! What happens to an object between decoding and storage, the same way for all kinds.

use serde_json::{Value, json};

use super::names;
use crate::builtin::{Defs, canonical, decode as typed, strategy as own};
use crate::crd;
use crate::fields::managed;
use crate::object::{self, Object, child, is_deleting, meta_str, metadata, metadata_mut};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// Checks types, drops unknown fields (their paths go to `unknown`) and fills in defaults.
pub fn decode(resource: &Resource, object: &mut Object, unknown: &mut Vec<String>) -> ApiResult<()> {
    identify(resource, object)?;
    let failed = |why: String| {
        let (kind, version) = (&resource.kind, &resource.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    match &resource.flavor {
        Flavor::Builtin(def) => typed::decode(def, object, unknown).map_err(failed)?,
        Flavor::Custom { schema, .. } => {
            decode_metadata(object, unknown).map_err(failed)?;
            crd::prune::prune(schema, object, unknown);
            crd::default::apply_object(schema, object);
        }
    }
    own::defaults(resource, object);
    settle(resource, object);
    Ok(())
}

/// An own kind in the form that Go's encoder gives it.
fn settle(resource: &Resource, object: &mut Object) {
    if let Flavor::Builtin(def) = &resource.flavor {
        canonical::settle(def, object);
    }
}

/// The object must be of the resource's kind and version.
fn identify(resource: &Resource, object: &mut Object) -> ApiResult<()> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let wanted = resource.api_version();
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    if kind.is_empty() && custom {
        return Err(ApiError::bad_request("Object 'Kind' is missing in the body of the request"));
    }
    if (!kind.is_empty() && kind != resource.kind) || (!api_version.is_empty() && api_version != wanted) {
        let text = format!(
            "{kind} in version \"{api_version}\" cannot be handled as a {} in version \"{wanted}\": the kind or API \
             version in the data does not match the one of the URL",
            resource.kind
        );
        return Err(ApiError::bad_request(text));
    }
    object.insert("apiVersion".into(), json!(wanted));
    object.insert("kind".into(), json!(resource.kind));
    Ok(())
}

fn decode_metadata(object: &mut Object, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(def) = Defs::get().object_meta() else { return Ok(()) };
    match object.get_mut("metadata") {
        None | Some(Value::Null) => {
            object.insert("metadata".into(), json!({}));
        }
        Some(Value::Object(meta)) => {
            let mut found = Vec::new();
            typed::decode(def, meta, &mut found)?;
            unknown.extend(found.into_iter().map(|p| format!("metadata.{p}")));
        }
        Some(_) => {
            return Err("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta".to_owned());
        }
    }
    Ok(())
}

/// Sets the namespace, or refuses one that is not the request's.
pub fn fit_namespace(resource: &Resource, object: &mut Object, ns: &str) -> ApiResult<()> {
    let given = meta_str(object, "namespace").to_owned();
    if !resource.namespaced {
        metadata_mut(object).shift_remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != ns {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata_mut(object).insert("namespace".into(), json!(ns));
    Ok(())
}

/// Drops what clients cannot say of a new object.
pub fn wipe(object: &mut Object) {
    let meta = metadata_mut(object);
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.shift_remove(key);
    }
}

/// Sets what only the server may set on a new object.
pub fn prepare_create(resource: &Resource, object: &mut Object) {
    wipe(object);
    let meta = metadata_mut(object);
    for key in ["generation", "resourceVersion"] {
        meta.shift_remove(key);
    }
    meta.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    meta.insert("creationTimestamp".into(), json!(object::now()));
    if counts_generations(resource) {
        meta.insert("generation".into(), json!(1));
    }
    if resource.status && !resource.is("", "nodes") {
        object.shift_remove("status");
    }
    own::prepare_create(resource, object);
    settle(resource, object);
}

/// Whether the kind counts changes of its desired state.
pub fn counts_generations(resource: &Resource) -> bool {
    matches!(resource.flavor, Flavor::Custom { .. })
        || matches!(resource.group.as_str(), "apiextensions.k8s.io" | "discovery.k8s.io" | crate::admission::GROUP)
}

/// Makes `new` what an update by `sub` may make of `old`.
pub fn prepare_update(resource: &Resource, new: &mut Object, old: &Object, sub: &str) {
    match sub {
        "status" => {
            let status = new.shift_remove("status");
            let owners = metadata_mut(new).shift_remove("managedFields");
            *new = old.clone();
            set_or_remove(metadata_mut(new), "managedFields", owners);
            set_or_remove(new, "status", status);
        }
        "finalize" => {
            let finalizers = new.get("spec").and_then(|s| s.get("finalizers")).cloned();
            let owners = metadata_mut(new).shift_remove("managedFields");
            *new = old.clone();
            set_or_remove(metadata_mut(new), "managedFields", owners);
            set_or_remove(child(new, "spec"), "finalizers", finalizers);
        }
        _ => {
            keep_metadata(new, old);
            if resource.status && !resource.is("", "namespaces") {
                set_or_remove(new, "status", old.get("status").cloned());
            }
            own::prepare_update(resource, new, old);
            own::defaults(resource, new);
        }
    }
    settle(resource, new);
    if counts_generations(resource) {
        let before = metadata(old).get("generation").and_then(Value::as_i64).unwrap_or(1);
        let moved = desired_differs(resource, new, old);
        metadata_mut(new).insert("generation".into(), json!(if moved { before + 1 } else { before }));
    }
}

fn set_or_remove(object: &mut Object, key: &str, value: Option<Value>) {
    match value {
        Some(value) => object.insert(key.to_owned(), value),
        None => object.shift_remove(key),
    };
}

fn keep_metadata(new: &mut Object, old: &Object) {
    let before = metadata(old);
    let meta = metadata_mut(new);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "name",
        "namespace",
        "generateName",
    ] {
        set_or_remove(meta, key, before.get(key).cloned());
    }
    for key in ["selfLink", "generation"] {
        meta.shift_remove(key);
    }
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match meta.get(key) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            _ => false,
        };
        if empty {
            meta.shift_remove(key);
        }
    }
}

/// Whether the parts differ whose changes move the generation. The order of keys does not matter.
fn desired_differs(resource: &Resource, a: &Object, b: &Object) -> bool {
    let counts =
        |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !resource.status);
    let differs = |x: &Object, y: &Object| x.iter().any(|(k, v)| counts(k) && y.get(k) != Some(v));
    // Consumers of slices look for them by label.
    let labels = |o: &Object| metadata(o).get("labels").cloned();
    differs(a, b) || differs(b, a) || resource.group == "discovery.k8s.io" && labels(a) != labels(b)
}

/// Checks an object before it is stored; `old` is its former state.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>, sub: &str) -> ApiResult<()> {
    let mut errors = Vec::new();
    names::validate(resource, object, &mut errors);
    managed::validate(metadata(object).get("managedFields"), &mut errors);
    if let Some(old) = old {
        new_finalizers(object, old, &mut errors);
    }
    match &resource.flavor {
        Flavor::Builtin(_) => errors.extend(own::validate(resource, object, old, sub)),
        Flavor::Custom { schema, .. } => {
            let found = crd::validate::validate(schema, object);
            if !found.is_empty() && schema.has_cel() {
                errors.extend(found);
                errors.push(FieldError::invalid(
                    "",
                    &Value::Null,
                    "some validation rules were not checked because the object was invalid; correct the existing errors \
                     to complete validation",
                ));
            } else {
                errors.extend(found);
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Both groups of Events are one kind within, and that is the core one.
    let group = if resource.group == "events.k8s.io" { "" } else { &resource.group };
    Err(ApiError::invalid(group, &resource.kind, object::name(object), &errors))
}

/// What the client of a valid object is told besides.
pub fn warnings(resource: &Resource, object: &Object, created: bool) -> Vec<String> {
    match &resource.flavor {
        Flavor::Builtin(_) => own::warnings(resource, object, created),
        Flavor::Custom { .. } => Vec::new(),
    }
}

fn new_finalizers(object: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if !is_deleting(old) {
        return;
    }
    let before = object::finalizers(old);
    let added: Vec<String> = object::finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
    if !added.is_empty() {
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            format!("no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"),
        ));
    }
}

/// Whether nothing keeps an object any more whose deletion has begun.
pub fn may_go(resource: &Resource, object: &Object) -> bool {
    let held = resource.is("", "namespaces")
        && !object::strings(object.get("spec").and_then(|s| s.get("finalizers"))).is_empty();
    is_deleting(object) && object::finalizers(object).is_empty() && !held
}
