//! The preconditions of a deletion, and the marks it sets on an object.

use serde_json::{Value, json};

use crate::meta::{FOREGROUND, ORPHAN};
use crate::object::{self, Object, metadata_mut};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::strategy::Generation;

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards.
    Background,
    /// The garbage collector deletes them first.
    Foreground,
    /// They are kept.
    Orphan,
}

/// How to delete.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What happens to dependents; `None` is background, unless a finalizer of the object says otherwise.
    pub propagation: Option<Propagation>,
    /// The object must have this UID.
    pub uid: Option<String>,
    /// The object must be at this revision.
    pub rev: Option<String>,
}

/// The outcome of a deletion.
pub enum Deleted {
    /// The object was removed; this was its last state.
    Gone(Stored),
    /// Finalizers keep the object; this is its state.
    Waiting(Stored),
}

/// Checks UID and version against the preconditions of the options.
pub fn preconditions(resource: &Resource, object: &Object, rev: u64, options: &Options) -> ApiResult<()> {
    let name = object::name(object);
    let uid = object::meta_str(object, "uid");
    let checked = resource.strategy.checks_preconditions();
    let what = if checked { &resource.plural } else { &resource.kind };
    let refused = |why: String| Err(ApiError::conflict(&resource.group, what, name, &why));
    if let Some(asked) = options.uid.as_ref().filter(|asked| *asked != uid) {
        return refused(if checked {
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}")
        } else {
            format!(
                "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated"
            )
        });
    }
    if let Some(asked) = options.rev.as_ref().filter(|asked| **asked != rev.to_string()) {
        return refused(if checked {
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

/// Marks an object as being deleted: time, finalizers of the propagation, phase.
pub fn mark(resource: &Resource, object: &mut Object, options: &Options, now: &str) {
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
    let finalizer =
        resource.strategy.deletion_finalizer().filter(|finalizer| first && !finalizers.iter().any(|f| f == finalizer));
    finalizers.extend(finalizer.map(str::to_owned));
    if finalizers != before {
        object::set_finalizers(object, &finalizers);
    }
    if !first {
        return;
    }
    let meta = metadata_mut(object);
    meta.insert("deletionTimestamp".into(), json!(now));
    meta.insert("deletionGracePeriodSeconds".into(), json!(0));
    if resource.strategy.generation() == Generation::Counted {
        let generation = meta.get("generation").and_then(Value::as_i64).unwrap_or(1);
        meta.insert("generation".into(), json!(generation + 1));
    }
    resource.strategy.begin_deletion(object, now);
}
