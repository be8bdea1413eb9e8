//! Namespaces.

use serde_json::json;

use super::{all_invalid, list, member, text};
use crate::object::{Object, is_deleting};
use crate::status::FieldError;

/// Finalizers that need no domain.
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Checks a Namespace as it is written by `sub`.
pub fn namespace(object: &Object, sub: &str, errors: &mut Vec<FieldError>) {
    if sub == "status" {
        let phase = text(member(object, "status"), "phase");
        let (wanted, when) = if is_deleting(object) { ("Terminating", "is not empty") } else { ("Active", "is empty") };
        if phase != wanted {
            let detail = format!("may only be '{wanted}' if `deletionTimestamp` {when}");
            errors.push(FieldError::invalid("status.Phase", &json!(phase), detail));
        }
        return;
    }
    for (at, finalizer) in list(member(object, "spec"), "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let field = if sub == "finalize" { format!("spec.finalizers[{at}]") } else { "spec.finalizers".to_owned() };
        all_invalid(&field, finalizer, names::qualified_name(name), errors);
        if !name.contains('/') && !STANDARD.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(field, finalizer, detail));
        }
    }
}
