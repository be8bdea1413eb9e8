//! The attributes of a request for authorization, from its method, path and query alone.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/request` (RequestInfo).

use http::Method;

use super::rules::quoted;
use crate::route::{self, Query};
use crate::selectors;
use crate::status::{ApiError, Details, StatusReason, qualified};
use crate::user::User;

/// Attributes of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// A resource verb, else the HTTP method in lower case.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version; `*` matches any.
    pub version: String,
    /// Resource.
    pub resource: String,
    /// Subresource, empty for the object itself.
    pub sub: String,
    /// Namespace, empty for cluster scope or all.
    pub ns: String,
    /// Object name, empty for all.
    pub name: String,
    /// Path of the request.
    pub path: String,
    /// Whether the request is for a resource.
    pub is_resource: bool,
}

impl Attributes {
    /// Of a request for a resource, without namespace and name.
    pub fn of(verb: &str, group: &str, resource: &str, sub: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            version: "*".to_owned(),
            resource: resource.to_owned(),
            sub: sub.to_owned(),
            is_resource: true,
            ..Self::default()
        }
    }

    /// Of an HTTP request.
    pub fn of_request(method: &Method, path: &str, query: &Query) -> Self {
        let mut out =
            Self { verb: method.as_str().to_ascii_lowercase(), path: route::unescape(path, false), ..Self::default() };
        let parts = route::split(path);
        let words: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, mut rest) = match words.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return out,
        };
        out.is_resource = true;
        (out.group, out.version) = (group.to_owned(), version.to_owned());
        let special = matches!(rest[0], "proxy" | "watch") && rest.len() > 1;
        out.verb = if special {
            rest[0].to_owned()
        } else {
            match *method {
                Method::POST => "create",
                Method::GET | Method::HEAD => "get",
                Method::PUT => "update",
                Method::PATCH => "patch",
                Method::DELETE => "delete",
                _ => "",
            }
            .to_owned()
        };
        if special {
            rest = &rest[1..];
        }
        if let ["namespaces", ns, more @ ..] = rest {
            out.ns = (*ns).to_owned();
            if more.first().is_some_and(|first| !matches!(*first, "status" | "finalize")) {
                rest = more;
            }
        }
        let at = |i: usize| rest.get(i).map_or(String::new(), |w| (*w).to_owned());
        (out.resource, out.name) = (at(0), at(1));
        if out.verb != "proxy" {
            out.sub = at(2);
        }
        out.resolve_verb(query);
        out
    }

    fn resolve_verb(&mut self, query: &Query) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb.as_str() {
            "get" => {
                self.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned();
                self.name = named_by_selector(query.get("fieldSelector")).unwrap_or_default();
            }
            "delete" => "deletecollection".clone_into(&mut self.verb),
            _ => {}
        }
    }

    /// The 403 of a request that no rule allows.
    pub fn refusal(&self, user: &User, reason: &str) -> ApiError {
        let (name, verb) = (quoted(&user.name), &self.verb);
        let text = if self.is_resource {
            let resource = match self.sub.as_str() {
                "" => quoted(&self.resource),
                sub => quoted(&format!("{}/{sub}", self.resource)),
            };
            let what = format!("User {name} cannot {verb} resource {resource} in API group {}", quoted(&self.group));
            match self.ns.as_str() {
                "" => format!("{what} at the cluster scope"),
                ns => format!("{what} in the namespace {}", quoted(ns)),
            }
        } else {
            format!("User {name} cannot {verb} path {}", quoted(&self.path))
        };
        let mut text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !reason.is_empty() {
            text = format!("{text}: {reason}");
        }
        let text = match (self.resource.as_str(), self.name.as_str()) {
            ("", _) => format!("forbidden: {text}"),
            (resource, "") => format!("{} is forbidden: {text}", qualified(resource, &self.group)),
            (resource, name) => format!("{} {} is forbidden: {text}", qualified(resource, &self.group), quoted(name)),
        };
        let details = Details {
            name: self.name.clone(),
            group: self.group.clone(),
            kind: self.resource.clone(),
            ..Details::default()
        };
        ApiError {
            details: Some(Box::new(details)),
            ..ApiError::new(http::StatusCode::FORBIDDEN, StatusReason::Forbidden, text)
        }
    }
}

