//! What must hold for policies and bindings before they are stored, and what is filled in
//! (`pkg/apis/admissionregistration` of kube-apiserver).

use std::collections::BTreeSet;

use cel::Type;
use serde_json::{Value, json};

use crate::admission::expressions::{Compiler, Problem};
use crate::admission::kinds::{match_conditions, match_defaults, one_of, rule, rule_defaults};
use crate::builtin::rules::selector::{self, Lenient};
use crate::builtin::rules::text;
use crate::object::{Object, strings};
use crate::status::FieldError;

const MAX_ANNOTATIONS: usize = 20;
/// Bytes of an expression that makes a value for the audit log.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

/// Fills in what a policy leaves open.
pub fn policy_defaults(object: &mut Object) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    spec.entry("failurePolicy").or_insert_with(|| json!("Fail"));
    resources_defaults(spec, "matchConstraints");
}

/// Fills in what a binding leaves open.
pub fn binding_defaults(object: &mut Object) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        resources_defaults(spec, "matchResources");
    }
}

fn resources_defaults(spec: &mut Object, key: &str) {
    if let Some(Value::Object(resources)) = spec.get_mut(key) {
        match_defaults(resources);
        rule_defaults(resources, "resourceRules");
        rule_defaults(resources, "excludeResourceRules");
    }
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Checks a policy; `old` is its former state.
pub fn policy(object: &Object, old: Option<&Object>) -> Vec<FieldError> {
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
            if items(given, "resourceRules").is_empty() {
                errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    let former = old.and_then(|o| o.get("spec"));
    let same = |key: &str| former.is_some_and(|f| f.get(key) == spec.get(key));
    if !(same("paramKind") && same("matchConditions")) {
        match_conditions(spec, kind.is_some(), "spec.matchConditions", &mut errors);
    }
    let mut compiler = Compiler::new(kind.is_some(), !items(spec, "variables").is_empty());
    for (at, given) in items(spec, "variables").iter().enumerate() {
        variable(&mut compiler, given, &format!("spec.variables[{at}]"), &mut errors);
    }
    let annotations = items(spec, "auditAnnotations");
    if items(spec, "validations").is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(FieldError::required(format!("spec.{key}"), detail));
        }
        return errors;
    }
    for (at, given) in items(spec, "validations").iter().enumerate() {
        validation(&compiler, given, &format!("spec.validations[{at}]"), &mut errors);
    }
    if annotations.len() > MAX_ANNOTATIONS {
        // Shown as the internal type, whose fields have no names of their own in JSON.
        let shown = |a: &Value| json!({"Key": text(a, "key"), "ValueExpression": text(a, "valueExpression")});
        let all: Vec<Value> = annotations.iter().map(shown).collect();
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
            let own = parts.last().copied().unwrap_or_default();
            let group = if parts.len() > 1 { parts[0] } else { "" };
            if !group.is_empty()
                && let Some(why) = names::joined(names::dns_1123_subdomain(group))
            {
                invalid(group, why);
            }
            if own.is_empty() {
                invalid(version, "version must be specified".to_owned());
            } else if let Some(why) = names::joined(names::dns_1035_label(own)) {
                invalid(own, why);
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

fn match_resources(given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(given, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    for key in ["namespaceSelector", "objectSelector"] {
        let given = given.get(key).unwrap_or(&Value::Null);
        selector::check(given, &format!("{path}.{key}"), Lenient::default(), errors);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (at, given) in items(given, key).iter().enumerate() {
            let path = format!("{path}.{key}[{at}]");
            let mut seen = BTreeSet::new();
            for (at, name) in strings(given.get("resourceNames")).into_iter().enumerate() {
                let field = format!("{path}.resourceNames[{at}]");
                for why in names::path_segment(&name) {
                    errors.push(FieldError::invalid(&field, &json!(name), why));
                }
                if seen.contains(&name) {
                    errors.push(FieldError::duplicate(field, &json!(name)));
                }
                seen.insert(name);
            }
            rule(given, &path, errors);
        }
    }
}

/// What compiling an expression came to, as an error of its field.
pub fn compiled<T>(result: Result<T, Problem>, field: String, source: &str, errors: &mut Vec<FieldError>) {
    match result {
        Ok(_) => {}
        Err(Problem::Invalid(why)) => errors.push(FieldError::invalid(field, &json!(source), why)),
        Err(Problem::Internal(why)) => errors.push(FieldError::internal(field, why)),
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

/// Checks a binding.
pub fn binding(object: &Object) -> Vec<FieldError> {
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

    fn told(mut spec: Value) -> Vec<String> {
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
        assert!(told(json!({ "validations": fine })).is_empty());
        let with = |key: &str, value: Value| {
            let mut spec = json!({ "validations": fine });
            spec[key] = value;
            told(spec)
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

    #[test]
    fn bindings_are_judged_as_upstream_does() {
        let told = |spec: Value| -> Vec<String> {
            let Value::Object(object) = json!({ "spec": spec }) else { return Vec::new() };
            binding(&object).iter().map(ToString::to_string).collect()
        };
        let reference = json!({"name": "a", "selector": {}, "parameterNotFoundAction": "Maybe"});
        assert_eq!(
            told(json!({"policyName": "p", "validationActions": ["Audit", "Audit"], "paramRef": reference})),
            [
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Unsupported value: \"Maybe\": supported values: \"Deny\", \"Allow\"",
                "spec.validationActions[1]: Duplicate value: \"Audit\""
            ]
        );
        assert_eq!(told(json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {}})).len(), 2);
    }
}
