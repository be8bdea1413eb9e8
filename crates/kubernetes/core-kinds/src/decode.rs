//! Decodes objects of the core kinds like Go's typed decoder (`sigs.k8s.io/json`), with its errors: checks types, drops and reports unknown fields,
//! merges and reports duplicate ones.
//!
//! That decoder continues after a value of a wrong type and returns the first such error at the end; an error of a type that
//! decodes itself (times, quantities, integers or text) ends it at once.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use gojson::{JsonError, MAX_STRICT_ERRORS, Node, Step};
use serde_json::{Value, json};

use crate::gotime::{self, TimeError};
use crate::{Def, Defs, Field, Object, Type, quantity};

/// Error text for an invalid quantity.
pub const NO_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Why an object cannot be decoded, in the words of Go's decoder.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The value itself has a wrong type.
    #[error("json: cannot unmarshal {found} into Go value of type {ty}")]
    Value {
        /// The JSON type, of a number its text as well.
        found: String,
        /// The Go type.
        ty: String,
    },
    /// A field has a wrong type.
    #[error("json: cannot unmarshal {found} into Go struct field {structure}.{fields} of type {ty}")]
    Field {
        /// The JSON type, of a number its text as well.
        found: String,
        /// The Go structure that declares the field.
        structure: String,
        /// The fields that lead there, without keys of maps and places in lists.
        fields: String,
        /// The Go type.
        ty: String,
    },
    /// A text is no quantity.
    #[error("{NO_QUANTITY}")]
    Quantity,
    /// A text is no time.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A text is no base64.
    #[error(transparent)]
    Base64(#[from] Base64Error),
    /// A number fits no float.
    #[error(transparent)]
    Json(#[from] JsonError),
}

/// A text is no base64, from this byte on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Base64Error(pub usize);

/// An additional error of a strict decoder, with the field's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strict {
    /// A field that the type does not have.
    Unknown(String),
    /// A duplicate field or key.
    Doubled(String),
}

impl std::fmt::Display for Strict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, path) = match self {
            Self::Unknown(path) => ("unknown", path),
            Self::Doubled(path) => ("duplicate", path),
        };
        write!(f, "{what} field {}", gotext::quote(path))
    }
}

/// Decodes an object of type `def`. The error is the text that Go's decoder would give.
pub fn read(def: &Def, node: &Node<'_>) -> Result<(Object, Vec<Strict>), DecodeError> {
    let mut decoder = Decoder { steps: Vec::new(), fields: Vec::new(), strict: Vec::new(), failed: None };
    let mut object = Object::new();
    match node {
        Node::Null => {}
        Node::Object(members) => decoder.structure(def, members, &mut object)?,
        other => {
            let ty = go_type(&Type::Ref(def.name), None);
            return Err(DecodeError::Value { found: other.kind().to_owned(), ty });
        }
    }
    match decoder.failed {
        Some(why) => Err(why),
        None => Ok((object, decoder.strict)),
    }
}

/// Checks a value in place, drops unknown and null fields and pushes unknown paths to `unknown`.
pub fn decode(def: &Def, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), DecodeError> {
    let (decoded, strict) = read(def, &Node::of_members(object))?;
    *object = decoded;
    unknown.extend(strict.into_iter().filter_map(|t| match t {
        Strict::Unknown(path) => Some(path),
        Strict::Doubled(_) => None,
    }));
    Ok(())
}

/// Decodes a member of another object at `path`, like [`decode`]. Drops unknown fields silently.
pub fn within(def: &Def, object: &mut Object, path: &str) -> Result<(), DecodeError> {
    let node = Node::of_members(object);
    let fields = path.split('.').filter(|p| !p.is_empty()).collect();
    let mut decoder = Decoder { steps: Vec::new(), fields, strict: Vec::new(), failed: None };
    let mut decoded = Object::new();
    if let Node::Object(members) = &node {
        decoder.structure(def, members, &mut decoded)?;
    }
    if let Some(why) = decoder.failed {
        return Err(why);
    }
    *object = decoded;
    Ok(())
}

/// The type that a field is declared with, and the structure that declares it.
#[derive(Clone, Copy)]
struct At<'a> {
    structure: &'a str,
    go: Option<&'static str>,
}

struct Decoder<'n> {
    /// The path to the current value.
    steps: Vec<Step<'n>>,
    /// The field names on that path: errors about types omit map keys and list indexes.
    fields: Vec<&'n str>,
    strict: Vec<Strict>,
    failed: Option<DecodeError>,
}

