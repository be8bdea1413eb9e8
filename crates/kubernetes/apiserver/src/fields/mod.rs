//! Field ownership (`metadata.managedFields`) and server-side apply.
//!
//! Writes use one of two entry points: [`Scope::update`] if the client sends the whole object (create, update, the
//! other patches), [`apply::apply`] if it sends a configuration. Both compare the two states of the object by its
//! type ([`types`], the crate `structured_merge`), and move ownership of changed fields from former owners to the
//! writer. Field sets are stored per manager ([`managed`]) and parsed only when a change touches them.
//!
//! The rules are upstream's: apimachinery `util/managedfields` and structured-merge-diff v6.

pub mod apply;
mod last_applied;
pub mod managed;
pub mod options;
pub mod scale;
mod types;
pub mod views;

use std::sync::LazyLock;

use core_kinds::canonical;
use jiff::Timestamp;
use serde_json::Value;
use structured_merge::{Comparison, Element, Set, check, compare, equal, is_valid_member, reconcile, touches};

use crate::object::{self, Object, metadata, metadata_mut};
use crate::resource::{Catalog, Flavor, Resource};
use managed::{Entry, Fields, Operation};
use types::Ty;
use views::Views;

/// Metadata fields without owners.
const UNOWNED: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The context of a write.
pub struct Scope<'a> {
    /// The resource, in the version of the request.
    pub resource: &'a Resource,
    /// For other versions that field owners refer to.
    pub catalog: &'a Catalog,
    /// Subresource, empty for the object itself.
    pub sub: &'a str,
    /// Name of the manager.
    pub manager: &'a str,
    /// The object in other versions.
    pub views: &'a Views,
    /// The time of the write.
    pub now: Timestamp,
}

/// Fields that another manager owns with other values.
struct Conflict {
    /// Index of the manager's entry.
    entry: usize,
    /// The fields.
    fields: Set,
}

/// The effect of a change on field owners.
struct OwnershipChange {
    /// The differences, without reset and unowned fields.
    comparison: Comparison,
    /// Fields taken from other managers.
    conflicts: Vec<Conflict>,
    /// The resulting entries.
    entries: Vec<Entry>,
}

impl<'a> Scope<'a> {
    /// Updates `metadata.managedFields` of `new`, with which a client replaces `live` (`None` if it is new). A valid
    /// list of managers from the client is accepted.
    pub fn update(&self, live: Option<&Object>, new: &mut Object) {
        let given = metadata_mut(new).shift_remove("managedFields");
        drop_empty(metadata_mut(new));
        let stored = live.and_then(|l| metadata(l).get("managedFields"));
        let entries = match &given {
            Some(given) if self.sub.is_empty() && Some(given) != stored => {
                if managed::is_reset(given) {
                    Ok(Vec::new())
                } else {
                    match managed::decode(Some(given), true) {
                        Ok(entries) if !entries.is_empty() => Ok(entries),
                        _ => managed::decode(stored, false),
                    }
                }
            }
            _ => managed::decode(stored, false),
        };
        let entries = entries.unwrap_or_default();
        if entries.is_empty() && live.is_some() {
            // No ownership is tracked until the first apply.
            return;
        }
        // As upstream, objects that cannot be compared lose their owners.
        let entries =
            if self.rest_is_valid(live, new) { self.updated(live, new, entries, self.manager).ok() } else { None };
        set_entries(new, entries.unwrap_or_default());
    }

    /// Whether the fields that such a write ignores match their types. Nothing else checks them.
    fn rest_is_valid(&self, live: Option<&Object>, new: &Object) -> bool {
        let aside = |key: &str| match self.sub {
            "" => self.resource.status && key == "status",
            "status" => !matches!(key, "apiVersion" | "kind" | "metadata" | "status"),
            _ => false,
        };
        let ty = Ty::of(self.resource);
        let same = |key: &str, value: &Value| live.and_then(|l| l.get(key)) == Some(value);
        !matches!(self.resource.flavor, Flavor::Custom { .. })
            || new
                .iter()
                .filter(|(key, _)| aside(key))
                .all(|(key, value)| same(key, value) || is_valid_member(ty, key, value))
    }

    /// The entries after `manager` replaced `live` by `new`.
    fn updated(
        &self,
        live: Option<&Object>,
        new: &Object,
        entries: Vec<Entry>,
        manager: &str,
    ) -> Result<Vec<Entry>, String> {
        let nothing = if live.is_none() { self.nothing() } else { Object::new() };
        let live = live.unwrap_or(&nothing);
        let entries = self.known(live, entries)?;
        let OwnershipChange { comparison, mut entries, .. } = self.change_ownership(live, new, entries, None)?;
        let gained = comparison.changed();
        if !gained.is_empty() {
            let mut entry = self.entry(manager, Operation::Update);
            // Upstream computes the owners of a scale on an object of another kind, which loses the time.
            entry.time = (self.sub != "scale").then(|| self.now.as_second());
            let mut set = gained;
            if let Some(at) = entries.iter().position(|e| e.same_manager(&entry)) {
                set = set.union(&entries.remove(at).set());
            }
            entry.fields = Fields::Set(set);
            entries.push(entry);
        }
        managed::cap(&mut entries);
        Ok(entries)
    }

