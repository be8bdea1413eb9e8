//! What a program has written of objects that it found, and what of that it had to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The pointers at which objects differ from what they were, by kind and name. Conditions go by their type.
pub fn written(before: &[Value], after: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let name = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", object["kind"].as_str().unwrap_or_default())
    };
    let after: BTreeMap<String, &Value> = after.iter().map(|object| (name(object), object)).collect();
    let mut all = BTreeMap::new();
    for object in before {
        let mut found = BTreeSet::new();
        match after.get(&name(object)) {
            Some(now) => differs(object, now, "", &mut found),
            None => found.extend(["gone".to_owned()]),
        }
        if !found.is_empty() {
            all.insert(name(object), found);
        }
    }
    all
}

fn differs(before: &Value, after: &Value, at: &str, found: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                differs(a, b, &format!("{at}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if at.ends_with("/conditions") => {
            let by_type = |all: &[Value]| {
                let typed = all.iter().map(|one| (one["type"].as_str().unwrap_or_default().to_owned(), one.clone()));
                Value::Object(typed.collect())
            };
            differs(&by_type(a), &by_type(b), at, found);
        }
        _ if before != after && at != "/metadata/resourceVersion" => {
            found.insert(at.to_owned());
        }
        _ => {}
    }
}

/// Whether a field of a host at rest, or of what is beside it, may be written when Metamorph takes it over.
pub fn is_asked(object: &str, pointer: &str, way: &str) -> bool {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    match (object.split(' ').next().unwrap_or_default(), parts.as_slice()) {
        // Conditions carry messages here, and are then written as a whole.
        ("BareMetalHost", ["status", "lastUpdated"]) => true,
        ("BareMetalHost", ["status", "conditions", _, "message" | "observedGeneration"]) => true,
        // A detached host is not manageable.
        ("BareMetalHost", ["status", "conditions", "Manageable", _]) => way == "detached",
        // The machines of the fixture are in each program's memory: empty ones come off, and are switched as their hosts wish.
        ("BareMetalHost", ["status", "poweredOn"]) => true,
        // They say that they are well, of which upstream's say nothing.
        ("BareMetalHost", ["status", "conditions", "Healthy", _]) => true,
        // Those here have settings of their firmware, which upstream's have not.
        ("HostFirmwareSettings" | "FirmwareSchema", _) => true,
        _ => false,
    }
}
