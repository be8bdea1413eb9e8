//! Two answers side by side, and the list of differences that are known.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use regex::{Captures, Regex};
use serde::Deserialize;
use serde_json::Value;

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// JSON pointer into the case's answers: `/STEP/body/…`.
    pub pointer: String,
    /// What the reference says; `None` if it says nothing.
    pub expected: Option<Value>,
    /// What was found.
    pub found: Option<Value>,
}

/// One known difference: narrow, and with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// `area/file/case`; `*` stands for any text.
    pub case: String,
    /// Pointer at or above the difference; `*` stands for one segment.
    pub pointer: String,
    /// Why it is right that they differ.
    pub reason: String,
    /// Whether it was met in this run.
    #[serde(skip)]
    pub met: Cell<bool>,
}

/// Reads the list.
pub fn read_known(path: &Path) -> Result<Vec<Known>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let known: Option<Vec<Known>> = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(known.unwrap_or_default())
}

impl Known {
    /// Whether it is about this case.
    pub fn about(&self, case: &str) -> bool {
        matches(&self.case, case)
    }

    /// Whether it explains this difference.
    pub fn explains(&self, case: &str, difference: &Difference) -> bool {
        let mut wanted = self.pointer.split('/');
        let mut found = difference.pointer.split('/');
        let under = wanted.all(|w| found.next().is_some_and(|f| w == "*" || w == f));
        let explained = under && self.about(case);
        if explained {
            self.met.set(true);
        }
        explained
    }
}

/// Whether the text fits the pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    match last {
        None => rest.is_empty(),
        Some(last) => text.ends_with(last),
    }
}

/// Every place where they differ, the order of an object's keys left aside, and that of managers as far as it is by time.
pub fn differences(expected: &Value, found: &Value) -> Vec<Difference> {
    let mut out = Vec::new();
    walk(String::new(), &Numbers::of(expected).renumbered(expected), &Numbers::of(found).renumbered(found), &mut out);
    out
}

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<(uid|version)-\d+>").unwrap());

/// New numbers for placeholders: those that a mask gives depend on the order of keys, in which two servers are free.
#[derive(Default)]
struct Numbers {
    new: BTreeMap<String, String>,
    last: BTreeMap<String, usize>,
}

impl Numbers {
    fn of(value: &Value) -> Self {
        let mut numbers = Self::default();
        numbers.collect(value);
        numbers
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.see(text),
            Value::Array(items) => items.iter().for_each(|v| self.collect(v)),
            Value::Object(map) => {
                let mut members: Vec<(&String, &Value)> = map.iter().collect();
                members.sort_by_cached_key(|(key, _)| PLACEHOLDER.replace_all(key, "<$1>").into_owned());
                for (key, value) in members {
                    self.see(key);
                    self.collect(value);
                }
            }
            _ => {}
        }
    }

    fn see(&mut self, text: &str) {
        for found in PLACEHOLDER.captures_iter(text) {
            if !self.new.contains_key(&found[0]) {
                let last = self.last.entry(found[1].to_owned()).or_default();
                *last += 1;
                self.new.insert(found[0].to_owned(), format!("<{}-{last}>", &found[1]));
            }
        }
    }

    fn text(&self, text: &str) -> String {
        let new = |found: &Captures<'_>| self.new.get(&found[0]).cloned().unwrap_or_default();
        PLACEHOLDER.replace_all(text, new).into_owned()
    }

    fn renumbered(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|v| self.renumbered(v)).collect(),
            Value::Object(map) => {
                let mut map: serde_json::Map<String, Value> =
                    map.iter().map(|(k, v)| (self.text(k), self.renumbered(v))).collect();
                if let Some(Value::Array(entries)) = map.get_mut("managedFields") {
                    entries.sort_by_cached_key(timeless);
                }
                Value::Object(map)
            }
            other => other.clone(),
        }
    }
}

/// What the order of managers is by, but for the times, which are masked: whether two writes are of one second depends on
/// the machine.
fn timeless(entry: &Value) -> Vec<String> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    ["operation", "manager", "apiVersion", "subresource"].map(text).to_vec()
}

/// Why a step could not be done, or what it waited for never came.
pub fn failure(step: &Value) -> Option<&Value> {
    step.get("failed").or_else(|| step.get("late"))
}

/// Steps that could not be done are differences, even if the recording says the same.
pub fn failures(found: &Value) -> Vec<Difference> {
    let steps = found.as_array().into_iter().flatten().enumerate();
    let failed = steps.filter_map(|(i, step)| failure(step).map(|why| (i, why.clone())));
    failed.map(|(i, why)| Difference { pointer: format!("/{i}/failed"), expected: None, found: Some(why) }).collect()
}

fn walk(pointer: String, expected: &Value, found: &Value, out: &mut Vec<Difference>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|k| !a.contains_key(*k));
            for key in a.keys().chain(added) {
                let inner = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                pair(inner, a.get(key), b.get(key), out);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for i in 0..a.len().max(b.len()) {
                pair(format!("{pointer}/{i}"), a.get(i), b.get(i), out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(Difference { pointer, expected: Some(a.clone()), found: Some(b.clone()) }),
    }
}

fn pair(pointer: String, a: Option<&Value>, b: Option<&Value>, out: &mut Vec<Difference>) {
    match (a, b) {
        (Some(a), Some(b)) => walk(pointer, a, b, out),
        (a, b) => out.push(Difference { pointer, expected: a.cloned(), found: b.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_by_their_place() {
        let found = differences(&json!({"a": [1, 2], "b": {"c/d": 1}}), &json!({"b": {"c/d": 2}, "a": [1], "e": 0}));
        let places: Vec<_> = found.iter().map(|d| d.pointer.as_str()).collect();
        assert_eq!(places, ["/a/1", "/b/c~1d", "/e"]);
    }

    #[test]
    fn numbers_of_placeholders_do_not_depend_on_the_order_of_keys() {
        let a = json!({"uid": "<uid-1>", "owner": {"uid": "<uid-2>"}, "f": {"k:<uid-2>": 1}, "rv": "<version-1>"});
        let b = json!({"owner": {"uid": "<uid-1>"}, "f": {"k:<uid-1>": 1}, "uid": "<uid-2>", "rv": "<version-2>"});
        assert_eq!(differences(&a, &b), []);
        let c = json!({"owner": {"uid": "<uid-1>"}, "f": {"k:<uid-2>": 1}, "uid": "<uid-2>", "rv": "<version-2>"});
        assert!(!differences(&a, &c).is_empty());
    }

    #[test]
    fn known_differences_are_narrow() {
        let known = |case: &str, pointer: &str| Known {
            case: case.into(),
            pointer: pointer.into(),
            reason: String::new(),
            met: Cell::new(false),
        };
        let difference = Difference { pointer: "/0/body/x/y".into(), expected: None, found: None };
        assert!(known("a/f/c", "/0/body/x").explains("a/f/c", &difference));
        assert!(known("a/*", "/*/body").explains("a/f/c", &difference));
        assert!(!known("a/f/c", "/0/body/xy").explains("a/f/c", &difference));
        assert!(!known("a/f/c", "/0/body/x/y/z").explains("a/f/c", &difference));
        assert!(!known("a/f", "/0/body/x").explains("a/f/c", &difference));
    }
}
