//! The `fieldPath` of a rule: which field its errors name (`schema/cel/validation.go`, `ValidFieldPath`).

use serde_json::Value as Json;

use super::{additional, properties};

/// Whether a path names a described field.
pub fn valid(path: &str, schema: &Json) -> bool {
    normal(path, schema).is_some()
}

/// The normal form of a path that names a described field, such as `.spec['a.b']`; none if it names none.
pub(crate) fn normal(path: &str, schema: &Json) -> Option<String> {
    let (mut rest, mut at, mut out) = (path, schema, String::new());
    if path.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            rest = after;
            name.to_owned()
        } else {
            let after = rest.strip_prefix("['")?;
            let (name, after) = quoted(after)?;
            rest = after.strip_prefix(']')?;
            name
        };
        if name.is_empty() {
            return None;
        }
        if let Some(fields) = properties(at) {
            at = fields.get(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else {
            at = additional(at)?;
            out.push_str(&format!("[{name}]"));
        }
    }
    Some(out)
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((out, text.get(at + 1..)?)),
            '\\' => out.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                c @ ('\'' | '\\') => c,
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    None
}
