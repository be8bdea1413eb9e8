//! The present webhook configurations and policies: read once, then updated from the store's events in memory. A
//! change therefore sees every configuration that was acknowledged before it began.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;

use super::GROUP;
use super::conditions::Conditions;
use super::policy::definition::{Binding, InForce, Policy};
use super::reviewer::Reviewer;
use super::rules::{LabelSelector, Rule};
use crate::object::{Object, strings};
use crate::objects::Objects;
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::EventsError;
use crate::webhook::Target;

/// Default timeout of a webhook, in seconds.
const DEFAULT_TIMEOUT: u64 = 10;
/// Resources of the index.
const WATCHED: [&str; 4] = [
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];

/// One webhook of a configuration.
pub struct Hook {
    /// Its name.
    pub name: String,
    /// Unique identifier of the webhook.
    pub uid: String,
    /// Its target, or why it cannot be parsed.
    pub target: Result<Target, String>,
    /// The changes that it matches.
    pub rules: Vec<Rule>,
    /// Whether rules also match other versions of the same objects.
    pub equivalent: bool,
    /// Whether a failed call allows the change (`failurePolicy: Ignore`).
    pub ignores_failures: bool,
    /// Namespaces that it matches.
    pub namespaces: LabelSelector,
    /// Objects that it matches.
    pub objects: LabelSelector,
    /// Whether it may be called in a dry run.
    pub dry_run: bool,
    /// Timeout of a call.
    pub timeout: Duration,
    /// Review versions that it accepts, in its order of preference.
    pub versions: Vec<String>,
    /// Whether to call it again after later changes to the object.
    pub again: bool,
    /// Match conditions that must hold for a call.
    pub conditions: Conditions,
}

/// All configurations at one revision.
#[derive(Default)]
pub struct Index {
    /// Mutating webhooks in the order of their calls.
    pub mutating: Vec<Arc<Hook>>,
    /// Validating webhooks.
    pub validating: Vec<Arc<Hook>>,
    /// Policies that have bindings.
    pub policies: Vec<InForce>,
}

/// The parsed content of one object.
enum Part {
    Hooks(Vec<Arc<Hook>>),
    Policy(Arc<Policy>),
    Binding(Arc<Binding>),
}

/// All parsed objects, by storage name and object name.
type Configurations = BTreeMap<(Arc<str>, String), Part>;

/// The sources of the index.
#[derive(Default)]
struct Sources {
    /// Revision up to which all events are included; 0 before the first read.
    at: u64,
    configurations: Configurations,
    /// Whether a configuration has changed since the index was built, even if later events could not be read.
    changed: bool,
}

/// The index and its updates.
#[derive(Default)]
pub struct Admission {
    /// In-process reviewers.
    pub reviewers: Vec<Reviewer>,
    /// Revision of `index`.
    fresh: AtomicU64,
    index: RwLock<Arc<Index>>,
    sources: Mutex<Sources>,
}

impl Admission {
    /// With in-process reviewers.
    pub fn with(reviewers: Vec<Reviewer>) -> Self {
        Self { reviewers, ..Self::default() }
    }