    /// The state before a create: built-in kinds have members that are always present.
    fn nothing(&self) -> Object {
        let mut object = Object::new();
        object.insert("apiVersion".into(), Value::from(self.resource.api_version()));
        object.insert("kind".into(), Value::from(self.resource.kind.as_str()));
        if let Flavor::Builtin(def) = &self.resource.flavor {
            canonical::canonicalize(def, &mut object);
        }
        object
    }

    /// An empty entry of this scope.
    fn entry(&self, manager: &str, operation: Operation) -> Entry {
        Entry {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            api_version: self.resource.api_version(),
            subresource: self.sub.to_owned(),
            time: None,
            fields: Fields::Set(Set::default()),
        }
    }

    /// Removes changed fields from all managers but the one of the entry `applier`.
    fn change_ownership(
        &self,
        live: &Object,
        new: &Object,
        entries: Vec<Entry>,
        applier: Option<usize>,
    ) -> Result<OwnershipChange, String> {
        let here = self.resource.api_version();
        let comparison = self.compare(self.resource, live, new)?.without(&self.reset());
        let changed = comparison.changed();
        let mut others: Vec<(String, Comparison, Set)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut kept = Vec::with_capacity(entries.len());
        for (at, mut entry) in entries.into_iter().enumerate() {
            if applier == Some(at) {
                kept.push(entry);
                continue;
            }
            let differs = if entry.api_version == here {
                Some((&comparison, &changed))
            } else {
                if !others.iter().any(|(version, ..)| *version == entry.api_version) {
                    let differs = self.compare_in(&entry.api_version, live, new)?;
                    let changed = differs.changed();
                    others.push((entry.api_version.clone(), differs, changed));
                }
                let found = others.iter().find(|(version, ..)| *version == entry.api_version);
                found.map(|(_, differs, changed)| (differs, changed))
            };
            if let Some(taken) = differs.and_then(|(differs, changed)| self.take(&mut entry, differs, changed)) {
                conflicts.push(Conflict { entry: at, fields: taken });
            }
            kept.push(entry);
        }
        Ok(OwnershipChange { comparison, conflicts, entries: kept })
    }

    /// Removes fields that differ, `changed` among them, from an entry. Returns those of them that have new values.
    fn take(&self, entry: &mut Entry, differs: &Comparison, changed: &Set) -> Option<Set> {
        if differs.is_empty() {
            return None;
        }
        if let Fields::Raw(raw) = &entry.fields
            && !touches(raw, changed)
            && !touches(raw, &differs.removed)
        {
            return None;
        }
        let set = self.reconciled(entry);
        let conflict = set.intersection(changed);
        let left = set.difference(&conflict).difference(&differs.removed);
        entry.fields = Fields::Set(left);
        (!conflict.is_empty()).then_some(conflict)
    }

    /// The entries whose versions exist. The live object must convert to each of these versions.
    fn known(&self, live: &Object, entries: Vec<Entry>) -> Result<Vec<Entry>, String> {
        let mut seen: Vec<String> = vec![self.resource.api_version()];
        let mut known = Vec::with_capacity(entries.len());
        for entry in entries {
            if !seen.contains(&entry.api_version) {
                // Fields in a version that no longer exists have no owner.
                let Some(resource) = self.version(&entry.api_version)? else { continue };
                self.between(self.resource, resource, live)?;
                seen.push(entry.api_version.clone());
            }
            known.push(entry);
        }
        Ok(known)
    }

    /// The fields of an entry, adapted to changes of the schema.
    fn reconciled(&self, entry: &Entry) -> Set {
        match self.version(&entry.api_version) {
            Ok(Some(resource)) => reconcile(Ty::of(resource), &entry.set()),
            _ => entry.set().into_owned(),
        }
    }

    fn compare(&self, resource: &Resource, live: &Object, new: &Object) -> Result<Comparison, String> {
        let differs = compare(Ty::of(resource), live, new).map_err(|e| format!("failed to compare objects: {e}"))?;
        Ok(differs.minus(unowned()))
    }

    /// The differences in another version.
    fn compare_in(&self, api_version: &str, live: &Object, new: &Object) -> Result<Comparison, String> {
        let Some(resource) = self.version(api_version)? else { return Ok(Comparison::default()) };
        let view = |object: &Object, which: &str| {
            let failed = |why| format!("failed to convert {which} object: {why}");
            self.between(self.resource, resource, object).map_err(failed)
        };
        self.compare(resource, &view(live, "old")?, &view(new, "new")?)
    }

