//! Label and field selectors.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::label_text;
use crate::object::{self, Object};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Pair, Pick};

/// Bytes of a selector's text.
const MAX_TEXT: usize = 64 << 10;
/// Requirements of a selector.
const MAX_REQUIREMENTS: usize = 1024;

/// How a label's value is compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// One of the values.
    In,
    /// None of the values, or absent.
    NotIn,
    /// There, whatever it is.
    Exists,
    /// Not there.
    Absent,
    /// A greater number.
    Greater(i64),
    /// A smaller number.
    Less(i64),
}

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// The comparison.
    pub op: Op,
    /// Values to compare with.
    pub values: Vec<String>,
}

/// Label and field selector of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    labels: Vec<Requirement>,
    /// `(path, value, equal)`.
    fields: Vec<(String, String, bool)>,
}

/// An object's labels, as they stand in its bytes.
#[derive(Deserialize, Default)]
struct Labels<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, Option<Cow<'a, str>>>);

impl Selector {
    /// Reads both selectors of a request.
    pub fn parse(labels: &str, fields: &str, resource: &Resource) -> ApiResult<Self> {
        if labels.len() + fields.len() > MAX_TEXT {
            return Err(ApiError::bad_request("the selector is too long"));
        }
        let labels = label_text::parse(labels).map_err(ApiError::bad_request)?;
        let fields = parse_fields(fields).map_err(ApiError::bad_request)?;
        match fields.iter().find_map(|(path, ..)| refusal(resource, path)) {
            Some(text) => Err(ApiError::bad_request(text)),
            None => Ok(Self { labels, fields }),
        }
    }

    /// The same for one object alone; fields may be asked for only as far as they name it too.
    pub fn of_one(mut self, name: &str) -> ApiResult<Self> {
        let one = |(path, _, equal): &&(String, String, bool)| path == "metadata.name" && *equal;
        match self.fields.iter().find(one) {
            Some((_, asked, _)) if asked == name => {}
            None if self.fields.is_empty() => self.fields.push(("metadata.name".to_owned(), name.to_owned(), true)),
            _ => return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name")),
        }
        Ok(self)
    }

