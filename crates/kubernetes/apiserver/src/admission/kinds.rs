//! The configurations as objects: what is filled in, and what must hold before one is stored
//! (`pkg/apis/admissionregistration` of kube-apiserver).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::expressions::Compiler;
use super::policy;
use crate::builtin::rules::selector::{self, Lenient};
use crate::builtin::rules::{all_invalid, text};
use crate::object::{Object, child, strings};
use crate::status::FieldError;

/// Conditions of one webhook or policy.
const MAX_CONDITIONS: usize = 64;

/// Fills in what a configuration leaves open.
pub fn defaults(plural: &str, object: &mut Object) {
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            for hook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(hook) = hook {
                    webhook_defaults(plural, hook);
                }
            }
        }
        "validatingadmissionpolicies" => policy::check::policy_defaults(object),
        "validatingadmissionpolicybindings" => policy::check::binding_defaults(object),
        _ => {}
    }
}

fn webhook_defaults(plural: &str, hook: &mut Object) {
    hook.entry("failurePolicy").or_insert_with(|| json!("Fail"));
    match_defaults(hook);
    hook.entry("timeoutSeconds").or_insert_with(|| json!(10));
    if plural == "mutatingwebhookconfigurations" {
        hook.entry("reinvocationPolicy").or_insert_with(|| json!("Never"));
    }
    rule_defaults(hook, "rules");
    let config = child(hook, "clientConfig");
    if let Some(Value::Object(service)) = config.get_mut("service") {
        service.entry("port").or_insert_with(|| json!(443));
    }
}

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

/// Checks a configuration; `old` is its former state, `sub` the subresource that it is written by.
pub fn validate(plural: &str, object: &Object, old: Option<&Object>, sub: &str) -> Vec<FieldError> {
    match plural {
        "validatingadmissionpolicies" if sub == "status" => policy::status::check(object),
        "validatingadmissionpolicies" => policy::check::policy(object, old),
        "validatingadmissionpolicybindings" => policy::check::binding(object),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => webhooks(plural, object, old),
        _ => Vec::new(),
    }
}

/// Checks that an old object may already have failed, and that therefore are not made anew.
struct Leniency {
    effects: bool,
    versions: bool,
    unique: bool,
    labels: bool,
    conditions: bool,
}

fn list(object: &Object) -> Vec<Value> {
    object.get("webhooks").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn no_effects(hook: &Value) -> bool {
    matches!(text(hook, "sideEffects"), "None" | "NoneOnDryRun")
}

fn known_version(hook: &Value) -> bool {
    let versions = strings(hook.get("admissionReviewVersions"));
    versions.is_empty() || versions.iter().any(|v| v == "v1" || v == "v1beta1")
}

impl Leniency {
    fn of(object: &Object, old: Option<&Object>) -> Self {
        let Some(old) = old else {
            return Self { effects: false, versions: false, unique: false, labels: false, conditions: false };
        };
        let (before, now) = (list(old), list(object));
        let names: BTreeSet<&str> = before.iter().map(|h| text(h, "name")).collect();
        let bad_labels = |hook: &Value| {
            let mut errors = Vec::new();
            for key in ["namespaceSelector", "objectSelector"] {
                selector::check(hook.get(key).unwrap_or(&Value::Null), "", Lenient::default(), &mut errors);
            }
            !errors.is_empty()
        };
        let conditions = |hooks: &[Value]| -> Vec<Option<Value>> {
            hooks.iter().map(|h| h.get("matchConditions").cloned()).collect()
        };
        Self {
            effects: !before.iter().all(no_effects),
            versions: !before.iter().all(known_version),
            unique: names.len() < before.len(),
            labels: before.iter().any(bad_labels),
            conditions: conditions(&before) == conditions(&now),
        }
    }
}

fn webhooks(plural: &str, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let lenient = Leniency::of(object, old);
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, hook) in list(object).iter().enumerate() {
        let path = format!("webhooks[{at}]");
        webhook(hook, &path, plural.starts_with("mutating"), &lenient, &mut errors);
        versions(hook, &format!("{path}.admissionReviewVersions"), &lenient, &mut errors);
        let name = text(hook, "name");
        if !lenient.unique && !name.is_empty() && !seen.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
    }
    errors
}

fn webhook(hook: &Value, path: &str, mutating: bool, lenient: &Leniency, errors: &mut Vec<FieldError>) {
    fully_qualified(text(hook, "name"), &format!("{path}.name"), errors);
    for (at, rule) in hook.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate() {
        self::rule(rule, &format!("{path}.rules[{at}]"), errors);
    }
    one_of(hook, path, "failurePolicy", &["Fail", "Ignore"], errors);
    one_of(hook, path, "matchPolicy", &["Equivalent", "Exact"], errors);
    let effects: &[&str] =
        if lenient.effects { &["None", "NoneOnDryRun", "Some", "Unknown"] } else { &["None", "NoneOnDryRun"] };
    if hook.get("sideEffects").is_none_or(Value::is_null) {
        let detail = format!("must specify one of {}", effects.join(", "));
        errors.push(FieldError::required(format!("{path}.sideEffects"), detail));
    }
    one_of(hook, path, "sideEffects", effects, errors);
    if let Some(seconds) = hook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), &json!(seconds), detail));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        let lenient = Lenient { values: lenient.labels, ..Lenient::default() };
        selector::check(hook.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"), lenient, errors);
    }
    if mutating {
        one_of(hook, path, "reinvocationPolicy", &["IfNeeded", "Never"], errors);
    }
    client_config(hook.get("clientConfig").unwrap_or(&Value::Null), &format!("{path}.clientConfig"), errors);
    if !lenient.conditions {
        match_conditions(hook, false, &format!("{path}.matchConditions"), errors);
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

fn fully_qualified(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if let Some(why) = names::joined(names::dns_1123_subdomain(name)) {
        errors.push(FieldError::invalid(path, &json!(name), why));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, &json!(name), detail));
    }
}

