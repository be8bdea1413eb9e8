//! Who owns which field (`metadata.managedFields`), and server-side apply.
//!
//! A write goes through one of two doors: [`Scope::update`] when a client says what the whole object shall be (create,
//! update, the other patches), [`apply::apply`] when it says what it wants of it. Both compare the object's two
//! states by its type ([`types`], the crate `structured_merge`), take what changed from its former owners and give it to the writer.
//! Field sets are stored per manager ([`managed`]) and parsed only when a change touches them.
//!
//! The rules are upstream's: apimachinery `util/managedfields` and structured-merge-diff v6.

pub mod apply;
mod last_applied;
pub mod managed;
pub mod options;
pub mod scale;
mod types;

use std::borrow::Cow;

use serde_json::Value;
use structured_merge::{Comparison, Element, Set, compare, equal, fits, reconcile, touches};

use crate::builtin::{canonical, strategy};
use crate::object::{self, Object, metadata, metadata_mut};
use crate::resource::{Catalog, Flavor, Resource};
use managed::{Entry, Fields, Operation};
use types::Ty;

/// Metadata that nobody owns.
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

/// Where a write goes to and who makes it.
pub struct Scope<'a> {
    /// The resource, in the version of the request.
    pub resource: &'a Resource,
    /// For the other versions that fields are named in.
    pub catalog: &'a Catalog,
    /// Subresource, empty for the object itself.
    pub sub: &'a str,
    /// Name of the manager.
    pub manager: &'a str,
}

/// A field that another manager owns with another value.
struct Conflict {
    /// Index of the manager's entry.
    entry: usize,
    /// The fields.
    fields: Set,
}

/// What a change does to the owners of what it changes.
struct Settled {
    /// The differences, without what is reset or nobody's.
    comparison: Comparison,
    /// Fields taken from managers.
    conflicts: Vec<Conflict>,
    /// The entries after it.
    entries: Vec<Entry>,
}

