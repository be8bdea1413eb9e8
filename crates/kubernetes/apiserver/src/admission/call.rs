//! One call of one webhook: whether it matches, the request, and the outcome.

use std::sync::Arc;

use super::index::Hook;
use super::review::{self, Question, Verdict};
use super::{Attributes, rules, typed};
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::webhook::{self, Call};

/// Longest response, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// Why a call did not allow the change.
#[derive(Debug)]
pub enum Failure {
    /// The call failed, or its response is invalid: the failure policy decides.
    Call(String),
    /// The change is refused, whatever the failure policy.
    Final(ApiError),
}

impl Failure {
    /// The error for the client; `None` if the failure policy ignores it.
    pub fn judged(self, hook: &Hook) -> Option<ApiError> {
        match self {
            Self::Final(error) => Some(error),
            Self::Call(why) if hook.ignores_failures => {
                tracing::warn!(webhook = hook.name, why, "a webhook could not be asked; its failure policy is Ignore");
                None
            }
            Self::Call(why) => Some(ApiError::internal(format!("failed calling webhook \"{}\": {why}", hook.name))),
        }
    }
}

/// Whether the webhook matches: returns the version in which it sees the change.
pub async fn concerned(
    objects: &Objects,
    hook: &Hook,
    about: &Attributes<'_>,
    object: Option<&Object>,
) -> ApiResult<Option<Arc<Resource>>> {
    if !rules::object_selected(&hook.objects, about, object) {
        return Ok(None);
    }
    let Some(seen_as) = rules::matched(objects, &hook.rules, hook.equivalent, about) else { return Ok(None) };
    if !rules::namespace_selected(objects, &hook.namespaces, about, object).await? {
        return Ok(None);
    }
    Ok(Some(seen_as))
}

/// Calls the webhook. `object` and `old` are in the version of `seen_as`.
pub async fn ask(
    objects: &Objects,
    hook: &Hook,
    about: &Attributes<'_>,
    seen_as: &Resource,
    (object, old): (Option<&Object>, Option<&Object>),
    mutating: bool,
) -> Result<Verdict, Failure> {
    if about.change.dry && !hook.dry_run {
        let text = format!("admission webhook \"{}\" does not support dry run", hook.name);
        return Err(Failure::Final(ApiError::bad_request(text)));
    }
    let question = Question::new(&hook.versions, about, seen_as, (object, old), objects.given.uid())
        .map_err(|why| Failure::Call(format!("could not create admission objects: {why}")))?;
    let target = hook.target.as_ref().map_err(|why| Failure::Call(format!("could not get REST client: {why}")))?;
    let call = Call { body: question.body.clone(), patience: hook.timeout, send_timeout: true, most: MAX_ANSWER };
    let failed = |why: String| Failure::Call(format!("failed to call webhook: {why}"));
    let answer = target.post(objects, &call).await.map_err(failed)?;
    if let Some(why) = webhook::refusal(&answer) {
        return Err(failed(why));
    }
    let review = webhook::decoded(&answer).map_err(failed)?;
    typed::check(&review).map_err(failed)?;
    let verdict = question
        .verdict(mutating, &review)
        .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
    for warning in &verdict.warnings {
        about.change.warn(warning.clone());
    }
    for (key, value) in &verdict.annotations {
        about.change.annotate(format!("{}/{key}", hook.name), value.clone());
    }
    if verdict.allowed {
        return Ok(verdict);
    }
    Err(Failure::Final(review::refused(&hook.name, verdict.result)))
}
