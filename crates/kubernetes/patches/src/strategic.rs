//! Strategic merge patch for the core kinds: lists merge by key, and directives delete, replace, order, retain.
//!
//! Follows `apimachinery/pkg/util/strategicpatch`, also in the order of items (those of the patch first, unless the present order says otherwise) and
//! in consuming the patch: errors show the rest of it.

use std::collections::HashMap;

use core_kinds::{Def, Defs, Field, Object, Type};
use serde_json::Value;

use crate::order;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_LIST: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

/// Why a patch does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It has not the form of a patch: 400.
    Form(&'static str),
    /// It refers to something that does not exist: 422.
    Unprocessable(&'static str),
    /// Anything else, which upstream answers with 500.
    Other(String),
}

/// Applies `patch`, which must be an object, to an object of kind `def`; leaves in `patch` the same rest as upstream.
pub fn apply(def: &Def, target: &mut Value, patch: &mut Value) -> Result<(), Refused> {
    let Value::Object(patch) = patch else { return Err(Refused::Form("invalid JSON document")) };
    let original = match target.take() {
        Value::Object(object) => object,
        _ => Object::new(),
    };
    *target = Value::Object(members(Some(def), original, patch)?);
    Ok(())
}

fn members(def: Option<&Def>, mut original: Object, patch: &mut Object) -> Result<Object, Refused> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return match directive.as_str() {
            Some("replace") => {
                patch.shift_remove(DIRECTIVE);
                Ok(patch.clone())
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(&directive, patch)),
        };
    }
    retain(&mut original, patch)?;
    set_order(def, &mut original, patch)?;
    let keys: Vec<String> = patch.keys().cloned().collect();
    for given in keys {
        let Some(value) = patch.get_mut(&given) else { continue };
        let deletes = given.starts_with(DELETE_LIST);
        let key = if deletes {
            let form = Refused::Form("invalid patch format of primitive list");
            given.strip_prefix(DELETE_LIST).and_then(|k| k.strip_prefix('/')).ok_or(form)?
        } else {
            given.as_str()
        };
        if value.is_null() {
            original.shift_remove(key);
            continue;
        }
        let merged = match (original.get_mut(key).map(Value::take), &mut *value) {
            (Some(Value::Object(old)), Value::Object(new)) => Some(Value::Object(members(inner(def, key), old, new)?)),
            (Some(Value::Array(old)), Value::Array(new)) => {
                let merge_key = def.and_then(|d| d.field(key)).and_then(|f| f.merge_key);
                match merge_key {
                    None if !deletes => Some(Value::Array(new.clone())),
                    merge_key => {
                        let merge_key = merge_key.unwrap_or_default();
                        Some(Value::Array(list(items_def(def, key), old, new, merge_key, deletes)?))
                    }
                }
            }
            (old, _) if deletes => old,
            (_, value) => {
                discard_nulls(value);
                without_directives(value).then(|| value.clone())
            }
        };
        match merged {
            Some(merged) => original.insert(key.to_owned(), merged),
            None => original.shift_remove(key),
        };
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Object) -> Refused {
    let name = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        other => format!("%!s({}={})", go_type(other), gotext::map(other)),
    };
    Refused::Other(format!("unknown patch type: {name} in map: {}", gotext::map(&Value::Object(patch.clone()))))
}

fn no_merge_key(item: &Object, key: &str) -> Refused {
    let item = gotext::map(&Value::Object(item.clone()));
    Refused::Other(format!("map: {item} does not contain declared merge key: {key}"))
}

fn bad_type(expected: &str, found: &Value) -> Refused {
    Refused::Other(format!("expected a {expected}, but received a {}", go_type(found)))
}

/// The Go type that holds a value, as `%s` prints it.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        other => gotext::go_type(other),
    }
}

fn inner(def: Option<&Def>, key: &str) -> Option<&'static Def> {
    match &def?.field(key)?.ty {
        Type::Ref(name) => Defs::get().def(name),
        _ => None,
    }
}

fn items_def(def: Option<&Def>, key: &str) -> Option<&'static Def> {
    match &def?.field(key)?.ty {
        Type::List(items) => match items.as_ref() {
            Type::Ref(name) => Defs::get().def(name),
            _ => None,
        },
        _ => None,
    }
}

