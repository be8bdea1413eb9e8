//! Escapes field names that are not identifiers, for use in expressions (`k8s.io/apiserver/pkg/cel/escaping.go`).

use crate::words::is_reserved;

/// How a reserved word is written as a field; none for any other name.
pub(crate) fn keyword(name: &str) -> Option<String> {
    is_reserved(name).then(|| format!("__{name}__"))
}

/// The identifier for a field; none if it cannot be named in an expression.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(escaped) = keyword(name) {
        return Some(escaped);
    }
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.peek() == Some(&'_') => {
                chars.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}
