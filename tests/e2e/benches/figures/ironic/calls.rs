//! What is asked of Ironic's API: a proxy in front of it that notes each request of an operator. Agents go past it, by the address in Ironic's
//! own configuration.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

/// Largest body that passes, in bytes: a config drive.
const MAX_BODY: usize = 96 << 20;

/// One request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Call {
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Status of the answer; 502 where there was none.
    pub status: u16,
}

/// The calls that baremetal-operator made in one life, as they were recorded.
#[derive(Debug, Deserialize, Serialize)]
pub struct Recording {
    /// Which operator.
    pub operator: String,
    /// Which Ironic.
    pub ironic: String,
    /// What the life was.
    pub life: String,
    /// Its calls, in order.
    pub calls: Vec<Call>,
}

impl Recording {
    /// Where it is.
    pub fn path() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ironic/recorded/baremetal-operator.json"))
    }

    /// The one in the repository.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read() -> anyhow::Result<Self> {
        let path = Self::path();
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("understand {}", path.display()))
    }
}

/// The proxy. It ends with this.
pub struct Calls {
    /// Its address, as an Ironic's.
    pub endpoint: String,
    seen: Arc<Mutex<Vec<Call>>>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Behind {
    base: String,
    http: reqwest::Client,
    seen: Arc<Mutex<Vec<Call>>>,
}

impl Calls {
    /// In front of the API at `base`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(base: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().http1_only();
        let http = http.redirect(reqwest::redirect::Policy::none()).build().context("make an HTTP client")?;
        let seen = Arc::<Mutex<Vec<Call>>>::default();
        let behind = Behind { base: base.to_owned(), http, seen: Arc::clone(&seen) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(pass).with_state(behind);
        let task = tokio::spawn(async move {
            // Ends only with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { endpoint, seen, task })
    }

    /// The calls so far.
    pub fn seen(&self) -> Vec<Call> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(behind): State<Behind>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let method = parts.method.to_string();
    let mut headers = parts.headers;
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let answer = async {
        let body = axum::body::to_bytes(body, MAX_BODY).await.ok()?;
        let request = behind.http.request(parts.method, format!("{}{path}", behind.base)).headers(headers).body(body);
        let answer = request.send().await.ok()?;
        let mut builder = Response::builder().status(answer.status());
        let hop_by_hop = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
        for (name, value) in answer.headers().iter().filter(|(name, _)| !hop_by_hop.contains(name)) {
            builder = builder.header(name, value);
        }
        builder.body(Body::from(answer.bytes().await.ok()?)).ok()
    };
    let answer = answer.await.unwrap_or_else(|| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    });
    let call = Call { method, path, status: answer.status().as_u16() };
    behind.seen.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    answer
}
