//! The check of an object after a strategic merge patch: upstream converts the map to the Go type without JSON in between
//! (`runtime.DefaultUnstructuredConverter`), so the errors for wrong types differ from the decoder's.

use gojson::Step;
use serde_json::Value;

use crate::decode::{Base64Error, DecodeError, base64_text, go_type};
use crate::{Def, Defs, Field, Object, Type, gotime, quantity};

/// Why a map cannot be converted to a Go type, in the converter's words.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConvertError {
    /// A number is of another type.
    #[error("cannot convert {from} to {to}")]
    Number {
        /// Its Go type.
        from: &'static str,
        /// The field's.
        to: String,
    },
    /// A field of this Go type has another value than one of its kind.
    #[error("unrecognized type: {0}")]
    Unrecognized(&'static str),
    /// A map has a value of this kind.
    #[error("cannot restore map from {0}")]
    Map(&'static str),
    /// A list has a value of this kind.
    #[error("cannot restore slice from {0}")]
    List(&'static str),
    /// A structure has a value of this kind.
    #[error("cannot restore struct from: {0}")]
    Structure(&'static str),
    /// A text is no base64.
    #[error("error decoding from json: {0}")]
    Bytes(#[from] Base64Error),
    /// A type that decodes itself refuses its value.
    #[error(transparent)]
    Unmarshal(#[from] DecodeError),
}

/// Converts numbers to the types in `def`. Returns the strict conversion's errors about unknown fields; fails with the error about the first value of
/// a wrong type, in the order of Go's fields.
pub fn check(def: &Def, object: &mut Object) -> Result<Vec<String>, ConvertError> {
    let mut unknown = Vec::new();
    structure(def, object, &mut Vec::new(), &mut unknown)?;
    let mut messages: Vec<String> = unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    messages.sort();
    Ok(messages)
}

fn structure<'d>(
    def: &'d Def,
    object: &mut Object,
    steps: &mut Vec<Step<'d>>,
    unknown: &mut Vec<String>,
) -> Result<(), ConvertError> {
    unknown.extend(object.keys().filter(|key| def.field(key).is_none()).map(|key| gojson::path(steps, key)));
    let mut fields: Vec<&Field> = def.fields.iter().collect();
    fields.sort_by_key(|f| &f.path);
    for field in fields {
        let Some(value) = object.get_mut(field.name).filter(|v| !v.is_null()) else { continue };
        steps.push(Step::Key(field.name));
        convert(&field.ty, field.go, value, steps, unknown)?;
        steps.pop();
    }
    Ok(())
}

/// The kind of a value in Go.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => held(other),
    }
}

fn convert<'d>(
    ty: &'d Type,
    go: Option<&'static str>,
    value: &mut Value,
    steps: &mut Vec<Step<'d>>,
    unknown: &mut Vec<String>,
) -> Result<(), ConvertError> {
    if value.is_null() {
        return Ok(());
    }
    match (ty, &mut *value) {
        (Type::Json, _) | (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Double, Value::Number(_)) => Ok(()),
        (Type::Int32 | Type::Int64, Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
            let Some(whole) = whole else { return Err(ConvertError::Number { from: "float64", to: go_type(ty, go) }) };
            // Go truncates the value.
            *value = if *ty == Type::Int32 { Value::from(whole as i32) } else { Value::from(whole) };
            Ok(())
        }
        // Go would allow the conversion of an integer to a character, which upstream excludes.
        (Type::String, Value::Number(number)) if !number.is_f64() => {
            Err(ConvertError::Number { from: "int64", to: go_type(ty, go) })
        }
        (Type::String, _) => Err(ConvertError::Unrecognized("string")),
        (Type::Bool, _) => Err(ConvertError::Unrecognized("bool")),
        (Type::Int32, _) => Err(ConvertError::Unrecognized("int32")),
        (Type::Int64, _) => Err(ConvertError::Unrecognized("int64")),
        (Type::Double, _) => Err(ConvertError::Unrecognized("float64")),
        (Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString, value) => {
            check_unmarshal(ty, value)?;
            // It reads the number's text, in which a whole float is an integer.
            if let (Type::IntOrString, Some(whole)) = (ty, value.as_f64().filter(|_| value.is_f64())) {
                *value = Value::from(whole as i32);
            }
            Ok(())
        }
        (Type::Bytes, Value::String(text)) => Ok(base64_text(text).map(|_| ())?),
        (Type::Map(inner), Value::Object(map)) => {
            // Paths of unknown fields leave keys of maps out.
            map.values_mut().try_for_each(|value| convert(inner, go, value, steps, unknown))
        }
        (Type::List(inner), Value::Array(items)) => items.iter_mut().enumerate().try_for_each(|(at, value)| {
            steps.push(Step::Index(at));
            convert(inner, go, value, steps, unknown)?;
            steps.pop();
            Ok(())
        }),
        (Type::Ref(name), Value::Object(object)) => match Defs::get().def(name) {
            Some(def) => structure(def, object, steps, unknown),
            None => Ok(()),
        },
        (Type::Map(_), other) => Err(ConvertError::Map(kind(other))),
        (Type::List(_) | Type::Bytes, other) => Err(ConvertError::List(kind(other))),
        (Type::Ref(_), other) => Err(ConvertError::Structure(kind(other))),
    }
}

/// A type that decodes itself from JSON.
fn check_unmarshal(ty: &Type, value: &Value) -> Result<(), DecodeError> {
    let found = match value {
        Value::Number(number) if *ty == Type::IntOrString => format!("number {}", gotext::json_number(number)),
        other => gotext::json_type(other).to_owned(),
    };
    let cannot = |into: &str| Err(DecodeError::Value { found, ty: into.to_owned() });
    match (ty, value) {
        (Type::Time | Type::MicroTime, Value::String(text)) => Ok(gotime::check(text, *ty == Type::MicroTime)?),
        (Type::Time | Type::MicroTime, _) => cannot("string"),
        (Type::Quantity, value) => {
            let text = value.as_str().map_or_else(|| gotext::encoded(value), str::to_owned);
            quantity::nanos(text.trim()).map(|_| ()).ok_or(DecodeError::Quantity)
        }
        (_, Value::String(_)) => Ok(()),
        (_, Value::Number(number)) if gotext::json_number(number).parse::<i32>().is_ok() => Ok(()),
        _ => cannot("int32"),
    }
}

/// The Go type that holds a value, as `%s` prints it.
fn held(value: &Value) -> &'static str {
    if value.is_null() { "%!s(<nil>)" } else { gotext::go_type(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(kind: &str, value: Value) -> (Result<Vec<String>, String>, Value) {
        let Value::Object(mut object) = value else { panic!("not an object") };
        let result = check(Defs::get().kind("", "v1", kind).unwrap(), &mut object).map_err(|e| e.to_string());
        (result, Value::Object(object))
    }

    #[test]
    fn invalid_values_have_the_converters_message() {
        for (kind, value, message) in [
            ("Service", json!({"spec": {"selector": {"a": true}}}), "unrecognized type: string"),
            ("Service", json!({"spec": {"selector": {"a": 5}}}), "cannot convert int64 to string"),
            ("Service", json!({"metadata": {"uid": 5}}), "cannot convert int64 to types.UID"),
            ("Service", json!({"spec": {"ports": {"port": 80}}}), "cannot restore slice from map"),
            ("Service", json!({"spec": {"ports": [80]}}), "cannot restore struct from: int64"),
            ("Service", json!({"spec": {"ports": [{"port": 1.5}]}}), "cannot convert float64 to int32"),
            ("Service", json!({"spec": {"ports": [{"port": "x"}]}}), "unrecognized type: int32"),
            (
                "Service",
                json!({"spec": {"ports": [{"targetPort": 1.5}]}}),
                "json: cannot unmarshal number 1.5 into Go value of type int32",
            ),
            ("ConfigMap", json!({"data": []}), "cannot restore map from slice"),
            ("Secret", json!({"data": {"a": "%"}}), "error decoding from json: illegal base64 data at input byte 0"),
        ] {
            assert_eq!(run(kind, value.clone()).0, Err(message.to_owned()), "{value}");
        }
    }

    #[test]
    fn unknown_fields_are_sorted_and_numbers_cut() {
        let (result, left) = run("Service", json!({"z": 1, "spec": {"ports": [{"port": 4294967376_i64, "y": 1}]}}));
        assert_eq!(result.unwrap(), ["unknown field \"spec.ports[0].y\"", "unknown field \"z\""]);
        assert_eq!(left["spec"]["ports"][0]["port"], json!(80));
    }
}
