//! What configurations of webhooks and policies have in common: rules, match conditions, selectors.
//!
//! Follows `pkg/apis/admissionregistration` of kube-apiserver.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::admission::expressions::{Compiler, Problem};
use crate::checks::selector::{self, Lenient};
use crate::checks::{all_invalid, list, text};
use crate::object::{Object, strings};
use crate::status::FieldError;

/// Conditions of one webhook or policy.
const MAX_CONDITIONS: usize = 64;

/// Match policy and selectors, which webhooks and policies have alike.
pub fn match_defaults(object: &mut Object) {
    object.entry("matchPolicy").or_insert_with(|| json!("Equivalent"));
    object.entry("namespaceSelector").or_insert_with(|| json!({}));
    object.entry("objectSelector").or_insert_with(|| json!({}));
}

/// The scope of the rules in a member.
pub fn rule_defaults(object: &mut Object, member: &str) {
    for rule in object.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(rule) = rule {
            rule.entry("scope").or_insert_with(|| json!("*"));
        }
    }
}

/// A member that, if there, is one of these.
pub fn one_of(value: &Value, path: &str, key: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(given) = value.get(key).and_then(Value::as_str)
        && !supported.contains(&given)
    {
        errors.push(FieldError::not_supported(format!("{path}.{key}"), &json!(given), supported));
    }
}

/// A rule with its operations.
pub fn rule(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let operations = strings(rule.get("operations"));
    wildcard(&operations, &format!("{path}.operations"), "operations", errors);
    for (at, operation) in operations.iter().enumerate() {
        let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        if !known.contains(&operation.as_str()) {
            errors.push(FieldError::not_supported(format!("{path}.operations[{at}]"), &json!(operation), &known));
        }
    }
    wildcard(&strings(rule.get("apiGroups")), &format!("{path}.apiGroups"), "API groups", errors);
    let versions = strings(rule.get("apiVersions"));
    wildcard(&versions, &format!("{path}.apiVersions"), "API versions", errors);
    for (at, _) in versions.iter().enumerate().filter(|(_, v)| v.is_empty()) {
        errors.push(FieldError::required(format!("{path}.apiVersions[{at}]"), ""));
    }
    resources(&strings(rule.get("resources")), &format!("{path}.resources"), errors);
    one_of(rule, path, "scope", &["*", "Cluster", "Namespaced"], errors);
}

fn wildcard(given: &[String], path: &str, what: &str, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if given.len() > 1 && given.iter().any(|g| g == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path, &json!(given), detail));
    }
}

fn resources(given: &[String], path: &str, errors: &mut Vec<FieldError>) {
    if given.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut all_subs_of, mut sub_of_all) = (BTreeSet::new(), BTreeSet::new());
    // Whether the last plain resource was one: upstream looks no further.
    let mut plain = false;
    for (at, one) in given.iter().enumerate() {
        let field = format!("{path}[{at}]");
        if one.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let Some((resource, sub)) = one.split_once('/') else {
            plain = one != "*";
            continue;
        };
        if all_subs_of.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {one}");
            errors.push(FieldError::invalid(&field, &json!(one), detail));
        }
        if sub_of_all.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {one}");
            errors.push(FieldError::invalid(&field, &json!(one), detail));
        }
        if sub == "*" {
            all_subs_of.insert(resource);
        }
        if resource == "*" {
            sub_of_all.insert(sub);
        }
    }
    let has = |wanted: &str| given.iter().any(|g| g == wanted);
    if given.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, &json!(given), detail));
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, &json!(given), detail));
    }
}

/// The `matchConditions` of a webhook or policy.
pub fn match_conditions(owner: &Value, params: bool, path: &str, errors: &mut Vec<FieldError>) {
    let conditions = owner.get("matchConditions").and_then(Value::as_array);
    let mut seen = BTreeSet::new();
    let count = conditions.map_or(0, Vec::len);
    if count > MAX_CONDITIONS {
        errors.push(FieldError::too_many(path, count as u64, MAX_CONDITIONS as u64));
    }
    let compiler = Compiler::new(params, false);
    for (at, condition) in conditions.into_iter().flatten().enumerate() {
        let path = format!("{path}[{at}]");
        let (name, expression) = (text(condition, "name"), text(condition, "expression").trim());
        if expression.is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), ""));
        } else {
            let program = compiler.compile(expression, &[cel::Type::Bool], true);
            compiled(program, format!("{path}.expression"), expression, errors);
        }
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
            continue;
        }
        all_invalid(&format!("{path}.name"), &json!(name), names::qualified_name(name), errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
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

/// Fills in what the match resources in a member leave open.
pub fn resources_defaults(spec: &mut Object, key: &str) {
    if let Some(Value::Object(resources)) = spec.get_mut(key) {
        match_defaults(resources);
        rule_defaults(resources, "resourceRules");
        rule_defaults(resources, "excludeResourceRules");
    }
}

/// Checks match resources.
pub fn match_resources(given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(given, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    for key in ["namespaceSelector", "objectSelector"] {
        let given = given.get(key).unwrap_or(&Value::Null);
        selector::check(given, &format!("{path}.{key}"), Lenient::default(), errors);
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (at, given) in list(given, key).iter().enumerate() {
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
