//! Server-side apply: merges the configuration of one manager into the object, and removes what the manager gave up
//! (structured-merge-diff v6 `merge/update.go`; apimachinery `managedfields/internal`: `structuredmerge.go`,
//! `skipnonapplied.go`, `managedfieldsupdater.go`, `conflict.go`).

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::Value;
use structured_merge::{Element, Set, check, equal_objects, merge, remove, to_set, with_named};

use super::managed::{self, Entry, Fields, Operation};
use super::types::Ty;
use super::{OwnershipChange, Scope, last_applied, set_entries, unowned};
use crate::object::{self, Object, meta_str, metadata, metadata_mut};
use crate::status::{ApiError, ApiResult, Cause, Details, StatusReason};

/// Manager of fields from before the first apply.
const BEFORE: &str = "before-first-apply";
/// The manager for which client-side apply's annotation is maintained.
const KUBECTL: &str = "kubectl";

/// A conflicting field of another manager.
pub(super) struct Obstacle {
    /// The manager's entry.
    pub entry: Entry,
    /// The field.
    pub path: Vec<Element>,
}

/// Why an apply fails.
pub(super) enum Failure {
    /// Other managers own fields with other values.
    Conflicts(Vec<Obstacle>),
    /// Anything else.
    Other(ApiError),
}

/// The result of a merge.
struct Merged {
    /// The object, without its entries.
    object: Object,
    /// Its entries.
    entries: Vec<Entry>,
}

/// A failure without a reason, as upstream.
fn failed(text: String) -> Failure {
    Failure::Other(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text))
}

/// Applies a configuration to the live object (`None` creates it). The result has its owners in
/// `metadata.managedFields`, but no defaults yet.
pub fn apply(scope: &Scope<'_>, live: Option<&Object>, config: &Object, force: bool) -> ApiResult<Object> {
    suits(scope, config)?;
    let entries = managed::decode(live.and_then(|l| metadata(l).get("managedFields")), false).map_err(|e| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            StatusReason::Unknown,
            format!("failed to decode managed fields: {e}"),
        )
    })?;
    let bare = match live {
        Some(live) => {
            let mut bare = live.clone();
            metadata_mut(&mut bare).shift_remove("managedFields");
            bare
        }
        None => scope.nothing(),
    };
    let mut outcome = run(scope, live.is_some(), &bare, config, entries.clone(), force);
    if let Err(Failure::Conflicts(obstacles)) = outcome {
        // Fields last written by client-side apply belong to kubectl, whatever the entries name.
        outcome = match last_applied::allowed(scope, &bare) {
            Some(applied) if scope.manager == KUBECTL => {
                let hard: Vec<Obstacle> =
                    obstacles.into_iter().filter(|o| !last_applied::has(&applied, &o.path)).collect();
                if hard.is_empty() {
                    run(scope, live.is_some(), &bare, config, entries, true)
                } else {
                    Err(Failure::Conflicts(hard))
                }
            }
            _ => Err(Failure::Conflicts(obstacles)),
        };
    }
    let Merged { mut object, entries } = outcome.map_err(|failure| match failure {
        Failure::Conflicts(obstacles) => conflict(obstacles),
        Failure::Other(error) => error,
    })?;
    if scope.manager == KUBECTL {
        last_applied::renew(&mut object, config);
    }
    set_entries(&mut object, entries);
    Ok(object)
}

/// Checks that the configuration has the kind and version of the request, and no managed fields.
fn suits(scope: &Scope<'_>, config: &Object) -> ApiResult<()> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != scope.resource.api_version() || kind != scope.resource.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {}", called(api_version, kind))));
    }
    if metadata(config).get("managedFields").is_some_and(Value::is_array) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// A kind as Go prints it.
