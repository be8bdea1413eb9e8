//! Walks over an object by its type: computes its field set, and validates it against the type
//! (structured-merge-diff v6, `typed/tofieldset.go`, `validate.go` and `helpers.go`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Map, Value};

use crate::element::Element;
use crate::fault::{Misfit, Unnamed, UnnamedItem};
use crate::set::{Node, Set};
use crate::types::{Items, Scalar, Sort, Typed};

/// The faults of an object, each with its path.
#[derive(Debug, Default)]
pub struct Faults(Vec<(String, Misfit)>);

/// Most faults reported.
const MAX_FAULTS: usize = 64;

impl Faults {
    fn push(&mut self, path: &str, fault: Misfit) {
        if self.0.len() < MAX_FAULTS {
            self.0.push((path.to_owned(), fault));
        }
    }

    /// The text, if there are any.
    pub fn into_text(self) -> Option<String> {
        let line = |(path, fault): &(String, Misfit)| {
            if path.is_empty() { fault.to_string() } else { format!("{path}: {fault}") }
        };
        match self.0.as_slice() {
            [] => None,
            [one] => Some(line(one)),
            many => {
                let lines: Vec<String> = many.iter().map(|f| format!("  {}", line(f))).collect();
                Some(format!("errors:\n{}", lines.join("\n")))
            }
        }
    }
}

/// Names an item of a list that is a set or has keys.
pub fn item_element<T: Typed>(list: T, item: &Value) -> Result<Element, Unnamed> {
    match list.items() {
        Items::Atomic => Err(Unnamed::Atomic),
        Items::Set => match item {
            Value::Object(_) => Err(Unnamed::MapInSet),
            Value::Array(_) => Err(Unnamed::ListInSet),
            Value::Null => Err(Unnamed::NullInSet),
            plain => Ok(Element::Value(plain.clone())),
        },
        Items::Keys(keys) => keyed(list, item, &mut keys.iter().map(String::as_str)),
        Items::Names(keys) => keyed(list, item, &mut keys.split(',')),
    }
}

