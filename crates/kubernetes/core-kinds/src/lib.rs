//! The core kinds of Kubernetes that an API server itself serves, as data: one table (`kinds.txt`, generated from Kubernetes' Go types by
//! `tests/kubernetes/kinds`) has the fields of each kind, with their types, protobuf numbers, merge keys, defaults and descriptions. Modules built on
//! it:
//!
//! - [`decode`]: the typed decoder of JSON, with the errors of Go's; reports unknown and duplicate fields in their order;
//! - [`canonical`]: objects as Go's encoder writes them, zero values left out or filled in;
//! - [`convert`]: the check of untyped objects after a patch;
//! - [`protobuf`]: Kubernetes' protobuf, both ways;
//! - [`quantity`]: amounts such as `128Mi`.
//!
//! Validation of the kinds is the server's concern.

pub mod canonical;
pub mod convert;
pub mod decode;
mod gotime;
pub mod protobuf;
pub mod quantity;

pub use gotime::TimeError;

use std::collections::HashMap;
use std::sync::OnceLock;

/// An object in JSON.
pub type Object = serde_json::Map<String, serde_json::Value>;

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Text.
    String,
    /// Boolean.
    Bool,
    /// Integer of 32 bits.
    Int32,
    /// Integer of 64 bits.
    Int64,
    /// Floating-point number.
    Double,
    /// RFC 3339 time in seconds.
    Time,
    /// RFC 3339 time in microseconds.
    MicroTime,
    /// Base64 text.
    Bytes,
    /// Amount with a suffix, such as `128Mi`.
    Quantity,
    /// Integer of 32 bits, or text.
    IntOrString,
    /// Anything.
    Json,
    /// Text keys, values of one type.
    Map(Box<Type>),
    /// A list.
    List(Box<Type>),
    /// Another definition.
    Ref(&'static str),
}

/// How a list is keyed, for `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListKind {
    /// Unspecified.
    Plain,
    /// Replaced as a whole.
    Atomic,
    /// No value twice.
    Set,
    /// Items are identified by this field, or by these fields separated by commas.
    Map(&'static str),
}

/// A field of a definition.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Number in protobuf, empty if it has none; the last of several is a number within the messages before.
    pub path: Vec<u64>,
    /// Its type.
    pub ty: Type,
    /// Must be there.
    pub required: bool,
    /// Strategic merge: key of the merge, empty text for lists of plain values, `None` for replace.
    pub merge_key: Option<&'static str>,
    /// List semantics; `Atomic` also for maps that are replaced as a whole.
    pub list: ListKind,
    /// Whether absent differs from zero.
    pub optional: bool,
    /// Written even if it is zero or, for an optional field, absent (as null).
    pub always: bool,
    /// Value if absent.
    pub default: Option<&'static str>,
    /// Name of the type in Go, unless it is a built-in one.
    pub go: Option<&'static str>,
    /// For [`Type::Json`]: name of the definition that schemas refer to.
    pub refer: Option<&'static str>,
    /// Values that schemas allow, for the field or the items of its list; empty for any.
    pub choices: Vec<&'static str>,
    /// Schemas call the zero value a default, though it is left out when written.
    pub zero: bool,
    /// Text for people.
    pub doc: &'static str,
}

/// One definition.
#[derive(Debug, Clone)]
pub struct Def {
    /// Name as in OpenAPI, such as `io.k8s.api.core.v1.Secret`.
    pub name: &'static str,
    /// Group, version and kind, if the definition is a kind.
    pub gvk: Option<(&'static str, &'static str, &'static str)>,
    /// Replaced as a whole when applied.
    pub atomic: bool,
    /// Names of required fields, in the order of schemas.
    pub required: Vec<&'static str>,
    /// Fields in order of name.
    pub fields: Vec<Field>,
    /// Text for people.
    pub doc: &'static str,
}

impl Def {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// All definitions.
pub struct Defs {
    by_name: HashMap<&'static str, usize>,
    all: Vec<Def>,
}

impl Defs {
    /// The table, read once.
    pub fn get() -> &'static Self {
        static DEFS: OnceLock<Defs> = OnceLock::new();
        DEFS.get_or_init(|| parse(include_str!("kinds.txt")))
    }

    /// In the table's order.
    pub fn all(&self) -> &[Def] {
        &self.all
    }

    /// A definition by name.
    pub fn def(&self, name: &str) -> Option<&Def> {
        self.by_name.get(name).map(|at| &self.all[*at])
    }

