//! Conversions between types, and values as text.

use super::time;
use crate::ext::Ext;
use crate::fault::Fault;
use crate::types::Type;
use crate::value::{Outcome, Value};

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let [value] = args else { return None };
    let (found, to) = match name {
        "dyn" => return Some(Ok(value.clone())),
        "type" => return Some(Ok(Value::Type(value.type_of()))),
        "bool" => (to_bool(value), Type::Bool),
        "int" => match to_int(value) {
            Ok(found) => (found, Type::Int),
            Err(fault) => return Some(Err(fault)),
        },
        "uint" => match to_uint(value) {
            Ok(found) => (found, Type::Uint),
            Err(fault) => return Some(Err(fault)),
        },
        "double" => (to_double(value), Type::Double),
        "bytes" => (to_bytes(value), Type::Bytes),
        "string" => match to_string(value) {
            Ok(found) => (found.map(|s| Value::string(&s)), Type::String),
            Err(fault) => return Some(Err(fault)),
        },
        "duration" => (to_duration(value), Type::Duration),
        "timestamp" => (to_timestamp(value), Type::Timestamp),
        _ => return None,
    };
    let fault = || {
        let from = value.type_of();
        Fault::new(format!("type conversion error from '{}' to '{}'", from.runtime_name(), to.runtime_name()))
    };
    Some(found.ok_or_else(fault))
}

fn to_bool(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(b) => Some(Value::Bool(*b)),
        Value::String(s) => match &**s {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    }
}

fn to_int(value: &Value) -> Result<Option<Value>, Fault> {
    let overflow = || Fault::new("integer overflow");
    Ok(match value {
        Value::Int(n) => Some(Value::Int(*n)),
        Value::Uint(n) => Some(Value::Int(i64::try_from(*n).map_err(|_| overflow())?)),
        Value::Double(d) if *d > -9.223_372_036_854_775e18 && *d < 9.223_372_036_854_775e18 => {
            Some(Value::Int(*d as i64))
        }
        Value::Double(_) => return Err(overflow()),
        Value::Duration(n) => Some(Value::Int(*n)),
        Value::Timestamp(n) => Some(Value::Int(n.div_euclid(1_000_000_000) as i64)),
        Value::String(s) => s.parse().ok().map(Value::Int),
        _ => None,
    })
}

fn to_uint(value: &Value) -> Result<Option<Value>, Fault> {
    let overflow = || Fault::new("unsigned integer overflow");
    Ok(match value {
        Value::Uint(n) => Some(Value::Uint(*n)),
        Value::Int(n) => Some(Value::Uint(u64::try_from(*n).map_err(|_| overflow())?)),
        Value::Double(d) if *d >= 0.0 && *d < 1.844_674_407_370_955e19 => Some(Value::Uint(*d as u64)),
        Value::Double(_) => return Err(overflow()),
        Value::String(s) if !s.starts_with('+') => s.parse().ok().map(Value::Uint),
        _ => None,
    })
}

fn to_double(value: &Value) -> Option<Value> {
    Some(Value::Double(match value {
        Value::Double(d) => *d,
        Value::Int(n) => *n as f64,
        Value::Uint(n) => *n as f64,
        Value::String(s) => s.parse().ok()?,
        _ => return None,
    }))
}

fn to_bytes(value: &Value) -> Option<Value> {
    match value {
        Value::Bytes(b) => Some(Value::Bytes(b.clone())),
        Value::String(s) => Some(Value::Bytes(s.as_bytes().into())),
        _ => None,
    }
}

/// The text of a value that has one.
pub(super) fn to_string(value: &Value) -> Result<Option<String>, Fault> {
    Ok(Some(match value {
        Value::String(s) => s.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Double(d) => double(*d),
        Value::Bytes(b) => std::str::from_utf8(b)
            .map_err(|_| Fault::new("invalid UTF-8 in bytes, cannot convert to string"))?
            .to_owned(),
        Value::Duration(d) => time::show_duration(*d),
        Value::Timestamp(t) => time::show_timestamp(*t),
        Value::Type(t) => t.runtime_name().to_owned(),
        Value::Null => "null".to_owned(),
        Value::Ext(ext) => match &**ext {
            Ext::Ip(ip) => ip.to_string(),
            Ext::Cidr(ip, bits) => format!("{ip}/{bits}"),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// A number in Go's shortest form: with an exponent only if it is very large or small.
pub(super) fn double(d: f64) -> String {
    if d.is_nan() {
        return "NaN".into();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{d:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return d.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

fn to_duration(value: &Value) -> Option<Value> {
    match value {
        Value::Duration(d) => Some(Value::Duration(*d)),
        Value::Int(n) => Some(Value::Duration(*n)),
        Value::String(s) => time::parse_duration(s).map(Value::Duration),
        _ => None,
    }
}

fn to_timestamp(value: &Value) -> Option<Value> {
    match value {
        Value::Timestamp(t) => Some(Value::Timestamp(*t)),
        Value::Int(n) => time::timestamp(i128::from(*n) * 1_000_000_000).ok(),
        Value::String(s) => time::parse_timestamp(s).and_then(|t| time::timestamp(t).ok()),
        _ => None,
    }
}

/// A value within an error text.
pub(crate) fn show(value: &Value) -> String {
    to_string(value).ok().flatten().unwrap_or_else(|| value.type_of().runtime_name().to_owned())
}
