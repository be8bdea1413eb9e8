//! Impersonation: the `Impersonate-*` headers.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/filters` (impersonation).

use http::HeaderMap;

use crate::rbac::attributes::Attributes;
use crate::rbac::index::Index;
use crate::route;
use crate::status::ApiError;
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, account_groups, account_name, split_account};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// Group of the virtual resources for UIDs and extras.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Why an impersonation is refused.
#[derive(Debug)]
pub enum Refused {
    /// The headers are inconsistent. The text is for upstream's plain 500.
    Headers(String),
    /// The user lacks a right.
    Forbidden(ApiError),
}

/// The user that `user` impersonates, if any. Each part of it must be allowed.
pub fn impersonated(index: &Index, user: &User, headers: &HeaderMap) -> Result<Option<User>, Refused> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let (name, uid, groups) = (first(USER), first(UID), texts(GROUP));
    let mut keys: Vec<&str> = headers.keys().map(|k| k.as_str()).filter(|k| k.starts_with(EXTRA)).collect();
    keys.sort_unstable();
    if name.is_empty() {
        return without_user(&groups, &keys, &uid, texts);
    }
    let allowed = |asked: Attributes| {
        let decision = index.decide(user, &asked);
        if decision.allowed { Ok(()) } else { Err(Refused::Forbidden(asked.refusal(user, &decision.reason))) }
    };
    let of = |group: &str, resource: &str, sub: &str, name: &str| Attributes {
        name: name.to_owned(),
        ..Attributes::of("impersonate", group, resource, sub)
    };
    let mut wanted = User { name: name.clone(), uid: uid.clone(), groups: groups.clone(), ..User::default() };
    if let Some((ns, account)) = split_account(&name) {
        allowed(Attributes { ns: ns.to_owned(), ..of("", "serviceaccounts", "", account) })?;
        wanted.name = account_name(ns, account);
        if groups.is_empty() {
            wanted.groups = account_groups(ns);
        }
    } else {
        allowed(of("", "users", "", &name))?;
    }
    for group in &groups {
        allowed(of("", "groups", "", group))?;
    }
    for key in keys {
        let extra = route::unescape(key.strip_prefix(EXTRA).unwrap_or_default(), false);
        for value in texts(key) {
            allowed(Attributes { version: "v1".to_owned(), ..of(AUTHENTICATION, "userextras", &extra, &value) })?;
            wanted.extra.entry(extra.clone()).or_default().push(value);
        }
    }
    if !uid.is_empty() {
        allowed(Attributes { version: "v1".to_owned(), ..of(AUTHENTICATION, "uids", "", &uid) })?;
    }
    let implied = if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !wanted.is_in(UNAUTHENTICATED) && !wanted.is_in(implied) {
        wanted.groups.push(implied.to_owned());
    }
    Ok(Some(wanted))
}

/// Refuses groups, UIDs and extras without a user. They are printed as Go prints object references.
fn without_user(
    groups: &[String],
    keys: &[&str],
    uid: &str,
    texts: impl Fn(&str) -> Vec<String>,
) -> Result<Option<User>, Refused> {
    let mut parts: Vec<String> = groups.iter().map(|g| format!("{{Group  {g}    }}")).collect();
    for key in keys {
        let extra = route::unescape(key.strip_prefix(EXTRA).unwrap_or_default(), false);
        parts.extend(texts(key).iter().map(|v| format!("{{UserExtra  {v}  {AUTHENTICATION}/v1  {extra}}}")));
    }
    if !uid.is_empty() {
        parts.push(format!("{{UID  {uid}  {AUTHENTICATION}/v1  }}"));
    }
    if parts.is_empty() {
        return Ok(None);
    }
    Err(Refused::Headers(format!("requested [{}] without impersonating a user", parts.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (key, value) in pairs {
            out.append(*key, http::HeaderValue::from_static(value));
        }
        out
    }

    fn run(user: &User, pairs: &[(&'static str, &'static str)]) -> Result<Option<User>, String> {
        impersonated(&Index::default(), user, &headers(pairs)).map_err(|e| match e {
            Refused::Headers(text) => text,
            Refused::Forbidden(error) => error.message,
        })
    }

    #[test]
    fn groups_follow_from_the_name_unless_given() {
        let root = User::server();
        let groups = |pairs: &[(&'static str, &'static str)]| run(&root, pairs).unwrap().unwrap().groups;
        assert_eq!(groups(&[(USER, "a")]), [AUTHENTICATED]);
        assert_eq!(groups(&[(USER, "a"), (GROUP, "g"), (GROUP, "h")]), ["g", "h", AUTHENTICATED]);
        assert_eq!(groups(&[(USER, "a"), (GROUP, UNAUTHENTICATED)]), [UNAUTHENTICATED]);
        assert_eq!(groups(&[(USER, ANONYMOUS)]), [UNAUTHENTICATED]);
        assert_eq!(
            groups(&[(USER, "system:serviceaccount:n:a")]),
            ["system:serviceaccounts", "system:serviceaccounts:n", AUTHENTICATED]
        );
        let full = run(&root, &[(USER, "a"), (UID, "1"), ("impersonate-extra-x%2fy", "z")]).unwrap().unwrap();
        assert_eq!((full.uid.as_str(), full.extra["x/y"].as_slice()), ("1", &["z".to_owned()][..]));
        assert_eq!(run(&root, &[]), Ok(None));
    }

    #[test]
    fn every_part_must_be_allowed() {
        let user = User { name: "u".into(), ..User::default() };
        assert_eq!(
            run(&user, &[(USER, "a")]).unwrap_err(),
            "users \"a\" is forbidden: User \"u\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            run(&user, &[(USER, "system:serviceaccount:n:a")]).unwrap_err(),
            "serviceaccounts \"a\" is forbidden: User \"u\" cannot impersonate resource \"serviceaccounts\" in API group \"\" \
             in the namespace \"n\""
        );
        assert_eq!(
            run(&User::server(), &[(GROUP, "g")]).unwrap_err(),
            "requested [{Group  g    }] without impersonating a user"
        );
    }
}
