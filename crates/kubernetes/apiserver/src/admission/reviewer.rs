//! In-process reviews: the embedding program can refuse changes like a validating webhook, without a network call.

use std::sync::Arc;

use serde_json::{Value, json};

use super::review::{self, Question};
use super::{Attributes, Operation, rules};
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};

/// Answers an AdmissionReview (`admission.k8s.io/v1`) with one. The second argument holds the objects that
/// [`Reviewer::namespace`] and [`Reviewer::beside`] name.
type Review = dyn Fn(&Value, &[Value]) -> Value + Send + Sync;

/// An in-process validating webhook for one resource: called for creates, updates and, if it wants, deletes, but not for
/// subresources. Requests in another served version are converted for it, as with `matchPolicy: Equivalent`.
#[derive(Clone)]
pub struct Reviewer {
    /// Name in refusals.
    pub name: String,
    /// API group of the objects.
    pub group: String,
    /// API version in which it sees requests and objects.
    pub version: String,
    /// The resource, plural.
    pub resource: String,
    /// Whether it reviews deletions, too.
    pub deletes: bool,
    /// Group and plural of further objects that it needs for updates and deletions: all of them, in all namespaces.
    pub beside: Option<(String, String)>,
    /// Whether it is given the namespace of the object before all these.
    pub namespace: bool,
    /// Answers a review. Called while a request is processed, so it must not block.
    pub review: Arc<Review>,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviewer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Calls all matching reviewers, one after another.
pub async fn run(
    reviewers: &[Reviewer],
    objects: &Objects,
    about: &Attributes<'_>,
    object: Option<&Object>,
) -> ApiResult<()> {
    for reviewer in reviewers {
        let resource = about.resource;
        let concerned = resource.is(&reviewer.group, &reviewer.resource)
            && about.change.sub.is_empty()
            && (reviewer.deletes || about.operation != Operation::Delete);
        if concerned {
            let mut beside = match &reviewer.beside {
                Some((group, plural)) if about.operation != Operation::Create => all(objects, group, plural).await?,
                _ => Vec::new(),
            };
            if reviewer.namespace && !about.ns.is_empty() {
                beside.insert(0, json!(rules::namespace(objects, about.ns).await?));
            }
            let other = reviewed(reviewer, objects, resource);
            let seen_as = other.as_deref().unwrap_or(resource);
            let mut both = [object.cloned(), about.old.cloned()];
            for one in &mut both {
                if let Some(found) = one.take() {
                    *one = Some(about.in_version(objects, found, seen_as).await?);
                }
            }
            let [new, old] = &both;
            ask(reviewer, objects.given.uid(), (about, seen_as), (new.as_ref(), old.as_ref()), &beside)?;
        }
    }
    Ok(())
}

/// The resource in the reviewer's version, if that is served.
fn reviewed(reviewer: &Reviewer, objects: &Objects, requested: &Resource) -> Option<Arc<Resource>> {
    let catalog = objects.registry.catalog();
    let found = catalog.find(&reviewer.group, &reviewer.version, &reviewer.resource)?;
    (found.storage == requested.storage).then(|| Arc::clone(found))
}

/// All objects of a resource; empty if it is not served.
async fn all(objects: &Objects, group: &str, plural: &str) -> ApiResult<Vec<Value>> {
    let catalog = objects.registry.catalog();
    let Some(resource) = catalog.all().find(|resource| resource.is(group, plural)) else { return Ok(Vec::new()) };
    let (_, mut rows) = objects.select(resource, "", &Selector::default()).await?;
    objects.convert_rows(resource, &mut rows).await?;
    let damaged = |error| ApiError::internal(format!("a stored object is damaged: {error}"));
    rows.into_iter().map(|row| Ok(json!(resource.load(row.rev, &row.body).map_err(damaged)?))).collect()
}

fn ask(
    reviewer: &Reviewer,
    uid: String,
    (about, seen_as): (&Attributes<'_>, &Resource),
    both: (Option<&Object>, Option<&Object>),
    beside: &[Value],
) -> ApiResult<()> {
    let failed = |why: String| ApiError::internal(format!("failed calling webhook \"{}\": {why}", reviewer.name));
    let versions = ["v1".to_owned()];
    let question = Question::new(&versions, about, seen_as, both, uid).map_err(failed)?;
    let asked = serde_json::from_slice(&question.body).map_err(|error| failed(error.to_string()))?;
    let verdict = question.verdict(false, &(reviewer.review)(&asked, beside)).map_err(failed)?;
    for warning in verdict.warnings {
        about.change.warn(warning);
    }
    if verdict.allowed { Ok(()) } else { Err(review::refused(&reviewer.name, verdict.result)) }
}
