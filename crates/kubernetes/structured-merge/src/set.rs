//! Sets of fields, and their `FieldsV1` form (structured-merge-diff v6, `fieldpath/set.go` and `serialize.go`).

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::element::Element;
use crate::fault::Unreadable;

/// A set of fields: a tree of nodes, each a member or only an ancestor of members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Children in order; none is without members.
    pub nodes: Vec<Node>,
}

/// A field in a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Which child.
    pub at: Element,
    /// Whether the field itself belongs to the set.
    pub member: bool,
    /// Members below it.
    pub below: Set,
}

/// A path to a field, as a linked list from the last step to the first: walks allocate nothing for it.
#[derive(Clone, Copy)]
pub(crate) struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

/// One step of a [`Path`].
#[derive(Clone, Copy)]
pub(crate) enum Step<'p> {
    /// The whole object.
    Root,
    /// A member of a map.
    Field(&'p str),
    /// An item of a list.
    Item(&'p Element),
}

impl<'p> Path<'p> {
    /// The whole object.
    pub(crate) const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// A child.
    pub(crate) fn join(&'p self, step: Step<'p>) -> Path<'p> {
        Path { parent: Some(self), step }
    }

    fn elements(&self) -> Vec<Element> {
        let mut all = Vec::new();
        let mut at = Some(self);
        while let Some(path) = at {
            match path.step {
                Step::Root => {}
                Step::Field(name) => all.push(Element::Field(name.to_owned())),
                Step::Item(element) => all.push(element.clone()),
            }
            at = path.parent;
        }
        all.reverse();
        all
    }
}

