//! Validating webhooks: all matching ones are called at the same time, and all must allow the change.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::call::{ask, concerned};
use super::index::Hook;
use super::{Attributes, conditions};
use crate::object::Object;
use crate::objects::Objects;
use crate::status::ApiResult;

/// Object and old object in one version.
type Pair = (Option<Object>, Option<Object>);

/// Calls all matching webhooks. Returns the first error to arrive, after all of them responded.
pub async fn run(
    objects: &Objects,
    hooks: &[Arc<Hook>],
    about: &Attributes<'_>,
    object: Option<&Object>,
) -> ApiResult<()> {
    let mut pairs: BTreeMap<(String, String), Pair> = BTreeMap::new();
    let mut calls = Vec::new();
    for hook in hooks {
        let Some(seen_as) = concerned(objects, hook, about, object).await? else { continue };
        let version = (seen_as.group.clone(), seen_as.version.clone());
        if !pairs.contains_key(&version) {
            let mut both = [object.cloned(), about.old.cloned()];
            for one in &mut both {
                if let Some(found) = one.take() {
                    *one = Some(about.in_version(objects, found, &seen_as).await?);
                }
            }
            let [new, old] = both;
            pairs.insert(version.clone(), (new, old));
        }
        let (new, old) = pairs.get(&version).map_or((None, None), |(n, o)| (n.as_ref(), o.as_ref()));
        if !conditions::let_through(objects, &hook.conditions, about, &seen_as, (new, old))? {
            continue;
        }
        calls.push((hook, seen_as, version));
    }
    let mut running: FuturesUnordered<_> = calls
        .iter()
        .map(|(hook, seen_as, version)| {
            let (new, old) = pairs.get(version).map_or((None, None), |(n, o)| (n.as_ref(), o.as_ref()));
            async move {
                let asked = ask(objects, hook, about, seen_as, (new, old), false).await;
                asked.err().and_then(|failure| failure.judged(hook))
            }
        })
        .collect();
    let mut first = None;
    while let Some(outcome) = running.next().await {
        first = first.or(outcome);
    }
    first.map_or(Ok(()), Err)
}
