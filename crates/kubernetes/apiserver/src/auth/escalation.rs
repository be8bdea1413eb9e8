//! Escalation checks: users cannot grant rights that they lack. Roles and bindings are checked before they are
//! stored.
//!
//! Follows `k8s.io/kubernetes/pkg/registry/rbac` (policybased storages, escalation_check).

use serde_json::{Value, json};

use crate::object::{self, Object, metadata_mut};
use crate::rbac::attributes::Attributes;
use crate::rbac::index::{GROUP, Index};
use crate::rbac::rules::{self, Rule, quoted, quoted_list};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::strategy::ExtraRights;
use crate::user::{MASTERS, User};

/// Limit of the combinations of verb, group, resource and name in a role: each is checked against the rules of the
/// granting user. Upstream has no limit; the roles of whole clusters have some thousands.
const MAX_PARTS: usize = 100_000;

/// Checks a role or binding that `user` wants to store in `ns`; `old` is its former state. Other kinds pass.
pub fn check(
    index: &Index,
    user: &User,
    resource: &Resource,
    ns: &str,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    if user.is_in(MASTERS) {
        return Ok(());
    }
    match resource.strategy.extra_rights() {
        ExtraRights::Role => role(index, user, resource, ns, object, old),
        ExtraRights::Binding => binding(index, user, resource, ns, object, old),
        _ => Ok(()),
    }
}

fn role(
    index: &Index,
    user: &User,
    resource: &Resource,
    ns: &str,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    let name = object::name(object);
    let asked = Attributes {
        ns: ns.to_owned(),
        // A create has no name in its path.
        name: if old.is_some() { name.to_owned() } else { String::new() },
        ..Attributes::of("escalate", GROUP, &resource.plural, "")
    };
    if index.decide(user, &asked).allowed || old.is_some_and(|old| only_collected(object, old)) {
        return Ok(());
    }
    let refused = |why: &str| ApiError::forbidden(GROUP, &resource.plural, name, why);
    confirm(index, user, ns, &rules::rules_of(object)).map_err(|why| refused(&why))?;
    if aggregates(object) || old.is_some_and(aggregates) {
        let star = || vec!["*".to_owned()];
        let all = [
            Rule { verbs: star(), api_groups: star(), resources: star(), ..Rule::default() },
            Rule { verbs: star(), non_resource_urls: star(), ..Rule::default() },
        ];
        confirm(index, user, ns, &all)
            .map_err(|_| refused("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

fn aggregates(role: &Object) -> bool {
    let selectors = role.get("aggregationRule").and_then(|r| r.get("clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|s| !s.is_empty())
}

fn binding(
    index: &Index,
    user: &User,
    resource: &Resource,
    ns: &str,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    if old.is_some_and(|old| only_collected(object, old)) {
        return Ok(());
    }
    let reference = object.get("roleRef").cloned().unwrap_or_default();
    let text = |key: &str| reference.get(key).and_then(Value::as_str).unwrap_or_default();
    let plural = match text("kind") {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        other => {
            return Err(ApiError::internal(format!("unsupported role reference kind: {}", quoted(other))));
        }
    };
    let asked = Attributes {
        ns: ns.to_owned(),
        name: text("name").to_owned(),
        ..Attributes::of("bind", text("apiGroup"), plural, "")
    };
    if index.decide(user, &asked).allowed {
        return Ok(());
    }
    let granted = index.rules_of_role(ns, text("kind"), text("name"))?;
    confirm(index, user, ns, &granted)
        .map_err(|why| ApiError::forbidden(GROUP, &resource.plural, object::name(object), &why))
}

/// Checks that the user holds all these rules in the object's namespace.
fn confirm(index: &Index, user: &User, ns: &str, wanted: &[Rule]) -> Result<(), String> {
    if wanted.iter().fold(0usize, |sum, rule| sum.saturating_add(rule.count())) > MAX_PARTS {
        return Err(format!("the rules are too many to be checked: {MAX_PARTS} at most, each verb counted alone"));
    }
    let (owned, errors) = index.rules_for(user, ns);
    let missing = rules::missing(&owned, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let errors = if errors.is_empty() { errors } else { format!("; resolution errors: [{errors}]") };
    Err(format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
        quoted(&user.name),
        quoted_list(&user.groups),
        rules::describe(&missing)
    ))
}

/// Whether an update changes only what the garbage collector changes.
fn only_collected(object: &Object, old: &Object) -> bool {
    let bare = |object: &Object| {
        let mut object = object.clone();
        let meta = metadata_mut(&mut object);
        for key in ["ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"] {
            meta.shift_remove(key);
        }
        object.retain(|_, v| !v.is_null());
        json!(object)
    };
    bare(object) == bare(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_multiply_are_refused_before_they_do() {
        let many = |n: usize| -> Vec<String> { (0..n).map(|i| format!("x{i}")).collect() };
        let user = User { name: "u".into(), ..User::default() };
        let wanted = |n: usize| [Rule { verbs: many(n), api_groups: many(n), resources: many(n), ..Rule::default() }];
        let error_of = |n: usize| confirm(&Index::default(), &user, "n", &wanted(n)).unwrap_err();
        assert!(error_of(1000).starts_with("the rules are too many"));
        assert!(error_of(3).starts_with("user \"u\" (groups=[]) is attempting to grant"));
    }
}
