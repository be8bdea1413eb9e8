//! Tables (`meta.k8s.io` Table): columns and rows for `kubectl get`.

use serde_json::{Value, json};

use crate::object::{Object, meta_str, name};
use crate::resource::{Flavor, Resource};

/// `columnDefinitions` of a resource.
pub fn columns(resource: &Resource) -> Value {
    let column = |name: &str, ty: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": ty, "format": format, "description": description, "priority": priority});
    let mut out = vec![];
    let name = column("Name", "string", "name", "Name must be unique within a namespace.", 0);
    match &resource.flavor {
        Flavor::Custom { .. } => {
            out.push(name);
            for c in &resource.columns {
                out.push(column(&c.name, &c.ty, &c.format, &c.description, c.priority));
            }
            if resource.columns.is_empty() {
                out.push(column("Age", "date", "", "Time since the object was created.", 0));
            }
        }
        Flavor::Builtin(_) => {
            if resource.plural != "events" {
                out.push(name);
            }
            for (heading, priority, _) in own_columns(resource) {
                let ty = if *heading == "Data" || *heading == "Secrets" { "integer" } else { "string" };
                let format = if *heading == "Name" { "name" } else { "" };
                out.push(column(heading, ty, format, "", *priority));
            }
        }
    }
    Value::Array(out)
}

/// One row. `include` says what of the object goes with it: `Object`, `None`, or its metadata.
pub fn row(resource: &Resource, object: Object, include: &str) -> Value {
    let root = Value::Object(object);
    let Value::Object(object) = &root else { return Value::Null };
    let mut cells = Vec::new();
    match &resource.flavor {
        Flavor::Custom { .. } => {
            cells.push(json!(name(object)));
            for column in &resource.columns {
                let found = column.path.as_ref().map(|p| p.find(&root)).unwrap_or_default();
                cells.push(cell(&column.ty, found.first().copied()));
            }
            if resource.columns.is_empty() {
                cells.push(json!(age(meta_str(object, "creationTimestamp"))));
            }
        }
        Flavor::Builtin(_) => {
            if resource.plural != "events" {
                cells.push(json!(name(object)));
            }
            for (_, _, make) in own_columns(resource) {
                cells.push(make(object));
            }
        }
    }
    let shown = match include {
        "Object" => root,
        "None" => Value::Null,
        _ => crate::reply::partial(object),
    };
    json!({"cells": cells, "object": shown})
}

fn cell(ty: &str, value: Option<&Value>) -> Value {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Value::Null };
    match (ty, value) {
        ("date", Value::String(text)) => json!(age(text)),
        ("integer", Value::Number(n)) => n.as_i64().map_or_else(|| json!(n.as_f64().map(|f| f as i64)), |n| json!(n)),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(text)) => json!(text),
        ("string", other) => json!(other.to_string()),
        _ => Value::Null,
    }
}

