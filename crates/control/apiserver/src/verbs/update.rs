//! update: an object is replaced, or one of its subresources.

use serde_json::{Value, json};

use super::{ATTEMPTS, Backend, Change, Request, Stored, strategy, write_failed};
use crate::auth::escalation;
use crate::crd::lifecycle;
use crate::fields::options::Options;
use crate::fields::{self, Scope};
use crate::object::{self, Object, metadata_mut};
use crate::reply::{self, Response};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::WriteError;

/// Replaces the named object by the body.
pub async fn update(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Update.validate(&request.query)?;
    let change = request.change()?;
    let (value, twice) = request.decode()?;
    let Value::Object(mut object) = value else {
        return Err(ApiError::bad_request("the body must be an object"));
    };
    let resource = request.resource().clone();
    let mut unknown = Vec::new();
    strategy::decode(&resource, &mut object, &mut unknown)?;
    request.report_fields(&unknown, &twice).map_err(|why| {
        let (kind, version) = (&resource.kind, &resource.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })?;
    let target = request.target.clone();
    let name = object::name(&object);
    if name.is_empty() {
        metadata_mut(&mut object).insert("name".into(), json!(target.name));
    } else if name != target.name {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({})", target.name);
        return Err(ApiError::bad_request(text));
    }
    strategy::fit_namespace(&resource, &mut object, &target.ns)?;
    let given = object::resource_version(&object).map_err(|text| {
        let error = FieldError::invalid("metadata.resourceVersion", &json!(text), "must be a number");
        ApiError::invalid(&resource.group, &resource.kind, &target.name, &[error])
    })?;
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    let conditional = custom || matches!(resource.group.as_str(), "apiextensions.k8s.io" | crate::admission::GROUP);
    if given.is_none() && conditional {
        let zero = FieldError {
            value: "0x0".to_owned(),
            ..FieldError::invalid("metadata.resourceVersion", &Value::Null, "must be specified for an update")
        };
        return Err(ApiError::invalid(&resource.group, &resource.kind, &target.name, &[zero]));
    }
    let stored = backend.change(&change, &resource, &target.ns, &target.name, |_| Ok(object.clone())).await;
    request.warnings.append(&mut change.take_warnings());
    reply::stored(request, http::StatusCode::OK, &stored?)
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
            same_uid(resource, &wanted, &before)?;
            let catalog = self.registry.catalog();
            let scope = Scope { resource, catalog: &catalog, sub: &change.sub, manager: &change.manager };
            if !change.applied {
                scope.update(Some(&before), &mut wanted);
            }
            self.admit(change, resource, ns, &mut wanted, Some(&before)).await?;
            escalation::check(&self.auth.index, &change.user, resource, ns, &wanted, Some(&before))?;
            strategy::prepare_update(resource, &mut wanted, &before, &change.sub);
            strategy::validate(resource, &wanted, Some(&before), &change.sub)?;
            strategy::warnings(resource, &wanted, false).into_iter().for_each(|text| change.warn(text));
            if resource.group == "apiextensions.k8s.io" && change.sub.is_empty() && !object::is_deleting(&wanted) {
                lifecycle::settle_owned(resource, &mut wanted, &catalog);
            }
            fields::keep_times(&mut wanted, &before);
            self.admit_final(change, resource, ns, &wanted, Some(&before)).await?;
            if change.dry {
                let tail = resource.tail(wanted);
                return Ok(Stored { rev: old.rev, tail });
            }
            let (wanted, kept) = self.to_storage(resource, wanted).await?;
            match self.put(kept.as_deref().unwrap_or(resource), key, wanted, Some(&old), None).await {
                Ok(stored) => return self.converted(resource, stored).await,
                Err(WriteError::Conflict) => {}
                Err(other) => return Err(write_failed(other)),
            }
        }
        Err(modified())
    }
}

fn same_uid(resource: &Resource, wanted: &Object, before: &Object) -> ApiResult<()> {
    let (asked, found) = (object::meta_str(wanted, "uid"), object::meta_str(before, "uid"));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {found}");
    Err(ApiError::conflict(&resource.group, &resource.plural, object::name(before), &why))
}
