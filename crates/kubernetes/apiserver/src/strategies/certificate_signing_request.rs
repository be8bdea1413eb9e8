//! CertificateSigningRequests: stored for those who sign; nothing here does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::checks::{all_invalid, list, member, text};
use crate::object::{Object, child};
use crate::status::FieldError;
use crate::strategy::{ExtraRights, Findings, Kind, Strategy, Writing};
use crate::user::User;

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    short_names: &["csr"],
    namespaced: false,
    status: true,
    strategy: &CertificateSigningRequest,
    ..Kind::NEW
};

/// The shortest life that may be asked for, in seconds.
const SHORTEST: i64 = 600;

/// The rules of CertificateSigningRequests.
#[derive(Debug)]
struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn prepare_update(&self, object: &mut Object, old: &Object) {
        prepare_update(object, old);
    }

    fn prepare_part(&self, object: &mut Object, old: &Object, sub: &str) {
        prepare_part(object, old, sub);
    }

    fn set_requester(&self, object: &mut Object, user: &User) {
        set_requester(object, user);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, writing.sub, &mut found.errors);
    }

    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::Signer
    }

    fn subresources(&self) -> &'static [&'static str] {
        &["approval"]
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("spec.signerName", "")]
    }
}

/// Records the requesting user in a new request, replacing what the client sent.
fn set_requester(object: &mut Object, user: &User) {
    let requester = user.to_json();
    let spec = child(object, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        match requester.get(key) {
            Some(value) => spec.insert(key.into(), value.clone()),
            None => spec.shift_remove(key),
        };
    }
}

/// Keeps spec and status, which an update may not change.
fn prepare_update(object: &mut Object, old: &Object) {
    for key in ["spec", "status"] {
        match old.get(key) {
            Some(value) => object.insert(key.into(), value.clone()),
            None => object.shift_remove(key),
        };
    }
}

/// Keeps the certificate when the approval is written.
fn prepare_part(object: &mut Object, old: &Object, sub: &str) {
    if sub != "approval" {
        return;
    }
    let status = child(object, "status");
    match member(old, "status").get("certificate") {
        Some(certificate) => status.insert("certificate".into(), certificate.clone()),
        None => status.shift_remove("certificate"),
    };
}

/// Checks a request as `sub` writes it.
fn validate(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    if old.is_none() {
        let body = STANDARD.decode(text(spec, "request")).unwrap_or_default();
        if CertificateSigningRequestDer::from_pem_slice(&body).is_err() {
            let detail = "PEM block type must be CERTIFICATE REQUEST";
            errors.push(FieldError::invalid("spec.request", &json!(text(spec, "request")), detail));
        }
        if list(spec, "usages").is_empty() {
            errors.push(FieldError::required("spec.usages", ""));
        }
        signer(text(spec, "signerName"), errors);
        let seconds = spec.get("expirationSeconds").and_then(Value::as_i64);
        if let Some(seconds) = seconds.filter(|s| *s < SHORTEST) {
            let detail = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.push(FieldError::invalid("spec.expirationSeconds", &json!(seconds), detail));
        }
    }
    let after = list(member(object, "status"), "conditions");
    if let Some(old) = old {
        decisions(after, list(member(old, "status"), "conditions"), sub, errors);
    }
    conditions(after, errors);
}

/// Checks that decisions are not removed, and approval or denial are not added through the status.
fn decisions(after: &[Value], before: &[Value], sub: &str, errors: &mut Vec<FieldError>) {
    for kind in ["Approved", "Denied", "Failed"] {
        let has = |conditions: &[Value]| conditions.iter().any(|c| text(c, "type") == kind);
        let what = match (has(before), has(after)) {
            (true, false) => "remove",
            (false, true) if sub == "status" && kind != "Failed" => "add",
            _ => continue,
        };
        let detail = format!("updates may not {what} a condition of type {}", gotext::quote(kind));
        errors.push(FieldError::forbidden("status.conditions", detail));
    }
}

fn signer(name: &str, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.signerName";
    if name.is_empty() {
        errors.push(FieldError::required(FIELD, ""));
        return;
    }
    match name.split_once('/') {
        Some((domain, path)) if !path.is_empty() && !path.contains('/') => {
            all_invalid(FIELD, &json!(name), names::dns_1123_subdomain(domain), errors);
        }
        _ => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.push(FieldError::invalid(FIELD, &json!(name), detail));
        }
    }
}

fn conditions(conditions: &[Value], errors: &mut Vec<FieldError>) {
    let has = |kind: &str| conditions.iter().any(|c| text(c, "type") == kind);
    for (at, condition) in conditions.iter().enumerate() {
        let field = |key: &str| format!("status.conditions[{at}].{key}");
        let (kind, state) = (text(condition, "type"), text(condition, "status"));
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), ""));
        }
        match state {
            "" => errors.push(FieldError::required(field("status"), "")),
            "True" => {}
            "False" | "Unknown" if !matches!(kind, "Approved" | "Denied" | "Failed") => {}
            "False" | "Unknown" => {
                errors.push(FieldError::not_supported(field("status"), &json!(state), &["True"]));
            }
            other => {
                let known = ["False", "True", "Unknown"];
                errors.push(FieldError::not_supported(field("status"), &json!(other), &known));
            }
        }
    }
    if has("Approved") && has("Denied") {
        let at = conditions.iter().rposition(|c| matches!(text(c, "type"), "Approved" | "Denied")).unwrap_or_default();
        let detail = "Approved and Denied conditions are mutually exclusive";
        let kind = json!(text(&conditions[at], "type"));
        errors.push(FieldError::invalid(format!("status.conditions[{at}].type"), &kind, detail));
    }
}
