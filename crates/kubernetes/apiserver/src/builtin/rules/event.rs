//! Events of both groups. They are stored in the core form; the checks see that form, as upstream's do.

use serde_json::{Value, json};

use super::{all_invalid, member, text, unchanged};
use crate::object::{Object, meta_str};
use crate::status::FieldError;

/// Checks an Event in its core form; `strict` for those that come by events.k8s.io/v1.
pub fn event(object: &Object, old: Option<&Object>, strict: bool, errors: &mut Vec<FieldError>) {
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
    // "reason" stands there twice upstream.
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
