//! create: a new object.

use http::StatusCode;
use serde_json::json;

use super::{ATTEMPTS, Backend, body, meta, strategy, write_failed};
use crate::admission::Subject;
use crate::admission::policy::rights;
use crate::auth::{escalation, reviews, token_request};
use crate::builtin::rules;
use crate::change::Change;
use crate::fields::options::Options;
use crate::object::{self, Object, metadata_mut};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::{Guard, Stored, WriteError};

/// Creates the object of the body.
pub async fn create(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Create.validate(&request.query)?;
    if request.resource().is_review() {
        return reviews::create(backend, request).await;
    }
    if request.target.sub == "token" {
        return token_request::create(backend, request).await;
    }
    let change = request.change()?;
    let resource = request.resource().clone();
    let mut object = body::object(request, &resource)?;
    let ns = request.target.ns.clone();
    strategy::fit_namespace(&resource, &mut object, &ns)?;
    unversioned(&object)?;
    let stored = backend.insert(&change, &resource, object, &ns).await;
    request.warnings.append(&mut change.take_warnings());
    reply::stored(request, StatusCode::CREATED, &stored?)
}

/// A new object has no version.
fn unversioned(object: &Object) -> ApiResult<()> {
    if object::meta_str(object, "resourceVersion").is_empty() {
        return Ok(());
    }
    let text = "resourceVersion should not be set on objects to be created";
    Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text))
}

impl Backend {
    /// Creates a decoded object, its namespace permitting.
    pub async fn insert(&self, change: &Change, resource: &Resource, object: Object, ns: &str) -> ApiResult<Stored> {
        let mut object = object;
        strategy::wipe(&mut object);
        if !change.applied {
            self.settle_owners(change, resource, None, &mut object).await?;
        }
        if self.admission.mutates(self, resource).await? {
            // Webhooks are not asked about what has no place to be.
            self.namespace_guard(resource, ns, object::name(&object)).await?;
            let name = object::name(&object).to_owned();
            self.admission.admit(self, change, Subject::of(resource, ns, &name), &mut object, None).await?;
            strategy::fit_namespace(resource, &mut object, ns)?;
            unversioned(&object)?;
        }
        escalation::check(&self.auth.index, &change.user, resource, ns, &object, None)?;
        if resource.terminating {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(&resource.group, &resource.plural, object::name(&object), why));
        }
        let generate = object::name(&object).is_empty();
        let prefix = object::meta_str(&object, "generateName").to_owned();
        for _ in 0..ATTEMPTS {
            let mut object = object.clone();
            if generate && !prefix.is_empty() {
                metadata_mut(&mut object).insert("name".into(), json!(meta::generate(&prefix, &self.given)));
            }
            let guard = self.namespace_guard(resource, ns, object::name(&object)).await?;
            strategy::prepare_create(resource, &mut object, &self.given);
            rules::signing::of_requester(resource, &mut object, &change.user);
            let _claim = self.allocator.claim(resource, &mut object, None, change.dry)?;
            strategy::validate(resource, &object, None, change)?;
            strategy::warn(resource, &object, None, change);
            rights::check(self, change, resource, &object, None).await?;
            self.admission
                .admit_final(self, change, Subject::of(resource, ns, object::name(&object)), &object, None)
                .await?;
            let _turn = self.quotas.within(self, resource, ns, &object, None).await?;
            let name = object::name(&object).to_owned();
            let key = resource.key(ns, &name);
            if change.dry {
                if self.stored(&key).await?.is_some() {
                    return Err(ApiError::already_exists(&resource.group, &resource.plural, &name));
                }
                return Ok(Stored { rev: 0, tail: resource.tail(object) });
            }
            strategy::default_status(resource, &mut object);
            let told = object.clone();
            let (object, kept) = self.to_storage(resource, object).await?;
            match self.put(kept.as_deref().unwrap_or(resource), key, object, None, guard).await {
                Ok(stored) => {
                    self.audit_annotations(change, resource, &told, None);
                    self.after_write(resource, &name, &change.sub).await?;
                    return self.converted(resource, stored).await;
                }
                Err(WriteError::Conflict) if generate => {}
                Err(WriteError::Conflict) => {
                    return Err(ApiError::already_exists(&resource.group, &resource.plural, &name));
                }
                Err(WriteError::Guard) => {}
                Err(other) => return Err(write_failed(other)),
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, object::name(&object)))
    }

    /// The namespace must be there and stay so until the commit; one that is going takes nothing new.
    async fn namespace_guard(&self, resource: &Resource, ns: &str, name: &str) -> ApiResult<Option<Guard>> {
        if !resource.namespaced {
            return Ok(None);
        }
        let catalog = self.registry.catalog();
        let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
        let key = namespaces.key("", ns);
        let Some(stored) = self.stored(&key).await? else {
            return Err(ApiError::not_found("", "namespaces", ns));
        };
        if object::is_deleting(&self.load(namespaces, &stored)?) {
            let why = format!("unable to create new content in namespace {ns} because it is being terminated");
            return Err(ApiError::forbidden(&resource.group, &resource.plural, name, &why).with_cause(
                "NamespaceTerminating",
                "metadata.namespace",
                format!("namespace {ns} is being terminated"),
            ));
        }
        Ok(Some(Guard::Unchanged(key, stored.rev)))
    }
}
