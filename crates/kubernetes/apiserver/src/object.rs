//! Objects as JSON values, and how they are stored.
//!
//! What is stored is a *tail*: the object without `apiVersion`, `kind` and `metadata.resourceVersion`. These three are
//! put in front when it is read, so a stored object serves every version of its kind without being parsed, and the
//! writer need not know the revision before it commits.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};

/// A JSON object.
pub type Object = Map<String, Value>;

/// The object's metadata; an empty map if it has none.
pub fn metadata(object: &Object) -> &Object {
    static EMPTY: std::sync::OnceLock<Object> = std::sync::OnceLock::new();
    object.get("metadata").and_then(Value::as_object).unwrap_or_else(|| EMPTY.get_or_init(Object::new))
}

/// The object's metadata to write to; made if absent or not an object.
pub fn metadata_mut(object: &mut Object) -> &mut Object {
    child(object, "metadata")
}

/// A member that is an object; made if absent or of another type.
pub fn child<'a>(object: &'a mut Object, key: &str) -> &'a mut Object {
    if !object.get(key).is_some_and(Value::is_object) {
        object.insert(key.to_owned(), json!({}));
    }
    match object.get_mut(key) {
        Some(Value::Object(map)) => map,
        _ => unreachable!("an object was put there just before"),
    }
}

/// A string of the metadata, empty if absent.
pub fn meta_str<'a>(object: &'a Object, key: &str) -> &'a str {
    metadata(object).get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The object's name.
pub fn name(object: &Object) -> &str {
    meta_str(object, "name")
}

/// The finalizers.
pub fn finalizers(object: &Object) -> Vec<String> {
    strings(metadata(object).get("finalizers"))
}

/// Replaces the finalizers; an empty list removes the field.
pub fn set_finalizers(object: &mut Object, finalizers: &[String]) {
    let meta = metadata_mut(object);
    if finalizers.is_empty() {
        meta.shift_remove("finalizers");
    } else {
        meta.insert("finalizers".into(), json!(finalizers));
    }
}

/// Whether deletion has begun.
pub fn is_deleting(object: &Object) -> bool {
    metadata(object).get("deletionTimestamp").is_some_and(|t| !t.is_null())
}

/// The strings of a JSON list; others are left out.
pub fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

/// `group/version`, or the version alone for the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Encodes the object as a tail. Object keys are sorted, as Go's encoder does for custom resources.
pub fn to_tail(mut object: Object) -> Bytes {
    object.shift_remove("apiVersion");
    object.shift_remove("kind");
    let mut meta = match object.shift_remove("metadata") {
        Some(Value::Object(meta)) => meta,
        _ => Object::new(),
    };
    meta.shift_remove("resourceVersion");
    let mut meta = Value::Object(meta);
    sort(&mut meta);
    let mut rest = Value::Object(object);
    sort(&mut rest);
    let mut out = Vec::with_capacity(2048);
    append_members(&mut out, &meta);
    append_members(&mut out, &rest);
    out.shrink_to_fit();
    out.into()
}

/// Sorts the keys of all objects. Most of them are sorted already, as what was stored before is.
fn sort(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if !members.keys().is_sorted() {
                members.sort_keys();
            }
            members.values_mut().for_each(sort);
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

/// Writes an object without its opening brace, its first member with a comma before it.
fn append_members(out: &mut Vec<u8>, object: &Value) {
    let start = out.len();
    gotext::append(out, object);
    if out.len() - start > "{}".len() {
        out[start] = b',';
    } else {
        out.truncate(start);
        out.push(b'}');
    }
}

/// What comes before a tail.
pub fn head(api_version: &str, kind: &str, rev: u64) -> String {
    format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"resourceVersion\":\"{rev}\"")
}

/// A tail marked with the version that it is in: the version and a line break before it.
pub fn mark(version: &str, tail: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(version.len() + 1 + tail.len());
    out.put_slice(version.as_bytes());
    out.put_u8(b'\n');
    out.put_slice(tail);
    out.freeze()
}

/// The version that a tail is marked with.
pub fn mark_of(tail: &[u8]) -> Option<&str> {
    let end = tail.len() - unmarked(tail).len();
    std::str::from_utf8(tail.get(..end.checked_sub(1)?)?).ok()
}

/// The metadata of a tail, without its resourceVersion. `None` if it is damaged.
pub fn metadata_of<T: DeserializeOwned>(tail: &[u8]) -> Option<T> {
    let members = metadata_text(tail)?;
    serde_json::from_slice(&[&b"{"[..], members.strip_prefix(b",").unwrap_or(members)].concat()).ok()
}

/// The members of a tail's metadata, each with a comma before it, and the closing brace: what comes after them, which is nearly all, is not looked at. `None` if
/// it is damaged.
fn metadata_text(tail: &[u8]) -> Option<&[u8]> {
    let tail = unmarked(tail);
    let mut rest = tail;
    while let Some(member) = rest.strip_prefix(b",") {
        let (IgnoredAny, after) = first(member)?;
        let (IgnoredAny, after) = first(after.strip_prefix(b":")?)?;
        rest = after;
    }
    if rest.starts_with(b"}") { tail.get(..tail.len() - rest.len() + 1) } else { None }
}

/// A member's name.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

