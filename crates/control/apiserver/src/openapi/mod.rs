//! OpenAPI: v2 (JSON and protobuf) and v3, built from the table of own kinds and from stored definitions.
//!
//! Documents are built when first asked for and kept until what is served changes.

mod gnostic;
mod paths;
mod schemas;
mod v2;
mod v3;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::media;
use crate::object;
use crate::reply::{self, Response};
use crate::resource::Catalog;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::verbs::Backend;

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// What the answer says it is: `@` may not stand in a media type, and Go's parser refuses it.
const V2_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Schemas of custom resources, as stored, by group, version and kind.
pub type Custom = BTreeMap<(String, String, String), Value>;

/// One finished document.
#[derive(Clone)]
struct Document {
    bytes: Bytes,
    tag: String,
}

#[derive(Default)]
struct Kept {
    generation: u64,
    documents: HashMap<String, Document>,
}

/// Documents as built last.
#[derive(Default)]
pub struct Cache {
    kept: Mutex<Kept>,
}

impl Cache {
    /// Answers a path below `/openapi`.
    pub async fn answer(
        &self,
        backend: &Backend,
        path: &[&str],
        headers: &HeaderMap,
        accept: &str,
    ) -> ApiResult<Response> {
        let catalog = backend.registry.catalog();
        match path {
            ["v2"] => {
                let media = v2_media(accept)?;
                let protobuf = media != "application/json";
                let key = if protobuf { "v2.pb" } else { "v2.json" };
                let document = self.document(backend, &catalog, key).await?;
                Ok(respond(&document, media, headers))
            }
            ["v3"] => Ok(reply::json_value(StatusCode::OK, &self.index(backend, &catalog).await?)),
            ["v3", rest @ ..] => {
                let gv = rest.join("/");
                if !group_versions(&catalog).contains_key(&gv) {
                    return Err(ApiError::unknown_path());
                }
                let document = self.document(backend, &catalog, &gv).await?;
                Ok(respond(&document, "application/json", headers))
            }
            _ => Err(ApiError::unknown_path()),
        }
    }

    async fn index(&self, backend: &Backend, catalog: &Arc<Catalog>) -> ApiResult<Value> {
        let mut paths = serde_json::Map::new();
        for gv in group_versions(catalog).into_keys() {
            let document = self.document(backend, catalog, &gv).await?;
            paths.insert(gv.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{gv}?hash={}", document.tag)}));
        }
        Ok(json!({"paths": paths}))
    }

    async fn document(&self, backend: &Backend, catalog: &Arc<Catalog>, key: &str) -> ApiResult<Document> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.generation != catalog.generation {
                *kept = Kept { generation: catalog.generation, documents: HashMap::new() };
            }
            if let Some(document) = kept.documents.get(key) {
                return Ok(document.clone());
            }
        }
        let group = group_versions(catalog).get(key).map(|(group, _)| group.clone());
        let custom = custom_schemas(backend, group.as_deref()).await?;
        let (what, catalog_of) = (key.to_owned(), Arc::clone(catalog));
        let bytes = tokio::task::spawn_blocking(move || match what.as_str() {
            "v2.pb" => gnostic::encode(&v2::document(&catalog_of, custom)),
            "v2.json" => v2::document(&catalog_of, custom).to_string().into_bytes(),
            gv => v3::document(&catalog_of, custom, gv).to_string().into_bytes(),
        })
        .await
        .map_err(ApiError::internal)?;
        let document = Document { tag: tag(&bytes), bytes: bytes.into() };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.generation == catalog.generation {
            kept.documents.insert(key.to_owned(), document.clone());
        }
        Ok(document)
    }
}

fn v2_media(accept: &str) -> ApiResult<&'static str> {
    if accept.trim().is_empty() {
        return Ok("application/json");
    }
    for range in media::ranges(accept) {
        match range.media {
            "application/json" | "*/*" | "application/*" => return Ok("application/json"),
            V2_PROTOBUF | V2_PROTOBUF_ANSWER => return Ok(V2_PROTOBUF_ANSWER),
            _ => {}
        }
    }
    Err(ApiError::not_acceptable("application/json, application/com.github.proto-openapi.spec.v2@v1.0+protobuf"))
}

/// `api/v1` or `apis/group/version`, with group and version.
fn group_versions(catalog: &Catalog) -> BTreeMap<String, (String, String)> {
    catalog.all().map(|r| (path_of(&r.group, &r.version), (r.group.clone(), r.version.clone()))).collect()
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn tag(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02X}")).collect()
}

fn respond(document: &Document, media: &'static str, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", document.tag);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
    let mut response = if known {
        reply::plain(StatusCode::NOT_MODIFIED, media, Bytes::new())
    } else {
        reply::plain(StatusCode::OK, media, document.bytes.clone())
    };
    if let Ok(value) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// The stored schemas of a group's definitions, or of all.
pub async fn custom_schemas(backend: &Backend, group: Option<&str>) -> ApiResult<Custom> {
    let catalog = backend.registry.catalog();
    let crds =
        catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").ok_or_else(ApiError::unknown_path)?;
    let mut out = Custom::new();
    for row in backend.select(crds, "", &Selector::default()).await?.1 {
        let own = row.name.split_once('.').map_or("", |(_, group)| group);
        if group.is_some_and(|wanted| wanted != own) {
            continue;
        }
        let Ok(crd) = object::from_tail("", "", row.rev, &row.body) else { continue };
        let spec = crd.get("spec").cloned().unwrap_or_default();
        let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind) = (text("/group"), text("/names/kind"));
        for version in spec.get("versions").and_then(Value::as_array).into_iter().flatten() {
            let name = version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
                out.insert((group.clone(), name, kind.clone()), schema.clone());
            }
        }
    }
    Ok(out)
}
