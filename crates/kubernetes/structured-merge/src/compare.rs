//! Differences between two states of an object (structured-merge-diff v6, `typed/compare.go`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::element::{Element, equal};
use crate::fault::UnnamedItem;
use crate::set::{Path, Set, Step};
use crate::types::{Items, Sort, Typed};
use crate::walk::item_element;

/// The fields that differ.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Only in the later state.
    pub added: Set,
    /// In both, with different values.
    pub modified: Set,
    /// Only in the former state.
    pub removed: Set,
}

impl Comparison {
    /// Whether the states are equal.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The added and modified fields.
    pub fn changed(&self) -> Set {
        self.added.union(&self.modified)
    }

    /// Without these fields and everything below them.
    pub fn without(mut self, fields: &Set) -> Self {
        if !fields.is_empty() {
            self.added = self.added.recursive_difference(fields);
            self.modified = self.modified.recursive_difference(fields);
            self.removed = self.removed.recursive_difference(fields);
        }
        self
    }

    /// Without these fields; keeps the fields below them.
    pub fn minus(mut self, fields: &Set) -> Self {
        self.added = self.added.difference(fields);
        self.modified = self.modified.difference(fields);
        self.removed = self.removed.difference(fields);
        self
    }
}

/// Compares two states of an object. Fails for a list whose items cannot be identified.
pub fn compare<T: Typed>(
    ty: T,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Result<Comparison, UnnamedItem> {
    let mut out = Comparison::default();
    maps(ty, Some(before), Some(after), &Path::ROOT, &mut out)?;
    Ok(out)
}

type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

fn walk<T: Typed>(ty: T, pair: Pair<'_>, path: &Path<'_>, out: &mut Comparison) -> Result<(), UnnamedItem> {
    let leaf = match pair {
        (None, None) => return Ok(()),
        (Some(one), None) | (None, Some(one)) => visit(ty, ty.sort(one).0, pair, path, out)?,
        (Some(before), Some(after)) => {
            let (former, later) = (ty.sort(before).0, ty.sort(after).0);
            if former != later {
                visit(ty, former, pair, path, out)?;
            }
            visit(ty, later, pair, path, out)?
        }
    };
    if !leaf {
        match pair {
            (None, Some(_)) => out.added.insert(path),
            (Some(_), None) => out.removed.insert(path),
            _ => {}
        }
    }
    Ok(())
}

/// Compares values of one sort; returns whether they were compared as a whole.
fn visit<T: Typed>(
    ty: T,
    sort: Sort,
    pair: Pair<'_>,
    path: &Path<'_>,
    out: &mut Comparison,
) -> Result<bool, UnnamedItem> {
    let (before, after) = pair;
    let whole = match sort {
        Sort::Scalar => true,
        Sort::List => {
            let (a, b) = (before.and_then(Value::as_array), after.and_then(Value::as_array));
            let whole = ty.items() == Items::Atomic || (a.is_none_or(Vec::is_empty) && b.is_none_or(Vec::is_empty));
            if !whole {
                lists(ty, a.map(Vec::as_slice), b.map(Vec::as_slice), path, out)?;
            }
            whole
        }
        Sort::Map => {
            let (a, b) = (before.and_then(Value::as_object), after.and_then(Value::as_object));
            let whole = ty.atomic_map() || (a.is_none_or(Map::is_empty) && b.is_none_or(Map::is_empty));
            if !whole {
                maps(ty, a, b, path, out)?;
            }
            whole
        }
    };
    if whole {
        match pair {
            (None, _) => out.added.insert(path),
            (_, None) => out.removed.insert(path),
            (Some(a), Some(b)) if !equal(a, b) => out.modified.insert(path),
            _ => {}
        }
    }
    Ok(whole)
}

type MaybeMap<'v> = Option<&'v Map<String, Value>>;

fn maps<T: Typed>(
    ty: T,
    before: MaybeMap<'_>,
    after: MaybeMap<'_>,
    path: &Path<'_>,
    out: &mut Comparison,
) -> Result<(), UnnamedItem> {
    let mut step = |key: &str, pair: Pair<'_>| {
        let inner = ty.child(key).map_or(T::UNKNOWN, |(ty, _)| ty);
        walk(inner, pair, &path.join(Step::Field(key)), out)
    };
    for (key, value) in before.into_iter().flatten() {
        step(key, (Some(value), after.and_then(|m| m.get(key))))?;
    }
    for (key, value) in after.into_iter().flatten() {
        if before.is_none_or(|m| !m.contains_key(key)) {
            step(key, (None, Some(value)))?;
        }
    }
    Ok(())
}

fn lists<T: Typed>(
    ty: T,
    before: Option<&[Value]>,
    after: Option<&[Value]>,
    path: &Path<'_>,
    out: &mut Comparison,
) -> Result<(), UnnamedItem> {
    if let (Some(a), Some(b)) = (before, after)
        && a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| equal(x, y))
    {
        return Ok(());
    }
    let mut all: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (at, item) in before.unwrap_or_default().iter().enumerate() {
        let element = item_element(ty, item).map_err(|why| UnnamedItem { at, why })?;
        all.entry(element).or_default().0.push(item);
    }
    for (at, item) in after.unwrap_or_default().iter().enumerate() {
        let element = item_element(ty, item).map_err(|why| UnnamedItem { at, why })?;
        all.entry(element).or_default().1.push(item);
    }
    for (element, (a, b)) in &all {
        let path = path.join(Step::Item(element));
        match (a.as_slice(), b.as_slice()) {
            ([] | [_], [] | [_]) => walk(ty.item(), (a.first().copied(), b.first().copied()), &path, out)?,
            // Duplicate items are compared together, as one value.
            ([_, _, ..], [_, _, ..]) => {
                if a.len() != b.len() || a.iter().zip(b).any(|(x, y)| !equal(x, y)) {
                    out.modified.insert(&path);
                }
            }
            ([_, _, ..], rest) => {
                if let Some(one) = rest.first() {
                    walk(ty.item(), (None, Some(one)), &path, out)?;
                }
                out.removed.insert(&path);
            }
            (rest, _) => {
                if let Some(one) = rest.first() {
                    walk(ty.item(), (Some(one), None), &path, out)?;
                }
                out.added.insert(&path);
            }
        }
    }
    Ok(())
}
