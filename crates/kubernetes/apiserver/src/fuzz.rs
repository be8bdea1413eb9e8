//! Entry points for hostile bytes, one per reader of what clients send. None may panic, recurse without bound or make
//! more of its input than the limits allow, and what can be read twice must read the same.
//!
//! `fuzz/` runs libFuzzer on them. So that they cannot rot, the tests below run the same functions on the seeds in
//! `fuzz/corpus` and on a bounded number of mutations of these.

use std::sync::OnceLock;

use core_kinds::{Defs, canonical, convert, decode as typed, protobuf as wire};
use patches::printable::{self, Opened};
use patches::{json as rfc6902, merge, strategic};
use serde_json::{Value, json};
use structural_schema::schema::Schema;
use structural_schema::{default, lists, prune, validate};

use crate::crd;
use crate::fields::views::Views;
use crate::fields::{self, Scope, managed};
use crate::jsonpath::JsonPath;
use crate::label_text;
use crate::object::{self, Object};
use crate::registry::Registry;
use crate::selectors::Selector;
use crate::strategies::{self, custom_resource_definition::definition};

/// The separator between the parts of an input.
const BETWEEN: &str = "\n%%\n";
/// Bytes that a patch may add beyond its own and the object's.
const MAX_ADDED: usize = 4 << 20;

/// An entry point.
pub type Target = fn(&[u8]);

/// All of them, by the names that their corpora have.
pub const TARGETS: [(&str, Target); 6] = [
    ("apply", apply),
    ("patch", patch),
    ("protobuf", protobuf),
    ("schema", schema),
    ("selectors", selectors),
    ("text", text),
];

fn parts<const N: usize>(data: &[u8]) -> Option<[&str; N]> {
    let parts: Vec<&str> = std::str::from_utf8(data).ok()?.splitn(N, BETWEEN).collect();
    parts.try_into().ok()
}

fn object_of(text: &str) -> Option<Object> {
    match gojson::from_json(text.as_bytes()) {
        Ok((Value::Object(object), _)) => Some(object),
        _ => None,
    }
}

/// Whether two values are the same, however their numbers are held.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| alike(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Texts in JSON and YAML: both readers, and the typed decoder for some kinds.
pub fn text(data: &[u8]) {
    if let Ok(node) = gojson::parse(data) {
        for kind in ["ConfigMap", "Secret", "Service", "Node", "Event"] {
            let Some(def) = Defs::get().kind("", "v1", kind) else { continue };
            if let Ok((mut object, _)) = typed::read(def, &node) {
                canonical::canonicalize(def, &mut object);
                let once = object.clone();
                canonical::canonicalize(def, &mut object);
                assert!(object == once, "an object is not canonical at once");
                let _ = object::to_tail(object);
            }
        }
        if let Ok((value, _)) = node.to_value() {
            let again = gojson::from_json(value.to_string().as_bytes());
            assert!(again.is_ok_and(|(again, _)| alike(&again, &value)), "JSON is not read as it is written");
        }
    }
    if let Ok(yaml) = gojson::from_yaml(data) {
        let written = gojson::to_yaml(&yaml.value);
        let again = gojson::from_yaml(written.as_bytes());
        assert!(
            again.is_ok_and(|again| alike(&again.value, &yaml.value)),
            "YAML is not read as it is written: {written}"
        );
    }
    let _ = gojson::from_yaml_or_json(data);
}

/// Patches of an own kind: `json`, `merge` or `strategic`, the object, the patch.
pub fn patch(data: &[u8]) {
    let Some([kind, before, given]) = parts(data) else { return };
    let (Some(before), Ok((given, _))) = (object_of(before), gojson::from_json(given.as_bytes())) else { return };
    let Some(def) = Defs::get().kind("", "v1", "Service") else { return };
    let bound = Value::Object(before.clone()).to_string().len() + given.to_string().len() + MAX_ADDED;
    let mut value = Value::Object(before);
    let opened = match kind {
        "json" => {
            let Ok((operations, _)) = rfc6902::parse(given) else { return };
            if rfc6902::apply(&mut value, &operations).is_err() {
                return;
            }
            Opened::by_operations(&operations)
        }
        "merge" => {
            merge::apply(&mut value, &given);
            Opened::by_merge(&given)
        }
        _ => {
            let mut left = given.clone();
            if strategic::apply(def, &mut value, &mut left).is_err() {
                return;
            }
            if let Value::Object(object) = &mut value {
                let _ = convert::check(def, object);
            }
            Opened::by_merge(&given)
        }
    };
    assert!(value.to_string().len() <= bound, "a patch makes too much of what is there");
    if let Value::Object(mut patched) = value {
        let text = printable::text(def, &patched, &opened);
        assert!(
            gojson::parse(text.as_bytes()).is_ok() || text.len() > bound,
            "the printable form of a patch is no JSON"
        );
        let _ = typed::decode(def, &mut patched, &mut Vec::new());
    }
}

