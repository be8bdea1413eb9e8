//! Events: the core form, which is stored, and that of events.k8s.io.

use core_kinds::{Defs, canonical};

use crate::object::Object;

/// Members of the core Event and of the events.k8s.io one that are the same under different names.
const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A core Event in the form of events.k8s.io/v1.
pub fn event_to_events_v1(object: &mut Object) {
    for (core, events) in EVENT_NAMES {
        if let Some(value) = object.shift_remove(core) {
            object.insert(events.to_owned(), value);
        }
    }
    settle("events.k8s.io", "Event", object);
}

/// An events.k8s.io/v1 Event in the form that is stored, the core one.
pub fn event_from_events_v1(object: &mut Object) {
    for (core, events) in EVENT_NAMES {
        if let Some(value) = object.shift_remove(events) {
            object.insert(core.to_owned(), value);
        }
    }
    settle("", "Event", object);
}

fn settle(group: &str, kind: &str, object: &mut Object) {
    if let Some(def) = Defs::get().kind(group, "v1", kind) {
        canonical::settle(def, object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn events_convert_there_and_back() {
        let core = json!({"involvedObject": {"name": "x"}, "message": "m", "count": 2, "reason": "r"});
        let Value::Object(mut object) = core.clone() else { panic!() };
        event_to_events_v1(&mut object);
        assert_eq!(object.get("regarding"), Some(&json!({"name": "x"})));
        assert_eq!(object.get("deprecatedCount"), Some(&json!(2)));
        event_from_events_v1(&mut object);
        assert_eq!(object.get("source"), Some(&json!({})));
        object.retain(|key, _| core.get(key).is_some());
        assert_eq!(Value::Object(object), core);
    }
}
