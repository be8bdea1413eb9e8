//! Mutating webhooks, called one after another: each sees the changes of those before it.

use std::collections::BTreeSet;
use std::sync::Arc;

use patches::json as rfc6902;
use serde_json::Value;

use super::call::{Failure, ask, concerned};
use super::index::Hook;
use super::review::Verdict;
use super::{Attributes, conditions};
use crate::decode::decode_internal;
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};

/// Tracks which webhooks are called a second time.
#[derive(Default)]
struct Again {
    /// Called since the last change, and willing to be called again.
    asked: BTreeSet<String>,
    /// Called before a later change, and willing to be called again.
    wanted: BTreeSet<String>,
}

/// The object between webhooks, in the version that the last one needed.
struct Travelling<'a> {
    object: Option<&'a mut Object>,
    version: Arc<Resource>,
}

/// Calls all webhooks, then once more those that request it after later changes to the object.
pub async fn run(
    objects: &Objects,
    hooks: &[Arc<Hook>],
    about: &Attributes<'_>,
    object: Option<&mut Object>,
) -> ApiResult<()> {
    let catalog = objects.registry.catalog();
    let requested = about.resource;
    let requested =
        catalog.find(&requested.group, &requested.version, &requested.plural).ok_or_else(ApiError::unknown_path)?;
    let mut travelling = Travelling { object, version: Arc::clone(requested) };
    let mut again = Again::default();
    let mut outcome = Ok(());
    for second in [false, true] {
        let mut changed = false;
        for hook in hooks.iter().filter(|h| !second || again.wanted.contains(&h.uid)).cloned().collect::<Vec<_>>() {
            match travelling.meet(objects, &hook, about).await {
                Ok(None) => continue,
                Ok(Some(moved)) if moved => {
                    changed = true;
                    again.wanted.append(&mut again.asked);
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if hook.again {
                again.asked.insert(hook.uid.clone());
            }
        }
        if outcome.is_err() || !changed {
            break;
        }
    }
    outcome?;
    travelling.become_version(objects, about, requested).await
}

impl Travelling<'_> {
    /// Calls one webhook. `None` if it does not match, else whether it changed the object.
    async fn meet(&mut self, objects: &Objects, hook: &Hook, about: &Attributes<'_>) -> ApiResult<Option<bool>> {
        let Some(seen_as) = concerned(objects, hook, about, self.object.as_deref()).await? else { return Ok(None) };
        self.become_version(objects, about, &seen_as).await?;
        let old = match about.old {
            Some(old) => Some(about.in_version(objects, old.clone(), &seen_as).await?),
            None => None,
        };
        let both = (self.object.as_deref(), old.as_ref());
        if !conditions::let_through(objects, &hook.conditions, about, &seen_as, both)? {
            return Ok(None);
        }
        let asked = ask(objects, hook, about, &seen_as, (self.object.as_deref(), old.as_ref()), true).await;
        let outcome = match asked {
            Ok(verdict) => self.apply(hook, about.kind.unwrap_or(&seen_as), &verdict),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(changed) => Ok(Some(changed)),
            Err(failure) => failure.judged(hook).map_or(Ok(Some(false)), Err),
        }
    }

    async fn become_version(
        &mut self,
        objects: &Objects,
        about: &Attributes<'_>,
        wanted: &Arc<Resource>,
    ) -> ApiResult<()> {
        if about.kind.is_none()
            && let Some(object) = self.object.as_deref_mut()
            && (self.version.version != wanted.version || self.version.group != wanted.group)
        {
            *object = objects.in_version(std::mem::take(object), &self.version, wanted).await?;
        }
        self.version = Arc::clone(wanted);
        Ok(())
    }

    /// Applies the patch of a response; true if it changed anything.
    fn apply(&mut self, hook: &Hook, seen_as: &Resource, verdict: &Verdict) -> Result<bool, Failure> {
        if verdict.patch.is_empty() {
            return Ok(false);
        }
        let undecodable = |why: &dyn std::fmt::Display| {
            Failure::Call(format!("received undecodable patch in webhook response: {why}"))
        };
        let (patch, _) = gojson::from_json(&verdict.patch).map_err(|why| undecodable(&why))?;
        let (operations, _) = rfc6902::parse(patch).map_err(|why| undecodable(&why))?;
        if operations.is_empty() {
            return Ok(false);
        }
        let Some(object) = self.object.as_deref_mut() else {
            return Err(Failure::Final(ApiError::internal(format!(
                "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
                hook.name
            ))));
        };
        if verdict.patch_type != "JSONPatch" {
            return Err(Failure::Call(format!("unsupported patch type \"{}\"", verdict.patch_type)));
        }
        let broken = |why: String| Failure::Final(ApiError::internal(why));
        let mut patched = Value::Object(object.clone());
        rfc6902::apply(&mut patched, &operations).map_err(|why| broken(why.to_string()))?;
        let Value::Object(mut patched) = patched else {
            return Err(broken("the patch leaves no object".to_owned()));
        };
        let changed = patched != *object;
        decode_internal(seen_as, &mut patched).map_err(|unfit| broken(unfit.bare()))?;
        *object = patched;
        Ok(changed)
    }
}
