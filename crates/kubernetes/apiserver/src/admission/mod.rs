//! Admission: what webhooks and policies say to a change, on its way from decoding to the store.
//!
//! [`index`] knows the configurations by following the store's events; without any, a change costs no read.
//! [`rules`] decides whom a change concerns, [`conditions`] whether its expressions let it through, [`review`] speaks the
//! AdmissionReview, [`mutate`] and [`validate`] run the webhooks, [`own`] asks who embeds the server, [`policy`] runs the policies; [`expressions`] compiles and
//! runs what is written in CEL. Order as upstream: mutating webhooks see what the client sent (after defaults), one after
//! another; then policies see what would be stored, then validating webhooks, all at once. Webhooks do not see changes of
//! the configurations themselves, policies not those of policies.

mod call;
mod conditions;
pub mod expressions;
mod index;
pub mod kinds;
mod mutate;
mod own;
pub mod policy;
mod review;
pub mod rules;
mod typed;
mod validate;

use crate::fields::managed;
use crate::object::{self, Object};
use crate::resource::Resource;
use crate::status::ApiResult;
use crate::verbs::{Backend, Change};

pub use index::Admission;
pub use own::Reviewer;

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

/// What a change is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object, if it is another one than the resource's: Scale, TokenRequest.
    pub kind: Option<&'a Resource>,
    /// Namespace, empty for cluster-scoped objects.
    pub ns: &'a str,
    /// Name as the request knows it: empty if the server makes it later, or if there are many.
    pub name: &'a str,
}

impl<'a> Subject<'a> {
    /// An object of the resource's own kind.
    pub fn of(resource: &'a Resource, ns: &'a str, name: &'a str) -> Self {
        Self { resource, kind: None, ns, name }
    }
}

/// A change as admission sees it, without the new object.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// Who changes and how.
    pub change: &'a Change,
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object, if it is another one than the resource's.
    pub kind: Option<&'a Resource>,
    /// Namespace; for a Namespace its own name; empty for other cluster-scoped objects.
    pub ns: &'a str,
    /// Object name; empty if the server makes it later.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The object before, if there is one.
    pub old: Option<&'a Object>,
}

impl<'a> Attributes<'a> {
    fn new(change: &'a Change, subject: Subject<'a>, (object, old): (Option<&Object>, Option<&'a Object>)) -> Self {
        let operation = match (object, old) {
            (None, _) => Operation::Delete,
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let Subject { resource, kind, ns, name } = subject;
        let ns = if resource.is("", "namespaces") { name } else { ns };
        Self { change, resource, kind, ns, name, operation, old }
    }

    /// An object of the request in the form in which `seen_as` has it. Scales and the like have one form only.
    async fn in_version(&self, backend: &Backend, object: Object, seen_as: &Resource) -> ApiResult<Object> {
        if self.kind.is_some() {
            return Ok(object);
        }
        backend.in_version(object, self.resource, seen_as).await
    }

    /// Whether webhooks never see this: a broken configuration must not lock itself in.
    fn hides_from_webhooks(&self) -> bool {
        self.resource.group == GROUP
    }

    /// Whether policies never see this.
    fn hides_from_policies(&self) -> bool {
        self.resource.group == GROUP && self.resource.plural.starts_with("validatingadmissionpolic")
    }
}

impl Backend {
    /// Whether any mutating webhook is configured. Costs no read while none is.
    pub async fn mutates(&self, resource: &Resource) -> ApiResult<bool> {
        Ok(resource.group != GROUP && !self.admission.now(self).await?.mutating.is_empty())
    }

    /// Lets mutating webhooks change a new object (`old` is `None`) or the wanted state of `old`.
    pub async fn admit(
        &self,
        change: &Change,
        subject: Subject<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        let index = self.admission.now(self).await?;
        let about = Attributes::new(change, subject, (Some(object), old));
        if index.mutating.is_empty() || about.hides_from_webhooks() {
            return Ok(());
        }
        let owners = object::metadata(object).get("managedFields").cloned();
        mutate::run(self, &index.mutating, &about, Some(object)).await?;
        managed::restore(object, owners, change);
        Ok(())
    }

    /// Asks policies and validating webhooks whether a new object or the new state of `old` may be stored.
    pub async fn admit_final(
        &self,
        change: &Change,
        subject: Subject<'_>,
        object: &Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        let index = self.admission.now(self).await?;
        let about = Attributes::new(change, subject, (Some(object), old));
        self.judge(&index, &about, Some(object)).await
    }

    /// Asks all webhooks and policies whether `old` may be deleted. The subject has no name within a deletion of a
    /// collection.
    pub async fn admit_delete(&self, change: &Change, subject: Subject<'_>, old: &Object) -> ApiResult<()> {
        let index = self.admission.now(self).await?;
        let about = Attributes::new(change, subject, (None, Some(old)));
        if !index.mutating.is_empty() && !about.hides_from_webhooks() {
            mutate::run(self, &index.mutating, &about, None).await?;
        }
        self.judge(&index, &about, None).await
    }

    async fn judge(&self, index: &index::Index, about: &Attributes<'_>, object: Option<&Object>) -> ApiResult<()> {
        if !index.policies.is_empty() && !about.hides_from_policies() {
            policy::run(self, &index.policies, about, object).await?;
        }
        if !index.validating.is_empty() && !about.hides_from_webhooks() {
            validate::run(self, &index.validating, about, object).await?;
        }
        own::run(&self.admission.reviewers, &self.given, about, object)
    }
}
