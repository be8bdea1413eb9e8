//! Operations of resources. Clients look here for what a PATCH understands (`dryRun`, `fieldValidation`).

use serde_json::{Map, Value, json};

use super::{path_of, schemas};
use crate::resource::{Flavor, Resource};

/// How v2 and v3 write the same things.
pub struct Style {
    /// A query or path parameter of a type.
    pub parameter: fn(&str, &str, &str) -> Value,
    /// Puts the body's schema into an operation, for these media types.
    pub body: fn(&mut Value, Value, &[&str]),
    /// The answer with a schema.
    pub answer: fn(Value) -> Value,
    /// A reference.
    pub refer: schemas::Refer,
}

/// The paths of a resource.
pub fn of(resource: &Resource, style: &Style) -> Vec<(String, Value)> {
    let base = format!("/{}", path_of(&resource.group, &resource.version));
    let scoped = if resource.namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
    let plural = &resource.plural;
    if resource.is_review() {
        let made =
            json!({"post": operation(resource, style, "post", ""), "parameters": parameters(resource, style, false)});
        return vec![(format!("{scoped}/{plural}"), made)];
    }
    let mut out = vec![
        (format!("{scoped}/{plural}"), collection(resource, style)),
        (format!("{scoped}/{plural}/{{name}}"), item(resource, style, false)),
    ];
    if resource.namespaced {
        let mut all = Map::new();
        all.insert("get".into(), operation(resource, style, "list", "AllNamespaces"));
        out.push((format!("{base}/{plural}"), Value::Object(all)));
    }
    if resource.status {
        out.push((format!("{scoped}/{plural}/{{name}}/status"), item(resource, style, true)));
    }
    out
}

fn parameters(resource: &Resource, style: &Style, named: bool) -> Value {
    let mut list = Vec::new();
    if named {
        list.push((style.parameter)("name", "path", "string"));
    }
    if resource.namespaced {
        list.push((style.parameter)("namespace", "path", "string"));
    }
    Value::Array(list)
}

fn collection(resource: &Resource, style: &Style) -> Value {
    json!({"get": operation(resource, style, "list", ""), "post": operation(resource, style, "post", ""),
        "delete": operation(resource, style, "deletecollection", ""), "parameters": parameters(resource, style, false)})
}

fn item(resource: &Resource, style: &Style, status: bool) -> Value {
    let suffix = if status { "Status" } else { "" };
    let mut out = json!({"get": operation(resource, style, "get", suffix), "put": operation(resource, style, "put", suffix),
        "patch": operation(resource, style, "patch", suffix), "parameters": parameters(resource, style, true)});
    if !status {
        out["delete"] = operation(resource, style, "delete", suffix);
    }
    out
}

fn operation(resource: &Resource, style: &Style, action: &str, suffix: &str) -> Value {
    let name = schemas::name_of(resource);
    let verb = match action {
        "get" => "read",
        "post" => "create",
        "put" => "replace",
        "deletecollection" => "deleteCollection",
        other => other,
    };
    let scope = if resource.namespaced && suffix != "AllNamespaces" { "Namespaced" } else { "" };
    let id = format!("{verb}{}{scope}{}{suffix}", id_of(resource), resource.kind);
    let answered = match action {
        "list" => (style.refer)(&format!("{name}List"), ""),
        "delete" | "deletecollection" => (style.refer)("io.k8s.apimachinery.pkg.apis.meta.v1.Status", ""),
        _ => (style.refer)(&name, ""),
    };
    let queries: &[(&str, &str)] = match action {
        "list" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        "get" => &[],
        "patch" => {
            &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")]
        }
        "post" | "put" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "delete" => &[("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("propagationPolicy", "string")],
        _ => &[("dryRun", "string"), ("fieldSelector", "string"), ("labelSelector", "string")],
    };
    let list: Vec<Value> = queries.iter().map(|(n, t)| (style.parameter)(n, "query", t)).collect();
    let mut out = json!({"operationId": id, "description": format!("{verb} {}", resource.kind), "parameters": list,
        "responses": {"200": (style.answer)(answered)}, "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind}});
    match action {
        "post" | "put" => (style.body)(&mut out, (style.refer)(&name, ""), &["application/json", "application/yaml"]),
        "patch" => {
            let mut media = vec!["application/json-patch+json", "application/merge-patch+json"];
            if matches!(resource.flavor, Flavor::Builtin(_)) {
                media.push("application/strategic-merge-patch+json");
            }
            media.push("application/apply-patch+yaml");
            (style.body)(&mut out, json!({"type": "object"}), &media);
        }
        "delete" | "deletecollection" => {
            let options = (style.refer)("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "");
            (style.body)(&mut out, options, &["application/json"]);
        }
        _ => {}
    }
    out
}

/// Group and version as part of an operation's id.
fn id_of(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    let capital = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|c| c.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
    };
    group.split('.').chain([resource.version.as_str()]).map(capital).collect()
}
