//! Discovery of groups, versions and resources, and the server's version.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::media;
use crate::object::api_version;
use crate::reply::{self, Response};
use crate::resource::{Catalog, Flavor, Resource};
use crate::status::{ApiError, ApiResult};

/// The Kubernetes version whose behaviour this server follows.
pub const KUBERNETES: (&str, &str) = ("1", "34");

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Upstream's order of a custom resource's verbs.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Parameters of the media types of aggregated discovery.
const AGGREGATED: &str = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The version in the format that clients compare.
pub fn git_version() -> String {
    let (major, minor) = KUBERNETES;
    format!("v{major}.{minor}.0+embedded")
}

/// `/version`.
pub fn version() -> Value {
    let (major, minor) = KUBERNETES;
    json!({"major": major, "minor": minor, "gitVersion": git_version(), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("linux/{}", std::env::consts::ARCH)})
}

/// Answers a discovery path; `None` for other paths.
pub fn answer(catalog: &Catalog, path: &[&str], headers: &HeaderMap, address: &str) -> Option<ApiResult<Response>> {
    document(catalog, path, address).map(|value| {
        let value = value?;
        let accept = &media::accept_header(headers);
        let builtin = |group: &str| catalog.all().any(|r| r.group == group && matches!(r.flavor, Flavor::Builtin(_)));
        match path {
            ["api", ..] => media::routed(accept, false)?,
            ["apis", group, _] if builtin(group) => media::routed(accept, false)?,
            _ => {}
        }
        let aggregates = matches!(path, ["api" | "apis"]);
        let (encoding, in_one) = media::discovery(accept, aggregates)?;
        if in_one {
            discovery_list(catalog, path == ["api"], headers, encoding)
        } else {
            reply::form(StatusCode::OK, &value, encoding)
        }
    })
}

/// The unaggregated document at a path.
fn document(catalog: &Catalog, path: &[&str], address: &str) -> Option<ApiResult<Value>> {
    Some(Ok(match path {
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]}),
        ["apis"] => {
            let groups: Vec<Value> = catalog.groups().iter().map(|(g, v)| group(g, v, false)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", version] => return Some(resources(catalog, "", version)),
        ["apis", name] => match catalog.groups().get(name) {
            Some(versions) => group(name, versions, true),
            None => return Some(Err(ApiError::unknown_path())),
        },
        ["apis", name, version] => return Some(resources(catalog, name, version)),
        _ => return None,
    }))
}

fn group(name: &str, versions: &[&str], alone: bool) -> Value {
    let list: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": api_version(name, v), "version": v})).collect();
    let mut out = json!({"name": name, "versions": list, "preferredVersion": list.first()});
    if alone {
        out["kind"] = json!("APIGroup");
        out["apiVersion"] = json!("v1");
    }
    out
}

fn resources(catalog: &Catalog, group: &str, version: &str) -> ApiResult<Value> {
    let mut list = Vec::new();
    for r in catalog.all().filter(|r| r.group == group && r.version == version) {
        let mut entry = json!({"name": r.plural, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind,
            "verbs": verbs_of(r)});
        if !r.is_review() {
            entry["storageVersionHash"] = json!(hash(catalog, r));
        }
        if !r.short_names.is_empty() {
            entry["shortNames"] = json!(r.short_names);
        }
        if !r.categories.is_empty() {
            entry["categories"] = json!(r.categories);
        }
        list.push(entry);
        for sub in subresources(r) {
            let mut entry = json!({"name": format!("{}/{sub}", r.plural), "singularName": "", "namespaced": r.namespaced,
                "kind": r.kind, "verbs": sub_verbs(sub)});
            if sub == "token" {
                entry["group"] = json!("authentication.k8s.io");
                entry["version"] = json!("v1");
                entry["kind"] = json!("TokenRequest");
            }
            if sub == "scale" {
                entry["group"] = json!("autoscaling");
                entry["version"] = json!("v1");
                entry["kind"] = json!("Scale");
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return Err(ApiError::unknown_path());
    }
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
        "resources": list}))
}

