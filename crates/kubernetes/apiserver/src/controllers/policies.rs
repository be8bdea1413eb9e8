//! The status of ValidatingAdmissionPolicies: type errors in their expressions.
//!
//! Follows the controller validatingadmissionpolicy-status of `k8s.io/kubernetes/pkg/controller`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::typecheck;
use crate::admission::GROUP;
use crate::change::Change;
use crate::decode;
use crate::fields::views::Views;
use crate::fields::{Scope, apply};
use crate::object::{self, Object};
use crate::route::Verb;
use crate::status::{ApiError, ApiResult};
use crate::store::Event;
use crate::verbs::Backend;

const STORAGE: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
const MANAGER: &str = "validatingadmissionpolicy-status";

/// Policies to check.
#[derive(Default)]
pub struct Policies {
    names: BTreeSet<String>,
    /// Policies whose check failed.
    failed: BTreeSet<String>,
}

impl Policies {
    /// Notes a change.
    pub fn see(&mut self, event: &Event) {
        if &*event.resource != STORAGE {
            return;
        }
        if event.deleted {
            self.names.remove(&event.name);
        } else {
            self.names.insert(event.name.clone());
        }
    }

    /// Schedules failed policies again.
    pub fn again(&mut self) {
        self.names.append(&mut self.failed);
    }

    /// Checks all noted policies. True if something must be retried.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        for name in std::mem::take(&mut self.names) {
            match report(backend, &name).await {
                Ok(()) | Err(ApiError { code: 404, .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, name, "the status of a policy is tried again");
                    self.failed.insert(name);
                }
            }
        }
        !self.failed.is_empty()
    }
}

/// Checks a policy that changed since its last check, and applies its status.
async fn report(backend: &Backend, name: &str) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let policies = catalog.find(GROUP, "v1", "validatingadmissionpolicies").ok_or_else(ApiError::unknown_path)?;
    let Some(stored) = backend.stored(&policies.key("", name)).await? else { return Ok(()) };
    let policy = backend.load(policies, &stored)?;
    let generation = object::metadata(&policy).get("generation").and_then(Value::as_i64).unwrap_or(0);
    let seen = policy.get("status").and_then(|s| s.get("observedGeneration")).and_then(Value::as_i64).unwrap_or(0);
    if generation <= seen {
        return Ok(());
    }
    let warnings = typecheck::check(backend, &policy).await?;
    let warnings: Vec<Value> =
        warnings.into_iter().map(|(path, warning)| json!({"fieldRef": path, "warning": warning})).collect();
    let checked = if warnings.is_empty() { json!({}) } else { json!({ "expressionWarnings": warnings }) };
    let mut config = Object::new();
    config.insert("apiVersion".into(), json!(policies.api_version()));
    config.insert("kind".into(), json!(policies.kind));
    config.insert("metadata".into(), json!({ "name": name }));
    config.insert("status".into(), json!({"observedGeneration": generation, "typeChecking": checked}));
    let mut change = Change::by_controller(Verb::Patch, MANAGER);
    (change.applied, change.sub) = (true, "status".to_owned());
    MANAGER.clone_into(&mut change.manager);
    let (views, now) = (Views::none(), backend.given.now());
    let scope = Scope { resource: policies, catalog: &catalog, sub: "status", manager: MANAGER, views, now };
    let make = |before: &Object| {
        let mut next = apply::apply(&scope, Some(before), &config, true)?;
        decode::decode(policies, &mut next, &mut Vec::new())?;
        Ok(next)
    };
    backend.change(&change, policies, "", name, make).await.map(drop)
}
