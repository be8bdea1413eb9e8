//! Owners and merges, by example and by law.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::registry::Registry;
use crate::status::{ApiError, ApiResult};
use crate::strategies;

fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

/// A definition with all sorts of lists and maps, in two versions: the second has no `spec.old`.
fn registry() -> Registry {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "old": {"type": "string"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"},
                "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}, "text": {"type": "string"}}}},
        "atomic": {"type": "array", "items": {"type": "string"}},
        "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "either": {"x-kubernetes-int-or-string": true}
    }});
    let mut later = spec.clone();
    later["properties"].as_object_mut().unwrap().shift_remove("old");
    let version = |name: &str, storage: bool, spec: Value| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}}, "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object",
                "properties": {"ready": {"type": "boolean"}, "text": {"type": "string"}}}}}}})
    };
    let crd = object(json!({"spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
        "versions": [version("v1", true, spec), version("v2", false, later)]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}}));
    let registry = Registry::new(strategies::kinds());
    registry.replace("example.com", "things", 0, crate::crd::resources(&crd, 0));
    registry
}

/// One object and what is done to it.
struct World {
    registry: Registry,
    live: Option<Object>,
}

impl World {
    fn new() -> Self {
        Self { registry: registry(), live: None }
    }

    fn with<R>(&self, version: &str, sub: &str, manager: &str, act: impl FnOnce(&Scope<'_>) -> R) -> R {
        let catalog = self.registry.catalog();
        let resource = catalog.find("example.com", version, "things").unwrap();
        act(&Scope { resource, catalog: &catalog, sub, manager, views: Views::none(), now: jiff::Timestamp::now() })
    }

    fn store(&mut self, mut object: Object) {
        metadata_mut(&mut object).insert("uid".into(), json!("u"));
        self.live = Some(object);
    }

    fn try_apply(&mut self, manager: &str, spec: Value, force: bool) -> ApiResult<()> {
        self.try_apply_in("v1", manager, spec, force)
    }

    fn try_apply_in(&mut self, version: &str, manager: &str, spec: Value, force: bool) -> ApiResult<()> {
        let config = object(json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing",
            "metadata": {"name": "x", "namespace": "default"}, "spec": spec}));
        let live = self.live.clone().map(|mut live| {
            live.insert("apiVersion".into(), json!(format!("example.com/{version}")));
            self.with(version, "", manager, |scope| {
                if let Flavor::Custom { schema, .. } = &scope.resource.flavor {
                    structural_schema::prune::prune(schema, &mut live, &mut Vec::new());
                }
            });
            live
        });
        let merged = self.with(version, "", manager, |scope| apply::apply(scope, live.as_ref(), &config, force))?;
        self.store(merged);
        Ok(())
    }

    fn apply(&mut self, manager: &str, spec: Value) {
        self.try_apply(manager, spec, false).unwrap();
    }

    fn refused(&mut self, manager: &str, spec: Value) -> ApiError {
        self.try_apply(manager, spec, false).unwrap_err()
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Object)) {
        self.update_sub("", manager, change);
    }

    fn update_sub(&mut self, sub: &str, manager: &str, change: impl FnOnce(&mut Object)) {
        let start = || object(json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}));
        let mut new = self.live.clone().unwrap_or_else(start);
        change(&mut new);
        self.with("v1", sub, manager, |scope| scope.update(self.live.as_ref(), &mut new));
        self.store(new);
    }

    fn spec(&self) -> Value {
        self.live.as_ref().unwrap().get("spec").cloned().unwrap_or_default()
    }

    fn entries(&self) -> Vec<Entry> {
        managed::decode(metadata(self.live.as_ref().unwrap()).get("managedFields"), true).unwrap()
    }

    fn owned(&self, manager: &str) -> Vec<String> {
        let of = |e: &Entry| e.manager == manager;
        self.entries().iter().find(|e| of(e)).map(|e| e.set().paths()).unwrap_or_default()
    }
}

fn set_spec(key: &'static str, value: Value) -> impl FnOnce(&mut Object) {
    move |object| {
        object::child(object, "spec").insert(key.into(), value);
    }
}

