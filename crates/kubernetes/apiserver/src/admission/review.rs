//! The AdmissionReview: the request as upstream encodes it, and the checks of the response.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Attributes;
use crate::object::{Object, strings};
use crate::resource::Resource;
use crate::status::ApiError;

/// A review request.
pub struct Question {
    uid: String,
    v1: bool,
    /// The review to send.
    pub body: Bytes,
}

/// A valid response.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the change is allowed.
    pub allowed: bool,
    /// The reasons of a refusal, a `meta.k8s.io` Status.
    pub result: Option<Value>,
    /// A patch to apply, JSON text.
    pub patch: Vec<u8>,
    /// Kind of the patch.
    pub patch_type: String,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit log.
    pub annotations: Vec<(String, String)>,
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn gvr(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.plural})
}

/// The request part of a review, which expressions see as `request`, too.
pub fn request(about: &Attributes<'_>, seen_as: &Resource, uid: &str) -> Map<String, Value> {
    let change = about.change;
    let mut request = Map::new();
    request.insert("uid".into(), json!(uid));
    request.insert("kind".into(), gvk(about.kind.unwrap_or(seen_as)));
    request.insert("resource".into(), gvr(seen_as));
    request.insert("requestKind".into(), gvk(about.kind.unwrap_or(about.resource)));
    request.insert("requestResource".into(), gvr(about.resource));
    let subs = [("subResource", change.sub.as_str()), ("requestSubResource", change.sub.as_str())];
    for (key, value) in subs.into_iter().chain([("name", about.name), ("namespace", about.ns)]) {
        if !value.is_empty() {
            request.insert(key.into(), json!(value));
        }
    }
    request.insert("operation".into(), json!(about.operation.word()));
    request.insert("userInfo".into(), change.user.to_json());
    request.insert("dryRun".into(), json!(change.dry));
    let mut options = Map::new();
    options.insert("kind".into(), json!(about.operation.options_kind()));
    options.insert("apiVersion".into(), json!("meta.k8s.io/v1"));
    options.extend(change.options.clone());
    request.insert("options".into(), Value::Object(options));
    request
}

impl Question {
    /// Encodes the request in the first version that the webhook lists and this server knows.
    pub fn new(
        versions: &[String],
        about: &Attributes<'_>,
        seen_as: &Resource,
        (object, old): (Option<&Object>, Option<&Object>),
        uid: String,
    ) -> Result<Self, String> {
        let version = versions
            .iter()
            .find(|v| matches!(v.as_str(), "v1" | "v1beta1"))
            .ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?;
        let mut request = request(about, seen_as, &uid);
        request.insert("object".into(), json!(object));
        request.insert("oldObject".into(), json!(old));
        let review = json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"),
            "request": request});
        Ok(Self { uid, v1: version == "v1", body: gotext::encode(&review).into() })
    }

    /// Parses the response. The error is upstream's text for an invalid one.
    pub fn verdict(&self, mutating: bool, review: &Value) -> Result<Verdict, String> {
        let response = review.get("response").filter(|r| r.is_object()).ok_or("webhook response was absent")?;
        let text = |key: &str| response.get(key).and_then(Value::as_str).unwrap_or_default();
        if self.v1 {
            self.identity(review, text("uid"))?;
        }
        let patch =
            STANDARD.decode(text("patch")).map_err(|e| format!("illegal base64 data in response.patch: {e}"))?;
        let patch_type = response.get("patchType").filter(|t| !t.is_null()).and_then(Value::as_str);
        if self.v1 {
            patch_rules(mutating, &patch, patch_type)?;
        }
        let patch_type = if self.v1 { patch_type.unwrap_or_default() } else { "JSONPatch" };
        let annotations = response.get("auditAnnotations").and_then(Value::as_object).into_iter().flatten();
        Ok(Verdict {
            annotations: annotations.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect(),
            allowed: response.get("allowed") == Some(&Value::Bool(true)),
            result: response.get("status").filter(|s| s.is_object()).cloned(),
            patch: if mutating { patch } else { Vec::new() },
            patch_type: patch_type.to_owned(),
            warnings: strings(response.get("warnings")),
        })
    }

    fn identity(&self, review: &Value, uid: &str) -> Result<(), String> {
        if uid != self.uid {
            return Err(format!("expected response.uid=\"{}\", got \"{uid}\"", self.uid));
        }
        let text = |key: &str| review.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
            ));
        }
        Ok(())
    }
}

