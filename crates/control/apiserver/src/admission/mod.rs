//! Admission: what webhooks and policies say to a change, on its way from decoding to the store.
//!
//! [`index`] knows the configurations by following the store's events; without any, a change costs no read.
//! [`rules`] decides whom a change concerns, [`review`] speaks the AdmissionReview, [`mutate`] and [`validate`] run the
//! webhooks. Order as upstream: mutating webhooks see what the client sent (after defaults), one after another;
//! validating ones see what would be stored, all at once. Configurations themselves are exempt.

mod call;
mod index;
pub mod kinds;
mod mutate;
mod review;
pub mod rules;
mod validate;

use crate::fields::managed;
use crate::object::{self, Object};
use crate::resource::Resource;
use crate::status::ApiResult;
use crate::verbs::{Backend, Change};

pub use index::Admission;

/// API group of the configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// What is done to an object, in the words of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object removed.
    Delete,
}

impl Operation {
    /// The word in rules and reviews.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Kind of the options that go with it.
    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// A change as admission sees it, without the new object.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// Who changes and how.
    pub change: &'a Change,
    /// The resource of the request.
    pub resource: &'a Resource,
    /// Namespace; for a Namespace its own name; empty for other cluster-scoped objects.
    pub ns: &'a str,
    /// Object name; empty if the server makes it later.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The object before, if there is one.
    pub old: Option<&'a Object>,
}

fn attributes<'a>(
    change: &'a Change,
    resource: &'a Resource,
    ns: &'a str,
    name: &'a str,
    (object, old): (Option<&Object>, Option<&'a Object>),
) -> Attributes<'a> {
    let operation = match (object, old) {
        (None, _) => Operation::Delete,
        (Some(_), None) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
    };
    let ns = if resource.is("", "namespaces") { name } else { ns };
    Attributes { change, resource, ns, name, operation, old }
}

/// Whether changes of this resource never meet admission: a broken configuration must not lock itself in.
fn exempt(resource: &Resource) -> bool {
    resource.group == GROUP
}

impl Backend {
    /// Whether any mutating webhook is configured. Costs no read while none is.
    pub async fn mutates(&self, resource: &Resource) -> ApiResult<bool> {
        Ok(!exempt(resource) && !self.admission.now(self).await?.mutating.is_empty())
    }

    /// Lets mutating webhooks change a new object (`old` is `None`) or the wanted state of `old`.
    pub async fn admit(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        object: &mut Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        if exempt(resource) {
            return Ok(());
        }
        let index = self.admission.now(self).await?;
        if index.mutating.is_empty() {
            return Ok(());
        }
        let name = object::name(object).to_owned();
        let about = attributes(change, resource, ns, &name, (Some(object), old));
        let owners = object::metadata(object).get("managedFields").cloned();
        mutate::run(self, &index.mutating, &about, Some(object)).await?;
        managed::restore(object, owners, change);
        Ok(())
    }

    /// Asks policies and validating webhooks whether a new object or the new state of `old` may be stored.
    pub async fn admit_final(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        object: &Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        if exempt(resource) {
            return Ok(());
        }
        let index = self.admission.now(self).await?;
        if index.validating.is_empty() {
            return Ok(());
        }
        let about = attributes(change, resource, ns, object::name(object), (Some(object), old));
        validate::run(self, &index.validating, &about, Some(object)).await
    }

    /// Asks all webhooks and policies whether `old` may be deleted. `name` is empty within a deletion of a collection.
    pub async fn admit_delete(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        name: &str,
        old: &Object,
    ) -> ApiResult<()> {
        if exempt(resource) {
            return Ok(());
        }
        let index = self.admission.now(self).await?;
        let about = attributes(change, resource, ns, name, (None, Some(old)));
        if !index.mutating.is_empty() {
            mutate::run(self, &index.mutating, &about, None).await?;
        }
        if !index.validating.is_empty() {
            validate::run(self, &index.validating, &about, None).await?;
        }
        Ok(())
    }
}
