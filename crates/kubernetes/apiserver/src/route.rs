//! Paths and queries: finds the resource and verb of a request.

use std::sync::Arc;

use http::Method;

use crate::registered;
use crate::resource::{Catalog, Flavor, Resource};
use crate::status::{ApiError, ApiResult};

/// What can be done to resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Changes of a collection.
    Watch,
    /// A new object.
    Create,
    /// An object replaced.
    Update,
    /// An object changed.
    Patch,
    /// An object removed.
    Delete,
    /// A collection removed.
    DeleteCollection,
}

#[cfg(test)]
impl Verb {
    /// The name as in RBAC and audit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A request for a resource.
#[derive(Debug, Clone)]
pub struct ResourceTarget {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The verb.
    pub verb: Verb,
    /// Namespace, empty for cluster scope or all namespaces.
    pub ns: String,
    /// Object name, empty for the collection.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub sub: String,
}

/// The target of a request.
#[derive(Debug, Clone)]
pub enum Target {
    /// A resource.
    Resource(ResourceTarget),
    /// Everything else, by path.
    Other(Vec<String>),
}

/// Decoded query parameters, in order.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after `?`.
    pub fn parse(text: &str) -> Self {
        let pair = |p: &str| {
            let (key, value) = p.split_once('=').unwrap_or((p, ""));
            (unescape(key, true), unescape(value, true))
        };
        Self(text.split('&').filter(|p| !p.is_empty()).take(64).map(pair).collect())
    }

    /// The first value of a parameter; empty if absent.
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v)
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean as kube-apiserver parses it, by its first value: absent, `0` and `false` in any case are false,
    /// everything else is true.
    pub fn flag(&self, key: &str) -> bool {
        self.all(key).next().is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Decodes `%XX`, and `+` as a space if `plus`.
pub fn unescape(text: &str, plus: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' if plus => out.push(b' '),
            b'%' => {
                let byte = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
                match byte {
                    Some(byte) => {
                        out.push(byte);
                        at += 2;
                    }
                    None => out.push(b'%'),
                }
            }
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Splits a path into decoded parts.
pub fn split(path: &str) -> Vec<String> {
    unescape(path, false).split('/').filter(|p| !p.is_empty()).take(32).map(str::to_owned).collect()
}

/// The error for an unknown path. Upstream's own groups have a router that responds with a Status; other paths get
/// plain text.
pub fn missing(parts: &[&str], error: ApiError) -> ApiError {
    let builtin = match parts {
        ["api", ..] => true,
        ["apis", group, ..] => registered::is_group(group),
        _ => false,
    };
    if builtin && error == ApiError::unknown_path() { ApiError::unknown_resource() } else { error }
}

/// Whether a path belongs to a built-in group or endpoint, even if nothing is served at it. Other paths belong to
/// custom resources and plain pages, whose error has no Status.
pub fn is_in_builtin_group(catalog: &Catalog, path: &str) -> bool {
    let parts = split(path);
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["api" | "version", ..] => true,
        ["apis", group, ..] => catalog.all().any(|r| r.group == *group && matches!(r.flavor, Flavor::Builtin(_))),
        _ => false,
    }
}

/// Finds the target of a request.
pub fn route(catalog: &Catalog, method: &Method, path: &str, query: &Query) -> ApiResult<Target> {
    let parts = split(path);
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Target::Other(parts.clone())),
    };
    resource_at(catalog, method, (group, version, rest), query).map_err(|error| missing(&words, error))
}

fn resource_at(
    catalog: &Catalog,
    method: &Method,
    (group, version, rest): (&str, &str, &[&str]),
    query: &Query,
) -> ApiResult<Target> {
    // The deprecated watch paths, for a collection or a single object. Parsing must agree with
    // `Attributes::of_request`, which authorization used: such words mean the same in every group there.
    let (watch_path, rest) = match rest {
        ["watch", more @ ..] if !more.is_empty() => (true, more),
        ["proxy", more @ ..] if !more.is_empty() => return Err(ApiError::unknown_path()),
        _ => (false, rest),
    };
    let (ns, rest) = match rest {
        ["namespaces", ns, plural, ..] if !matches!(*plural, "status" | "finalize") => (*ns, &rest[2..]),
        _ => ("", rest),
    };
    let (plural, name, sub) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, sub] => (*plural, *name, *sub),
        _ => return Err(ApiError::unknown_path()),
    };
    let resource = catalog.find(group, version, plural).ok_or_else(ApiError::unknown_path)?;
    if resource.namespaced && ns.is_empty() && !name.is_empty() || !resource.namespaced && !ns.is_empty() {
        return Err(ApiError::unknown_path());
    }
    let known_sub = match sub {
        "" => true,
        "status" => resource.status,
        "scale" => resource.scale.is_some(),
        other => resource.strategy.subresources().contains(&other),
    };
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    if !known_sub {
        let named = custom && !name.is_empty();
        return Err(if named { ApiError::not_found(group, plural, name) } else { ApiError::unknown_path() });
    }
    let verb = match watch_path {
        true => watch_verb(resource, method, sub)?,
        false => verb_of(resource, method, (ns, name, sub), query.flag("watch"))?,
    };
    Ok(Target::Resource(ResourceTarget {
        resource: Arc::clone(resource),
        verb,
        ns: ns.to_owned(),
        name: name.to_owned(),
        sub: sub.to_owned(),
    }))
}

