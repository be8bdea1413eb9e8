//! The end of namespaces and of definitions: their objects go first.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::gc::unversioned;
use crate::crd::lifecycle::{self, CLEANUP};
use crate::fields::{self, Scope};
use crate::object::{self, Object};
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Guard, WriteError};
use crate::verbs::delete::{Options, Propagation};
use crate::verbs::{Backend, Change, Stored, store_failed, write_failed};

/// What is on its way out.
#[derive(Default)]
pub struct Ends {
    namespaces: BTreeSet<String>,
    definitions: BTreeSet<String>,
}

impl Ends {
    /// Notes a change.
    pub fn see(&mut self, event: &Event) {
        let set = match &*event.resource {
            "namespaces" => &mut self.namespaces,
            "apiextensions.k8s.io/customresourcedefinitions" => &mut self.definitions,
            _ => return,
        };
        let going = object::from_tail("", "", event.rev, &event.body).is_ok_and(|o| object::is_deleting(&o));
        if going && !event.deleted {
            set.insert(event.name.clone());
        } else {
            set.remove(&event.name);
        }
    }

    /// Does what can be done now. True if something has to be tried again.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        for name in self.namespaces.clone() {
            if finished(end_namespace(backend, &name).await, &name) {
                self.namespaces.remove(&name);
            }
        }
        for name in self.definitions.clone() {
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

/// Asks every object of a resource to go.
async fn empty(backend: &Backend, resource: &Resource, ns: &str) -> ApiResult<usize> {
    let rows = backend.select(resource, ns, &Selector::default()).await?.1;
    let change = Change::own(Verb::Delete, "namespace-controller");
    let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
    for row in &rows {
        match backend.remove(&change, resource, &row.ns, &row.name, &options).await {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(rows.len())
}

async fn end_namespace(backend: &Backend, name: &str) -> ApiResult<bool> {
    let catalog = backend.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
    let key = namespaces.key("", name);
    for storage in backend.store.resources_in_use(Some(name.to_owned())).await.map_err(store_failed)? {
        if let Some(resource) = catalog.by_storage(&storage) {
            empty(backend, resource, name).await?;
        }
    }
    let Some(stored) = backend.stored(&key).await? else { return Ok(true) };
    let mut object = backend.load(namespaces, &stored)?;
    let left = backend.store.resources_in_use(Some(name.to_owned())).await.map_err(store_failed)?;
    if !left.is_empty() {
        say_what_is_left(backend, namespaces, &stored, object, &left).await?;
        return Ok(false);
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

async fn say_what_is_left(
    backend: &Backend,
    namespaces: &Resource,
    stored: &Stored,
    mut object: Object,
    left: &[String],
) -> ApiResult<()> {
    let key = namespaces.key("", object::name(&object));
    let before = object.clone();
    let status = object::child(&mut object, "status");
    let message = format!("Some resources are remaining: {}", left.join(", "));
    lifecycle::set_condition(status, "NamespaceContentRemaining", true, "SomeResourcesRemain", &message);
    let catalog = backend.registry.catalog();
    let scope = Scope { resource: namespaces, catalog: &catalog, sub: "status", manager: "kube-controller-manager" };
    scope.update(Some(&before), &mut object);
    fields::keep_times(&mut object, &before);
    match backend.put(namespaces, key, object, Some(stored), None).await {
        Ok(_) | Err(WriteError::Conflict) => Ok(()),
        Err(other) => Err(write_failed(other)),
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
        empty(backend, resource, "").await?;
        if !backend.select(resource, "", &Selector::default()).await?.1.is_empty() {
            return Ok(false);
        }
    }
    let make = |before: &Object| {
        let mut next = unversioned(before);
        let left: Vec<String> = object::finalizers(before).into_iter().filter(|f| f != CLEANUP).collect();
        object::set_finalizers(&mut next, &left);
        // The status as it was: conditions of an end are not settled anew.
        if let Some(Value::Object(status)) = before.get("status") {
            next.insert("status".into(), json!(status));
        }
        Ok(next)
    };
    match backend.change(&Change::own(Verb::Update, "namespace-controller"), crds, "", name, make).await {
        Ok(_) | Err(ApiError { code: 404, .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
