//! Reviews in the process: the program that embeds the server may say no to changes, as a validating webhook would, without one.

use std::sync::Arc;

use serde_json::Value;

use super::review::{self, Question};
use super::{Attributes, Operation};
use crate::given::Given;
use crate::object::Object;
use crate::status::{ApiError, ApiResult};

/// Answers an AdmissionReview (`admission.k8s.io/v1`) with one.
type Review = dyn Fn(&Value) -> Value + Send + Sync;

/// A validating webhook without the web: asked of each object of one resource that is created or changed, by whichever way.
#[derive(Clone)]
pub struct Reviewer {
    /// Name in refusals and in the audit log.
    pub name: String,
    /// API group of the objects.
    pub group: String,
    /// Version in which it reads them.
    pub version: String,
    /// The resource, plural.
    pub resource: String,
    /// Answers a review. It is called on the way of a request: it does not wait for anything.
    pub review: Arc<Review>,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviewer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Asks all that are concerned, one after another.
pub fn run(reviewers: &[Reviewer], given: &Given, about: &Attributes<'_>, object: Option<&Object>) -> ApiResult<()> {
    for reviewer in reviewers {
        let resource = about.resource;
        let concerned = resource.is(&reviewer.group, &reviewer.resource)
            && resource.version == reviewer.version
            && about.change.sub.is_empty()
            && about.operation != Operation::Delete;
        if concerned {
            ask(reviewer, given.uid(), about, object)?;
        }
    }
    Ok(())
}

fn ask(reviewer: &Reviewer, uid: String, about: &Attributes<'_>, object: Option<&Object>) -> ApiResult<()> {
    let failed = |why: String| ApiError::internal(format!("failed calling webhook \"{}\": {why}", reviewer.name));
    let versions = ["v1".to_owned()];
    let question = Question::new(&versions, about, about.resource, (object, about.old), uid).map_err(failed)?;
    let asked = serde_json::from_slice(&question.body).map_err(|error| failed(error.to_string()))?;
    let verdict = question.verdict(false, &(reviewer.review)(&asked)).map_err(failed)?;
    for warning in verdict.warnings {
        about.change.warn(warning);
    }
    if verdict.allowed { Ok(()) } else { Err(review::refused(&reviewer.name, verdict.result)) }
}