fn called(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

fn run(
    scope: &Scope<'_>,
    exists: bool,
    live: &Object,
    config: &Object,
    mut entries: Vec<Entry>,
    force: bool,
) -> Result<Merged, Failure> {
    if entries.is_empty() && exists {
        entries = scope
            .updated(None, live, entries, BEFORE)
            .map_err(|e| failed(format!("failed to create manager for existing fields: {e}")))?;
    }
    let ty = Ty::of(scope.resource);
    if let Some(text) = check(ty, config).into_text() {
        let (ns, name) = (meta_str(config, "namespace"), object::name(config));
        let kind = called(&scope.resource.api_version(), &scope.resource.kind);
        return Err(failed(format!("failed to create typed patch object ({ns}/{name}; {kind}): {text}")));
    }
    entries = scope.known(live, entries).map_err(failed)?;
    let mut merged = merge(ty, live, config).map_err(|e| failed(format!("failed to merge config: {e}")))?;
    let wanted = to_set(ty, config).recursive_difference(&scope.reset());
    let mut entry = scope.entry(scope.manager, Operation::Apply);
    entry.fields = Fields::Set(wanted);
    let former = entries.iter().position(|e| e.same_manager(&entry)).map(|at| entries.remove(at));
    entry.time = former.as_ref().and_then(|f| f.time);
    entries.push(entry);
    let place = entries.len() - 1;
    if let Some(former) = former {
        merged =
            give_up(scope, merged, &entries, &former).map_err(|e| failed(format!("failed to prune fields: {e}")))?;
    }
    let OwnershipChange { conflicts, mut entries, .. } =
        scope.change_ownership(live, &merged, entries, Some(place)).map_err(failed)?;
    if !force && !conflicts.is_empty() {
        let mut obstacles = Vec::new();
        for found in conflicts {
            let entry = entries.get(found.entry).cloned();
            let fields = found.fields.members();
            obstacles.extend(
                entry.into_iter().flat_map(|entry| {
                    fields.clone().into_iter().map(move |path| Obstacle { entry: entry.clone(), path })
                }),
            );
        }
        return Err(Failure::Conflicts(obstacles));
    }
    let changed = !equal_objects(live, &merged);
    if let Some(entry) = entries.last_mut() {
        entry.fields = Fields::Set(entry.set().difference(unowned()));
        if changed {
            entry.time = Some(scope.now.as_second());
        }
    }
    Ok(Merged { object: merged, entries })
}

/// Removes fields that the manager applied before but not now, unless others own them.
fn give_up(scope: &Scope<'_>, merged: Object, entries: &[Entry], former: &Entry) -> Result<Object, String> {
    let last = scope.reconciled(former);
    let keeps = |e: &Entry| e.api_version == former.api_version && last.difference(&e.set()).is_empty();
    if last.is_empty() || entries.last().is_some_and(keeps) {
        return Ok(merged);
    }
    let Some(resource) = scope.version(&former.api_version)? else { return Ok(merged) };
    let ty = Ty::of(resource);
    let last = with_named(ty, &last);
    let merged = scope
        .between(scope.resource, resource, &merged)
        .map_err(|e| format!("failed to convert merged object to last applied version: {e}"))?;
    let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
    for entry in entries {
        let set = owned.entry(&entry.api_version).or_default();
        *set = set.union(&scope.reconciled(entry));
    }
    // As upstream, the version of the former configuration comes first.
    let first = owned.remove_entry(former.api_version.as_str());
    let (mut at, mut whole, mut pruned) = (resource, merged.clone(), remove(ty, &merged, &last));
    for (version, owned) in first.into_iter().chain(owned) {
        let Some(other) = scope.version(version)? else { continue };
        let convert = |object: &Object, which: &str| {
            let at_version =
                |e| format!("failed add back owned items: failed to convert {which} object at version {version}: {e}");
            scope.between(at, other, object).map_err(at_version)
        };
        (whole, pruned) = (convert(&whole, "merged")?, convert(&pruned, "pruned")?);
        pruned = keep_owned(Ty::of(other), &whole, &pruned, &owned);
        at = other;
    }
    let pruned = scope.between(at, resource, &pruned).map_err(|e| {
        format!("failed add back dangling items: failed to convert pruned object to last applied version: {e}")
    })?;
    // Only the manager's own fields are removed; unowned fields are kept.
    let gone = with_named(ty, &to_set(ty, &merged)).difference(&with_named(ty, &to_set(ty, &pruned)));
    let left = remove(ty, &merged, &gone.intersection(&last));
    scope.between(resource, scope.resource, &left)
}

fn keep_owned(ty: Ty<'_>, whole: &Object, pruned: &Object, owned: &Set) -> Object {
    let kept = with_named(ty, &to_set(ty, pruned)).union(&with_named(ty, owned));
    remove(ty, whole, &with_named(ty, &to_set(ty, whole)).difference(&kept))
}

/// 409 with all conflicting fields and their owners.
fn conflict(mut obstacles: Vec<Obstacle>) -> ApiError {
    obstacles.sort_by_cached_key(|o| o.entry.identity());
    let path = |o: &Obstacle| o.path.iter().map(ToString::to_string).collect::<String>();
    let causes = obstacles.iter().map(|o| Cause {
        reason: "FieldManagerConflict",
        message: format!("conflict with {}", o.entry.called()),
        field: path(o),
    });
    let causes: Vec<Cause> = causes.collect();
    let message = match obstacles.as_slice() {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.entry.called(), path(one)),
        many => {
            let mut lines: Vec<String> = Vec::new();
            let mut last = String::new();
            for obstacle in many {
                let identity = obstacle.entry.identity();
                if identity != last {
                    lines.push(format!("conflicts with {}:", obstacle.entry.called()));
                    last = identity;
                }
                lines.push(format!("- {}", path(obstacle)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut error = ApiError::new(StatusCode::CONFLICT, StatusReason::Conflict, message);
    error.details = Some(Box::new(Details { causes, ..Details::default() }));
    error
}
