//! Merges an applied configuration into an object, and removes fields from one
//! (structured-merge-diff v6, `typed/merge.go`, `remove.go` and `reconcile_schema.go`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::element::Element;
use crate::fault::UnnamedItem;
use crate::set::{Node, Set};
use crate::types::{Items, Sort, Typed};
use crate::walk::item_element;

/// The object with the configuration laid over it; nothing is removed.
pub fn merge<T: Typed>(
    ty: T,
    live: &Map<String, Value>,
    config: &Map<String, Value>,
) -> Result<Map<String, Value>, UnnamedItem> {
    maps(ty, Some(live), Some(config))
}

fn merged<T: Typed>(ty: T, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, UnnamedItem> {
    let Some(decisive) = config.or(live) else { return Ok(None) };
    match ty.sort(decisive).0 {
        Sort::Scalar => {}
        Sort::List => {
            let (a, b) = (live.and_then(Value::as_array), config.and_then(Value::as_array));
            if ty.items() != Items::Atomic && !(a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty)) {
                let (a, b) = (a.map_or(&[][..], Vec::as_slice), b.map_or(&[][..], Vec::as_slice));
                return lists(ty, a, b).map(|list| Some(Value::Array(list)));
            }
        }
        Sort::Map => {
            let (a, b) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            if !(ty.atomic_map() || a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty)) {
                return maps(ty, a, b).map(|map| Some(Value::Object(map)));
            }
        }
    }
    Ok(Some(decisive.clone()))
}

fn maps<T: Typed>(
    ty: T,
    live: Option<&Map<String, Value>>,
    config: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, UnnamedItem> {
    let mut out = Map::new();
    let mut step = |key: &String, a: Option<&Value>, b: Option<&Value>| {
        let inner = ty.child(key).map_or(T::UNKNOWN, |(ty, _)| ty);
        if let Some(value) = merged(inner, a, b)? {
            out.insert(key.clone(), value);
        }
        Ok::<(), UnnamedItem>(())
    };
    for (key, value) in live.into_iter().flatten() {
        step(key, Some(value), config.and_then(|m| m.get(key)))?;
    }
    for (key, value) in config.into_iter().flatten() {
        if live.is_none_or(|m| !m.contains_key(key)) {
            step(key, None, Some(value))?;
        }
    }
    Ok(out)
}

fn named<T: Typed>(ty: T, list: &[Value]) -> Result<Vec<(Element, &Value)>, UnnamedItem> {
    let one = |(at, item)| Ok((item_element(ty, item).map_err(|why| UnnamedItem { at, why })?, item));
    list.iter().enumerate().map(one).collect()
}

/// Merges lists: the configuration's items in its order; each item of the live list alone comes before the next shared one.
fn lists<T: Typed>(ty: T, live: &[Value], config: &[Value]) -> Result<Vec<Value>, UnnamedItem> {
    let left = named(ty, live)?;
    let right = named(ty, config)?;
    let mut left_items: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (at, item) in &left {
        // Duplicate items are not merged with the new one.
        left_items.entry(at).and_modify(|old| *old = None).or_insert(Some(item));
    }
    let right_items: BTreeSet<&Element> = right.iter().map(|(at, _)| at).collect();
    let mut shared = right.iter().map(|(at, _)| at).filter(|at| left_items.contains_key(at)).peekable();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let both = |at: &Element, item: &Value| merged(ty.item(), left_items.get(at).copied().flatten(), Some(item));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some((at, _)), Some((wanted, item))) = (left.get(l), right.get(r)) {
            if at == wanted {
                done.insert(wanted);
                out.extend(both(wanted, item)?);
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if right_items.contains(at) && shared.peek().is_some_and(|next| *next != at) {
                // This item comes later, at its place in the configuration.
                l += 1;
                continue;
            }
        }
        if let Some((at, item)) = left.get(l) {
            if !right_items.contains(at) {
                out.extend(merged(ty.item(), Some(item), None)?);
                l += 1;
                continue;
            }
            if done.contains(at) {
                l += 1;
            }
        }
        if let Some((at, item)) = right.get(r) {
            done.insert(at);
            out.extend(both(at, item)?);
            r += 1;
            if shared.peek().is_some_and(|next| *next == at) {
                shared.next();
            }
        }
    }
    Ok(out)
}

/// The object without some of its fields. A map or list that loses all its members becomes null.
pub fn remove<T: Typed>(ty: T, object: &Map<String, Value>, fields: &Set) -> Map<String, Value> {
    match remove_map(ty, object, fields) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn removed<T: Typed>(ty: T, value: &Value, fields: &Set) -> Value {
    match (ty.sort(value).0, value) {
        (Sort::Scalar, _) => value.clone(),
        (Sort::Map, Value::Object(map)) if !ty.atomic_map() => remove_map(ty, map, fields),
        (Sort::List, Value::Array(list)) if ty.items() != Items::Atomic => {
            let mut out = Vec::new();
            for item in list {
                let node = item_element(ty, item).ok().and_then(|at| fields.node(&at));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => out.push(removed(ty.item(), item, &node.below)),
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}

fn remove_map<T: Typed>(ty: T, map: &Map<String, Value>, fields: &Set) -> Value {
    let mut out = Map::new();
    for (key, value) in map {
        match fields.field(key) {
            Some(node) if node.member => {}
            Some(node) => {
                let inner = ty.child(key).map_or(T::UNKNOWN, |(ty, _)| ty);
                out.insert(key.clone(), removed(inner, value, &node.below));
            }
            None => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    if out.is_empty() { Value::Null } else { Value::Object(out) }
}

/// Adds the ancestors of members that the types name as fields. Field sets leave them out.
pub fn with_named<T: Typed>(ty: T, set: &Set) -> Set {
    let nodes = set.nodes.iter().map(|node| {
        let named = match &node.at {
            Element::Field(name) => !node.below.is_empty() && ty.names(name),
            _ => false,
        };
        Node { at: node.at.clone(), member: node.member || named, below: with_named(ty.below(&node.at), &node.below) }
    });
    Set { nodes: nodes.collect() }
}

/// Adapts the set to types whose lists and maps have become atomic: the owner of a part now owns the whole.
pub fn reconcile<T: Typed>(ty: T, set: &Set) -> Set {
    let nodes = set.nodes.iter().map(|node| {
        let inner = ty.below(&node.at);
        let atomic = match inner.only() {
            Some(Sort::List) => inner.items() == Items::Atomic,
            Some(Sort::Map) => inner.atomic_map(),
            _ => false,
        };
        if atomic {
            return Node { at: node.at.clone(), member: true, below: Set::default() };
        }
        Node { at: node.at.clone(), member: node.member, below: reconcile(inner, &node.below) }
    });
    Set { nodes: nodes.collect() }
}
