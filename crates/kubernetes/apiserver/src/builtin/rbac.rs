//! Rules of the RBAC kinds: what is filled in and what must hold.
//!
//! Follows `k8s.io/kubernetes/pkg/apis/rbac` (v1 defaults, validation). Values in errors are printed as its internal
//! types are, whose fields have no names of their own in JSON.

use serde_json::{Value, json};

use super::rules::selector::{self, Lenient};
use super::rules::{all_invalid, list};
use crate::auth::index::GROUP;
use crate::object::Object;
use crate::status::FieldError;

/// Fills in what a role or binding leaves open.
pub fn defaults(plural: &str, object: &mut Object) {
    if matches!(plural, "roles" | "clusterroles") {
        return;
    }
    let reference = crate::object::child(object, "roleRef");
    if text(&json!(reference), "apiGroup").is_empty() {
        reference.insert("apiGroup".into(), json!(GROUP));
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, "kind").as_str(), "User" | "Group") && text(subject, "apiGroup").is_empty() {
            subject["apiGroup"] = json!(GROUP);
        }
    }
}

/// Checks a role or binding.
pub fn validate(plural: &str, object: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let namespaced = matches!(plural, "roles" | "rolebindings");
    if matches!(plural, "roles" | "clusterroles") {
        for (at, rule) in object.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate() {
            validate_rule(rule, namespaced, &format!("rules[{at}]"), &mut errors);
        }
        if let Some(aggregation) = object.get("aggregationRule") {
            validate_aggregation(aggregation, old.and_then(|old| old.get("aggregationRule")), &mut errors);
        }
        return errors;
    }
    let reference = object.get("roleRef").cloned().unwrap_or_default();
    validate_reference(&reference, namespaced, &mut errors);
    for (at, subject) in object.get("subjects").and_then(Value::as_array).into_iter().flatten().enumerate() {
        validate_subject(subject, namespaced, &format!("subjects[{at}]"), &mut errors);
    }
    if let Some(old) = old
        && old.get("roleRef") != object.get("roleRef")
    {
        let printed = json!({"APIGroup": text(&reference, "apiGroup"), "Kind": text(&reference, "kind"),
            "Name": text(&reference, "name")});
        errors.push(FieldError::invalid("roleRef", &printed, "cannot change roleRef"));
    }
    errors
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn is_empty(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn validate_rule(rule: &Value, namespaced: bool, path: &str, errors: &mut Vec<FieldError>) {
    if is_empty(rule, "verbs") {
        errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if !is_empty(rule, "nonResourceURLs") {
        let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
        let at = format!("{path}.nonResourceURLs");
        if namespaced {
            errors.push(FieldError::invalid(&at, &urls, "namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !is_empty(rule, key)) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&at, &urls, detail));
        }
        return;
    }
    for (key, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if is_empty(rule, key) {
            let detail = format!("resource rules must supply at least one {what}");
            errors.push(FieldError::required(format!("{path}.{key}"), detail));
        }
    }
}

fn validate_aggregation(aggregation: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = "aggregationRule.clusterRoleSelectors";
    if is_empty(aggregation, "clusterRoleSelectors") {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(path, detail));
    }
    // Values that no label can have are let pass where there were some already.
    let bad = |value: &Value| !names::label_value(value.as_str().unwrap_or_default()).is_empty();
    let values = old.into_iter().flat_map(|old| list(old, "clusterRoleSelectors"));
    let mut values = values.flat_map(|s| list(s, "matchExpressions")).flat_map(|e| list(e, "values"));
    let lenient = Lenient { values: values.any(bad), ..Lenient::default() };
    for (at, selector) in list(aggregation, "clusterRoleSelectors").iter().enumerate() {
        let path = format!("{path}[{at}]");
        let mut strict = Vec::new();
        selector::check(selector, &path, Lenient::default(), &mut strict);
        let unusable = !strict.is_empty();
        if lenient.values {
            selector::check(selector, &path, lenient, errors);
        } else {
            errors.append(&mut strict);
        }
        if unusable {
            // Upstream shows what it has made of the selector, which is nothing.
            errors.push(FieldError::invalid(path, &Value::Null, "invalid label selector."));
        }
    }
}

fn validate_reference(reference: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let (group, kind, name) = (text(reference, "apiGroup"), text(reference, "kind"), text(reference, "name"));
    if group != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", &json!(&group), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind.as_str()) {
        errors.push(FieldError::not_supported("roleRef.kind", &json!(&kind), kinds));
    }
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    all_invalid("roleRef.name", &json!(name), names::path_segment(&name), errors);
}

fn validate_subject(subject: &Value, namespaced: bool, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, group, name) = (text(subject, "kind"), text(subject, "apiGroup"), text(subject, "name"));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match kind.as_str() {
        "ServiceAccount" => {
            if !name.is_empty() {
                all_invalid(&format!("{path}.name"), &json!(name), names::dns_1123_subdomain(&name), errors);
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &json!(&group), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &json!(&group), &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            format!("{path}.kind"),
            &json!(other),
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(plural: &str, value: Value, old: Option<Value>) -> Vec<String> {
        let object = |value: Value| match value {
            Value::Object(mut object) => {
                defaults(plural, &mut object);
                object
            }
            _ => panic!("not an object"),
        };
        let old = old.map(object);
        validate(plural, &object(value), old.as_ref()).iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn rules_need_verbs_and_something_to_do_them_to() {
        assert_eq!(
            told(
                "roles",
                json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["b"]}]}),
                None
            ),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[1].nonResourceURLs: Invalid value: [\"/a\"]: namespaced rules cannot apply to non-resource URLs",
                "rules[1].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and \
                 non-resource URLs"
            ]
        );
        assert!(
            told("clusterroles", json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]}), None).is_empty()
        );
        assert_eq!(told("clusterroles", json!({"aggregationRule": {}}), None).len(), 1);
    }

    #[test]
    fn bindings_name_a_role_for_good_and_known_subjects() {
        let good =
            json!({"roleRef": {"kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "User", "name": "u"}]});
        assert!(told("clusterrolebindings", good.clone(), None).is_empty());
        let other = json!({"roleRef": {"kind": "ClusterRole", "name": "b"}});
        assert_eq!(
            told("clusterrolebindings", other, Some(good)),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"b\"}: \
              cannot change roleRef"
            ]
        );
        assert_eq!(
            told(
                "clusterrolebindings",
                json!({"roleRef": {"kind": "Role", "name": "a/b"}, "subjects": [{"kind": "ServiceAccount", "name": "x"},
                    {"kind": "Robot", "name": "x"}]}),
                None
            ),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
                "subjects[0].namespace: Required value",
                "subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\""
            ]
        );
    }
}
