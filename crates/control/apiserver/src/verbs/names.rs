//! Names, labels and metadata: what Kubernetes lets them be.

use serde_json::{Value, json};

use super::delete::{FOREGROUND, ORPHAN};
use crate::gotext;
use crate::object::{Object, finalizers, is_deleting, meta_str, metadata, name, strings};
use crate::resource::Resource;
use crate::status::{FieldError, FieldErrorKind};

/// Bytes of all annotations.
const MAX_ANNOTATIONS: usize = 256 << 10;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Error text.
pub const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";
/// Error text.
pub const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
    an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// Error text.
pub const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// RFC 1123 label of at most 63 characters.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && dns_part(text)
}

/// RFC 1123 subdomain of at most 253 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(dns_part)
}

fn dns_part(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Optional DNS prefix and `/`, then a name of at most 63 characters.
pub fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Value of a label.
pub fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|b| b.is_ascii_alphanumeric());
    text.is_empty()
        || text.len() <= 63
            && edge(text.bytes().next())
            && edge(text.bytes().last())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// What is wrong with an RFC 1123 label.
pub fn dns_1123_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63);
    if !dns_part(text) {
        let dots = !text.is_empty() && text.split('.').all(dns_part);
        errors.push(if dots { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    errors
}

/// What is wrong with an RFC 1123 subdomain.
pub fn dns_1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 253);
    if !text.split('.').all(dns_part) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

/// What is wrong with a DNS-1035 label, in one text.
pub fn dns_1035_label(text: &str) -> Option<String> {
    let errors = dns_1035_label_errors(text);
    (!errors.is_empty()).then(|| errors.join(","))
}

/// What is wrong with a DNS-1035 label.
fn dns_1035_label_errors(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63);
    if !(dns_part(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(LABEL_1035.to_owned());
    }
    errors
}

/// What is wrong with a qualified name: an optional DNS prefix and `/`, then a name.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns_1123_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            *name
        }
        _ => {
            let shape = QUALIFIED.trim_start_matches("name part ");
            return vec![format!(
                "a qualified name {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else {
        errors.extend(too_long(name, 63).into_iter().map(|e| format!("name part {e}")));
    }
    if name.is_empty() || !value_shape(name) {
        errors.push(QUALIFIED.to_owned());
    }
    errors
}

/// What is wrong with the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63);
    if !value_shape(text) {
        errors.push(VALUE.to_owned());
    }
    errors
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most { vec![format!("must be no more than {most} characters")] } else { Vec::new() }
}

fn value_shape(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|b| b.is_ascii_alphanumeric());
    text.is_empty()
        || edge(text.bytes().next())
            && edge(text.bytes().last())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Checks name, labels, annotations, owners and finalizers of a new object, in upstream's order.
pub fn validate(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    let shape = |text: &str| match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => dns_1123_label(text),
        ("", "services") => dns_1035_label_errors(text),
        ("apiextensions.k8s.io", _) => {
            let mut errors = dns_1123_subdomain(text);
            let (group, plural) = crate::crd::names(object);
            if text != format!("{plural}.{group}") {
                errors.push("must be spec.names.plural+\".\"+spec.group".to_owned());
            }
            errors
        }
        ("rbac.authorization.k8s.io", _) => path_segment_errors(text),
        _ => dns_1123_subdomain(text),
    };
    let prefix = meta_str(object, "generateName");
    if !prefix.is_empty() {
        // A dash at the end is well when something follows it.
        let masked = if prefix.len() > 1 { prefix.strip_suffix('-').map(|p| format!("{p}a")) } else { None };
        for why in shape(masked.as_deref().unwrap_or(prefix)) {
            errors.push(FieldError::invalid("metadata.generateName", &json!(prefix), why));
        }
    }
    let own = name(object);
    if own.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for why in shape(own) {
            errors.push(FieldError::invalid("metadata.name", &json!(own), why));
        }
    }
    common(metadata(object), "metadata", errors);
    finalizer_names(metadata(object), "metadata", errors);
}

/// What a name may not be for its place in a path.
pub fn path_segment_errors(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%'].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Checks metadata of an embedded resource; paths begin at its own `metadata`.
pub fn validate_meta(meta: &Object, errors: &mut Vec<FieldError>) {
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["generateName", "name"] {
        for why in path_segment_errors(text(key)) {
            errors.push(FieldError::invalid(format!("metadata.{key}"), &json!(text(key)), why));
        }
    }
    let namespace = text("namespace");
    if !namespace.is_empty() {
        for why in dns_1123_label(namespace) {
            errors.push(FieldError::invalid("metadata.namespace", &json!(namespace), why));
        }
    }
    common(meta, "metadata", errors);
    finalizer_names(meta, "metadata", errors);
}

/// Checks a changed object's metadata. Upstream asks the same several times, and so tells some causes as often: `again`
/// for kinds of which a changed object is checked like a new one, too.
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
    for (key, value) in members(meta, "labels") {
        for why in qualified_name(key) {
            errors.push(FieldError::invalid(format!("{path}.labels"), &json!(key), why));
        }
        for why in label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.labels"), value, why));
        }
    }
    let mut total = 0;
    for (key, value) in members(meta, "annotations") {
        total += key.len() + value.as_str().map_or(0, str::len);
        for why in qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid(format!("{path}.annotations"), &json!(key), why));
        }
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
        for why in qualified_name(finalizer) {
            errors.push(FieldError::invalid(path.as_str(), &json!(finalizer), why));
        }
    }
    let has = |name: &str| list.iter().any(|f| f == name);
    if has(FOREGROUND) && has(ORPHAN) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(path, &json!(list), detail));
    }
}

/// Finalizers that need no domain.
const STANDARD: [&str; 3] = [ORPHAN, FOREGROUND, "kubernetes"];

/// Finalizers of core kinds are standard ones or have a domain.
pub fn core_finalizers(object: &Object, errors: &mut Vec<FieldError>) {
    for (at, finalizer) in finalizers(object).iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer.as_str()) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{at}]"), &json!(finalizer), detail));
        }
    }
}

/// What to tell about new finalizers of custom resources.
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
                Some(first) => {
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

/// An owner with its members in the order of Go's type.
fn as_go(owner: &Value) -> Value {
    let order = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    order.into_iter().filter_map(|key| Some((key.to_owned(), owner.get(key)?.clone()))).collect()
}

fn members<'a>(meta: &'a Object, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// A name from a prefix: five random characters that spell no words.
pub fn generate(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut out: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        let at = usize::from(rand::random::<u8>()) % ALPHABET.len();
        out.push(char::from(ALPHABET[at]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(dns_1123_label("a-1").is_empty() && dns_1123_label("a.b") == ["must not contain dots"]);
        assert_eq!(dns_1035_label("1a").as_deref(), Some(LABEL_1035));
        assert!(is_dns_subdomain("a.b-c") && !is_dns_subdomain("a..b") && !is_dns_subdomain(""));
        assert!(is_qualified_name("a.b/c_D") && !is_qualified_name("/c") && !is_qualified_name("a/"));
        assert!(is_label_value("") && is_label_value("A.b") && !is_label_value("-a"));
        assert!(dns_1123_label(&generate("x-")).is_empty());
    }
}
