//! Leases.

use serde_json::{Value, json};

use crate::checks::{all_invalid, member, text};
use crate::object::{Object, child};
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind =
    Kind { group: "coordination.k8s.io", kind: "Lease", plural: "leases", strategy: &Lease, ..Kind::NEW };

/// The rules of Leases.
#[derive(Debug)]
struct Lease;

impl Strategy for Lease {
    fn prepare_create(&self, object: &mut Object) {
        prepare(object, None);
    }

    fn prepare_update(&self, object: &mut Object, old: &Object) {
        prepare(object, Some(old));
    }

    fn validate(&self, _: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, &mut found.errors);
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

/// Drops what belongs to coordinated leader election, which is off, unless it was there before.
fn prepare(object: &mut Object, old: Option<&Object>) {
    for key in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| member(old, "spec").get(key).is_none()) {
            child(object, "spec").shift_remove(key);
        }
    }
}

/// Checks a Lease.
fn validate(object: &Object, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    for (key, least, detail) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(number) = spec.get(key).and_then(Value::as_i64).filter(|n| *n < least) {
            errors.push(FieldError::invalid(format!("spec.{key}"), &json!(number), detail));
        }
    }
    if let Some(strategy) = spec.get("strategy").and_then(Value::as_str) {
        // Upstream's path has the name twice.
        let field = "spec.strategy.strategy";
        if strategy.contains('/') {
            all_invalid(field, &json!(strategy), names::qualified_name(strategy), errors);
        } else if strategy != "OldestEmulationVersion" {
            errors.push(FieldError::not_supported(field, &json!(strategy), &["OldestEmulationVersion"]));
        }
    }
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden("spec.preferredHolder", detail));
    }
}
