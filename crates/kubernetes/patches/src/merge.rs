//! JSON merge patch (RFC 7386), as the library does it that kube-apiserver uses: where something is new, nulls are dropped
//! within lists, too.

use serde_json::{Map, Value};

/// Applies `patch` to `target`. Recursion is bounded by the depth of the decoded patch.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match target.get_mut(key) {
            _ if value.is_null() => {
                target.shift_remove(key);
            }
            Some(Value::Object(_)) if !value.is_object() => {
                target.insert(key.clone(), value.clone());
            }
            Some(present @ Value::Object(_)) => apply(present, value),
            _ => {
                target.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

/// A new value: no object in it has a null.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn examples_of_rfc_7386() {
        for (before, patch, after) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({}), json!({"a": [{"b": null}, null]}), json!({"a": [{}, null]})),
            (json!({"a": {"c": 1}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        ] {
            let mut value = before;
            apply(&mut value, &patch);
            assert_eq!(value, after);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i8>().prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    /// Without nulls in lists: whether these are kept depends on the previous value.
    fn plain_lists(value: Value) -> Value {
        match value {
            Value::Array(_) => without_nulls(&value),
            Value::Object(map) => map.into_iter().map(|(k, v)| (k, plain_lists(v))).collect(),
            other => other,
        }
    }

    proptest! {
        #[test]
        fn applying_twice_is_applying_once(mut value in any_json(), patch in any_json().prop_map(plain_lists)) {
            apply(&mut value, &patch);
            let once = value.clone();
            apply(&mut value, &patch);
            prop_assert_eq!(once, value);
        }
    }
}
