//! Discovery in one: `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2` (field numbers: k8s.io/api,
//! `apidiscovery/v2/generated.proto`).

use serde_json::Value;

use super::wire::put_bytes;
use super::write;
use crate::{Defs, Object};

/// The message of a list.
pub fn list(list: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    metadata(&mut out, "ListMeta", list)?;
    for group in items(list, "items") {
        let mut message = Vec::new();
        metadata(&mut message, "ObjectMeta", group)?;
        for version in items(group, "versions") {
            put_bytes(&mut message, 2, &self::version(version));
        }
        put_bytes(&mut out, 2, &message);
    }
    Some(out)
}

fn metadata(out: &mut Vec<u8>, def: &str, of: &Value) -> Option<()> {
    let def = Defs::get().def(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{def}"))?;
    let empty = Object::new();
    put_bytes(out, 1, &write::message(def, of.get("metadata").and_then(Value::as_object).unwrap_or(&empty)));
    Some(())
}

fn version(of: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, of, "version");
    for one in items(of, "resources") {
        put_bytes(&mut out, 2, &resource(one));
    }
    text(&mut out, 3, of, "freshness");
    out
}

fn resource(of: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, of, "resource");
    kind(&mut out, of);
    text(&mut out, 3, of, "scope");
    text(&mut out, 4, of, "singularResource");
    texts(&mut out, 5, of, "verbs");
    texts(&mut out, 6, of, "shortNames");
    texts(&mut out, 7, of, "categories");
    for one in items(of, "subresources") {
        let mut sub = Vec::new();
        text(&mut sub, 1, one, "subresource");
        kind(&mut sub, one);
        texts(&mut sub, 4, one, "verbs");
        put_bytes(&mut out, 8, &sub);
    }
    out
}

fn kind(out: &mut Vec<u8>, of: &Value) {
    let Some(kind) = of.get("responseKind") else { return };
    let mut message = Vec::new();
    text(&mut message, 1, kind, "group");
    text(&mut message, 2, kind, "version");
    text(&mut message, 3, kind, "kind");
    put_bytes(out, 2, &message);
}

fn items<'v>(of: &'v Value, key: &str) -> &'v [Value] {
    of.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text, even an empty one.
fn text(out: &mut Vec<u8>, field: u64, of: &Value, key: &str) {
    put_bytes(out, field, of.get(key).and_then(Value::as_str).unwrap_or_default().as_bytes());
}

fn texts(out: &mut Vec<u8>, field: u64, of: &Value, key: &str) {
    for text in items(of, key).iter().filter_map(Value::as_str) {
        put_bytes(out, field, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_has_the_bytes_that_protobuf_says() {
        let object = json!({"version": "v1", "freshness": "C", "resources": [{"resource": "r", "scope": "S",
            "singularResource": "", "verbs": ["get"], "responseKind": {"group": "", "version": "v", "kind": "K"}}]});
        let kind = b"\x0a\0\x12\x01v\x1a\x01K";
        let resource = [&b"\x0a\x01r\x12\x08"[..], kind, b"\x1a\x01S\x22\0\x2a\x03get"].concat();
        let expected = [&b"\x0a\x02v1\x12\x17"[..], &resource, b"\x1a\x01C"].concat();
        assert_eq!(version(&object), expected);
    }
}
