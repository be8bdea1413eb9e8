//! What others have changed of a host since it last worked: by `metadata.managedFields` of the object and of the Secret with its BMC's credentials, which name
//! fields and never values.

use api::metal3::{BareMetalHost, label};
use api::metamorph::{HostOperation, OperationPhase, OperationType};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;
use terms::clean;

/// Most fields that are named of one writer.
const MOST_FIELDS: usize = 8;
/// Most writers that are told of.
const MOST_WRITERS: usize = 6;
/// Deepest field that is named.
const DEEPEST: usize = 4;
/// Longest name of a writer or field, characters.
const MAX_NAME: usize = 80;

/// When the host was last seen to do what it should.
pub fn last_worked(host: &BareMetalHost, operations: &[HostOperation]) -> Option<Timestamp> {
    let looks = [OperationType::CollectLogs, OperationType::Diagnose, OperationType::Locate];
    let ended = |operation: &HostOperation| {
        let status = operation.status.as_ref().filter(|status| status.phase == OperationPhase::Succeeded)?;
        status.end_time.as_ref().map(|time| time.0)
    };
    let operations = operations.iter().filter(|operation| !looks.contains(&operation.spec.operation)).filter_map(ended);
    let history = host.status.as_ref().map(|status| &status.operation_history);
    let history = history.into_iter().flat_map(|history| {
        [&history.register, &history.inspect, &history.provision, &history.deprovision]
            .into_iter()
            .filter_map(|metric| metric.end.as_ref().map(|time| time.0))
    });
    operations.chain(history).max()
}

/// Who has written which fields of an object since then, lines. The status is the controller's, and so is what it writes beside it.
pub fn since(what: &str, object: &ObjectMeta, then: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in object.managed_fields.iter().flatten() {
        let later = entry.time.as_ref().is_some_and(|time| time.0 > then);
        if !later || entry.subresource.as_deref().is_some_and(|sub| !sub.is_empty()) {
            continue;
        }
        let fields = fields(entry);
        if fields.is_empty() {
            continue;
        }
        if lines.len() == MOST_WRITERS {
            lines.push("and by further writers".to_owned());
            break;
        }
        let more = fields.len().saturating_sub(MOST_FIELDS);
        let mut named = fields.into_iter().take(MOST_FIELDS).collect::<Vec<_>>().join(", ");
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        let by = clean(entry.manager.as_deref().unwrap_or("somebody"), MAX_NAME);
        let at = entry.time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
        lines.push(format!("{what}, at {at} by {by}, one or more of: {named}"));
    }
    lines
}

/// The fields of others that an entry has, by their paths.
fn fields(entry: &ManagedFieldsEntry) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(fields) = &entry.fields_v1 {
        collect(&fields.0, &mut Vec::new(), &mut found);
    }
    found.retain(|path| {
        let ours = path.starts_with("metadata.")
            && ["metamorph.metal3.io/", "environment.metal3.io", label::CLASS_PREFIX]
                .iter()
                .any(|own| path.contains(own));
        !ours
            && !path.starts_with("metadata.finalizers")
            && !path.starts_with("metadata.ownerReferences")
            && !path.starts_with("status")
    });
    found
}

fn collect(value: &Value, path: &mut Vec<String>, found: &mut Vec<String>) {
    // A definition may have thousands of fields; what is shown are a few.
    if found.len() > 256 {
        return;
    }
    let children: Vec<_> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.strip_prefix("f:")?, value)))
        .collect();
    if children.is_empty() || path.len() >= DEEPEST {
        // `f:metadata` and `f:annotations` alone say that the map exists.
        if path.len() > 1 && !matches!(path.last().map(String::as_str), Some("annotations" | "labels")) {
            found.push(path.join("."));
        }
        return;
    }
    for (key, value) in children {
        path.push(clean(key, MAX_NAME));
        collect(value, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(fields: &Value, at: &str, more: &Value) -> ObjectMeta {
        let mut entry = json!({ "manager": "kubectl-\u{1b}[2Jedit", "operation": "Update", "apiVersion": "metal3.io/v1alpha1", "fieldsType": "FieldsV1", "time": at, "fieldsV1": fields });
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        serde_json::from_value(json!({ "name": "h", "managedFields": [entry] })).unwrap()
    }

    #[test]
    fn fields_are_named_with_their_writer_and_the_servers_own_are_not() {
        let then: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let fields = json!({
            "f:spec": { "f:image": { ".": {}, "f:url": {}, "f:checksum": {} }, "f:online": {} },
            "f:metadata": { "f:annotations": { ".": {}, "f:metamorph.metal3.io/diagnosis": {}, "f:reboot.metal3.io": {} }, "f:finalizers": { ".": {}, "v:\"x\"": {} } },
        });
        let changed = object(&fields, "2026-03-01T12:30:00Z", &json!({}));
        let lines = since("BareMetalHost", &changed, then);
        assert_eq!(
            lines,
            [
                "BareMetalHost, at 2026-03-01T12:30:00Z by kubectl- [2Jedit, one or more of: spec.image.url, spec.image.checksum, spec.online, metadata.annotations.reboot.metal3.io"
            ]
        );
        assert!(since("x", &object(&fields, "2026-03-01T11:30:00Z", &json!({})), then).is_empty(), "before it worked");
        let status = object(&fields, "2026-03-01T12:30:00Z", &json!({ "subresource": "status" }));
        assert!(since("x", &status, then).is_empty());
    }

    #[test]
    fn a_deep_or_wide_object_is_bounded() {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({ "f:a": deep });
        }
        let mut wide = serde_json::Map::new();
        for number in 0..10_000 {
            wide.insert(format!("f:{number}{}", "x".repeat(200)), json!({}));
        }
        let then = Timestamp::UNIX_EPOCH;
        let lines = since("x", &object(&json!({ "f:spec": deep }), "2026-03-01T12:30:00Z", &json!({})), then);
        assert!(lines[0].ends_with("spec.a.a.a"), "{lines:?}");
        let lines = since("x", &object(&json!({ "f:spec": wide }), "2026-03-01T12:30:00Z", &json!({})), then);
        assert!(lines[0].len() < 1500 && lines[0].contains(" more"), "{}", lines[0].len());
    }

    #[test]
    fn looks_alone_are_no_sign_that_a_host_has_worked() {
        let host: BareMetalHost = serde_json::from_value(json!({
            "metadata": { "name": "h" },
            "status": { "operationalStatus": "OK", "errorCount": 0, "errorMessage": "", "poweredOn": true, "provisioning": { "ID": "", "state": "provisioned" }, "operationHistory": { "provision": { "end": "2026-03-01T11:00:00Z" } } },
        }))
        .unwrap();
        let operation = |kind: &str, phase: &str| -> HostOperation {
            serde_json::from_value(json!({
                "metadata": { "name": "o" }, "spec": { "type": kind, "host": { "name": "h" } },
                "status": { "phase": phase, "endTime": "2026-03-01T12:00:00Z" },
            }))
            .unwrap()
        };
        let time = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let looks =
            [operation("CollectLogs", "Succeeded"), operation("Locate", "Succeeded"), operation("Service", "Failed")];
        assert_eq!(last_worked(&host, &looks), time("2026-03-01T11:00:00Z"));
        assert_eq!(last_worked(&host, &[operation("Service", "Succeeded")]), time("2026-03-01T12:00:00Z"));
    }
}
