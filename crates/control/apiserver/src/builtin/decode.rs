//! Decodes objects of the server's own kinds: types are checked, unknown fields dropped and reported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Def, Defs, Type, gotime, quantity};
use crate::object::Object;

/// Text of a quantity that is none.
const NO_QUANTITY: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Where the decoder is: the structure, the names of fields so far as Go's errors give them, and the whole path.
#[derive(Clone, Copy)]
struct At<'a> {
    structure: &'a str,
    stack: &'a str,
    path: &'a str,
    go: Option<&'static str>,
}

/// Checks `object` against `def`, drops unknown and null fields and pushes unknown paths to `unknown`.
/// The error is the text that Go's decoder would give.
pub fn decode(def: &Def, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), String> {
    fields(def, object, "", "", unknown)
}

/// Checks a member of something else at `path`, as [`decode`] does. What is unknown is dropped silently.
pub fn within(def: &Def, object: &mut Object, path: &str) -> Result<(), String> {
    fields(def, object, path, path, &mut Vec::new())
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn fields(def: &Def, object: &mut Object, stack: &str, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let structure = def.name.rsplit('.').next().unwrap_or_default();
    let mut drop = Vec::new();
    for (key, value) in object.iter_mut() {
        match def.field(key) {
            None => {
                unknown.push(joined(path, key));
                drop.push(key.clone());
            }
            Some(_) if value.is_null() => drop.push(key.clone()),
            Some(field) => {
                let (stack, path) = (joined(stack, key), joined(path, key));
                let at = At { structure, stack: &stack, path: &path, go: field.go };
                check(&field.ty, value, at, unknown)?;
            }
        }
    }
    for key in drop {
        object.shift_remove(&key);
    }
    Ok(())
}

/// Null within a list or a map is the zero value.
fn fill(ty: &Type, value: &mut Value) {
    if value.is_null() {
        *value = match ty {
            Type::String | Type::Bytes => Value::String(String::new()),
            Type::Ref(_) | Type::Map(_) => Value::Object(Object::new()),
            Type::List(_) => Value::Array(Vec::new()),
            Type::Quantity => Value::String("0".to_owned()),
            Type::Int32 | Type::Int64 | Type::Double => Value::Number(0.into()),
            Type::Bool => Value::Bool(false),
            _ => Value::Null,
        };
    }
}

fn check(ty: &Type, value: &mut Value, at: At<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let good = match (ty, &mut *value) {
        (Type::Json, _) => true,
        (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => true,
        (Type::Int32, Value::Number(n)) => n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        (Type::Int64, Value::Number(n)) => n.is_i64(),
        (Type::Double, Value::Number(_)) | (Type::IntOrString, Value::String(_)) => true,
        (Type::IntOrString, given) => {
            let fits = given.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            if !fits {
                return Err(format!("json: cannot unmarshal {} into Go value of type int32", go_value(ty, given)));
            }
            true
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => time(ty, text)?,
        (Type::Bytes, Value::String(text)) => bytes(text)?,
        (Type::Quantity, Value::String(text)) => {
            quantity::nanos(text).map(|_| true).ok_or_else(|| NO_QUANTITY.to_owned())?
        }
        (Type::Quantity, other) => {
            quantity::nanos(&other.to_string()).map(|_| true).ok_or_else(|| NO_QUANTITY.to_owned())?
        }
        (Type::Map(inner), Value::Object(map)) => {
            for (key, value) in map.iter_mut() {
                fill(inner, value);
                check(inner, value, At { path: &format!("{}.{key}", at.path), ..at }, unknown)?;
            }
            true
        }
        (Type::List(inner), Value::Array(list)) => {
            for (index, value) in list.iter_mut().enumerate() {
                fill(inner, value);
                check(inner, value, At { path: &format!("{}[{index}]", at.path), ..at }, unknown)?;
            }
            true
        }
        (Type::Ref(name), Value::Object(object)) => match Defs::get().def(name) {
            Some(def) => {
                fields(def, object, at.stack, at.path, unknown)?;
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
        "json: cannot unmarshal {} into Go struct field {}.{} of type {}",
        go_value(ty, value),
        at.structure,
        at.stack,
        go_type(ty, at.go)
    ))
}

fn time(ty: &Type, text: &str) -> Result<bool, String> {
    gotime::check(text, *ty == Type::MicroTime).map(|()| true)
}

fn bytes(text: &mut String) -> Result<bool, String> {
    // Go's decoder passes over line breaks.
    text.retain(|c| c != '\n' && c != '\r');
    match STANDARD.decode(text.as_bytes()) {
        Ok(_) => Ok(true),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len().saturating_sub(1))),
    }
}

fn go_value(ty: &Type, value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        // A number that does not fit is quoted, one in the wrong place is not.
        Value::Number(n) if matches!(ty, Type::Int32 | Type::Int64 | Type::IntOrString) => format!("number {n}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn go_type(ty: &Type, own: Option<&'static str>) -> String {
    let plain = |name: &str| own.unwrap_or(name).to_owned();
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
        Type::Map(inner) => format!("map[string]{}", go_type(inner, own)),
        Type::List(inner) => format!("[]{}", go_type(inner, own)),
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
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        let (result, ..) = run("Service", json!({"spec": {"ports": [{"port": "x"}]}}));
        assert_eq!(
            result.unwrap_err(),
            "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32"
        );
        assert!(run("Secret", json!({"data": {"a": "%%"}})).0.unwrap_err().starts_with("illegal base64"));
    }
}
