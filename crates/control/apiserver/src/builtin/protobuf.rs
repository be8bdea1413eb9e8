//! Reads Kubernetes' protobuf form of the server's own kinds: typed clients of client-go, and with them kubectl since
//! 1.32, send core kinds in no other. Answers are JSON, which the same clients accept.
//!
//! The envelope is `k8s\0` and a `runtime.Unknown`; field numbers stand in `kinds.txt`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Def, Defs, Field, Type};
use crate::object::Object;

const MAGIC: &[u8] = b"k8s\0";
/// Nesting of messages.
const MAX_DEPTH: usize = 32;

/// The object of a body; `Err` says what is wrong with the bytes or that the kind is not known in this form.
pub fn decode(body: &[u8]) -> Result<Object, String> {
    let rest = body.strip_prefix(MAGIC).ok_or("the body does not start with the prefix of Kubernetes' protobuf")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Reader(rest) {
        match entry? {
            (1, Wire::Bytes(meta)) => {
                for entry in Reader(meta) {
                    match entry? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let def = if kind == "DeleteOptions" {
        Defs::get().kind("", "v1", &kind)
    } else {
        Defs::get().kind(group, version, &kind)
    };
    let def = def
        .filter(|d| d.fields.iter().any(|f| f.number > 0))
        .ok_or_else(|| format!("no kind {kind:?} is registered for version {api_version:?} in protobuf"))?;
    let mut object = message(def, raw, MAX_DEPTH)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(object)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("a number is cut short")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long".to_owned())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let count = usize::try_from(count).map_err(|e| e.to_string())?;
        if count > self.0.len() {
            return Err("a length goes beyond the end".to_owned());
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn entry(&mut self) -> Result<(u64, Wire<'a>), String> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            other => return Err(format!("wire type {other} is unknown")),
        };
        Ok((tag >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
}

fn message(def: &Def, bytes: &[u8], depth: usize) -> Result<Object, String> {
    let depth = depth.checked_sub(1).ok_or("messages are nested too deeply")?;
    let mut object = Object::new();
    for entry in Reader(bytes) {
        let (number, wire) = entry?;
        let Some(field) = def.fields.iter().find(|f| f.number == number && number > 0) else { continue };
        take(field, wire, &mut object, depth)?;
    }
    Ok(object)
}

fn take(field: &Field, wire: Wire<'_>, object: &mut Object, depth: usize) -> Result<(), String> {
    match (&field.ty, wire) {
        (Type::List(inner), wire) => {
            let value = single(inner, wire, depth)?.unwrap_or_default();
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                list.push(value);
            }
        }
        (Type::Map(inner), Wire::Bytes(bytes)) => {
            let (mut key, mut value) = (String::new(), empty(inner));
            for entry in Reader(bytes) {
                match entry? {
                    (1, Wire::Bytes(text)) => key = utf8(text)?,
                    (2, wire) => value = single(inner, wire, depth)?.unwrap_or_else(|| empty(inner)),
                    _ => {}
                }
            }
            if let Value::Object(map) = object.entry(field.name).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        }
        (ty, wire) => {
            // Go's encoder writes empty texts, zero counters and empty messages that JSON would leave out.
            let value = single(ty, wire, depth)?;
            let silent = match &value {
                None => true,
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Number(n)) => n.as_i64() == Some(0) && matches!(field.name, "generation" | "count"),
                _ => false,
            };
            if let Some(value) = value.filter(|_| !silent) {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn empty(ty: &Type) -> Value {
    if matches!(ty, Type::String | Type::Bytes) { json!("") } else { Value::Null }
}

fn single(ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Option<Value>, String> {
    Ok(Some(match (ty, wire) {
        (Type::String, Wire::Bytes(bytes)) => json!(utf8(bytes)?),
        (Type::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Type::Bool, Wire::Number(n)) => json!(n != 0),
        (Type::Int32 | Type::Int64, Wire::Number(n)) => json!(n.cast_signed()),
        (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => return time(ty, bytes),
        (Type::Ref(name), Wire::Bytes(bytes)) => match Defs::get().def(name) {
            Some(def) => Value::Object(message(def, bytes, depth)?),
            None => return Ok(None),
        },
        _ => return Err("a field has another wire type than its kind says".to_owned()),
    }))
}

fn time(ty: &Type, bytes: &[u8]) -> Result<Option<Value>, String> {
    let (mut seconds, mut nanos, mut any) = (0i64, 0i64, false);
    for entry in Reader(bytes) {
        any = true;
        match entry? {
            (1, Wire::Number(n)) => seconds = n.cast_signed(),
            (2, Wire::Number(n)) => nanos = n.cast_signed(),
            _ => {}
        }
    }
    if !any || (seconds == 0 && nanos == 0) {
        return Ok(None);
    }
    let nanos = i32::try_from(nanos).map_err(|e| e.to_string())?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|e| e.to_string())?;
    let format = if *ty == Type::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    Ok(Some(json!(time.strftime(format).to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_secret_reads_as_its_json() {
        let meta = [field(1, b"s"), field(2, b""), field(8, b""), field(14, b"f")].concat();
        let entry = [field(1, b"k"), field(2, &[0xff, 0x00])].concat();
        let secret = envelope("Secret", &[field(1, &meta), field(2, &entry), field(3, b"Opaque")].concat());
        assert_eq!(
            Value::Object(decode(&secret).unwrap()),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "finalizers": ["f"]},
                "data": {"k": "/wA="}, "type": "Opaque"})
        );
        assert!(decode(&envelope("Pod", b"")).is_err());
    }

    proptest! {
        #[test]
        fn lies_about_lengths_are_errors_and_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&envelope("Event", &bytes));
            let _ = decode(&[b"k8s\0".to_vec(), bytes].concat());
        }
    }
}
