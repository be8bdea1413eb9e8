//! The status of ResourceQuotas: limits and usage.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::change::Change;
use crate::object::Object;
use crate::quota;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::Event;
use crate::verbs::Backend;

/// Namespaces whose usage may have changed.
#[derive(Default)]
pub struct Quotas {
    changed: BTreeSet<String>,
    /// Namespaces whose status update failed.
    failed: BTreeSet<String>,
}

impl Quotas {
    /// Notes a change.
    pub fn see(&mut self, backend: &Backend, event: &Event) {
        // An update of a Service can change its usage.
        let counts = event.deleted || event.prev == 0 || matches!(&*event.resource, quota::STORAGE | "services");
        if counts && !event.ns.is_empty() && !backend.quotas.of(&event.ns).is_empty() {
            self.changed.insert(event.ns.clone());
        }
    }

    /// Schedules failed namespaces again.
    pub fn again(&mut self) {
        self.changed.append(&mut self.failed);
    }

    /// Updates the status in all noted namespaces. True if something must be retried.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        for ns in std::mem::take(&mut self.changed) {
            if let Err(error) = report(backend, &ns).await {
                tracing::debug!(%error, ns, "the status of quotas is tried again");
                self.failed.insert(ns);
            }
        }
        !self.failed.is_empty()
    }
}

/// Notes all stored quotas.
pub async fn load(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let quotas = catalog.find("", "v1", quota::STORAGE).ok_or_else(ApiError::unknown_path)?;
    for row in backend.select(quotas, "", &Selector::default()).await?.1 {
        backend.quotas.see(&quotas.key(&row.ns, &row.name), row.rev, Some(&row.body));
    }
    Ok(())
}

async fn report(backend: &Backend, ns: &str) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let quotas = catalog.find("", "v1", quota::STORAGE).ok_or_else(ApiError::unknown_path)?;
    for (name, hard) in backend.quotas.of(ns) {
        let used = backend.quota_used(ns, &hard).await?;
        let Some(stored) = backend.stored(&quotas.key(ns, &name)).await? else { continue };
        let before = backend.load(quotas, &stored)?;
        let wanted = quota::status(&before, &used);
        let empty = |status: &Value| status["hard"].as_object().is_none_or(Object::is_empty);
        let present = before.get("status").cloned().unwrap_or_else(|| json!({}));
        if present == wanted || empty(&present) && empty(&wanted) {
            continue;
        }
        let mut change = Change::by_controller(Verb::Update, "resourcequota-controller");
        change.sub = "status".to_owned();
        let make = |before: &Object| {
            let mut next = before.clone();
            next.insert("status".into(), quota::status(before, &used));
            Ok(next)
        };
        match backend.change(&change, quotas, ns, &name, make).await {
            Ok(_) => {}
            Err(error) if error.reason == StatusReason::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