fn keyed<T: Typed>(list: T, item: &Value, keys: &mut dyn Iterator<Item = &str>) -> Result<Element, Unnamed> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err(Unnamed::NullWithKeys),
        _ => return Err(Unnamed::NotAMap),
    };
    let mut found = Vec::new();
    let mut names = Vec::new();
    for key in keys {
        names.push(key);
        if let Some(value) = map.get(key).cloned().or_else(|| list.item().key_default(key)) {
            found.push((key.to_owned(), value));
        }
    }
    if found.is_empty() {
        return Err(Unnamed::NoKeys(names.into_iter().map(str::to_owned).collect()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(found))
}

/// The fields of an object.
pub fn to_set<T: Typed>(ty: T, object: &Map<String, Value>) -> Set {
    members(ty, object)
}

/// Whether the field itself is owned, and the set below it.
fn fields<T: Typed>(ty: T, value: &Value) -> (bool, Set) {
    match ty.sort(value).0 {
        Sort::Scalar => (true, Set::default()),
        Sort::List if ty.items() == Items::Atomic => (true, Set::default()),
        Sort::List => (false, value.as_array().map(|list| items(ty, list)).unwrap_or_default()),
        Sort::Map if ty.atomic_map() => (true, Set::default()),
        Sort::Map => (false, value.as_object().map(|map| members(ty, map)).unwrap_or_default()),
    }
}

fn members<T: Typed>(ty: T, map: &Map<String, Value>) -> Set {
    let nodes = map.iter().map(|(key, value)| {
        let (inner, named) = ty.child(key).unwrap_or((T::UNKNOWN, false));
        let (owned, below) = fields(inner, value);
        let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        Node { at: Element::Field(key.clone()), member: owned || bare || !named, below }
    });
    Set::from_nodes(nodes.collect())
}

fn items<T: Typed>(ty: T, list: &[Value]) -> Set {
    let named: Vec<(Element, &Value)> =
        list.iter().filter_map(|item| Some((item_element(ty, item).ok()?, item))).collect();
    let mut seen: BTreeMap<&Element, usize> = BTreeMap::new();
    for (at, _) in &named {
        *seen.entry(at).or_default() += 1;
    }
    let nodes = named.iter().map(|(at, item)| {
        // Of duplicate items, only the item itself is owned, not its fields.
        let below = if seen.get(at) == Some(&1) { fields(ty.item(), item).1 } else { Set::default() };
        Node { at: at.clone(), member: true, below }
    });
    Set::from_nodes(nodes.collect())
}

/// Validates an object against its type. Sets and list maps must not have duplicates.
pub fn check<T: Typed>(ty: T, object: &Map<String, Value>) -> Faults {
    let mut faults = Faults::default();
    check_map(ty, object, "", &mut faults);
    faults
}

/// Whether a member of an object is valid for its type. Sets and list maps may have duplicates.
pub fn is_valid_member<T: Typed>(ty: T, key: &str, value: &Value) -> bool {
    let Some((inner, _)) = ty.child(key) else { return false };
    let mut faults = Faults::default();
    check_value(inner, value, "", &mut faults);
    faults.0.iter().all(|(_, fault)| matches!(fault, Misfit::Twice(_)))
}

fn check_value<T: Typed>(ty: T, value: &Value, path: &str, faults: &mut Faults) {
    if value.is_null() {
        return;
    }
    match (ty.sort(value).0, value) {
        (Sort::Map, Value::Object(map)) => check_map(ty, map, path, faults),
        (Sort::Map, other) => faults.push(path, other_sort("map", other)),
        (Sort::List, Value::Array(list)) => check_list(ty, list, path, faults),
        (Sort::List, other) => faults.push(path, other_sort("list", other)),
        (Sort::Scalar, _) => {
            if let Some(fault) = check_scalar(ty.scalar(), value) {
                faults.push(path, fault);
            }
        }
    }
}

/// The fault of a value whose Go form is a pointer to a structure.
fn other_sort(expected: &'static str, value: &Value) -> Misfit {
    Misfit::Sort { expected, got: format!("&{{{}}}", gotext::map(value)) }
}

fn check_scalar(wanted: Scalar, value: &Value) -> Option<Misfit> {
    match (wanted, value) {
        (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, other) => {
            Some(Misfit::Sort { expected: "numeric (int or float)", got: gotext::go_type(other).to_owned() })
        }
        (Scalar::String, other) => {
            let got = format!("&value.valueUnstructured{{Value:{}}}", go_syntax(other));
            Some(Misfit::Sort { expected: "string", got })
        }
        (Scalar::Boolean, other) => Some(other_sort("boolean", other)),
        (Scalar::Untyped, other) => Some(other_sort("any scalar", other)),
    }
}

/// A value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(list) => {
            format!("[]interface {{}}{{{}}}", list.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let mut all: Vec<String> =
                members.iter().map(|(k, v)| format!("{}:{}", gotext::quote(k), go_syntax(v))).collect();
            all.sort();
            format!("map[string]interface {{}}{{{}}}", all.join(", "))
        }
        Value::String(text) => gotext::quote(text),
        plain => gotext::map(plain),
    }
}

fn check_map<T: Typed>(ty: T, map: &Map<String, Value>, path: &str, faults: &mut Faults) {
    for (key, value) in map {
        let path = format!("{path}.{key}");
        match ty.child(key) {
            Some((inner, _)) => check_value(inner, value, &path, faults),
            None => {
                faults.push(&path, Misfit::Undeclared);
                // Upstream looks no further in this map.
                return;
            }
        }
    }
}

fn check_list<T: Typed>(ty: T, list: &[Value], path: &str, faults: &mut Faults) {
    if ty.items() == Items::Atomic {
        for (at, item) in list.iter().enumerate() {
            check_value(ty.item(), item, &format!("{path}[{at}]"), faults);
        }
        return;
    }
    let mut seen = BTreeMap::new();
    for (at, item) in list.iter().enumerate() {
        let element = match item_element(ty, item) {
            Ok(element) => element,
            Err(why) => {
                faults.push(path, UnnamedItem { at, why }.into());
                return;
            }
        };
        let inner = format!("{path}{element}");
        match seen.entry(element) {
            Entry::Occupied(taken) => faults.push(path, Misfit::Twice(taken.key().clone())),
            Entry::Vacant(free) => {
                free.insert(());
            }
        }
        check_value(ty.item(), item, &inner, faults);
    }
}
