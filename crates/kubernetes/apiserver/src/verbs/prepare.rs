//! Fields that the server sets or preserves before validation (`rest.BeforeCreate` and `rest.BeforeUpdate` of
//! apiserver).

use http::StatusCode;
use serde_json::{Value, json};

use crate::decode::canonicalize;
use crate::given::Given;
use crate::meta;
use crate::object::{self, Object, is_deleting, meta_str, metadata, metadata_mut};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};
use crate::strategy::{Generation, MetadataChecks};

/// Sets the request's namespace, or refuses another one.
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

/// Refuses a new object that has a resourceVersion.
pub fn unversioned(object: &Object) -> ApiResult<()> {
    if object::meta_str(object, "resourceVersion").is_empty() {
        return Ok(());
    }
    let text = "resourceVersion should not be set on objects to be created";
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text))
}

/// Drops fields that clients cannot set on a new object.
pub fn wipe(object: &mut Object) {
    let meta = metadata_mut(object);
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.shift_remove(key);
    }
}

/// Sets what only the server may set on a new object.
pub fn create(resource: &Resource, object: &mut Object, given: &Given) {
    let meta = metadata_mut(object);
    meta.shift_remove("resourceVersion");
    meta.insert("uid".into(), json!(given.uid()));
    meta.insert("creationTimestamp".into(), json!(given.stamp()));
    if resource.strategy.generation() != Generation::None {
        meta.insert("generation".into(), json!(1));
    }
    if resource.status && !resource.strategy.keeps_first_status() {
        object.shift_remove("status");
    }
    resource.strategy.prepare_create(object);
    canonicalize(resource, object);
}

/// Fills in the default of a custom resource's status. `create` drops the status, but readers see its default.
pub fn default_status(resource: &Resource, object: &mut Object) {
    let Flavor::Custom { schema, .. } = &resource.flavor else { return };
    let Some(status) = schema.property("status").filter(|s| s.default.is_some()) else { return };
    if let Some(default) = status.default.as_ref().filter(|_| !object.contains_key("status")) {
        let mut value = default.clone();
        structural_schema::default::apply(status, &mut value);
        object.insert("status".into(), value);
    }
}

/// Limits `new` to the changes that an update by `sub` may make to `old`.
pub fn update(resource: &Resource, new: &mut Object, old: &Object, sub: &str) {
    match sub {
        "status" | "finalize" if resource.strategy.parts_take_metadata() => {
            keep_metadata(new, old);
            let other = if sub == "status" { "spec" } else { "status" };
            set_or_remove(new, other, old.get(other).cloned());
            resource.strategy.defaults(new);
        }
        "status" | "approval" => {
            let status = new.shift_remove("status");
            let owners = metadata_mut(new).shift_remove("managedFields");
            // Everything but the status and the managers, which are the largest parts of many objects.
            *new = old.iter().filter(|(key, _)| *key != "status").map(|(k, v)| (k.clone(), unmanaged(k, v))).collect();
            set_or_remove(metadata_mut(new), "managedFields", owners);
            set_or_remove(new, "status", status);
            resource.strategy.prepare_part(new, old, sub);
        }
        _ => {
            keep_metadata(new, old);
            if resource.status {
                set_or_remove(new, "status", old.get("status").cloned());
            }
            resource.strategy.prepare_update(new, old);
            resource.strategy.defaults(new);
        }
    }
    canonicalize(resource, new);
    if resource.strategy.generation() == Generation::Counted {
        let before = metadata(old).get("generation").and_then(Value::as_i64).unwrap_or(1);
        let moved = desired_differs(resource, new, old);
        metadata_mut(new).insert("generation".into(), json!(if moved { before + 1 } else { before }));
    }
}

/// Refuses changes to immutable metadata, which webhooks can make, too. Upstream checks twice, hence each error
/// appears twice.
pub fn same_identity(resource: &Resource, new: &Object, old: &Object, sub: &str) -> ApiResult<()> {
    if !sub.is_empty() && !resource.strategy.parts_take_metadata() {
        return Ok(());
    }
    let member = |object: &Object, key: &str| metadata(object).get(key).filter(|v| !v.is_null()).cloned();
    let immutable = |key: &str| {
        let value = member(new, key).unwrap_or_else(|| json!(""));
        FieldError::invalid(format!("metadata.{key}"), &value, "field is immutable")
    };
    let changed = |key: &str| match key {
        "name" => object::name(new) != object::name(old),
        // An absent value keeps the old one, and so does a deletion time once it is set.
        "deletionTimestamp" => member(old, key).is_none() && member(new, key).is_some(),
        key => member(new, key).is_some_and(|given| Some(&given) != member(old, key).as_ref() && given != json!("")),
    };
    let fixed = ["name", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let fixed: Vec<FieldError> = fixed.into_iter().filter(|key| changed(key)).map(immutable).collect();
    if fixed.is_empty() {
        return Ok(());
    }
    let mut errors = Vec::new();
    meta::unnamed(new, &mut errors);
    errors.extend(fixed.iter().chain(&fixed).cloned());
    if resource.strategy.metadata_checks() == MetadataChecks::CoreTwice {
        meta::validate_name(resource, new, &mut errors);
    }
    Err(ApiError::invalid(&resource.group, &resource.kind, object::name(new), &errors))
}

/// A member's copy; of the metadata, one without managers.
fn unmanaged(key: &str, member: &Value) -> Value {
    match member {
        Value::Object(meta) if key == "metadata" => {
            let kept = meta.iter().filter(|(key, _)| *key != "managedFields");
            Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
        }
        other => other.clone(),
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
        "generation",
    ] {
        set_or_remove(meta, key, before.get(key).cloned());
    }
    meta.shift_remove("selfLink");
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

/// Whether a change increments the generation. The order of keys does not matter.
fn desired_differs(resource: &Resource, a: &Object, b: &Object) -> bool {
    let counts =
        |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !resource.status);
    let differs = |x: &Object, y: &Object| x.iter().any(|(k, v)| counts(k) && y.get(k) != Some(v));
    let labels = |o: &Object| metadata(o).get("labels").cloned();
    differs(a, b) || differs(b, a) || resource.strategy.labels_are_desired() && labels(a) != labels(b)
}

/// Whether an object in deletion has nothing left that keeps it.
pub fn may_go(resource: &Resource, object: &Object) -> bool {
    is_deleting(object) && object::finalizers(object).is_empty() && !resource.strategy.is_held(object)
}