impl<'a> Scope<'a> {
    /// Brings `metadata.managedFields` of `new` up to date, which a client wants in place of `live` (`None` if it is
    /// created). What the client says of owners is taken if it is sound.
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
            // Nobody is tracked: that begins with the first apply.
            return;
        }
        // What cannot be compared has no owners any more, as upstream has it.
        let entries =
            if self.rest_fits(live, new) { self.updated(live, new, entries, self.manager).ok() } else { None };
        set_entries(new, entries.unwrap_or_default());
    }

    /// Whether what such a write leaves aside fits its type all the same. Nobody else looks at it.
    fn rest_fits(&self, live: Option<&Object>, new: &Object) -> bool {
        let aside = |key: &str| match self.sub {
            "" => self.resource.status && key == "status",
            "status" => !matches!(key, "apiVersion" | "kind" | "metadata" | "status"),
            _ => false,
        };
        let ty = Ty::of(self.resource);
        let same = |key: &str, value: &Value| live.and_then(|l| l.get(key)) == Some(value);
        !matches!(self.resource.flavor, Flavor::Custom { .. })
            || new.iter().filter(|(key, _)| aside(key)).all(|(key, value)| same(key, value) || fits(ty, key, value))
    }

    /// The entries after `manager` wrote `new` over `live`.
    fn updated(
        &self,
        live: Option<&Object>,
        new: &Object,
        entries: Vec<Entry>,
        manager: &str,
    ) -> Result<Vec<Entry>, String> {
        let nothing = if live.is_none() { self.nothing() } else { Object::new() };
        let Settled { comparison, mut entries, .. } = self.settle(live.unwrap_or(&nothing), new, entries, None)?;
        let gained = comparison.changed();
        if !gained.is_empty() {
            let mut own = self.entry(manager, Operation::Update);
            // Upstream computes the owners of a scale on an object of another kind, and loses the time on the way.
            own.time = (self.sub != "scale").then(|| jiff::Timestamp::now().as_second());
            let mut set = gained;
            if let Some(at) = entries.iter().position(|e| e.same_manager(&own)) {
                set = set.union(&entries.remove(at).set());
            }
            own.fields = Fields::Set(set);
            entries.push(own);
        }
        managed::cap(&mut entries);
        Ok(entries)
    }

    /// What an object is before it is made: own kinds have members that are always there.
    fn nothing(&self) -> Object {
        let mut object = Object::new();
        object.insert("apiVersion".into(), Value::from(self.resource.api_version()));
        object.insert("kind".into(), Value::from(self.resource.kind.as_str()));
        if let Flavor::Builtin(def) = &self.resource.flavor {
            canonical::settle(def, &mut object);
        }
        object
    }

    /// An entry of this scope without fields.
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

    /// Takes what differs between two states from all managers but `own`.
    fn settle(&self, live: &Object, new: &Object, entries: Vec<Entry>, own: Option<usize>) -> Result<Settled, String> {
        let here = self.resource.api_version();
        let comparison = self.compare(self.resource, live, new)?.without(&self.reset());
        let mut others: Vec<(String, Option<Comparison>)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut kept = Vec::with_capacity(entries.len());
        for (at, mut entry) in entries.into_iter().enumerate() {
            if own == Some(at) {
                kept.push(Some(entry));
                continue;
            }
            let differs = if entry.api_version == here {
                Some(&comparison)
            } else {
                if !others.iter().any(|(version, _)| *version == entry.api_version) {
                    others.push((entry.api_version.clone(), self.compare_in(&entry.api_version, live, new)?));
                }
                others.iter().find(|(version, _)| *version == entry.api_version).and_then(|(_, c)| c.as_ref())
            };
            // Fields of a version that is not served any more are nobody's.
            let Some(differs) = differs else {
                kept.push(None);
                continue;
            };
            if let Some(taken) = self.take(&mut entry, differs) {
                conflicts.push(Conflict { entry: at, fields: taken });
            }
            kept.push(Some(entry));
        }
        // Conflicts name entries by their place: those that are left are put together only after them.
        let places: Vec<usize> = kept
            .iter()
            .scan(0, |next, entry| {
                let place = *next;
                *next += usize::from(entry.is_some());
                Some(place)
            })
            .collect();
        for conflict in &mut conflicts {
            conflict.entry = places.get(conflict.entry).copied().unwrap_or_default();
        }
        Ok(Settled { comparison, conflicts, entries: kept.into_iter().flatten().collect() })
    }

    /// Takes from an entry what differs; gives what it owned of the new values' fields.
    fn take(&self, entry: &mut Entry, differs: &Comparison) -> Option<Set> {
        if differs.is_empty() {
            return None;
        }
        let changed = differs.changed();
        if let Fields::Raw(raw) = &entry.fields
            && !touches(raw, &changed)
            && !touches(raw, &differs.removed)
        {
            return None;
        }
        let set = self.reconciled(entry);
        let conflict = set.intersection(&changed);
        let left = set.difference(&conflict).difference(&differs.removed);
        entry.fields = Fields::Set(left);
        (!conflict.is_empty()).then_some(conflict)
    }

    /// The fields of an entry after changes of the schema.
    fn reconciled(&self, entry: &Entry) -> Set {
        match self.version(&entry.api_version) {
            Some(resource) => reconcile(Ty::of(resource), &entry.set()),
            None => entry.set().into_owned(),
        }
    }

    fn compare(&self, resource: &Resource, live: &Object, new: &Object) -> Result<Comparison, String> {
        Ok(compare(Ty::of(resource), live, new)?.minus(&unowned()))
    }

    /// What differs in the words of another version; `None` if that is not served.
    fn compare_in(&self, api_version: &str, live: &Object, new: &Object) -> Result<Option<Comparison>, String> {
        let Some(resource) = self.version(api_version) else { return Ok(None) };
        let (live, new) = (self.view(resource, live), self.view(resource, new));
        self.compare(resource, &live, &new).map(Some)
    }

    /// The same kind in another version.
    fn version(&self, api_version: &str) -> Option<&'a Resource> {
        if api_version == self.resource.api_version() {
            return Some(self.resource);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self.catalog.find(group, version, &self.resource.plural)?;
        let same = found.storage == self.resource.storage;
        same.then_some(found.as_ref())
    }

    /// An object of this scope's version in another one.
    fn view<'o>(&self, resource: &Resource, object: &'o Object) -> Cow<'o, Object> {
        let (from, to) = (self.resource.api_version(), resource.api_version());
        if from == to {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        convert(&from, resource, &mut object);
        Cow::Owned(object)
    }

    /// Fields that a write of this scope cannot change (`GetResetFields` of upstream's strategies).
    fn reset(&self) -> Set {
        let definition = self.resource.group == "apiextensions.k8s.io";
        let policy = self.resource.is("admissionregistration.k8s.io", "validatingadmissionpolicies");
        match self.sub {
            "" if self.resource.status => paths([&["status"][..]]),
            "finalize" => paths([&["status"][..]]),
            "status" if definition || policy => paths([&["metadata"][..], &["spec"][..]]),
            "status" => paths([&["spec"][..]]),
            _ => Set::default(),
        }
    }
}

/// Drops members of metadata that say nothing: they are not stored either.
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

/// Brings an object into another version, without a webhook.
fn convert(from: &str, to: &Resource, object: &mut Object) {
    match &to.flavor {
        Flavor::Custom { schema, .. } => crate::crd::prune::prune(schema, object, &mut Vec::new()),
        Flavor::Builtin(_) if to.group == "events.k8s.io" => strategy::event_to_events_v1(object),
        Flavor::Builtin(_) if from == "events.k8s.io/v1" => strategy::event_from_events_v1(object),
        Flavor::Builtin(_) => {}
    }
    object.insert("apiVersion".into(), Value::from(to.api_version()));
}

fn paths<'p>(all: impl IntoIterator<Item = &'p [&'p str]>) -> Set {
    let mut set = Set::default();
    for path in all {
        set.add(path.iter().map(|name| Element::Field((*name).to_owned())).collect());
    }
    set
}

/// Type and identity of an object: no set names them.
fn unowned() -> Set {
    let mut set = paths([&["apiVersion"][..], &["kind"][..], &["metadata"][..]]);
    for name in UNOWNED {
        set.add(vec![Element::Field("metadata".to_owned()), Element::Field((*name).to_owned())]);
    }
    set
}

/// Writes the entries that own something into an object.
fn set_entries(object: &mut Object, mut entries: Vec<Entry>) {
    entries.retain(|e| !e.is_empty());
    match managed::encode(entries) {
        Some(value) => metadata_mut(object).insert("managedFields".into(), value),
        None => metadata_mut(object).shift_remove("managedFields"),
    };
}

/// Keeps the times of managers if nothing but them differs: then nothing is written
/// (apiserver `endpoints/handlers/fieldmanager/equality.go`).
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
