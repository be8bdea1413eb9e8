//! Field selectors of the server's own kinds.

use serde_json::Value;

use crate::jsonpath::JsonPath;
use crate::object::Object;

/// Fields for selectors besides name and namespace.
pub fn fields(group: &str, plural: &str) -> Vec<(String, JsonPath)> {
    let (label, path): (&[&str], &[&str]) = match (group, plural) {
        ("", "events") => (
            &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            &["", "", "", "", "", "", "", "", "", "source.component", ""],
        ),
        ("events.k8s.io", "events") => (
            &[
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "reason",
                "reportingController",
                "type",
            ],
            &["", "", "", "", "", "", "", ""],
        ),
        ("", "secrets") => (&["type"], &[""]),
        ("", "namespaces") => (&["status.phase"], &[""]),
        ("", "nodes") => (&["spec.unschedulable"], &[""]),
        ("", "services") => (&["spec.clusterIP", "spec.type"], &["", ""]),
        ("certificates.k8s.io", _) => (&["spec.signerName"], &[""]),
        _ => (&[], &[]),
    };
    label
        .iter()
        .zip(path)
        .filter_map(|(label, path)| {
            let path = if path.is_empty() { label } else { path };
            Some(((*label).to_owned(), JsonPath::parse(&format!(".{path}")).ok()?))
        })
        .collect()
}

/// What a selector compares with if the field is absent or empty.
pub fn if_absent(path: &str, object: &Object) -> String {
    match path {
        "spec.unschedulable" => "false".to_owned(),
        // An Event without a source comes from its reporter.
        "source" => object.get("reportingComponent").and_then(Value::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}
