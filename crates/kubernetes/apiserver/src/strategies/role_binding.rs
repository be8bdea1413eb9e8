//! RoleBindings and ClusterRoleBindings.
//!
//! Follows `k8s.io/kubernetes/pkg/apis/rbac` (v1 defaults, validation). Values in errors are printed as its internal types are, whose
//! fields have no names of their own in JSON.

use serde_json::{Value, json};

use crate::checks::all_invalid;
use crate::object::{Object, child};
use crate::rbac::index::GROUP;
use crate::status::FieldError;
use crate::strategy::{ExtraRights, Findings, Kind, Strategy, Writing};

/// The row of RoleBindings.
pub const ROLE_BINDING: Kind =
    Kind { group: GROUP, kind: "RoleBinding", plural: "rolebindings", strategy: &RoleBinding, ..Kind::NEW };

/// The row of ClusterRoleBindings.
pub const CLUSTER_ROLE_BINDING: Kind =
    Kind { kind: "ClusterRoleBinding", plural: "clusterrolebindings", namespaced: false, ..ROLE_BINDING };

/// The rules of both.
#[derive(Debug)]
struct RoleBinding;

impl Strategy for RoleBinding {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(writing.resource.namespaced, object, writing.old, &mut found.errors);
    }

    fn wrong_name(&self, _: &Object, name: &str, _: bool) -> Vec<String> {
        names::path_segment(name)
    }

    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::Binding
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

/// Fills in the groups of the role and of users and groups.
fn defaults(object: &mut Object) {
    let reference = child(object, "roleRef");
    if text(&json!(reference), "apiGroup").is_empty() {
        reference.insert("apiGroup".into(), json!(GROUP));
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, "kind").as_str(), "User" | "Group") && text(subject, "apiGroup").is_empty() {
            subject["apiGroup"] = json!(GROUP);
        }
    }
}

fn validate(namespaced: bool, object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let reference = object.get("roleRef").cloned().unwrap_or_default();
    validate_reference(&reference, namespaced, errors);
    for (at, subject) in object.get("subjects").and_then(Value::as_array).into_iter().flatten().enumerate() {
        validate_subject(subject, namespaced, &format!("subjects[{at}]"), errors);
    }
    if let Some(old) = old
        && old.get("roleRef") != object.get("roleRef")
    {
        let printed = json!({"APIGroup": text(&reference, "apiGroup"), "Kind": text(&reference, "kind"),
            "Name": text(&reference, "name")});
        errors.push(FieldError::invalid("roleRef", &printed, "cannot change roleRef"));
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
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

    fn validation_errors(value: Value, old: Option<Value>) -> Vec<String> {
        let object = |value: Value| match value {
            Value::Object(mut object) => {
                defaults(&mut object);
                object
            }
            _ => panic!("not an object"),
        };
        let old = old.map(object);
        let mut errors = Vec::new();
        validate(false, &object(value), old.as_ref(), &mut errors);
        errors.iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn bindings_name_a_role_for_good_and_known_subjects() {
        let good =
            json!({"roleRef": {"kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "User", "name": "u"}]});
        assert!(validation_errors(good.clone(), None).is_empty());
        let other = json!({"roleRef": {"kind": "ClusterRole", "name": "b"}});
        assert_eq!(
            validation_errors(other, Some(good)),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"b\"}: \
              cannot change roleRef"
            ]
        );
        assert_eq!(
            validation_errors(
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
