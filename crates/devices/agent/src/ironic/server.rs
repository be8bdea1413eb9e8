//! The agent's API over HTTPS (`A:api/app.py`): few connections, bounded bodies, the token before anything is read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipa_protocol::{CommandRequest, MAX_COMMAND_BYTES, read, root_document, version_document};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::commands::{Answer, Commands};

/// Most connections at once.
const MAX_CONNECTIONS: usize = 16;

/// Longest time for a handshake, and for the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// Longest time for the body of a request.
const BODY: Duration = Duration::from_secs(300);

/// Pause after a connection could not be taken.
const AGAIN: Duration = Duration::from_secs(1);

/// What every connection needs.
struct Service {
    commands: Arc<Commands>,
    started: f64,
}

/// Serves the API until this future is dropped. `started` are seconds since 1970.
pub async fn serve(listener: TcpListener, tls: rustls::ServerConfig, commands: Arc<Commands>, started: f64) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let service = Arc::new(Service { commands, started });
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, service) = (acceptor.clone(), Arc::clone(&service));
                tokio::spawn(async move {
                    connection(stream, acceptor, service).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("the API cannot take a connection: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, service: Arc<Service>) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!("a caller of the API does not speak TLS as we do: {error}"),
        Err(_) => return,
    };
    let handle = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(response(service.answered(request).await)) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), handle);
    if let Err(error) = served.await {
        tracing::debug!("a call of the API broke off: {error}");
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(&answer.body).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Service {
    async fn answered(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        // Without a version it is the first (`A:api/app.py`).
        let path = path
            .strip_prefix("/v1")
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .map_or((path.as_str(), false), |rest| (rest, true));
        let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let url = format!("https://{}", crate::text::cut(host, 256));
        let method = request.method().clone();
        match (&method, path.0.trim_matches('/'), path.1) {
            (&Method::GET, "", false) => {
                let name = "Metamorph's agent";
                Answer { status: 200, body: root_document(&url, name, "It speaks the protocol of ironic-python-agent") }
            }
            (&Method::GET, "", true) => Answer { status: 200, body: version_document(&url) },
            (&Method::GET, "status", _) => {
                Answer { status: 200, body: json!({ "started_at": self.started, "version": super::name::VERSION }) }
            }
            (_, "commands", _) => self.of_commands(request, None).await,
            (_, other, _) => match other.strip_prefix("commands/") {
                Some(id) => self.of_commands(request, Some(id.to_owned())).await,
                None => Answer::fault(404, "Not found: there is nothing at this address"),
            },
        }
    }

    async fn of_commands(&self, request: Request<Incoming>, id: Option<String>) -> Answer {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let value = |name: &str| {
            url::form_urlencoded::parse(query.as_bytes())
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        if !self.commands.knows(value("agent_token").as_deref()) {
            return Answer::fault(401, "Token invalid.");
        }
        let wait = value("wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
        match (request.method(), id) {
            (&Method::GET, None) => self.commands.list(),
            (&Method::GET, Some(id)) => self.commands.get(&id, wait).await,
            (&Method::POST, None) => {
                let body = Limited::new(request.into_body(), MAX_COMMAND_BYTES).collect();
                let bytes = match tokio::time::timeout(BODY, body).await {
                    Ok(Ok(body)) => body.to_bytes(),
                    Ok(Err(error)) => return Answer::fault(400, format!("Invalid request body: {error}")),
                    Err(_) => return Answer::fault(408, "the request's body did not come in time"),
                };
                match read::<CommandRequest>("the order", &bytes, MAX_COMMAND_BYTES) {
                    Ok(order) => self.commands.order(order, wait).await,
                    Err(error) => Answer::fault(400, format!("Missing or invalid name or params: {error}")),
                }
            }
            _ => Answer::fault(405, "the method is not served at this address"),
        }
    }
}
