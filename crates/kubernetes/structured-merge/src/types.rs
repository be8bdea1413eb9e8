//! Types of an object's parts, as merging needs them.

use serde_json::Value;

use crate::element::Element;

/// Sort of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A map or struct.
    Map,
    /// A plain value.
    Scalar,
    /// A list.
    List,
}

/// Type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// A number.
    Numeric,
    /// Text.
    String,
    /// A boolean.
    Boolean,
    /// Any of them.
    Untyped,
}

/// How the items of a list are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items<'a> {
    /// Not at all: the list is one value.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Keys(&'a [String]),
    /// By these fields, with commas between them.
    Names(&'a str),
}

/// The type of a part of an object.
pub trait Typed: Copy {
    /// The type of a part that no schema describes.
    const UNKNOWN: Self;

    /// The single sort that values must be of; `None` if any will do.
    fn only(self) -> Option<Sort>;

    /// Whether a map is owned as a whole.
    fn atomic_map(self) -> bool;

    /// How the items of a list are identified.
    fn items(&self) -> Items<'_>;

    /// The type of the items of a list.
    fn item(self) -> Self;

    /// The type of a member of a map, and whether the type names it; `None` if there can be none of this name.
    fn child(self, key: &str) -> Option<(Self, bool)>;

    /// The type of a scalar.
    fn scalar(self) -> Scalar;

    /// The default of a key field of the items of a list.
    fn key_default(self, key: &str) -> Option<Value>;

    /// The sort of a value by this type, and whether the type or the value determines it. A null without a determined sort counts as a map.
    fn sort(self, value: &Value) -> (Sort, bool) {
        match (self.only(), value) {
            (Some(sort), _) => (sort, true),
            (None, Value::Object(_)) => (Sort::Map, true),
            (None, Value::Array(_)) => (Sort::List, true),
            (None, Value::Null) => (Sort::Map, false),
            (None, _) => (Sort::Scalar, true),
        }
    }

    /// The type below an element of a field set.
    fn below(self, at: &Element) -> Self {
        match at {
            Element::Field(name) if self.only().is_none_or(|s| s == Sort::Map) => {
                self.child(name).map_or(Self::UNKNOWN, |(ty, _)| ty)
            }
            Element::Key(_) if self.only().is_none_or(|s| s == Sort::List) => self.item(),
            _ => Self::UNKNOWN,
        }
    }

    /// Whether a map has a member of this name by its type.
    fn names(self, key: &str) -> bool {
        self.only().is_none_or(|s| s == Sort::Map) && self.child(key).is_some_and(|(_, named)| named)
    }
}
