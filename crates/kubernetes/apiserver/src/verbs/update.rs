//! update: an object is replaced, or one of its subresources.

use std::pin::Pin;

use http::StatusCode;
use serde_json::json;

use super::{ATTEMPTS, Backend, body, strategy, write_failed};
use crate::admission::Subject;
use crate::admission::policy::rights;
use crate::auth::{escalation, signers};
use crate::change::Change;
use crate::fields;
use crate::fields::options::Options;
use crate::object::{self, Object};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::{Flavor, Resource};
use crate::route::Verb;
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};
use crate::store::{Stored, WriteError};

/// Replaces the named object by the body.
pub async fn update(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Update.validate(&request.query)?;
    let change = request.change()?;
    let resource = request.resource().clone();
    let mut object = body::object(request, &resource)?;
    let target = request.target.clone();
    strategy::fit_namespace(&resource, &mut object, &target.ns)?;
    let name = object::name(&object);
    if name.is_empty() {
        let text =
            format!("the name of the object ({} based on URL) was undeterminable: name must be provided", target.name);
        return Err(ApiError::bad_request(text));
    }
    if name != target.name {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(text));
    }
    let given = object::resource_version(&object).map_err(|text| bad_version(&text))?;
    if given.is_none() && is_conditional(&resource) {
        if backend.stored(&resource.key(&target.ns, &target.name)).await?.is_none() {
            return Err(ApiError::not_found(&resource.group, &resource.plural, &target.name));
        }
        return Err(unversioned(&resource, &target.name));
    }
    let written = write(backend, request, &change, &object).await;
    request.warnings.append(&mut change.take_warnings());
    let (code, stored) = written?;
    reply::stored(request, code, &stored)
}

/// Kinds whose objects are replaced only by who names the version that he replaces.
pub fn is_conditional(resource: &Resource) -> bool {
    matches!(resource.flavor, Flavor::Custom { .. })
        || matches!(resource.group.as_str(), "apiextensions.k8s.io" | crate::admission::GROUP)
}

/// 422 for who does not.
pub fn unversioned(resource: &Resource, name: &str) -> ApiError {
    let zero = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
    ApiError::invalid(&resource.group, &resource.plural, name, &[zero])
}

/// Kinds whose objects a replacement makes if they are not there.
fn is_made_by_update(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "" => matches!(resource.plural.as_str(), "events" | "services" | "endpoints"),
        "events.k8s.io" | "coordination.k8s.io" | crate::auth::index::GROUP => {
            matches!(resource.flavor, Flavor::Builtin(_))
        }
        _ => false,
    }
}

async fn write(
    backend: &Backend,
    request: &Request,
    change: &Change,
    object: &Object,
) -> ApiResult<(StatusCode, Stored)> {
    let (resource, target) = (request.resource(), &request.target);
    let makes = is_made_by_update(resource) && target.sub.is_empty();
    let mut attempts = 0..ATTEMPTS;
    loop {
        let last = attempts.next().is_none();
        match backend.change(change, resource, &target.ns, &target.name, |_| Ok(object.clone())).await {
            Err(error) if makes && error.reason == StatusReason::NotFound => {}
            other => return other.map(|stored| (StatusCode::OK, stored)),
        }
        let mut made = object.clone();
        let mut nothing = Object::new();
        for key in ["name", "namespace"] {
            object::metadata_mut(&mut nothing).insert(key.into(), json!(object::meta_str(object, key)));
        }
        same_uid(change, resource, &made, &nothing)?;
        object::metadata_mut(&mut made).shift_remove("resourceVersion");
        super::apply::may_create(backend, request)?;
        match backend.insert(change, resource, made, &target.ns).await {
            // Made in between: it is to be changed.
            Err(error) if error.reason == StatusReason::AlreadyExists && !last => {}
            other => return other.map(|stored| (StatusCode::CREATED, stored)),
        }
    }
}

