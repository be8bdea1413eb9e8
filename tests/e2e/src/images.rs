//! A server for operating system images whose behaviour tests change while it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;

/// How the server treats one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Serves it, ranges included.
    #[default]
    Good,
    /// Serves only its first half, as if that were all.
    Truncated,
    /// Says 404.
    Missing,
}

#[derive(Clone)]
struct Entry {
    bytes: Bytes,
    behaviour: Behaviour,
    requests: usize,
}

type Entries = Arc<Mutex<BTreeMap<String, Entry>>>;

/// The server.
pub struct ImageServer {
    base: String,
    entries: Entries,
}

impl ImageServer {
    /// Starts it on loopback.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listen for images")?;
        let base = format!("http://{}", listener.local_addr()?);
        let entries = Entries::default();
        let router = Router::new().route("/{name}", get(serve).head(serve)).with_state(Arc::clone(&entries));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { base, entries })
    }

    /// Puts an image there, perhaps in place of another, and gives its address.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> String {
        let mut entries = self.lock();
        let requests = entries.get(name).map_or(0, |e| e.requests);
        entries.insert(name.to_owned(), Entry { bytes: bytes.into(), behaviour: Behaviour::Good, requests });
        drop(entries);
        self.url(name)
    }

    /// Address of an image.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Changes how an image is treated.
    pub fn set(&self, name: &str, behaviour: Behaviour) {
        if let Some(entry) = self.lock().get_mut(name) {
            entry.behaviour = behaviour;
        }
    }

    /// How often an image has been asked for.
    #[must_use]
    pub fn requests(&self, name: &str) -> usize {
        self.lock().get(name).map_or(0, |e| e.requests)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(State(entries): State<Entries>, Path(name): Path<String>, headers: HeaderMap) -> Response<Body> {
    let entry = {
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get_mut(&name).map(|e| {
            e.requests += 1;
            e.clone()
        })
    };
    let plain = |status: StatusCode| {
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = status;
        response
    };
    let Some(entry) = entry.filter(|e| e.behaviour != Behaviour::Missing) else { return plain(StatusCode::NOT_FOUND) };
    let bytes = match entry.behaviour {
        Behaviour::Truncated => entry.bytes.slice(..entry.bytes.len() / 2),
        _ => entry.bytes,
    };
    let range = headers.get(header::RANGE).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|r| r.split_once('-')) else {
        return Response::new(Body::from(bytes));
    };
    let Ok(first) = first.parse::<usize>() else { return plain(StatusCode::RANGE_NOT_SATISFIABLE) };
    if first >= bytes.len() {
        return plain(StatusCode::RANGE_NOT_SATISFIABLE);
    }
    let last = last.parse().unwrap_or(usize::MAX).min(bytes.len() - 1);
    let part = bytes.slice(first..=last);
    let mut response = Response::new(Body::from(part));
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    if let Ok(value) = format!("bytes {first}-{last}/{}", bytes.len()).parse() {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    response
}
