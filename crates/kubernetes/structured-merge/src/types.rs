//! What merging must know of the type of a part of an object.

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

/// What a plain value must be.
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

/// How items of a list are told apart.
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
    /// Of what no type tells anything.
    const UNKNOWN: Self;

    /// The single sort that values must be of; `None` if any will do.
    fn only(self) -> Option<Sort>;

    /// Whether a map is owned as a whole.
    fn atomic_map(self) -> bool;

    /// How items of a list are told apart.
    fn items(&self) -> Items<'_>;

    /// The type of the items of a list.
    fn item(self) -> Self;

    /// The type of a member of a map, and whether the type names it; `None` if there can be none of this name.
    fn child(self, key: &str) -> Option<(Self, bool)>;

    /// What a plain value must be.
    fn scalar(self) -> Scalar;

    /// The default of a key field of the items of a list.
    fn key_default(self, key: &str) -> Option<Value>;

    /// The sort of a value by this type, and whether it follows from the value alone. A null, or a value of a wrong
    /// sort, is taken for a map if maps are allowed.
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
