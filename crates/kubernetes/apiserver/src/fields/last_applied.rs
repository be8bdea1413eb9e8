//! Migration from client-side to server-side apply: kubectl's annotation with its last applied configuration
//! (apimachinery `managedfields/internal`: `lastappliedmanager.go`, `lastappliedupdater.go`).

use serde_json::{Value, json};
use structured_merge::{Element, Set, check, compare, to_set};

use super::Scope;
use super::types::Ty;
use crate::object::{Object, child, metadata, metadata_mut};

/// The annotation.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Limit of all annotations of an object in bytes, keys and values.
const MAX_ANNOTATIONS: usize = 256 << 10;

fn annotation(object: &Object) -> Option<&str> {
    let annotations = metadata(object).get("annotations")?;
    annotations.get(ANNOTATION).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Fields that client-side apply wrote and that are unchanged since.
pub fn allowed(scope: &Scope<'_>, live: &Object) -> Option<Set> {
    let (value, _) = gojson::from_json(annotation(live)?.as_bytes()).ok()?;
    let Value::Object(last) = value else { return None };
    if last.get("apiVersion").and_then(Value::as_str) != Some(&scope.resource.api_version()) {
        return None;
    }
    let ty = Ty::of(scope.resource);
    if check(ty, &last).into_text().is_some() {
        return None;
    }
    let differs = compare(ty, &last, live).ok()?;
    let set = to_set(ty, &last);
    Some(set.difference(&differs.modified).difference(&differs.added).difference(&differs.removed))
}

/// Whether a field is in a set.
pub fn has(set: &Set, path: &[Element]) -> bool {
    match path {
        [] => false,
        [last] => set.node(last).is_some_and(|n| n.member),
        [first, rest @ ..] => set.node(first).is_some_and(|n| has(&n.below, rest)),
    }
}

/// Updates the annotation, if there is one, to the present configuration.
pub fn renew(object: &mut Object, config: &Object) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = metadata_mut(&mut config).get_mut("annotations") {
        annotations.shift_remove(ANNOTATION);
        if annotations.is_empty() {
            metadata_mut(&mut config).shift_remove("annotations");
        }
    }
    let mut value = Value::Object(config);
    value.sort_all_objects();
    // Go's encoder appends a newline, and escapes for HTML.
    let text = format!("{}\n", gotext::encoded(&value))
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e");
    let annotations = child(metadata_mut(object), "annotations");
    annotations.insert(ANNOTATION.into(), json!(text));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.shift_remove(ANNOTATION);
    }
}
