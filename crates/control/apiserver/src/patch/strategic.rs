//! Strategic merge patch for the server's own kinds: lists merge by key, and directives delete, replace, order, retain.

use serde_json::{Map, Value};

use crate::builtin::{Def, Defs, Field, Type};

const DELETE_LIST: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies `patch` to an object of kind `def`.
pub fn apply(def: &Def, target: &mut Value, patch: &Value) -> Result<(), String> {
    let Value::Object(patch) = patch else { return Err("a strategic merge patch is an object".to_owned()) };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    match target {
        Value::Object(target) => members(Some(def), target, patch),
        _ => Ok(()),
    }
}

fn members(def: Option<&Def>, target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), String> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = patch.iter().filter(|(k, _)| *k != "$patch").map(|(k, v)| (k.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type: {other}")),
    }
    if let Some(Value::Array(keep)) = patch.get("$retainKeys") {
        target.retain(|key, _| keep.iter().any(|k| k.as_str() == Some(key)));
    }
    for (key, value) in patch.iter().filter(|(k, _)| !k.starts_with('$')) {
        if value.is_null() {
            target.shift_remove(key);
            continue;
        }
        let field = def.and_then(|d| d.field(key));
        let slot = target.entry(key.clone()).or_insert(Value::Null);
        member(field, slot, value)?;
    }
    for (key, value) in patch {
        if let Some(key) = key.strip_prefix(DELETE_LIST)
            && let (Some(Value::Array(list)), Value::Array(gone)) = (target.get_mut(key), value)
        {
            list.retain(|v| !gone.contains(v));
        }
    }
    for (key, value) in patch {
        if let Some(key) = key.strip_prefix(ORDER)
            && let (Some(Value::Array(list)), Value::Array(order)) = (target.get_mut(key), value)
        {
            let merge_key = def.and_then(|d| d.field(key)).and_then(|f| f.merge_key).unwrap_or_default();
            reorder(list, order, merge_key);
        }
    }
    Ok(())
}

fn inner_def(ty: &Type) -> Option<&'static Def> {
    match ty {
        Type::Ref(name) => Defs::get().def(name),
        Type::List(inner) | Type::Map(inner) => inner_def(inner),
        _ => None,
    }
}

fn member(field: Option<&Field>, slot: &mut Value, value: &Value) -> Result<(), String> {
    match value {
        Value::Object(patch) => {
            // Free JSON is replaced key by key as well, as maps are.
            let def = field.filter(|f| matches!(f.ty, Type::Ref(_))).and_then(|f| inner_def(&f.ty));
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            match slot {
                Value::Object(target) => members(def, target, patch),
                _ => Ok(()),
            }
        }
        Value::Array(items) => match field.and_then(|f| f.merge_key) {
            Some(key) => {
                let def = field.and_then(|f| inner_def(&f.ty));
                list(def, slot, items, key)
            }
            None => {
                *slot = value.clone();
                Ok(())
            }
        },
        other => {
            *slot = other.clone();
            Ok(())
        }
    }
}

fn list(def: Option<&Def>, slot: &mut Value, items: &[Value], key: &str) -> Result<(), String> {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Value::Array(target) = slot else { return Ok(()) };
    if key.is_empty() {
        for item in items {
            if !target.contains(item) {
                target.push(item.clone());
            }
        }
        return Ok(());
    }
    if items.iter().any(|i| i.get("$patch").and_then(Value::as_str) == Some("replace")) {
        *target = items.iter().filter(|i| i.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    for item in items {
        let Value::Object(patch) = item else { return Err(format!("items of a list merged by {key:?} are objects")) };
        let id = patch.get(key).ok_or_else(|| format!("map: {item} does not contain declared merge key: {key}"))?;
        let at = target.iter().position(|t| t.get(key) == Some(id));
        match (patch.get("$patch").and_then(Value::as_str), at) {
            (Some("delete"), Some(at)) => {
                target.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => {
                if let Some(Value::Object(found)) = target.get_mut(at) {
                    members(def, found, patch)?;
                }
            }
            (_, None) => {
                let mut fresh = Map::new();
                members(def, &mut fresh, patch)?;
                target.push(Value::Object(fresh));
            }
        }
    }
    Ok(())
}

/// Puts items in the given order; others keep their place after the item that they followed.
fn reorder(list: &mut Vec<Value>, order: &[Value], key: &str) {
    let rank = |item: &Value| {
        order
            .iter()
            .position(|o| if key.is_empty() { o == item } else { o.get(key).is_some() && o.get(key) == item.get(key) })
    };
    let mut ranked: Vec<(usize, Value)> = Vec::with_capacity(list.len());
    let mut last = 0;
    for item in list.drain(..) {
        last = rank(&item).unwrap_or(last);
        ranked.push((last, item));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    list.extend(ranked.into_iter().map(|(_, item)| item));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn run(mut value: Value, patch: Value) -> Value {
        let def = Defs::get().kind("", "v1", "ConfigMap").unwrap();
        apply(def, &mut value, &patch).unwrap();
        value
    }

    fn owner(uid: &str, name: &str) -> Value {
        json!({"uid": uid, "name": name})
    }

    #[test]
    fn lists_merge_by_key_and_directives_work() {
        let before = json!({"metadata": {"finalizers": ["a", "b"], "ownerReferences": [owner("1", "x"), owner("2", "y")]},
            "data": {"k": "v", "l": "w"}});
        let after = run(
            before.clone(),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
                "$setElementOrder/ownerReferences": [{"uid": "3"}, {"uid": "1"}],
                "ownerReferences": [{"uid": "2", "$patch": "delete"}, {"uid": "1", "name": "z"}, owner("3", "n")]},
                "data": {"l": null, "m": "n"}}),
        );
        assert_eq!(after["metadata"]["finalizers"], json!(["b", "c"]));
        assert_eq!(after["metadata"]["ownerReferences"], json!([owner("3", "n"), owner("1", "z")]));
        assert_eq!(after["data"], json!({"k": "v", "m": "n"}));
        let replaced = run(before.clone(), json!({"data": {"$patch": "replace", "only": "x"}}));
        assert_eq!(replaced["data"], json!({"only": "x"}));
        let retained = run(before, json!({"data": {"$retainKeys": ["k"]}}));
        assert_eq!(retained["data"], json!({"k": "v"}));
    }

    #[test]
    fn items_without_their_key_are_refused() {
        let def = Defs::get().kind("", "v1", "ConfigMap").unwrap();
        let mut value = json!({});
        assert!(apply(def, &mut value, &json!({"metadata": {"ownerReferences": [{"name": "x"}]}})).is_err());
    }

    proptest! {
        #[test]
        fn on_plain_maps_it_is_a_merge_patch(
            before in prop::collection::btree_map("[a-c]", "[x-z]", 0..4),
            patch in prop::collection::btree_map("[a-c]", prop::option::of("[x-z]"), 0..4),
        ) {
            let (before, patch) = (json!({"data": before}), json!({"data": patch}));
            let mut merged = before.clone();
            super::super::merge::apply(&mut merged, &patch);
            prop_assert_eq!(run(before, patch), merged);
        }
    }
}
