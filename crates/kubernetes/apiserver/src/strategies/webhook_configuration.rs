//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
//!
//! Follows `pkg/apis/admissionregistration` of kube-apiserver.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admission::{self, match_conditions, match_defaults, one_of, rule_defaults};
use crate::admission::GROUP;
use crate::checks::selector::{self, Lenient};
use crate::checks::{all_invalid, client_config, text};
use crate::object::{Object, child, strings};
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The row of MutatingWebhookConfigurations.
pub const MUTATING: Kind = Kind {
    group: GROUP,
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    categories: &["api-extensions"],
    namespaced: false,
    strategy: &WebhookConfiguration { mutating: true },
    ..Kind::NEW
};

/// The row of ValidatingWebhookConfigurations.
pub const VALIDATING: Kind = Kind {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    strategy: &WebhookConfiguration { mutating: false },
    ..MUTATING
};

/// The rules of both.
#[derive(Debug)]
struct WebhookConfiguration {
    mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn defaults(&self, object: &mut Object) {
        defaults(self.mutating, object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(self.mutating, object, writing.old, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }
}

/// Fills in what a configuration leaves open.
fn defaults(mutating: bool, object: &mut Object) {
    for hook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(hook) = hook {
            webhook_defaults(mutating, hook);
        }
    }
}

fn webhook_defaults(mutating: bool, hook: &mut Object) {
    hook.entry("failurePolicy").or_insert_with(|| json!("Fail"));
    match_defaults(hook);
    hook.entry("timeoutSeconds").or_insert_with(|| json!(10));
    if mutating {
        hook.entry("reinvocationPolicy").or_insert_with(|| json!("Never"));
    }
    rule_defaults(hook, "rules");
    let config = child(hook, "clientConfig");
    if let Some(Value::Object(service)) = config.get_mut("service") {
        service.entry("port").or_insert_with(|| json!(443));
    }
}

/// Checks that an update skips, because the old object already fails them or their values are unchanged.
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

fn validate(mutating: bool, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let lenient = Leniency::of(object, old);
    let mut seen = BTreeSet::new();
    for (at, hook) in list(object).iter().enumerate() {
        let path = format!("webhooks[{at}]");
        webhook(hook, &path, mutating, &lenient, errors);
        versions(hook, &format!("{path}.admissionReviewVersions"), &lenient, errors);
        let name = text(hook, "name");
        if !lenient.unique && !name.is_empty() && !seen.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &json!(name)));
        }
    }
}

fn webhook(hook: &Value, path: &str, mutating: bool, lenient: &Leniency, errors: &mut Vec<FieldError>) {
    fully_qualified(text(hook, "name"), &format!("{path}.name"), errors);
    for (at, rule) in hook.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate() {
        admission::rule(rule, &format!("{path}.rules[{at}]"), errors);
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
    client_config::check(hook.get("clientConfig").unwrap_or(&Value::Null), &format!("{path}.clientConfig"), errors);
    if !lenient.conditions {
        match_conditions(hook, false, &format!("{path}.matchConditions"), errors);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(object: &Object, old: Option<&Object>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate(true, object, old, &mut errors);
        errors
    }

    fn validation_errors(hook: Value) -> Vec<String> {
        let Value::Object(mut object) = json!({"webhooks": [hook]}) else { return Vec::new() };
        defaults(true, &mut object);
        errors_of(&object, None).iter().map(ToString::to_string).collect()
    }

    fn good() -> Value {
        json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a/b"}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["a", "a/status"]}]})
    }

    #[test]
    fn good_ones_pass_and_are_completed() {
        let Value::Object(mut object) = json!({"webhooks": [good()]}) else { return };
        defaults(true, &mut object);
        let hook = &object["webhooks"][0];
        assert_eq!((&hook["timeoutSeconds"], &hook["failurePolicy"]), (&json!(10), &json!("Fail")));
        assert_eq!((&hook["clientConfig"]["service"]["port"], &hook["rules"][0]["scope"]), (&json!(443), &json!("*")));
        assert!(errors_of(&object, None).is_empty());
    }

    #[test]
    fn bad_ones_have_upstreams_message() {
        let with = |key: &str, value: Value| {
            let mut hook = good();
            hook[key] = value;
            validation_errors(hook)
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
        assert_eq!(errors_of(&object, None).len(), 1);
        assert!(errors_of(&object, Some(&object)).is_empty());
    }
}
