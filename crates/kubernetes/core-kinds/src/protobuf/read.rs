//! From the wire to JSON. Unknown fields are passed over, as generated code does; nesting is bounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::shape::{Free, free, schema_def};
use super::wire::{Reader, Wire, WireError, utf8, wrong_wire};
use crate::{Def, Defs, Field, Object, Type, canonical};

/// Nesting of messages; as deep as JSON may be.
const MAX_DEPTH: usize = 100;

/// Decodes a message into the object that Go's JSON encoder would write.
pub fn message(def: &Def, bytes: &[u8]) -> Result<Object, WireError> {
    let mut object = Object::new();
    fields(def, bytes, &[], &mut object, MAX_DEPTH)?;
    canonical::canonicalize(def, &mut object);
    Ok(object)
}

fn fields(def: &Def, bytes: &[u8], within: &[u64], object: &mut Object, depth: usize) -> Result<(), WireError> {
    let depth = depth.checked_sub(1).ok_or(WireError::TooDeep)?;
    for entry in Reader::new(bytes, go_type(def)) {
        let (number, wire) = entry?;
        let path = [within, &[number]].concat();
        if let Some(field) = def.fields.iter().find(|f| f.path == path) {
            take(field, wire, object, depth)?;
        } else if let Wire::Bytes(inner) = wire
            && def.fields.iter().any(|f| f.path.len() > path.len() && f.path.starts_with(&path))
        {
            // Members of a message that JSON holds one level higher.
            fields(def, inner, &path, object, depth)?;
        }
    }
    Ok(())
}

