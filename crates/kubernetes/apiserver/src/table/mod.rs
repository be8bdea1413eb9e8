//! Tables (`meta.k8s.io` Table): columns and rows for `kubectl get`.

mod kinds;
mod stored;

use serde_json::{Value, json};

use crate::object::{Object, meta_str, name};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult};

const NAME_TEXT: &str = "Unique within a namespace and resource.";
const AGE_TEXT: &str = "When the object was created.";

/// `columnDefinitions` of a resource. Texts are our own, but for those that name a path.
pub fn columns(resource: &Resource) -> Value {
    let column = |name: &str, ty: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": ty, "format": format, "description": description, "priority": priority});
    let mut out = vec![];
    match &resource.flavor {
        Flavor::Custom { .. } => {
            out.push(column("Name", "string", "name", NAME_TEXT, 0));
            for c in &resource.columns {
                out.push(column(&c.name, &c.ty, &c.format, &c.description, c.priority));
            }
            if resource.columns.is_empty() {
                out.push(column("Age", "date", "", AGE_TEXT, 0));
            }
        }
        Flavor::Builtin(_) => {
            for (heading, ty, priority, _) in kinds::columns(resource) {
                let (format, text) = match *heading {
                    "Name" => ("name", NAME_TEXT),
                    "Age" | "Created At" => ("", AGE_TEXT),
                    _ => ("", ""),
                };
                out.push(column(heading, ty, format, text, *priority));
            }
        }
    }
    Value::Array(out)
}

/// `columnDefinitions` of a Scale.
pub fn scale_columns() -> Value {
    let column = |name: &str, ty: &str, format: &str, text: &str| json!({"name": name, "type": ty, "format": format, "description": text, "priority": 0});
    json!([
        column("Name", "string", "name", NAME_TEXT),
        column("Desired", "integer", "", "Replicas that are wanted."),
        column("Available", "integer", "", "Replicas that there are."),
        column("Age", "date", "", AGE_TEXT),
    ])
}

/// The row of a Scale. `include` as in [`row`].
pub fn scale_row(scale: Object, include: &str, version: &str) -> Value {
    let replicas = |part: &str| scale.get(part).and_then(|p| p.get("replicas")).cloned().unwrap_or(Value::Null);
    let cells =
        json!([name(&scale), replicas("spec"), replicas("status"), age(meta_str(&scale, "creationTimestamp")),]);
    row_value(cells, Value::Object(scale), include, version)
}

/// What of the objects goes with the rows; an error for an unknown value.
pub fn included(requested: &str) -> ApiResult<&str> {
    if matches!(requested, "" | "Metadata" | "Object" | "None") {
        return Ok(requested);
    }
    Err(ApiError::bad_request(format!(
        "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or \
         empty",
        gotext::quote(requested)
    )))
}

/// One row. `include` says what of the object goes with it: `Object`, `None`, or its metadata in `version` of
/// `meta.k8s.io`.
pub fn row(resource: &Resource, object: Object, include: &str, version: &str) -> Value {
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
        Flavor::Builtin(_) => cells.extend(kinds::columns(resource).iter().map(|(_, _, _, make)| make(object))),
    }
    row_value(Value::Array(cells), root, include, version)
}

fn row_value(cells: Value, object: Value, include: &str, version: &str) -> Value {
    let object = match (include, &object) {
        ("Object", _) => object,
        ("None", _) => Value::Null,
        (_, Value::Object(whole)) => {
            let mut partial = crate::object::partial(whole);
            partial["apiVersion"] = json!(format!("meta.k8s.io/{version}"));
            partial
        }
        _ => Value::Null,
    };
    json!({"cells": cells, "object": object})
}

fn cell(ty: &str, value: Option<&Value>) -> Value {
    let Some(value) = value else { return Value::Null };
    match (ty, value) {
        ("string", Value::Null) => json!("<no value>"),
        ("string", Value::String(text)) => json!(text),
        ("string", Value::Number(n)) => json!(gotext::number(n)),
        ("string", other) => json!(gotext::json(other)),
        ("date", Value::String(text)) if text.is_empty() => json!("<unknown>"),
        ("date", Value::String(text)) if text.parse::<jiff::Timestamp>().is_err() => json!("<invalid>"),
        ("date", Value::String(text)) => json!(age(text)),
        ("integer", Value::Number(n)) => n.as_i64().map_or_else(|| json!(n.as_f64().map(cut)), |n| json!(n)),
        // Go holds it as a float on the way.
        ("number", Value::Number(n)) => n.as_i64().map_or_else(|| value.clone(), |n| json!(n as f64 as i64)),
        ("boolean", Value::Bool(_)) => value.clone(),
        _ => Value::Null,
    }
}

/// A float as an integer: what has no place in one becomes the least, as with Go on most machines.
fn cut(float: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&float) { float as i64 } else { i64::MIN }
}

/// Time since an event's time, or since the one of its newer form.
fn event_age(time: &str, object: &Object) -> String {
    let newer = object.get("eventTime").and_then(Value::as_str).unwrap_or_default();
    if time.is_empty() { age(newer) } else { age(time) }
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
