//! Masks what two servers cannot have in common: uids, times, resourceVersions, generated names and secrets. The same
//! uid, name or object's version gets the same placeholder throughout a case, so relations stay visible.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap());
    };
}

pattern!(UID, r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");
pattern!(NUMBERED, r"<(uid|version|cluster-ip|node-port)-\d+>");
pattern!(MICRO, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z");
pattern!(TIME, r"2(0(2[4-9]|[3-9]\d)|[1-9]\d\d)-\d\d-\d\dT\d\d:\d\d:\d\dZ");
pattern!(JWT, r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+");
pattern!(PEM, r"(?s)-----BEGIN [A-Z ]+-----.*-----END [A-Z ]+-----\n?");
pattern!(OLD, r"(resource version: |resourceVersion: |resourceVersion\\?[^0-9]{1,4}|current: )\d+");
pattern!(OF, r"(too old resource version: |: )\d+ \(\d+\)");
pattern!(PRECONDITION, r"(ResourceVersion in (?:the precondition|record) \()[1-9]\d+\)");
pattern!(AGE, r"^(\d+[smhdy])+$");
// `cells` themselves, or the pointer by which a step's `only` names them or one of them.
pattern!(CELLS, r"(^|/)cells(/\d+)?$");
// Addresses and ports of Services that a server chose: each chooses from beyond a part that only those who name one get.
pattern!(CLUSTER_IP, r"\b10\.96\.[1-9]\d{0,2}\.\d{1,3}\b");
pattern!(NODE_PORT, r":(3\d{4})/(TCP|UDP|SCTP)\b");
pattern!(SECONDS, r"\d+(\.\d+)?m?s\b");

/// Node ports that a server chooses; those below are for who names one.
const CHOSEN_PORTS: std::ops::RangeInclusive<i64> = 30_086..=32_767;

/// The placeholders of one case.
#[derive(Debug, Default)]
pub struct Masks {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<i64, String>,
    /// Texts that are always replaced: addresses, certificates.
    pub fixed: Vec<(String, String)>,
}

impl Masks {
    /// With texts that are always replaced.
    pub fn new(fixed: Vec<(String, String)>) -> Self {
        Self { fixed, ..Self::default() }
    }

    /// Masks a whole answer in place.
    pub fn apply(&mut self, value: &mut Value) {
        self.collect_names(value);
        self.walk(value, false);
    }

    /// Notes names that the server made, before any is replaced.
    fn collect_names(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|v| self.collect_names(v)),
            Value::Object(map) => {
                let (prefix, name) = (text(map, "generateName"), text(map, "name"));
                if !prefix.is_empty() && name.len() == prefix.len() + 5 && name.starts_with(prefix) {
                    let next = self.names.len() + 1;
                    self.names.entry(name.to_owned()).or_insert_with(|| format!("{prefix}<generated-{next}>"));
                }
                map.values().for_each(|v| self.collect_names(v));
            }
            _ => {}
        }
    }

    fn walk(&mut self, value: &mut Value, in_list: bool) {
        match value {
            Value::String(s) => *s = self.string(s),
            Value::Array(items) => items.iter_mut().for_each(|v| self.walk(v, false)),
            Value::Object(map) => {
                let is_list = map.get("items").is_some_and(Value::is_array)
                    || map.get("rows").is_some_and(Value::is_array)
                    || text(map, "kind") == "Status";
                for key in in_order(map) {
                    let Some(inner) = map.get_mut(&key) else { continue };
                    match (key.as_str(), &mut *inner) {
                        // A list's version moves with every write of the server, whatever it is about.
                        ("resourceVersion", Value::String(s)) if !s.is_empty() && s != "0" => {
                            *s = if in_list { "<version>".into() } else { self.version(s) };
                        }
                        ("continue", Value::String(s)) if !s.is_empty() => *s = "<continue>".into(),
                        ("metadata", Value::Object(_)) => self.walk(inner, is_list),
                        ("serverAddress", Value::String(s)) => *s = "<address>".into(),
                        ("nodePort" | "healthCheckNodePort", Value::Number(n)) => {
                            if let Some(port) = n.as_i64().filter(|n| CHOSEN_PORTS.contains(n)) {
                                *inner = json!(self.port(port));
                            }
                        }
                        (key, Value::Array(cells)) if CELLS.is_match(key) => {
                            cells.iter_mut().for_each(|cell| self.cell(cell));
                        }
                        (key, cell) if CELLS.is_match(key) => self.cell(cell),
                        _ => self.walk(inner, false),
                    }
                }
                self.rename(map);
            }
            _ => {}
        }
    }

    /// Masks a table's cell: an age, which grows while the recording does not, or anything else.
    fn cell(&mut self, cell: &mut Value) {
        let age = cell.as_str().is_some_and(|s| AGE.is_match(s));
        if age { *cell = json!("<age>") } else { self.walk(cell, false) }
    }

    /// Keys that are uids or generated names.
    fn rename(&mut self, map: &mut Map<String, Value>) {
        if map.keys().any(|k| UID.is_match(k)) {
            *map = std::mem::take(map).into_iter().map(|(k, v)| (self.string(&k), v)).collect();
        }
    }

    fn version(&mut self, s: &str) -> String {
        if !s.bytes().all(|b| b.is_ascii_digit()) {
            return s.to_owned();
        }
        let next = self.versions.len() + 1;
        self.versions.entry(s.to_owned()).or_insert_with(|| format!("<version-{next}>")).clone()
    }

    fn port(&mut self, port: i64) -> String {
        let next = self.ports.len() + 1;
        self.ports.entry(port).or_insert_with(|| format!("<node-port-{next}>")).clone()
    }

    /// Masks one text.
    pub fn string(&mut self, s: &str) -> String {
        let mut out = s.to_owned();
        for (from, to) in &self.fixed {
            if !from.is_empty() && out.contains(from.as_str()) {
                out = out.replace(from.as_str(), to);
            }
        }
        for (name, placeholder) in &self.names {
            if out.contains(name.as_str()) {
                out = out.replace(name.as_str(), placeholder);
            }
        }
        if out.len() < 5 {
            return out;
        }
        let uids = &mut self.uids;
        let uid = |found: &Captures<'_>| {
            let next = uids.len() + 1;
            uids.entry(found[0].to_owned()).or_insert_with(|| format!("<uid-{next}>")).clone()
        };
        out = UID.replace_all(&out, uid).into_owned();
        if out.contains("10.96.") {
            let addresses = &mut self.addresses;
            let address = |found: &Captures<'_>| {
                let next = addresses.len() + 1;
                addresses.entry(found[0].to_owned()).or_insert_with(|| format!("<cluster-ip-{next}>")).clone()
            };
            out = CLUSTER_IP.replace_all(&out, address).into_owned();
        }
        let port = |found: &Captures<'_>| match found[1].parse::<i64>().ok().filter(|n| CHOSEN_PORTS.contains(n)) {
            Some(port) => format!(":{}/{}", self.port(port), &found[2]),
            None => found[0].to_owned(),
        };
        out = NODE_PORT.replace_all(&out, port).into_owned();
        out = MICRO.replace_all(&out, "<microtime>").into_owned();
        out = TIME.replace_all(&out, "<time>").into_owned();
        out = JWT.replace_all(&out, "<token>").into_owned();
        out = PEM.replace_all(&out, "<pem>").into_owned();
        out = OF.replace_all(&out, "${1}<version> (<version>)").into_owned();
        out = PRECONDITION.replace_all(&out, "${1}<version>)").into_owned();
        OLD.replace_all(&out, "${1}<version>").into_owned()
    }

    /// Masks a tree of protobuf fields: times are seconds, versions digits in the fields that hold them.
    pub fn protobuf(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|v| self.protobuf(v)),
            Value::Object(map) => {
                for (number, inner) in map.iter_mut() {
                    match inner {
                        Value::Number(n) if n.as_i64().is_some_and(|n| (1_700_000_000..4_200_000_000).contains(&n)) => {
                            *inner = json!("<time>");
                        }
                        Value::String(s)
                            if matches!(number.as_str(), "2" | "6")
                                && !s.is_empty()
                                && s.bytes().all(|b| b.is_ascii_digit()) =>
                        {
                            *inner = json!("<version>");
                        }
                        Value::String(s) => *s = self.string(s),
                        other => self.protobuf(other),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Numbers placeholders by where they stand, keys in order of their text: servers write the keys of an object in orders of
/// their own, which is no difference.
pub fn renumber(value: &mut Value) {
    let mut order = BTreeMap::new();
    number(value, &mut order);
    replace(value, &order);
}

fn number(value: &Value, order: &mut BTreeMap<String, usize>) {
    match value {
        Value::String(text) => number_text(text, order),
        Value::Array(items) => items.iter().for_each(|v| number(v, order)),
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().map(|(k, v)| (NUMBERED.replace_all(k, "<$1>"), k, v)).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            for (_, key, inner) in members {
                number_text(key, order);
                number(inner, order);
            }
        }
        _ => {}
    }
}

fn number_text(text: &str, order: &mut BTreeMap<String, usize>) {
    for found in NUMBERED.find_iter(text) {
        let next = order.len() + 1;
        order.entry(found.as_str().to_owned()).or_insert(next);
    }
}

fn replace(value: &mut Value, order: &BTreeMap<String, usize>) {
    let renamed = |text: &str| {
        let number = |found: &Captures<'_>| format!("<{}-{}>", &found[1], order.get(&found[0]).copied().unwrap_or(0));
        NUMBERED.replace_all(text, number).into_owned()
    };
    match value {
        Value::String(text) => *text = renamed(text),
        Value::Array(items) => items.iter_mut().for_each(|v| replace(v, order)),
        Value::Object(map) => {
            for inner in map.values_mut() {
                replace(inner, order);
            }
            if map.keys().any(|k| NUMBERED.is_match(k)) {
                *map = std::mem::take(map).into_iter().map(|(k, v)| (renamed(&k), v)).collect();
            }
        }
        _ => {}
    }
}

/// Brings several errors of one object in an order of their own: kube-apiserver's follows that of a hash map for some
/// rules. Only where the message is nothing but the list of causes.
pub fn sort_causes(status: &mut Value) {
    let Some(causes) = status.pointer("/details/causes").and_then(Value::as_array).cloned() else { return };
    let of = |c: &Value| {
        format!("{}: {}", c["field"].as_str().unwrap_or_default(), c["message"].as_str().unwrap_or_default())
    };
    let listed = format!("[{}]", causes.iter().map(of).collect::<Vec<_>>().join(", "));
    let message = status["message"].as_str().unwrap_or_default().to_owned();
    let Some(subject) = message.strip_suffix(&listed) else { return };
    let mut sorted = causes;
    sorted.sort_by_key(of);
    let listed = sorted.iter().map(of).collect::<Vec<_>>().join(", ");
    status["message"] = json!(format!("{subject}[{listed}]"));
    status["details"]["causes"] = json!(sorted);
}

/// The keys of an object in the order in which placeholders are given out. Metadata has one of its own, that of
/// kube-apiserver's answers: which uid is the first must not depend on the order of keys.
fn in_order(map: &Map<String, Value>) -> Vec<String> {
    const METADATA: [&str; 5] = ["uid", "annotations", "ownerReferences", "finalizers", "managedFields"];
    let mut keys: Vec<String> = map.keys().cloned().collect();
    if map.contains_key("creationTimestamp") {
        keys.sort_by_key(|key| METADATA.iter().position(|m| m == key));
    }
    keys
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Masks durations in a text: how long something took.
pub fn durations(s: &str) -> String {
    SECONDS.replace_all(s, "<duration>").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_alike_whatever_the_order_of_keys() {
        let mut one = json!({"uid": "<uid-1>", "owners": {"k:<uid-2>": {"uid": "<uid-2>"}}});
        let mut other = json!({"owners": {"k:<uid-1>": {"uid": "<uid-1>"}}, "uid": "<uid-2>"});
        let mut unlike = json!({"owners": {"k:<uid-1>": {"uid": "<uid-2>"}}, "uid": "<uid-2>"});
        for value in [&mut one, &mut other, &mut unlike] {
            renumber(value);
        }
        assert_eq!(one, other);
        assert_ne!(one, unlike);
    }

    #[test]
    fn relations_stay_visible() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let mut value = json!({"metadata": {"uid": uid, "resourceVersion": "17", "generateName": "a-", "name": "a-x7k2q",
            "creationTimestamp": "2026-01-02T03:04:05Z"}, "owner": uid, "other": {"resourceVersion": "18"}, "note": "a-x7k2q is new"});
        Masks::default().apply(&mut value);
        let expected = json!({"metadata": {"uid": "<uid-1>", "resourceVersion": "<version-1>", "generateName": "a-",
            "name": "a-<generated-1>", "creationTimestamp": "<time>"}, "owner": "<uid-1>",
            "other": {"resourceVersion": "<version-2>"}, "note": "a-<generated-1> is new"});
        assert_eq!(value, expected);
    }

    #[test]
    fn chosen_addresses_and_ports_are_masked_and_named_ones_are_not() {
        let mut value = json!({"clusterIP": "10.96.3.4", "clusterIPs": ["10.96.3.4"], "given": "10.96.0.7 and 10.97.1.1",
            "ports": [{"nodePort": 31000, "port": 31000}, {"nodePort": 30001}], "cells": ["80:31000/TCP,81:30001/UDP"]});
        Masks::default().apply(&mut value);
        let expected = json!({"clusterIP": "<cluster-ip-1>", "clusterIPs": ["<cluster-ip-1>"],
            "given": "10.96.0.7 and 10.97.1.1", "ports": [{"nodePort": "<node-port-1>", "port": 31000}, {"nodePort": 30001}],
            "cells": ["80:<node-port-1>/TCP,81:30001/UDP"]});
        assert_eq!(value, expected);
    }

    #[test]
    fn ages_and_times_are_masked_in_whatever_year() {
        let mut value = json!({"cells": ["a", "26y"], "/rows/0/cells": ["2y325d", 1], "/rows/0/cells/3": "5m10s",
            "/rows/0/cells/4": "<invalid>", "spec": {"timeout": "1h30m"}, "old": "1999-12-31T23:59:59Z", "new": "2038-01-19T03:14:08Z"});
        Masks::default().apply(&mut value);
        let expected = json!({"cells": ["a", "<age>"], "/rows/0/cells": ["<age>", 1], "/rows/0/cells/3": "<age>",
            "/rows/0/cells/4": "<invalid>", "spec": {"timeout": "1h30m"}, "old": "1999-12-31T23:59:59Z", "new": "<time>"});
        assert_eq!(value, expected);
        let mut fields = json!({"1": 2_147_483_648_u64, "2": 1_599_999_999});
        Masks::default().protobuf(&mut fields);
        assert_eq!(fields, json!({"1": "<time>", "2": 1_599_999_999}));
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let (uid, owner) = ("01234567-89ab-cdef-0123-456789abcdef", "11234567-89ab-cdef-0123-456789abcdef");
        for text in [
            format!(r#"{{"uid":"{uid}","creationTimestamp":null,"ownerReferences":[{{"uid":"{owner}"}}]}}"#),
            format!(r#"{{"creationTimestamp":null,"ownerReferences":[{{"uid":"{owner}"}}],"uid":"{uid}"}}"#),
        ] {
            let mut value: Value = serde_json::from_str(&text).unwrap();
            Masks::default().apply(&mut value);
            assert_eq!((&value["uid"], &value["ownerReferences"][0]["uid"]), (&json!("<uid-1>"), &json!("<uid-2>")));
        }
    }

    #[test]
    fn a_lists_version_is_nobodys() {
        let mut value =
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"resourceVersion": "9"}}]});
        Masks::default().apply(&mut value);
        assert_eq!(value["metadata"]["resourceVersion"], "<version>");
        assert_eq!(value["items"][0]["metadata"]["resourceVersion"], "<version-1>");
    }
}
