//! The listener and the way of a request: authenticate, route, authorize, decode, do, encode.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::auth::{self, Authenticator, User};
use crate::media;
use crate::reply::{self, Response};
use crate::resource::Flavor;
use crate::route::{self, Query, ResourceTarget, Target, Verb};
use crate::status::{ApiError, ApiResult};
use crate::verbs::{Backend, Request, create, delete, get, list, patch, update, watch};
use crate::{discovery, openapi};

/// Time for the TLS handshake, for the header of a request, and between parts of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for a whole request, up to the beginning of a watch's stream.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Connections served at once.
const MAX_CONNECTIONS: usize = 10_000;
/// Time for requests in flight when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// Verb, resource (`plural` or `plural.group`) and subresource of counted requests.
pub type CountKey = (String, String, String);

/// Everything that a request needs.
pub struct App {
    /// Store and catalog.
    pub backend: Arc<Backend>,
    /// Who asks.
    pub authenticator: Authenticator,
    /// Where what was asked is written.
    pub audit: Option<Audit>,
    /// Held for as long as anything here uses the folder.
    pub _lock: std::fs::File,
    /// OpenAPI documents as built last.
    pub openapi: openapi::Cache,
    /// Address for discovery.
    pub address: String,
    /// Requests so far.
    pub counts: Mutex<BTreeMap<CountKey, u64>>,
}

/// Serves until the backend's token is cancelled, then ends connections gracefully.
pub async fn serve(app: Arc<App>, listener: TcpListener, tls: TlsAcceptor) {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let permits = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = app.backend.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, most likely: let others end first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (app, tls, cut) = (Arc::clone(&app), tls.clone(), cut.clone());
        connections.spawn(async move {
            tokio::select! {
                () = connection(app, stream, tls) => {}
                () = cut.cancelled() => {}
            }
            drop(permit);
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection(app: Arc<App>, stream: TcpStream, tls: TlsAcceptor) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|c| auth::user_of_certificate(c.first()?));
    let certificate = Arc::new(certificate);
    let stop = app.backend.stop.clone();
    let service = hyper::service::service_fn(move |request| {
        let (app, certificate) = (Arc::clone(&app), Arc::clone(&certificate));
        async move { Ok::<_, Infallible>(handle(&app, certificate.as_ref().as_ref(), request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .max_send_buf_size(64 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    tokio::select! {
        _ = served.as_mut() => {}
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

async fn handle(app: &Arc<App>, certificate: Option<&User>, request: http::Request<Incoming>) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let method = parts.method.clone();
    let headers = parts.headers;
    let mut user = User::anonymous();
    let mut counted = (method.as_str().to_lowercase(), path.clone(), String::new());
    let outcome = async {
        user = app.authenticator.authenticate(certificate, &headers)?;
        let catalog = app.backend.registry.catalog();
        let routed = route::route(&catalog, &method, &path, &query);
        // Before an unknown path is told: who may not ask learns nothing about what is served.
        auth::authorize(&user, &path, routed.as_ref().ok())?;
        match routed? {
            Target::Resource(target) => {
                counted = counted_as(&target);
                on_resource(app, (user.clone(), target), query, &headers, body).await
            }
            Target::Other(parts) => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                if !matches!(method.as_str(), "GET" | "HEAD") {
                    return Err(ApiError::method_not_allowed());
                }
                other(app, &parts, &headers).await
            }
        }
    };
    let encoding = media::error_encoding(&media::accept_header(&headers));
    let response = match tokio::time::timeout(REQUEST_TIME, outcome).await {
        Ok(outcome) => outcome.unwrap_or_else(|error| reply::error(&error, encoding)),
        Err(_) => {
            let text = "Timeout: request did not complete within the allotted timeout";
            reply::error(&ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text), encoding)
        }
    };
    *app.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(counted.clone()).or_default() += 1;
    if let Some(audit) = &app.audit {
        audit.write(&user.name, &counted, method.as_str(), &path, response.status().as_u16());
    }
    let encoding = headers.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    reply::compress(response, encoding).await
}

fn counted_as(target: &ResourceTarget) -> CountKey {
    let resource = crate::status::qualified(&target.resource.plural, &target.resource.group);
    (target.verb.name().to_owned(), resource, target.sub.clone())
}

async fn read_body(mut body: Incoming) -> ApiResult<Bytes> {
    let mut out = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout(PATIENCE, body.frame()).await {
            Ok(None) => return Ok(out.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
            Err(_) => {
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body did not come in time"));
            }
        };
        if let Ok(data) = frame.into_data() {
            if out.len() + data.len() > media::MAX_BODY {
                return Err(ApiError::too_large(media::MAX_BODY));
            }
            out.extend_from_slice(&data);
        }
    }
}

async fn on_resource(
    app: &Arc<App>,
    (user, target): (User, ResourceTarget),
    query: Query,
    headers: &HeaderMap,
    body: Incoming,
) -> ApiResult<Response> {
    let custom = matches!(target.resource.flavor, Flavor::Custom { .. });
    let accept = media::negotiate(&media::accept_header(headers), custom, target.verb == Verb::Watch)?;
    let body = match target.verb {
        Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
        _ => read_body(body).await?,
    };
    let content_type = media::content_type(headers);
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let warnings = target.resource.deprecation.clone().into_iter().collect();
    let mut request = Request { target, query, accept, content_type, body, warnings, user, agent };
    let backend = Arc::clone(&app.backend);
    if matches!(request.target.verb, Verb::Get | Verb::List | Verb::Watch) {
        return match request.target.verb {
            Verb::Get => get::get(&backend, &request).await,
            Verb::List => list::list(&backend, &request).await,
            _ => watch::watch(&backend, &request).await,
        };
    }
    // A change goes on to its end when its client hangs up: what is stored and what is served stay the same thing.
    let change = tokio::spawn(async move { change(&backend, &mut request).await });
    change.await.map_err(ApiError::internal)?
}

async fn change(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    match request.target.verb {
        Verb::Create => create::create(backend, request).await,
        Verb::Update => update::update(backend, request).await,
        Verb::Patch => patch::patch(backend, request).await,
        Verb::Delete => delete::delete(backend, request).await,
        Verb::DeleteCollection => delete::delete_collection(backend, request).await,
        Verb::Get | Verb::List | Verb::Watch => Err(ApiError::method_not_allowed()),
    }
}

async fn other(app: &App, parts: &[&str], headers: &HeaderMap) -> ApiResult<Response> {
    let accept = media::accept_header(headers);
    match parts {
        ["healthz" | "livez" | "readyz", ..] => Ok(reply::plain(StatusCode::OK, "text/plain; charset=utf-8", "ok")),
        ["version"] => Ok(reply::json_value(StatusCode::OK, &discovery::version())),
        ["openapi", rest @ ..] => app.openapi.answer(&app.backend, rest, headers, &accept).await,
        _ => discovery::answer(&app.backend.registry.catalog(), parts, &accept, &app.address)
            .unwrap_or_else(|| Err(ApiError::unknown_path())),
    }
}
