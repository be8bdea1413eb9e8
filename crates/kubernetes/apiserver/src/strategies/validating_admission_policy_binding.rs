//! ValidatingAdmissionPolicyBindings.
//!
//! Follows `pkg/apis/admissionregistration` of kube-apiserver.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admission::{match_resources, resources_defaults};
use crate::admission::GROUP;
use crate::checks::selector::{self, Lenient};
use crate::checks::text;
use crate::object::{Object, strings};
use crate::status::FieldError;
use crate::strategy::{ExtraRights, Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    categories: &["api-extensions"],
    namespaced: false,
    strategy: &ValidatingAdmissionPolicyBinding,
    ..Kind::NEW
};

/// The rules of ValidatingAdmissionPolicyBindings.
#[derive(Debug)]
struct ValidatingAdmissionPolicyBinding;

impl Strategy for ValidatingAdmissionPolicyBinding {
    fn defaults(&self, object: &mut Object) {
        binding_defaults(object);
    }

    fn validate(&self, _: &Writing<'_>, object: &Object, found: &mut Findings) {
        found.errors.extend(binding(object));
    }

    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::PolicyBinding
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// Fills in what a binding leaves open.
fn binding_defaults(object: &mut Object) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        resources_defaults(spec, "matchResources");
    }
}

/// Checks a binding.
fn binding(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    let policy = text(spec, "policyName");
    if policy.is_empty() {
        errors.push(FieldError::required("spec.policyName", ""));
    } else {
        for why in names::dns_1123_subdomain(policy) {
            errors.push(FieldError::invalid("spec.policyName", &json!(policy), why));
        }
    }
    if let Some(reference) = spec.get("paramRef") {
        param_ref(reference, &mut errors);
    }
    if let Some(given) = spec.get("matchResources") {
        match_resources(given, "spec.matchResources", &mut errors);
    }
    actions(&strings(spec.get("validationActions")), &mut errors);
    errors
}

fn param_ref(given: &Value, errors: &mut Vec<FieldError>) {
    let name = text(given, "name");
    let selected = given.get("selector");
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        for why in names::path_segment(name) {
            errors.push(FieldError::invalid("spec.paramRef.name", &json!(name), why));
        }
        if selected.is_some() {
            errors.push(FieldError::forbidden("spec.paramRef.name", exclusive));
        }
    }
    if let Some(selected) = selected {
        selector::check(selected, "spec.paramRef.selector", Lenient::default(), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden("spec.paramRef.selector", exclusive));
        }
    }
    if name.is_empty() && selected.is_none() {
        errors.push(FieldError::required("spec.paramRef", "one of name or selector must be specified"));
    }
    let field = "spec.paramRef.parameterNotFoundAction";
    match text(given, "parameterNotFoundAction") {
        "" => errors.push(FieldError::required(field, "")),
        "Deny" | "Allow" => {}
        other => errors.push(FieldError::not_supported(field, &json!(other), &["Deny", "Allow"])),
    }
}

fn actions(given: &[String], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (at, action) in given.iter().enumerate() {
        let field = format!("spec.validationActions[{at}]");
        let known = ["Audit", "Deny", "Warn"];
        if !known.contains(&action.as_str()) {
            errors.push(FieldError::not_supported(&field, &json!(action), &known));
        }
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(field, &json!(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(FieldError::invalid("spec.validationActions", &json!(given), detail));
    }
    if given.is_empty() {
        errors.push(FieldError::required("spec.validationActions", "at least one validation action is required"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_judged_as_upstream_does() {
        let validation_errors = |spec: Value| -> Vec<String> {
            let Value::Object(object) = json!({ "spec": spec }) else { return Vec::new() };
            binding(&object).iter().map(ToString::to_string).collect()
        };
        let reference = json!({"name": "a", "selector": {}, "parameterNotFoundAction": "Maybe"});
        assert_eq!(
            validation_errors(
                json!({"policyName": "p", "validationActions": ["Audit", "Audit"], "paramRef": reference})
            ),
            [
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Unsupported value: \"Maybe\": supported values: \"Deny\", \"Allow\"",
                "spec.validationActions[1]: Duplicate value: \"Audit\""
            ]
        );
        assert_eq!(
            validation_errors(json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {}})).len(),
            2
        );
    }
}
