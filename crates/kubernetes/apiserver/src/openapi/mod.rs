//! OpenAPI: v2 and v3, each in JSON and protobuf, built from the table of built-in kinds and from stored definitions.
//!
//! [`paths`] describes operations, [`schemas`] and [`custom`] describe objects, [`v2`] and [`v3`] encode them.
//! Documents are built on demand and cached, within bounds, until their resources change.

mod common;
mod custom;
mod gnostic;
mod gnostic3;
mod parameters;
mod paths;
mod schemas;
mod serve;
mod v2;
mod v3;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::header::VARY;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::media;
use crate::object;
use crate::reply::{self, Response};
use crate::resource::{Catalog, Flavor, Resource};
use crate::route::Query;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::verbs::Backend;

use common::{Custom, builtin_groups, path_of};
use serve::Document;

const JSON: &str = "application/json";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The media type in the response: Go's parser refuses `@` in a media type.
const V2_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
const V3_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// Prefix of the cache keys of protobuf documents.
const BINARY: &str = "protobuf:";

/// Most bytes of cached documents; others are built again on demand.
const KEPT_BYTES: usize = 8 << 20;

/// The last build of a document.
struct Built {
    /// Its resources: the document is valid as long as exactly these are served.
    about: Vec<Arc<Resource>>,
    tag: String,
    made: jiff::Timestamp,
    /// Absent if the cache had no room.
    bytes: Option<Bytes>,
}

