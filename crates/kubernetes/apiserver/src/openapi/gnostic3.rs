//! OpenAPI 3.0 documents in gnostic's protobuf form (message `Document` of `openapiv3/OpenAPIv3.proto` in
//! google/gnostic-models, from which the field numbers are).

use serde_json::Value;

use super::gnostic::{Message, any, members};

/// A member whose parts have a fixed order. All other parts are sorted alphabetically.
type Ordered = (&'static str, &'static [&'static str]);
/// The group, version and kind of an operation.
const KIND: Ordered = ("x-kubernetes-group-version-kind", &["group", "version", "kind"]);
/// CEL rules.
const RULES: Ordered =
    ("x-kubernetes-validations", &["rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"]);

/// Encodes a 3.0 document.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document, "openapi");
    if let Some(info) = document.get("info") {
        let mut message = Message::default();
        message.text(1, info, "title");
        message.text(2, info, "description");
        message.text(6, info, "version");
        out.message(2, &message);
    }
    if document.get("paths").is_some() {
        out.message(4, &named(document, "paths", path_item));
    }
    if let Some(components) = document.get("components") {
        let mut message = Message::default();
        if components.get("schemas").is_some() {
            message.message(1, &named(components, "schemas", schema_or_reference));
        }
        if components.get("securitySchemes").is_some() {
            message.message(7, &named(components, "securitySchemes", |found| one(1, &security_scheme(found))));
        }
        out.message(5, &message);
    }
    out.into_bytes()
}

/// A message that contains one other message.
fn one(field: u64, inner: &Message) -> Message {
    let mut out = Message::default();
    out.message(field, inner);
    out
}

/// A message that contains named messages.
fn named(value: &Value, key: &str, of: impl Fn(&Value) -> Message) -> Message {
    let mut out = Message::default();
    for (name, found) in members(value, key) {
        out.named(1, name, &of(found));
    }
    out
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn extensions(out: &mut Message, field: u64, value: &Value, ordered: &[Ordered]) {
    for (key, value) in value.as_object().into_iter().flatten().filter(|(k, _)| k.starts_with("x-")) {
        let encoded = match ordered.iter().find(|(name, _)| name == key) {
            Some((_, parts)) => {
                let mut text = Message::default();
                text.string(2, &gojson::to_yaml_in_order(&in_order(value, parts)));
                text
            }
            None => any(value),
        };
        out.named(field, key, &encoded);
    }
}

/// Orders the members of an object, or of each object in a list.
fn in_order(value: &Value, parts: &[&str]) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|one| in_order(one, parts)).collect(),
        Value::Object(map) => {
            parts.iter().filter_map(|key| Some(((*key).to_owned(), map.get(*key)?.clone()))).collect()
        }
        other => other.clone(),
    }
}

fn security_scheme(value: &Value) -> Message {
    let mut out = Message::default();
    for (field, key) in [(1, "type"), (2, "description"), (3, "name"), (4, "in"), (5, "scheme"), (6, "bearerFormat")] {
        out.text(field, value, key);
    }
    out
}

fn path_item(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(3, value, "description");
    let methods = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    for (field, method) in (4..).zip(methods) {
        if let Some(found) = value.get(method) {
            out.message(field, &operation(found));
        }
    }
    items(value, "parameters").for_each(|found| out.message(13, &one(1, &parameter(found))));
    out.extensions(14, value);
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.strings(1, value, "tags");
    out.text(2, value, "summary");
    out.text(3, value, "description");
    out.text(5, value, "operationId");
    items(value, "parameters").for_each(|found| out.message(6, &one(1, &parameter(found))));
    if let Some(found) = value.get("requestBody") {
        let mut body = Message::default();
        body.text(1, found, "description");
        content(&mut body, 2, found);
        body.flag(3, found, "required");
        out.message(7, &one(1, &body));
    }
    let mut responses = Message::default();
    for (code, found) in members(value, "responses") {
        let mut response = Message::default();
        response.text(1, found, "description");
        content(&mut response, 3, found);
        responses.named(2, code, &one(1, &response));
    }
    out.message(8, &responses);
    out.flag(10, value, "deprecated");
    extensions(&mut out, 13, value, &[KIND]);
    out
}

