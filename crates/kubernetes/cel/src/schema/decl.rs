//! The types that schemas declare, with how large their values may be.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::escape::escape;
use super::{additional, count, embedded, flag, int_or_string, items, properties, text, with_metadata};
use crate::sizes::Sizes;
use crate::types::Type;

/// Bytes that a request may have.
const MAX_REQUEST: i64 = 3 * 1024 * 1024;

/// A type made from a schema.
#[derive(Debug, Clone)]
pub struct DeclType {
    kind: Kind,
    max_elements: i64,
    min_size: i64,
}

#[derive(Debug, Clone)]
enum Kind {
    Simple(Type),
    List(Box<DeclType>),
    Map(Box<DeclType>),
    Object { name: String, fields: BTreeMap<String, DeclType> },
}

impl DeclType {
    /// The type of a schema; none if it describes no value that expressions can use. `root`: whether a whole object is
    /// described. `name` becomes the name of the object type, and the start of the names of those within.
    pub fn from_schema(schema: &Json, root: bool, name: &str) -> Option<Self> {
        if int_or_string(schema) {
            let max = count(schema, "maxLength").map_or(MAX_REQUEST - 2, |n| n.wrapping_mul(4));
            return Some(Self { kind: Kind::Simple(Type::Dyn), max_elements: max, min_size: 1 });
        }
        let schema = &*if root { with_metadata(schema) } else { std::borrow::Cow::Borrowed(schema) };
        match text(schema, "type") {
            "array" => {
                let items = items(schema)?;
                let of = Self::from_schema(items, embedded(items), &format!("{name}.@idx"))?;
                let max = count(schema, "maxItems").unwrap_or((MAX_REQUEST - 2) / (of.min_size + 1));
                Some(Self { kind: Kind::List(Box::new(of)), max_elements: max, min_size: 2 })
            }
            "object" => Self::object(schema, name),
            "string" => Some(Self::string(schema)),
            "boolean" => Some(Self::simple(Type::Bool, 0, 4)),
            "number" => Some(Self::simple(Type::Double, 0, 1)),
            "integer" => Some(Self::simple(Type::Int, 0, 1)),
            _ => None,
        }
    }

    fn simple(ty: Type, max_elements: i64, min_size: i64) -> Self {
        Self { kind: Kind::Simple(ty), max_elements, min_size }
    }

    fn object(schema: &Json, name: &str) -> Option<Self> {
        if let Some(values) = additional(schema) {
            let of = Self::from_schema(values, embedded(values), &format!("{name}.@elem"))?;
            let max = count(schema, "maxProperties").unwrap_or((MAX_REQUEST - 2) / (of.min_size + 6));
            return Some(Self { kind: Kind::Map(Box::new(of)), max_elements: max, min_size: 2 });
        }
        let required: Vec<&str> =
            schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for (key, property) in properties(schema).into_iter().flatten() {
            let escaped = escape(key);
            let child = format!("{name}.{}", escaped.as_deref().unwrap_or(key));
            let Some(ty) = Self::from_schema(property, embedded(property), &child) else { continue };
            if required.contains(&key.as_str()) && property.get("default").is_none() {
                min_size += key.len() as i64 + ty.min_size + 4;
            }
            if let Some(escaped) = escaped {
                fields.insert(escaped, ty);
            }
        }
        Some(Self { kind: Kind::Object { name: name.to_owned(), fields }, max_elements: 0, min_size })
    }

    fn string(schema: &Json) -> Self {
        let max = count(schema, "maxLength");
        match text(schema, "format") {
            "byte" => Self::simple(Type::Bytes, max.unwrap_or(MAX_REQUEST - 2), 2),
            "duration" => Self::simple(Type::Duration, 32, 3),
            "date" => Self::simple(Type::Timestamp, 12, 12),
            "date-time" => Self::simple(Type::Timestamp, 32, 21),
            _ => {
                let choices = schema.get("enum").and_then(Json::as_array).filter(|c| !c.is_empty());
                let max = match (max, choices) {
                    // The product wraps around, as upstream.
                    (Some(max), _) => max.wrapping_mul(4),
                    (None, Some(choices)) => {
                        choices.iter().filter_map(Json::as_str).map(|s| s.len() as i64).max().unwrap_or(0)
                    }
                    (None, None) => MAX_REQUEST - 2,
                };
                Self::simple(Type::String, max, 2)
            }
        }
    }

    /// The type for the checker.
    pub fn cel_type(&self) -> Type {
        match &self.kind {
            Kind::Simple(ty) => ty.clone(),
            Kind::List(of) => Type::list(of.cel_type()),
            Kind::Map(of) => Type::map(Type::String, of.cel_type()),
            Kind::Object { name, .. } => Type::object(name),
        }
    }

    /// The most values of this type that fit into one request.
    pub fn max_cardinality(&self) -> u64 {
        (MAX_REQUEST / (self.min_size + 1)) as u64
    }

    pub(crate) fn object_parts(&self) -> Option<(&str, &BTreeMap<String, DeclType>)> {
        match &self.kind {
            Kind::Object { name, fields } => Some((name, fields)),
            _ => None,
        }
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = &DeclType> {
        let (one, many) = match &self.kind {
            Kind::List(of) | Kind::Map(of) => (Some(&**of), None),
            Kind::Object { fields, .. } => (None, Some(fields.values())),
            Kind::Simple(_) => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// Sizes by the path's steps after the variable.
impl Sizes for DeclType {
    fn max_size(&self, path: &[String]) -> Option<u64> {
        let mut at = self;
        for step in path.iter().skip(1) {
            at = match (&at.kind, step.as_str()) {
                (Kind::List(of) | Kind::Map(of), "@items" | "@values") => of,
                // All keys share one plain string type, which has the size limit 0.
                (Kind::Map(_), "@keys") => return Some(0),
                (Kind::Object { fields, .. }, name) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(at.max_elements.cast_unsigned())
    }
}

/// Whether the schema keeps data that it does not describe.
pub(crate) fn preserves(schema: &Json) -> bool {
    flag(schema, "x-kubernetes-preserve-unknown-fields")
}