impl Set {
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A set from nodes in any order; nodes of the same field are joined, those without members left out.
    pub(crate) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|n| n.member || !n.below.is_empty());
        if !nodes.is_sorted_by(|a, b| a.at < b.at) {
            nodes.sort_by(|a, b| a.at.cmp(&b.at));
            nodes.dedup_by(|next, first| {
                if next.at != first.at {
                    return false;
                }
                first.member |= next.member;
                first.below = first.below.union(&next.below);
                true
            });
        }
        Self { nodes }
    }

    /// The node of a child.
    pub fn node(&self, at: &Element) -> Option<&Node> {
        self.nodes.binary_search_by(|n| n.at.cmp(at)).ok().map(|i| &self.nodes[i])
    }

    /// The node of a member of a map.
    pub fn field(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|n| match &n.at {
            Element::Field(other) => other.as_str().cmp(name),
            _ => Ordering::Greater,
        });
        found.ok().map(|i| &self.nodes[i])
    }

    /// Whether a field belongs to the set. The root object never does.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|n| n.member),
            [first, rest @ ..] => self.node(first).is_some_and(|n| n.below.has(rest)),
        }
    }

    /// Adds a field. The whole object cannot be added.
    pub(crate) fn insert(&mut self, path: &Path<'_>) {
        self.add(path.elements());
    }

    /// Adds a field by its elements.
    pub fn add(&mut self, path: Vec<Element>) {
        let mut set = self;
        let last = path.len().saturating_sub(1);
        for (depth, element) in path.into_iter().enumerate() {
            let at = match set.nodes.binary_search_by(|n| n.at.cmp(&element)) {
                Ok(at) => at,
                Err(at) => {
                    set.nodes.insert(at, Node { at: element, member: false, below: Self::default() });
                    at
                }
            };
            let node = &mut set.nodes[at];
            node.member |= depth == last;
            set = &mut node.below;
        }
    }

    fn zip(&self, other: &Self, mut join: impl FnMut(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut nodes = Vec::new();
        loop {
            let order = match (self.nodes.get(i), other.nodes.get(j)) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.at.cmp(&b.at),
            };
            let a = if order.is_le() { self.nodes.get(i) } else { None };
            let b = if order.is_ge() { other.nodes.get(j) } else { None };
            i += usize::from(order.is_le());
            j += usize::from(order.is_ge());
            nodes.extend(join(a, b).filter(|n| n.member || !n.below.is_empty()));
        }
        Self { nodes }
    }

    /// The members of either.
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => {
                Some(Node { at: a.at.clone(), member: a.member || b.member, below: a.below.union(&b.below) })
            }
            (one, other) => one.or(other).cloned(),
        })
    }

    /// The members of both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| {
            let (a, b) = (a?, b?);
            Some(Node { at: a.at.clone(), member: a.member && b.member, below: a.below.intersection(&b.below) })
        })
    }

    /// The members of this set that are not in the other. Removing a field does not remove those below it.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| {
            let a = a?;
            let Some(b) = b else { return Some(a.clone()) };
            Some(Node { at: a.at.clone(), member: a.member && !b.member, below: a.below.difference(&b.below) })
        })
    }

    /// The members of this set that are neither in the other nor below one of its members.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| {
            let a = a?;
            match b {
                None => Some(a.clone()),
                Some(b) if b.member => None,
                Some(b) => {
                    let below = a.below.recursive_difference(&b.below);
                    Some(Node { at: a.at.clone(), member: a.member, below })
                }
            }
        })
    }

    /// The members that have none below.
    #[cfg(test)]
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|n| Node {
            at: n.at.clone(),
            member: n.member && n.below.is_empty(),
            below: n.below.leaves(),
        });
        Self { nodes: nodes.collect() }
    }

    /// All members, as texts for people: those of a level before those below it.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect("", &mut out);
        out
    }

    fn collect(&self, prefix: &str, out: &mut Vec<String>) {
        for node in self.nodes.iter().filter(|n| n.member) {
            out.push(format!("{prefix}{}", node.at));
        }
        for node in self.nodes.iter().filter(|n| !n.below.is_empty()) {
            node.below.collect(&format!("{prefix}{}", node.at), out);
        }
    }

    /// All members, as elements, in the order of [`Set::paths`].
    pub fn members(&self) -> Vec<Vec<Element>> {
        let mut out = Vec::new();
        self.gather(&mut Vec::new(), &mut out);
        out
    }

    fn gather(&self, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
        for node in self.nodes.iter().filter(|n| n.member) {
            let mut path = prefix.clone();
            path.push(node.at.clone());
            out.push(path);
        }
        for node in self.nodes.iter().filter(|n| !n.below.is_empty()) {
            prefix.push(node.at.clone());
            node.below.gather(prefix, out);
            prefix.pop();
        }
    }

    /// Reads `FieldsV1`.
    pub fn parse(value: &Value) -> Result<Self, Unreadable> {
        Ok(parse(value)?.0.unwrap_or_default())
    }

    /// Writes `FieldsV1`, in the order of the set.
    pub fn to_fields(&self) -> Value {
        self.emit(false)
    }

    fn emit(&self, include_self: bool) -> Value {
        let mut out = Map::new();
        if include_self && !self.is_empty() {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            out.insert(node.at.wire(), node.below.emit(node.member));
        }
        Value::Object(out)
    }
}

/// The members below, and whether the field itself is one.
fn parse(value: &Value) -> Result<(Option<Set>, bool), Unreadable> {
    let map = match value {
        Value::Null => return Ok((None, true)),
        Value::Object(map) => map,
        other => return Err(Unreadable::NotAnObject(other.clone())),
    };
    let mut member = false;
    let mut nodes = Vec::with_capacity(map.len());
    for (key, inner) in map {
        if key == "." {
            member = true;
            continue;
        }
        let Some(at) = Element::parse(key)? else { continue };
        let (below, is_member) = parse(inner)?;
        nodes.push(Node { at, member: is_member, below: below.unwrap_or_default() });
    }
    if nodes.is_empty() {
        return Ok((None, true));
    }
    Ok((Some(Set::from_nodes(nodes)), member))
}

/// Whether a set in `FieldsV1` form has anything at, above or below a member of `delta`: a cheap test with false positives, but no false negatives.
/// Its keys must be in canonical form.
pub fn touches(fields: &Value, delta: &Set) -> bool {
    let Some(map) = fields.as_object() else { return true };
    delta.nodes.iter().any(|node| {
        let inner = match &node.at {
            Element::Field(name) => {
                let mut key = String::with_capacity(name.len() + 2);
                key.push_str("f:");
                key.push_str(name);
                map.get(&key)
            }
            other => map.get(&other.wire()),
        };
        inner.is_some_and(|inner| {
            node.member || inner.as_object().is_none_or(serde_json::Map::is_empty) || touches(inner, &node.below)
        })
    })
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
