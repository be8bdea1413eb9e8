//! ValidatingAdmissionPolicies.
//!
//! Follows `pkg/apis/admissionregistration` of kube-apiserver.

mod status;

use std::collections::BTreeSet;

use cel::Type;
use serde_json::{Value, json};

use super::admission::{compiled, match_conditions, match_resources, one_of, resources_defaults};
use crate::admission::GROUP;
use crate::admission::expressions::Compiler;
use crate::checks::{list, text};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{ExtraRights, Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    categories: &["api-extensions"],
    namespaced: false,
    status: true,
    strategy: &ValidatingAdmissionPolicy,
    ..Kind::NEW
};

const MAX_ANNOTATIONS: usize = 20;

/// Bytes of an expression that makes a value for the audit log.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

/// The rules of ValidatingAdmissionPolicies.
#[derive(Debug)]
struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn defaults(&self, object: &mut Object) {
        policy_defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        found.errors.extend(if writing.sub == "status" { status::check(object) } else { policy(object, writing.old) });
    }

    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::Policy
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn reset_by_status(&self) -> &'static [&'static [&'static str]] {
        &[&["metadata"], &["spec"]]
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// Fills in what a policy leaves open.
fn policy_defaults(object: &mut Object) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    spec.entry("failurePolicy").or_insert_with(|| json!("Fail"));
    resources_defaults(spec, "matchConstraints");
}

/// Checks a policy; `old` is its former state.
fn policy(object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let none = Value::Null;
    let spec = object.get("spec").unwrap_or(&none);
    one_of(spec, "spec", "failurePolicy", &["Fail", "Ignore"], &mut errors);
    let kind = spec.get("paramKind");
    if let Some(kind) = kind {
        param_kind(kind, &mut errors);
    }
    match spec.get("matchConstraints") {
        None => errors.push(FieldError::required("spec.matchConstraints", "")),
        Some(given) => {
            match_resources(given, "spec.matchConstraints", &mut errors);
            if list(given, "resourceRules").is_empty() {
                errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    let former = old.and_then(|o| o.get("spec"));
    let same = |key: &str| former.is_some_and(|f| f.get(key) == spec.get(key));
    if !(same("paramKind") && same("matchConditions")) {
        match_conditions(spec, kind.is_some(), "spec.matchConditions", &mut errors);
    }
    let mut compiler = Compiler::new(kind.is_some(), !list(spec, "variables").is_empty());
    for (at, given) in list(spec, "variables").iter().enumerate() {
        variable(&mut compiler, given, &format!("spec.variables[{at}]"), &mut errors);
    }
    let annotations = list(spec, "auditAnnotations");
    if list(spec, "validations").is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(format!("spec.{key}"), detail));
        }
        return errors;
    }
    for (at, given) in list(spec, "validations").iter().enumerate() {
        validation(&compiler, given, &format!("spec.validations[{at}]"), &mut errors);
    }
    if annotations.len() > MAX_ANNOTATIONS {
        // Shown as the internal type, whose fields have no names of their own in JSON.
        let printed = |a: &Value| json!({"Key": text(a, "key"), "ValueExpression": text(a, "valueExpression")});
        let all: Vec<Value> = annotations.iter().map(printed).collect();
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid("spec.auditAnnotations", &json!(all), detail));
    }
    let mut keys = BTreeSet::new();
    for (at, given) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{at}]");
        annotation(&compiler, crate::object::name(object), given, &path, &mut errors);
        if !keys.insert(text(given, "key")) {
            errors.push(FieldError::duplicate(format!("{path}.key"), &json!(text(given, "key"))));
        }
    }
    errors
}

fn param_kind(given: &Value, errors: &mut Vec<FieldError>) {
    let (version, kind) = (text(given, "apiVersion"), text(given, "kind"));
    let field = "spec.paramKind.apiVersion";
    let mut invalid = |value: &str, detail: String| errors.push(FieldError::invalid(field, &json!(value), detail));
    match version.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(field, "")),
        [_, _, _, ..] => invalid(version, format!("unexpected GroupVersion string: {version}")),
        parts => {
            let name = parts.last().copied().unwrap_or_default();
            let group = if parts.len() > 1 { parts[0] } else { "" };
            if !group.is_empty()
                && let Some(why) = names::joined(names::dns_1123_subdomain(group))
            {
                invalid(group, why);
            }
            if name.is_empty() {
                invalid(version, "version must be specified".to_owned());
            } else if let Some(why) = names::joined(names::dns_1035_label(name)) {
                invalid(name, why);
            }
        }
    }
    if kind.is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
    } else if let Some(why) = names::joined(names::dns_1035_label(&kind.to_lowercase())) {
        let detail = format!("may have mixed case, but should otherwise match: {why}");
        errors.push(FieldError::invalid("spec.paramKind.kind", &json!(kind), detail));
    }
}

