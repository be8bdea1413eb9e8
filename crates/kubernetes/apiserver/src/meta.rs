//! Validation of metadata (apimachinery, `pkg/api/validation/objectmeta.go`), and generated names.

use serde_json::{Value, json};

use crate::checks::{all_invalid, labels};
use crate::given::Given;
use crate::object::{Object, finalizers, is_deleting, meta_str, metadata, name, strings};
use crate::resource::Resource;
use crate::status::{FieldError, FieldErrorKind};

/// Finalizer of foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of deletion that orphans dependents.
pub const ORPHAN: &str = "orphan";

/// Limit of all annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// Most errors about a second controller: each prints all owners, so more would only use memory.
const MAX_CONTROLLER_ERRORS: usize = 8;

/// Validates name, labels, annotations, owners and finalizers of a new object, in upstream's order.
pub fn validate(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    let prefix = meta_str(object, "generateName");
    if !prefix.is_empty() {
        all_invalid("metadata.generateName", &json!(prefix), wrong_name(resource, object, prefix, true), errors);
    }
    validate_name(resource, object, errors);
    common(metadata(object), "metadata", errors);
    finalizer_names(metadata(object), "metadata", errors);
}

/// Checks that there is a name.
pub fn unnamed(object: &Object, errors: &mut Vec<FieldError>) {
    if name(object).is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    }
}

/// Checks the name.
pub fn validate_name(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    unnamed(object, errors);
    let name = name(object);
    if !name.is_empty() {
        all_invalid("metadata.name", &json!(name), wrong_name(resource, object, name, false), errors);
    }
}

/// Errors in the name of an object, or in the prefix of a generated name.
fn wrong_name(resource: &Resource, object: &Object, name: &str, prefix: bool) -> Vec<String> {
    resource.strategy.wrong_name(object, name, prefix)
}

/// Validates the metadata of an embedded resource; paths begin at its own `metadata`.
pub fn validate_meta(meta: &Object, errors: &mut Vec<FieldError>) {
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    let (prefix, name) = (text("generateName"), text("name"));
    all_invalid("metadata.generateName", &json!(prefix), names::path_segment_prefix(prefix), errors);
    all_invalid("metadata.name", &json!(name), names::path_segment(name), errors);
    let namespace = text("namespace");
    if !namespace.is_empty() {
        all_invalid("metadata.namespace", &json!(namespace), names::dns_1123_label(namespace), errors);
    }
    common(meta, "metadata", errors);
    finalizer_names(meta, "metadata", errors);
}

/// Validates the metadata of a changed core Event, which upstream checks fewer times.
pub fn validate_changed_event(object: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    common(metadata(object), "metadata", errors);
    finalizer_names(metadata(object), "metadata", errors);
    new_finalizers(object, old, errors);
    common(metadata(object), "metadata", errors);
}

/// Validates a changed object's metadata. Upstream repeats some checks, which repeats their errors. `again` for kinds
/// whose changed objects are also checked like new ones.
pub fn validate_update(object: &Object, old: &Object, again: bool, errors: &mut Vec<FieldError>) {
    let meta = metadata(object);
    common(meta, "metadata", errors);
    finalizer_names(meta, "metadata", errors);
    for _ in 0..2 {
        new_finalizers(object, old, errors);
        common(meta, "metadata", errors);
    }
    if again {
        common(meta, "metadata", errors);
        finalizer_names(meta, "metadata", errors);
    }
}

fn new_finalizers(object: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if !is_deleting(old) {
        return;
    }
    let before = finalizers(old);
    let mut added: Vec<String> = finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
    added.sort();
    added.dedup();
    if !added.is_empty() {
        let list: Vec<String> = added.iter().map(|f| gotext::quote(f)).collect();
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            ),
        ));
    }
}

