//! Validation before an object is stored: its metadata, its owners, and the rules of its kind.

use crate::change::Change;
use crate::fields::managed;
use crate::meta;
use crate::object::{self, Object, metadata};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::strategy::{Findings, MetadataChecks, Writing};

/// Warns about what is valid but unwise.
pub fn warn(resource: &Resource, object: &Object, old: Option<&Object>, change: &Change) {
    let writing = Writing { resource, old, sub: &change.sub };
    resource.strategy.warnings(&writing, object).into_iter().for_each(|w| change.warn(w));
}

/// Validates an object before it is stored; `old` is its former state. Violations by unchanged values become
/// warnings.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>, change: &Change) -> ApiResult<()> {
    let (strategy, writing) = (resource.strategy, Writing { resource, old, sub: &change.sub });
    let (checks, mut found) = (strategy.metadata_checks(), Findings::default());
    // Upstream validates a new core Event first, and its metadata only if the rest is valid.
    let metadata_last = checks == MetadataChecks::CoreEvent && old.is_none();
    if metadata_last {
        strategy.validate(&writing, object, &mut found);
    }
    let errors = &mut found.errors;
    match old {
        _ if !errors.is_empty() => {}
        None => meta::validate(resource, object, errors),
        Some(old) if checks == MetadataChecks::CoreEvent => meta::validate_changed_event(object, old, errors),
        Some(old) => meta::validate_update(object, old, checks == MetadataChecks::CoreTwice, errors),
    }
    managed::validate(metadata(object).get("managedFields"), errors);
    if matches!(checks, MetadataChecks::Core | MetadataChecks::CoreTwice) {
        meta::core_finalizers(object, errors);
    }
    if !metadata_last {
        strategy.validate(&writing, object, &mut found);
    }
    found.warnings.into_iter().for_each(|w| change.warn(w));
    if found.errors.is_empty() {
        return Ok(());
    }
    let group = strategy.view_of().unwrap_or(&resource.group);
    Err(ApiError::invalid(group, &resource.kind, object::name(object), &found.errors))
}