    /// The same kind in another version; `None` if a built-in kind has no such version. For a custom resource an
    /// unknown version is upstream's converter error.
    fn version(&self, api_version: &str) -> Result<Option<&'a Resource>, String> {
        if api_version == self.resource.api_version() {
            return Ok(Some(self.resource));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        }
        let served = self.catalog.find(group, version, &self.resource.plural).map(AsRef::as_ref);
        let served = served.filter(|r| r.storage == self.resource.storage);
        let Flavor::Custom { versions, .. } = &self.resource.flavor else { return Ok(served) };
        if group != self.resource.group {
            let from = format!("{}, Kind={}", self.resource.api_version(), self.resource.kind);
            let to = gotext::quote(api_version);
            return Err(format!("{from} is unstructured and is not suitable for converting to {to}"));
        }
        let found = served.or_else(|| versions.as_ref()?.unserved(version));
        found.map(Some).ok_or_else(|| format!("request to convert CR to an invalid group/version: {api_version}"))
    }

    /// Converts an object to another version, by way of this scope's version. The result must match its type.
    fn between(&self, from: &Resource, to: &Resource, object: &Object) -> Result<Object, String> {
        let (before, after) = (from.api_version(), to.api_version());
        if before == after {
            return Ok(object.clone());
        }
        if matches!(to.flavor, Flavor::Builtin(_)) {
            let mut object = object.clone();
            convert(from, to, &mut object);
            return Ok(object);
        }
        let hub = self.resource.api_version();
        let object = match before == hub || after == hub {
            true => self.views.convert(object, &after)?,
            false => self.views.convert(&self.views.convert(object, &hub)?, &after)?,
        };
        match check(Ty::of(to), &object).into_text() {
            None => Ok(object),
            Some(faults) => Err(faults),
        }
    }

    /// Fields that a write of this scope cannot change (`GetResetFields` of upstream's strategies).
    fn reset(&self) -> Set {
        match self.sub {
            "" if self.resource.status => paths([&["status"][..]]),
            "finalize" => paths([&["status"][..]]),
            "status" => paths(self.resource.strategy.reset_by_status().iter().copied()),
            _ => Set::default(),
        }
    }
}

/// Drops empty members of metadata, which are not stored either.
fn drop_empty(meta: &mut Object) {
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

/// Converts an object of a built-in kind to another version.
fn convert(from: &Resource, to: &Resource, object: &mut Object) {
    from.strategy.to_stored(object);
    to.strategy.view_stored(object);
    object.insert("apiVersion".into(), Value::from(to.api_version()));
}

fn paths<'p>(all: impl IntoIterator<Item = &'p [&'p str]>) -> Set {
    let mut set = Set::default();
    for path in all {
        set.add(path.iter().map(|name| Element::Field((*name).to_owned())).collect());
    }
    set
}

/// The type and identity of an object, which are never owned.
fn unowned() -> &'static Set {
    static SET: LazyLock<Set> = LazyLock::new(|| {
        let mut set = paths([&["apiVersion"][..], &["kind"][..], &["metadata"][..]]);
        for name in UNOWNED {
            set.add(vec![Element::Field("metadata".to_owned()), Element::Field((*name).to_owned())]);
        }
        set
    });
    &SET
}

/// Writes all non-empty entries to an object.
fn set_entries(object: &mut Object, mut entries: Vec<Entry>) {
    entries.retain(|e| !e.is_empty());
    match managed::encode(entries) {
        Some(value) => metadata_mut(object).insert("managedFields".into(), value),
        None => metadata_mut(object).shift_remove("managedFields"),
    };
}

/// Keeps the managers' times if nothing else differs, so that nothing is written (apiserver
/// `endpoints/handlers/fieldmanager/equality.go`).
pub fn keep_times(new: &mut Object, old: &Object) {
    let entries = metadata(old).get("managedFields");
    let (same, times) = managed::same_but_times(metadata(new).get("managedFields"), entries);
    if !same || !times {
        return;
    }
    let unlike = |a: &Object, b: &Object| {
        a.iter().any(|(key, value)| {
            !matches!(key.as_str(), "managedFields" | "metadata" | "resourceVersion")
                && b.get(key).is_none_or(|other| !equal(value, other))
        })
    };
    let differ = |a: &Object, b: &Object| unlike(a, b) || unlike(metadata(a), metadata(b));
    if differ(new, old) || differ(old, new) {
        return;
    }
    if let Some(entries) = entries {
        object::metadata_mut(new).insert("managedFields".into(), entries.clone());
    }
}

#[cfg(test)]
mod tests;
