//! Namespaces.

use serde_json::json;

use crate::checks::{all_invalid, list, member, text};
use crate::object::{Object, child, is_deleting, metadata_mut, name, strings};
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing, masked};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    short_names: &["ns"],
    namespaced: false,
    status: true,
    strategy: &Namespace,
    ..Kind::NEW
};

/// The label with a namespace's name.
const NAME: &str = "kubernetes.io/metadata.name";

/// Finalizers that need no domain.
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The rules of Namespaces.
#[derive(Debug)]
struct Namespace;

impl Strategy for Namespace {
    fn defaults(&self, object: &mut Object) {
        let label = name(object).to_owned();
        if !label.is_empty() {
            child(metadata_mut(object), "labels").insert(NAME.into(), json!(label));
        }
    }

    fn prepare_create(&self, object: &mut Object) {
        // A name that was made only now has no label yet.
        let label = name(object).to_owned();
        child(metadata_mut(object), "labels").insert(NAME.into(), json!(label));
        let finalizers = child(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = finalizers.as_array_mut()
            && !list.contains(&json!("kubernetes"))
        {
            list.push(json!("kubernetes"));
        }
        object.insert("status".into(), json!({"phase": "Active"}));
    }

    fn prepare_update(&self, object: &mut Object, old: &Object) {
        for key in ["spec", "status"] {
            match old.get(key) {
                Some(value) => object.insert(key.into(), value.clone()),
                None => object.shift_remove(key),
            };
        }
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.sub, &mut found.errors);
    }

    fn wrong_name(&self, _: &Object, name: &str, prefix: bool) -> Vec<String> {
        names::dns_1123_label(&masked(name, prefix))
    }

    fn parts_take_metadata(&self) -> bool {
        true
    }

    fn subresources(&self) -> &'static [&'static str] {
        &["finalize"]
    }

    fn deletes_collections(&self) -> bool {
        false
    }

    fn is_protected(&self, name: &str) -> bool {
        matches!(name, "default" | "kube-system" | "kube-public")
    }

    fn checks_preconditions(&self) -> bool {
        true
    }

    fn begin_deletion(&self, object: &mut Object, _now: &str) {
        metadata_mut(object).shift_remove("deletionGracePeriodSeconds");
        child(object, "status").insert("phase".into(), json!("Terminating"));
    }

    fn is_held(&self, object: &Object) -> bool {
        !strings(object.get("spec").and_then(|s| s.get("finalizers"))).is_empty()
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("status.phase", "")]
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}

/// Checks a Namespace as it is written by `sub`.
fn validate(object: &Object, sub: &str, errors: &mut Vec<FieldError>) {
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