impl Built {
    fn holds(&self, about: &[Arc<Resource>]) -> bool {
        self.about.len() == about.len() && self.about.iter().zip(about).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// The cache of documents.
#[derive(Default)]
pub struct Cache {
    /// By name. Locked while building, so that concurrent requests share one build.
    built: tokio::sync::Mutex<HashMap<String, Built>>,
}

impl Cache {
    /// Serves a path below `/openapi`.
    pub async fn answer(
        &self,
        backend: &Backend,
        path: &[&str],
        query: &Query,
        headers: &HeaderMap,
    ) -> ApiResult<Response> {
        let catalog = backend.registry.catalog();
        let accept = media::accept_header(headers);
        match path {
            ["v2"] => {
                let name = match media::prefer(&accept, &[JSON, V2_PROTOBUF, V2_PROTOBUF_ANSWER]) {
                    None => return Ok(reply::empty(StatusCode::NOT_ACCEPTABLE)),
                    Some(JSON) => "v2.json",
                    Some(_) => "v2.pb",
                };
                let document = self.document(backend, &catalog, name).await?;
                let media = if name == "v2.json" { JSON } else { V2_PROTOBUF_ANSWER };
                let mut response = serve::document(&document, media, headers);
                // Documents of this size are compressed for clients that accept it.
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
                response.headers_mut().append(VARY, HeaderValue::from_static("Accept"));
                Ok(response)
            }
            ["v3"] => Ok(serve::index(&self.index(backend, &catalog).await?, headers)),
            ["v3", rest @ ..] => {
                let name = rest.join("/");
                if !names(&catalog).contains_key(&name) {
                    return Ok(reply::empty(StatusCode::NOT_FOUND));
                }
                let (media, of) = match media::prefer(&accept, &[JSON, V3_PROTOBUF_ANSWER, V3_PROTOBUF]) {
                    None => {
                        let mut response = reply::empty(StatusCode::NOT_ACCEPTABLE);
                        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                        return Ok(response);
                    }
                    Some(JSON) => (JSON, name.clone()),
                    Some(_) => (V3_PROTOBUF_ANSWER, format!("{BINARY}{name}")),
                };
                let document = self.document(backend, &catalog, &of).await?;
                Ok(serve::hashed(&document, media, headers, (query.get("hash"), &url(&name, &document.tag))))
            }
            _ => Err(ApiError::unknown_path()),
        }
    }

    /// The index of all documents of version 3. Their addresses contain their hashes.
    async fn index(&self, backend: &Backend, catalog: &Arc<Catalog>) -> ApiResult<Value> {
        let mut built = self.built.lock().await;
        let names = names(catalog);
        let holds = |name: &String, about: &Vec<_>| built.get(name).is_some_and(|b| b.holds(about));
        let missing: Vec<String> = names.iter().filter(|(n, about)| !holds(n, about)).map(|(n, _)| n.clone()).collect();
        build(&mut built, backend, catalog, missing).await?;
        let mut paths = serde_json::Map::new();
        for name in names.into_keys() {
            let tag = built.get(&name).map_or("", |b| &b.tag);
            paths.insert(name.clone(), json!({"serverRelativeURL": url(&name, tag)}));
        }
        Ok(json!({"paths": paths}))
    }

    async fn document(&self, backend: &Backend, catalog: &Arc<Catalog>, name: &str) -> ApiResult<Document> {
        let mut built = self.built.lock().await;
        let about = about(catalog, name);
        let ready = |b: &&Built| b.holds(&about) && b.bytes.is_some();
        if built.get(name).filter(ready).is_none() {
            build(&mut built, backend, catalog, vec![name.to_owned()]).await?;
        }
        let found =
            built.get(name).and_then(|b| Some(Document { bytes: b.bytes.clone()?, tag: b.tag.clone(), made: b.made }));
        found.ok_or_else(|| ApiError::internal("a document that was built is gone"))
    }
}

fn url(name: &str, tag: &str) -> String {
    format!("/openapi/v3/{name}?hash={tag}")
}

/// Builds documents. When the cache is full, the bytes of all previous ones are dropped.
async fn build(
    built: &mut HashMap<String, Built>,
    backend: &Backend,
    catalog: &Arc<Catalog>,
    wanted: Vec<String>,
) -> ApiResult<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let abouts: Vec<Vec<Arc<Resource>>> = wanted.iter().map(|name| about(catalog, name)).collect();
    let is_custom = |r: &&Arc<Resource>| matches!(r.flavor, Flavor::Custom { .. });
    let groups: Vec<&str> = abouts.iter().flatten().filter(is_custom).map(|r| r.group.as_str()).collect();
    let custom = if groups.is_empty() { Custom::new() } else { stored(backend, &groups).await? };
    let catalog_of = Arc::clone(catalog);
    let made = backend
        .store
        .aside(move || wanted.into_iter().map(|name| (encode(&catalog_of, &custom, &name), name)).collect::<Vec<_>>());
    let known = names(catalog);
    built.retain(|name, _| name.starts_with("v2.") || known.contains_key(bare(name)));
    for (((bytes, tag), name), about) in made.await.map_err(ApiError::internal)?.into_iter().zip(abouts) {
        let held: usize = built.values().filter_map(|b| b.bytes.as_ref()).map(Bytes::len).sum();
        if held + bytes.len() > KEPT_BYTES {
            built.values_mut().for_each(|b| b.bytes = None);
        }
        // Unchanged content keeps its build time, so that clients need not fetch it again.
        let made = built.get(&name).filter(|b| b.tag == tag).map_or_else(jiff::Timestamp::now, |b| b.made);
        built.insert(name, Built { about, tag, made, bytes: Some(bytes.into()) });
    }
    Ok(())
}

/// The bytes of a document, and the hash of its JSON form.
fn encode(catalog: &Catalog, custom: &Custom, name: &str) -> (Vec<u8>, String) {
    match name {
        "v2.pb" => {
            let document = v2::document(catalog, custom);
            let tag = tag(document.to_string().as_bytes());
            (gnostic::encode(&document), tag)
        }
        _ => {
            let document = match name {
                "v2.json" => v2::document(catalog, custom),
                _ => v3::document(catalog, custom, bare(name)),
            };
            let bytes = document.to_string().into_bytes();
            let tag = tag(&bytes);
            if name.starts_with(BINARY) { (gnostic3::encode(&document), tag) } else { (bytes, tag) }
        }
    }
}

/// The document's name without the prefix for protobuf.
fn bare(name: &str) -> &str {
    name.strip_prefix(BINARY).unwrap_or(name)
}

fn tag(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha512::digest(bytes).iter().map(|b| format!("{b:02X}")).collect()
}

/// The documents of version 3 with their resources: `api/v1`, `apis/GROUP/VERSION`, and the discovery endpoints.
fn names(catalog: &Catalog) -> BTreeMap<String, Vec<Arc<Resource>>> {
    let mut out: BTreeMap<String, Vec<Arc<Resource>>> =
        paths::roots(&builtin_groups(catalog)).into_iter().map(|(name, _)| (name, Vec::new())).collect();
    for resource in catalog.all() {
        out.entry(path_of(&resource.group, &resource.version)).or_default().push(Arc::clone(resource));
    }
    out
}

fn about(catalog: &Catalog, name: &str) -> Vec<Arc<Resource>> {
    match name {
        "v2.json" | "v2.pb" => catalog.all().cloned().collect(),
        _ => catalog.all().filter(|r| path_of(&r.group, &r.version) == bare(name)).cloned().collect(),
    }
}

/// The stored schemas of the custom resources of these groups.
async fn stored(backend: &Backend, groups: &[&str]) -> ApiResult<Custom> {
    let catalog = backend.registry.catalog();
    let crds =
        catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").ok_or_else(ApiError::unknown_path)?;
    let mut out = Custom::new();
    for row in backend.select(crds, "", &Selector::default()).await?.1 {
        let group = row.name.split_once('.').map_or("", |(_, group)| group);
        if !groups.contains(&group) {
            continue;
        }
        let Ok(crd) = object::from_tail("", "", row.rev, &row.body) else { continue };
        let spec = crd.get("spec").cloned().unwrap_or_default();
        let text =
            |at: &Value, pointer: &str| at.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let preserves = spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
        for version in spec.get("versions").and_then(Value::as_array).into_iter().flatten() {
            let fields = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
            let path = |field: &Value| text(field, "/jsonPath").trim_start_matches('.').to_owned();
            let known = custom::Stored {
                schema: version.pointer("/schema/openAPIV3Schema").cloned(),
                preserves,
                selectable: fields.map(path).collect(),
            };
            out.insert((text(&spec, "/group"), text(version, "/name"), text(&spec, "/names/kind")), known);
        }
    }
    Ok(out)
}