fn patch_rules(mutating: bool, patch: &[u8], patch_type: Option<&str>) -> Result<(), String> {
    let text = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType".to_owned(),
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch".to_owned(),
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"".to_owned(),
        (false, false, _) => "validating webhook may not return response.patch".to_owned(),
        (false, true, Some(_)) => "validating webhook may not return response.patchType".to_owned(),
        _ => return Ok(()),
    };
    Err(text)
}

/// The refusal of a webhook for the client: its Status with the server's prefix, and never a success.
pub fn refused(hook: &str, result: Option<Value>) -> ApiError {
    let mut status = match result {
        Some(Value::Object(status)) => status,
        _ => Map::new(),
    };
    let text =
        |status: &Map<String, Value>, key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let denied = format!("admission webhook \"{hook}\" denied the request");
    let message = match (text(&status, "message"), text(&status, "reason")) {
        (message, _) if !message.is_empty() => format!("{denied}: {message}"),
        (_, reason) if !reason.is_empty() => format!("{denied}: {reason}"),
        _ => format!("{denied} without explanation"),
    };
    let code = status.get("code").and_then(Value::as_u64).and_then(|c| u16::try_from(c).ok()).unwrap_or(0);
    // Codes below 400 become 400. Codes that HTTP does not have become 500; the text explains the refusal.
    let code = match code {
        0..400 => 400,
        1000.. => 500,
        code => code,
    };
    if matches!(text(&status, "status").as_str(), "" | "Success") {
        status.insert("status".into(), json!("Failure"));
    }
    status.insert("message".into(), json!(message));
    status.insert("code".into(), json!(code));
    ApiError::given(code, message, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(v1: bool) -> Question {
        Question { uid: "u".into(), v1, body: Bytes::new() }
    }

    fn review(response: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    #[test]
    fn answers_that_do_not_hold_are_reported() {
        let error_of = |mutating, review: Value| question(true).verdict(mutating, &review).unwrap_err();
        assert_eq!(error_of(true, json!({})), "webhook response was absent");
        assert_eq!(error_of(true, review(json!({"uid": "x"}))), "expected response.uid=\"u\", got \"x\"");
        let other = json!({"apiVersion": "a/v1", "kind": "B", "response": {"uid": "u"}});
        assert_eq!(
            error_of(true, other),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got a/v1, Kind=B"
        );
        let patched = review(json!({"uid": "u", "allowed": true, "patch": "W10="}));
        assert_eq!(error_of(true, patched.clone()), "webhook returned response.patch but not response.patchType");
        assert_eq!(error_of(false, patched.clone()), "validating webhook may not return response.patch");
        assert_eq!(question(false).verdict(true, &patched).unwrap().patch_type, "JSONPatch");
    }

    #[test]
    fn refusals_keep_the_webhooks_status() {
        let error = refused("h", Some(json!({"code": 418, "message": "tea", "reason": "Pot", "details": {"x": 1}})));
        let status = error.to_status();
        assert_eq!((error.code, &status["message"]), (418, &json!("admission webhook \"h\" denied the request: tea")));
        assert_eq!((&status["reason"], &status["details"]), (&json!("Pot"), &json!({"x": 1})));
        let bare = refused("h", None);
        assert_eq!(
            (bare.code, bare.message.as_str()),
            (400, "admission webhook \"h\" denied the request without explanation")
        );
        assert_eq!(refused("h", Some(json!({"code": 200, "reason": "R"}))).code, 400);
    }
}
