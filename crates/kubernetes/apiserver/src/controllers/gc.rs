//! Garbage collection by owner references: background, foreground and orphan.
//!
//! Only objects with owners are tracked, by the UIDs of their owners.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::change::Change;
use crate::meta::{FOREGROUND, ORPHAN};
use crate::object::{self, Object};
use crate::resource::Resource;
use crate::route::Verb;
use crate::status::{ApiError, ApiResult};
use crate::store::Event;
use crate::verbs::Backend;
use crate::verbs::deletion::{Options, Propagation};

/// User name of the collector.
const COLLECTOR: &str = "generic-garbage-collector";

/// Storage name, namespace and name of an object.
type Place = (Arc<str>, String, String);

#[derive(Deserialize, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    block_owner_deletion: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    uid: String,
    owner_references: Vec<Owner>,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

/// A work item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// Check whether the object's owners still exist.
    Owners(Place),
    /// Delete the dependents of the object if it is in foreground deletion.
    Foreground(Place),
    /// Orphan the dependents of the object.
    Orphan(Place),
}

/// The state of an owner.
enum Seen {
    Solid,
    Gone,
    WaitsForDependents,
}

/// The collector's state.
#[derive(Default)]
pub struct Collector {
    owners: BTreeMap<Place, Vec<Owner>>,
    dependents: HashMap<String, BTreeSet<Place>>,
    work: BTreeSet<Work>,
    /// Failed work items.
    failed: BTreeSet<Work>,
}

impl Collector {
    /// Notes a change.
    pub fn see(&mut self, backend: &Backend, event: &Event) {
        let found = object::metadata_of(&event.body);
        let Some(Meta { uid, owner_references, finalizers, deletion_timestamp }) = found else {
            return;
        };
        let place = (Arc::clone(&event.resource), event.ns.clone(), event.name.clone());
        if event.deleted {
            let before = self.disown(&place);
            let orphans = self.dependents.get(&uid).into_iter().flatten().cloned();
            self.work.extend(orphans.map(Work::Owners));
            self.wake(backend, before.iter(), &event.ns);
            return;
        }
        if deletion_timestamp.is_some() {
            if finalizers.iter().any(|f| f == ORPHAN) {
                self.work.insert(Work::Orphan(place.clone()));
            } else if finalizers.iter().any(|f| f == FOREGROUND) {
                self.work.insert(Work::Foreground(place.clone()));
            }
        }
        if self.owners.get(&place).map_or(owner_references.is_empty(), |known| *known == owner_references) {
            return;
        }
        let before = self.disown(&place);
        let now: HashMap<&str, &Owner> = owner_references.iter().map(|owner| (owner.uid.as_str(), owner)).collect();
        self.wake(backend, before.iter().filter(|owner| now.get(owner.uid.as_str()) != Some(owner)), &event.ns);
        if owner_references.is_empty() {
            return;
        }
        self.work.insert(Work::Owners(place.clone()));
        for owner in &owner_references {
            self.dependents.entry(owner.uid.clone()).or_default().insert(place.clone());
        }
        self.owners.insert(place, owner_references);
    }

    /// Forgets the owners of an object, and returns them.
    fn disown(&mut self, place: &Place) -> Vec<Owner> {
        let before = self.owners.remove(place).unwrap_or_default();
        for owner in &before {
            if let Some(set) = self.dependents.get_mut(&owner.uid) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        before
    }

    /// Rechecks former owners, which may wait for this dependent.
    fn wake<'o>(&mut self, backend: &Backend, owners: impl Iterator<Item = &'o Owner>, ns: &str) {
        for owner in owners {
            let resource = backend.registry.catalog().by_kind(&owner.api_version, &owner.kind).cloned();
            if let Some(resource) = resource {
                let ns = if resource.namespaced { ns.to_owned() } else { String::new() };
                self.work.insert(Work::Foreground((resource.storage.clone(), ns, owner.name.clone())));
            }
        }
    }

    /// Schedules failed work again.
    pub fn again(&mut self) {
        self.work.append(&mut self.failed);
    }

