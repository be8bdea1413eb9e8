//! What is wrong with an object, a list item or a field set. Each prints the words of structured-merge-diff.

use serde_json::Value;

use crate::element::Element;

/// Why an item of a list cannot be distinguished from the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unnamed {
    /// The list is owned as a whole.
    #[error("invalid indexing of non-associative list")]
    Atomic,
    /// A map in a set.
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    /// A list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// A null in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    /// A null in a list whose items have keys.
    #[error("associative list with keys may not have a null element")]
    NullWithKeys,
    /// Something else than a map in such a list.
    #[error("associative list with keys may not have non-map elements")]
    NotAMap,
    /// A map in such a list that has none of these keys.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any \
         key fields)",
        quoted(.0)
    )]
    NoKeys(Vec<String>),
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| gotext::quote(name)).collect::<Vec<_>>().join(" ")
}

/// An item without a name of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("element {at}: {why}")]
pub struct UnnamedItem {
    /// Its place in the list, from 0.
    pub at: usize,
    /// Why it has none.
    pub why: Unnamed,
}

/// Why a value does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It is of another sort.
    #[error("expected {expected}, got {got}")]
    Sort {
        /// What the type wants.
        expected: &'static str,
        /// The value, or its type, as Go prints it.
        got: String,
    },
    /// The type has no such field.
    #[error("field not declared in schema")]
    Undeclared,
    /// A list has an item that cannot be distinguished.
    #[error(transparent)]
    Item(#[from] UnnamedItem),
    /// A set or a list with keys has an item twice.
    #[error("duplicate entries for key {0}")]
    Twice(Element),
}

/// Why `FieldsV1` cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// A key has less than two bytes.
    #[error("key must be 2 characters long:")]
    Short,
    /// A key whose second byte is no colon.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// No whole number after `i:`.
    #[error("bad index: {0}")]
    Index(String),
    /// No object after `k:`.
    #[error("not a key: {0}")]
    NotAKey(String),
    /// No JSON after `k:` or `v:`: the decoder's message.
    #[error("{0}")]
    Json(String),
    /// A field that is no object.
    #[error("a field must be an object, not {0}")]
    NotAnObject(Value),
}
