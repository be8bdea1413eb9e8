//! What Secrets and ConfigMaps have in common: data under keys.

use serde_json::{Value, json};

use crate::checks::{all_invalid, formats};
use crate::object::Object;
use crate::status::{FieldError, FieldErrorKind};

/// Bytes of a Secret's or ConfigMap's data.
pub(super) const MAX_DATA: usize = 1 << 20;

/// What is said of a change of what may not change any more.
pub(super) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// Checks the keys.
pub(super) fn keys(field: &str, data: &Value, errors: &mut Vec<FieldError>) {
    for (key, _) in data.as_object().into_iter().flatten() {
        all_invalid(&format!("{field}[{key}]"), &json!(key), formats::config_key(key), errors);
    }
}

/// Bytes of all values.
pub(super) fn size(data: &Value, base64: bool) -> usize {
    let bytes = |text: &str| {
        let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
        if base64 { (text.len() / 4 * 3).saturating_sub(padding) } else { text.len() }
    };
    data.as_object().into_iter().flatten().map(|(_, v)| bytes(v.as_str().unwrap_or_default())).sum()
}

/// More data than there may be.
pub(super) fn too_long(field: &str) -> FieldError {
    FieldError {
        kind: FieldErrorKind::TooLong,
        field: field.to_owned(),
        value: String::new(),
        detail: format!("may not be more than {MAX_DATA} bytes"),
    }
}

/// Checks that nothing of an immutable object changes.
pub(super) fn immutable(object: &Object, old: &Object, members: &[&str], errors: &mut Vec<FieldError>) {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    for member in members.iter().filter(|m| object.get(**m) != old.get(**m)) {
        errors.push(FieldError::forbidden(*member, IMMUTABLE));
    }
}
