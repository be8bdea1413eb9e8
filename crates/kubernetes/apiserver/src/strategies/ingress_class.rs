//! IngressClasses: stored for those who look after Ingresses; nothing here does.

use serde_json::{Value, json};

use crate::checks::{all_invalid, member, reference, text, unchanged};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    plural: "ingressclasses",
    namespaced: false,
    strategy: &IngressClass,
    ..Kind::NEW
};

const MAX_CONTROLLER: usize = 250;

/// The rules of IngressClasses.
#[derive(Debug)]
struct IngressClass;

impl Strategy for IngressClass {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }
}

/// Fills in the scope of an IngressClass's parameters.
fn defaults(object: &mut Object) {
    let parameters = object.get_mut("spec").and_then(|s| s.get_mut("parameters")).and_then(Value::as_object_mut);
    if let Some(parameters) = parameters
        && parameters.get("scope").is_none_or(Value::is_null)
    {
        parameters.insert("scope".into(), json!("Cluster"));
    }
}

/// Checks an IngressClass.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    let controller = text(spec, "controller");
    if let Some(old) = old {
        unchanged("spec.controller", &json!(controller), &json!(text(member(old, "spec"), "controller")), errors);
    }
    if controller.len() > MAX_CONTROLLER {
        errors.push(FieldError::too_long("spec.controller", MAX_CONTROLLER as u64));
    }
    domain_path("spec.controller", controller, errors);
    let Some(parameters) = spec.get("parameters").filter(|p| !p.is_null()) else { return };
    let field = |key: &str| format!("spec.parameters.{key}");
    reference(parameters, "spec.parameters", errors);
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    match (text(parameters, "scope"), namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(FieldError::required(field("namespace"), "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(given)) => {
            all_invalid(&field("namespace"), &json!(given), names::dns_1123_label(given), errors);
        }
        ("Cluster", Some(_)) => {
            errors.push(FieldError::forbidden(field("namespace"), "`parameters.scope` is set to 'Cluster'"));
        }
        ("Cluster", None) => {}
        (other, _) => errors.push(FieldError::not_supported(field("scope"), &json!(other), &["Cluster", "Namespace"])),
    }
}

fn domain_path(field: &str, given: &str, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    match given.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            all_invalid(field, &json!(host), names::dns_1123_subdomain(host), errors);
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(field, &json!(given), detail));
        }
    }
}
