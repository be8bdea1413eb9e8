//! Field sets, and typed comparison and merging of objects: what server-side apply is made of (structured-merge-diff v6).
//!
//! A [`Set`] names fields by a tree of [`Element`]s; its form in objects is `FieldsV1`. A [`Typed`], which callers derive from their schemas, says
//! what each field is for merging: a scalar, a map, a list whose items have keys, or a part that is owned as a whole. With it, [`to_set`] names all
//! fields of an object, [`check`] reports invalid values, [`compare`] compares two states, [`merge`] lays a configuration over an object, [`remove`]
//! removes fields from one, and [`reconcile`] adapts a set to a changed type. Managers and conflicts are the API server's concern.

mod compare;
mod element;
mod fault;
mod merge;
mod set;
mod types;
mod walk;

pub use compare::{Comparison, compare};
pub use element::{Element, equal, equal_objects};
pub use fault::{Misfit, Unnamed, UnnamedItem, Unreadable};
pub use merge::{merge, reconcile, remove, with_named};
pub use set::{Node, Set, touches};
pub use types::{Items, Scalar, Sort, Typed};
pub use walk::{Faults, check, is_valid_member, to_set};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    /// All is deduced from values, but `keyed` is a list of maps whose key is `k`.
    #[derive(Debug, Clone, Copy)]
    enum Simple {
        Any,
        Keyed,
        Unknown,
    }

    impl Typed for Simple {
        const UNKNOWN: Self = Self::Unknown;

        fn only(self) -> Option<Sort> {
            matches!(self, Self::Keyed).then_some(Sort::List)
        }

        fn atomic_map(self) -> bool {
            false
        }

        fn items(&self) -> Items<'_> {
            if matches!(self, Self::Keyed) { Items::Names("k") } else { Items::Atomic }
        }

        fn item(self) -> Self {
            Self::Any
        }

        fn child(self, key: &str) -> Option<(Self, bool)> {
            match self {
                Self::Unknown => None,
                _ if key == "keyed" => Some((Self::Keyed, true)),
                _ => Some((Self::Any, false)),
            }
        }

        fn scalar(self) -> Scalar {
            Scalar::Untyped
        }

        fn key_default(self, _: &str) -> Option<Value> {
            None
        }
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn objects() -> impl Strategy<Value = Map<String, Value>> {
        let plain = prop::collection::btree_map("[a-c]", 0..3, 0..3);
        let keyed = prop::collection::btree_map(0..4, prop::option::of(0..3), 0..4);
        (plain.clone(), plain, keyed, prop::collection::vec(0..3, 0..3)).prop_map(|(top, inner, keyed, list)| {
            let items: Vec<Value> = keyed.iter().map(|(k, v)| json!({"k": k, "v": v})).collect();
            let mut made = object(json!(top));
            made.extend(object(json!({"inner": inner, "keyed": items, "list": list})));
            made
        })
    }

    #[test]
    fn items_are_identified_by_their_keys() {
        let live = object(json!({"keyed": [{"k": 1, "v": 1}, {"k": 2, "v": 2}]}));
        let config = object(json!({"keyed": [{"k": 3}, {"k": 2, "v": 5}]}));
        let merged = merge(Simple::Any, &live, &config).unwrap();
        assert_eq!(Value::Object(merged.clone()), json!({"keyed": [{"k": 1, "v": 1}, {"k": 3}, {"k": 2, "v": 5}]}));
        let differs = compare(Simple::Any, &live, &merged).unwrap();
        assert_eq!(differs.modified.paths(), [".keyed[k=2].v"]);
        assert_eq!(differs.added.paths(), [".keyed[k=3]", ".keyed[k=3].k"]);
        assert!(differs.removed.is_empty());
        assert!(check(Simple::Any, &merged).into_text().is_none());
        let twice = object(json!({"keyed": [{"k": 1}, {"k": 1}, {"v": 1}]}));
        let message = check(Simple::Any, &twice).into_text().unwrap();
        assert!(
            message.contains("duplicate entries for key [k=1]") && message.contains("omits all key fields [\"k\"]"),
            "{message}"
        );
    }

    proptest! {
        #[test]
        fn what_is_added_one_way_is_removed_the_other(a in objects(), b in objects()) {
            let (there, back) = (compare(Simple::Any, &a, &b).unwrap(), compare(Simple::Any, &b, &a).unwrap());
            prop_assert_eq!(&there.added, &back.removed);
            prop_assert_eq!(&there.modified, &back.modified);
            prop_assert!(compare(Simple::Any, &a, &a).unwrap().is_empty());
        }

        #[test]
        fn a_merge_has_all_that_the_configuration_says(live in objects(), config in objects()) {
            let merged = merge(Simple::Any, &live, &config).unwrap();
            let differs = compare(Simple::Any, &merged, &config).unwrap();
            prop_assert!(differs.added.is_empty() && differs.modified.is_empty());
            prop_assert_eq!(merge(Simple::Any, &merged, &config).unwrap(), merged);
        }

        #[test]
        fn without_its_own_fields_a_configuration_leaves_what_was_there(live in objects(), config in objects()) {
            let merged = merge(Simple::Any, &live, &config).unwrap();
            let fields = to_set(Simple::Any, &config);
            let left = to_set(Simple::Any, &remove(Simple::Any, &merged, &fields));
            prop_assert!(left.intersection(&fields).leaves().is_empty(), "{:?}", left.intersection(&fields).paths());
        }
    }
}
