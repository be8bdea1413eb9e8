//! Validation, pruning and defaulting by a schema.

use serde_json::{Value, json};

use crate::schema::Schema;
use crate::{Object, default, lists, prune, validate};

fn check(schema: Value, object: Value) -> Vec<String> {
    let schema = Schema::parse(&schema).unwrap();
    let Value::Object(object) = object else { panic!("not an object") };
    let mut errors = validate::validate(&schema, &object, None);
    errors.extend(lists::validate(&schema, &object));
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn errors_read_as_kube_apiservers() {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object",
        "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "mode": {"type": "string", "enum": ["UEFI", "legacy"]},
            "name": {"type": "string", "pattern": "^a+$", "maxLength": 3},
            "on": {"type": "boolean"},
            "port": {"x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "disks": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "string"}}}}}}}});
    assert_eq!(check(schema.clone(), json!({})), ["spec: Required value"]);
    assert_eq!(check(schema.clone(), json!({"spec": {}})), ["spec.size: Required value"]);
    for (spec, text) in [
        (json!({"size": 0}), "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        (json!({"size": 11}), "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "mode": "x"}),
            "spec.mode: Unsupported value: \"x\": supported values: \"UEFI\", \"legacy\"",
        ),
        (json!({"size": 1, "name": "b"}), "spec.name: Invalid value: \"b\": spec.name in body should match '^a+$'"),
        (json!({"size": 1, "name": "aaaa"}), "spec.name: Too long: may not be more than 3 bytes"),
        (
            json!({"size": 1, "on": null}),
            "spec.on: Invalid value: \"null\": spec.on in body must be of type boolean: \"null\"",
        ),
        (
            json!({"size": 1, "port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"size": 1, "when": "now"}),
            "spec.when: Invalid value: \"now\": spec.when in body must be of type date-time: \"now\"",
        ),
        (json!({"size": 1, "tags": ["a", "b", "c"]}), "spec.tags: Too many: 3: must have at most 2 items"),
        (json!({"size": 1, "tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
        (json!({"size": 1, "disks": [{"id": "a"}, {"id": "a"}]}), "spec.disks[1]: Duplicate value: {\"id\":\"a\"}"),
    ] {
        assert_eq!(check(schema.clone(), json!({"spec": spec})), [text]);
    }
    assert!(check(schema, json!({"spec": {"size": 1, "port": "x", "when": "2026-01-02T03:04:05Z"}})).is_empty());
}

#[test]
fn unknown_members_go_unless_kept() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object"}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}}}}))
    .unwrap();
    let Value::Object(mut object) = json!({"kind": "K", "metadata": {"name": "n"}, "z": 1, "a": {"b": "", "c": 1},
        "free": {"any": {"thing": 1}, "strict": {"gone": 1}}, "map": {"k": {"x": 1, "y": 2}}, "list": [{"y": 1}]})
    else {
        panic!()
    };
    let mut unknown = Vec::new();
    prune::prune(&schema, &mut object, &mut unknown);
    assert_eq!(
        Value::Object(object),
        json!({"kind": "K", "metadata": {"name": "n"}, "a": {"b": ""}, "free": {"any": {"thing": 1}, "strict": {}},
            "map": {"k": {"x": 1}}, "list": [{}]})
    );
    assert_eq!(unknown, ["a.c", "free.strict.gone", "list[0].y", "map.k.y", "z"]);
}

#[test]
fn defaults_fill_absent_members_and_forbidden_nulls() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "default": {},
        "properties": {"a": {"type": "string", "default": "x"}, "n": {"type": "string", "nullable": true, "default": "y"}}}}}))
    .unwrap();
    let mut value = json!({});
    default::apply(&schema, &mut value);
    assert_eq!(value, json!({"spec": {"a": "x", "n": "y"}}));
    let mut value = json!({"spec": {"a": null, "n": null}});
    default::apply(&schema, &mut value);
    assert_eq!(value, json!({"spec": {"a": "x", "n": null}}));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// A structural schema with defaults, maps, lists and free parts.
    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "string", "maxLength": 2})),
            Just(json!({"type": "integer", "default": 1, "maximum": 3})),
            Just(json!({"x-kubernetes-int-or-string": true})),
            Just(json!({"type": "string", "nullable": true, "enum": ["a", "b"]})),
            Just(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            prop_oneof![
                prop::collection::btree_map("[a-c]", inner.clone(), 0..4)
                    .prop_map(|p| json!({"type": "object", "properties": p, "default": {}})),
                inner.clone().prop_map(|i| json!({"type": "object", "additionalProperties": i})),
                inner.prop_map(|i| json!({"type": "array", "items": i, "x-kubernetes-list-type": "set"})),
            ]
        })
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..5i64).prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    fn pruned(schema: &Schema, value: &Value) -> (Object, Vec<String>) {
        let Value::Object(mut object) = value.clone() else { panic!("not an object") };
        let mut unknown = Vec::new();
        prune::prune(schema, &mut object, &mut unknown);
        (object, unknown)
    }

    proptest! {
        #[test]
        fn pruning_and_defaulting_are_idempotent(spec in any_schema(), value in any_value()) {
            let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
            let (once, unknown) = pruned(&schema, &json!({"spec": value, "extra": 1}));
            prop_assert!(unknown.contains(&"extra".to_owned()));
            let (twice, none) = pruned(&schema, &Value::Object(once.clone()));
            prop_assert!(none.is_empty());
            prop_assert_eq!(&once, &twice);
            let mut full = once;
            default::apply_object(&schema, &mut full);
            let mut again = full.clone();
            default::apply_object(&schema, &mut again);
            prop_assert_eq!(&full, &again);
            prop_assert!(pruned(&schema, &Value::Object(full)).1.is_empty(), "defaults are known fields");
        }

        #[test]
        fn a_branch_with_the_same_schema_changes_no_verdict(spec in any_schema(), value in any_value()) {
            let plain = Schema::parse(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
            let branched = json!({"type": "object", "properties": {"spec": {"anyOf": [spec], "nullable": spec["nullable"]}}});
            let branched = Schema::parse(&branched).unwrap();
            // Nulls are excluded: branches do not affect whether they are allowed.
            let value = if value.is_null() { json!("a") } else { value };
            let Value::Object(object) = json!({"spec": value}) else { panic!("not an object") };
            let good = validate::validate(&plain, &object, None).is_empty();
            prop_assert_eq!(good, validate::validate(&branched, &object, None).is_empty());
        }
    }
}
