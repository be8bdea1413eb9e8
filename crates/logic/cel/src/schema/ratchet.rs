//! Which part of an old object corresponds to a part of the new one, and whether it is the same
//! (`k8s.io/apiserver/pkg/cel/common/equality.go`).

use serde_json::Value as Json;

use super::{additional, items, map_keys, properties};

/// A part of the new object beside the part of the old one that corresponds to it.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// The new part.
    pub new: &'a Json,
    /// The old part.
    pub old: &'a Json,
    /// What both follow.
    pub schema: &'a Json,
}

/// The index of the element of `list` with the same keys as `element`.
pub(crate) fn find_element(list: &[Json], element: &Json, keys: &[&str]) -> Option<usize> {
    let scalar = |v: &Json| !matches!(v, Json::Null | Json::Array(_) | Json::Object(_));
    let wanted: Option<Vec<&Json>> = keys.iter().map(|k| element.get(k).filter(|v| scalar(v))).collect();
    let wanted = wanted?;
    list.iter().position(|other| keys.iter().zip(&wanted).all(|(k, v)| other.get(k) == Some(*v)))
}

impl<'a> Pair<'a> {
    /// The parts in a field.
    pub fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = properties(self.schema).and_then(|p| p.get(name)).or_else(|| additional(self.schema))?;
        Some(Self { new, old, schema })
    }

    /// The parts at an index of the new list; only lists of type map have such.
    pub fn index(self, at: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(at)?;
        let keys = map_keys(self.schema)?;
        let old = self.old.as_array()?;
        let old = old.get(find_element(old, new, &keys)?)?;
        Some(Self { new, old, schema: items(self.schema)? })
    }

    /// Whether nothing changed, as far as that is known.
    pub fn same(self) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) => {
                if map_keys(self.schema).is_none() {
                    return same_json(self.new, self.old);
                }
                new.len() == old.len() && (0..new.len()).all(|at| self.index(at).is_some_and(Self::same))
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
