//! Why a text is no JSON or YAML. Each prints the message of the corresponding Go library.

use std::borrow::Cow;

pub use crate::yaml::Fault as SyntaxFault;

/// Why a text is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It ends too early.
    #[error("unexpected end of JSON input")]
    End,
    /// A character that is not allowed there; a blank means the end within a token.
    #[error("invalid character {} {place}", gotext::quote_byte(*.found))]
    Character {
        /// The byte that was found.
        found: u8,
        /// Where it was, in the scanner's words.
        place: Cow<'static, str>,
    },
    /// It is nested more deeply than [`crate::MAX_DEPTH`]; with the byte that begins the level.
    #[error("invalid character {} exceeded max depth", gotext::quote_byte(*.0))]
    Depth(u8),
    /// A number that no float can hold.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
}

/// Why a text is no YAML, or cannot be JSON.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum YamlError {
    /// Its bytes are no UTF-8.
    #[error("yaml: {0}")]
    Encoding(&'static str),
    /// It has characters that YAML forbids.
    #[error("yaml: control characters are not allowed")]
    Characters,
    /// It is no YAML.
    #[error("yaml: {0}")]
    Syntax(#[from] SyntaxFault),
    /// It is nested more deeply than [`crate::MAX_DEPTH`].
    #[error("yaml: exceeded max depth")]
    Depth,
    /// An alias of an anchor that there is not.
    #[error("yaml: unknown anchor '{0}' referenced")]
    UnknownAnchor(String),
    /// An anchor whose value has an alias of it.
    #[error("yaml: anchor '{0}' value contains itself")]
    Recursive(String),
    /// Aliases make it too large.
    #[error("yaml: document contains excessive aliasing")]
    Aliasing,
    /// A list or a mapping as key, as Go prints it.
    #[error("yaml: invalid map key: {0}")]
    Key(String),
    /// A merge key whose value is no mapping.
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    /// A scalar that is no base64, with the tag of one.
    #[error("yaml: !!binary value contains invalid base64 data")]
    Base64,
    /// A scalar that does not fit its tag.
    #[error("yaml: cannot decode {found} `{text}` as a {wanted}")]
    Tag {
        /// What it would be without the tag.
        found: String,
        /// Its text.
        text: String,
        /// The tag.
        wanted: String,
    },
    /// Keys that stand in one mapping twice: the text about all of them ([`crate::Yaml::doubled`]).
    #[error("{0}")]
    Doubled(String),
    /// A key that no key of JSON can be.
    #[error("unsupported map key of type: {ty}, key: {key}, value: {value}")]
    UnsupportedKey {
        /// Its Go type.
        ty: &'static str,
        /// The key.
        key: String,
        /// The value, in Go's syntax.
        value: String,
    },
    /// A number that JSON has not.
    #[error("json: unsupported value: {0}")]
    UnsupportedValue(&'static str),
}