/// Heading, priority, and how the cell is made.
type Own = (&'static str, i64, fn(&Object) -> Value);

fn text_at(object: &Object, path: &[&str]) -> String {
    let mut value = object.get(path[0]);
    for key in &path[1..] {
        value = value.and_then(|v| v.get(key));
    }
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

fn count(object: &Object, keys: &[&str]) -> Value {
    let of = |v: &Value| v.as_object().map(|m| m.len()).or_else(|| v.as_array().map(Vec::len)).unwrap_or(0);
    json!(keys.iter().filter_map(|k| object.get(*k)).map(of).sum::<usize>())
}

fn own_age(object: &Object) -> Value {
    json!(age(meta_str(object, "creationTimestamp")))
}

fn own_columns(resource: &Resource) -> &'static [Own] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => &[("Status", 0, |o| json!(text_at(o, &["status", "phase"]))), ("Age", 0, own_age)],
        ("", "secrets") => {
            &[("Type", 0, |o| json!(text_at(o, &["type"]))), ("Data", 0, |o| count(o, &["data"])), ("Age", 0, own_age)]
        }
        ("", "configmaps") => &[("Data", 0, |o| count(o, &["data", "binaryData"])), ("Age", 0, own_age)],
        ("", "serviceaccounts") => &[("Secrets", 0, |o| count(o, &["secrets"])), ("Age", 0, own_age)],
        ("coordination.k8s.io", "leases") => {
            &[("Holder", 0, |o| json!(text_at(o, &["spec", "holderIdentity"]))), ("Age", 0, own_age)]
        }
        ("apiextensions.k8s.io", _) => &[("Created At", 0, |o| json!(meta_str(o, "creationTimestamp")))],
        (_, "events") => &[
            ("Last Seen", 0, last_seen),
            ("Type", 0, |o| json!(text_at(o, &["type"]))),
            ("Reason", 0, |o| json!(text_at(o, &["reason"]))),
            ("Object", 0, event_object),
            ("Subobject", 1, |o| json!(text_at(o, &["involvedObject", "fieldPath"]))),
            ("Source", 1, event_source),
            ("Message", 0, |o| json!(either(o, "message", "note").trim())),
            ("First Seen", 1, |o| json!(event_age(&either(o, "firstTimestamp", "deprecatedFirstTimestamp"), o))),
            ("Count", 1, |o| json!(event_count(o))),
            ("Name", 1, |o| json!(name(o))),
        ],
        _ => &[("Age", 0, own_age)],
    }
}

fn either(object: &Object, core: &str, events: &str) -> String {
    let text = text_at(object, &[core]);
    if text.is_empty() { text_at(object, &[events]) } else { text }
}

fn event_age(time: &str, object: &Object) -> String {
    if time.is_empty() { age(&text_at(object, &["eventTime"])) } else { age(time) }
}

fn last_seen(object: &Object) -> Value {
    let series = text_at(object, &["series", "lastObservedTime"]);
    if series.is_empty() {
        json!(event_age(&either(object, "lastTimestamp", "deprecatedLastTimestamp"), object))
    } else {
        json!(age(&series))
    }
}

fn event_count(object: &Object) -> i64 {
    let number = |path: &[&str]| text_at(object, path).parse::<i64>().unwrap_or(0);
    [number(&["series", "count"]), number(&["count"]), number(&["deprecatedCount"])]
        .into_iter()
        .find(|n| *n > 0)
        .unwrap_or(1)
}

fn event_object(object: &Object) -> Value {
    let of = |key: &str| {
        let core = text_at(object, &["involvedObject", key]);
        if core.is_empty() { text_at(object, &["regarding", key]) } else { core }
    };
    let (kind, name) = (of("kind").to_lowercase(), of("name"));
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

fn event_source(object: &Object) -> Value {
    let mut component = text_at(object, &["source", "component"]);
    if component.is_empty() {
        component = either(object, "reportingComponent", "reportingController");
    }
    let host = text_at(object, &["source", "host"]);
    json!(if host.is_empty() { component } else { format!("{component}, {host}") })
}

/// Time since an RFC 3339 time, as kubectl prints it.
pub fn age(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human(jiff::Timestamp::now().duration_since(time).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Seconds as kubectl's HumanDuration prints them.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: char, small: i64, part: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{part}") }
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_kubectl() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (900, "15m"),
            (4 * 3600 + 60, "4h1m"),
            (30 * 3600, "30h"),
            (3 * 86_400 + 3600, "3d1h"),
            (100 * 86_400, "100d"),
            (3 * 365 * 86_400, "3y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn cells_follow_the_type_of_the_column() {
        assert_eq!(cell("string", Some(&json!(true))), json!("true"));
        assert_eq!(cell("boolean", Some(&json!(true))), json!(true));
        assert_eq!(cell("integer", Some(&json!("x"))), Value::Null);
        assert_eq!(cell("string", None), Value::Null);
    }
}