#[test]
fn two_appliers_share_conflict_force_and_give_up() {
    let mut world = World::new();
    world.apply("a", json!({"size": 1, "nested": {"a": "1"}}));
    world.apply("b", json!({"size": 1, "nested": {"b": "2"}}));
    assert_eq!(world.owned("a"), [".spec.size", ".spec.nested.a"]);
    assert_eq!(world.owned("b"), [".spec.size", ".spec.nested.b"]);
    let error = world.refused("b", json!({"size": 2, "nested": {"a": "3", "b": "2"}}));
    assert_eq!(error.code, 409);
    assert_eq!(error.message, "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.size\n- .spec.nested.a");
    let causes = error.details.unwrap().causes;
    assert_eq!((causes[0].reason, causes[0].message.as_str()), ("FieldManagerConflict", "conflict with \"a\""));
    assert_eq!(causes[1].field, ".spec.nested.a");
    world.try_apply("b", json!({"size": 2}), true).unwrap();
    assert_eq!(world.spec(), json!({"size": 2, "nested": {"a": "1"}}));
    assert_eq!(world.owned("a"), [".spec.nested.a"]);
    assert_eq!(world.owned("b"), [".spec.size"]);
    // What only one manager had goes with its interest; what two had stays.
    world.apply("a", json!({"size": 2}));
    assert_eq!(world.spec(), json!({"size": 2}));
    world.apply("b", json!({}));
    assert_eq!(world.spec(), json!({"size": 2}));
    world.apply("a", json!({"nested": {}}));
    assert_eq!(world.spec(), json!({"nested": {}}));
}

#[test]
fn conflicts_with_updates_name_version_and_subresource() {
    let mut world = World::new();
    world.update("maker", set_spec("size", json!(1)));
    let error = world.refused("a", json!({"size": 2}));
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"maker\" using example.com/v1: .spec.size");
    world.update_sub("status", "reporter", |o| {
        o.insert("status".into(), json!({"ready": true}));
        object::child(metadata_mut(o), "labels").insert("l".into(), json!("1"));
    });
    assert_eq!(world.owned("reporter"), [".status", ".metadata.labels", ".metadata.labels.l", ".status.ready"]);
    let entry = world.entries().into_iter().find(|e| e.manager == "reporter").unwrap();
    assert_eq!(entry.called(), "\"reporter\" with subresource \"status\" using example.com/v1");
    assert_eq!(
        entry.identity(),
        r#"{"manager":"reporter","operation":"Update","apiVersion":"example.com/v1","subresource":"status"}"#
    );
}

#[test]
fn updates_take_what_they_change_and_own_containers_they_make() {
    let mut world = World::new();
    world.update("maker", |o| {
        o.insert("spec".into(), json!({"size": 1, "labels": {"a": "1"}, "set": ["x"], "nested": {"a": "1"}}));
    });
    assert_eq!(
        world.owned("maker"),
        [
            ".spec",
            ".spec.labels",
            ".spec.nested",
            ".spec.set",
            ".spec.size",
            ".spec.labels.a",
            ".spec.nested.a",
            ".spec.set[=\"x\"]"
        ]
    );
    let before = world.live.clone();
    world.update("maker", |_| {});
    assert_eq!(world.live, before, "an update that changes nothing changes no owner and no time");
    world.update("other", |o| {
        o.insert("spec".into(), json!({"size": 2, "labels": {"a": "1", "b": "2"}, "set": ["x", "y"]}));
    });
    assert_eq!(world.owned("other"), [".spec.size", ".spec.labels.b", ".spec.set[=\"y\"]"]);
    assert_eq!(world.owned("maker"), [".spec", ".spec.labels", ".spec.set", ".spec.labels.a", ".spec.set[=\"x\"]"]);
    assert!(world.entries().iter().all(|e| e.time.is_some()));
}

#[test]
fn status_is_nobodys_when_the_object_is_written() {
    let mut world = World::new();
    world.update("maker", |o| {
        o.insert("status".into(), json!({"ready": true}));
        o.insert("spec".into(), json!({"size": 1}));
    });
    assert_eq!(world.owned("maker"), [".spec", ".spec.size"]);
    world.update_sub("status", "reporter", set_spec("size", json!(7)));
    assert!(world.owned("reporter").is_empty(), "and the desired state when status is");
}