/// Keeps the keys that the patch retains, and no others.
fn retain(original: &mut Object, patch: &mut Object) -> Result<(), Refused> {
    let Some(keep) = patch.shift_remove(RETAIN) else { return Ok(()) };
    let form = Refused::Form("invalid patch format of retainKeys");
    let Value::Array(keep) = keep else { return Err(form) };
    let kept = |key: &str| keep.iter().any(|k| k.as_str() == Some(key));
    let directive = |key: &str| key.starts_with(DELETE_LIST) || key.starts_with(ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !directive(key) && !kept(key)) {
        return Err(form);
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

/// Merges the lists that have a `$setElementOrder`, and sorts their items by it.
fn set_order(def: Option<&Def>, original: &mut Object, patch: &mut Object) -> Result<(), Refused> {
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.shift_remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type("[]interface {}", &other.unwrap_or_default())),
        };
        let form = Refused::Form("invalid patch format of setElementOrder list");
        let key = directive.strip_prefix(ORDER).and_then(|k| k.strip_prefix('/')).ok_or(form)?;
        let present = match original.get(key) {
            None => None,
            Some(Value::Array(list)) => Some(list.clone()),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        let given = match patch.get(key) {
            None => None,
            Some(Value::Array(list)) => Some(list.clone()),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        let field = field_of(def, key)?;
        let merge_key = field.and_then(|f| f.merge_key);
        let by = merge_key.unwrap_or_default();
        order::validate(given.as_deref().unwrap_or_default(), &order, by)?;
        let before = present.clone().unwrap_or_default();
        let merged = match (present, given.clone()) {
            (None, None) => continue,
            (Some(present), None) => present,
            (None, Some(given)) => {
                let mut given = Value::Array(given);
                without_directives(&mut given);
                match given {
                    Value::Array(list) => list,
                    _ => Vec::new(),
                }
            }
            (Some(_), Some(given)) if merge_key.is_none() => given,
            (Some(present), Some(mut given)) => list(items_def(def, key), present, &mut given, by, false)?,
        };
        if order::of_maps(&[&before, given.as_deref().unwrap_or_default()])?.is_none() {
            return Err(Refused::Other("no elements in any of the given slices".to_owned()));
        }
        original.insert(key.to_owned(), Value::Array(order::arrange(merged, &order, &before, by)?));
        patch.shift_remove(key);
    }
    Ok(())
}

fn field_of<'d>(def: Option<&'d Def>, key: &str) -> Result<Option<&'d Field>, Refused> {
    let Some(def) = def else { return Ok(None) };
    let name = def.name.rsplit('.').next().unwrap_or_default();
    let why = || format!("unable to find api field in struct {name} for the json field {}", gotext::quote(key));
    def.field(key).map(Some).ok_or_else(|| Refused::Other(why()))
}

fn list(
    def: Option<&Def>,
    mut original: Vec<Value>,
    patch: &mut [Value],
    key: &str,
    deletes: bool,
) -> Result<Vec<Value>, Refused> {
    let Some(maps) = order::of_maps(&[&original, patch])? else { return Ok(original) };
    if !maps {
        if deletes {
            let gone: std::collections::HashSet<String> = patch.iter().map(Value::to_string).collect();
            original.retain(|v| !gone.contains(&v.to_string()));
            return Ok(original);
        }
        let merged = order::once(original.iter().chain(patch.iter()).cloned().collect());
        return order::arrange(merged, patch, &original, "");
    }
    if key.is_empty() {
        return Err(Refused::Other("cannot merge lists without merge key for struct".to_owned()));
    }
    let Some(mut plain) = special(&mut original, patch, key)? else {
        // The list is replaced: items without a directive remain, in their order.
        return Ok(patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).cloned().collect());
    };
    let before = original.clone();
    let mut places: HashMap<String, usize> = HashMap::with_capacity(original.len());
    for (at, item) in original.iter().enumerate() {
        if let Some(id) = item.get(key) {
            places.entry(id.to_string()).or_insert(at);
        }
    }
    for item in &mut plain {
        let Value::Object(new) = item else { continue };
        let id = new.get(key).ok_or_else(|| no_merge_key(new, key))?.to_string();
        match places.get(&id) {
            Some(at) => {
                if let Value::Object(old) = original[*at].take() {
                    original[*at] = Value::Object(members(def, old, new)?);
                }
            }
            None => {
                places.insert(id, original.len());
                original.push(Value::Object(new.clone()));
            }
        }
    }
    order::arrange(original, &plain, &before, key)
}

/// Carries out the directives among the items of a patch and gives the other items; `None` if they replace the list.
fn special(original: &mut Vec<Value>, patch: &[Value], key: &str) -> Result<Option<Vec<Value>>, Refused> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Value::Object(members) = item else { continue };
        match members.get(DIRECTIVE) {
            None => plain.push(item.clone()),
            Some(Value::String(directive)) if directive == "delete" => {
                let id = members.get(key).ok_or_else(|| no_merge_key(members, key))?;
                original.retain(|o| o.get(key) != Some(id));
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(Refused::Other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(directive) => return Err(unknown_directive(directive, members)),
        }
    }
    Ok((!replace).then_some(plain))
}

