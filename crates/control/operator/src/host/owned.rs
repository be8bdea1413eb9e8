//! Reads and writes of one object beside a host, always of the version that was read.

use std::fmt::Debug;
use std::sync::Arc;

use api::metal3::BareMetalHost;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::objects::Objects;

/// The Kubernetes API failed.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}: {source}")]
pub struct Failed {
    /// What was attempted.
    pub attempt: &'static str,
    /// Why.
    #[source]
    pub source: Box<kube::Error>,
}

impl Failed {
    /// Wraps an error of the Kubernetes API.
    pub fn of(attempt: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self { attempt, source: Box::new(source) }
    }
}

/// The host as an owner, as upstream writes it: not the controller.
pub fn owner<K: Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
    OwnerReference { controller: None, ..object.controller_owner_ref(&()).unwrap_or_default() }
}

/// Whether the object belongs to another host of that name than the one with this uid.
pub fn is_anothers<K: Resource<DynamicType = ()>>(object: &K, uid: Option<&str>) -> bool {
    let hosts = || object.meta().owner_references.iter().flatten().filter(|owner| owner.kind == "BareMetalHost");
    hosts().next().is_some() && !hosts().any(|owner| Some(owner.uid.as_str()) == uid)
}

pub fn is_owner(object: &ObjectMeta, owner: &OwnerReference) -> bool {
    object.owner_references.iter().flatten().any(|known| known.uid == owner.uid)
}

/// How the API server, or a webhook that it calls, refuses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As long as nobody changes anything.
    Definite,
    /// It may be a moment's fault: a webhook, or what the API server keeps its objects in, does not answer.
    Passing,
}

/// Whether the error is a refusal of the object, and which.
pub fn refusal(error: &kube::Error) -> Option<Refusal> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => Some(Refusal::Definite),
        kube::Error::Api(status) if status.code == 500 => Some(Refusal::Passing),
        _ => None,
    }
}

/// Whether another client has written or deleted the object meanwhile.
pub fn has_moved_on(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// The object; if it is not `needed`, as the watch shows it.
pub async fn get<K>(
    objects: &Objects<K>,
    client: &Client,
    namespace: &str,
    name: &str,
    needed: bool,
) -> Result<Option<Arc<K>>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + 'static,
{
    let key = ObjectRef::new(name).within(namespace);
    if !needed && let Some(cached) = objects.cached(&key) {
        return Ok(cached);
    }
    objects.get(client, &key).await
}

/// Whether the object still has this version.
pub async fn is_unchanged<K>(
    objects: &Objects<K>,
    client: &Client,
    object: &K,
    attempt: &'static str,
) -> Result<bool, Failed>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let now = api.get_metadata_opt(&object.name_any()).await;
    let now = now.map_err(Failed::of(attempt))?;
    let same = now.is_some_and(|now| now.uid() == object.uid() && now.resource_version() == object.resource_version());
    if !same {
        objects.doubt(&ObjectRef::from_obj(object));
    }
    Ok(same)
}

/// Creates an object with the host as its owner.
pub async fn create<K>(
    objects: &Objects<K>,
    client: &Client,
    host: &BareMetalHost,
    mut new: K,
    attempt: &'static str,
) -> Result<Arc<K>, Failed>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + Debug
        + 'static,
{
    new.meta_mut().namespace = host.namespace();
    new.meta_mut().owner_references = Some(vec![owner(host)]);
    let api: Api<K> = Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
    let params = PostParams::default();
    let key = ObjectRef::from_obj(&new);
    // An earlier host's object of this name is deleted first, by garbage collection with its owner.
    let created = objects.writing(&key, api.create(&params, &new)).await.map_err(Failed::of(attempt))?;
    Ok(Arc::new(created))
}

/// Adds an owner to the version that was read; `None` if the object has changed since.
pub async fn take<K>(
    objects: &Objects<K>,
    client: &Client,
    object: &K,
    owner: OwnerReference,
    attempt: &'static str,
) -> Result<Option<Arc<K>>, Failed>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + 'static,
{
    let meta = object.meta();
    if is_owner(meta, &owner) {
        return Ok(Some(Arc::new(object.clone())));
    }
    let mut owners = meta.owner_references.clone().unwrap_or_default();
    owners.push(owner);
    let patch = Patch::Merge(json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners } }));
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (name, params) = (object.name_any(), PatchParams::default());
    match objects.writing(&ObjectRef::from_obj(object), api.patch(&name, &params, &patch)).await {
        Ok(taken) => Ok(Some(Arc::new(taken))),
        Err(error) if has_moved_on(&error) => Ok(None),
        Err(error) => Err(Failed::of(attempt)(error)),
    }
}

/// Writes the status of the version that was read; `None` if the object has changed since.
pub async fn put_status<K>(objects: &Objects<K>, client: &Client, object: &K) -> Result<Option<Arc<K>>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + Debug
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (name, params) = (object.name_any(), PostParams::default());
    match objects.writing(&ObjectRef::from_obj(object), api.replace_status(&name, &params, object)).await {
        Ok(written) => Ok(Some(Arc::new(written))),
        Err(error) if has_moved_on(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
