//! The listener and the path of a request: authenticate, route, authorize, decode, execute, encode.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use addresses::Peers;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body as _;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::UnixTime;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Annotations, Audit, Entry};
use crate::auth::impersonate::{self, Refused};
use crate::auth::keys::Keys;
use crate::delivery::{Connections, Deliveries};
use crate::given::Given;
use crate::limits::{self, Limits};
use crate::media::{self, Forms};
use crate::metrics::{Labels, Metrics};
use crate::pki::ClientCertificate;
use crate::pki::{Live, Validity};
use crate::rbac::Attributes;
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Flavor;
use crate::route::{self, Query, ResourceTarget, Target, Verb};
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::user::User;
use crate::verbs::{Backend, create, delete, get, list, patch, scale, update, watch};
use crate::{discovery, health, openapi, pretty};

/// Time for the TLS handshake, for the header of a request, and between parts of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections served at once.
const MAX_CONNECTIONS: usize = 10_000;
/// Connections of one peer at once, so that no single client uses all. A peer is an address or an IPv6 network.
const MAX_OF_PEER: usize = MAX_CONNECTIONS / 4;
/// Bytes of an unread body that are drained. An HTTP/2 client that cannot finish sending does not see the response.
const MAX_UNWANTED: usize = 64 << 20;
/// Time for requests in flight when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// State shared by all requests.
pub struct App {
    /// Store and catalog.
    pub backend: Arc<Backend>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// Locks the data folder, if there is one, for as long as anything here uses it.
    pub _lock: Option<std::fs::File>,
    /// Cached OpenAPI documents.
    pub openapi: openapi::Cache,
    /// Address published by discovery.
    pub address: String,
    /// Requests in flight.
    pub limits: Limits,
    /// Metrics served at `/metrics`.
    pub metrics: Metrics,
}

impl App {
    /// Enters the requests in flight for as long as the returned place lives. Watches need no place.
    fn enter(&self, user: &User, method: &http::Method, target: &Target) -> Result<Option<limits::Place>, ()> {
        let mutating = match target {
            Target::Resource(target) if target.verb == Verb::Watch => return Ok(None),
            Target::Resource(target) => !matches!(target.verb, Verb::Get | Verb::List),
            Target::Other(_) => !matches!(method.as_str(), "GET" | "HEAD"),
        };
        let place = self.limits.enter(user, mutating);
        if place.is_none() {
            self.metrics.refused(mutating);
        }
        place.map(Some).ok_or(())
    }
}

