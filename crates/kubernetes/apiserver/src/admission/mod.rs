//! Admission: webhooks and policies review a change on its way from decoding to the store.
//!
//! [`index`] tracks the configurations by the store's events; without any, a change costs no read. [`rules`] decides
//! which changes match, [`conditions`] evaluates match conditions, [`review`] encodes AdmissionReviews, [`mutate`]
//! and [`validate`] call the webhooks, [`reviewer`] calls the embedding program, [`policy`] runs the policies;
//! [`expressions`] compiles and evaluates CEL. Order as upstream: mutating webhooks see the client's object (after
//! defaults), one after another; then policies see the object to be stored, then validating webhooks, all at once.
//! Webhooks do not see changes of the configurations themselves, policies not those of policies.

mod attributes;
mod call;
mod conditions;
pub mod expressions;
mod index;
mod mutate;
pub mod policy;
mod review;
mod reviewer;
pub mod rules;
mod typed;
mod validate;

use crate::change::Change;
use crate::fields::managed;
use crate::object::{self, Object};
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::ApiResult;

pub use attributes::{Attributes, GROUP, Operation, Subject};
pub use index::Admission;
pub use reviewer::Reviewer;

impl Admission {
    /// Whether any mutating webhook is configured. Costs no read if none is.
    pub async fn mutates(&self, objects: &Objects, resource: &Resource) -> ApiResult<bool> {
        Ok(resource.group != GROUP && !self.now(objects).await?.mutating.is_empty())
    }

    /// Lets mutating webhooks change a new object (`old` is `None`) or the wanted state of `old`.
    pub async fn admit(
        &self,
        objects: &Objects,
        change: &Change,
        subject: Subject<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        let index = self.now(objects).await?;
        let about = Attributes::new(change, subject, (Some(object), old));
        if index.mutating.is_empty() || about.hides_from_webhooks() {
            return Ok(());
        }
        let owners = object::metadata(object).get("managedFields").cloned();
        mutate::run(objects, &index.mutating, &about, Some(object)).await?;
        managed::restore(object, owners, change);
        Ok(())
    }

    /// Checks by policies and validating webhooks whether a new object or the new state of `old` may be stored.
    pub async fn admit_final(
        &self,
        objects: &Objects,
        change: &Change,
        subject: Subject<'_>,
        object: &Object,
        old: Option<&Object>,
    ) -> ApiResult<()> {
        let index = self.now(objects).await?;
        let about = Attributes::new(change, subject, (Some(object), old));
        self.judge(objects, &index, &about, Some(object)).await
    }

    /// Checks by all webhooks and policies whether `old` may be deleted. The subject has no name when a collection is
    /// deleted.
    pub async fn admit_delete(
        &self,
        objects: &Objects,
        change: &Change,
        subject: Subject<'_>,
        old: &Object,
    ) -> ApiResult<()> {
        let index = self.now(objects).await?;
        let about = Attributes::new(change, subject, (None, Some(old)));
        if !index.mutating.is_empty() && !about.hides_from_webhooks() {
            mutate::run(objects, &index.mutating, &about, None).await?;
        }
        self.judge(objects, &index, &about, None).await
    }

    async fn judge(
        &self,
        objects: &Objects,
        index: &index::Index,
        about: &Attributes<'_>,
        object: Option<&Object>,
    ) -> ApiResult<()> {
        if !index.policies.is_empty() && !about.hides_from_policies() {
            policy::run(objects, &index.policies, about, object).await?;
        }
        if !index.validating.is_empty() && !about.hides_from_webhooks() {
            validate::run(objects, &index.validating, about, object).await?;
        }
        reviewer::run(&self.reviewers, objects, about, object).await
    }
}
