//! From JSON to the wire, in the order and with the presence that upstream's generated code has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::shape::{Free, free, schema_def};
use super::wire::{put_bytes, put_fixed, put_number};
use crate::{Def, Defs, Field, Object, Type};

/// The message of an object.
pub fn message(def: &Def, object: &Object) -> Vec<u8> {
    let mut fields: Vec<&Field> = def.fields.iter().filter(|f| !f.path.is_empty()).collect();
    fields.sort_by(|a, b| a.path.cmp(&b.path));
    let mut out = Vec::new();
    members(&fields, 0, object, &mut out);
    out
}

fn members(fields: &[&Field], depth: usize, object: &Object, out: &mut Vec<u8>) {
    let mut rest = fields;
    while let Some(field) = rest.first() {
        let number = field.path.get(depth).copied().unwrap_or_default();
        if field.path.len() == depth + 1 {
            put(field, number, object.get(field.name).unwrap_or(&Value::Null), out);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let end = rest.iter().position(|f| f.path.get(depth) != Some(&number)).unwrap_or(rest.len());
        let (inner, after) = rest.split_at(end);
        let mut message = Vec::new();
        members(inner, depth + 1, object, &mut message);
        put_bytes(out, number, &message);
        rest = after;
    }
}

fn put(field: &Field, number: u64, value: &Value, out: &mut Vec<u8>) {
    match (&field.ty, value) {
        (Type::List(inner), Value::Array(list)) => {
            list.iter().for_each(|v| single(inner, field, number, v, out));
        }
        (Type::Map(inner), Value::Object(map)) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            for key in keys {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                entry_value(inner, field, map.get(key).unwrap_or(&Value::Null), &mut entry);
                put_bytes(out, number, &entry);
            }
        }
        (Type::List(_) | Type::Map(_), _) => {}
        // A nil pointer or slice in Go is absent.
        (Type::Bytes | Type::Json, Value::Null) => {}
        (_, Value::Null) if field.optional => {}
        (ty, value) => single(ty, field, number, value, out),
    }
}

fn entry_value(ty: &Type, field: &Field, value: &Value, out: &mut Vec<u8>) {
    let Type::List(inner) = ty else { return single(ty, field, 2, value, out) };
    let mut message = Vec::new();
    for one in value.as_array().into_iter().flatten() {
        single(inner, field, 1, one, &mut message);
    }
    put_bytes(out, 2, &message);
}

fn single(ty: &Type, field: &Field, number: u64, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::String => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Type::Bytes => {
            let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            put_bytes(out, number, &bytes);
        }
        Type::Bool => put_number(out, number, u64::from(value.as_bool().unwrap_or_default())),
        Type::Int32 | Type::Int64 => put_number(out, number, value.as_i64().unwrap_or_default().cast_unsigned()),
        Type::Double => put_fixed(out, number, value.as_f64().unwrap_or_default().to_bits()),
        Type::Time | Type::MicroTime => put_bytes(out, number, &time(value)),
        Type::Quantity => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut message = Vec::new();
            put_bytes(&mut message, 1, if value.is_null() { b"0" } else { text.as_bytes() });
            put_bytes(out, number, &message);
        }
        Type::IntOrString => put_bytes(out, number, &int_or_string(value)),
        Type::Json => put_bytes(out, number, &open(free(field), value)),
        Type::Ref(name) => {
            let empty = Object::new();
            let object = value.as_object().unwrap_or(&empty);
            let inner = Defs::get().def(name).map(|def| message(def, object)).unwrap_or_default();
            put_bytes(out, number, &inner);
        }
        Type::List(_) | Type::Map(_) => {}
    }
}

fn int_or_string(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, 1, u64::from(value.is_string()));
    put_number(&mut out, 2, value.as_i64().unwrap_or_default().cast_unsigned());
    put_bytes(&mut out, 3, value.as_str().unwrap_or_default().as_bytes());
    out
}

/// Seconds and nanoseconds; no time is an empty message.
fn time(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(time) = value.as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok()) {
        // jiff's parts of a time before the epoch are both negative, protobuf's nanoseconds never are.
        let (seconds, nanos) = (time.as_second(), i64::from(time.subsec_nanosecond()));
        let (seconds, nanos) = if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) };
        put_number(&mut out, 1, seconds.cast_unsigned());
        put_number(&mut out, 2, nanos.cast_unsigned());
    }
    out
}

fn open(form: Free, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let schema = |value: &Value| {
        let empty = Object::new();
        let object = value.as_object().unwrap_or(&empty);
        schema_def().map(|def| message(def, object)).unwrap_or_default()
    };
    match (form, value) {
        (Free::Text, value) => put_bytes(&mut out, 1, value.to_string().as_bytes()),
        (Free::SchemaOrBool, Value::Object(_)) => {
            put_number(&mut out, 1, 1);
            put_bytes(&mut out, 2, &schema(value));
        }
        (Free::SchemaOrBool, value) => put_number(&mut out, 1, u64::from(value.as_bool().unwrap_or_default())),
        (_, Value::Object(_)) => put_bytes(&mut out, 1, &schema(value)),
        (Free::SchemaOrSchemas, value) => {
            value.as_array().into_iter().flatten().for_each(|v| put_bytes(&mut out, 2, &schema(v)));
        }
        (Free::SchemaOrTexts, value) => {
            for text in value.as_array().into_iter().flatten() {
                put_bytes(&mut out, 2, text.as_str().unwrap_or_default().as_bytes());
            }
        }
    }
    out
}
