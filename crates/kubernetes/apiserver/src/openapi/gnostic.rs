//! The OpenAPI 2.0 document in gnostic's protobuf form, the only one that older kubectl reads (message `Document` of
//! `openapiv2/OpenAPIv2.proto` in google/gnostic, from which the field numbers are).

use serde_json::{Map, Value};

/// Encodes a 2.0 document.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document, "swagger");
    if let Some(info) = document.get("info") {
        let mut message = Message::default();
        message.text(1, info, "title");
        message.text(2, info, "version");
        out.message(2, &message);
    }
    let mut paths = Message::default();
    for (path, item) in members(document, "paths") {
        paths.named(2, path, &path_item(item));
    }
    out.message(8, &paths);
    let mut definitions = Message::default();
    for (name, definition) in members(document, "definitions") {
        definitions.named(1, name, &schema(definition));
    }
    out.message(9, &definitions);
    let mut shared = Message::default();
    for (name, found) in members(document, "parameters") {
        shared.named(1, name, &parameter(found));
    }
    if !shared.bytes.is_empty() {
        out.message(10, &shared);
    }
    for requirement in document.get("security").and_then(Value::as_array).into_iter().flatten() {
        let mut names = Message::default();
        for (name, _) in requirement.as_object().into_iter().flatten() {
            names.named(1, name, &Message::default());
        }
        out.message(12, &names);
    }
    let mut schemes = Message::default();
    for (name, scheme) in members(document, "securityDefinitions") {
        schemes.named(1, name, &api_key(scheme));
    }
    if !schemes.bytes.is_empty() {
        out.message(13, &schemes);
    }
    out.bytes
}

/// `SecurityDefinitionsItem` of a key in a header.
fn api_key(value: &Value) -> Message {
    let mut key = Message::default();
    key.text(1, value, "type");
    key.text(2, value, "name");
    key.text(3, value, "in");
    key.text(4, value, "description");
    let mut out = Message::default();
    out.message(2, &key);
    out
}

/// A protobuf message being written. Members with default values are omitted, except in lists and oneofs.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The encoded message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    /// Writes a number, even zero.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    /// Writes a float, even zero.
    pub(super) fn fixed(&mut self, field: u64, value: f64) {
        self.tag(field, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a string, even an empty one.
    pub(super) fn string(&mut self, field: u64, text: &str) {
        self.tag(field, 2);
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes a message, even an empty one.
    pub(super) fn message(&mut self, field: u64, inner: &Message) {
        self.tag(field, 2);
        self.varint(inner.bytes.len() as u64);
        self.bytes.extend_from_slice(&inner.bytes);
    }

    /// Writes an entry of a map: a name and a value.
    pub(super) fn named(&mut self, field: u64, name: &str, value: &Message) {
        let mut pair = Message::default();
        pair.string(1, name);
        pair.message(2, value);
        self.message(field, &pair);
    }

    /// Writes a string member.
    pub(super) fn text(&mut self, field: u64, value: &Value, key: &str) {
        if let Some(text) = value.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()) {
            self.string(field, text);
        }
    }

    /// Writes a boolean member.
    pub(super) fn flag(&mut self, field: u64, value: &Value, key: &str) {
        if value.get(key) == Some(&Value::Bool(true)) {
            self.number(field, 1);
        }
    }

    /// Writes a float member.
    pub(super) fn double(&mut self, field: u64, value: &Value, key: &str) {
        if let Some(number) = value.get(key).and_then(Value::as_f64).filter(|n| *n != 0.0) {
            self.fixed(field, number);
        }
    }

    /// Writes an unsigned integer member.
    pub(super) fn count(&mut self, field: u64, value: &Value, key: &str) {
        if let Some(number) = value.get(key).and_then(Value::as_u64).filter(|n| *n != 0) {
            self.number(field, number);
        }
    }

    /// Writes a member that is a list of strings.
    pub(super) fn strings(&mut self, field: u64, value: &Value, key: &str) {
        for text in value.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            self.string(field, text);
        }
    }

    /// Writes all extension members (`x-…`).
    pub(super) fn extensions(&mut self, field: u64, value: &Value) {
        for (key, value) in value.as_object().into_iter().flatten().filter(|(k, _)| k.starts_with("x-")) {
            self.named(field, key, &any(value));
        }
    }
}