    /// Processes all work items. True if something must be retried.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        let todo = std::mem::take(&mut self.work);
        for work in todo {
            let done = match &work {
                Work::Owners(place) => self.check_owners(backend, place).await,
                Work::Foreground(place) => self.foreground(backend, place).await,
                Work::Orphan(place) => self.orphan(backend, place).await,
            };
            match done {
                Ok(()) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => {
                    tracing::debug!(%error, ?work, "garbage collection is tried again");
                    self.failed.insert(work);
                }
            }
        }
        !self.failed.is_empty()
    }

    /// Whether all owners that the object is known to have are there, as nearly always: then there is nothing to do, and it need not be read.
    async fn has_solid_owners(&self, backend: &Backend, place: &Place) -> ApiResult<bool> {
        let Some(resource) = backend.registry.catalog().by_storage(&place.0).cloned() else { return Ok(false) };
        let Some(owners) = self.owners.get(place) else { return Ok(false) };
        for owner in owners {
            if !matches!(look(backend, &resource, &place.1, owner).await?, Seen::Solid) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn check_owners(&self, backend: &Backend, place: &Place) -> ApiResult<()> {
        if self.has_solid_owners(backend, place).await? {
            return Ok(());
        }
        let Some((resource, object)) = load(backend, place).await? else { return Ok(()) };
        let owners = owners_of(&object);
        let (mut solid, mut waiting, mut loose) = (0, 0, Vec::new());
        for owner in &owners {
            match look(backend, &resource, &place.1, owner).await? {
                Seen::Solid => solid += 1,
                Seen::Gone => loose.push(owner.uid.clone()),
                Seen::WaitsForDependents => {
                    waiting += 1;
                    loose.push(owner.uid.clone());
                }
            }
        }
        if loose.is_empty() {
            return Ok(());
        }
        if solid > 0 {
            return release(backend, &resource, place, &loose).await;
        }
        let uid = object::meta_str(&object, "uid").to_owned();
        let has = |finalizer: &str| object::finalizers(&object).iter().any(|f| f == finalizer);
        let propagation = if waiting > 0 && self.dependents.contains_key(&uid) || has(FOREGROUND) {
            Propagation::Foreground
        } else if has(ORPHAN) {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        if object::is_deleting(&object) && propagation != Propagation::Foreground {
            return Ok(());
        }
        if waiting > 0 && !object::is_deleting(&object) && self.closes_circle(backend, &uid).await? {
            unblock(backend, &resource, place).await?;
        }
        let options = Options { propagation: Some(propagation), uid: Some(uid), ..Options::default() };
        let change = Change::by_controller(Verb::Delete, COLLECTOR);
        backend.remove(&change, &resource, &place.1, &place.2, &options).await.map(|_| ())
    }

    /// Whether a dependent of the object waits for its own dependents: in a cycle, each would wait for the next.
    async fn closes_circle(&self, backend: &Backend, uid: &str) -> ApiResult<bool> {
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            if let Some((_, object)) = load(backend, dependent).await?
                && waits_for_dependents(&object)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes the dependents of an object. Removes its finalizer once no dependent blocks it.
    async fn foreground(&mut self, backend: &Backend, place: &Place) -> ApiResult<()> {
        let Some((resource, object)) = load(backend, place).await? else { return Ok(()) };
        if !waits_for_dependents(&object) {
            return Ok(());
        }
        let uid = object::meta_str(&object, "uid").to_owned();
        let dependents: Vec<Place> = self.dependents.get(&uid).into_iter().flatten().cloned().collect();
        let mut blocked = false;
        for dependent in &dependents {
            let blocks = |owners: &Vec<Owner>| owners.iter().any(|o| o.uid == uid && o.block_owner_deletion);
            blocked |= self.owners.get(dependent).is_some_and(blocks);
            self.check_owners(backend, dependent).await?;
        }
        if blocked {
            return Ok(());
        }
        drop_finalizer(backend, &resource, place, FOREGROUND).await
    }

    async fn orphan(&self, backend: &Backend, place: &Place) -> ApiResult<()> {
        let Some((resource, object)) = load(backend, place).await? else { return Ok(()) };
        let uid = object::meta_str(&object, "uid").to_owned();
        let dependents: Vec<Place> = self.dependents.get(&uid).into_iter().flatten().cloned().collect();
        for dependent in &dependents {
            if let Some((resource, _)) = load(backend, dependent).await? {
                release(backend, &resource, dependent, std::slice::from_ref(&uid)).await?;
            }
        }
        drop_finalizer(backend, &resource, place, ORPHAN).await
    }
}

fn owners_of(object: &Object) -> Vec<Owner> {
    object::metadata(object)
        .get("ownerReferences")
        .and_then(|v| serde_json::from_value(v.clone()).ok())
        .unwrap_or_default()
}

async fn load(backend: &Backend, place: &Place) -> ApiResult<Option<(Arc<Resource>, Object)>> {
    let Some(resource) = backend.registry.catalog().by_storage(&place.0).cloned() else { return Ok(None) };
    let Some(stored) = backend.stored(&resource.key(&place.1, &place.2)).await? else { return Ok(None) };
    let object = backend.load(&resource, &stored)?;
    Ok(Some((resource, object)))
}

async fn look(backend: &Backend, dependent: &Resource, ns: &str, owner: &Owner) -> ApiResult<Seen> {
    let catalog = backend.registry.catalog();
    let Some(resource) = catalog.by_kind(&owner.api_version, &owner.kind) else {
        // The owner's kind is not served, so its state is unknown: keep the object.
        return Ok(Seen::Solid);
    };
    if resource.namespaced && !dependent.namespaced {
        // A cluster-scoped object cannot have a namespaced owner: keep the object.
        return Ok(Seen::Solid);
    }
    let ns = if resource.namespaced { ns } else { "" };
    let Some(stored) = backend.stored(&resource.key(ns, &owner.name)).await? else { return Ok(Seen::Gone) };
    let meta: Meta =
        object::metadata_of(&stored.tail).ok_or_else(|| ApiError::internal("a stored object is damaged"))?;
    if meta.uid != owner.uid {
        return Ok(Seen::Gone);
    }
    let waits = meta.deletion_timestamp.is_some() && meta.finalizers.iter().any(|f| f == FOREGROUND);
    Ok(if waits { Seen::WaitsForDependents } else { Seen::Solid })
}

/// Whether an object is in foreground deletion.
fn waits_for_dependents(object: &Object) -> bool {
    object::is_deleting(object) && object::finalizers(object).iter().any(|f| f == FOREGROUND)
}

/// Clears `blockOwnerDeletion`, so that owners can be deleted before this object.
async fn unblock(backend: &Backend, resource: &Resource, place: &Place) -> ApiResult<()> {
    let make = |before: &Object| {
        let mut next = unversioned(before);
        if let Some(Value::Array(list)) = object::metadata_mut(&mut next).get_mut("ownerReferences") {
            for owner in list.iter_mut().filter_map(Value::as_object_mut) {
                if owner.get("blockOwnerDeletion") == Some(&Value::Bool(true)) {
                    owner.insert("blockOwnerDeletion".into(), Value::Bool(false));
                }
            }
        }
        Ok(next)
    };
    ignore_missing(
        backend.change(&Change::by_controller(Verb::Patch, COLLECTOR), resource, &place.1, &place.2, make).await,
    )
}

/// Removes owner references.
async fn release(backend: &Backend, resource: &Resource, place: &Place, uids: &[String]) -> ApiResult<()> {
    let make = |before: &Object| {
        let mut next = unversioned(before);
        if let Some(Value::Array(list)) = object::metadata_mut(&mut next).get_mut("ownerReferences") {
            list.retain(|o| !uids.iter().any(|u| o.get("uid").and_then(Value::as_str) == Some(u)));
        }
        Ok(next)
    };
    ignore_missing(
        backend.change(&Change::by_controller(Verb::Patch, COLLECTOR), resource, &place.1, &place.2, make).await,
    )
}

async fn drop_finalizer(backend: &Backend, resource: &Resource, place: &Place, finalizer: &str) -> ApiResult<()> {
    let make = |before: &Object| {
        let mut next = unversioned(before);
        let left: Vec<String> = object::finalizers(before).into_iter().filter(|f| f != finalizer).collect();
        object::set_finalizers(&mut next, &left);
        Ok(next)
    };
    ignore_missing(
        backend.change(&Change::by_controller(Verb::Patch, COLLECTOR), resource, &place.1, &place.2, make).await,
    )
}

fn ignore_missing<T>(result: ApiResult<T>) -> ApiResult<()> {
    match result {
        Err(ApiError { code: 404, .. }) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A copy without resourceVersion, so that it can be stored over any version.
pub fn unversioned(object: &Object) -> Object {
    let mut next = object.clone();
    object::metadata_mut(&mut next).shift_remove("resourceVersion");
    next
}