/// Drops nulls from a new value.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Drops parts with a directive; false if the value itself has one.
fn without_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => return false,
        Value::Object(map) => map.retain(|_, v| without_directives(v)),
        Value::Array(items) => items.retain_mut(without_directives),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn run(mut value: Value, mut patch: Value) -> Value {
        let def = Defs::get().kind("", "v1", "ConfigMap").unwrap();
        apply(def, &mut value, &mut patch).unwrap();
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
                "ownerReferences": [{"uid": "2", "$patch": "delete"}, owner("3", "n"), {"uid": "1", "name": "z"}]},
                "data": {"l": null, "m": "n"}}),
        );
        assert_eq!(after["metadata"]["finalizers"], json!(["c", "b"]));
        assert_eq!(after["metadata"]["ownerReferences"], json!([owner("3", "n"), owner("1", "z")]));
        assert_eq!(after["data"], json!({"k": "v", "m": "n"}));
        let replaced = run(before.clone(), json!({"data": {"$patch": "replace", "only": "x"}}));
        assert_eq!(replaced["data"], json!({"only": "x"}));
        let retained = run(before, json!({"data": {"$retainKeys": ["k"]}}));
        assert_eq!(retained["data"], json!({"k": "v"}));
    }

    #[test]
    fn what_the_patch_names_comes_first_unless_the_present_order_says_otherwise() {
        let before = json!({"metadata": {"ownerReferences": [owner("1", "x"), owner("2", "y"), owner("3", "z")],
            "finalizers": ["a", "b"]}});
        let uids = |value: &Value| -> Vec<String> {
            let list = value["metadata"]["ownerReferences"].as_array().unwrap();
            list.iter().map(|o| o["uid"].as_str().unwrap().to_owned()).collect()
        };
        for (patch, order) in [
            (json!([owner("4", "n")]), ["4", "1", "2", "3"].as_slice()),
            (json!([owner("2", "n")]), &["1", "2", "3"]),
            (json!([owner("3", "n"), owner("1", "n")]), &["2", "3", "1"]),
            (json!([owner("2", "n"), owner("5", "n")]), &["1", "2", "5", "3"]),
            (json!([{"$patch": "replace"}, owner("9", "n"), owner("8", "n")]), &["9", "8"]),
        ] {
            assert_eq!(uids(&run(before.clone(), json!({"metadata": {"ownerReferences": patch}}))), order, "{patch}");
        }
        let after = run(before, json!({"metadata": {"finalizers": ["c", "a"]}}));
        assert_eq!(after["metadata"]["finalizers"], json!(["c", "a", "b"]));
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        let def = Defs::get().kind("", "v1", "Service").unwrap();
        let before = json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
        for (patch, message) in [
            (json!({"spec": {"selector": {"$patch": "frob"}}}), "unknown patch type: frob in map: map[$patch:frob]"),
            (json!({"spec": {"ports": [{"name": "x"}]}}), "map: map[name:x] does not contain declared merge key: port"),
            (
                json!({"spec": {"ports": [{"port": 1}, "x"]}}),
                "list element types are not identical: [[map[port:80]] [map[port:1] x]]",
            ),
            (
                json!({"spec": {"$setElementOrder/none": []}}),
                "unable to find api field in struct ServiceSpec for the json field \"none\"",
            ),
            (
                json!({"spec": {"$setElementOrder/ports": {}}}),
                "expected a []interface {}, but received a map[string]interface {}",
            ),
        ] {
            let refused = apply(def, &mut before.clone(), &mut patch.clone()).unwrap_err();
            assert_eq!(refused, Refused::Other(message.to_owned()), "{patch}");
        }
        let kept = json!({"spec": {"selector": {"$retainKeys": ["x"], "y": "z"}}});
        let refused = apply(def, &mut before.clone(), &mut kept.clone()).unwrap_err();
        assert_eq!(refused, Refused::Form("invalid patch format of retainKeys"));
    }

    #[test]
    fn items_without_their_key_are_refused() {
        let def = Defs::get().kind("", "v1", "ConfigMap").unwrap();
        let mut value = json!({});
        value["metadata"] = json!({"ownerReferences": [owner("1", "x")]});
        assert!(apply(def, &mut value, &mut json!({"metadata": {"ownerReferences": [{"name": "x"}]}})).is_err());
    }

    proptest! {
        #[test]
        fn on_plain_maps_it_is_a_merge_patch(
            before in prop::collection::btree_map("[a-c]", "[x-z]", 0..4),
            patch in prop::collection::btree_map("[a-c]", prop::option::of("[x-z]"), 0..4),
        ) {
            let (before, patch) = (json!({"data": before}), json!({"data": patch}));
            let mut merged = before.clone();
            crate::merge::apply(&mut merged, &patch);
            prop_assert_eq!(run(before, patch), merged);
        }
    }
}
