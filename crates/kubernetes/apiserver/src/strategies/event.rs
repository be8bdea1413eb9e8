//! Events of both groups: one kind, stored in the core form; the checks see that form, as upstream's do.

use core_kinds::{Defs, canonical};
use serde_json::{Value, json};

use crate::checks::{all_invalid, member, text, unchanged};
use crate::object::{Object, meta_str};
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, MetadataChecks, Strategy, Writing};

/// The core kind's row in the table.
pub const CORE: Kind =
    Kind { kind: "Event", plural: "events", short_names: &["ev"], strategy: &CoreEvent, ..Kind::NEW };

/// The row of the kind of events.k8s.io.
pub const KIND: Kind = Kind { group: "events.k8s.io", strategy: &Event, ..CORE };

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

/// The rules of core Events.
#[derive(Debug)]
struct CoreEvent;

impl Strategy for CoreEvent {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, false, &mut found.errors);
    }

    fn wrong_name(&self, _: &Object, name: &str, prefix: bool) -> Vec<String> {
        if prefix { names::path_segment_prefix(name) } else { names::path_segment(name) }
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::CoreEvent
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("involvedObject.kind", ""),
            ("involvedObject.namespace", ""),
            ("involvedObject.name", ""),
            ("involvedObject.uid", ""),
            ("involvedObject.apiVersion", ""),
            ("involvedObject.resourceVersion", ""),
            ("involvedObject.fieldPath", ""),
            ("reason", ""),
            ("reportingComponent", ""),
            ("source", "source.component"),
            ("type", ""),
        ]
    }

    fn if_absent(&self, label: &str, object: &Object) -> String {
        // An Event without a source comes from its reporter.
        if label == "source" { of(object, "reportingComponent").to_owned() } else { String::new() }
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}

/// The rules of Events of events.k8s.io. Their names have stricter rules, though they are the same objects.
#[derive(Debug)]
struct Event;

impl Strategy for Event {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        let core = |event: &Object| {
            let mut event = event.clone();
            self.to_stored(&mut event);
            event
        };
        validate(&core(object), writing.old.map(core).as_ref(), true, &mut found.errors);
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("regarding.kind", ""),
            ("regarding.namespace", ""),
            ("regarding.name", ""),
            ("regarding.uid", ""),
            ("regarding.apiVersion", ""),
            ("reason", ""),
            ("reportingController", ""),
            ("type", ""),
        ]
    }

    fn converts_field_labels(&self) -> bool {
        true
    }

    fn view_of(&self) -> Option<&'static str> {
        Some(CORE.group)
    }

    fn view_stored(&self, object: &mut Object) {
        for (core, events) in EVENT_NAMES {
            if let Some(value) = object.shift_remove(core) {
                object.insert(events.to_owned(), value);
            }
        }
        canonicalize(KIND.group, object);
    }

    fn to_stored(&self, object: &mut Object) {
        for (core, events) in EVENT_NAMES {
            if let Some(value) = object.shift_remove(events) {
                object.insert(core.to_owned(), value);
            }
        }
        canonicalize(CORE.group, object);
    }
}

fn canonicalize(group: &str, object: &mut Object) {
    if let Some(def) = Defs::get().kind(group, Kind::VERSION, KIND.kind) {
        canonical::canonicalize(def, object);
    }
}

/// Checks an Event in its core form; `strict` for those that come by events.k8s.io/v1.
fn validate(object: &Object, old: Option<&Object>, strict: bool, errors: &mut Vec<FieldError>) {
    legacy(object, if strict { "reportingController" } else { "reportingComponent" }, errors);
    match old {
        _ if !strict => {}
        None => strict_create(object, errors),
        Some(old) => strict_update(object, old, errors),
    }
}

fn of<'a>(object: &'a Object, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn legacy(object: &Object, controller: &str, errors: &mut Vec<FieldError>) {
    let namespace = meta_str(object, "namespace");
    let involved = text(member(object, "involvedObject"), "namespace");
    let stray = FieldError::invalid("involvedObject.namespace", &json!(involved), "does not match event.namespace");
    if member(object, "eventTime").is_null() {
        if involved.is_empty() && namespace != "default" || !involved.is_empty() && involved != namespace {
            errors.push(stray);
        }
    } else {
        if involved.is_empty() && namespace != "default" && namespace != "kube-system" {
            errors.push(stray);
        }
        let reporter = of(object, "reportingComponent");
        if reporter.is_empty() {
            errors.push(FieldError::required(controller, ""));
        }
        all_invalid(controller, &json!(reporter), names::qualified_name(reporter), errors);
        for (key, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)] {
            let value = of(object, key);
            if value.is_empty() && key != "message" {
                errors.push(FieldError::required(key, ""));
            }
            if value.len() > most {
                errors.push(FieldError::invalid(key, &json!(""), format!("can have at most {most} characters")));
            }
        }
    }
    all_invalid("namespace", &json!(namespace), names::dns_1123_subdomain(namespace), errors);
}

fn series(object: &Object, errors: &mut Vec<FieldError>) {
    let series = member(object, "series");
    if series.is_null() {
        return;
    }
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        errors.push(FieldError::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if series.get("lastObservedTime").is_none_or(Value::is_null) {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

fn strict_create(object: &Object, errors: &mut Vec<FieldError>) {
    series(object, errors);
    if member(object, "eventTime").is_null() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = of(object, "type");
    if kind != "Normal" && kind != "Warning" {
        errors.push(FieldError::invalid("type", &json!(""), format!("has invalid value: {kind}")));
    }
    let source = member(object, "source");
    for (key, set) in [
        ("firstTimestamp", !member(object, "firstTimestamp").is_null()),
        ("lastTimestamp", !member(object, "lastTimestamp").is_null()),
        ("count", object.get("count").and_then(Value::as_i64).unwrap_or_default() != 0),
        ("source", !text(source, "component").is_empty() || !text(source, "host").is_empty()),
    ] {
        if set {
            errors.push(FieldError::invalid(key, &json!(""), "needs to be unset"));
        }
    }
}

fn strict_update(object: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if member(object, "series") != member(old, "series") {
        series(object, errors);
    }
    // Upstream has "reason" twice there.
    for (key, field) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        unchanged(field, member(object, key), member(old, key), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_convert_there_and_back() {
        let core = json!({"involvedObject": {"name": "x"}, "message": "m", "count": 2, "reason": "r"});
        let Value::Object(mut object) = core.clone() else { panic!() };
        Event.view_stored(&mut object);
        assert_eq!(object.get("regarding"), Some(&json!({"name": "x"})));
        assert_eq!(object.get("deprecatedCount"), Some(&json!(2)));
        Event.to_stored(&mut object);
        assert_eq!(object.get("source"), Some(&json!({})));
        object.retain(|key, _| core.get(key).is_some());
        assert_eq!(Value::Object(object), core);
    }
}