/// The versions of reviews that a webhook says it understands.
fn versions(hook: &Value, path: &str, lenient: &Leniency, errors: &mut Vec<FieldError>) {
    let given = strings(hook.get("admissionReviewVersions"));
    if given.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, version) in given.iter().enumerate() {
        let field = format!("{path}[{at}]");
        if !seen.insert(version) {
            errors.push(FieldError::invalid(field, &json!(version), "duplicate version"));
        } else {
            all_invalid(&field, &json!(version), names::dns_1035_label(version), errors);
        }
    }
    if !lenient.versions && !known_version(hook) {
        errors.push(FieldError::invalid(path, &json!(given), "must include at least one of v1, v1beta1"));
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

/// Where a webhook is.
pub fn client_config(config: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match (config.get("url").and_then(Value::as_str), config.get("service")) {
        (Some(url), None) => self::url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => self::service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn url(url: &str, path: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut invalid = |value: &str, detail: String| errors.push(FieldError::invalid(path, &json!(value), detail));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    if scheme != "https" {
        invalid(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        invalid(host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        invalid(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["name", "namespace"] {
        if text(service, key).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && !(1..=65_535).contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), &json!(port), detail));
    }
    let given = text(service, "path");
    let path = format!("{path}.path");
    let mut invalid = |detail: String| errors.push(FieldError::invalid(&path, &json!(given), detail));
    if given.is_empty() || given == "/" {
        return;
    }
    if given == "//" {
        invalid("segment[0] may not be empty".to_owned());
        return;
    }
    if !given.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    let mut steps = given.chars();
    steps.next();
    let steps = steps.as_str();
    for (at, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            invalid(format!("segment[{at}] may not be empty"));
        } else {
            names::dns_1123_subdomain(step).into_iter().for_each(|why| invalid(format!("segment[{at}]: {why}")));
        }
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
            policy::check::compiled(program, format!("{path}.expression"), expression, errors);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hook: Value) -> Vec<String> {
        let Value::Object(mut object) = json!({"webhooks": [hook]}) else { return Vec::new() };
        defaults("mutatingwebhookconfigurations", &mut object);
        validate("mutatingwebhookconfigurations", &object, None, "").iter().map(ToString::to_string).collect()
    }

    fn good() -> Value {
        json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a/b"}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["a", "a/status"]}]})
    }

    #[test]
    fn good_ones_pass_and_are_completed() {
        let Value::Object(mut object) = json!({"webhooks": [good()]}) else { return };
        defaults("mutatingwebhookconfigurations", &mut object);
        let hook = &object["webhooks"][0];
        assert_eq!((&hook["timeoutSeconds"], &hook["failurePolicy"]), (&json!(10), &json!("Fail")));
        assert_eq!((&hook["clientConfig"]["service"]["port"], &hook["rules"][0]["scope"]), (&json!(443), &json!("*")));
        assert!(validate("mutatingwebhookconfigurations", &object, None, "").is_empty());
    }

    #[test]
    fn bad_ones_are_told_as_upstream_does() {
        let with = |key: &str, value: Value| {
            let mut hook = good();
            hook[key] = value;
            told(hook)
        };
        assert_eq!(
            with("name", json!("a.b")),
            [
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots"
            ]
        );
        assert_eq!(
            with("sideEffects", json!("Some")),
            ["webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\""]
        );
        assert_eq!(
            with("clientConfig", json!({})),
            ["webhooks[0].clientConfig: Required value: exactly one of url or service is required"]
        );
        assert_eq!(with("clientConfig", json!({"url": "http://x/?a"})).len(), 2);
        assert_eq!(
            with("timeoutSeconds", json!(31)),
            ["webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"]
        );
        let rule =
            json!([{"operations": [], "apiGroups": ["*", "a"], "apiVersions": ["v1"], "resources": ["a/*", "a/b"]}]);
        assert_eq!(with("rules", rule).len(), 3);
    }

    #[test]
    fn an_old_fault_does_not_lock_the_object() {
        let mut hook = good();
        hook["sideEffects"] = json!("Some");
        let Value::Object(object) = json!({"webhooks": [hook]}) else { return };
        assert_eq!(validate("mutatingwebhookconfigurations", &object, None, "").len(), 1);
        assert!(validate("mutatingwebhookconfigurations", &object, Some(&object), "").is_empty());
    }
}
