//! list: pages of objects, consistent at one revision. Objects are passed on as stored, without being parsed, unless
//! a selector or another form of response needs it. Large lists are streamed while they are read.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::options::{Match, Options, version, wait_for};
use super::{Backend, tokens};
use crate::media::{Encoding, Shape};
use crate::reply::{self, Broken, Response};
use crate::request::Request;
use crate::resource::{Flavor, Resource};
use crate::select::{Begin, Unread, Walk};
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Row, StoreError};
use crate::table;

/// Lists up to this size are built before they are sent, in bytes of stored objects.
const WHOLE: usize = 256 << 10;

/// Answers with a list.
pub async fn list(backend: &Arc<Backend>, request: &Request) -> ApiResult<Response> {
    let resource = Arc::clone(request.resource());
    let options = Options::read(&request.query, &resource, false)?;
    let begin = begin(backend, request, &options).await?;
    let ns = &request.target.ns;
    let gone = |error: Unread, walk: &Walk| match (&error, &walk.query.after) {
        (Unread::Store(StoreError::Compacted { .. }), Some(after)) if !options.token.is_empty() => {
            ApiError::expired_list(tokens::encode(None, after, scoped(&resource, ns)))
        }
        _ => error.into(),
    };
    let mut walk = Walk::new(&resource, ns, begin, options.limit);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    // Only JSON can be streamed.
    let in_parts = request.accept.encoding == Encoding::Json && !request.accept.beta;
    while !walk.done && (bytes < WHOLE || !in_parts) {
        let step = walk.step(backend, &resource, &options.selector).await;
        let found = step.map_err(|e| gone(e, &walk))?;
        bytes += found.iter().map(|row| row.body.len()).sum::<usize>();
        rows.extend(found);
    }
    // The continue token precedes the items, so a page that will be streamed is scanned ahead.
    let mut ahead = walk.clone();
    while !ahead.done && ahead.left.is_some() {
        ahead.step(backend, &resource, &options.selector).await?;
    }
    let mut meta = json!({"resourceVersion": walk.rev.to_string()});
    if matches!(resource.flavor, Flavor::Custom { .. }) && matches!(request.accept.shape, Shape::Plain) {
        // Upstream always sets it in lists of custom resources.
        meta["continue"] = json!("");
    }
    if let Some(next) = &ahead.next {
        meta["continue"] = json!(tokens::encode(Some(walk.rev), next, scoped(&resource, ns)));
        if options.selector.is_empty() {
            meta["remainingItemCount"] = json!(backend.count_after(&resource, ns, next, walk.rev).await?);
        }
    }
    let shape = request.accept.shape.clone();
    let include = match shape {
        Shape::Table(_) => table::included(request.query.get("includeObject"))?.to_owned(),
        _ => String::new(),
    };
    let form = Form { resource, shape, include };
    let mut head = form.head(&meta);
    form.items(&mut head, &rows, true)?;
    drop(rows);
    if walk.done {
        head.extend_from_slice(END);
        return reply::bytes(request, StatusCode::OK, head);
    }
    let (out, parts) = mpsc::channel(2);
    tokio::spawn(send(Arc::clone(backend), Arc::new(form), walk, options.selector, head, out));
    Ok(reply::parts(request, parts))
}

/// The objects that a deletecollection removes: the metadata of their list, and one page or all of them.
pub async fn taken(backend: &Backend, request: &Request, options: Options) -> ApiResult<(Value, Vec<Row>)> {
    let (resource, ns) = (request.resource(), &request.target.ns);
    let mut walk = Walk::new(resource, ns, begin(backend, request, &options).await?, options.limit);
    let mut rows = Vec::new();
    while !walk.done {
        rows.extend(walk.step(backend, resource, &options.selector).await?);
    }
    let mut meta = json!({"resourceVersion": walk.rev.to_string()});
    if matches!(resource.flavor, Flavor::Custom { .. }) {
        meta["continue"] = json!("");
    }
    if let Some(next) = &walk.next {
        meta["continue"] = json!(tokens::encode(Some(walk.rev), next, scoped(resource, ns)));
        if options.selector.is_empty() {
            meta["remainingItemCount"] = json!(backend.count_after(resource, ns, next, walk.rev).await?);
        }
    }
    Ok((meta, rows))
}