    /// A definition by group, version and kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Def> {
        self.all.iter().find(|d| d.gvk == Some((group, version, kind)))
    }

    /// Object metadata.
    pub fn object_meta(&self) -> Option<&Def> {
        self.def("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    }
}

fn parse(text: &'static str) -> Defs {
    let mut all: Vec<Def> = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (facts, doc) = line.split_once(" | ").unwrap_or((line, ""));
        if let Some(rest) = facts.strip_prefix("def ") {
            let mut words = rest.split_whitespace();
            let name = words.next().unwrap_or_default();
            let (mut gvk, mut atomic, mut required) = (None, false, Vec::new());
            for word in words {
                atomic |= word == "atomic";
                if let Some(names) = word.strip_prefix("required=") {
                    required = names.split(',').collect();
                }
                if let Some(word) = word.strip_prefix("gvk=") {
                    let mut parts = word.split('/');
                    gvk = parts.next().zip(parts.next()).zip(parts.next()).map(|((g, v), k)| (g, v, k));
                }
            }
            all.push(Def { name, gvk, atomic, required, fields: Vec::new(), doc: doc.trim() });
        } else if let Some(def) = all.last_mut() {
            let field = parse_field(facts, doc.trim());
            if field.required && !def.required.contains(&field.name) {
                def.required.push(field.name);
            }
            def.fields.push(field);
        }
    }
    let by_name = all.iter().enumerate().map(|(at, def)| (def.name, at)).collect();
    Defs { by_name, all }
}

fn parse_field(facts: &'static str, doc: &'static str) -> Field {
    let mut words = facts.split_whitespace();
    let word = words.next().unwrap_or_default();
    let (name, number) = word.split_once('=').unwrap_or((word, ""));
    let mut field = Field {
        name: name.trim_end_matches('!'),
        path: number.split('.').filter_map(|n| n.parse().ok()).collect(),
        ty: parse_type(words.next().unwrap_or_default()),
        required: name.ends_with('!'),
        merge_key: None,
        list: ListKind::Plain,
        optional: false,
        always: false,
        default: None,
        go: None,
        refer: None,
        choices: Vec::new(),
        zero: false,
        doc,
    };
    for word in words {
        match word.split_once('=') {
            Some(("merge", key)) => field.merge_key = Some(key),
            Some(("listmap", keys)) => field.list = ListKind::Map(keys),
            Some(("default", value)) => field.default = Some(value),
            Some(("go", name)) => field.go = Some(name),
            Some(("ref", name)) => field.refer = Some(name),
            Some(("enum", values)) => field.choices = values.split(',').collect(),
            _ if word == "set" => field.list = ListKind::Set,
            _ if word == "atomic" => field.list = ListKind::Atomic,
            _ if word == "ptr" => field.optional = true,
            _ if word == "always" => field.always = true,
            _ if word == "zero" => field.zero = true,
            _ => {}
        }
    }
    field
}

fn parse_type(text: &'static str) -> Type {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return Type::List(Box::new(parse_type(inner)));
    }
    if let Some(inner) = text.strip_prefix("map<").and_then(|t| t.strip_suffix('>')) {
        return Type::Map(Box::new(parse_type(inner)));
    }
    match text {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        other => other.strip_prefix('@').map_or(Type::Json, Type::Ref),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refs(ty: &Type) -> Option<&'static str> {
        match ty {
            Type::Ref(name) => Some(name),
            Type::List(inner) | Type::Map(inner) => refs(inner),
            _ => None,
        }
    }

    #[test]
    fn every_reference_is_defined_and_every_word_of_the_table_is_known() {
        let defs = Defs::get();
        for def in defs.all() {
            assert!(!def.doc.is_empty(), "{} has no text", def.name);
            for field in &def.fields {
                assert!(!field.doc.is_empty(), "{}.{} has no text", def.name, field.name);
                if let Some(name) = refs(&field.ty) {
                    assert!(defs.def(name).is_some(), "{name} is not defined");
                }
            }
        }
        let json: Vec<&str> = include_str!("kinds.txt")
            .lines()
            .filter(|l| l.starts_with("  "))
            .filter_map(|l| l.split_whitespace().nth(1))
            .filter(|t| parse_type(t) == Type::Json && *t != "json")
            .collect();
        assert!(json.is_empty(), "unknown types: {json:?}");
    }
}