/// A definition with lists and maps of all sorts in two versions.
fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let text = json!({"type": "string"});
        let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "v": text}}});
        let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "keyed": keyed,
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "atomic": {"type": "array", "items": text}, "map": {"type": "object", "additionalProperties": text},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let version = |name: &str| {
            json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}}})
        };
        let crd = json!({"spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things",
            "kind": "Thing", "listKind": "ThingList", "singular": "thing"}, "versions": [version("v1"), version("v2")]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        let registry = Registry::new(strategies::kinds());
        if let Value::Object(crd) = crd {
            registry.replace("example.com", "things", 0, crd::resources(&crd, 0));
        }
        registry
    })
}

/// Server-side apply: the live object with its owners, and the configuration of one more.
pub fn apply(data: &[u8]) {
    let Some([live, config]) = parts(data) else { return };
    let (live, Some(config)) = (object_of(live), object_of(config)) else { return };
    let catalog = registry().catalog();
    let Some(resource) = catalog.find("example.com", "v1", "things") else { return };
    let scope = Scope {
        resource,
        catalog: &catalog,
        sub: "",
        manager: "m",
        views: Views::none(),
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let live = live.map(|mut live| {
        scope.update(None, &mut live);
        live
    });
    for force in [false, true] {
        if let Ok(applied) = fields::apply::apply(&scope, live.as_ref(), &config, force) {
            let entries = managed::decode(object::metadata(&applied).get("managedFields"), true);
            assert!(entries.is_ok(), "the owners that apply writes cannot be read");
        }
    }
}

/// A schema, and an object by it.
pub fn schema(data: &[u8]) {
    let Some([schema, object]) = parts(data) else { return };
    let (Some(schema), object) = (object_of(schema), object_of(object)) else { return };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": ["v1"]}});
    let Value::Object(crd) = crd else { return };
    let sound = definition::validate(&crd, None).is_empty();
    let (true, Ok(schema), Some(mut object)) = (sound, Schema::parse(&Value::Object(schema)), object) else { return };
    prune::prune(&schema, &mut object, &mut Vec::new());
    let once = object.clone();
    prune::prune(&schema, &mut object, &mut Vec::new());
    assert!(object == once, "pruning does not end");
    default::drop_nulls(&schema, &mut object);
    let _ = crd::embedded::coerce(&schema, &mut object, &mut Vec::new());
    default::apply_object(&schema, &mut object);
    let _ = validate::validate(&schema, &object, Some(&once));
    let _ = lists::validate(&schema, &object);
}

/// Label selectors, field selectors and paths into objects.
pub fn selectors(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = label_text::parse(text);
    let catalog = registry().catalog();
    if let Some(resource) = catalog.find("", "v1", "services") {
        let _ = Selector::parse("", text, resource);
        let _ = Selector::parse(text, "", resource).map(|s| s.matches(resource, "n", "x", 1, b"}"));
    }
    if let Ok(path) = JsonPath::parse(text) {
        let document = json!({"spec": {"a": [1, {"b": "c"}, [2]], "b": null}, "status": {"x.y": true}});
        let found = path.find(&document);
        assert!(found.len() <= text.len().saturating_mul(64).max(64), "a path finds too much");
    }
}

/// Kubernetes' protobuf.
pub fn protobuf(data: &[u8]) {
    for kind in ["ConfigMap", "Node", "CustomResourceDefinition"] {
        let version = if kind.starts_with("Custom") { "apiextensions.k8s.io/v1" } else { "v1" };
        let Ok(object) = wire::decode(data, Some((version, kind))) else { continue };
        let value = Value::Object(object);
        assert!(value.to_string().len() <= data.len().saturating_mul(64) + MAX_ADDED, "a message becomes too much");
        if let Some(bytes) = wire::encode(&value) {
            let again = wire::decode(&bytes, None);
            assert!(
                again.is_ok_and(|again| alike(&Value::Object(again), &value)),
                "a message is not read as it is written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn corpus(target: &str) -> Vec<Vec<u8>> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| std::fs::read(f).unwrap()).collect()
    }

    /// One change of an input.
    #[derive(Debug, Clone)]
    enum Mutation {
        Set(usize, u8),
        Insert(usize, &'static str),
        Remove(usize, usize),
        Repeat(usize, usize, usize),
        Splice(usize, usize, usize),
    }

    const WORDS: [&str; 24] = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "null",
        "1e999",
        "-",
        "\n",
        "\\u0000",
        "\\ud800",
        "$patch",
        "/-1",
        "~1",
        "\u{e9}",
        "&a",
        "*a",
        "? ",
        "%%",
        "k:{\"id\":1}",
        "9223372036854775808",
        "\n%%\n",
    ];

    fn mutation() -> impl Strategy<Value = Mutation> {
        let at = any::<prop::sample::Index>().prop_map(|i| i.index(1 << 16));
        prop_oneof![
            (at.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
            (at.clone(), prop::sample::select(&WORDS[..])).prop_map(|(at, word)| Mutation::Insert(at, word)),
            (at.clone(), 1..32usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
            (at.clone(), 1..16usize, 2..400usize).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
            (at, 0..64usize, 1..64usize).prop_map(|(at, seed, length)| Mutation::Splice(at, seed, length)),
        ]
    }

    fn mutated(seeds: &[Vec<u8>], seed: usize, mutations: &[Mutation]) -> Vec<u8> {
        let mut bytes = seeds[seed % seeds.len()].clone();
        for mutation in mutations {
            let end = bytes.len();
            let place = |at: usize| at % (end + 1);
            match *mutation {
                Mutation::Set(at, byte) if end > 0 => bytes[at % end] = byte,
                Mutation::Set(..) => {}
                Mutation::Insert(at, word) => {
                    let at = place(at);
                    bytes.splice(at..at, word.bytes());
                }
                Mutation::Remove(at, length) => {
                    bytes.drain(place(at)..(place(at) + length).min(end));
                }
                Mutation::Repeat(at, length, times) => {
                    let part = bytes[place(at)..(place(at) + length).min(end)].repeat(times);
                    bytes.splice(place(at)..place(at), part);
                }
                Mutation::Splice(at, other, length) => {
                    let other = &seeds[other % seeds.len()];
                    let from = at % (other.len() + 1);
                    bytes.splice(place(at)..place(at), other[from..(from + length).min(other.len())].to_vec());
                }
            }
        }
        bytes
    }

    fn run(name: &str) {
        let (_, target) = TARGETS.iter().find(|(n, _)| *n == name).unwrap();
        let seeds = corpus(name);
        assert!(seeds.len() >= 4, "{name} needs seeds");
        seeds.iter().for_each(|seed| target(seed));
        let inputs = (0..seeds.len(), prop::collection::vec(mutation(), 0..6));
        // PROPTEST_CASES makes a longer run of it.
        let config = ProptestConfig { cases: ProptestConfig::default().cases * 6, ..ProptestConfig::default() };
        proptest!(config, |((seed, mutations) in inputs)| {
            target(&mutated(&seeds, seed, &mutations));
        });
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        for (name, _) in TARGETS {
            let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
            assert!(std::fs::read_to_string(program).unwrap().contains(&format!("fuzz::{name}(")), "{name}");
            assert!(!corpus(name).is_empty());
        }
    }

    #[test]
    fn apply_survives() {
        run("apply");
    }

    #[test]
    fn patch_survives() {
        run("patch");
    }

    #[test]
    fn protobuf_survives() {
        run("protobuf");
    }

    #[test]
    fn schema_survives() {
        run("schema");
    }

    #[test]
    fn selectors_survive() {
        run("selectors");
    }

    #[test]
    fn text_survives() {
        run("text");
    }
}
