//! Decodes objects of the server's own kinds: types are checked, unknown fields dropped and reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Def, Defs, Type};
use crate::object::Object;

/// Checks `object` against `def`, drops unknown and null fields and pushes unknown paths to `unknown`.
/// The error is the text that Go's decoder would give.
pub fn decode(def: &Def, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), String> {
    let root = def.name.rsplit('.').next().unwrap_or_default();
    fields(def, object, root, "", unknown)
}

fn fields(def: &Def, object: &mut Object, root: &str, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let mut drop = Vec::new();
    for (key, value) in object.iter_mut() {
        let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match def.field(key) {
            None => {
                unknown.push(at);
                drop.push(key.clone());
            }
            Some(_) if value.is_null() => drop.push(key.clone()),
            Some(field) => check(&field.ty, value, root, &at, unknown)?,
        }
    }
    for key in drop {
        object.shift_remove(&key);
    }
    Ok(())
}

fn check(ty: &Type, value: &mut Value, root: &str, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let good = match (ty, &mut *value) {
        (Type::Json, _) => true,
        (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => true,
        (Type::Int32, Value::Number(n)) => n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        (Type::Int64, Value::Number(n)) => n.is_i64(),
        (Type::Double, Value::Number(_)) => true,
        (Type::Time | Type::MicroTime, Value::String(text)) => {
            text.parse::<jiff::Timestamp>().map_err(|_| {
                format!("parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{text}\" as \"2006\"")
            })?;
            true
        }
        (Type::Bytes, Value::String(text)) => {
            // Go's decoder passes over line breaks.
            text.retain(|c| c != '\n' && c != '\r');
            STANDARD.decode(text.as_bytes()).map_err(|e| match e {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
                    format!("illegal base64 data at input byte {at}")
                }
                _ => format!("illegal base64 data at input byte {}", text.len().saturating_sub(1)),
            })?;
            true
        }
        (Type::Map(inner), Value::Object(map)) => {
            for (key, value) in map.iter_mut() {
                if value.is_null() && **inner == Type::String {
                    *value = Value::String(String::new());
                }
                check(inner, value, root, &format!("{path}.{key}"), unknown)?;
            }
            true
        }
        (Type::List(inner), Value::Array(list)) => {
            for (at, value) in list.iter_mut().enumerate() {
                check(inner, value, root, &format!("{path}[{at}]"), unknown)?;
            }
            true
        }
        (Type::Ref(name), Value::Object(object)) => match Defs::get().def(name) {
            Some(def) => {
                fields(def, object, root, path, unknown)?;
                true
            }
            None => false,
        },
        _ => false,
    };
    if good {
        return Ok(());
    }
    Err(format!(
        "json: cannot unmarshal {} into Go struct field {root}.{path} of type {}",
        go_value(value),
        go_type(ty)
    ))
}

fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) if n.is_f64() => format!("number {n}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn go_type(ty: &Type) -> String {
    match ty {
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Json => "interface {}".to_owned(),
        Type::Map(inner) => format!("map[string]{}", go_type(inner)),
        Type::List(inner) => format!("[]{}", go_type(inner)),
        Type::Ref(name) => {
            let mut parts = name.rsplit('.');
            let kind = parts.next().unwrap_or_default();
            format!("{}.{kind}", parts.next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(kind: &str, value: Value) -> (Result<(), String>, Value, Vec<String>) {
        let def = Defs::get().kind("", "v1", kind).unwrap();
        let Value::Object(mut object) = value else { panic!("not an object") };
        let mut unknown = Vec::new();
        let result = decode(def, &mut object, &mut unknown);
        (result, Value::Object(object), unknown)
    }

    #[test]
    fn unknown_fields_go_and_are_named() {
        let (result, left, unknown) =
            run("ConfigMap", json!({"data": {"a": "b"}, "spec": 1, "metadata": {"name": "x", "nme": "y"}}));
        assert!(result.is_ok());
        assert_eq!(left, json!({"data": {"a": "b"}, "metadata": {"name": "x"}}));
        assert_eq!(unknown, ["spec", "metadata.nme"]);
    }

    #[test]
    fn wrong_types_are_told_as_go_does() {
        let (result, ..) = run("ConfigMap", json!({"data": {"a": 1}}));
        assert_eq!(
            result.unwrap_err(),
            "json: cannot unmarshal number into Go struct field ConfigMap.data.a of type string"
        );
        assert!(run("Secret", json!({"data": {"a": "%%"}})).0.unwrap_err().starts_with("illegal base64"));
    }
}
