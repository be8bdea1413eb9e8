//! Users may not make the server read parameters for them that they may not read themselves
//! (`pkg/registry/admissionregistration/validatingadmissionpolicy` and `…binding`, authz).

use std::fmt::Write as _;

use serde_json::Value;

use super::Backend;
use crate::admission::GROUP;
use crate::change::Change;
use crate::checks::text;
use crate::object::{self, Object};
use crate::rbac::Attributes;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::strategy::ExtraRights;
use crate::user::MASTERS;
use crate::user::User;

/// Checks a valid policy or binding that `change` wants to store; `old` is its former state. Other kinds pass.
pub async fn check(
    backend: &Backend,
    change: &Change,
    resource: &Resource,
    object: &Object,
    old: Option<&Object>,
) -> ApiResult<()> {
    if !change.sub.is_empty() || change.user.is_in(MASTERS) {
        return Ok(());
    }
    let spec = |o: &Object| o.get("spec").cloned().unwrap_or_default();
    let (now, before) = (spec(object), old.map(spec).unwrap_or_default());
    let (key, refused) = match resource.strategy.extra_rights() {
        ExtraRights::Policy => match now.get("paramKind") {
            Some(kind) if before.get("paramKind") != Some(kind) => ("paramKind", of_kind(backend, &change.user, kind)),
            _ => return Ok(()),
        },
        ExtraRights::PolicyBinding => match now.get("paramRef") {
            Some(reference)
                if before.get("paramRef") != Some(reference) || before.get("policyName") != now.get("policyName") =>
            {
                ("paramRef", of_reference(backend, &change.user, reference, text(&now, "policyName")).await?)
            }
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Some(why) = refused else { return Ok(()) };
    let error = FieldError::forbidden(format!("spec.{key}"), why);
    Err(ApiError::invalid(&resource.group, &resource.kind, object::name(object), &[error]))
}

/// The read access to a kind that is needed: group, version and resource, with stars for unknown parts.
fn wanted(backend: &Backend, verb: &str, kind: Option<&Value>) -> (Attributes, bool) {
    let mut asked = Attributes::of(verb, "*", "*", "");
    let Some(kind) = kind else { return (asked, true) };
    let (api_version, name) = (text(kind, "apiVersion"), text(kind, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (asked.group, asked.version) = (group.to_owned(), version.to_owned());
    let catalog = backend.registry.catalog();
    let found = catalog.all().find(|r| r.kind == name && r.api_version() == api_version);
    if let Some(found) = found {
        asked.resource.clone_from(&found.plural);
    }
    (asked, found.is_some())
}

fn of_kind(backend: &Backend, user: &User, kind: &Value) -> Option<String> {
    let (mut asked, _) = wanted(backend, "get", Some(kind));
    (asked.name, asked.ns) = ("*".to_owned(), "*".to_owned());
    if backend.auth.decide(user, &asked).allowed {
        return None;
    }
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        format_user(user),
        text(kind, "kind"),
        text(kind, "apiVersion")
    ))
}

async fn of_reference(backend: &Backend, user: &User, reference: &Value, policy: &str) -> ApiResult<Option<String>> {
    let catalog = backend.registry.catalog();
    let policies = catalog.find(GROUP, "v1", "validatingadmissionpolicies").ok_or_else(ApiError::unknown_path)?;
    let found = match backend.stored(&policies.key("", policy)).await? {
        Some(stored) => Some(backend.load(policies, &stored)?),
        None => None,
    };
    let kind = found.as_ref().and_then(|p| p.get("spec")).and_then(|s| s.get("paramKind"));
    let name = text(reference, "name");
    let verb = if name.is_empty() { "list" } else { "get" };
    let (mut asked, resolved) = wanted(backend, verb, kind);
    (asked.name, asked.ns) = (name.to_owned(), text(reference, "namespace").to_owned());
    if backend.auth.decide(user, &asked).allowed {
        return Ok(None);
    }
    let least = format!(
        "to determine minimum required permissions and user {} does not have \"{verb}\" permission for all groups, versions \
         and resources",
        format_user(user)
    );
    Ok(Some(match (found.is_some(), kind) {
        (false, _) => format!("unable to get policy {policy} {least}"),
        (true, Some(kind)) if !resolved => {
            let printed = format!("&{{{} {}}}", text(kind, "apiVersion"), text(kind, "kind"));
            format!("unable to resolve paramKind {printed} {least}")
        }
        _ => {
            format!(
                "user {} does not have \"{verb}\" permission on the object referenced by paramRef",
                format_user(user)
            )
        }
    }))
}

/// Formats a user as Go prints the struct.
fn format_user(user: &User) -> String {
    let mut extra = String::new();
    for (at, (key, values)) in user.extra.iter().enumerate() {
        let blank = if at > 0 { " " } else { "" };
        let _ = write!(extra, "{blank}{key}:[{}]", values.join(" "));
    }
    format!("&{{{} {} [{}] map[{extra}]}}", user.name, user.uid, user.groups.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_printed_as_go_prints_them() {
        let mut user = User { name: "a".into(), groups: vec!["g".into(), "h".into()], ..User::default() };
        assert_eq!(format_user(&user), "&{a  [g h] map[]}");
        user.extra.insert("k".into(), vec!["v".into(), "w".into()]);
        assert_eq!(format_user(&user), "&{a  [g h] map[k:[v w]]}");
    }
}