/// The members of an object member.
pub(super) fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// `Any` with YAML text.
pub(super) fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.string(2, &gojson::to_yaml(value));
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value, "$ref");
    out.text(2, value, "format");
    out.text(3, value, "title");
    out.text(4, value, "description");
    if let Some(default) = value.get("default") {
        out.message(5, &any(default));
    }
    out.double(6, value, "multipleOf");
    out.double(7, value, "maximum");
    out.flag(8, value, "exclusiveMaximum");
    out.double(9, value, "minimum");
    out.flag(10, value, "exclusiveMinimum");
    out.count(11, value, "maxLength");
    out.count(12, value, "minLength");
    out.text(13, value, "pattern");
    out.count(14, value, "maxItems");
    out.count(15, value, "minItems");
    out.flag(16, value, "uniqueItems");
    out.count(17, value, "maxProperties");
    out.count(18, value, "minProperties");
    out.strings(19, value, "required");
    for choice in value.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.message(20, &any(choice));
    }
    if let Some(additional) = value.get("additionalProperties") {
        let mut item = Message::default();
        match additional {
            Value::Bool(flag) => {
                item.tag(2, 0);
                item.varint(u64::from(*flag));
            }
            inner => item.message(1, &schema(inner)),
        }
        out.message(21, &item);
    }
    if let Some(ty) = value.get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.string(1, ty);
        out.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    if value.get("properties").is_some() {
        let mut properties = Message::default();
        for (key, member) in members(value, "properties") {
            properties.named(1, key, &schema(member));
        }
        out.message(25, &properties);
    }
    out.extensions(31, value);
    out
}

fn path_item(value: &Value) -> Message {
    let mut out = Message::default();
    for (field, key) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(found) = value.get(key) {
            out.message(field, &operation(found));
        }
    }
    for found in value.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        out.message(9, &parameters_item(found));
    }
    out.extensions(10, value);
    out
}

fn operation(value: &Value) -> Message {
    let mut out = Message::default();
    out.strings(1, value, "tags");
    out.text(3, value, "description");
    out.text(5, value, "operationId");
    out.strings(6, value, "produces");
    out.strings(7, value, "consumes");
    for found in value.get("parameters").and_then(Value::as_array).into_iter().flatten() {
        out.message(8, &parameters_item(found));
    }
    let mut responses = Message::default();
    for (code, response) in members(value, "responses") {
        let mut inner = Message::default();
        inner.text(1, response, "description");
        if let Some(found) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &schema(found));
            inner.message(2, &item);
        }
        let mut wrapped = Message::default();
        wrapped.message(1, &inner);
        responses.named(1, code, &wrapped);
    }
    out.message(9, &responses);
    out.strings(10, value, "schemes");
    out.extensions(13, value);
    out
}

/// `ParametersItem`: a parameter or a reference to one.
fn parameters_item(value: &Value) -> Message {
    let mut out = Message::default();
    if value.get("$ref").is_some() {
        let mut reference = Message::default();
        reference.text(1, value, "$ref");
        out.message(2, &reference);
    } else {
        out.message(1, &parameter(value));
    }
    out
}

/// `Parameter`.
fn parameter(value: &Value) -> Message {
    let mut inner = Message::default();
    let place = value.get("in").and_then(Value::as_str).unwrap_or_default();
    let mut parameter = Message::default();
    if place == "body" {
        inner.text(2, value, "name");
        inner.text(3, value, "in");
        inner.flag(4, value, "required");
        if let Some(found) = value.get("schema") {
            inner.message(5, &schema(found));
        }
        parameter.message(1, &inner);
    } else {
        // Query parameters have one field more than path parameters, which shifts the later numbers.
        let query = place == "query";
        inner.flag(1, value, "required");
        inner.text(2, value, "in");
        inner.text(3, value, "description");
        inner.text(4, value, "name");
        inner.text(if query { 6 } else { 5 }, value, "type");
        inner.flag(if query { 20 } else { 19 }, value, "uniqueItems");
        let mut choice = Message::default();
        choice.message(if query { 3 } else { 4 }, &inner);
        parameter.message(2, &choice);
    }
    parameter
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_small_document_has_the_bytes_that_protobuf_says() {
        let bytes = encode(&json!({"swagger": "2.0", "definitions": {"A": {"type": "string"}}}));
        let expected = [
            &[0x0a, 3][..],
            b"2.0",
            &[0x42, 0],
            // definitions { additional_properties { name: "A" value { type { value: "string" } } } }
            &[0x4a, 18, 0x0a, 16, 0x0a, 1],
            b"A",
            &[0x12, 11, 0xb2, 0x01, 8, 0x0a, 6],
            b"string",
        ]
        .concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_parameter_is_inline_or_referred_to() {
        let here = parameters_item(&json!({"name": "a", "in": "query", "type": "string"}));
        // parameter { non_body_parameter { query_parameter_sub_schema { in: "query" name: "a" type: "string" } } }
        let inner = [&[0x12, 5][..], b"query", &[0x22, 1], b"a", &[0x32, 6], b"string"].concat();
        assert_eq!(here.bytes, [&[0x0a, 22, 0x12, 20, 0x1a, 18][..], &inner].concat());
        let there = parameters_item(&json!({"$ref": "#/p"}));
        assert_eq!(there.bytes, [&[0x12, 5, 0x0a, 3][..], b"#/p"].concat());
        let whole =
            encode(&json!({"swagger": "2.0", "parameters": {"p": {"name": "a", "in": "query", "type": "string"}}}));
        // parameters { additional_properties { name: "p" value { non_body_parameter { … } } } }
        assert!(whole.windows(4).any(|w| w == [0x52, 29, 0x0a, 27]), "{whole:02x?}");
    }
}
