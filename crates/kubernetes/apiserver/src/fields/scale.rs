//! Owners of a custom resource's replicas, converted for its scale subresource and back (apimachinery
//! `util/managedfields/scalehandler.go`).

use serde_json::Value;
use structured_merge::{Element, Set};

use super::managed::{self, Entry, Fields};

/// Version in the owners of a Scale's fields.
const SCALE: &str = "autoscaling/v1";

/// Path of the wanted replicas by version (`group/version`): empty for a version without a scale, `None` for an
/// unknown version.
pub type Places<'a> = &'a dyn Fn(&str) -> Option<Vec<String>>;

fn path(names: &[String]) -> Vec<Element> {
    names.iter().map(|name| Element::Field(name.clone())).collect()
}

fn of(names: &[String]) -> Set {
    let mut set = Set::default();
    set.add(path(names));
    set
}

fn in_scale() -> Vec<String> {
    vec!["spec".to_owned(), "replicas".to_owned()]
}

/// The owners of a Scale from the owners of its object.
pub fn to_scale(entries: Option<&Value>, places: Places<'_>) -> Result<Option<Value>, String> {
    let mut out = Vec::new();
    for entry in managed::decode(entries, false)? {
        let place = places(&entry.api_version).filter(|names| !names.is_empty());
        if place.is_some_and(|names| entry.set().has(&path(&names))) {
            out.push(Entry { api_version: SCALE.to_owned(), fields: Fields::Set(of(&in_scale())), ..entry });
        }
    }
    Ok(managed::encode(out))
}

/// The owners of an object from those of its Scale, which was written in this version of the object.
pub fn to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    version: &str,
    places: Places<'_>,
) -> Result<Option<Value>, String> {
    let parents = managed::decode(parent, false)?;
    let mut scaled = managed::decode(scale, false)?;
    let times: Vec<(String, Option<i64>)> = parents.iter().map(|e| (e.identity(), e.time)).collect();
    let mut out = Vec::new();
    for entry in parents {
        let Some(names) = places(&entry.api_version) else { continue };
        if names.is_empty() || !entry.set().has(&path(&names)) {
            out.push(entry);
        } else if let Some(at) = scaled.iter().position(|s| s.identity() == entry.identity()) {
            scaled.remove(at);
            out.push(entry);
        } else {
            let left = entry.set().difference(&of(&names));
            if !left.is_empty() {
                out.push(Entry { fields: Fields::Set(left), ..entry });
            }
        }
    }
    for entry in scaled.into_iter().filter(|s| s.set().has(&path(&in_scale()))) {
        // Times are kept by identity, which contains the version for updates; upstream loses theirs for this reason.
        let identity = entry.identity();
        let time = times.iter().find(|(known, _)| *known == identity).and_then(|(_, time)| *time);
        let fields = Fields::Set(of(&places(version).unwrap_or_default()));
        out.push(Entry { api_version: version.to_owned(), time, fields, ..entry });
    }
    Ok(managed::encode(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places(version: &str) -> Option<Vec<String>> {
        match version {
            "x.io/v1" => Some(vec!["spec".to_owned(), "n".to_owned()]),
            "x.io/v2" => Some(Vec::new()),
            _ => None,
        }
    }

    fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": version, "time": "1970-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn replicas_change_hands_through_the_scale() {
        let owned = json!([
            entry("a", "Apply", "x.io/v1", json!({"f:spec": {"f:n": {}, "f:x": {}}})),
            entry("b", "Update", "x.io/v2", json!({"f:spec": {"f:n": {}}})),
            entry("c", "Update", "x.io/v0", json!({"f:spec": {"f:n": {}}})),
        ]);
        let seen = to_scale(Some(&owned), &places).unwrap().unwrap();
        assert_eq!(seen.as_array().unwrap().len(), 1);
        assert_eq!(seen[0]["apiVersion"], "autoscaling/v1");
        assert_eq!(seen[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
        // Without a change everything is kept except owners in unknown versions.
        let back = to_parent(Some(&owned), Some(&seen), "x.io/v1", &places).unwrap().unwrap();
        assert_eq!(back, json!([owned[0], owned[1]]));
        // Another manager takes ownership.
        let taken = json!([entry("d", "Apply", "autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}))]);
        let back = to_parent(Some(&owned), Some(&taken), "x.io/v1", &places).unwrap().unwrap();
        let found: Vec<(&str, &Value)> =
            back.as_array().unwrap().iter().map(|e| (e["manager"].as_str().unwrap(), &e["fieldsV1"])).collect();
        let (x, n) = (json!({"f:spec": {"f:x": {}}}), json!({"f:spec": {"f:n": {}}}));
        assert_eq!(found, [("d", &n), ("a", &x), ("b", &n)]);
        assert!(back[0].get("time").is_none());
    }
}
