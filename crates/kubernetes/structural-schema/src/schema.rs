//! Structural schemas (`apiextensions.k8s.io/v1` JSONSchemaProps) in the compact form that requests are checked with.
//! Texts are left out: OpenAPI is built from the stored definition.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use regex_syntax::ast::{self, ErrorKind};
use serde_json::Value;

use crate::{Object, strings};

/// Nesting that a schema may have.
const MAX_DEPTH: usize = 100;
/// Bytes of a compiled pattern.
const PATTERN_LIMIT: usize = 4 << 20;

/// Type that a schema requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
}

impl JsonType {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The type's name as in schemas, as a list of one.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Object => &["object"],
            Self::Array => &["array"],
            Self::String => &["string"],
            Self::Integer => &["integer"],
            Self::Number => &["number"],
            Self::Boolean => &["boolean"],
        }
    }
}

/// List semantics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole (also the default).
    #[default]
    Atomic,
    /// No value twice.
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

/// `additionalProperties`.
#[derive(Debug, Default)]
pub enum Additional {
    /// Not given, or false.
    #[default]
    None,
    /// Any members are allowed.
    Any,
    /// Values follow a schema.
    Schema(Box<Schema>),
}

/// A regular expression, compiled when first used (its memory is not small).
#[derive(Debug)]
pub struct Pattern {
    /// The text.
    pub source: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Whether the text matches; `None` if the expression cannot be compiled.
    pub fn matches(&self, text: &str) -> Option<bool> {
        self.compiled.get_or_init(|| compile(&self.source).ok()).as_ref().map(|r| r.is_match(text))
    }
}

fn compile(source: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(source).size_limit(PATTERN_LIMIT).dfa_size_limit(PATTERN_LIMIT).build()
}

/// Value rules of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    /// Members that must be there.
    pub required: Vec<String>,
    /// Allowed values.
    pub choices: Vec<Value>,
    /// The string matches.
    pub pattern: Option<Pattern>,
    /// Format name.
    pub format: Option<String>,
    /// Lowest number and whether it is excluded itself.
    pub minimum: Option<(f64, bool)>,
    /// Highest number and whether it is excluded itself.
    pub maximum: Option<(f64, bool)>,
    /// The number is a multiple.
    pub multiple_of: Option<f64>,
    /// Characters, at least.
    pub min_length: Option<u64>,
    /// Characters, at most.
    pub max_length: Option<u64>,
    /// Items, at least.
    pub min_items: Option<u64>,
    /// Items, at most.
    pub max_items: Option<u64>,
    /// Members, at least.
    pub min_properties: Option<u64>,
    /// Members, at most.
    pub max_properties: Option<u64>,
    /// All hold.
    pub all_of: Vec<Schema>,
    /// One holds at least.
    pub any_of: Vec<Schema>,
    /// Exactly one holds.
    pub one_of: Vec<Schema>,
    /// Does not hold.
    pub not: Option<Box<Schema>>,
    /// There are CEL rules here.
    pub cel: bool,
}