    /// The configurations as of the newest revision.
    pub async fn now(&self, objects: &Objects) -> ApiResult<Arc<Index>> {
        let newest = objects.store.revision();
        if self.fresh.load(Ordering::Acquire) < newest {
            let mut sources = self.sources.lock().await;
            if sources.at < newest {
                sources.catch_up(objects).await?;
            }
            if std::mem::take(&mut sources.changed) {
                let index = Arc::new(sources.index());
                *self.index.write().unwrap_or_else(PoisonError::into_inner) = index;
            }
            self.fresh.store(sources.at, Ordering::Release);
        }
        Ok(Arc::clone(&self.index.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Sources {
    /// Applies new events, or reads everything if there is no usable state.
    async fn catch_up(&mut self, objects: &Objects) -> ApiResult<()> {
        if self.at == 0 {
            return self.read_all(objects).await;
        }
        let everything: Arc<str> = "".into();
        loop {
            let (events, upto) = match objects.store.events_after(&everything, self.at).await {
                Ok(found) => found,
                Err(EventsError::Compacted { .. }) => return self.read_all(objects).await,
                Err(error) => return Err(ApiError::internal(error)),
            };
            self.at = upto;
            if events.is_empty() {
                return Ok(());
            }
            for event in events.iter().filter(|e| e.resource.starts_with(GROUP)) {
                let catalog = objects.registry.catalog();
                let Some(resource) = catalog.by_storage(&event.resource) else { continue };
                let key = (Arc::clone(&event.resource), event.name.clone());
                self.changed = true;
                if event.deleted {
                    self.configurations.remove(&key);
                } else if let Ok(object) = resource.load(event.rev, &event.body)
                    && let Some(part) = part(resource, &event.name, &object)
                {
                    self.configurations.insert(key, part);
                }
            }
        }
    }

    async fn read_all(&mut self, objects: &Objects) -> ApiResult<()> {
        let at = objects.store.revision();
        let mut configurations = Configurations::new();
        let catalog = objects.registry.catalog();
        for plural in WATCHED {
            let Some(resource) = catalog.find(GROUP, "v1", plural) else { continue };
            for row in objects.select(resource, "", &Selector::default()).await?.1 {
                let object = resource.load(row.rev, &row.body).map_err(ApiError::internal)?;
                if let Some(part) = part(resource, &row.name, &object) {
                    configurations.insert((Arc::clone(&resource.storage), row.name), part);
                }
            }
        }
        // Events that occurred during this read are applied again later.
        (self.at, self.configurations, self.changed) = (at.max(1), configurations, true);
        Ok(())
    }

    /// Builds the index. Configurations are ordered by name, their webhooks as listed.
    fn index(&self) -> Index {
        let of = |plural: &str| {
            let storage = format!("{GROUP}/{plural}");
            self.configurations.iter().filter(move |((of, _), _)| **of == *storage).map(|(_, part)| part)
        };
        let hooks = |plural: &str| -> Vec<Arc<Hook>> {
            of(plural).flat_map(|p| if let Part::Hooks(hooks) = p { hooks.as_slice() } else { &[] }).cloned().collect()
        };
        let mut bindings: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for part in of("validatingadmissionpolicybindings") {
            if let Part::Binding(binding) = part {
                bindings.entry(&binding.policy).or_default().push(Arc::clone(binding));
            }
        }
        let policies = of("validatingadmissionpolicies").filter_map(|part| match part {
            Part::Policy(policy) => Some((Arc::clone(policy), bindings.remove(policy.name.as_str())?)),
            _ => None,
        });
        let policies = policies.collect();
        Index { mutating: hooks(WATCHED[0]), validating: hooks(WATCHED[1]), policies }
    }
}

fn part(resource: &Resource, name: &str, object: &Object) -> Option<Part> {
    Some(match resource.plural.as_str() {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            let list = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
            Part::Hooks(list.enumerate().map(|(at, hook)| Arc::new(self::hook(name, at, hook))).collect())
        }
        "validatingadmissionpolicies" => Part::Policy(Arc::new(Policy::parse(name, object))),
        "validatingadmissionpolicybindings" => Part::Binding(Arc::new(Binding::parse(name, object))),
        _ => return None,
    })
}

fn hook(configuration: &str, at: usize, hook: &Value) -> Hook {
    let text = |key: &str| hook.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = text("name").to_owned();
    let rules = hook.get("rules").and_then(Value::as_array);
    let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(DEFAULT_TIMEOUT);
    Hook {
        uid: format!("{configuration}/{name}/{at}"),
        name,
        target: Target::parse(hook.get("clientConfig").unwrap_or(&Value::Null)),
        rules: rules.into_iter().flatten().map(Rule::parse).collect(),
        equivalent: text("matchPolicy") != "Exact",
        ignores_failures: text("failurePolicy") == "Ignore",
        namespaces: LabelSelector::parse(hook.get("namespaceSelector")),
        objects: LabelSelector::parse(hook.get("objectSelector")),
        dry_run: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        timeout: Duration::from_secs(seconds.clamp(1, 30)),
        versions: strings(hook.get("admissionReviewVersions")),
        again: text("reinvocationPolicy") == "IfNeeded",
        conditions: Conditions::parse(hook, false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object;
    use crate::store::{Expect, Op, Write};
    use crate::verbs::Backend;

    #[tokio::test]
    async fn what_was_read_before_the_store_failed_is_not_lost() {
        let (backend, _dir) = Backend::for_tests();
        let catalog = backend.registry.catalog();
        let resource = catalog.find(GROUP, "v1", WATCHED[1]).unwrap();
        let write = async |name: &str| {
            let Value::Object(object) = json!({"metadata": {"name": name}, "webhooks": [{"name": name}]}) else {
                unreachable!()
            };
            let op = Op::Put(object::to_tail(object));
            backend.store.write(Write { key: resource.key("", name), expect: Expect::Absent, op, guard: None }).await
        };
        write("a").await.unwrap();
        let admission = Admission::default();
        assert_eq!(admission.now(&backend).await.unwrap().validating.len(), 1);
        write("b").await.unwrap();
        // The state after a read that found `b` and failed later.
        let mut sources = admission.sources.lock().await;
        sources.catch_up(&backend).await.unwrap();
        assert_eq!((sources.at, sources.changed), (2, true));
        drop(sources);
        assert_eq!(admission.now(&backend).await.unwrap().validating.len(), 2);
    }
}
