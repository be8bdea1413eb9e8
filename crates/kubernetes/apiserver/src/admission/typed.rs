//! Type checks of a webhook's response: a response that does not decode is an error, with the text of Go's decoder.

use core_kinds::{Defs, decode};
use gotext::{json_type, quote};
use serde_json::Value;

/// Checks the types of the used members of an AdmissionReview.
///
/// # Errors
/// The text of Go's decoder.
pub fn check(review: &Value) -> Result<(), String> {
    let text = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    // Besides these, upstream's decoder knows only kinds of the core group; others are refused later.
    let known = matches!(version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1");
    if !known || kind != "AdmissionReview" {
        return match (version, kind) {
            (_, "Status") if version == "v1" => Ok(()),
            _ => Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:110\"",
                quote(kind),
                quote(version)
            )),
        };
    }
    let Some(response) = review.get("response").filter(|r| !r.is_null()) else { return Ok(()) };
    let wrong = |value: &Value, structure: &str, path: &str, ty: &str| {
        Err(format!("json: cannot unmarshal {} into Go struct field {structure}.{path} of type {ty}", json_type(value)))
    };
    let short = version.rsplit('/').next().unwrap_or_default();
    let Value::Object(members) = response else {
        return wrong(response, "AdmissionReview", "response", &format!("{short}.AdmissionResponse"));
    };
    for (key, value) in members.iter().filter(|(_, v)| !v.is_null()) {
        let (valid, ty) = match key.as_str() {
            "uid" => (value.is_string(), "types.UID"),
            "allowed" => (value.is_boolean(), "bool"),
            "patch" => (value.is_string(), "[]uint8"),
            "patchType" => (value.is_string(), "v1.PatchType"),
            "auditAnnotations" => (texts(value.as_object().map(|o| o.values())), "map[string]string"),
            "warnings" => (texts(value.as_array().map(|l| l.iter())), "[]string"),
            "status" => (value.is_object(), "v1.Status"),
            _ => (true, ""),
        };
        if !valid {
            let (value, ty) = within(value, ty);
            return wrong(
                value,
                "AdmissionResponse",
                &format!("response.{key}"),
                &ty.replace("v1.Patch", &format!("{short}.Patch")),
            );
        }
    }
    if let Some(patch) = members.get("patch").and_then(Value::as_str) {
        decode::base64_text(patch).map_err(|why| why.to_string())?;
    }
    match (members.get("status"), Defs::get().kind("", "v1", "Status")) {
        (Some(Value::Object(status)), Some(def)) => {
            decode::within(def, &mut status.clone(), "response.status").map_err(|why| why.to_string())
        }
        _ => Ok(()),
    }
}

fn texts<'a>(values: Option<impl Iterator<Item = &'a Value>>) -> bool {
    values.is_some_and(|mut v| v.all(|v| v.is_string() || v.is_null()))
}

/// The member of the wrong type, with the type expected of it, if the value is a map or list.
fn within<'a>(value: &'a Value, ty: &'static str) -> (&'a Value, &'static str) {
    let inner = match value {
        Value::Object(map) if ty == "map[string]string" => map.values().find(|v| !v.is_string()),
        Value::Array(list) if ty == "[]string" => list.iter().find(|v| !v.is_string()),
        _ => None,
    };
    inner.map_or((value, ty), |v| (v, "string"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_types_have_gos_message() {
        let error_of = |response: Value| {
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            check(&review).unwrap_err()
        };
        let start = "json: cannot unmarshal ";
        assert_eq!(
            error_of(json!({"status": {"message": false}})),
            format!("{start}bool into Go struct field Status.response.status.message of type string")
        );
        assert_eq!(
            error_of(json!({"allowed": "yes"})),
            format!("{start}string into Go struct field AdmissionResponse.response.allowed of type bool")
        );
        assert_eq!(
            error_of(json!({"warnings": [1]})),
            format!("{start}number into Go struct field AdmissionResponse.response.warnings of type string")
        );
        assert_eq!(error_of(json!({"patch": "%"})), "illegal base64 data at input byte 0");
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        assert_eq!(
            check(&pod).unwrap_err(),
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:110\""
        );
    }
}