/// A structural schema.
#[derive(Debug, Default)]
pub struct Schema {
    /// Required type.
    pub ty: Option<JsonType>,
    /// Null is allowed.
    pub nullable: bool,
    /// Known members.
    pub properties: BTreeMap<String, Schema>,
    /// Other members.
    pub additional: Additional,
    /// Items of a list.
    pub items: Option<Box<Schema>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// Value if absent.
    pub default: Option<Value>,
    /// List semantics.
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`: a map that is owned as a whole.
    pub atomic_map: bool,
    /// Value rules.
    pub rules: Box<Rules>,
    /// There are sets or keyed lists here or below.
    pub has_lists: bool,
    /// There are embedded resources here or below.
    pub has_embedded: bool,
}

impl Schema {
    /// Parses a schema. The error is a path and a message.
    pub fn parse(value: &Value) -> Result<Self, (String, String)> {
        parse(value, "", MAX_DEPTH)
    }

    /// The schema of a member.
    pub fn property(&self, key: &str) -> Option<&Schema> {
        match (self.properties.get(key), &self.additional) {
            (Some(schema), _) => Some(schema),
            (None, Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Whether the schema contains any CEL rules.
    pub fn has_cel(&self) -> bool {
        self.rules.cel
            || self.properties.values().any(Schema::has_cel)
            || self.items.as_ref().is_some_and(|s| s.has_cel())
            || matches!(&self.additional, Additional::Schema(s) if s.has_cel())
            || self.rules.all_of.iter().any(Schema::has_cel)
    }
}

fn parse(value: &Value, path: &str, depth: usize) -> Result<Schema, (String, String)> {
    let fail = |what: &str| Err((path.to_owned(), what.to_owned()));
    let Some(object) = value.as_object() else { return fail("must be an object") };
    if depth == 0 {
        return fail("is nested too deeply");
    }
    let flag = |key: &str| object.get(key).and_then(Value::as_bool).unwrap_or(false);
    let ty = match object.get("type").and_then(Value::as_str) {
        None | Some("") => None,
        Some(text) => match JsonType::parse(text) {
            Some(ty) => Some(ty),
            None => return fail("has an unknown type"),
        },
    };
    let mut properties = BTreeMap::new();
    if let Some(members) = object.get("properties").and_then(Value::as_object) {
        for (key, member) in members {
            properties.insert(key.clone(), parse(member, &format!("{path}.properties[{key}]"), depth - 1)?);
        }
    }
    let additional = match object.get("additionalProperties") {
        None | Some(Value::Null | Value::Bool(false)) => Additional::None,
        Some(Value::Bool(true)) => Additional::Any,
        Some(inner) => Additional::Schema(Box::new(parse(inner, &format!("{path}.additionalProperties"), depth - 1)?)),
    };
    let items = match object.get("items") {
        None | Some(Value::Null) => None,
        Some(inner) => Some(Box::new(parse(inner, &format!("{path}.items"), depth - 1)?)),
    };
    let list_type = match object.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(object.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    };
    let below = || {
        let inner = if let Additional::Schema(inner) = &additional { Some(&**inner) } else { None };
        properties.values().chain(items.as_deref()).chain(inner)
    };
    let has_lists = list_type != ListType::Atomic || below().any(|s| s.has_lists);
    let has_embedded = flag("x-kubernetes-embedded-resource") || below().any(|s| s.has_embedded);
    Ok(Schema {
        has_lists,
        has_embedded,
        ty,
        nullable: flag("nullable"),
        properties,
        additional,
        items,
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        embedded: flag("x-kubernetes-embedded-resource"),
        default: object.get("default").filter(|d| !d.is_null()).cloned(),
        list_type,
        atomic_map: object.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        rules: Box::new(parse_rules(object, path, depth)?),
    })
}

fn parse_rules(object: &Object, path: &str, depth: usize) -> Result<Rules, (String, String)> {
    let number = |key: &str| object.get(key).and_then(Value::as_f64);
    let count = |key: &str| object.get(key).and_then(Value::as_u64);
    let flag = |key: &str| object.get(key).and_then(Value::as_bool).unwrap_or(false);
    let branches = |key: &str| -> Result<Vec<Schema>, (String, String)> {
        object
            .get(key)
            .and_then(Value::as_array)
            .map(|list| {
                list.iter()
                    .enumerate()
                    .map(|(at, v)| parse(v, &format!("{path}.{key}[{at}]"), depth.saturating_sub(1)))
                    .collect()
            })
            .unwrap_or_else(|| Ok(Vec::new()))
    };
    let pattern = match object.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty()) {
        None => None,
        Some(source) => {
            // Syntax is checked now; the compiled form is not kept before it is used.
            if let Err(error) = regex_syntax_check(source) {
                return Err((format!("{path}.pattern"), error));
            }
            Some(Pattern { source: source.to_owned(), compiled: OnceLock::new() })
        }
    };
    let not = match object.get("not") {
        None | Some(Value::Null) => None,
        Some(inner) => Some(Box::new(parse(inner, &format!("{path}.not"), depth.saturating_sub(1))?)),
    };
    Ok(Rules {
        required: strings(object.get("required")),
        choices: object.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        pattern,
        format: object.get("format").and_then(Value::as_str).filter(|f| !f.is_empty()).map(str::to_owned),
        minimum: number("minimum").map(|n| (n, flag("exclusiveMinimum"))),
        maximum: number("maximum").map(|n| (n, flag("exclusiveMaximum"))),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: branches("allOf")?,
        any_of: branches("anyOf")?,
        one_of: branches("oneOf")?,
        not,
        cel: object.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(|l| !l.is_empty()),
    })
}

fn regex_syntax_check(source: &str) -> Result<(), String> {
    pattern_error(source).map_or(Ok(()), |e| Err(format!("must be a valid regular expression, but isn't: {e}")))
}

/// The error in a pattern, as Go's parser reports it for common mistakes.
pub fn pattern_error(source: &str) -> Option<String> {
    compile(source).err()?;
    // The compiler's error is a text; the parser's says what it is.
    let kind = ast::parse::Parser::new().parse(source).err().map(|error| error.kind().clone());
    let from = |mark: char| source.rfind(mark).map_or(source, |at| &source[at..]);
    let what = match kind {
        Some(ErrorKind::ClassUnclosed) => format!("missing closing ]: `{}`", from('[')),
        Some(ErrorKind::GroupUnclosed) => format!("missing closing ): `{source}`"),
        Some(ErrorKind::GroupUnopened) => format!("unexpected ): `{source}`"),
        Some(ErrorKind::RepetitionMissing) => {
            let at = source.find(['*', '+', '?', '{']).unwrap_or(0);
            format!("missing argument to repetition operator: `{}`", source[at..].chars().next().unwrap_or('*'))
        }
        Some(ErrorKind::UnsupportedLookAround) => {
            let at = source.find("(?").unwrap_or(0);
            format!("invalid or unsupported Perl syntax: `{}`", source[at..].chars().take(3).collect::<String>())
        }
        _ => format!("invalid escape sequence or too large an expression: `{source}`"),
    };
    Some(format!("error parsing regexp: {what}"))
}
