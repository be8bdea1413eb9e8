//! Custom resources: the resources that a definition serves, and the validation by their schemas. The crate
//! `structural_schema` applies schemas to objects; definitions themselves are validated in [`crate::strategies`].

mod check;
pub mod compiled;
mod custom;
pub mod embedded;

use std::sync::Arc;

use serde_json::Value;
use structural_schema::rules::CelRules;
use structural_schema::schema::Schema;

use crate::jsonpath::JsonPath;
use crate::object::{Object, strings};
use crate::resource::{Column, Flavor, Resource, version_rank};
use crate::scale::Scale;
use crate::versions::Versions;

/// The group and plural of a definition.
pub fn names(crd: &Object) -> (String, String) {
    let text = |pointer: &[&str]| {
        let mut value = crd.get("spec");
        for key in pointer {
            value = value.and_then(|v| v.get(key));
        }
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    (text(&["group"]), text(&["names", "plural"]))
}

/// Whether the definition is established.
pub fn established(crd: &Object) -> bool {
    crd.get("status").and_then(Value::as_object).is_some_and(established_status)
}

/// Whether a definition with this status is established.
pub fn established_status(status: &Object) -> bool {
    status.get("conditions").and_then(Value::as_array).is_some_and(|conditions| {
        conditions
            .iter()
            .any(|c| c.get("type") == Some(&"Established".into()) && c.get("status") == Some(&"True".into()))
    })
}

/// The served versions of an established definition. Rows from `fresh_since` on match its storage version's schema.
pub fn resources(crd: &Object, fresh_since: u64) -> Vec<Resource> {
    if !established(crd) {
        return Vec::new();
    }
    let versions = crd.get("spec").and_then(|s| s.get("versions")).and_then(Value::as_array);
    let served = |v: &&Value| v.get("served") == Some(&Value::Bool(true));
    let all = || versions.into_iter().flatten();
    let unserved = all().filter(|v| !served(v)).filter_map(|v| resource(crd, v, u64::MAX, None)).collect();
    let common = Versions::of(crd, unserved).map(Arc::new);
    all().filter(served).filter_map(|v| resource(crd, v, fresh_since, common.clone())).collect()
}

/// The warning to clients of a deprecated version. Names the best newer version that is served, if any.
fn deprecated(spec: &Value, group: &str, name: &str, kind: &str) -> String {
    let text = format!("{group}/{name} {kind} is deprecated");
    let set = |version: &Value, key: &str| version.get(key) == Some(&Value::Bool(true));
    let all = spec.get("versions").and_then(Value::as_array);
    let served = all.into_iter().flatten().filter(|v| set(v, "served") && !set(v, "deprecated"));
    let newer =
        served.filter_map(|v| v.get("name").and_then(Value::as_str)).filter(|v| version_rank(v) > version_rank(name));
    match newer.max_by_key(|v| version_rank(v)) {
        Some(better) => format!("{text}; use {group}/{better} {kind}"),
        None => text,
    }
}

fn resource(crd: &Object, version: &Value, fresh_since: u64, versions: Option<Arc<Versions>>) -> Option<Resource> {
    let spec = crd.get("spec")?;
    let names = crd.get("status").and_then(|s| s.get("acceptedNames")).filter(|n| n.get("kind") != Some(&"".into()));
    let names = names.or_else(|| spec.get("names"))?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    let schema = match version.get("schema").and_then(|s| s.get("openAPIV3Schema")) {
        Some(schema) => Schema::parse(schema).ok()?,
        None => Schema { preserve_unknown: true, ..Schema::default() },
    };
    let rules = match version.get("schema").and_then(|s| s.get("openAPIV3Schema")) {
        Some(source) if schema.has_cel() => CelRules::new(source),
        _ => CelRules::default(),
    };
    let storage_version = version.get("storage") == Some(&Value::Bool(true));
    let selectable = version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|f| f.get("jsonPath").and_then(Value::as_str))
        .filter_map(|p| Some((p.trim_start_matches('.').to_owned(), JsonPath::parse(p).ok()?)))
        .collect();
    let name = text(version, "name");
    let kind = text(names, "kind");
    let deprecation = (version.get("deprecated") == Some(&Value::Bool(true))).then(|| {
        let warning = text(version, "deprecationWarning");
        if warning.is_empty() { deprecated(spec, &group, &name, &kind) } else { warning }
    });
    Some(Resource {
        storage: format!("{group}/{plural}").into(),
        version: name,
        singular: text(names, "singular"),
        list_kind: text(names, "listKind"),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: text(spec, "scope") == "Namespaced",
        status: version.get("subresources").and_then(|s| s.get("status")).is_some_and(Value::is_object),
        scale: Scale::of(version),
        terminating: crate::object::is_deleting(crd),
        columns: columns(version),
        selectable,
        deprecation,
        strategy: &custom::Custom,
        // Rows do not record which version wrote them, so only the storage version can skip checks.
        flavor: Flavor::Custom {
            schema,
            rules: Box::new(rules),
            fresh_since: if storage_version { fresh_since } else { u64::MAX },
            versions,
        },
        kind,
        group,
        plural,
    })
}

/// A version's columns. As upstream, the first one with an invalid path drops all that follow it.
fn columns(version: &Value) -> Vec<Column> {
    let list = version.get("additionalPrinterColumns").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .map_while(|column| {
            let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            Some(Column {
                path: Some(JsonPath::parse(&text("jsonPath")).ok()?),
                name: text("name"),
                ty: text("type"),
                format: text("format"),
                description: match text("description") {
                    none if none.is_empty() => {
                        format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath"))
                    }
                    given => given,
                },
                priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            })
        })
        .collect()
}