impl<'n> Decoder<'n> {
    fn report(&mut self, strict: Strict) {
        if self.strict.len() < MAX_STRICT_ERRORS && !self.strict.contains(&strict) {
            self.strict.push(strict);
        }
    }

    fn structure<'k>(
        &mut self,
        def: &Def,
        members: &'n [(std::borrow::Cow<'k, str>, Node<'k>)],
        into: &mut Object,
    ) -> Result<(), DecodeError> {
        let structure = def.name.rsplit('.').next().unwrap_or_default();
        let mut seen: Vec<&str> = Vec::with_capacity(members.len());
        for (key, node) in members {
            let Some(field) = def.field(key) else {
                let path = gojson::path(&self.steps, key);
                self.report(Strict::Unknown(path));
                continue;
            };
            let doubled = seen.contains(&field.name);
            if doubled {
                let path = gojson::path(&self.steps, key);
                self.report(Strict::Doubled(path));
            } else {
                seen.push(field.name);
            }
            let old = into.get_mut(field.name).map(Value::take);
            self.steps.push(Step::Key(key));
            self.fields.push(key);
            let read = self.field(field, node, old, structure);
            self.steps.pop();
            self.fields.pop();
            match read? {
                Some(value) => into.insert(field.name.to_owned(), value),
                None => into.shift_remove(field.name),
            };
        }
        Ok(())
    }

    /// A field's value, `None` if it counts as absent. Merges with the earlier occurrence of the field where Go does.
    fn field(
        &mut self,
        field: &Field,
        node: &'n Node<'_>,
        old: Option<Value>,
        structure: &str,
    ) -> Result<Option<Value>, DecodeError> {
        if *node == Node::Null {
            // Null does not change scalars and structs.
            let plain =
                matches!(field.ty, Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double | Type::Ref(_));
            return Ok(old.filter(|_| plain && !field.optional));
        }
        self.value(&field.ty, node, old, At { structure, go: field.go }).map(Some)
    }

    /// Records a wrong type. Go's decoder continues, so the value does not matter.
    fn wrong(&mut self, found: &str, ty: &str, at: At<'_>) -> Value {
        let why = self.misfit(found, ty, at);
        self.failed.get_or_insert(why);
        Value::Null
    }

    fn misfit(&self, found: &str, ty: &str, at: At<'_>) -> DecodeError {
        DecodeError::Field {
            found: found.to_owned(),
            structure: at.structure.to_owned(),
            fields: self.fields.join("."),
            ty: ty.to_owned(),
        }
    }

    fn value(&mut self, ty: &Type, node: &'n Node<'_>, old: Option<Value>, at: At<'_>) -> Result<Value, DecodeError> {
        Ok(match (ty, node) {
            (Type::Json, node) => node.to_value().map(|(value, _)| value)?,
            (Type::String, Node::String(text)) => Value::String(text.clone().into_owned()),
            (Type::Bool, Node::Bool(set)) => Value::Bool(*set),
            (Type::Int32 | Type::Int64 | Type::Double, Node::Number(text)) => match numeric(ty, text) {
                Some(number) => number,
                None => self.wrong(&format!("number {text}"), &go_type(ty, at.go), at),
            },
            (Type::Bytes, Node::String(text)) => self.base64(text),
            (Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString, node) => {
                self.unmarshal(ty, node, at)?
            }
            (Type::Map(inner), Node::Object(members)) => self.map(inner, members, old, at)?,
            (Type::List(inner), Node::Array(items)) => self.list(inner, items, old, at)?,
            (Type::Ref(name), Node::Object(members)) => {
                let mut object = match old {
                    Some(Value::Object(object)) => object,
                    _ => Object::new(),
                };
                if let Some(def) = Defs::get().def(name) {
                    self.structure(def, members, &mut object)?;
                }
                Value::Object(object)
            }
            (ty, node) => self.wrong(node.kind(), &go_type(ty, at.go), at),
        })
    }

    fn map<'k>(
        &mut self,
        inner: &Type,
        members: &'n [(std::borrow::Cow<'k, str>, Node<'k>)],
        old: Option<Value>,
        at: At<'_>,
    ) -> Result<Value, DecodeError> {
        let mut map = match old {
            Some(Value::Object(map)) => map,
            _ => Object::new(),
        };
        let mut seen = std::collections::HashSet::with_capacity(members.len());
        for (key, node) in members {
            if !seen.insert(key.as_ref()) {
                let path = gojson::path(&self.steps, key);
                self.report(Strict::Doubled(path));
            }
            self.steps.push(Step::Key(key));
            let value = if *node == Node::Null { zero(inner) } else { self.value(inner, node, None, at)? };
            self.steps.pop();
            map.insert(key.clone().into_owned(), value);
        }
        Ok(Value::Object(map))
    }

    fn list(
        &mut self,
        inner: &Type,
        items: &'n [Node<'_>],
        old: Option<Value>,
        at: At<'_>,
    ) -> Result<Value, DecodeError> {
        let mut before = match old {
            Some(Value::Array(list)) => list.into_iter(),
            _ => Vec::new().into_iter(),
        };
        let mut list = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            self.steps.push(Step::Index(index));
            let old = before.next();
            list.push(if *node == Node::Null { zero(inner) } else { self.value(inner, node, old, at)? });
            self.steps.pop();
        }
        Ok(Value::Array(list))
    }

    /// A type that decodes itself.
    fn unmarshal(&mut self, ty: &Type, node: &Node<'_>, at: At<'_>) -> Result<Value, DecodeError> {
        match (ty, node) {
            (Type::Time | Type::MicroTime, Node::String(text)) => {
                gotime::check(text, *ty == Type::MicroTime)?;
                Ok(Value::String(text.clone().into_owned()))
            }
            (Type::Time | Type::MicroTime, other) => Err(self.misfit(other.kind(), "string", at)),
            (Type::Quantity, node) => {
                let text = match node {
                    Node::String(text) | Node::Number(text) => text.trim(),
                    _ => "",
                };
                quantity::nanos(text).ok_or(DecodeError::Quantity)?;
                Ok(json!(text))
            }
            (_, Node::String(text)) => Ok(Value::String(text.clone().into_owned())),
            (_, Node::Number(text)) => {
                numeric(&Type::Int32, text).ok_or_else(|| self.misfit(&format!("number {text}"), "int32", at))
            }
            (_, other) => Err(self.misfit(other.kind(), "int32", at)),
        }
    }

    fn base64(&mut self, text: &str) -> Value {
        match base64_text(text) {
            Ok(plain) => Value::String(plain),
            Err(why) => {
                self.failed.get_or_insert(why.into());
                Value::Null
            }
        }
    }
}

