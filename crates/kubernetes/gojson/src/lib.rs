//! JSON and YAML as Kubernetes' decoders read them (`sigs.k8s.io/json`, `sigs.k8s.io/yaml`), with their errors, and limits on the cost of a hostile
//! text.
//!
//! [`parse`] reads JSON into a [`Node`], which keeps the document as it was written: Go's typed decoders mention duplicate keys, order and the text
//! of
//! numbers in their errors. [`Node::to_value`] converts it to an untyped value, and reports duplicate keys.
//! [`from_yaml`] reads YAML 1.1 into the same values: tokens (`yaml/scan.rs`, `yaml/scalars.rs`), then events (`yaml/parse.rs`), then typed scalars
//! (`yaml/resolve.rs`). [`to_yaml`] writes it.

mod fault;
mod scan;
mod yaml;

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

pub use fault::{JsonError, SyntaxFault, YamlError};
pub use yaml::{Yaml, from_yaml, from_yaml_stream, to_yaml, to_yaml_in_order};

/// Nesting of a document. Deeper ones are refused before they cost stack.
pub const MAX_DEPTH: usize = 120;
/// Most errors that a strict decoder reports.
pub const MAX_STRICT_ERRORS: usize = 100;

/// A document and the paths of keys that it has twice (the last one counts).
pub type Parsed = (Value, Vec<String>);

/// A part of a document as it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number's text.
    Number(Cow<'a, str>),
    /// A string.
    String(Cow<'a, str>),
    /// A list.
    Array(Vec<Node<'a>>),
    /// Keys, possibly duplicate, and their values.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Parses JSON. The error is Go's.
pub fn parse(bytes: &[u8]) -> Result<Node<'_>, JsonError> {
    scan::parse(bytes)
}

/// Parses JSON into an untyped value.
pub fn from_json(bytes: &[u8]) -> Result<Parsed, JsonError> {
    parse(bytes)?.to_value()
}

/// Reads a body that is YAML, and so may be JSON: most are, and JSON that is the same in YAML is read faster.
pub fn from_yaml_or_json(bytes: &[u8]) -> Result<Yaml, YamlError> {
    if bytes.trim_ascii_start().first() == Some(&b'{')
        && yaml::reads_json_alike(bytes)
        && let Ok((mut value, twice)) = from_json(bytes)
        && twice.is_empty()
    {
        reread(&mut value);
        return Ok(Yaml { value, doubled: None });
    }
    from_yaml(bytes)
}

/// YAML is converted to JSON before it is decoded, which turns whole floats into integers.
fn reread(value: &mut Value) {
    match value {
        Value::Number(float) if float.is_f64() => {
            if let Some(read) = number(&gotext::json_number(float)) {
                *float = read;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(reread),
        Value::Object(map) => map.values_mut().for_each(reread),
        _ => {}
    }
}

/// A step of a path into a document.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// A key.
    Key(&'a str),
    /// A place in a list.
    Index(usize),
}

/// The path in the form of errors: `spec.ports[0].name`.
pub fn path(steps: &[Step<'_>], last: &str) -> String {
    let mut out = String::new();
    for step in steps.iter().copied().chain(std::iter::once(Step::Key(last))) {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
            Step::Index(at) => out.push_str(&format!("[{at}]")),
        }
    }
    out
}

impl<'a> Node<'a> {
    /// Converts a value to a node.
    pub fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(set) => Self::Bool(*set),
            Value::Number(number) => Self::Number(Cow::Owned(gotext::as_written(number))),
            Value::String(text) => Self::String(Cow::Borrowed(text)),
            Value::Array(list) => Self::Array(list.iter().map(Self::of).collect()),
            Value::Object(map) => Self::of_members(map),
        }
    }

    /// The same for an object.
    pub fn of_members(map: &'a Map<String, Value>) -> Self {
        Self::Object(map.iter().map(|(k, v)| (Cow::Borrowed(k.as_str()), Self::of(v))).collect())
    }

    /// The name of its kind in Go's decoder.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// The untyped value, and the paths of doubled keys, in the order in which a strict decoder finds them. The error is
    /// the one about a number that no float can hold.
    pub fn to_value(&self) -> Result<Parsed, JsonError> {
        let mut untyped = Untyped { steps: Vec::new(), duplicates: Vec::new() };
        let value = untyped.value(self)?;
        Ok((value, untyped.duplicates))
    }
}

/// Parses the number of an untyped value: an integer if the text has neither a point nor an exponent and the value fits 64 bits, else a float, even
/// if it is whole ([`gotext::encode`] writes `1` for the float 1). `None` if it exceeds a float's range.
pub fn number(text: &str) -> Option<Number> {
    match text.parse::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) => text.parse().ok().and_then(Number::from_f64),
    }
}