/// Serves until the backend's token is cancelled, then ends connections gracefully.
pub async fn serve(app: Arc<App>, listener: TcpListener, tls: TlsAcceptor, live: Arc<Live>) {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let permits = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    let peers = Arc::new(Peers::default());
    let open = Arc::new(Connections::default());
    let looked_at = Arc::clone(&open);
    let stop = app.backend.stop.clone();
    connections.spawn(async move { looked_at.keep(stop).await });
    loop {
        let accepted = tokio::select! {
            () = app.backend.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, from)) = accepted else {
            // Most likely out of file descriptors: wait for other connections to close.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let Ok(place) = peers.enter(from.ip(), MAX_OF_PEER) else { continue };
        let (app, tls, cut, live) = (Arc::clone(&app), tls.clone(), cut.clone(), Arc::clone(&live));
        let deliveries = open.open();
        connections.spawn(async move {
            let unread = deliveries.cut.clone();
            tokio::select! {
                () = connection(app, (stream, from.ip()), (tls, live), deliveries) => {}
                () = unread.cancelled() => {}
                () = cut.cancelled() => {}
            }
            drop((permit, place));
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection(
    app: Arc<App>,
    (stream, from): (TcpStream, IpAddr),
    (tls, live): (TlsAcceptor, Arc<Live>),
    deliveries: Arc<Deliveries>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else { return };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = live.clients().judge(chain, UnixTime::now());
    let ending = chain.first().filter(|_| matches!(certificate, ClientCertificate::User(_)));
    let ending = ending.and_then(|leaf| Validity::of_der(leaf)?.warning(jiff::Timestamp::now()));
    let peer = Arc::new(Peer { ending, address: Some(from), ..Peer::of(certificate, deliveries) });
    let silent = Arc::clone(&peer);
    let stop = app.backend.stop.clone();
    let service = hyper::service::service_fn(move |request| {
        let (app, peer) = (Arc::clone(&app), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(handle(&app, &peer, request.map(unread)).await) }
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
        () = stays_silent(&silent.heard) => {}
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// A request body that has not been read yet.
pub type Unread = UnsyncBoxBody<Bytes, String>;

/// Boxes any body as an unread request body.
pub fn unread<B>(body: B) -> Unread
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    body.map_err(|error| error.to_string()).boxed_unsync()
}

/// The client end of a connection.
pub struct Peer {
    certificate: ClientCertificate,
    /// Warning about a certificate that expires soon.
    ending: Option<String>,
    address: Option<IpAddr>,
    /// Responses being delivered to it.
    deliveries: Arc<Deliveries>,
    /// Whether a request has arrived.
    heard: AtomicBool,
}

impl Peer {
    /// A peer that presented this certificate.
    pub fn of(certificate: ClientCertificate, deliveries: Arc<Deliveries>) -> Self {
        Self { certificate, ending: None, address: None, deliveries, heard: AtomicBool::new(false) }
    }

    /// The same peer at this address.
    pub fn at_address(&self, address: IpAddr) -> Self {
        let (certificate, deliveries) = (self.certificate.clone(), Arc::clone(&self.deliveries));
        Self { ending: self.ending.clone(), address: Some(address), ..Self::of(certificate, deliveries) }
    }
}

/// Completes if no request arrives in time after the handshake: neither HTTP version has a timeout before its first
/// bytes.
async fn stays_silent(heard: &AtomicBool) {
    tokio::time::sleep(PATIENCE).await;
    if heard.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

/// Answers a request from the network or from within the process.
pub async fn handle(app: &Arc<App>, peer: &Peer, request: http::Request<Unread>) -> Response {
    peer.heard.store(true, Ordering::Release);
    let given = &app.backend.given;
    let (parts, body) = request.into_parts();
    let mut body = Upload { body, begun: false };
    let path = parts.uri.path().to_owned();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let method = parts.method.clone();
    let headers = parts.headers;
    let mut warnings = Vec::new();
    let mut place = None;
    let began = Instant::now();
    let mut labels = Labels::of_path(method.as_str(), &path);
    let (time, readable) = (limits::time_allowed(&query), pretty::wanted(&query, &headers));
    let asked = Attributes::of_request(&method, &path, &query);
    let mut entry = noted(given, peer, &parts.uri, &headers, asked);
    let annotations = entry.annotations.clone();
    let outcome = async {
        // Before routing, so that an unauthorized client learns nothing about what is served.
        let user = match admit(app, &peer.certificate, &headers, &mut entry).await {
            Ok(user) => user,
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Plain(code, text)) => return Ok(reply::plain(code, "text/plain; charset=utf-8", text)),
        };
        let catalog = app.backend.registry.catalog();
        let routed = route::route(&catalog, &method, &path, &query)?;
        let Ok(entered) = app.enter(&user, &method, &routed) else { return Ok(limits::too_many_requests()) };
        place.clone_from(&entered);
        match routed {
            Target::Resource(target) => {
                warnings.extend(target.resource.deprecation.clone());
                labels = Labels::of(&target, &headers, &query);
                on_resource(app, (user, target, entered), (query, annotations), &headers, &mut body).await
            }
            Target::Other(parts) => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                if method != http::Method::GET && route::gets_only(&catalog, &parts) {
                    return Err(ApiError::method_not_allowed());
                }
                other(app, &parts, &query, &headers).await
            }
        }
    };
    let encoding = media::error_encoding(&media::accept_header(&headers));
    let outcome = match time {
        Ok(time) => tokio::time::timeout(time, outcome).await.unwrap_or_else(|_| Err(limits::timed_out())),
        Err(refused) => {
            drop(outcome);
            Err(refused)
        }
    };
    body.pass_over(&headers).await;
    let mut response = outcome.map_err(|error| refine_not_found(app, error, &path)).unwrap_or_else(|error| {
        let mut response = reply::error(&error, encoding);
        reply::warn(&mut response, &warnings);
        entry.error = Some(error);
        response
    });
    entry.error = entry.error.take().or_else(|| response.extensions_mut().remove());
    entry.code = response.status().as_u16();
    app.metrics.answered(&labels, entry.code, began.elapsed());
    if let Some(audit) = &app.audit {
        audit.write(&entry, given.now());
    }
    name_answer(&entry.id, response.headers_mut());
    if method == http::Method::HEAD {
        *response.body_mut() = reply::full(Bytes::new());
    } else if readable {
        response = pretty::form(response).await;
    }
    if let Some(ending) = &peer.ending {
        reply::warn(&mut response, std::slice::from_ref(ending));
    }
    let encoding = headers.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    peer.deliveries.send(reply::compress(response, encoding).await, place)
}

/// The audit entry of a request before it is answered.
fn noted(given: &Given, peer: &Peer, uri: &http::Uri, headers: &HeaderMap, asked: Attributes) -> Entry {
    let named = headers.get(AUDIT_ID).and_then(|v| v.to_str().ok()).filter(|id| !id.is_empty());
    Entry {
        id: named.map_or_else(|| given.uid(), str::to_owned),
        received: given.now(),
        source: peer.address,
        uri: uri.path_and_query().map_or_else(|| uri.path().to_owned(), |p| p.as_str().to_owned()),
        agent: headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned(),
        asked,
        user: User::default(),
        impersonated: None,
        decision: None,
        error: None,
        code: 0,
        annotations: Annotations::default(),
    }
}

/// Replaces the error for an unknown path within a built-in group by the one for an unknown resource.
fn refine_not_found(app: &App, error: ApiError, path: &str) -> ApiError {
    let builtin =
        error == ApiError::unknown_path() && route::is_in_builtin_group(&app.backend.registry.catalog(), path);
    if builtin { ApiError::unknown_resource() } else { error }
}

/// Header that names a request in logs; a client may choose the name.
const AUDIT_ID: &str = "audit-id";

/// Headers that every answer has.
fn name_answer(id: &str, answer: &mut HeaderMap) {
    answer.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(id) {
        answer.insert(AUDIT_ID, id);
    }
}

/// Why a request is not admitted.
enum Refusal {
    /// With a Status.
    Error(ApiError),
    /// With plain text.
    Plain(StatusCode, String),
}

/// Authenticates, impersonates and authorizes. Returns the acting user.
async fn admit(
    app: &App,
    certificate: &ClientCertificate,
    headers: &HeaderMap,
    entry: &mut Entry,
) -> Result<User, Refusal> {
    let auth = &app.backend.auth;
    let mut user = auth.authenticate(&app.backend, certificate, headers).await.map_err(Refusal::Error)?;
    entry.user = user.clone();
    match impersonate::impersonated(&auth.index, &user, headers) {
        Ok(None) => {}
        Ok(Some(other)) => {
            entry.impersonated = Some(other.clone());
            user = other;
        }
        Err(Refused::Forbidden(error)) => return Err(Refusal::Error(error)),
        Err(Refused::Headers(why)) => {
            let text = format!("Internal Server Error: {:?}: {why}\n", entry.uri);
            return Err(Refusal::Plain(StatusCode::INTERNAL_SERVER_ERROR, text));
        }
    }
    let decision = auth.decide(&user, &entry.asked);
    let refusal = (!decision.allowed).then(|| entry.asked.refusal(&user, &decision.reason));
    entry.decision = Some(decision);
    match refusal {
        None => Ok(user),
        Some(error) => Err(Refusal::Error(error)),
    }
}

/// The body of a request.
struct Upload {
    body: Unread,
    begun: bool,
}

impl Upload {
    async fn read(&mut self) -> ApiResult<Bytes> {
        let mut out = BytesMut::new();
        self.begun = true;
        loop {
            let frame = match tokio::time::timeout(PATIENCE, self.body.frame()).await {
                Ok(None) => return Ok(out.freeze()),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return Err(ApiError::bad_request(format!("the body could not be read: {error}")));
                }
                Err(_) => {
                    return Err(ApiError::new(
                        StatusCode::REQUEST_TIMEOUT,
                        StatusReason::Timeout,
                        "the body did not come in time",
                    ));
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

    /// Drains the rest of the body, within limits.
    async fn pass_over(&mut self, headers: &HeaderMap) {
        // A client that still waits for `100 Continue` has sent no body and will not send one.
        let waits = !self.begun && headers.contains_key(header::EXPECT);
        if waits || self.body.is_end_stream() {
            return;
        }
        let mut taken = 0;
        let rest = async {
            while let Some(Ok(frame)) = self.body.frame().await
                && taken < MAX_UNWANTED
            {
                taken += frame.data_ref().map_or(0, Bytes::len);
            }
        };
        let _ = tokio::time::timeout(PATIENCE, rest).await;
    }
}

async fn on_resource(
    app: &Arc<App>,
    (user, target, place): (User, ResourceTarget, Option<limits::Place>),
    (query, audit): (Query, Annotations),
    headers: &HeaderMap,
    body: &mut Upload,
) -> ApiResult<Response> {
    let custom = matches!(target.resource.flavor, Flavor::Custom { .. });
    let accept = media::accept_header(headers);
    if !custom {
        media::routed(&accept, matches!(target.verb, Verb::List | Verb::Watch))?;
    }
    let forms = Forms { protobuf: !custom, tables: !target.resource.is_review() && target.sub != "token" };
    let accept = media::negotiate(&accept, forms, target.verb == Verb::Watch)?;
    let body = match target.verb {
        Verb::Get | Verb::List | Verb::Watch => Bytes::new(),
        _ => body.read().await?,
    };
    let content_type = media::content_type(headers);
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let warnings = target.resource.deprecation.clone().into_iter().collect();
    let mut request = Request { target, query, accept, content_type, body, warnings, user, agent, audit };
    let backend = Arc::clone(&app.backend);
    if matches!(request.target.verb, Verb::Get | Verb::List | Verb::Watch) {
        return match request.target.verb {
            Verb::Get if request.target.sub == "scale" => scale::get(&backend, &request).await,
            Verb::Get => get::get(&backend, &request).await,
            Verb::List => list::list(&backend, &request).await,
            _ => Ok(watch::watch(&backend, &request).await?.map(|stream| app.metrics.watching(stream))),
        };
    }
    // A change runs to completion even if its client disconnects, so that the store and the served state stay in
    // step.
    let encoding = media::error_encoding(&media::accept_header(headers));
    let change = tokio::spawn(async move {
        let _place = place;
        let outcome = change(&backend, &mut request).await;
        // A refusal carries the warnings, too.
        outcome.or_else(|error| {
            let mut refusal = reply::warned(&request, reply::error(&error, encoding));
            // For the audit log.
            refusal.extensions_mut().insert(error);
            Ok(refusal)
        })
    });
    change.await.map_err(ApiError::internal)?
}

async fn change(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    match request.target.verb {
        Verb::Create => create::create(backend, request).await,
        Verb::Update if request.target.sub == "scale" => scale::update(backend, request).await,
        Verb::Patch if request.target.sub == "scale" => scale::patch(backend, request).await,
        Verb::Update => update::update(backend, request).await,
        Verb::Patch => patch::patch(backend, request).await,
        Verb::Delete => delete::delete(backend, request).await,
        Verb::DeleteCollection => delete::delete_collection(backend, request).await,
        Verb::Get | Verb::List | Verb::Watch => Err(ApiError::method_not_allowed()),
    }
}

async fn other(app: &App, parts: &[&str], query: &Query, headers: &HeaderMap) -> ApiResult<Response> {
    let accept = media::accept_header(headers);
    match parts {
        [root @ ("healthz" | "livez" | "readyz"), rest @ ..] => health::answer(&app.backend, root, rest, query),
        ["metrics"] => {
            let text = app.metrics.text(&app.backend.store, &app.limits).await;
            Ok(reply::plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        [".well-known", "openid-configuration"] => {
            Ok(cached(reply::json_value(StatusCode::OK, &Keys::configuration(&app.address))))
        }
        ["openid", "v1", "jwks"] => {
            let media = "application/jwk-set+json";
            if media::prefer(&accept, &[media]).is_none() {
                return Err(ApiError::not_acceptable(media));
            }
            let set = app.backend.auth.keys.key_set().to_string();
            Ok(cached(reply::plain(StatusCode::OK, media, set)))
        }
        ["version"] => Ok(reply::json_value(StatusCode::OK, &discovery::version())),
        ["openapi", rest @ ..] => app.openapi.answer(&app.backend, rest, query, headers).await,
        _ => discovery::answer(&app.backend.registry.catalog(), parts, headers, &app.address)
            .unwrap_or_else(|| Err(ApiError::unknown_path()))
            .map_err(|error| route::missing(parts, error)),
    }
}

/// Lets clients cache a response for an hour: the signing keys change only with the data folder.
fn cached(mut response: Response) -> Response {
    let value = http::HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_cut_off_and_who_speaks_is_not() {
        let (silent, heard) = (AtomicBool::new(false), AtomicBool::new(true));
        let begun = tokio::time::Instant::now();
        stays_silent(&silent).await;
        assert_eq!(begun.elapsed(), PATIENCE);
        assert!(tokio::time::timeout(PATIENCE * 100, stays_silent(&heard)).await.is_err());
    }
}