/// The served subresources, in upstream's order.
pub fn subresources(resource: &Resource) -> Vec<&'static str> {
    let mut out = resource.strategy.subresources().to_vec();
    if resource.status {
        out.push("status");
    }
    if resource.scale.is_some() {
        out.push("scale");
    }
    out
}

fn sub_verbs(sub: &str) -> &'static [&'static str] {
    match sub {
        "finalize" => &["update"],
        "token" => &["create"],
        _ => &["get", "patch", "update"],
    }
}

fn verbs_of(resource: &Resource) -> Vec<&'static str> {
    if resource.is_review() {
        return vec!["create"];
    }
    let all = if matches!(resource.flavor, Flavor::Custom { .. }) { CUSTOM_VERBS } else { VERBS };
    let collections = resource.strategy.deletes_collections();
    all.into_iter().filter(|v| collections || *v != "deletecollection").collect()
}

/// A hash of the group, version and kind in which a resource is stored.
fn hash(catalog: &Catalog, resource: &Resource) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    let stored = catalog.storage_version(resource).map_or(resource, |r| r);
    let group = resource.strategy.view_of().unwrap_or(&resource.group);
    let version = resource.strategy.stored_version().unwrap_or(&stored.version);
    let text = format!("{group}/{version}/{}", stored.kind);
    base64::engine::general_purpose::STANDARD.encode(&sha2::Sha256::digest(text)[..8])
}

/// The aggregated discovery document with an ETag, for clients that cache it.
fn discovery_list(
    catalog: &Catalog,
    core: bool,
    headers: &HeaderMap,
    encoding: media::Encoding,
) -> ApiResult<Response> {
    let groups = if core { vec![("", vec!["v1"])] } else { catalog.groups().into_iter().collect() };
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions.iter().map(|v| discovery_version(catalog, name, v)).collect();
            json!({"metadata": {"name": name}, "versions": versions})
        })
        .collect();
    let value = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    use sha2::Digest as _;
    let tag: String = sha2::Sha512::digest(value.to_string()).iter().map(|b| format!("{b:02X}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{tag}\"")).map_err(ApiError::internal)?;
    let mut response = if headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = reply::form(StatusCode::OK, &value, encoding)?;
        let media = HeaderValue::from_str(&format!("{};{AGGREGATED}", encoding.media()));
        response.headers_mut().insert(header::CONTENT_TYPE, media.map_err(ApiError::internal)?);
        response
    };
    let out = response.headers_mut();
    out.insert(header::ETAG, tag);
    out.insert(header::VARY, HeaderValue::from_static("Accept"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    Ok(response)
}

fn discovery_version(catalog: &Catalog, group: &str, version: &str) -> Value {
    // Upstream leaves group and version of built-in kinds empty if they are those of the document.
    let kind = |r: &Resource| match r.flavor {
        Flavor::Builtin(_) => json!({"group": "", "version": "", "kind": r.kind}),
        Flavor::Custom { .. } => json!({"group": r.group, "version": r.version, "kind": r.kind}),
    };
    let resources: Vec<Value> = catalog
        .all()
        .filter(|r| r.group == group && r.version == version)
        .map(|r| {
            let mut entry = json!({"resource": r.plural, "responseKind": kind(r),
                "scope": if r.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": r.singular, "verbs": verbs_of(r)});
            if !r.short_names.is_empty() {
                entry["shortNames"] = json!(r.short_names);
            }
            if !r.categories.is_empty() {
                entry["categories"] = json!(r.categories);
            }
            let subs: Vec<Value> = subresources(r)
                .iter()
                .map(|s| {
                    let kind = match *s {
                        "token" => json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}),
                        "scale" => json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}),
                        _ => kind(r),
                    };
                    json!({"subresource": s, "responseKind": kind, "verbs": sub_verbs(s)})
                })
                .collect();
            if !subs.is_empty() {
                entry["subresources"] = json!(subs);
            }
            entry
        })
        .collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}
