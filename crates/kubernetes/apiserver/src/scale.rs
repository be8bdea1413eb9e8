//! The scale subresource of custom resources: an `autoscaling/v1` Scale made of three fields of the object.

use gotext::json_type;
use serde_json::{Value, json};

use crate::object::{Object, meta_str, metadata};
use crate::status::FieldError;

/// Paths of a version's scale, as given: with a leading dot.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Wanted replicas, below `.spec`.
    pub spec: String,
    /// Present replicas, below `.status`.
    pub status: String,
    /// Text of a label selector; empty if there is none.
    pub selector: String,
}

impl Scale {
    /// The scale of a version of a definition.
    pub fn of(version: &Value) -> Option<Self> {
        let scale = version.get("subresources")?.get("scale").filter(|s| s.is_object())?;
        let text = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            spec: text("specReplicasPath"),
            status: text("statusReplicasPath"),
            selector: text("labelSelectorPath"),
        })
    }

    /// The Scale of an object, and whether wanted replicas are set at all.
    pub fn read(&self, object: &Object) -> Result<(Object, bool), ScaleError> {
        let wanted = whole(object, &self.spec)?;
        let present = whole(object, &self.status)?.unwrap_or(0);
        let selector = if self.selector.is_empty() { String::new() } else { text(object, &self.selector)? };
        let mut meta = Object::new();
        for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = metadata(object).get(key) {
                meta.insert(key.to_owned(), value.clone());
            }
        }
        let mut status = json!({"replicas": present});
        if !selector.is_empty() {
            status["selector"] = json!(selector);
        }
        let replicas = wanted.unwrap_or(0);
        let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
        let mut scale = Object::new();
        scale.insert("kind".into(), json!("Scale"));
        scale.insert("apiVersion".into(), json!("autoscaling/v1"));
        scale.insert("metadata".into(), meta.into());
        scale.insert("spec".into(), spec);
        scale.insert("status".into(), status);
        Ok((scale, wanted.is_some()))
    }

    /// Sets wanted replicas, and the version that the client asks for.
    pub fn write(&self, object: &mut Object, scale: &Object) -> Result<(), ScaleError> {
        let replicas = scale.get("spec").and_then(|s| s.get("replicas")).and_then(Value::as_i64).unwrap_or(0);
        set(object, &parts(&self.spec), json!(replicas))?;
        let version = meta_str(scale, "resourceVersion").to_owned();
        let meta = crate::object::metadata_mut(object);
        if version.is_empty() {
            meta.shift_remove("resourceVersion");
        } else {
            meta.insert("resourceVersion".into(), json!(version));
        }
        Ok(())
    }
}

/// Why a scale cannot be read or written, in the words of apimachinery's `unstructured` helpers. Paths have no leading dot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// A value on the way has another type.
    #[error(".{path} accessor error: {value} is of the type {found}, expected {expected}")]
    Accessor {
        /// Where.
        path: String,
        /// The value, as Go prints it.
        value: String,
        /// Its Go type.
        found: &'static str,
        /// The Go type that it should have.
        expected: &'static str,
    },
    /// Nothing can be set below a value that is no map.
    #[error("value cannot be set because .{0} is not a map[string]interface{{}}")]
    NotAMap(String),
}

/// The names along a path.
pub fn parts(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

fn find<'a>(object: &'a Object, path: &str) -> Result<Option<&'a Value>, ScaleError> {
    let all = parts(path);
    let mut here = object;
    for (at, key) in all.iter().enumerate() {
        let Some(value) = here.get(*key) else { return Ok(None) };
        if at + 1 == all.len() {
            return Ok(Some(value));
        }
        match value {
            Value::Object(inner) => here = inner,
            Value::Null => return Ok(None),
            other => {
                return Err(wrong(&all[..=at].join("."), other, "map[string]interface{}"));
            }
        }
    }
    Ok(None)
}

fn whole(object: &Object, path: &str) -> Result<Option<i64>, ScaleError> {
    match find(object, path)? {
        None => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| wrong(path, value, "int64")),
    }
}

fn text(object: &Object, path: &str) -> Result<String, ScaleError> {
    match find(object, path)? {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong(path, other, "string")),
    }
}

fn wrong(path: &str, value: &Value, expected: &'static str) -> ScaleError {
    let path = parts(path).join(".");
    ScaleError::Accessor { path, value: format_value(value), found: go_type(value), expected }
}

fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Number(n) => gotext::number(n),
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        other => match json_type(other) {
            "bool" => "bool",
            _ => "string",
        },
    }
}

fn set(object: &mut Object, path: &[&str], value: Value) -> Result<(), ScaleError> {
    match path {
        [] => Ok(()),
        [last] => {
            object.insert((*last).to_owned(), value);
            Ok(())
        }
        [first, rest @ ..] => match object.entry(*first).or_insert_with(|| json!({})) {
            Value::Object(inner) => set(inner, rest, value),
            _ => Err(ScaleError::NotAMap(path.join("."))),
        },
    }
}

/// Checks wanted replicas.
pub fn validate_spec(scale: Option<&Scale>, object: &Object, errors: &mut Vec<FieldError>) {
    if let Some(scale) = scale {
        replicas(&scale.spec, object, errors);
    }
}

/// Checks present replicas and the selector.
pub fn validate_status(scale: Option<&Scale>, object: &Object, errors: &mut Vec<FieldError>) {
    let Some(scale) = scale else { return };
    replicas(&scale.status, object, errors);
    if !scale.selector.is_empty()
        && let Err(why) = text(object, &scale.selector)
    {
        errors.push(FieldError::invalid(scale.selector.as_str(), &json!(""), why.to_string()));
    }
}

fn replicas(path: &str, object: &Object, errors: &mut Vec<FieldError>) {
    match whole(object, path) {
        Err(why) => errors.push(FieldError::invalid(path, &json!(0), why.to_string())),
        Ok(Some(n)) if n < 0 => {
            errors.push(FieldError::invalid(path, &json!(n), "should be a non-negative integer"));
        }
        Ok(Some(n)) if n > i64::from(i32::MAX) => {
            errors.push(FieldError::invalid(path, &json!(n), format!("should be less than or equal to {}", i32::MAX)));
        }
        _ => {}
    }
}