/// Whether a non-resource path allows GET only: upstream has a route for it. Paths with upstream handlers allow any
/// method.
pub fn gets_only(catalog: &Catalog, path: &[&str]) -> bool {
    match path {
        ["api" | "version" | "openid" | ".well-known", ..] => true,
        ["apis", group, _] => {
            catalog.all().any(|r| r.group == *group && matches!(r.flavor, crate::resource::Flavor::Builtin(_)))
        }
        _ => false,
    }
}

/// The verb of a method on a collection, object or subresource. `watch` is the query parameter.
fn verb_of(resource: &Resource, method: &Method, (ns, name, sub): (&str, &str, &str), watch: bool) -> ApiResult<Verb> {
    let no_verb = |verb: &str| match resource.flavor {
        Flavor::Custom { .. } => ApiError::verb_not_supported(&resource.group, &resource.plural, verb),
        Flavor::Builtin(_) => ApiError::method_not_allowed(),
    };
    if resource.is_review() && !(method == Method::POST && name.is_empty()) {
        // A review has neither collection nor members: a path with a name does not exist.
        return Err(if name.is_empty() { ApiError::method_not_allowed() } else { ApiError::unknown_path() });
    }
    if sub == "token" && method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    Ok(match (method.as_str(), name.is_empty(), sub.is_empty()) {
        ("POST", false, false) if sub == "token" => Verb::Create,
        ("HEAD", _, _) => return Err(ApiError::method_not_allowed()),
        ("GET", false, false) if sub == "finalize" => return Err(ApiError::method_not_allowed()),
        ("GET", true, _) if watch => Verb::Watch,
        ("GET", true, _) => Verb::List,
        ("GET", false, _) => Verb::Get,
        ("POST", true, _) if !resource.namespaced || !ns.is_empty() => Verb::Create,
        ("PUT", false, _) => Verb::Update,
        ("PATCH", false, _) if sub != "finalize" => Verb::Patch,
        ("DELETE", false, true) => Verb::Delete,
        ("DELETE", true, _) if !resource.strategy.deletes_collections() => return Err(no_verb("delete")),
        ("DELETE", true, _) if !resource.namespaced || !ns.is_empty() => Verb::DeleteCollection,
        ("POST", false, _) => return Err(no_verb("create")),
        ("DELETE", false, false) => return Err(no_verb("delete")),
        _ => return Err(ApiError::method_not_allowed()),
    })
}

