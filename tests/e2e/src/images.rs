//! A server for operating system images whose behaviour tests change while it runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::get;
use futures::{StreamExt, stream};
use tokio::sync::watch;

/// How the server treats one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Serves it, ranges included.
    #[default]
    Good,
    /// Serves only its first half, as if that were all.
    Truncated,
    /// Serves its first half, and then nothing until the behaviour changes, when the connection is cut.
    Stalled,
    /// Says 404.
    Missing,
}

#[derive(Clone)]
struct Entry {
    bytes: Bytes,
    behaviour: Behaviour,
    requests: usize,
    stalled: usize,
}

#[derive(Default)]
struct Images {
    entries: Mutex<BTreeMap<String, Entry>>,
    changed: watch::Sender<()>,
}

impl Images {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Option<Entry> {
        self.lock().get(name).cloned()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.lock().get_mut(name) {
            change(entry);
        }
        self.changed.send_replace(());
    }

    async fn wait(&self, name: &str, wanted: impl Fn(&Entry) -> bool) {
        let mut changes = self.changed.subscribe();
        while !self.of(name).is_some_and(|entry| wanted(&entry)) && changes.changed().await.is_ok() {}
    }
}

/// The server.
pub struct ImageServer {
    base: String,
    images: Arc<Images>,
}

impl ImageServer {
    /// Starts it on loopback.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listen for images")?;
        let base = format!("http://{}", listener.local_addr()?);
        let images = Arc::<Images>::default();
        let router = Router::new().route("/{name}", get(serve).head(serve)).with_state(Arc::clone(&images));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { base, images })
    }

    /// Puts an image there, perhaps in place of another, and gives its address.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> String {
        let requests = self.requests(name);
        let entry = Entry { bytes: bytes.into(), behaviour: Behaviour::Good, requests, stalled: 0 };
        self.images.lock().insert(name.to_owned(), entry);
        self.url(name)
    }

    /// Address of an image.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Changes how an image is treated.
    pub fn set(&self, name: &str, behaviour: Behaviour) {
        self.images.change(name, |entry| entry.behaviour = behaviour);
    }

    /// How often an image has been asked for.
    #[must_use]
    pub fn requests(&self, name: &str) -> usize {
        self.images.of(name).map_or(0, |e| e.requests)
    }

    /// Waits until this many downloads of an image have stalled.
    ///
    /// # Errors
    /// When that does not happen within a minute.
    pub async fn wait_stalled(&self, name: &str, count: usize) -> anyhow::Result<()> {
        let waited = self.images.wait(name, |entry| entry.stalled >= count);
        if tokio::time::timeout(Duration::from_secs(60), waited).await.is_err() {
            bail!("the download of {name} has not stalled; it was asked for {} times", self.requests(name));
        }
        Ok(())
    }
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = status;
    response
}

async fn serve(State(images): State<Arc<Images>>, Path(name): Path<String>, headers: HeaderMap) -> Response<Body> {
    images.change(&name, |entry| entry.requests += 1);
    let Some(entry) = images.of(&name).filter(|e| e.behaviour != Behaviour::Missing) else {
        return plain(StatusCode::NOT_FOUND);
    };
    let bytes = match entry.behaviour {
        Behaviour::Truncated => entry.bytes.slice(..entry.bytes.len() / 2),
        _ => entry.bytes,
    };
    let total = bytes.len();
    let range = headers.get(header::RANGE).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("bytes="));
    let mut response = Response::new(Body::empty());
    let mut part = bytes;
    if let Some((first, last)) = range.and_then(|r| r.split_once('-')) {
        let Some(first) = first.parse::<usize>().ok().filter(|first| *first < total) else {
            return plain(StatusCode::RANGE_NOT_SATISFIABLE);
        };
        let last = last.parse().unwrap_or(usize::MAX).min(total - 1);
        part = part.slice(first..=last);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        if let Ok(value) = format!("bytes {first}-{last}/{total}").parse() {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
    }
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(part.len()));
    *response.body_mut() =
        if entry.behaviour == Behaviour::Stalled { stalling(images, name, part) } else { Body::from(part) };
    response
}

/// Half of the bytes, and the end of the connection when the image is no longer stalled.
fn stalling(images: Arc<Images>, name: String, part: Bytes) -> Body {
    let half = part.slice(..part.len() / 2);
    let cut = async move {
        images.change(&name, |entry| entry.stalled += 1);
        images.wait(&name, |entry| entry.behaviour != Behaviour::Stalled).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    };
    Body::from_stream(stream::iter([Ok(half)]).chain(stream::once(cut)))
}
