//! Roles and ClusterRoles.
//!
//! Follows `k8s.io/kubernetes/pkg/apis/rbac` (validation). Values in errors are printed as its internal types are, whose fields
//! have no names of their own in JSON.

use serde_json::Value;

use crate::checks::list;
use crate::checks::selector::{self, Lenient};
use crate::object::Object;
use crate::rbac::index::GROUP;
use crate::status::FieldError;
use crate::strategy::{ExtraRights, Findings, Kind, Strategy, Writing};

/// The row of Roles.
pub const ROLE: Kind = Kind { group: GROUP, kind: "Role", plural: "roles", strategy: &Role, ..Kind::NEW };

/// The row of ClusterRoles.
pub const CLUSTER_ROLE: Kind = Kind { kind: "ClusterRole", plural: "clusterroles", namespaced: false, ..ROLE };

/// The rules of both.
#[derive(Debug)]
struct Role;

impl Strategy for Role {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(writing.resource.namespaced, object, writing.old, &mut found.errors);
    }

    fn wrong_name(&self, _: &Object, name: &str, _: bool) -> Vec<String> {
        names::path_segment(name)
    }

    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::Role
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn validate(namespaced: bool, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    for (at, rule) in object.get("rules").and_then(Value::as_array).into_iter().flatten().enumerate() {
        validate_rule(rule, namespaced, &format!("rules[{at}]"), errors);
    }
    if let Some(aggregation) = object.get("aggregationRule") {
        validate_aggregation(aggregation, old.and_then(|old| old.get("aggregationRule")), errors);
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn validation_errors(namespaced: bool, value: Value) -> Vec<String> {
        let Value::Object(object) = value else { panic!("not an object") };
        let mut errors = Vec::new();
        validate(namespaced, &object, None, &mut errors);
        errors.iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn rules_need_verbs_and_something_to_do_them_to() {
        assert_eq!(
            validation_errors(
                true,
                json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["b"]}]})
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
        assert!(validation_errors(false, json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]})).is_empty());
        assert_eq!(validation_errors(false, json!({"aggregationRule": {}})).len(), 1);
    }
}
