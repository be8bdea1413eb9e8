//! YAML into values, as `sigs.k8s.io/yaml` converts it to JSON: YAML 1.1, only the first document of a text, keys of all scalar types converted to
//! strings, aliases and merge keys expanded within limits.
//!
//! [`scan`] produces tokens, [`parse`] nodes, [`resolve`] typed scalars; [`write`] is the inverse.

mod chars;
mod parse;
mod resolve;
mod scalars;
mod scan;
mod write;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{MAX_DEPTH, YamlError};
use parse::{Document, Held, Node, Parser};
use resolve::Scalar;

pub use scan::Fault;
pub use write::{to_yaml, to_yaml_in_order};

/// Bytes that following aliases may add to a document.
const MAX_ALIASED: usize = 4 << 20;
/// Nodes from which on the share of aliases is looked at, and bounds of that share.
const MANY: usize = 400_000;

/// A document, and a strict reader's error about duplicate keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Yaml {
    /// The value, with sorted keys.
    pub value: Value,
    /// The text about doubled keys.
    pub doubled: Option<String>,
}

/// Reads the first document of a text; an empty text is null. The error is the Go library's.
pub fn from_yaml(bytes: &[u8]) -> Result<Yaml, YamlError> {
    let mut parser = Parser::new(text(bytes)?, MAX_DEPTH);
    match parser.document()? {
        Some(document) => value(&document),
        None => Ok(Yaml { value: Value::Null, doubled: None }),
    }
}

/// Reads all documents of a text; empty ones are left out.
pub fn from_yaml_stream(stream: &str) -> Result<Vec<Value>, YamlError> {
    let mut parser = Parser::new(text(stream.as_bytes())?, MAX_DEPTH);
    let mut all = Vec::new();
    while let Some(document) = parser.document()? {
        let read = value(&document)?;
        if let Some(why) = read.doubled {
            return Err(YamlError::Doubled(why));
        }
        all.push(read.value);
    }
    all.retain(|v| !v.is_null());
    Ok(all)
}

/// Whether a JSON text surely means the same in YAML: it has no unpaired surrogates, no characters that YAML forbids, and no keys that are too long
/// for YAML.
pub fn reads_json_alike(bytes: &[u8]) -> bool {
    let mut run = 0;
    for (at, byte) in bytes.iter().enumerate() {
        run = if matches!(byte, b',' | b'{' | b'[') { 0 } else { run + 1 };
        let next = |by: usize| bytes.get(at + by).copied().unwrap_or_default();
        let odd = match byte {
            b'\\' => {
                next(1) == b'u' && matches!(next(2), b'd' | b'D') && !next(3).is_ascii_digit()
                    || next(1) == b'u' && matches!(next(2), b'd' | b'D') && next(3) >= b'8'
            }
            0x7f => true,
            0xc2 => next(1) < 0xa0,
            0xef => next(1) >= 0xbb,
            b':' => run > 1000,
            _ => false,
        };
        if odd {
            return false;
        }
    }
    true
}

/// The characters of a text; fails for those that YAML forbids.
fn text(bytes: &[u8]) -> Result<Vec<char>, YamlError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let rest = bytes.get(error.valid_up_to()..).unwrap_or_default();
        let why = match (error.error_len(), rest.first()) {
            (None, _) => "incomplete UTF-8 octet sequence",
            (_, Some(0x80..=0xbf | 0xf8..=0xff)) => "invalid leading UTF-8 octet",
            _ => "invalid trailing UTF-8 octet",
        };
        YamlError::Encoding(why)
    })?;
    let chars: Vec<char> = text.chars().collect();
    if chars.iter().any(|c| !chars::allowed(*c)) {
        return Err(YamlError::Characters);
    }
    Ok(chars)
}

/// A key of a mapping: `1` and `"1"` are two.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(u64),
    Text(String),
}

impl Key {
    fn of(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(set) => Self::Bool(set),
            Scalar::Int(number) => Self::Int(number),
            Scalar::Uint(number) => Self::Uint(number),
            Scalar::Float(float) => Self::Float(float.to_bits()),
            Scalar::Text(text) => Self::Text(text),
        }
    }

    /// In Go's syntax.
    fn go_syntax(&self) -> String {
        match self {
            Self::Null => "<nil>".to_owned(),
            Self::Bool(set) => set.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Uint(number) => format!("{number:#x}"),
            Self::Float(bits) => gotext::float(f64::from_bits(*bits)),
            Self::Text(text) => gotext::quote(text),
        }
    }

    /// As a key of JSON.
    fn json(&self, value: &Value) -> Result<String, YamlError> {
        match self {
            Self::Bool(set) => Ok(set.to_string()),
            Self::Int(number) => Ok(number.to_string()),
            Self::Float(bits) => Ok(resolve::float_key(f64::from_bits(*bits))),
            Self::Text(text) => Ok(text.clone()),
            Self::Null => Err(unsupported("%!s(<nil>)", self.go_syntax(), value)),
            Self::Uint(_) => Err(unsupported("uint64", self.go_syntax(), value)),
        }
    }
}