/// Sends the head, then the rest while reading it. On failure it ends without the closing brackets and breaks the
/// connection, so that the client does not mistake a part for the whole.
async fn send(
    backend: Arc<Backend>,
    form: Arc<Form>,
    mut walk: Walk,
    selector: Selector,
    head: Vec<u8>,
    out: mpsc::Sender<Result<Bytes, Broken>>,
) {
    if out.send(Ok(head.into())).await.is_err() {
        return;
    }
    while !walk.done {
        let part = match walk.step(&backend, &form.resource, &selector).await {
            Ok(rows) => {
                let form = Arc::clone(&form);
                let encoded = backend.store.aside(move || {
                    let mut part = Vec::with_capacity(rows.iter().map(|r| r.body.len() + 160).sum());
                    form.items(&mut part, &rows, false).map(|()| part)
                });
                encoded.await.map_err(|e| e.to_string()).and_then(|part| part.map_err(|e| e.message))
            }
            Err(error) => Err(ApiError::from(error).message),
        };
        let part = part.map(Bytes::from).map_err(Broken);
        let broken = part.is_err();
        if out.send(part).await.is_err() || broken {
            return;
        }
    }
    let _ = out.send(Ok(Bytes::from_static(b"]}\n"))).await;
}

/// Whether the objects of the list share a namespace or have none, so that a name alone is a position.
fn scoped(resource: &Resource, ns: &str) -> bool {
    !ns.is_empty() || !resource.namespaced
}

/// The end of a list after its items.
const END: &[u8] = b"]}";

/// How a list is encoded.
struct Form {
    resource: Arc<Resource>,
    shape: Shape,
    include: String,
}

impl Form {
    fn head(&self, meta: &Value) -> Vec<u8> {
        let (api_version, kind, items) = match &self.shape {
            Shape::Plain => (self.resource.api_version(), self.resource.list_kind.clone(), "\"items\":[".to_owned()),
            Shape::Partial => {
                ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned(), "\"items\":[".to_owned())
            }
            Shape::Table(version) => {
                let columns = table::columns(&self.resource);
                (
                    format!("meta.k8s.io/{version}"),
                    "Table".to_owned(),
                    format!("\"columnDefinitions\":{columns},\"rows\":["),
                )
            }
        };
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},{items}").into_bytes()
    }

    /// Appends items; `first` if no item precedes them.
    fn items(&self, out: &mut Vec<u8>, rows: &[Row], first: bool) -> ApiResult<()> {
        let damaged = |e: serde_json::Error| ApiError::internal(format!("a stored object is damaged: {e}"));
        for (at, row) in rows.iter().enumerate() {
            if at > 0 || !first {
                out.push(b',');
            }
            match &self.shape {
                Shape::Plain => out.extend(self.resource.encode_item(row.rev, &row.body).map_err(damaged)?),
                Shape::Partial => out.extend(self.resource.encode_partial(row.rev, &row.body).map_err(damaged)?),
                Shape::Table(version) => {
                    let object = self.resource.load(row.rev, &row.body).map_err(damaged)?;
                    let row = table::row(&self.resource, object, &self.include, version);
                    serde_json::to_writer(&mut *out, &row).map_err(damaged)?;
                }
            }
        }
        Ok(())
    }
}

async fn begin(backend: &Backend, request: &Request, options: &Options) -> ApiResult<Begin> {
    if !options.token.is_empty() {
        let resource = request.resource();
        let token = tokens::decode(&options.token, &request.target.ns, resource.namespaced)?;
        if !matches!(options.version.as_str(), "" | "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        wait_for(backend, token.rev.unwrap_or(0)).await?;
        return Ok(Begin { at: token.rev, after: Some(token.after) });
    }
    let rev =
        version(&options.version).map_err(|why| ApiError::bad_request(format!("invalid resource version: {why}")))?;
    wait_for(backend, rev).await?;
    let exact = match options.matching {
        Match::Exact => true,
        Match::NotOlderThan => false,
        Match::Unset => options.limit.is_some(),
    };
    Ok(Begin { at: (exact && rev > 0).then_some(rev), after: None })
}