#[test]
fn list_maps_and_sets_are_owned_by_item() {
    let mut world = World::new();
    world.apply(
        "a",
        json!({"ports": [{"port": 80, "name": "web"}, {"port": 53, "protocol": "UDP"}], "set": ["p", "q"]}),
    );
    world
        .apply("b", json!({"ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "text": "t"}], "set": ["q", "r"]}));
    assert_eq!(
        world.spec(),
        json!({"ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "name": "web", "text": "t"}, {"port": 53, "protocol": "UDP"}],
            "set": ["p", "q", "r"]})
    );
    assert!(world.owned("a").contains(&".spec.ports[port=80,protocol=\"TCP\"].name".to_owned()));
    world.apply("a", json!({"ports": [{"port": 80, "name": "web"}]}));
    assert_eq!(
        world.spec(),
        json!({"ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "name": "web", "text": "t"}], "set": ["q", "r"]})
    );
    world.apply("a", json!({}));
    assert_eq!(
        world.spec()["ports"],
        json!([{"port": 443, "protocol": "TCP"}, {"port": 80, "text": "t"}]),
        "an item stays while another owns it"
    );
    let twice = world.refused("a", json!({"set": ["x", "x"], "ports": [{"name": "no key"}]}));
    assert_eq!(twice.code, 500);
    assert!(twice.message.contains(".spec.set: duplicate entries for key [=\"x\"]"), "{}", twice.message);
}

#[test]
fn atomic_values_have_one_owner() {
    let mut world = World::new();
    world.apply("a", json!({"atomic": ["x"], "selector": {"k": "v"}}));
    assert_eq!(world.owned("a"), [".spec.atomic", ".spec.selector"]);
    let error = world.refused("b", json!({"atomic": ["x", "y"], "selector": {"l": "w"}}));
    assert_eq!(error.details.unwrap().causes.len(), 2);
    world.try_apply("b", json!({"atomic": ["x", "y"], "selector": {"l": "w"}}), true).unwrap();
    assert_eq!(world.spec(), json!({"atomic": ["x", "y"], "selector": {"l": "w"}}));
    assert!(world.owned("a").is_empty(), "a manager without fields is forgotten");
}

#[test]
fn free_form_parts_are_merged_as_deduced() {
    let mut world = World::new();
    world.apply("a", json!({"any": {"m": {"x": 1}, "l": [1, 2]}, "either": 1}));
    world.apply("b", json!({"any": {"m": {"y": 2}}}));
    assert_eq!(world.spec()["any"], json!({"m": {"x": 1, "y": 2}, "l": [1, 2]}));
    assert_eq!(world.refused("b", json!({"any": {"l": [1]}, "either": "1"})).details.unwrap().causes.len(), 2);
    world.try_apply("b", json!({"any": {"m": "text"}}), true).unwrap();
    assert_eq!(world.spec()["any"], json!({"m": "text", "l": [1, 2]}));
}

#[test]
fn configurations_must_fit_the_schema() {
    let mut world = World::new();
    let text = |e: ApiError| e.message;
    assert_eq!(
        text(world.refused("a", json!({"colour": 1}))),
        "failed to create typed patch object (default/x; example.com/v1, Kind=Thing): .spec.colour: field not declared in schema"
    );
    assert!(
        text(world.refused("a", json!({"size": "1"})))
            .ends_with(".spec.size: expected numeric (int or float), got string")
    );
    assert!(
        text(world.refused("a", json!({"nested": {"a": 1}})))
            .ends_with(".spec.nested.a: expected string, got &value.valueUnstructured{Value:1}")
    );
    assert!(text(world.refused("a", json!({"labels": "x"}))).ends_with(".spec.labels: expected map, got &{x}"));
    let config = object(json!({"apiVersion": "example.com/v9", "kind": "Thing", "metadata": {"name": "x"}}));
    let wrong = world.with("v1", "", "a", |s| apply::apply(s, None, &config, false)).unwrap_err();
    assert_eq!((wrong.code, wrong.message.as_str()), (400, "invalid object type: example.com/v9, Kind=Thing"));
    let config = object(
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x", "managedFields": []}}),
    );
    let wrong = world.with("v1", "", "a", |s| apply::apply(s, None, &config, false)).unwrap_err();
    assert_eq!(wrong.message, "metadata.managedFields must be nil");
}

#[test]
fn the_first_apply_to_an_untracked_object_finds_its_fields() {
    let mut world = World::new();
    world.store(object(
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"size": 1}}),
    ));
    world.update("maker", set_spec("old", json!("y")));
    assert!(world.entries().is_empty(), "tracking begins with the first apply");
    let error = world.refused("a", json!({"size": 2}));
    assert!(error.message.ends_with("conflict with \"before-first-apply\" using example.com/v1: .spec.size"));
    world.apply("a", json!({"size": 1}));
    assert_eq!(world.owned("before-first-apply"), [".spec", ".spec.old", ".spec.size"]);
    assert_eq!(world.owned("a"), [".spec.size"]);
}

#[test]
fn clients_may_reset_and_set_owners() {
    let mut world = World::new();
    world.apply("a", json!({"size": 1}));
    let kept = world.live.clone();
    world.update("b", |o| {
        metadata_mut(o).insert("managedFields".into(), json!([{"manager": "c"}]));
    });
    assert_eq!(world.live, kept, "entries that make no sense are passed over");
    world.update("b", |o| {
        metadata_mut(o).insert(
            "managedFields".into(),
            json!([{"manager": "c", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:size": {}}}}]),
        );
    });
    assert_eq!(world.owned("c"), [".spec.size"]);
    assert!(world.owned("a").is_empty());
    world.update("b", |o| {
        metadata_mut(o).insert("managedFields".into(), json!([{}]));
    });
    assert!(world.entries().is_empty());
}

#[test]
fn fields_are_kept_in_the_version_they_were_written_in() {
    let mut world = World::new();
    world.apply("a", json!({"size": 1, "old": "x"}));
    world.try_apply_in("v2", "b", json!({"size": 1, "nested": {"a": "1"}}), false).unwrap();
    let error = world.try_apply_in("v2", "b", json!({"size": 2}), false).unwrap_err();
    assert!(error.message.ends_with("conflict with \"a\": .spec.size"), "{}", error.message);
    world.try_apply_in("v2", "b", json!({"nested": {"b": "2"}}), false).unwrap();
    assert_eq!(world.spec()["nested"], json!({"b": "2"}));
    world.try_apply_in("v2", "a", json!({}), false).unwrap();
    assert_eq!(world.spec().get("size"), None, "given up in another version");
    let versions: Vec<String> = world.entries().into_iter().map(|e| e.api_version).collect();
    assert_eq!(versions, ["example.com/v2", "example.com/v2"]);
}

#[test]
fn what_becomes_atomic_is_owned_as_a_whole() {
    let world = World::new();
    let set =
        Set::parse(&json!({"f:spec": {"f:atomic": {"v:\"x\"": {}}, "f:selector": {"f:k": {}}, "f:size": {}}})).unwrap();
    let catalog = world.registry.catalog();
    let resource = catalog.find("example.com", "v1", "things").unwrap();
    let after = reconcile(Ty::of(resource), &set);
    assert_eq!(after.paths(), [".spec.atomic", ".spec.selector", ".spec.size"]);
    assert_eq!(reconcile(Ty::of(resource), &after), after);
}

#[test]
fn client_side_apply_turns_into_server_side_apply() {
    let mut world = World::new();
    let last = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"size": 1}});
    world.update("kubectl-client-side-apply", |o| {
        o.insert("spec".into(), json!({"size": 1, "old": "z"}));
        let annotations = object::child(metadata_mut(o), "annotations");
        annotations.insert("kubectl.kubernetes.io/last-applied-configuration".into(), json!(last.to_string()));
    });
    assert!(world.refused("other", json!({"size": 2})).message.contains("kubectl-client-side-apply"));
    assert!(
        world.refused("kubectl", json!({"size": 2, "old": "q"})).message.ends_with(": .spec.old"),
        "not in the annotation"
    );
    world.apply("kubectl", json!({"size": 2}));
    assert_eq!(world.spec()["size"], 2);
    let live = world.live.unwrap();
    let note = metadata(&live)["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(note).unwrap()["spec"], json!({"size": 2}));
    assert!(note.ends_with("}\n"));
}

#[test]
fn times_alone_are_no_change() {
    let mut world = World::new();
    world.apply("a", json!({"size": 1}));
    let old = world.live.clone().unwrap();
    let mut new = old.clone();
    metadata_mut(&mut new)["managedFields"][0]["time"] = json!("2001-01-01T00:00:00Z");
    let mut other = new.clone();
    keep_times(&mut new, &old);
    assert_eq!(new, old);
    other.insert("spec".into(), json!({"size": 2}));
    keep_times(&mut other, &old);
    assert_eq!(metadata(&other)["managedFields"][0]["time"], "2001-01-01T00:00:00Z");
}

#[test]
fn an_apply_that_changes_nothing_keeps_its_time() {
    let mut world = World::new();
    world.apply("a", json!({"size": 1, "ports": [{"port": 80}]}));
    metadata_mut(world.live.as_mut().unwrap())["managedFields"][0]["time"] = json!("2001-01-01T00:00:00Z");
    let before = world.live.clone();
    world.apply("a", json!({"size": 1, "ports": [{"port": 80}]}));
    assert_eq!(world.live, before);
    world.apply("a", json!({"size": 2, "ports": [{"port": 80}]}));
    assert_ne!(metadata(world.live.as_ref().unwrap())["managedFields"][0]["time"], "2001-01-01T00:00:00Z");
}

fn spec() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just("1"), Just("2")];
    let maybe = |value: BoxedStrategy<Value>| proptest::option::weighted(0.4, value);
    let ports = proptest::collection::btree_map(prop_oneof![Just(80), Just(9)], text(), 0..3)
        .prop_map(|m| m.into_iter().map(|(p, t)| json!({"port": p, "protocol": "TCP", "text": t})).collect::<Value>());
    let set = proptest::collection::btree_set(text(), 0..3).prop_map(|s| json!(s));
    let labels =
        proptest::collection::btree_map(prop_oneof![Just("a"), Just("b")], text(), 0..3).prop_map(|m| json!(m));
    let any = prop_oneof![Just(json!({"m": {"x": 1}})), Just(json!({"m": "t"})), Just(json!({"m": [1], "n": null}))];
    (
        maybe((0..3).prop_map(|n| json!(n)).boxed()),
        maybe(set.boxed()),
        maybe(ports.boxed()),
        maybe(labels.clone().boxed()),
        maybe(labels.boxed()),
        maybe(any.boxed()),
    )
        .prop_map(|(size, set, ports, labels, selector, any)| {
            let mut out = Object::new();
            for (key, value) in [
                ("size", size),
                ("set", set),
                ("ports", ports),
                ("labels", labels),
                ("selector", selector),
                ("any", any),
            ] {
                if let Some(value) = value {
                    out.insert(key.to_owned(), value);
                }
            }
            Value::Object(out)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn applies_are_idempotent(a in spec(), b in spec(), c in spec()) {
        let mut world = World::new();
        world.update("u", |o| { o.insert("spec".into(), a); });
        world.try_apply("m", b, true).unwrap();
        world.try_apply("n", c.clone(), true).unwrap();
        let once = world.live.clone();
        // Again by force is again the same; without force nothing stands in the way any more.
        world.try_apply("n", c, false).unwrap();
        prop_assert_eq!(&world.live, &once);
    }

    #[test]
    fn what_is_applied_is_there_and_owned(a in spec(), b in spec()) {
        let mut world = World::new();
        world.update("u", |o| { o.insert("spec".into(), a); });
        world.try_apply("m", b.clone(), true).unwrap();
        let catalog = world.registry.catalog();
        let ty = Ty::of(catalog.find("example.com", "v1", "things").unwrap());
        let wanted = structured_merge::to_set(ty, &object(json!({"spec": b})));
        let live = world.live.clone().unwrap();
        let entries = world.entries();
        let owned = entries.iter().find(|e| e.manager == "m").map(|e| e.set().into_owned()).unwrap_or_default();
        prop_assert_eq!(&owned, &wanted);
        let again = structured_merge::merge(ty, &live, &object(json!({"spec": b}))).unwrap();
        let same = compare(ty, &live, &again).unwrap();
        prop_assert!(same.is_empty(), "{:?}", same);
    }

    #[test]
    fn comparing_finds_what_updates_change(a in spec(), b in spec()) {
        let world = World::new();
        let catalog = world.registry.catalog();
        let ty = Ty::of(catalog.find("example.com", "v1", "things").unwrap());
        let (x, y) = (object(json!({"spec": a})), object(json!({"spec": b})));
        let there = compare(ty, &x, &y).unwrap();
        let back = compare(ty, &y, &x).unwrap();
        prop_assert_eq!(&there.added, &back.removed);
        prop_assert_eq!(&there.modified, &back.modified);
        prop_assert!(there.added.intersection(&there.removed).is_empty());
        prop_assert!(compare(ty, &x, &x).unwrap().is_empty());
        prop_assert_eq!(there.is_empty(), equal(&Value::Object(x.clone()), &Value::Object(y.clone())) || there.is_empty());
        // All of the later state and nothing else is reached by removing and merging.
        let all = structured_merge::to_set(ty, &y);
        prop_assert!(there.removed.intersection(&all).is_empty());
    }

    #[test]
    fn what_nobody_else_owns_goes_with_its_applier(mut a in spec()) {
        let mut world = World::new();
        // Nobody owns a list map or set without items: it would stay, upstream too.
        if let Some(map) = a.as_object_mut() {
            map.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
        world.apply("m", a);
        world.apply("m", json!({}));
        let left = world.spec();
        let empty = left.is_null() || left.as_object().is_some_and(serde_json::Map::is_empty);
        prop_assert!(empty, "{left}");
    }
}