/// Base64 as Go decodes it, in canonical form: ignores line breaks and the bits after the last byte. The error is Go's.
pub fn base64_text(text: &str) -> Result<String, Base64Error> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    if let Some(at) = corrupt(text.as_bytes()) {
        return Err(Base64Error(at));
    }
    let plain: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
    let bytes = LENIENT.decode(plain).map_err(|_| Base64Error(0))?;
    Ok(STANDARD.encode(bytes))
}

/// The offset at which Go's base64 decoder reports an error.
fn corrupt(text: &[u8]) -> Option<usize> {
    let breaks = |mut at: usize| {
        while matches!(text.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    let mut at = 0;
    loop {
        let mut held = 0;
        while held < 4 {
            at = breaks(at);
            match text.get(at) {
                None if held == 0 => return None,
                None => return Some(at - held),
                Some(b'=') if held < 2 => return Some(at),
                Some(b'=') => {
                    at += 1;
                    if held == 2 {
                        at = breaks(at);
                        match text.get(at) {
                            None => return Some(text.len()),
                            Some(b'=') => at += 1,
                            Some(_) => return Some(at - 1),
                        }
                    }
                    at = breaks(at);
                    return (at < text.len()).then_some(at);
                }
                Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                    held += 1;
                    at += 1;
                }
                Some(_) => return Some(at),
            }
        }
    }
}

/// Parses a number if it is in the type's range.
fn numeric(ty: &Type, text: &str) -> Option<Value> {
    match ty {
        Type::Int32 => text.parse::<i32>().ok().map(Value::from),
        Type::Int64 => text.parse::<i64>().ok().map(Value::from),
        _ => gojson::number(text).map(Value::Number),
    }
}

/// The value of a null within a list or a map.
fn zero(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => json!(""),
        Type::Ref(_) | Type::Map(_) => json!({}),
        Type::List(_) => json!([]),
        Type::Quantity => json!("0"),
        Type::Int32 | Type::Int64 | Type::Double => json!(0),
        Type::Bool => json!(false),
        _ => Value::Null,
    }
}

