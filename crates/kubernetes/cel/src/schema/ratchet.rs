//! Which part of an old object corresponds to a part of the new one, and whether it is the same
//! (`k8s.io/apiserver/pkg/cel/common/equality.go`).

use std::collections::HashMap;

use serde_json::Value as Json;

use super::{additional, items, map_keys, properties};

/// A part of the new object beside the part of the old one that corresponds to it.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The new part.
    pub new: &'a Json,
    /// The old part.
    pub old: &'a Json,
    /// The schema of both.
    pub schema: &'a Json,
}

/// The elements of a list by the values of their keys: looked up, and not searched for, because lists may be long.
pub(crate) struct Keyed<'k> {
    keys: Vec<&'k str>,
    places: HashMap<String, usize>,
}

impl<'k> Keyed<'k> {
    /// Of a list; of elements with the same keys the first counts.
    pub fn new(list: &[Json], keys: Vec<&'k str>) -> Self {
        let mut places = HashMap::with_capacity(list.len());
        for (at, element) in list.iter().enumerate() {
            if let Some(id) = id(element, &keys) {
                places.entry(id).or_insert(at);
            }
        }
        Self { keys, places }
    }

    /// The index of the element that has the same keys as `element`.
    pub fn place(&self, element: &Json) -> Option<usize> {
        self.places.get(&id(element, &self.keys)?).copied()
    }
}

/// The keys of an element as one text; none if one of them is absent or no scalar. Texts in JSON have no line breaks.
fn id(element: &Json, keys: &[&str]) -> Option<String> {
    let mut out = String::new();
    for key in keys {
        let value = element.get(key).filter(|v| !matches!(v, Json::Null | Json::Array(_) | Json::Object(_)))?;
        out.push_str(&value.to_string());
        out.push('\n');
    }
    Some(out)
}

/// Two lists of type map whose elements are matched by their keys.
pub struct Elements<'a> {
    new: &'a [Json],
    old: &'a [Json],
    keyed: Keyed<'a>,
    schema: &'a Json,
}

impl<'a> Elements<'a> {
    /// The parts at an index of the new list.
    pub fn at(&self, at: usize) -> Option<Pair<'a>> {
        let new = self.new.get(at)?;
        Some(Pair { new, old: self.old.get(self.keyed.place(new)?)?, schema: self.schema })
    }
}

impl<'a> Pair<'a> {
    /// The parts in a field.
    pub fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = properties(self.schema).and_then(|p| p.get(name)).or_else(|| additional(self.schema))?;
        Some(Self { new, old, schema })
    }

    /// The elements of both; only lists of type map have such that correspond.
    pub fn elements(self) -> Option<Elements<'a>> {
        let (new, old) = (self.new.as_array()?, self.old.as_array()?);
        let keyed = Keyed::new(old, map_keys(self.schema)?);
        Some(Elements { new, old, keyed, schema: items(self.schema)? })
    }

    /// Whether both are equal, as far as that is known.
    pub fn same(self) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) => {
                if map_keys(self.schema).is_none() {
                    return same_json(self.new, self.old);
                }
                let elements = |e: Elements<'_>| (0..new.len()).all(|at| e.at(at).is_some_and(Pair::same));
                new.len() == old.len() && (new.is_empty() || self.elements().is_some_and(elements))
            }
            (Json::Object(new), Json::Object(old)) => {
                new.len() == old.len() && new.keys().all(|k| self.key(k).is_some_and(Self::same))
            }
            (new, old) => new == old && !new.is_null() || (new.is_null() && old.is_null()),
        }
    }
}

/// Equality regardless of the order of keys.
fn same_json(a: &Json, b: &Json) -> bool {
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_correspond_by_their_keys() {
        let list =
            [json!({"a": "x", "b": 1}), json!({"a": "x", "b": "1"}), json!({"a": "x", "b": 1, "c": 2}), json!({})];
        let keyed = Keyed::new(&list, vec!["a", "b"]);
        assert_eq!(keyed.place(&json!({"a": "x", "b": 1})), Some(0));
        assert_eq!(keyed.place(&json!({"a": "x", "b": "1", "d": 3})), Some(1));
        for none in [json!({"a": "x"}), json!({"a": "x", "b": null}), json!({"a": [], "b": 1}), json!({}), json!(1)] {
            assert_eq!(keyed.place(&none), None, "{none}");
        }
        let schema = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}, "v": {"type": "integer"}}}});
        let same = |new: Json, old: Json| Pair { new: &new, old: &old, schema: &schema }.same();
        assert!(same(json!([{"a": "1", "v": 1}, {"a": "2"}]), json!([{"a": "2"}, {"a": "1", "v": 1}])));
        assert!(!same(json!([{"a": "1", "v": 1}]), json!([{"a": "1", "v": 2}])));
        assert!(same(json!([]), json!([])) && !same(json!([]), json!([{"a": "1"}])));
    }
}
