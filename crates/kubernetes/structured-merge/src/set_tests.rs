//! Laws of the set algebra.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn element() -> impl Strategy<Value = Element> {
    prop_oneof![
        4 => "[a-c]".prop_map(Element::Field),
        2 => (0..3i64).prop_map(|n| Element::Key(vec![("k".to_owned(), json!(n))])),
        1 => "[a-b]".prop_map(|t| Element::Value(json!(t))),
        1 => (0..2i64).prop_map(Element::Index),
    ]
}

fn paths() -> impl Strategy<Value = Vec<Vec<Element>>> {
    vec(vec(element(), 1..4), 0..12)
}

fn set(paths: &[Vec<Element>]) -> Set {
    let mut set = Set::default();
    for path in paths {
        set.add(path.clone());
    }
    set
}

fn under(path: &[Element], other: &Set) -> bool {
    (1..=path.len()).any(|n| other.has(&path[..n]))
}

proptest! {
    #[test]
    fn members_follow_the_algebra(a in paths(), b in paths()) {
        let (x, y) = (set(&a), set(&b));
        for path in a.iter().chain(&b) {
            let (in_x, in_y) = (x.has(path), y.has(path));
            prop_assert_eq!(x.union(&y).has(path), in_x || in_y);
            prop_assert_eq!(x.intersection(&y).has(path), in_x && in_y);
            prop_assert_eq!(x.difference(&y).has(path), in_x && !in_y);
            prop_assert_eq!(x.recursive_difference(&y).has(path), in_x && !under(path, &y));
        }
    }

    #[test]
    fn laws(a in paths(), b in paths(), c in paths()) {
        let (x, y, z) = (set(&a), set(&b), set(&c));
        prop_assert_eq!(x.union(&y), y.union(&x));
        prop_assert_eq!(x.union(&x), x.clone());
        prop_assert_eq!(x.union(&y).union(&z), x.union(&y.union(&z)));
        prop_assert_eq!(x.intersection(&y), y.intersection(&x));
        prop_assert_eq!(x.intersection(&x), x.clone());
        prop_assert!(x.difference(&x).is_empty());
        prop_assert_eq!(x.difference(&y).union(&x.intersection(&y)), x.clone());
        prop_assert!(x.difference(&y).intersection(&y).is_empty());
        prop_assert_eq!(x.union(&y).difference(&y), x.difference(&y));
        prop_assert!(x.leaves().difference(&x).is_empty());
    }

    #[test]
    fn fields_v1_round_trips_in_order(a in paths()) {
        let x = set(&a);
        let text = x.to_fields().to_string();
        let back = Set::parse(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(&back, &x);
        prop_assert_eq!(back.to_fields().to_string(), text);
        let mut members = x.members();
        members.sort();
        let mut wanted: Vec<_> = a.clone();
        wanted.sort();
        wanted.dedup();
        prop_assert_eq!(members, wanted);
        prop_assert_eq!(x.paths().len(), x.members().len());
    }

    #[test]
    fn sets_that_meet_touch(a in paths(), b in paths()) {
        let (x, y) = (set(&a), set(&b));
        if !x.intersection(&y).is_empty() {
            prop_assert!(touches(&x.to_fields(), &y));
        }
    }
}

#[test]
fn fields_v1_is_in_upstreams_byte_order() {
    let text = r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:set":{"v:\"a\"":{},"v:\"b\"":{}}}}"#;
    let set = Set::parse(&serde_json::from_str(text).unwrap()).unwrap();
    assert_eq!(set.to_fields().to_string(), text);
    assert_eq!(
        set.paths(),
        [
            ".metadata.labels",
            ".metadata.labels.app",
            ".spec.ports",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=443,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].port",
            ".spec.ports[port=443,protocol=\"TCP\"].port",
            ".spec.set[=\"a\"]",
            ".spec.set[=\"b\"]",
        ]
    );
}

#[test]
fn odd_forms_are_read_as_upstream_does() {
    let read = |value: Value| Set::parse(&value);
    assert_eq!(read(json!({"f:a": {".": {}}})).unwrap(), read(json!({"f:a": {}})).unwrap());
    assert_eq!(read(json!({"f:a": null})).unwrap(), read(json!({"f:a": {}})).unwrap());
    assert_eq!(read(json!({"x:a": {}, "f:b": {}})).unwrap(), read(json!({"f:b": {}})).unwrap());
    assert!(read(json!({".": {}})).unwrap().is_empty());
    assert!(read(json!({"f:a": 1})).is_err());
    assert!(read(json!({"a": {}})).is_err());
    assert!(read(json!([])).is_err());
}