/// The name of a type in Go.
pub fn go_type(ty: &Type, go_name: Option<&'static str>) -> String {
    let plain = |name: &str| go_name.unwrap_or(name).to_owned();
    match ty {
        Type::String => plain("string"),
        Type::Bool => plain("bool"),
        Type::Int32 => plain("int32"),
        Type::Int64 => plain("int64"),
        Type::Double => plain("float64"),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Json => "interface {}".to_owned(),
        Type::Map(inner) => format!("map[string]{}", go_type(inner, go_name)),
        Type::List(inner) => format!("[]{}", go_type(inner, go_name)),
        Type::Ref(name) => {
            let mut parts = name.rsplit('.');
            let kind = parts.next().unwrap_or_default();
            format!("{}.{kind}", parts.next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: &str, text: &str) -> (Result<Value, String>, Vec<String>) {
        let def = Defs::get().kind("", "v1", kind).unwrap();
        match read(def, &gojson::parse(text.as_bytes()).unwrap()) {
            Ok((object, strict)) => (Ok(Value::Object(object)), strict.iter().map(ToString::to_string).collect()),
            Err(why) => (Err(why.to_string()), Vec::new()),
        }
    }

    fn error(kind: &str, text: &str) -> String {
        run(kind, text).0.unwrap_err()
    }

    #[test]
    fn unknown_and_duplicate_fields_are_reported_in_the_order_of_the_text() {
        let (left, strict) = run(
            "ConfigMap",
            r#"{"metadata":{"name":"x","nme":"y"},"data":{"a":"b","a":"c"},"spec":1,"spec":2,"data":{"d":"e"},"kind":"x","kind":"y"}"#,
        );
        assert_eq!(left.unwrap(), json!({"metadata": {"name": "x"}, "data": {"a": "c", "d": "e"}, "kind": "y"}));
        let wanted = [
            "unknown field \"metadata.nme\"",
            "duplicate field \"data.a\"",
            "unknown field \"spec\"",
            "duplicate field \"data\"",
            "duplicate field \"kind\"",
        ];
        assert_eq!(strict, wanted);
    }

    #[test]
    fn doubled_structures_and_lists_merge() {
        let text = r#"{"spec":{"type":"ClusterIP","ports":[{"port":1,"name":"a"},{"port":2}]},
            "spec":{"type":null,"ports":[{"port":3}]}}"#;
        let wanted = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 3, "name": "a"}]}});
        assert_eq!(run("Service", text).0, Ok(wanted));
    }

    #[test]
    fn wrong_types_have_gos_message() {
        for (kind, text, message) in [
            ("ConfigMap", r#"{"data":{"a":1}}"#, "number into Go struct field ConfigMap.data of type string"),
            ("ConfigMap", r#"{"data":[]}"#, "array into Go struct field ConfigMap.data of type map[string]string"),
            (
                "Service",
                r#"{"spec":{"ports":[{"port":"x"}]}}"#,
                "string into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            (
                "Service",
                r#"{"spec":{"ports":[{"port":1.0}]}}"#,
                "number 1.0 into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            (
                "Service",
                r#"{"spec":{"ports":[{"port":99999999999}]}}"#,
                "number 99999999999 into Go struct field ServicePort.spec.ports.port of type int32",
            ),
            (
                "Service",
                r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
                "bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
            ),
            (
                "ConfigMap",
                r#"{"metadata":{"creationTimestamp":5}}"#,
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                "ConfigMap",
                r#"{"metadata":{"uid":{}}}"#,
                "object into Go struct field ObjectMeta.metadata.uid of type types.UID",
            ),
            // The first error counts, except that an error of a type that decodes itself takes precedence.
            (
                "ConfigMap",
                r#"{"data":1,"metadata":{"name":2}}"#,
                "number into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "ConfigMap",
                r#"{"data":1,"metadata":{"creationTimestamp":[]}}"#,
                "array into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
        ] {
            assert_eq!(error(kind, text), format!("json: cannot unmarshal {message}"), "{text}");
        }
        assert_eq!(error("ConfigMap", "[]"), "json: cannot unmarshal array into Go value of type v1.ConfigMap");
        assert!(error("Secret", r#"{"data":{"a":"%%"}}"#).starts_with("illegal base64"));
        for (text, at) in [
            ("v", 0),
            ("YW", 0),
            ("YWJjZ", 4),
            ("YWJjZW", 4),
            ("=", 0),
            ("YQ=", 3),
            ("YQ=a", 2),
            ("YQ==a", 4),
            ("YW\nJ%", 4),
        ] {
            assert_eq!(base64_text(text), Err(Base64Error(at)), "{text}");
        }
        assert_eq!(base64_text("YR=\n="), Ok("YQ==".to_owned()));
    }
}
