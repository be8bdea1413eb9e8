//! Patterns, compiled once and kept while there is room.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

use crate::fault::Fault;
use crate::value::{Outcome, Value};

/// Compiled patterns that are kept.
const KEPT: usize = 64;
/// Most bytes of a compiled pattern.
const MAX_COMPILED: usize = 1 << 20;

static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// Compiles a pattern.
///
/// # Errors
/// Its syntax is wrong, or it is too large.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut kept = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = kept.get(pattern) {
        return Ok(found.clone());
    }
    // RE2's classes \d, \w and \s are ASCII.
    let ascii = pattern.replace("\\d", "[0-9]").replace("\\D", "[^0-9]");
    let source =
        if ascii.contains("[[0-9]") || pattern.contains("\\\\") || in_class(pattern) { pattern } else { &ascii };
    let built = RegexBuilder::new(source).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
    let regex = built.map_err(|e| format!("error parsing regexp: {e}"))?;
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

/// Whether a digit class is inside brackets, where it cannot be replaced.
fn in_class(pattern: &str) -> bool {
    let mut depth = 0;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '[' => depth += 1,
            ']' => depth = 0,
            '\\' => {
                let digits = matches!(chars.next(), Some('d' | 'D'));
                if digits && depth > 0 {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let (Some(Value::String(text)), Some(Value::String(pattern))) = (args.first(), args.get(1)) else { return None };
    if !matches!(name, "matches" | "find" | "findAll") {
        return None;
    }
    let regex = match compile(pattern) {
        Ok(regex) => regex,
        Err(why) if name == "matches" => return Some(Err(Fault::new(why))),
        Err(why) => return Some(Err(Fault::new(format!("Illegal regex: {why}")))),
    };
    Some(match (name, args.get(2)) {
        ("matches", None) => Ok(Value::Bool(regex.is_match(text))),
        ("find", None) => Ok(Value::string(regex.find(text).map_or("", |m| m.as_str()))),
        ("findAll", None) => Ok(Value::strings(regex.find_iter(text).map(|m| m.as_str()))),
        ("findAll", Some(Value::Int(n))) => {
            let most = usize::try_from(*n).unwrap_or(usize::MAX);
            Ok(Value::strings(regex.find_iter(text).take(most).map(|m| m.as_str())))
        }
        _ => return None,
    })
}