impl Backend {
    /// Changes an object by `make`, which gets the present one and gives the wanted one; again if others were faster.
    /// A resourceVersion or UID in the wanted object must be the present one's.
    pub async fn change(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        name: &str,
        mut make: impl FnMut(&Object) -> ApiResult<Object>,
    ) -> ApiResult<Stored> {
        let modified = || ApiError::modified(&resource.group, &resource.plural, name);
        for _ in 0..ATTEMPTS {
            let key = resource.key(ns, name);
            let missing = || ApiError::not_found(&resource.group, &resource.plural, name);
            let old = self.stored(&key).await?.ok_or_else(missing)?;
            let before = self.load(resource, &self.converted(resource, old.clone()).await?)?;
            let mut wanted = make(&before)?;
            let asked = object::resource_version(&wanted).ok().flatten();
            if asked.is_some_and(|rev| rev != old.rev) {
                return Err(modified());
            }
            same_uid(change, resource, &wanted, &before)?;
            if !change.applied {
                self.settle_owners(change, resource, Some(&before), &mut wanted).await?;
            }
            let subject = Subject::of(resource, ns, name);
            if !change.admitted {
                if change.verb == Verb::Patch {
                    // What a patch makes has the version of what it was made from.
                    versioned(&mut wanted, old.rev);
                }
                self.admission.admit(self, change, subject, &mut wanted, Some(&before)).await?;
                let asked = object::resource_version(&wanted).ok().flatten();
                if asked.is_some_and(|rev| rev != old.rev) {
                    return Err(modified());
                }
            }
            strategy::fit_namespace(resource, &mut wanted, ns)?;
            strategy::same_identity(resource, &wanted, &before, &change.sub)?;
            escalation::check(&self.auth.index, &change.user, resource, ns, &wanted, Some(&before))?;
            signers::check(&self.auth, change, resource, &wanted, &before)?;
            strategy::prepare_update(resource, &mut wanted, &before, &change.sub);
            let _claim = match change.sub.as_str() {
                "" => Some(self.allocator.claim(resource, &mut wanted, Some(&before), change.dry)?),
                _ => None,
            };
            strategy::validate(resource, &wanted, Some(&before), change)?;
            strategy::warn(resource, &wanted, Some(&before), change);
            fields::keep_times(&mut wanted, &before);
            rights::check(self, change, resource, &wanted, Some(&before)).await?;
            if !change.admitted {
                versioned(&mut wanted, old.rev);
                self.admission.admit_final(self, change, subject, &wanted, Some(&before)).await?;
            }
            let _turn = self.quotas.within(self, resource, ns, &wanted, Some(&before)).await?;
            if change.dry {
                let tail = resource.tail(wanted);
                return Ok(Stored { rev: old.rev, tail });
            }
            let told = wanted.clone();
            let (wanted, kept) = self.to_storage(resource, wanted).await?;
            match self.put(kept.as_deref().unwrap_or(resource), key, wanted, Some(&old), None).await {
                Ok(stored) => {
                    self.audit_annotations(change, resource, &told, Some(&before));
                    self.after_write(resource, name, &change.sub).await?;
                    return self.converted(resource, stored).await;
                }
                Err(WriteError::Conflict) => {}
                Err(other) => return Err(write_failed(other)),
            }
        }
        Err(modified())
    }

    /// What has to follow the write of an object before it is acknowledged: definitions get their names accepted.
    pub fn after_write<'a>(
        &'a self,
        resource: &'a Resource,
        name: &'a str,
        sub: &'a str,
    ) -> Pin<Box<dyn Future<Output = ApiResult<()>> + Send + 'a>> {
        Box::pin(async move {
            // It changes the definition by its status, after which nothing follows any more.
            let definition = resource.group == "apiextensions.k8s.io" && sub.is_empty();
            if definition { self.settle_definition(name).await } else { Ok(()) }
        })
    }
}

/// Gives an object without a version this one.
fn versioned(object: &mut Object, rev: u64) {
    object::metadata_mut(object).entry("resourceVersion").or_insert_with(|| json!(rev.to_string()));
}

/// A resourceVersion that is no number. Upstream does not care to say more.
pub fn bad_version(text: &str) -> ApiError {
    let text = format!("strconv.ParseUint: parsing {}: invalid syntax", gotext::quote(text));
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text)
}

fn same_uid(change: &Change, resource: &Resource, wanted: &Object, before: &Object) -> ApiResult<()> {
    let (asked, found) = (object::meta_str(wanted, "uid"), object::meta_str(before, "uid"));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    let name = object::name(before);
    if change.verb == Verb::Patch {
        let immutable = FieldError::invalid("metadata.uid", &json!(asked), "field is immutable");
        return Err(ApiError::invalid(&resource.group, &resource.kind, name, &[immutable.clone(), immutable]));
    }
    let custom = matches!(resource.flavor, Flavor::Custom { .. }) || resource.group == "apiextensions.k8s.io";
    let folder = match (custom, resource.plural.as_str()) {
        (true, plural) => format!("{}/{plural}", resource.group),
        (_, "services") => "services/specs".to_owned(),
        (_, "endpoints") => "services/endpoints".to_owned(),
        (_, "nodes") => "minions".to_owned(),
        (_, plural) => plural.to_owned(),
    };
    let ns = object::meta_str(before, "namespace");
    let place = if resource.namespaced { format!("{ns}/{name}") } else { name.to_owned() };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{place}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    );
    Err(ApiError::conflict(&resource.group, &resource.plural, name, &why))
}