/// The labels of a tail as they stand there: a JSON object, `{}` if it has none. A tail begins with the members of the
/// metadata: what comes after the labels, which is nearly all, is not looked at. `None` if it is damaged.
pub fn labels(tail: &[u8]) -> Option<&[u8]> {
    let mut rest = unmarked(tail);
    while let Some(member) = rest.strip_prefix(b",") {
        let (MemberName(name), after) = first(member)?;
        let value = after.strip_prefix(b":")?;
        let (IgnoredAny, after) = first(value)?;
        if name == "labels" {
            return value.get(..value.len() - after.len());
        }
        rest = after;
    }
    rest.starts_with(b"}").then_some(b"{}")
}

/// The JSON value that a text begins with, and what comes after it.
fn first<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<(T, &'a [u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter();
    let value = values.next()?.ok()?;
    Some((value, text.get(values.byte_offset()..)?))
}

/// The tail without its mark: a tail itself begins with `,` or `}`.
pub fn unmarked(tail: &[u8]) -> &[u8] {
    match tail.first() {
        None | Some(b',' | b'}') => tail,
        Some(_) => tail.iter().position(|b| *b == b'\n').map_or(tail, |at| &tail[at + 1..]),
    }
}

/// The encoded object.
pub fn join(api_version: &str, kind: &str, rev: u64, tail: &[u8]) -> Vec<u8> {
    let (head, tail) = (head(api_version, kind, rev), unmarked(tail));
    // A line break may follow.
    let mut out = Vec::with_capacity(head.len() + tail.len() + 1);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(tail);
    out
}

/// The object of a tail.
pub fn from_tail(api_version: &str, kind: &str, rev: u64, tail: &[u8]) -> Result<Object, serde_json::Error> {
    serde_json::from_slice(&join(api_version, kind, rev, tail))
}

/// A parsed resourceVersion; `None` if it is absent, empty or 0, all of which mean any.
pub fn resource_version(object: &Object) -> Result<Option<u64>, String> {
    match meta_str(object, "resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| text.to_owned()),
    }
}

/// `PartialObjectMetadata` of a tail, encoded. `None` if it is damaged.
pub fn partial_of(rev: u64, tail: &[u8]) -> Option<Vec<u8>> {
    let head = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":""#;
    let mut out = format!("{head}{rev}\"").into_bytes();
    out.extend_from_slice(metadata_text(tail)?);
    out.push(b'}');
    Some(out)
}

/// `PartialObjectMetadata` of an object.
pub fn partial(object: &Object) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata(object)})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        match value {
            Value::Object(map) => map,
            _ => Object::new(),
        }
    }

    #[test]
    fn a_tail_reads_back_under_another_version() {
        let before = object(json!({"kind": "A", "apiVersion": "g/v1", "spec": {"b": 1, "a": [2]},
            "metadata": {"resourceVersion": "1", "name": "x"}}));
        let after = from_tail("g/v2", "A", 7, &to_tail(before)).unwrap();
        assert_eq!(
            Value::Object(after),
            json!({"apiVersion": "g/v2", "kind": "A", "metadata": {"resourceVersion": "7", "name": "x"},
                "spec": {"a": [2], "b": 1}})
        );
    }

    #[test]
    fn metadata_is_read_alone() {
        let meta = json!({"finalizers": ["f"], "labels": {"a": "b"}, "name": "x"});
        for (whole, expected) in [
            (json!({"metadata": meta, "spec": {"b": 1}, "status": {}}), meta.clone()),
            (json!({"metadata": meta}), meta.clone()),
            (json!({"metadata": {"resourceVersion": "7"}, "spec": {"name": "y"}}), json!({})),
        ] {
            let tail = to_tail(object(whole));
            assert_eq!(metadata_of::<Value>(&tail), Some(expected.clone()));
            assert_eq!(metadata_of::<Value>(&mark("v2", &tail)), Some(expected));
        }
        assert_eq!(metadata_of::<Value>(b",\"name\":"), None, "it is damaged");
        let whole = object(json!({"metadata": {"name": "x", "uid": "u"}, "spec": {"a": 1}}));
        let (loaded, tail) = (from_tail("v1", "A", 7, &to_tail(whole.clone())).unwrap(), to_tail(whole));
        assert_eq!(serde_json::from_slice::<Value>(&partial_of(7, &tail).unwrap()).unwrap(), partial(&loaded));
        assert_eq!(partial_of(7, b",\"name\":"), None);
    }

    #[test]
    fn members_are_stored_in_order() {
        let tail = to_tail(object(json!({"spec": {"b": {"d": 1, "c": [{"f": 1, "e": 2}]}, "a": {"x": 1, "y": 2}}})));
        assert_eq!(tail, &br#"},"spec":{"a":{"x":1,"y":2},"b":{"c":[{"e":2,"f":1}],"d":1}}}"#[..]);
    }

    #[test]
    fn marks_are_found_and_skipped() {
        let bare = to_tail(object(json!({"metadata": {"name": "x"}, "spec": 1})));
        let marked = mark("v1beta1", &bare);
        assert_eq!((mark_of(&bare), mark_of(&marked)), (None, Some("v1beta1")));
        assert_eq!(from_tail("g/v1", "A", 1, &marked).unwrap(), from_tail("g/v1", "A", 1, &bare).unwrap());
    }

    #[test]
    fn a_tail_without_spec_or_metadata_is_still_json() {
        let bare = to_tail(Object::new());
        assert!(from_tail("v1", "A", 1, &bare).is_ok());
    }
}
