//! Protobuf without a schema: messages written from data, and answers read into a tree that can be compared.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

/// What Kubernetes' protobuf bodies begin with.
pub const MAGIC: &[u8] = b"k8s\0";

/// Writes a message: keys are field numbers, numbers varints, texts and maps have a length, lists repeat the field.
pub fn encode(message: &Value) -> Result<Vec<u8>> {
    let Value::Object(fields) = message else { bail!("a message is a map of field numbers") };
    let mut out = Vec::new();
    for (number, value) in fields {
        let number: u64 = number.parse()?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| field(&mut out, number, item))?,
            other => field(&mut out, number, other)?,
        }
    }
    Ok(out)
}

fn field(out: &mut Vec<u8>, number: u64, value: &Value) -> Result<()> {
    let bytes = match value {
        Value::Number(n) => {
            varint(out, number << 3);
            varint(out, n.as_u64().unwrap_or_else(|| n.as_i64().unwrap_or_default().cast_unsigned()));
            return Ok(());
        }
        Value::Bool(b) => {
            varint(out, number << 3);
            varint(out, u64::from(*b));
            return Ok(());
        }
        Value::String(s) => s.as_bytes().to_vec(),
        other => encode(other)?,
    };
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
    Ok(())
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The envelope around a message: its kind and the message's bytes.
pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut meta = Vec::new();
    for (number, text) in [(1_u64, api_version), (2, kind)] {
        varint(&mut meta, number << 3 | 2);
        varint(&mut meta, text.len() as u64);
        meta.extend(text.as_bytes());
    }
    for (number, bytes) in [(1_u64, meta.as_slice()), (2, raw)] {
        varint(&mut out, number << 3 | 2);
        varint(&mut out, bytes.len() as u64);
        out.extend(bytes);
    }
    out
}

/// A body with Kubernetes' prefix as a tree, or what it is instead.
pub fn decode(body: &[u8]) -> Value {
    match body.strip_prefix(MAGIC).and_then(|rest| message(rest, 0)) {
        Some(fields) => json!({"protobuf": fields}),
        None => json!({"not protobuf": String::from_utf8_lossy(body)}),
    }
}

/// A message as a list of `number: value`, in the order of the bytes; `None` if it is none.
fn message(mut rest: &[u8], depth: usize) -> Option<Value> {
    if depth > 40 {
        return None;
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = take_varint(&mut rest)?;
        let number = key >> 3;
        if number == 0 || number > 2000 {
            return None;
        }
        let value = match key & 7 {
            0 => json!(take_varint(&mut rest)?.cast_signed()),
            1 => hex(take(&mut rest, 8)?),
            5 => hex(take(&mut rest, 4)?),
            2 => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                let bytes = take(&mut rest, length)?;
                if let Some(inner) = bytes.strip_prefix(MAGIC).and_then(|rest| message(rest, depth + 1)) {
                    let mut one = Map::new();
                    one.insert(number.to_string(), json!({"protobuf": inner}));
                    fields.push(Value::Object(one));
                    continue;
                }
                let printable = std::str::from_utf8(bytes).ok().filter(|s| !s.chars().any(char::is_control));
                match printable {
                    Some(text) => json!(text),
                    None => match message(bytes, depth + 1) {
                        Some(inner) => inner,
                        None => std::str::from_utf8(bytes).map_or_else(|_| hex(bytes), |text| json!(text)),
                    },
                }
            }
            _ => return None,
        };
        let mut one = Map::new();
        one.insert(number.to_string(), value);
        fields.push(Value::Object(one));
    }
    Some(Value::Array(fields))
}

fn hex(bytes: &[u8]) -> Value {
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    json!(format!("bytes {digits}"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let raw = encode(&json!({"1": {"1": "name", "7": 300}, "2": ["a", "b\n"]})).unwrap();
        let read = decode(&envelope("v1", "ConfigMap", &raw));
        assert_eq!(read["protobuf"][0], json!({"1": [{"1": "v1"}, {"2": "ConfigMap"}]}));
        let expected = json!([{"1": [{"1": "name"}, {"7": 300}]}, {"2": "a"}, {"2": "b\n"}]);
        assert_eq!(read["protobuf"][1]["2"], expected);
        assert!(decode(b"{}").get("not protobuf").is_some());
    }
}