fn unsupported(ty: &'static str, key: String, value: &Value) -> YamlError {
    YamlError::UnsupportedKey { ty, key, value: go_syntax(value, false) }
}

/// A value in Go's syntax.
fn go_syntax(value: &Value, within: bool) -> String {
    match value {
        Value::Null if within => "interface {}(nil)".to_owned(),
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => gotext::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| go_syntax(item, true)).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let members: Vec<String> =
                map.iter().map(|(k, v)| format!("{}:{}", gotext::quote(k), go_syntax(v, true))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", members.join(", "))
        }
        other => gotext::map(other),
    }
}

struct Reader<'d> {
    nodes: &'d [Node],
    /// Errors about duplicate keys, in order.
    duplicates: Vec<String>,
    /// Nodes of aliases that are being followed.
    open: HashSet<usize>,
    read: usize,
    aliased: usize,
    bytes: usize,
    depth: usize,
    /// The first error of the conversion from YAML values to JSON, reported only if there is no other.
    late: Option<YamlError>,
}

fn value(document: &Document) -> Result<Yaml, YamlError> {
    let mut reader = Reader {
        nodes: &document.nodes,
        duplicates: Vec::new(),
        open: HashSet::new(),
        read: 0,
        aliased: 0,
        bytes: 0,
        depth: MAX_DEPTH,
        late: None,
    };
    let mut value = reader.value(document.root)?;
    if let Some(why) = reader.late {
        return Err(why);
    }
    value.sort_all_objects();
    let doubled = (!reader.duplicates.is_empty())
        .then(|| format!("yaml: unmarshal errors:\n  {}", reader.duplicates.join("\n  ")));
    Ok(Yaml { value, doubled })
}

impl<'d> Reader<'d> {
    /// Counts a node; fails if too large a share of a large document comes from aliases.
    fn count(&mut self) -> Result<(), YamlError> {
        self.read += 1;
        if !self.open.is_empty() {
            self.aliased += 1;
        }
        let share = 0.99 - 0.89 * (self.read.saturating_sub(MANY).min(9 * MANY) as f64 / (9 * MANY) as f64);
        let many = self.aliased > 100 && self.read > 1000 && self.aliased as f64 / self.read as f64 > share;
        if many || self.bytes > MAX_ALIASED {
            return Err(YamlError::Aliasing);
        }
        Ok(())
    }