fn variable(compiler: &mut Compiler, given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (name, source) = (text(given, "name"), text(given, "expression"));
    if name.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "name is not specified"));
    } else if !cel::is_identifier(name) {
        let detail = "must be a valid CEL identifier";
        errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), detail));
    }
    if source.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.expression"), "expression is not specified"));
    } else {
        compiled(compiler.variable(name, source), format!("{path}.expression"), source, errors);
    }
}

fn validation(compiler: &Compiler, given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let source = text(given, "expression");
    if source.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.expression"), "expression is not specified"));
    } else {
        let program = compiler.compile(source, &[Type::Bool], true);
        compiled(program, format!("{path}.expression"), source, errors);
    }
    let words = text(given, "messageExpression");
    let field = format!("{path}.messageExpression");
    if !words.is_empty() && words.trim().is_empty() {
        errors.push(FieldError::invalid(field, &json!(words), "must be non-empty if specified"));
    } else if !words.is_empty() {
        compiled(compiler.compile(words, &[Type::String], false), field, words, errors);
    }
    let message = text(given, "message");
    if !message.is_empty() && message.trim().is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(FieldError::invalid(format!("{path}.message"), &json!(message), detail));
    } else if message.trim().contains(['\n', '\r']) {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(format!("{path}.message"), &json!(message), detail));
    }
    one_of(given, path, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"], errors);
}

fn annotation(compiler: &Compiler, owner: &str, given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (key, source) = (text(given, "key"), text(given, "valueExpression"));
    if owner.is_empty() {
        let detail = "requires metadata.name be non-empty";
        errors.push(FieldError::invalid(format!("{path}.key"), &json!(key), detail));
    } else {
        let whole = format!("{owner}/{key}");
        for why in names::qualified_name(&whole) {
            errors.push(FieldError::invalid(format!("{path}.key"), &json!(whole), why));
        }
    }
    let field = format!("{path}.valueExpression");
    let trimmed = source.trim();
    if trimmed.is_empty() {
        errors.push(FieldError::required(field, "valueExpression is not specified"));
    } else if trimmed.len() > MAX_VALUE_EXPRESSION {
        errors.push(FieldError::required(field, format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length")));
    } else {
        compiled(compiler.compile(trimmed, &[Type::String, Type::Null], true), field, source, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validation_errors(mut spec: Value) -> Vec<String> {
        let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["a"]}]);
        if spec.get("matchConstraints").is_none() {
            spec["matchConstraints"] = json!({ "resourceRules": rules });
        }
        let Value::Object(mut object) = json!({"metadata": {"name": "p"}, "spec": spec}) else { return Vec::new() };
        policy_defaults(&mut object);
        policy(&object, None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn policies_are_judged_as_upstream_does() {
        let fine = json!([{"expression": "true"}]);
        assert!(validation_errors(json!({ "validations": fine })).is_empty());
        let with = |key: &str, value: Value| {
            let mut spec = json!({ "validations": fine });
            spec[key] = value;
            validation_errors(spec)
        };
        assert_eq!(
            with("paramKind", json!({"apiVersion": "a/b/c", "kind": ""})),
            [
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "spec.paramKind.kind: Required value"
            ]
        );
        assert_eq!(
            with("validations", json!([{"expression": "object.x"}])),
            ["spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn"]
        );
        assert_eq!(
            with("auditAnnotations", json!([{"key": "k", "valueExpression": "1"}])),
            [
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] \
              but got int"
            ]
        );
        let variables = json!([{"name": "if", "expression": "1"}, {"name": "a", "expression": "variables.b"}]);
        let found = with("variables", variables);
        assert_eq!(found[0], "spec.variables[0].name: Invalid value: \"if\": must be a valid CEL identifier");
        assert!(found[1].contains("undefined field 'b'"), "{found:?}");
        assert_eq!(with("matchConstraints", json!({})), ["spec.matchConstraints.resourceRules: Required value"]);
        let words = json!([{"expression": "true", "message": "a\nb", "messageExpression": " ", "reason": "Odd"}]);
        assert_eq!(with("validations", words).len(), 3);
        let asks =
            json!([{"expression": "true", "messageExpression": "string(authorizer.path('/').check('get').allowed())"}]);
        assert!(with("validations", asks)[0].contains("undeclared reference to 'authorizer'"));
    }

    #[test]
    fn conditions_that_did_not_change_are_not_judged_again() {
        let spec = json!({"failurePolicy": "Fail", "matchConditions": [{"name": "a", "expression": "gone()"}],
            "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                "resources": ["*"]}]}, "validations": [{"expression": "true"}]});
        let Value::Object(object) = json!({"metadata": {"name": "p"}, "spec": spec}) else { return };
        assert_eq!(policy(&object, None).len(), 1);
        assert!(policy(&object, Some(&object)).is_empty());
    }
}