    /// Whether a text is a label selector.
    pub fn labels_are_readable(text: &str) -> bool {
        text.len() <= MAX_TEXT && label_text::parse(text).is_ok()
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
            let holds = object::labels(tail).is_some_and(|labels| all_hold(&self.labels, labels));
            if !holds {
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

    /// What the selector says of labels alone, for the store to look at; nothing if it says nothing of them.
    pub fn pick(&self) -> Option<Pick> {
        let wanted = self.labels.clone();
        let one = wanted.iter().find_map(|requirement| match (&requirement.op, requirement.values.as_slice()) {
            (Op::In, [value]) => Some(Pair { key: requirement.key.clone(), value: value.clone() }),
            _ => None,
        });
        (!wanted.is_empty()).then(|| Pick::new(move |labels| all_hold(&wanted, labels), one))
    }

    /// The same, if the selector is about nothing but labels.
    pub fn pick_alone(&self) -> Option<Pick> {
        if self.fields.is_empty() { self.pick() } else { None }
    }

    fn fields_match(&self, resource: &Resource, object: &Object) -> bool {
        let root = Value::Object(object.clone());
        self.fields.iter().filter(|(path, ..)| !path.starts_with("metadata.")).all(|(path, wanted, equal)| {
            let found = resource.selectable.iter().find(|(label, _)| label == path).map(|(_, p)| p.find(&root));
            let text = match found.unwrap_or_default().first() {
                Some(Value::String(text)) if !text.is_empty() => text.clone(),
                None | Some(Value::String(_)) | Some(Value::Null) => resource.strategy.if_absent(path, object),
                Some(other) => other.to_string(),
            };
            (text == *wanted) == *equal
        })
    }
}

/// Whether labels, a JSON object, are as all requirements want them.
fn all_hold(wanted: &[Requirement], labels: &[u8]) -> bool {
    let Ok(labels) = serde_json::from_slice::<Option<Labels>>(labels) else { return false };
    let Labels(labels) = labels.unwrap_or_default();
    let get = |key: &str| labels.get(key).map(|v| v.as_deref().unwrap_or_default());
    wanted.iter().all(|r| r.holds(get(&r.key)))
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

/// Why objects cannot be selected by a field, if they cannot. Upstream, kinds that have labels of their own say it in
/// another way than the rest, and without a namespace they have none to select by.
fn refusal(resource: &Resource, path: &str) -> Option<String> {
    let converts = resource.strategy.converts_field_labels();
    let known = path == "metadata.name"
        || path == "metadata.namespace" && (resource.namespaced || !converts)
        || resource.selectable.iter().any(|(label, _)| label == path);
    (!known).then(|| match converts {
        true => format!("field label not supported: {path}"),
        false => {
            let only = "only \"metadata.name\", \"metadata.namespace\"";
            format!("{} is not a known field selector: {only}", gotext::quote(path))
        }
    })
}

/// Splits at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A value without its escapes.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The value that a field selector asks of a field, if it is one and asks for exactly one value.
pub fn exact_field(text: &str, path: &str) -> Option<String> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let fields = parse_fields(text).ok()?;
    fields.into_iter().find(|(field, _, equal)| field == path && *equal).map(|(_, value, _)| value)
}

fn parse_fields(text: &str) -> Result<Vec<(String, String, bool)>, String> {
    let mut parts = terms(text);
    if parts.len() > MAX_REQUIREMENTS {
        return Err(format!("more than {MAX_REQUIREMENTS} requirements"));
    }
    parts.sort_unstable();
    let of = |part: &str| {
        let at = part.find(['=', '!']).filter(|at| part[*at..].starts_with(['=']) || part[*at..].starts_with("!="));
        // The first operator counts; a lone `!` is part of the path.
        let at = at.or_else(|| part.find('=').map(|at| if part[..at].ends_with('!') { at - 1 } else { at }));
        let at = at.ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
        let (path, rest) = part.split_at(at);
        let (value, equal) = match (rest.strip_prefix("!="), rest.strip_prefix("==")) {
            (Some(value), _) => (value, false),
            (None, Some(value)) => (value, true),
            (None, None) => (&rest[1..], true),
        };
        Ok((path.to_owned(), unescape(value)?, equal))
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::strategies;
    use proptest::prelude::*;
    use serde_json::json;

    fn matches(labels: &str, fields: &str, object: Value) -> bool {
        let catalog = Registry::new(strategies::kinds()).catalog();
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
        let catalog = Registry::new(strategies::kinds()).catalog();
        let resource = catalog.find("", "v1", "secrets").unwrap();
        assert_eq!(Selector::parse("", "spec.x=1", resource).unwrap_err().code, 400);
        for (text, message) in [
            ("nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
            ("type=a=b", "invalid field selector: unescaped character in value: 61"),
            ("type=a\\x", "invalid field selector: invalid escape sequence: \\x"),
        ] {
            assert_eq!(Selector::parse("", text, resource).unwrap_err().message, message);
        }
        assert!(Selector::parse("", "type=a\\,b\\=c", resource).is_ok());
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
        fn labels_are_found_wherever_they_stand(
            found in prop::option::of(prop::collection::btree_map(".{0,5}", ".{0,5}", 0..4)),
            generation in prop::option::of(0..9_u8),
            annotation in prop::option::of(".{0,9}"),
        ) {
            let mut meta = json!({"name": "n", "managedFields": [{"labels": 1}], "finalizers": ["labels"]});
            if let Some(generation) = generation {
                meta["generation"] = json!(generation);
            }
            if let Some(annotation) = annotation {
                meta["annotations"] = json!({"labels": annotation});
            }
            if let Some(found) = &found {
                meta["labels"] = json!(found);
            }
            let Value::Object(whole) = json!({"metadata": meta, "labels": {"not": "these"}}) else { unreachable!() };
            let tail = object::to_tail(whole);
            for stored in [tail.clone(), object::mark("v1", &tail)] {
                let read: Value = serde_json::from_slice(object::labels(&stored).unwrap()).unwrap();
                prop_assert_eq!(read, json!(found.clone().unwrap_or_default()));
            }
            for cut in 0..tail.len() {
                let _ = object::labels(&tail[..cut]);
            }
        }

        #[test]
        fn no_text_panics(text in "[a-c=!,()<> in]{0,40}") {
            let _ = parse_fields(&text);
        }
    }
}