/// The name that a field selector requires, parsed as by the list or watch itself.
fn named_by_selector(selector: &str) -> Option<String> {
    let found = selectors::exact_field(selector, "metadata.name")?;
    let usable = !matches!(found.as_str(), "" | "." | "..") && !found.contains(['/', '%']);
    usable.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str, query: &str) -> (String, String, String, String, String, String) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let a = Attributes::of_request(&method, path, &Query::parse(query));
        (a.verb, a.group, a.resource, a.sub, a.ns, a.name)
    }

    fn row(cells: [&str; 6]) -> (String, String, String, String, String, String) {
        let [a, b, c, d, e, f] = cells.map(str::to_owned);
        (a, b, c, d, e, f)
    }

    #[test]
    fn requests_are_read_as_upstream_reads_them() {
        for (method, path, query, wanted) in [
            ("GET", "/api/v1/namespaces/a/pods", "", ["list", "", "pods", "", "a", ""]),
            ("GET", "/api/v1/namespaces/a/pods", "watch=true", ["watch", "", "pods", "", "a", ""]),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx", ["list", "", "pods", "", "", "x"]),
            ("GET", "/api/v1/pods", "fieldSelector=type!%3D\\,metadata.name%3Dx", ["list", "", "pods", "", "", ""]),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx,rubbish", ["list", "", "pods", "", "", ""]),
            ("GET", "/api/v1/pods", "fieldSelector=a%3Db,metadata.name%3D%3Dx", ["list", "", "pods", "", "", "x"]),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name!%3Dx", ["list", "", "pods", "", "", ""]),
            ("GET", "/api/v1/namespaces/a", "", ["get", "", "namespaces", "", "a", "a"]),
            ("PUT", "/api/v1/namespaces/a/finalize", "", ["update", "", "namespaces", "finalize", "a", "a"]),
            ("POST", "/api/v1/namespaces/a/pods/b/c", "", ["create", "", "pods", "c", "a", "b"]),
            ("DELETE", "/apis/g/v1/things", "", ["deletecollection", "g", "things", "", "", ""]),
            ("DELETE", "/apis/g/v1/things/x", "", ["delete", "g", "things", "", "", "x"]),
            ("GET", "/api/v1/watch/namespaces/a/pods", "", ["watch", "", "pods", "", "a", ""]),
            ("GET", "/apis/g/v1", "", ["get", "", "", "", "", ""]),
            ("POST", "/healthz", "", ["post", "", "", "", "", ""]),
        ] {
            assert_eq!(of(method, path, query), row(wanted), "{method} {path}?{query}");
        }
    }

    #[test]
    fn refusals_have_upstreams_text() {
        let user = User { name: "x".into(), ..User::default() };
        let text = |method: &str, path: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let error = Attributes::of_request(&method, path, &Query::default()).refusal(&user, "");
            (error.message.clone(), error.to_status()["details"].clone())
        };
        assert_eq!(
            text("GET", "/apis/g/v1/namespaces/n/y").0,
            "y.g is forbidden: User \"x\" cannot list resource \"y\" in API group \"g\" in the namespace \"n\""
        );
        assert_eq!(
            text("PATCH", "/api/v1/nodes/a/status").0,
            "nodes \"a\" is forbidden: User \"x\" cannot patch resource \"nodes/status\" in API group \"\" at the cluster scope"
        );
        assert_eq!(
            text("GET", "/metrics<"),
            ("forbidden: User \"x\" cannot get path \"/metrics&lt;\"".to_owned(), serde_json::json!({}))
        );
    }
}