struct Untyped<'n> {
    steps: Vec<Step<'n>>,
    duplicates: Vec<String>,
}

impl<'n> Untyped<'n> {
    fn value(&mut self, node: &'n Node<'_>) -> Result<Value, JsonError> {
        Ok(match node {
            Node::Null => Value::Null,
            Node::Bool(set) => Value::Bool(*set),
            Node::Number(text) => match number(text) {
                Some(number) => Value::Number(number),
                None => return Err(JsonError::Number(text.clone().into_owned())),
            },
            Node::String(text) => Value::String(text.clone().into_owned()),
            Node::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (at, item) in items.iter().enumerate() {
                    self.steps.push(Step::Index(at));
                    list.push(self.value(item)?);
                    self.steps.pop();
                }
                Value::Array(list)
            }
            Node::Object(members) => {
                let mut object = Map::with_capacity(members.len());
                for (key, member) in members {
                    let before = self.duplicates.len();
                    self.steps.push(Step::Key(key));
                    let value = self.value(member)?;
                    self.steps.pop();
                    if object.insert(key.clone().into_owned(), value).is_some() {
                        self.report_duplicate(before, key);
                    }
                }
                Value::Object(object)
            }
        })
    }

    /// Reports a duplicate key before the duplicates within its value.
    fn report_duplicate(&mut self, at: usize, key: &str) {
        let path = path(&self.steps, key);
        if !self.duplicates.contains(&path) {
            self.duplicates.insert(at, path);
            self.duplicates.truncate(MAX_STRICT_ERRORS);
        }
    }
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_reported_and_the_last_counts() {
        let (value, twice) = from_json(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}],"a":{"e":1,"e":2}}"#).unwrap();
        assert_eq!(value, json!({"a": {"e": 2}, "c": [{"d": 1}]}));
        assert_eq!(twice, ["a.b", "c[0].d", "a", "a.e"]);
    }

    #[test]
    fn numbers_are_integers_if_they_are_written_so() {
        for (text, read) in [
            ("1", json!(1)),
            ("-0", json!(0)),
            ("1.0", json!(1.0)),
            ("1e2", json!(100.0)),
            ("1.5", json!(1.5)),
            ("9223372036854775807", json!(i64::MAX)),
            ("10000000000000000000", json!(1e19)),
            ("1e300", json!(1e300)),
        ] {
            assert_eq!(number(text).map(Value::Number), Some(read), "{text}");
        }
        let yaml = from_yaml_or_json(br#"{"a": [1.0, 1e3, 1.5, 1e300]}"#).unwrap().value;
        assert_eq!(yaml, json!({"a": [1, 1000, 1.5, 1e300]}));
        let error = from_json(b"[1e999]").unwrap_err().to_string();
        assert_eq!(error, "json: cannot unmarshal number 1e999 into Go value of type float64");
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(from_json(deep.as_bytes()).is_err());
        assert!(from_yaml(deep.as_bytes()).is_err());
        let fine = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(from_json(fine.as_bytes()).is_ok());
    }
}
