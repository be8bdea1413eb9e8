//! Parts that both versions of the documents share.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::custom;
use crate::resource::{Catalog, Flavor};

/// Stored schemas of custom resources, by group, version and kind.
pub(super) type Custom = BTreeMap<(String, String, String), custom::Stored>;

/// Groups of built-in kinds, each with its own discovery endpoint.
pub(super) fn builtin_groups(catalog: &Catalog) -> Vec<&str> {
    let mut groups: Vec<&str> =
        catalog.all().filter(|r| matches!(r.flavor, Flavor::Builtin(_))).map(|r| r.group.as_str()).collect();
    groups.dedup();
    groups
}

pub(super) fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The security schemes for clients.
pub(super) fn security() -> Value {
    let text = "A token in the header Authorization, after the word Bearer.";
    json!({"BearerToken": {"type": "apiKey", "in": "header", "name": "authorization", "description": text}})
}