    fn node(&self, at: usize) -> &'d Node {
        static NONE: Node = Node { held: Held::Sequence(Vec::new()), line: 0 };
        self.nodes.get(at).unwrap_or(&NONE)
    }

    fn value(&mut self, at: usize) -> Result<Value, YamlError> {
        self.count()?;
        match &self.node(at).held {
            Held::Alias(target, name) => self.alias(at, *target, name, |reader| reader.value(*target)),
            Held::Scalar(..) => Ok(self.json_scalar(at)?),
            Held::Sequence(items) => {
                self.deeper()?;
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.push(self.value(*item)?);
                }
                self.depth += 1;
                Ok(Value::Array(list))
            }
            Held::Mapping(_) => {
                let (mut map, mut keys) = (Map::new(), HashSet::new());
                self.mapping(at, &mut map, &mut keys)?;
                Ok(Value::Object(map))
            }
        }
    }

    fn deeper(&mut self) -> Result<(), YamlError> {
        self.depth = self.depth.checked_sub(1).ok_or(YamlError::Depth)?;
        Ok(())
    }

    fn alias<T>(
        &mut self,
        at: usize,
        target: usize,
        name: &str,
        follow: impl FnOnce(&mut Self) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        let within = self.open.contains(&at) || self.nodes.get(target).is_none();
        if within || !self.open.insert(at) {
            return Err(YamlError::Recursive(name.to_owned()));
        }
        self.deeper()?;
        let found = follow(self);
        self.depth += 1;
        self.open.remove(&at);
        found
    }

    fn scalar(&mut self, at: usize) -> Result<Scalar, YamlError> {
        let Held::Scalar(text, tag, plain) = &self.node(at).held else { return Ok(Scalar::Null) };
        if !self.open.is_empty() {
            self.bytes += text.len();
        }
        if tag.is_empty() && !plain {
            return Ok(Scalar::Text(text.clone()));
        }
        resolve::scalar(text, tag)
    }

    fn json_scalar(&mut self, at: usize) -> Result<Value, YamlError> {
        Ok(match self.scalar(at)? {
            Scalar::Null => Value::Null,
            Scalar::Bool(set) => set.into(),
            Scalar::Int(number) => number.into(),
            Scalar::Uint(number) => number.into(),
            Scalar::Text(text) => text.into(),
            Scalar::Float(float) if float.is_finite() => {
                // A whole float is written as an integer.
                let whole = float.fract() == 0.0 && float.abs() < 9.0e18;
                if whole { (float as i64).into() } else { float.into() }
            }
            Scalar::Float(float) => {
                let printed = if float.is_nan() {
                    "NaN"
                } else if float > 0.0 {
                    "+Inf"
                } else {
                    "-Inf"
                };
                self.late.get_or_insert(YamlError::UnsupportedValue(printed));
                Value::Null
            }
        })
    }

    fn mapping(&mut self, at: usize, map: &mut Map<String, Value>, keys: &mut HashSet<Key>) -> Result<(), YamlError> {
        let Held::Mapping(members) = &self.node(at).held else { return Ok(()) };
        self.deeper()?;
        for (key, value) in members {
            if self.is_merge(*key) {
                self.merge(*value, map, keys)?;
                continue;
            }
            let key = self.key(*key)?;
            let read = self.value(*value)?;
            if !keys.insert(key.clone()) {
                let line = self.node(*value).line + 1;
                self.duplicates.push(format!("line {line}: key {} already set in map", key.go_syntax()));
            }
            match key.json(&read) {
                Ok(name) => {
                    map.insert(name, read);
                }
                Err(why) => {
                    self.late.get_or_insert(why);
                }
            }
        }
        self.depth += 1;
        Ok(())
    }

    fn key(&mut self, at: usize) -> Result<Key, YamlError> {
        self.count()?;
        match &self.node(at).held {
            Held::Alias(target, name) => self.alias(at, *target, name, |reader| reader.key(*target)),
            Held::Scalar(..) => Ok(Key::of(self.scalar(at)?)),
            _ => Err(YamlError::Key(go_syntax(&self.value(at)?, false))),
        }
    }

    fn is_merge(&self, at: usize) -> bool {
        match &self.node(at).held {
            Held::Scalar(text, tag, plain) => {
                text == "<<" && (*plain || tag.strip_prefix(resolve::LONG) == Some("merge"))
            }
            _ => false,
        }
    }

    /// Merges other mappings into a mapping (`<<`).
    fn merge(&mut self, from: usize, map: &mut Map<String, Value>, keys: &mut HashSet<Key>) -> Result<(), YamlError> {
        let no_map = || Err(YamlError::Merge);
        match &self.node(from).held {
            Held::Mapping(_) => {
                self.count()?;
                self.mapping(from, map, keys)
            }
            Held::Alias(target, name) => match self.node(*target).held {
                Held::Mapping(_) => {
                    self.count()?;
                    self.alias(from, *target, name, |reader| {
                        reader.count()?;
                        reader.mapping(*target, map, keys)
                    })
                }
                _ => no_map(),
            },
            Held::Sequence(items) => {
                // The first one counts most.
                for item in items.iter().rev() {
                    if let Held::Sequence(_) | Held::Scalar(..) = self.node(*item).held {
                        return no_map();
                    }
                    self.merge(*item, map, keys)?;
                }
                Ok(())
            }
            Held::Scalar(..) => no_map(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, String> {
        from_yaml(text.as_bytes()).map(|yaml| yaml.value).map_err(|error| error.to_string())
    }

    #[test]
    fn documents_are_read_as_json() {
        for (text, value) in [
            ("", json!(null)),
            ("# nothing\n", json!(null)),
            ("a: b\n---\nc: d\n", json!({"a": "b"})),
            ("--- \na: [1, 'x', \"y\\n\", {b: c}, d: e]\n...\n", json!({"a": [1, "x", "y\n", {"b": "c"}, {"d": "e"}]})),
            ("a:\n- 1\n-\n- - 2\n  - 3\n", json!({"a": [1, null, [2, 3]]})),
            ("? a\n: b\n? c\n", json!({"a": "b", "c": null})),
            (
                "a: >-\n  x\n  y\n\n  z\nb: |+\n  l\n\nc: \"d\\\n  e\"\n",
                json!({"a": "x y\nz", "b": "l\n\n", "c": "de"}),
            ),
            ("a: &x {b: 1}\nc: *x\nd: {<<: *x, b: 2}\n", json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 2}})),
            ("1: a\ntrue: b\n1.5: c\n", json!({"1": "a", "true": "b", "1.5": "c"})),
            ("a: !!str 1\nb: !!binary YQ==\n", json!({"a": "1", "b": "a"})),
            ("{\"a\":\"\\u00e9\",\"b\":1e3,\n\"c\":[]}", json!({"a": "é", "b": 1000, "c": []})),
            ("a: b # c\nd: 'it''s'\n", json!({"a": "b", "d": "it's"})),
            ("a: x\n  y\n  z\n", json!({"a": "x y z"})),
            ("a:b: c\n", json!({"a:b": "c"})),
        ] {
            assert_eq!(read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn errors_are_those_of_the_go_library() {
        for (text, message) in [
            ("apiVersion: v1\nkind: [\n", "yaml: line 2: did not find expected node content"),
            ("a: b\nfoo\nc: d\n", "yaml: line 3: could not find expected ':'"),
            ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
            ("x: y\na: b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
            ("a: [1, 2\nb: c\n", "yaml: line 1: did not find expected ',' or ']'"),
            ("a: {b: c\n", "yaml: line 1: did not find expected ',' or '}'"),
            ("a: 'b\n", "yaml: line 2: found unexpected end of stream"),
            ("a: *b\n", "yaml: unknown anchor 'b' referenced"),
            ("a: &b [*b]\n", "yaml: anchor 'b' value contains itself"),
            ("a: @b\n", "yaml: found character that cannot start any token"),
            ("a:\n\t- b\n", "yaml: line 2: found character that cannot start any token"),
            ("a: \"\\q\"\n", "yaml: found unknown escape character"),
            ("\"\\ud83d\\ude00\"", "yaml: found invalid Unicode character escape code"),
            ("a: !!int x\n", "yaml: cannot decode !!str `x` as a !!int"),
            ("a: {{b}}\n", "yaml: invalid map key: map[interface {}]interface {}{\"b\":interface {}(nil)}"),
            ("a: .inf\n", "json: unsupported value: +Inf"),
            ("~: x\n", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\""),
            ("a: !x!y z\n", "yaml: found undefined tag handle"),
            ("<<: 5\n", "yaml: map merge requires map or sequence of maps as the value"),
            ("a: \u{1}\n", "yaml: control characters are not allowed"),
            ("a:\n  b: c\n d: e\n", "yaml: line 2: did not find expected key"),
        ] {
            assert_eq!(read(text).unwrap_err(), message, "{text:?}");
        }
        assert_eq!(from_yaml(b"a: \xff").unwrap_err().to_string(), "yaml: invalid leading UTF-8 octet");
    }

    #[test]
    fn duplicate_keys_are_reported_with_their_lines() {
        let yaml = from_yaml(b"a: 1\nb: {c: 1, c: 2}\na:\n  x\n1: y\n1: z\n").unwrap();
        assert_eq!(yaml.value, json!({"a": "x", "b": {"c": 2}, "1": "z"}));
        let lines = "line 2: key \"c\" already set in map\n  line 4: key \"a\" already set in map\n  line 6: key 1 already set in map";
        assert_eq!(yaml.doubled, Some(format!("yaml: unmarshal errors:\n  {lines}")));
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        assert!(read(&bomb).unwrap_err().contains("excessive aliasing"));
        let big = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 500].join(","));
        assert!(read(&big).unwrap_err().contains("excessive aliasing"));
        let mut chain = String::from("a0: &a0 [x]\n");
        for level in 1..500 {
            chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(read(&chain).is_err());
        for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000), "? ".repeat(100_000)] {
            assert!(read(&deep).is_err());
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\u{e9}\u{4e2d}]{0,12}".prop_map(Value::from),
            "(yes|no|~|1|0x1|1e3|2026-01-02|- a|a: b|#x|\\?|'|\"|<<|  a|a  )".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,6}", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_is_yaml(value in any_json()) {
            let text = value.to_string();
            prop_assert_eq!(read(&text), Ok(value), "{}", text);
        }

        #[test]
        fn what_is_written_is_read(value in any_json()) {
            let text = to_yaml(&value);
            prop_assert_eq!(read(&text), Ok(value), "{}", text);
        }

        #[test]
        fn no_text_is_too_much(text in "[-a:{}\\[\\],?&*!|>'\"%@# \n\t0~<.]{0,40}") {
            let _ = read(&text);
        }
    }
}