/// The verb of a `/watch/` path; for custom resources it does not depend on the method.
fn watch_verb(resource: &Resource, method: &Method, sub: &str) -> ApiResult<Verb> {
    let custom = matches!(resource.flavor, Flavor::Custom { .. });
    match (custom, sub) {
        _ if resource.is_review() => Err(ApiError::unknown_path()),
        (true, "") => Ok(Verb::Watch),
        (true, _) => Err(ApiError::verb_not_supported(&resource.group, &resource.plural, "watch")),
        (false, "") if *method == Method::GET => Ok(Verb::Watch),
        (false, "") => Err(ApiError::method_not_allowed()),
        (false, _) => Err(ApiError::unknown_path()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::strategies;

    fn target(method: &str, path: &str, query: &str) -> Result<(String, &'static str, String, String, String), u16> {
        let catalog = Registry::new(strategies::kinds()).catalog();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        match route(&catalog, &method, path, &Query::parse(query)) {
            Ok(Target::Resource(t)) => Ok((t.resource.plural.clone(), t.verb.name(), t.ns, t.name, t.sub)),
            Ok(Target::Other(_)) => Err(0),
            Err(e) => Err(e.code),
        }
    }

    fn found(
        plural: &str,
        verb: &'static str,
        ns: &str,
        name: &str,
        sub: &str,
    ) -> Result<(String, &'static str, String, String, String), u16> {
        Ok((plural.into(), verb, ns.into(), name.into(), sub.into()))
    }

    #[test]
    fn what_is_done_is_what_rights_are_asked_for() {
        use crate::rbac::Attributes;
        let registry = Registry::new(strategies::kinds());
        for plural in ["status", "finalize", "proxy", "watch", "things", "namespaces"] {
            for scope in ["Namespaced", "Cluster"] {
                let crd = serde_json::json!({"spec": {"group": "g.example.com", "scope": scope,
                    "names": {"plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {"type": "object"}}}]},
                    "status": {"conditions": [{"type": "Established", "status": "True"}]}});
                let served = crate::crd::resources(crd.as_object().unwrap(), 1);
                registry.replace("g.example.com", plural, 1, served);
                let catalog = registry.catalog();
                let words = ["namespaces", "status", "proxy", "watch", plural, "a"];
                let mut paths: Vec<String> = vec!["/apis/g.example.com/v1".to_owned()];
                for depth in 0..5 {
                    let longer = |path: &String| words.map(|word| format!("{path}/{word}"));
                    let of_depth = paths.iter().filter(|p| p.matches('/').count() == 3 + depth);
                    let next: Vec<String> = of_depth.flat_map(longer).collect();
                    paths.extend(next);
                }
                for path in &paths {
                    for method in [Method::GET, Method::POST, Method::DELETE] {
                        let Ok(Target::Resource(done)) = route(&catalog, &method, path, &Query::default()) else {
                            continue;
                        };
                        let asked = Attributes::of_request(&method, path, &Query::default());
                        let expected =
                            (done.resource.plural.as_str(), done.sub.as_str(), done.name.as_str(), done.ns.as_str());
                        // The namespace attribute of a Namespace is its own name.
                        let of_itself =
                            done.resource.plural == "namespaces" && done.ns.is_empty() && asked.ns == asked.name;
                        let ns = if of_itself { "" } else { asked.ns.as_str() };
                        assert_eq!(
                            (asked.resource.as_str(), asked.sub.as_str(), asked.name.as_str(), ns),
                            expected,
                            "{path}"
                        );
                        assert_eq!(asked.verb, done.verb.name(), "{method} {path}");
                    }
                }
            }
        }
    }

    #[test]
    fn paths_and_verbs() {
        assert_eq!(target("GET", "/api/v1/namespaces", ""), found("namespaces", "list", "", "", ""));
        assert_eq!(target("GET", "/api/v1/namespaces/a", ""), found("namespaces", "get", "", "a", ""));
        assert_eq!(
            target("PUT", "/api/v1/namespaces/a/finalize", ""),
            found("namespaces", "update", "", "a", "finalize")
        );
        assert_eq!(target("GET", "/api/v1/namespaces/a/secrets/b%2Ec", ""), found("secrets", "get", "a", "b.c", ""));
        assert_eq!(target("GET", "/api/v1/secrets", "watch=1"), found("secrets", "watch", "", "", ""));
        assert_eq!(target("GET", "/api/v1/secrets", "watch=false"), found("secrets", "list", "", "", ""));
        assert_eq!(target("GET", "/api/v1/secrets", "watch=False&watch=1"), found("secrets", "list", "", "", ""));
        assert_eq!(target("GET", "/api/v1/namespaces/a/finalize", ""), Err(405));
        assert_eq!(target("GET", "/api/v1/watch/secrets", ""), found("secrets", "watch", "", "", ""));
        assert_eq!(target("GET", "/api/v1/watch/namespaces/a/secrets/b", ""), found("secrets", "watch", "a", "b", ""));
        assert_eq!(target("GET", "/api/v1/watch/namespaces/a", ""), found("namespaces", "watch", "", "a", ""));
        assert_eq!(target("POST", "/api/v1/watch/secrets", ""), Err(405));
        assert_eq!(target("GET", "/api/v1/watch/namespaces/a/status", ""), Err(404));
        assert_eq!(
            target("DELETE", "/api/v1/namespaces/a/secrets", ""),
            found("secrets", "deletecollection", "a", "", "")
        );
        assert_eq!(target("POST", "/api/v1/secrets", ""), Err(405));
        assert_eq!(target("GET", "/api/v1/secrets/x", ""), Err(404));
        assert_eq!(target("GET", "/api/v1/pods", ""), Err(404));
        assert_eq!(target("GET", "/api/v1/namespaces/a/secrets/b/status", ""), Err(404));
        assert_eq!(target("GET", "/version", ""), Err(0));
        let catalog = Registry::new(strategies::kinds()).catalog();
        assert!(
            is_in_builtin_group(&catalog, "/api/v1/pods")
                && is_in_builtin_group(&catalog, "/apis/coordination.k8s.io/v9")
        );
        assert!(!is_in_builtin_group(&catalog, "/apis/x.io/v1/pods") && !is_in_builtin_group(&catalog, "/x"));
    }
}