fn take(field: &Field, wire: Wire<'_>, object: &mut Object, depth: usize) -> Result<(), WireError> {
    match (&field.ty, wire) {
        (Type::List(inner), wire) => {
            let value = single(inner, wire, field, None, depth)?.unwrap_or_default();
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                list.push(value);
            }
        }
        (Type::Map(inner), Wire::Bytes(bytes)) => {
            let (mut key, mut value) = (String::new(), empty(inner));
            for entry in Reader::new(bytes, "Entry") {
                match entry? {
                    (1, Wire::Bytes(text)) => key = utf8(text)?,
                    (2, wire) => value = entry_value(inner, wire, field, depth)?,
                    _ => {}
                }
            }
            if let Value::Object(map) = object.entry(field.name).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        }
        (ty, wire) => {
            // Repeated occurrences of a message field are merged.
            let before = object.shift_remove(field.name);
            if let Some(value) = single(ty, wire, field, before, depth)? {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// A value of a map; lists are wrapped in a message of their own there.
fn entry_value(ty: &Type, wire: Wire<'_>, field: &Field, depth: usize) -> Result<Value, WireError> {
    let Type::List(inner) = ty else {
        return Ok(single(ty, wire, field, None, depth)?.unwrap_or_else(|| empty(ty)));
    };
    let Wire::Bytes(bytes) = wire else { return Err(wrong_wire(&wire, &go_name(field))) };
    let mut list = Vec::new();
    for entry in Reader::new(bytes, "Items") {
        if let (1, wire) = entry? {
            list.push(single(inner, wire, field, None, depth)?.unwrap_or_default());
        }
    }
    Ok(Value::Array(list))
}

fn empty(ty: &Type) -> Value {
    match ty {
        Type::String | Type::Bytes => json!(""),
        Type::Quantity => json!("0"),
        Type::Ref(_) => json!({}),
        Type::List(_) => json!([]),
        _ => Value::Null,
    }
}

/// Name of a definition's Go type.
fn go_type(def: &Def) -> &'static str {
    def.name.rsplit('.').next().unwrap_or_default()
}

/// Name of a field in Go: the JSON name with a capital, and fully capitalised if it begins with an abbreviation.
fn go_name(field: &Field) -> String {
    let name = field.name;
    match name {
        "metadata" => return "ObjectMeta".to_owned(),
        "externalID" => return "DoNotUseExternalID".to_owned(),
        "reportingComponent" => return "ReportingController".to_owned(),
        _ => {}
    }
    if let Some(extension) = name.strip_prefix("x-kubernetes-") {
        return extension.split('-').fold("X".to_owned(), |text, word| text + &capital(word));
    }
    let name = name.trim_start_matches('$');
    let begin = name.find(|c: char| c.is_ascii_uppercase()).unwrap_or(name.len());
    match name.split_at(begin) {
        (short @ ("api" | "ca" | "id" | "ip" | "json" | "os" | "uid" | "url"), rest) => {
            format!("{}{rest}", short.to_ascii_uppercase())
        }
        _ => capital(name),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
}

fn single(
    ty: &Type,
    wire: Wire<'_>,
    field: &Field,
    before: Option<Value>,
    depth: usize,
) -> Result<Option<Value>, WireError> {
    Ok(Some(match (ty, wire) {
        (Type::String, Wire::Bytes(bytes)) => json!(utf8(bytes)?),
        (Type::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Type::Bool, Wire::Number(n)) => json!(n != 0),
        (Type::Int32, Wire::Number(n)) => json!(int32(n)),
        (Type::Int64, Wire::Number(n)) => json!(n.cast_signed()),
        (Type::Double, Wire::Fixed(bits)) => json!(f64::from_bits(bits)),
        (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => return time(ty, bytes),
        (Type::Quantity, Wire::Bytes(bytes)) => json!(first_text(bytes)?),
        (Type::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
        (Type::Json, Wire::Bytes(bytes)) => return open(free(field), bytes, depth),
        (Type::Ref(name), Wire::Bytes(bytes)) => {
            let Some(def) = Defs::get().def(name) else { return Ok(None) };
            let mut object = match before {
                Some(Value::Object(object)) => object,
                _ => Object::new(),
            };
            fields(def, bytes, &[], &mut object, depth)?;
            Value::Object(object)
        }
        (_, wire) => return Err(wrong_wire(&wire, &go_name(field))),
    }))
}

/// Go truncates a number to the field's 32 bits.
fn int32(n: u64) -> i32 {
    let [a, b, c, d, ..] = n.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

fn first_text(bytes: &[u8]) -> Result<String, WireError> {
    let mut text = String::new();
    for entry in Reader::new(bytes, "Quantity") {
        if let (1, Wire::Bytes(bytes)) = entry? {
            text = utf8(bytes)?;
        }
    }
    Ok(if text.is_empty() { "0".to_owned() } else { text })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for entry in Reader::new(bytes, "IntOrString") {
        match entry? {
            (1, Wire::Number(n)) => is_text = n == 1,
            (2, Wire::Number(n)) => number = int32(n),
            (3, Wire::Bytes(bytes)) => text = utf8(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

fn open(form: Free, bytes: &[u8], depth: usize) -> Result<Option<Value>, WireError> {
    let (mut schema, mut allows, mut list) = (None, false, Vec::new());
    for entry in Reader::new(bytes, "JSON") {
        match (form, entry?) {
            (Free::Text, (1, Wire::Bytes(text))) => {
                let (value, _) = gojson::from_json(text)?;
                schema = Some(value);
            }
            (Free::SchemaOrBool, (1, Wire::Number(n))) => allows = n != 0,
            (Free::SchemaOrBool, (2, Wire::Bytes(inner)))
            | (Free::SchemaOrSchemas | Free::SchemaOrTexts, (1, Wire::Bytes(inner))) => {
                schema = Some(schema_of(inner, depth)?);
            }
            (Free::SchemaOrSchemas, (2, Wire::Bytes(inner))) => list.push(schema_of(inner, depth)?),
            (Free::SchemaOrTexts, (2, Wire::Bytes(text))) => list.push(json!(utf8(text)?)),
            _ => {}
        }
    }
    Ok(match (schema, form) {
        (Some(value), _) => Some(value),
        (None, Free::Text) => None,
        (None, Free::SchemaOrBool) => Some(json!(allows)),
        (None, _) => Some(Value::Array(list)),
    })
}

fn schema_of(bytes: &[u8], depth: usize) -> Result<Value, WireError> {
    let mut object = Object::new();
    if let Some(def) = schema_def() {
        fields(def, bytes, &[], &mut object, depth)?;
        canonical::canonicalize(def, &mut object);
    }
    Ok(Value::Object(object))
}

fn time(ty: &Type, bytes: &[u8]) -> Result<Option<Value>, WireError> {
    let (mut seconds, mut nanos) = (0i64, 0i64);
    for entry in Reader::new(bytes, "Timestamp") {
        match entry? {
            (1, Wire::Number(n)) => seconds = n.cast_signed(),
            (2, Wire::Number(n)) => nanos = n.cast_signed(),
            _ => {}
        }
    }
    // Go treats the epoch as no time.
    if seconds == 0 && nanos == 0 {
        return Ok(None);
    }
    let nanos = i32::try_from(nanos).map_err(|e| WireError::Time(e.to_string()))?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|e| WireError::Time(e.to_string()))?;
    Ok(Some(canonical::written(ty, time)))
}
