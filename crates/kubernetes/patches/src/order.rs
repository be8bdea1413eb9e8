//! The order of merged lists: items that a patch names keep the patch's order, others that of the present list; between both, the present list
//! decides, for items that it contains.

use std::collections::HashMap;

use serde_json::Value;

use crate::strategic::Refused;

/// Identifies an item of a list: by the value of its merge key, or by the whole item.
fn id(item: &Value, key: &str) -> String {
    if key.is_empty() { item.to_string() } else { item.get(key).map(Value::to_string).unwrap_or_default() }
}

fn places(list: &[Value], key: &str) -> HashMap<String, usize> {
    let mut places = HashMap::with_capacity(list.len());
    for (at, item) in list.iter().enumerate() {
        places.entry(id(item, key)).or_insert(at);
    }
    places
}

/// Whether the items are maps; `None` if there is no item. All must be of one type, and none a list.
pub fn of_maps(lists: &[&[Value]]) -> Result<Option<bool>, Refused> {
    let mut first: Option<&Value> = None;
    for item in lists.iter().flat_map(|list| list.iter()) {
        match first {
            None if item.is_array() => return Err(Refused::Unprocessable("lists of lists are not supported")),
            None => first = Some(item),
            Some(first) if crate::strategic::go_type(first) == crate::strategic::go_type(item) => {}
            Some(_) => {
                let printed: Vec<String> = lists.iter().map(|l| gotext::map(&Value::Array(l.to_vec()))).collect();
                let why = format!("list element types are not identical: [{}]", printed.join(" "));
                return Err(Refused::Other(why));
            }
        }
    }
    Ok(first.map(Value::is_object))
}

/// Each plain value once.
pub fn once(mut list: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::HashSet::with_capacity(list.len());
    list.retain(|item| seen.insert(item.to_string()));
    list
}

/// Sorts `merged`: `named` is the patch's list (or its `$setElementOrder`), `present` the list before.
pub fn arrange(merged: Vec<Value>, named: &[Value], present: &[Value], key: &str) -> Result<Vec<Value>, Refused> {
    let (by_name, by_present) = (places(named, key), places(present, key));
    let (mut ours, mut others) = (Vec::with_capacity(merged.len()), Vec::new());
    for item in merged {
        let id = id(&item, key);
        let present = by_present.get(&id).copied();
        match by_name.get(&id) {
            Some(at) => ours.push((*at, present, item)),
            None => others.push((present.unwrap_or(usize::MAX), present, item)),
        }
    }
    ours.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(at, ..)| *at);
    let mut out = Vec::with_capacity(ours.len() + others.len());
    let (mut ours, mut others) = (ours.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (ours.peek(), others.peek()) {
            (None, None) => return Ok(out),
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some((_, ours, _)), Some((_, others, _))) => ours.zip(*others).is_some_and(|(ours, others)| others < ours),
        };
        let next = if other_first { others.next() } else { ours.next() };
        out.extend(next.map(|(_, _, item)| item));
    }
}

/// Checks that the items of a patch occur in its `$setElementOrder`, in the same order.
pub fn validate(patch: &[Value], order: &[Value], key: &str) -> Result<(), Refused> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut order_left = order.iter();
    for item in patch {
        if !key.is_empty() {
            match item {
                Value::Object(members) if members.contains_key("$patch") => continue,
                Value::Object(_) => {}
                other => {
                    let found = crate::strategic::go_type(other);
                    let why = format!("expected a map[string]interface {{}}, but received a {found}");
                    return Err(Refused::Other(why));
                }
            }
        }
        let wanted = id(item, key);
        if !order_left.any(|o| id(o, key) == wanted) {
            let show = |list: &[Value]| gotext::map(&Value::Array(list.to_vec()));
            return Err(Refused::Other(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                show(patch),
                show(order)
            )));
        }
    }
    Ok(())
}
