//! Annotations whose changes are recorded in the audit log and in the server's own log, with their old and new
//! values. The embedding program names them: annotations that express consent.

use serde_json::Value;

use super::Backend;
use crate::change::Change;
use crate::object::{self, Object};
use crate::resource::Resource;

/// Longest part of a value that is recorded, in characters.
const MOST: usize = 256;

/// The value of an annotation, for the log.
fn value(object: Option<&Object>, key: &str) -> String {
    let found = object.and_then(|o| object::metadata(o).get("annotations")?.get(key)?.as_str());
    found.map_or_else(|| "nothing".to_owned(), |text| gotext::quote(&text.chars().take(MOST).collect::<String>()))
}

impl Backend {
    /// Records each audited annotation that a change adds, alters or removes.
    pub fn audit_annotations(&self, change: &Change, resource: &Resource, object: &Object, old: Option<&Object>) {
        for key in self.audited.get().into_iter().flatten() {
            let (before, after) = (value(old, key), value(Some(object), key));
            if change.dry || before == after {
                continue;
            }
            change.annotate(key.clone(), format!("{before} -> {after}"));
            let (user, name) = (&change.user.name, object::name(object));
            let ns = object::metadata(object).get("namespace").and_then(Value::as_str).unwrap_or_default();
            tracing::info!(user, resource = resource.plural, ns, name, key, before, after, "an annotation was changed");
        }
    }
}
