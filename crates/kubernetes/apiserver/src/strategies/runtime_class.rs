//! RuntimeClasses: stored for those who run pods; nothing here does.

use crate::checks::{all_invalid, member, unchanged};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    namespaced: false,
    strategy: &RuntimeClass,
    ..Kind::NEW
};

/// The rules of RuntimeClasses.
#[derive(Debug)]
struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }
}

/// Checks a RuntimeClass.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let handler = member(object, "handler");
    if let Some(old) = old {
        unchanged("handler", handler, member(old, "handler"), errors);
        return;
    }
    all_invalid("handler", handler, names::dns_1123_label(handler.as_str().unwrap_or_default()), errors);
}