fn common(meta: &Object, path: &str, errors: &mut Vec<FieldError>) {
    labels(&format!("{path}.labels"), meta.get("labels").unwrap_or(&Value::Null), errors);
    let mut total = 0;
    for (key, value) in meta.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        total += key.len() + value.as_str().map_or(0, str::len);
        let wrong = names::qualified_name(&key.to_lowercase());
        all_invalid(&format!("{path}.annotations"), &json!(key), wrong, errors);
    }
    if total > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(format!("{path}.annotations"), MAX_ANNOTATIONS as u64));
    }
    owners(meta, &format!("{path}.ownerReferences"), errors);
}

fn finalizer_names(meta: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let list = strings(meta.get("finalizers"));
    let path = format!("{path}.finalizers");
    for finalizer in &list {
        all_invalid(&path, &json!(finalizer), names::qualified_name(finalizer), errors);
    }
    let has = |name: &str| list.iter().any(|f| f == name);
    if has(FOREGROUND) && has(ORPHAN) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, &json!(list), detail));
    }
}

/// Finalizers without a domain.
const STANDARD: [&str; 3] = [ORPHAN, FOREGROUND, "kubernetes"];

/// Checks that finalizers of core kinds are standard ones or have a domain.
pub fn core_finalizers(object: &Object, errors: &mut Vec<FieldError>) {
    for (at, finalizer) in finalizers(object).iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{at}]"), &json!(finalizer), detail));
        }
    }
}

/// Warnings about new finalizers of custom resources.
pub fn finalizer_warnings(object: &Object, old: Option<&Object>) -> Vec<String> {
    let before = old.map(finalizers).unwrap_or_default();
    let mut added: Vec<String> = finalizers(object).into_iter().filter(|f| !before.contains(f)).collect();
    added.sort();
    added.dedup();
    added
        .iter()
        .filter(|f| !f.contains('/') && !STANDARD.contains(&f.as_str()))
        .map(|f| {
            let path = if f.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with \
                 other finalizer writers",
                gotext::quote(f)
            )
        })
        .collect()
}

fn owners(meta: &Object, path: &str, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    let mut reported = 0;
    for owner in meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion");
        if version.is_empty() || version.ends_with('/') {
            errors.push(FieldError::invalid(
                format!("{path}.apiVersion"),
                &json!(version),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"].into_iter().filter(|k| text(k).is_empty()) {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(""), "must not be empty"));
        }
        if version == "v1" && text("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::of_struct(FieldErrorKind::Invalid, path, &as_go(owner), detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                None => controller = Some(this),
                Some(_) if reported == MAX_CONTROLLER_ERRORS => {}
                Some(first) => {
                    reported += 1;
                    let all = meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
                    let value: Value = all.map(as_go).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    );
                    errors.push(FieldError::of_struct(FieldErrorKind::Invalid, path, &value, detail));
                }
            }
        }
    }
}

/// An owner with its members in the order of Go's struct.
fn as_go(owner: &Value) -> Value {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    order.into_iter().filter_map(|key| Some((key.to_owned(), owner.get(key)?.clone()))).collect()
}

/// Generates a name: the prefix and five random characters, without vowels so that they spell no words.
pub fn generate(prefix: &str, given: &Given) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut out: String = prefix.chars().take(58).collect();
    let mut left = given.below((ALPHABET.len() as u64).pow(5));
    for _ in 0..5 {
        let at = usize::try_from(left % ALPHABET.len() as u64).unwrap_or_default();
        out.push(char::from(ALPHABET[at]));
        left /= ALPHABET.len() as u64;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_owners_do_not_explode() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": true});
        let error_count = |count: usize| {
            let meta = json!({"ownerReferences": vec![owner.clone(); count]});
            let mut errors = Vec::new();
            owners(meta.as_object().unwrap(), "metadata.ownerReferences", &mut errors);
            errors.len()
        };
        assert_eq!((error_count(1), error_count(3), error_count(1000)), (0, 2, MAX_CONTROLLER_ERRORS));
    }

    #[test]
    fn made_up_names_are_labels() {
        let made = generate(&"x-".repeat(40), &Given::default());
        assert!(made.starts_with("x-x-") && made.len() == names::MAX_LABEL && names::dns_1123_label(&made).is_empty());
        let given = Given::default();
        assert_ne!(generate("x", &given), generate("x", &given));
    }
}
