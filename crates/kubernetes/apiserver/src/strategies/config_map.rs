//! ConfigMaps.

use serde_json::json;

use super::data::{MAX_DATA, immutable, keys, size, too_long};
use crate::checks::{all_invalid, formats, member};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, MetadataChecks, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind =
    Kind { kind: "ConfigMap", plural: "configmaps", short_names: &["cm"], strategy: &ConfigMap, ..Kind::NEW };

/// The rules of ConfigMaps.
#[derive(Debug)]
struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::CoreTwice
    }
}

/// Checks a ConfigMap.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        immutable(object, old, &["data", "binaryData"], errors);
    }
    let (data, binary) = (member(object, "data"), member(object, "binaryData"));
    for key in data.as_object().into_iter().flatten().map(|(key, _)| key) {
        all_invalid(&format!("data[{key}]"), &json!(key), formats::config_key(key), errors);
        if binary.get(key).is_some() {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), &json!(key), detail));
        }
    }
    keys("binaryData", binary, errors);
    if size(data, false) + size(binary, true) > MAX_DATA {
        // Upstream gives a path of one empty name, and that is printed so.
        errors.push(too_long("[]"));
    }
}
