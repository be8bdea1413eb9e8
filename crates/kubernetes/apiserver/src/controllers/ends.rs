//! Deletion of namespaces and definitions: their objects are deleted first.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::gc::unversioned;
use crate::change::Change;
use crate::object::{self, Object};
use crate::objects::store_failed;
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Guard, WriteError};
use crate::strategies::custom_resource_definition::lifecycle::{self, CLEANUP};
use crate::verbs::deletion::{Options, Propagation};
use crate::verbs::{Backend, write_failed};

/// Objects read and deleted at once.
const PAGE: usize = 64;

/// Namespaces and definitions in deletion.
#[derive(Default)]
pub struct Ends {
    namespaces: BTreeSet<String>,
    definitions: BTreeSet<String>,
    /// Those to process because something changed.
    due_namespaces: BTreeSet<String>,
    due_definitions: BTreeSet<String>,
}

impl Ends {
    /// Notes a change: a namespace or definition enters deletion, or one of its objects is removed.
    pub fn see(&mut self, event: &Event) {
        let (set, due) = match &*event.resource {
            "namespaces" => (&mut self.namespaces, &mut self.due_namespaces),
            "apiextensions.k8s.io/customresourcedefinitions" => (&mut self.definitions, &mut self.due_definitions),
            _ => return self.see_content(event),
        };
        let going = object::from_tail("", "", event.rev, &event.body).is_ok_and(|o| object::is_deleting(&o));
        if going && !event.deleted {
            // Later changes are mostly this controller's own status updates.
            if set.insert(event.name.clone()) {
                due.insert(event.name.clone());
            }
        } else {
            set.remove(&event.name);
            due.remove(&event.name);
        }
    }

    fn see_content(&mut self, event: &Event) {
        if !event.deleted {
            return;
        }
        if self.namespaces.contains(&event.ns) {
            self.due_namespaces.insert(event.ns.clone());
        }
        if let Some((group, plural)) = event.resource.split_once('/').filter(|_| !self.definitions.is_empty()) {
            let name = format!("{plural}.{group}");
            if self.definitions.contains(&name) {
                self.due_definitions.insert(name);
            }
        }
    }

    /// Schedules everything unfinished again.
    pub fn again(&mut self) {
        self.due_namespaces.extend(self.namespaces.iter().cloned());
        self.due_definitions.extend(self.definitions.iter().cloned());
    }

    /// Processes noted changes. True if something must be retried.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        for name in std::mem::take(&mut self.due_namespaces) {
            if finished(end_namespace(backend, &name).await, &name) {
                self.namespaces.remove(&name);
            }
        }
        for name in std::mem::take(&mut self.due_definitions) {
            if finished(end_definition(backend, &name).await, &name) {
                self.definitions.remove(&name);
            }
        }
        !self.namespaces.is_empty() || !self.definitions.is_empty()
    }
}

fn finished(result: ApiResult<bool>, name: &str) -> bool {
    match result {
        Ok(done) => done,
        Err(error) => {
            tracing::debug!(%error, name, "the end of a namespace or definition is tried again");
            false
        }
    }
}