fn parameter(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value, "name");
    out.text(2, value, "in");
    out.text(3, value, "description");
    out.flag(4, value, "required");
    if let Some(found) = value.get("schema") {
        out.message(10, &schema_or_reference(found));
    }
    out
}

/// The content of a body by media type.
fn content(out: &mut Message, field: u64, value: &Value) {
    let media = |found: &Value| match found.get("schema") {
        Some(schema) => one(1, &schema_or_reference(schema)),
        None => Message::default(),
    };
    if value.get("content").is_some() {
        out.message(field, &named(value, "content", media));
    }
}

fn schema_or_reference(value: &Value) -> Message {
    if value.get("$ref").is_none() {
        return one(1, &schema(value));
    }
    let mut reference = Message::default();
    reference.text(1, value, "$ref");
    reference.text(2, value, "summary");
    reference.text(3, value, "description");
    one(2, &reference)
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.flag(1, value, "nullable");
    out.flag(3, value, "readOnly");
    out.flag(4, value, "writeOnly");
    if let Some(docs) = value.get("externalDocs") {
        let mut message = Message::default();
        message.text(1, docs, "description");
        message.text(2, docs, "url");
        out.message(6, &message);
    }
    if let Some(example) = value.get("example") {
        out.message(7, &any(example));
    }
    out.flag(8, value, "deprecated");
    out.text(9, value, "title");
    out.double(10, value, "multipleOf");
    out.double(11, value, "maximum");
    out.flag(12, value, "exclusiveMaximum");
    out.double(13, value, "minimum");
    out.flag(14, value, "exclusiveMinimum");
    out.count(15, value, "maxLength");
    out.count(16, value, "minLength");
    out.text(17, value, "pattern");
    out.count(18, value, "maxItems");
    out.count(19, value, "minItems");
    out.flag(20, value, "uniqueItems");
    out.count(21, value, "maxProperties");
    out.count(22, value, "minProperties");
    out.strings(23, value, "required");
    items(value, "enum").for_each(|choice| out.message(24, &any(choice)));
    out.text(25, value, "type");
    for (field, key) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        items(value, key).for_each(|found| out.message(field, &schema_or_reference(found)));
    }
    if let Some(not) = value.get("not") {
        out.message(29, &schema(not));
    }
    if let Some(found) = value.get("items") {
        out.message(30, &one(1, &schema_or_reference(found)));
    }
    if value.get("properties").is_some() {
        out.message(31, &named(value, "properties", schema_or_reference));
    }
    match value.get("additionalProperties") {
        None => {}
        Some(Value::Bool(set)) => {
            let mut item = Message::default();
            item.number(2, u64::from(*set));
            out.message(32, &item);
        }
        Some(found) => out.message(32, &one(1, &schema_or_reference(found))),
    }
    if let Some(default) = value.get("default") {
        out.message(33, &self::default(default));
    }
    out.text(34, value, "description");
    out.text(35, value, "format");
    extensions(&mut out, 36, value, &[RULES]);
    out
}

/// `DefaultType`, which holds plain values only.
fn default(value: &Value) -> Message {
    let mut out = Message::default();
    match value {
        Value::Number(number) => out.fixed(1, number.as_f64().unwrap_or_default()),
        Value::Bool(set) => out.number(2, u64::from(*set)),
        Value::String(text) => out.string(3, text),
        _ => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_small_document_has_the_bytes_that_protobuf_says() {
        let bytes =
            encode(&json!({"openapi": "3.0.0", "components": {"schemas": {"A": {"type": "string", "minimum": 0,
            "default": 0}, "B": {"$ref": "#/x"}}}}));
        // schemas { additional_properties { name: "A" value { schema { type: "string" default { number: 0 } } } } }
        let schema = [&[0xca, 0x01, 6][..], b"string", &[0x8a, 0x02, 9, 0x09, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        let first = [&[0x0a, 28, 0x0a, 1][..], b"A", &[0x12, 23, 0x0a, 21], &schema].concat();
        let second = [&[0x0a, 12, 0x0a, 1][..], b"B", &[0x12, 7, 0x12, 5, 0x0a, 3], b"#/x"].concat();
        let both = u8::try_from(first.len() + second.len()).unwrap();
        let expected = [&[0x0a, 5][..], b"3.0.0", &[0x2a, both + 2, 0x0a, both], &first, &second].concat();
        assert_eq!(bytes, expected);
    }
}
