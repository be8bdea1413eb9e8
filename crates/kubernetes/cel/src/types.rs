//! Types, as the checker sees them and as `type()` returns them.

use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// `null`.
    Null,
    /// `bool`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating point number of 64 bits.
    Double,
    /// Unicode text.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// Anything; checked when evaluated.
    Dyn,
    /// The type of an invalid expression.
    Error,
    /// A list of one element type.
    List(Arc<Type>),
    /// A map of one key type and one value type.
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields, or one of Kubernetes' own types, by name.
    Object(Arc<str>),
    /// A type without fields, by name, such as `net.IP`.
    Opaque(Arc<str>),
    /// A value that may be there.
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type variable.
    Param(Arc<str>),
}

impl Type {
    /// A list.
    pub fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// A map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional value.
    pub fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// A declared object type.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// Whether the type has at most `left` parts; counts `left` down.
    pub(crate) fn is_within(&self, left: &mut usize) -> bool {
        let Some(less) = left.checked_sub(1) else { return false };
        *left = less;
        match self {
            Self::List(of) | Self::Optional(of) | Self::Type(Some(of)) => of.is_within(left),
            Self::Map(key, value) => key.is_within(left) && value.is_within(left),
            _ => true,
        }
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The name that `type(x)` returns and that conversion errors quote.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::Dyn => "dyn",
            Self::Error => "*error*",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Object(name) | Self::Opaque(name) | Self::Param(name) => name,
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
        }
    }

    /// Whether the size of a value is always one.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }
}

/// As the checker's messages show types.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Duration => f.write_str("duration"),
            Self::Error => f.write_str("!error!"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            other => f.write_str(other.runtime_name()),
        }
    }
}
