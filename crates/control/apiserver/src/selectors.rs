//! Label and field selectors.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::builtin::strategy;
use crate::object::Object;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};

/// Bytes of a selector's text.
const MAX_TEXT: usize = 64 << 10;
/// Requirements of a selector.
const MAX_REQUIREMENTS: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
enum Op {
    In,
    NotIn,
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    op: Op,
    values: Vec<String>,
}

/// Label and field selector of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    labels: Vec<Requirement>,
    /// `(path, value, equal)`.
    fields: Vec<(String, String, bool)>,
}

/// Only what selectors need of an object: parsing this is much cheaper than parsing all.
#[derive(Deserialize)]
struct LabelsOnly<'a> {
    #[serde(borrow, default)]
    metadata: LabelsMeta<'a>,
}

#[derive(Deserialize, Default)]
struct LabelsMeta<'a> {
    #[serde(borrow, default)]
    labels: Option<std::collections::BTreeMap<Cow<'a, str>, Option<Cow<'a, str>>>>,
}

impl Selector {
    /// Reads both selectors of a request.
    pub fn parse(labels: &str, fields: &str, resource: &Resource) -> ApiResult<Self> {
        if labels.len() + fields.len() > MAX_TEXT {
            return Err(ApiError::bad_request("the selector is too long"));
        }
        let labels =
            parse_labels(labels).map_err(|e| ApiError::bad_request(format!("unable to parse requirement: {e}")))?;
        let fields = parse_fields(fields).map_err(ApiError::bad_request)?;
        for (path, ..) in &fields {
            let known = path == "metadata.name"
                || path == "metadata.namespace"
                || resource.selectable.iter().any(|(label, _)| label == path);
            if !known {
                let text = format!("field label not supported: {path}");
                return Err(ApiError::bad_request(text));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether a text is a label selector.
    pub fn labels_are_readable(text: &str) -> bool {
        text.len() <= MAX_TEXT && parse_labels(text).is_ok()
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a stored object matches.
    pub fn matches(&self, resource: &Resource, ns: &str, name: &str, rev: u64, tail: &[u8]) -> bool {
        for (path, value, equal) in &self.fields {
            let known = match path.as_str() {
                "metadata.name" => name,
                "metadata.namespace" => ns,
                _ => continue,
            };
            if (known == value) != *equal {
                return false;
            }
        }
        if !self.labels.is_empty() {
            let whole = crate::object::join("", "", rev, tail);
            let labels = match serde_json::from_slice::<LabelsOnly<'_>>(&whole) {
                Ok(parsed) => parsed.metadata.labels.unwrap_or_default(),
                Err(_) => return false,
            };
            let get = |key: &str| labels.get(key).map(|v| v.as_deref().unwrap_or_default().to_owned());
            if !self.labels.iter().all(|r| r.holds(get(&r.key).as_deref())) {
                return false;
            }
        }
        let extra = self.fields.iter().any(|(path, ..)| !path.starts_with("metadata."));
        if !extra {
            return true;
        }
        let Ok(object) = resource.load(rev, tail) else { return false };
        self.fields_match(resource, &object)
    }

    fn fields_match(&self, resource: &Resource, object: &Object) -> bool {
        let root = Value::Object(object.clone());
        self.fields.iter().filter(|(path, ..)| !path.starts_with("metadata.")).all(|(path, wanted, equal)| {
            let found = resource.selectable.iter().find(|(label, _)| label == path).map(|(_, p)| p.find(&root));
            let text = match found.unwrap_or_default().first() {
                Some(Value::String(text)) if !text.is_empty() => text.clone(),
                None | Some(Value::String(_)) | Some(Value::Null) => strategy::selected_if_absent(path, object),
                Some(other) => other.to_string(),
            };
            (text == *wanted) == *equal
        })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.op {
            Op::In => value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            Op::NotIn => value.is_none_or(|v| !self.values.iter().any(|w| w == v)),
            Op::Exists => value.is_some(),
            Op::Absent => value.is_none(),
            Op::Greater(least) => number().is_some_and(|n| n > *least),
            Op::Less(most) => number().is_some_and(|n| n < *most),
        }
    }
}

/// Splits at commas outside parentheses.
fn split_top(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parts = split_top(text);
    if parts.len() > MAX_REQUIREMENTS {
        return Err("too many requirements".to_owned());
    }
    parts.into_iter().map(|p| parse_requirement(p.trim())).collect()
}

fn parse_requirement(text: &str) -> Result<Requirement, String> {
    let make = |key: &str, op: Op, values: Vec<String>| {
        let key = key.trim();
        if !crate::verbs::names::is_qualified_name(key) {
            return Err(format!(
                "<nil>: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            ));
        }
        for value in &values {
            if !crate::verbs::names::is_label_value(value) {
                return Err(format!(
                    "values[0][{key}]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
                ));
            }
        }
        Ok(Requirement { key: key.to_owned(), op, values })
    };
    if let Some(key) = text.strip_prefix('!') {
        return make(key, Op::Absent, Vec::new());
    }
    for (sign, op) in [("!=", Op::NotIn), ("==", Op::In), ("=", Op::In)] {
        if let Some((key, value)) = text.split_once(sign)
            && !key.contains(['(', '<', '>'])
        {
            return make(key, op, vec![value.trim().to_owned()]);
        }
    }
    for (sign, greater) in [('>', true), ('<', false)] {
        if let Some((key, value)) = text.split_once(sign) {
            let number = value.trim().parse().map_err(|_| format!("{:?} is not a whole number", value.trim()))?;
            return make(key, if greater { Op::Greater(number) } else { Op::Less(number) }, Vec::new());
        }
    }
    if let Some((head, list)) = text.split_once('(') {
        let list = list.strip_suffix(')').ok_or("')' is missing")?;
        let values = list.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let key = words.next().unwrap_or_default();
        return match words.next() {
            Some("in") => make(key, Op::In, values),
            Some("notin") => make(key, Op::NotIn, values),
            other => Err(format!("found {other:?}, expected: in, notin")),
        };
    }
    make(text, Op::Exists, Vec::new())
}

fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .take(MAX_REQUIREMENTS)
        .filter(|p| !p.is_empty())
        .map(|part| {
            let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
                (path, value, false)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, value, true)
            } else {
                return Err(format!("invalid field selector: {part:?}; can't understand {part:?}"));
            };
            Ok((path.trim().to_owned(), value.replace('\\', ""), equal))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use proptest::prelude::*;
    use serde_json::json;

    fn matches(labels: &str, fields: &str, object: Value) -> bool {
        let catalog = Registry::new().catalog();
        let resource = catalog.find("", "v1", "secrets").unwrap();
        let Value::Object(object) = object else { panic!() };
        let (ns, name) = ("n".to_owned(), crate::object::name(&object).to_owned());
        let tail = crate::object::to_tail(object);
        Selector::parse(labels, fields, resource).unwrap().matches(resource, &ns, &name, 1, &tail)
    }

    #[test]
    fn labels_and_fields() {
        let secret = json!({"metadata": {"name": "s", "labels": {"a": "1", "b/c": "x"}}, "type": "Opaque"});
        for yes in ["a=1", "a==1", "a", "!z", "a in (1,2)", "a notin (2)", "z!=1", "b/c=x,a", "a>0", "a<2", ""] {
            assert!(matches(yes, "", secret.clone()), "{yes}");
        }
        for no in ["a=2", "z", "!a", "a in (2,3)", "a notin (1)", "a!=1", "a>1"] {
            assert!(!matches(no, "", secret.clone()), "{no}");
        }
        assert!(matches("", "metadata.name=s,type=Opaque", secret.clone()));
        assert!(!matches("", "type!=Opaque", secret.clone()));
        assert!(!matches("", "metadata.namespace=other", secret));
    }

    #[test]
    fn unknown_fields_and_bad_syntax_are_refused() {
        let catalog = Registry::new().catalog();
        let resource = catalog.find("", "v1", "secrets").unwrap();
        assert_eq!(Selector::parse("", "spec.x=1", resource).unwrap_err().code, 400);
        assert_eq!(Selector::parse("a in (1", "", resource).unwrap_err().code, 400);
        assert_eq!(Selector::parse("-=1", "", resource).unwrap_err().code, 400);
    }

    proptest! {
        #[test]
        fn in_is_the_or_of_equals(value in "[a-c]", other in "[a-c]", third in "[a-c]") {
            let object = json!({"metadata": {"name": "s", "labels": {"k": value}}});
            let either = matches(&format!("k={other}"), "", object.clone()) || matches(&format!("k={third}"), "", object.clone());
            prop_assert_eq!(matches(&format!("k in ({other},{third})"), "", object.clone()), either);
            prop_assert_eq!(!matches(&format!("k notin ({other},{third})"), "", object), either);
        }

        #[test]
        fn no_text_panics(text in "[a-c=!,()<> in]{0,40}") {
            let _ = parse_labels(&text);
            let _ = parse_fields(&text);
        }
    }
}
