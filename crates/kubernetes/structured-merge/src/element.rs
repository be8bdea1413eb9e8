//! Path elements of field sets: how one field, list item or value is named in `FieldsV1`, ordered and printed
//! (structured-merge-diff v6, `fieldpath`).

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use crate::fault::Unreadable;

/// Selects a child of a map or list.
#[derive(Debug, Clone)]
pub enum Element {
    /// A member of a map.
    Field(String),
    /// An item of a list map: its key fields, sorted by name.
    Key(Vec<(String, Value)>),
    /// An item of a set.
    Value(Value),
    /// An item of a list by place.
    Index(i64),
}

impl Element {
    /// Parses the form of `FieldsV1`. `Ok(None)` for an element of an unknown kind, which callers leave out.
    pub fn parse(text: &str) -> Result<Option<Self>, Unreadable> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(Unreadable::Short);
        }
        if bytes[1] != b':' {
            return Err(Unreadable::NoColon(text.to_owned()));
        }
        let rest = text.get(2..).unwrap_or_default();
        let value = || serde_json::from_str::<Value>(rest).map_err(|e| Unreadable::Json(e.to_string()));
        match bytes[0] {
            b'f' => Ok(Some(Self::Field(rest.to_owned()))),
            b'v' => Ok(Some(Self::Value(value()?))),
            b'i' => rest.parse().map(|n| Some(Self::Index(n))).map_err(|_| Unreadable::Index(rest.to_owned())),
            b'k' => match value()? {
                Value::Object(map) => {
                    let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Ok(Some(Self::Key(fields)))
                }
                _ => Err(Unreadable::NotAKey(rest.to_owned())),
            },
            _ => Ok(None),
        }
    }

    /// The form of `FieldsV1`.
    pub fn wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Index(at) => format!("i:{at}"),
            Self::Value(value) => {
                let mut out = String::from("v:");
                json(value, &mut out);
                out
            }
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    quote(name, false, &mut out);
                    out.push(':');
                    json(value, &mut out);
                }
                out.push('}');
                out
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl std::fmt::Display for Element {
    /// The form of error texts: `.name`, `[key="x"]`, `[="x"]`, `[0]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Index(at) => write!(f, "[{at}]"),
            Self::Value(value) => write!(f, "[={}]", format_value(value)),
            Self::Key(fields) => {
                let all: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{name}={}", format_value(value))).collect();
                write!(f, "[{}]", all.join(","))
            }
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name, value), (other_name, other_value)) in a.iter().zip(b) {
                    let order = name.cmp(other_name).then_with(|| compare(value, other_value));
                    if order.is_ne() {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

fn numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// A total order of values: numbers (whole and broken ones by size), text, booleans, lists, maps, null.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).map(|(x, y)| compare(x, y)).find(|o| o.is_ne());
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let sorted = |map: &Map<String, Value>| {
                let mut all: Vec<(String, Value)> = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                all.sort_by(|x, y| x.0.cmp(&y.0));
                all
            };
            Element::Key(sorted(a)).cmp(&Element::Key(sorted(b)))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same; 1 and 1.0 are, and the order of members does not matter.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| equal(x, y)),
        (Value::Object(a), Value::Object(b)) => equal_objects(a, b),
        _ => a == b,
    }
}

/// Whether two objects are the same.
pub fn equal_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, x)| b.get(key).is_some_and(|y| equal(x, y)))
}

/// A number in JSON, with at least two digits in an exponent.
fn number(n: &Number) -> String {
    let Some(float) = n.as_f64().filter(|_| n.is_f64()) else { return n.to_string() };
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let plain = format!("{float:e}");
        let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{float}")
}

/// A value for messages.
fn format_value(value: &Value) -> String {
    match value {
        Value::Number(n) => gotext::number(n),
        Value::String(text) => gotext::quote(text),
        Value::Array(list) => format!("[{}]", list.iter().map(format_value).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", format_value(v))).collect(),
        other => other.to_string(),
    }
}

/// A value as compact JSON, with the characters escaped that Go's encoder escapes for HTML.
fn json(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => quote(text, true, out),
        Value::Number(n) => out.push_str(&number(n)),
        Value::Array(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (at, key) in keys.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                quote(key, true, out);
                out.push(':');
                json(&map[key], out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

fn quote(text: &str, html: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' if html => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_wire_form() {
        for text in [
            "f:spec",
            "f:",
            "f:a.b/c",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
            r#"v:"x""#,
            "v:1.5",
            "v:true",
            "v:null",
            "i:3",
            r#"k:{"name":"a\u003cb\n"}"#,
        ] {
            assert_eq!(Element::parse(text).unwrap().unwrap().wire(), text);
        }
        assert_eq!(Element::parse("x:y").unwrap(), None, "a later sort is left out");
        for bad in ["f", "", "name", "i:x", "k:1", "v:{"] {
            assert!(Element::parse(bad).is_err(), "{bad}");
        }
        let turned = Element::parse(r#"k:{"protocol":"TCP","containerPort":80.0}"#).unwrap().unwrap();
        assert_eq!(turned.wire(), r#"k:{"containerPort":80,"protocol":"TCP"}"#);
        assert_eq!(turned.to_string(), r#"[containerPort=80,protocol="TCP"]"#);
    }

    #[test]
    fn order_is_by_sort_then_by_value() {
        let all = [
            "f:a",
            "f:b",
            r#"k:{"p":9}"#,
            r#"k:{"p":80}"#,
            r#"k:{"p":80,"q":1}"#,
            r#"k:{"p":"x"}"#,
            "v:2",
            "v:10",
            "v:\"1\"",
            "v:false",
            "i:0",
        ];
        let parsed: Vec<Element> = all.iter().map(|t| Element::parse(t).unwrap().unwrap()).collect();
        let mut sorted = parsed.clone();
        sorted.reverse();
        sorted.sort();
        assert_eq!(sorted, parsed);
        assert_eq!(Element::parse("v:1").unwrap(), Element::parse("v:1.0").unwrap());
    }
}
