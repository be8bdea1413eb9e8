//! Names, labels and metadata: what Kubernetes lets them be.

use serde_json::{Value, json};

use crate::object::{Object, finalizers, metadata, name};
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

/// What is wrong with a name that need only be one segment of a path.
pub fn path_segment_errors(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
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

/// Checks names, labels, annotations, owners and finalizers.
pub fn validate(resource: &Resource, object: &Object, errors: &mut Vec<FieldError>) {
    let own = name(object);
    let label_only = resource.is("", "namespaces");
    if own.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if resource.group == crate::auth::index::GROUP {
        let wrong = path_segment_errors(own).into_iter();
        errors.extend(wrong.map(|detail| FieldError::invalid("metadata.name", &json!(own), detail)));
    } else if label_only && !is_dns_label(own) {
        errors.push(FieldError::invalid("metadata.name", &json!(own), LABEL));
    } else if !is_dns_subdomain(own) {
        errors.push(FieldError::invalid("metadata.name", &json!(own), SUBDOMAIN));
    }
    let meta = metadata(object);
    for (key, value) in members(meta, "labels") {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &json!(key), QUALIFIED));
        }
        if !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, VALUE));
        }
    }
    let mut total = 0;
    for (key, value) in members(meta, "annotations") {
        total += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &json!(key), QUALIFIED));
        }
    }
    if total > MAX_ANNOTATIONS {
        errors.push(FieldError {
            kind: FieldErrorKind::TooLong,
            field: "metadata.annotations".into(),
            value: String::new(),
            detail: format!("may not be more than {MAX_ANNOTATIONS} bytes"),
        });
    }
    for finalizer in finalizers(object) {
        if !is_qualified_name(&finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", &json!(finalizer), QUALIFIED));
        }
    }
    owners(meta, errors);
}

fn owners(meta: &Object, errors: &mut Vec<FieldError>) {
    let mut controllers = 0;
    for (at, owner) in meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                let field = format!("metadata.ownerReferences[{at}].{key}");
                let detail = if key == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                errors.push(FieldError::invalid(field, &json!(""), detail));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            controllers += 1;
        }
    }
    if controllers > 1 {
        let value = meta.get("ownerReferences").unwrap_or(&Value::Null);
        let detail = "Only one reference can have Controller set to true";
        errors.push(FieldError::invalid("metadata.ownerReferences", value, detail));
    }
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
        assert!(is_dns_label("a-1") && !is_dns_label("a.b") && !is_dns_label("-a") && !is_dns_label("A"));
        assert!(is_dns_subdomain("a.b-c") && !is_dns_subdomain("a..b") && !is_dns_subdomain(""));
        assert!(is_qualified_name("a.b/c_D") && !is_qualified_name("/c") && !is_qualified_name("a/"));
        assert!(is_label_value("") && is_label_value("A.b") && !is_label_value("-a"));
        assert!(is_dns_label(&generate("x-")));
    }
}