/// Deletes every object of a resource, continuing after refusals. The error is the first refusal.
async fn empty(backend: &Backend, change: &Change, resource: &Resource, ns: &str) -> ApiResult<()> {
    let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
    let (mut after, mut first) = (None, Ok(()));
    loop {
        let page = backend.page(resource, ns, &Selector::default(), None, after, Some(PAGE)).await?;
        let removals = page.rows.iter().map(|row| backend.remove(change, resource, &row.ns, &row.name, &options));
        for outcome in futures::future::join_all(removals).await {
            match outcome {
                Err(error) if error.code != 404 => first = first.and(Err(error)),
                _ => {}
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return first,
        }
    }
}

async fn end_namespace(backend: &Backend, name: &str) -> ApiResult<bool> {
    let catalog = backend.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
    let key = namespaces.key("", name);
    let change = Change::by_controller(Verb::Delete, "namespace-controller");
    let mut refused = BTreeMap::new();
    for storage in backend.store.resources_in_use(Some(name.to_owned())).await.map_err(store_failed)? {
        if let Some(resource) = catalog.by_storage(&storage)
            && let Err(error) = empty(backend, &change, resource, name).await
        {
            refused.insert(storage, error.message);
        }
    }
    let Some(mut stored) = backend.stored(&key).await? else { return Ok(true) };
    let mut object = backend.load(namespaces, &stored)?;
    let left = backend.store.resources_in_use(Some(name.to_owned())).await.map_err(store_failed)?;
    if !left.is_empty() {
        say_what_is_left(backend, namespaces, name, (&left, &refused)).await?;
        return Ok(false);
    }
    let others =
        object::strings(object.get("spec").and_then(|s| s.get("finalizers"))).iter().any(|f| f != "kubernetes");
    if others && object.get("status").and_then(|s| s.get("conditions")).is_some() {
        // The namespace is empty, but the finalizer of another controller keeps it.
        say_what_is_left(backend, namespaces, name, (&[], &BTreeMap::new())).await?;
        let Some(now) = backend.stored(&key).await? else { return Ok(true) };
        (stored, object) = (now.clone(), backend.load(namespaces, &now)?);
    }
    let spec = object::child(&mut object, "spec");
    let finalizers: Vec<String> =
        object::strings(spec.get("finalizers")).into_iter().filter(|f| f != "kubernetes").collect();
    spec.insert("finalizers".into(), json!(finalizers));
    match backend.put(namespaces, key, object, Some(&stored), Some(Guard::EmptyNamespace(name.to_owned()))).await {
        Ok(_) => Ok(true),
        Err(WriteError::Guard | WriteError::Conflict) => Ok(false),
        Err(other) => Err(write_failed(other)),
    }
}

/// Writes the conditions of a terminating namespace: the remaining objects, the finalizers that keep them, and the
/// resources that refuse deletion, with their messages.
async fn say_what_is_left(
    backend: &Backend,
    namespaces: &Resource,
    name: &str,
    (left, refused): (&[String], &BTreeMap<String, String>),
) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let (mut resources, mut finalizers) = (BTreeMap::new(), BTreeMap::<String, usize>::new());
    // As upstream, resources that refuse deletion are not counted.
    let counted = left.iter().filter(|storage| !refused.contains_key(*storage));
    for resource in counted.filter_map(|storage| catalog.by_storage(storage)) {
        let (mut count, mut after) = (0, None);
        loop {
            let page = backend.page(resource, name, &Selector::default(), None, after, Some(PAGE)).await?;
            count += page.rows.len();
            for row in &page.rows {
                let Ok(object) = resource.load(row.rev, &row.body) else { continue };
                for finalizer in object::finalizers(&object) {
                    *finalizers.entry(finalizer).or_default() += 1;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if count > 0 {
            resources.insert(format!("{}.{}", resource.plural, resource.group), count);
        }
    }
    let describe = |counts: &BTreeMap<String, usize>, verb: &str| {
        let all: Vec<String> = counts.iter().map(|(what, n)| format!("{what} {verb} {n} resource instances")).collect();
        all.join(", ")
    };
    let (resources, finalizers) = (describe(&resources, "has"), describe(&finalizers, "in"));
    let mut change = Change::by_controller(Verb::Update, "namespace-controller");
    "status".clone_into(&mut change.sub);
    let make = |before: &Object| {
        let mut next = unversioned(before);
        conditions(object::child(&mut next, "status"), (&resources, &finalizers), refused, &backend.given.stamp());
        Ok(next)
    };
    match backend.change(&change, namespaces, "", name, make).await {
        Ok(_) | Err(ApiError { code: 404, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sets the conditions in upstream's order and wording; an empty text means that nothing is left.
fn conditions(
    status: &mut Object,
    (resources, finalizers): (&str, &str),
    refused: &BTreeMap<String, String>,
    now: &str,
) {
    let mut set = |ty: &str, good: bool, reason: &str, message: &str| {
        lifecycle::set_condition(status, ty, good, reason, message, now);
    };
    let discovered = "All resources successfully discovered";
    set("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", discovered);
    let parsed = "All legacy kube types successfully parsed";
    set("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsed);
    if refused.is_empty() {
        let deleted = "All content successfully deleted, may be waiting on finalization";
        set("NamespaceDeletionContentFailure", false, "ContentDeleted", deleted);
    } else {
        let mut words: Vec<&str> = refused.values().map(String::as_str).collect();
        words.sort_unstable();
        let (count, words) = (words.len(), words.join(", "));
        let message = format!("Failed to delete all resource types, {count} remaining: {words}");
        set("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", &message);
    }
    if resources.is_empty() {
        set("NamespaceContentRemaining", false, "ContentRemoved", "All content successfully removed");
    } else {
        let message = format!("Some resources are remaining: {resources}");
        set("NamespaceContentRemaining", true, "SomeResourcesRemain", &message);
    }
    if finalizers.is_empty() {
        let message = "All content-preserving finalizers finished";
        set("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message);
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {finalizers}");
        set("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", &message);
    }
}

async fn end_definition(backend: &Backend, name: &str) -> ApiResult<bool> {
    let catalog = backend.registry.catalog();
    let crds =
        catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").ok_or_else(ApiError::unknown_path)?;
    let Some(stored) = backend.stored(&crds.key("", name)).await? else { return Ok(true) };
    let crd = backend.load(crds, &stored)?;
    if !object::finalizers(&crd).iter().any(|f| f == CLEANUP) {
        return Ok(true);
    }
    let (group, plural) = crate::crd::names(&crd);
    if let Some(resource) = catalog.by_storage(&format!("{group}/{plural}")) {
        // Upstream empties its storage here without calling webhooks.
        let mut change = Change::by_controller(Verb::Delete, "crd-finalizer");
        change.admitted = true;
        empty(backend, &change, resource, "").await?;
        if !backend.page(resource, "", &Selector::default(), None, None, Some(1)).await?.rows.is_empty() {
            return Ok(false);
        }
    }
    let make = |before: &Object| {
        let mut next = unversioned(before);
        let left: Vec<String> = object::finalizers(before).into_iter().filter(|f| f != CLEANUP).collect();
        object::set_finalizers(&mut next, &left);
        // Keeps the status: the conditions of a terminating definition are not computed again.
        if let Some(Value::Object(status)) = before.get("status") {
            next.insert("status".into(), json!(status));
        }
        Ok(next)
    };
    let mut change = Change::by_controller(Verb::Update, "crd-finalizer");
    "kube-apiserver".clone_into(&mut change.manager);
    match backend.change(&change, crds, "", name, make).await {
        Ok(_) | Err(ApiError { code: 404, .. }) => {}
        Err(error) => return Err(error),
    }
    // Other definitions may wait for its names.
    backend.establish_group(&group).await?;
    Ok(true)
}
