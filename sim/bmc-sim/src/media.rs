//! Virtual media as BMCs read them: by HTTP range requests, only what the machine reads, through a small cache.
//!
//! Media are never stored in files. Ejecting a medium fails its reads at once, including those in progress.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, response::IntoResponse as _};
use bytes::{Bytes, BytesMut};
use reqwest::{StatusCode, header};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;
use url::Url;

use crate::settings::Settings;

/// Size of a block, in bytes: the unit of the cache, and of fetches at random offsets.
pub const BLOCK: u64 = 64 << 10;
/// Blocks fetched at a time, at most, when reads follow each other: the read-ahead doubles up to 1 MiB.
const MAX_WINDOW: u64 = 16;
/// Blocks kept in memory for one medium: 8 MiB.
const CACHED_BLOCKS: usize = 128;
/// Most fetches recorded one by one; beyond that, only the counters continue.
const MAX_FETCHES: usize = 4096;
/// How often a fetch is tried when the medium's server does not answer; the pause doubles from `FIRST_PAUSE`.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for a connection or between two pieces of an answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes requested at insertion, to check that the medium exists.
const PROBE: u64 = 2048;
/// Largest medium: far above any DVD, far below where offsets could overflow.
const MAX_SIZE: u64 = 1 << 40;

/// Why a medium cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MediaError {
    /// Not an http or https URL.
    #[error("the image {0:?} is not an http or https URL")]
    Scheme(String),
    /// The URL does not look like a CD image.
    #[error("the image {0:?} does not end in .iso")]
    Suffix(String),
    /// No connection, or it broke.
    #[error("fetching {url}: {detail}")]
    Unreachable {
        /// The medium, without credentials or query.
        url: String,
        /// What the connection said.
        detail: String,
    },
    /// The server's answer is no piece of a file.
    #[error("fetching {url}: the server answered with status {status}")]
    Status {
        /// The medium, without credentials or query.
        url: String,
        /// What it answered.
        status: u16,
    },
    /// The server sends no ranges.
    #[error("fetching {url}: {detail}")]
    Range {
        /// The medium, without credentials or query.
        url: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The medium was ejected.
    #[error("the medium was ejected")]
    Ejected,
    /// A fault set by a test.
    #[error("a fault was set: media fetches fail")]
    Fault,
    /// The read is beyond the medium's end.
    #[error("{0} bytes at {1} are beyond the medium's end")]
    Beyond(u64, u64),
}

/// One fetch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetch {
    /// Which medium.
    pub url: String,
    /// First byte requested.
    pub start: u64,
    /// Bytes requested.
    pub length: u64,
    /// Status of the answer, if there was one.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
}

/// A drive's fetches and reads so far.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaCounters {
    /// Fetches, the last 4096.
    pub fetches: VecDeque<Fetch>,
    /// Fetches in all.
    pub requests: u64,
    /// Bytes that came from media servers.
    pub bytes_fetched: u64,
    /// Reads by the machine.
    pub reads: u64,
    /// Bytes handed to the machine.
    pub bytes_read: u64,
    /// Reads by the machine that failed.
    pub failed_reads: u64,
}

/// The record of a drive's fetches, shared by all its media.
#[derive(Default)]
pub struct MediaLog(Mutex<MediaCounters>);

impl MediaLog {
    fn lock(&self) -> MutexGuard<'_, MediaCounters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current record.
    #[must_use]
    pub fn snapshot(&self) -> MediaCounters {
        self.lock().clone()
    }

    /// Counters alone, without the list of fetches.
    #[must_use]
    pub fn totals(&self) -> MediaCounters {
        let counters = self.lock();
        MediaCounters { fetches: VecDeque::new(), ..*counters }
    }

    /// Forgets all.
    pub fn clear(&self) {
        *self.lock() = MediaCounters::default();
    }

    fn fetched(&self, fetch: Fetch, bytes: u64) {
        let mut counters = self.lock();
        counters.requests += 1;
        counters.bytes_fetched += bytes;
        counters.fetches.push_back(fetch);
        if counters.fetches.len() > MAX_FETCHES {
            counters.fetches.pop_front();
        }
    }

    fn read(&self, result: &Result<Bytes, MediaError>) {
        let mut counters = self.lock();
        counters.reads += 1;
        match result {
            Ok(bytes) => counters.bytes_read += bytes.len() as u64,
            Err(_) => counters.failed_reads += 1,
        }
    }
}

/// Where media are fetched from.
#[derive(Clone)]
pub enum MediaSource {
    /// From whom their addresses name.
    Network(reqwest::Client),
    /// From a service in this process, whatever host their addresses name.
    InProcess(Router),
}

impl MediaSource {
    async fn get(&self, url: &Url, range: String) -> Result<reqwest::Response, reqwest::Error> {
        let router = match self {
            Self::Network(client) => return client.get(url.clone()).header(header::RANGE, range).send().await,
            Self::InProcess(router) => router.clone(),
        };
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let request = axum::http::Request::get(format!("{}{query}", url.path())).header(header::RANGE, range);
        let answer = match request.body(Body::empty()) {
            Ok(request) => match router.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            },
            // A path that is none, which a `Url` does not have.
            Err(_) => StatusCode::BAD_REQUEST.into_response(),
        };
        let (parts, body) = answer.into_parts();
        let most = usize::try_from(BLOCK * MAX_WINDOW * 2).unwrap_or(usize::MAX);
        // What is longer than any range that is asked for has ended early.
        let body = axum::body::to_bytes(body, most).await.unwrap_or_default();
        Ok(axum::http::Response::from_parts(parts, body).into())
    }

    /// Posts a JSON document to this address.
    ///
    /// # Errors
    /// A clause that says why nobody took it.
    pub async fn post(&self, url: &str, headers: &[(String, String)], body: &Value) -> Result<(), String> {
        let router = match self {
            Self::Network(client) => {
                let begun = client.post(url).json(body);
                let request = headers.iter().fold(begun, |request, (name, value)| request.header(name, value));
                return request.send().await.map(|_| ()).map_err(|error| error.to_string());
            }
            Self::InProcess(router) => router.clone(),
        };
        let begun = axum::http::Request::post(Url::parse(url).map_err(|error| error.to_string())?.path());
        let begun = headers.iter().fold(begun, |request, (name, value)| request.header(name, value));
        let begun = begun.header(header::CONTENT_TYPE, "application/json");
        let request = begun.body(Body::from(body.to_string())).map_err(|error| error.to_string())?;
        match router.oneshot(request).await {
            Ok(_) => Ok(()),
            Err(never) => match never {},
        }
    }
}

/// A medium in a drive.
pub struct Medium {
    url: Url,
    size: u64,
    source: MediaSource,
    settings: watch::Receiver<Settings>,
    log: Arc<MediaLog>,
    ejected: watch::Sender<bool>,
    cache: tokio::sync::Mutex<Cache>,
}

/// The most recently used blocks, and where a sequential reader would continue.
#[derive(Default)]
struct Cache {
    blocks: VecDeque<(u64, Bytes)>,
    next: u64,
    window: u64,
}

impl Cache {
    /// A cached block, which becomes the most recently used.
    fn get(&mut self, number: u64) -> Option<Bytes> {
        let at = self.blocks.iter().position(|(cached, _)| *cached == number)?;
        let entry = self.blocks.remove(at)?;
        let block = entry.1.clone();
        self.blocks.push_back(entry);
        Some(block)
    }

    /// How many blocks to fetch for a read of block `number`.
    fn ahead(&mut self, number: u64) -> u64 {
        self.window = if number == self.next { (self.window * 2).clamp(1, MAX_WINDOW) } else { 1 };
        self.next = number + self.window;
        self.window
    }

    fn put(&mut self, number: u64, block: Bytes) {
        self.blocks.push_back((number, block));
        if self.blocks.len() > CACHED_BLOCKS {
            self.blocks.pop_front();
        }
    }
}

impl Medium {
    /// Checks the image as a BMC does on insertion: the address must be http or https and end in `.iso`, and the server must answer and support
    /// ranges. One that reads nothing ([`crate::settings::MediaFaults::unread`]) asks no server.
    ///
    /// # Errors
    /// What is wrong with address, server or answer.
    pub async fn insert(
        source: MediaSource,
        image: &str,
        settings: watch::Receiver<Settings>,
        log: Arc<MediaLog>,
    ) -> Result<Self, MediaError> {
        let url = Url::parse(image).map_err(|_| MediaError::Scheme(image.to_owned()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(MediaError::Scheme(printable(&url)));
        }
        if !url.path().to_ascii_lowercase().ends_with(".iso") {
            return Err(MediaError::Suffix(printable(&url)));
        }
        let cache = tokio::sync::Mutex::default();
        let mut medium = Self { url, size: 0, source, settings, log, ejected: watch::Sender::new(false), cache };
        if medium.settings.borrow().media.unread {
            return Ok(medium);
        }
        medium.faults(0).await?;
        let (_, size) = medium.fetch_once(0, PROBE, None).await?;
        medium.size = size;
        Ok(medium)
    }

    /// The image's address, without credentials and query.
    #[must_use]
    pub fn printable_url(&self) -> String {
        printable(&self.url)
    }

    /// The image's address as it was given.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes all reads fail, including those in progress.
    pub fn eject(&self) {
        self.ejected.send_replace(true);
    }

    /// Whether it was ejected.
    #[must_use]
    pub fn is_ejected(&self) -> bool {
        *self.ejected.borrow()
    }

    /// Reads `length` bytes at `offset`, and fetches those that are not in the cache.
    ///
    /// # Errors
    /// The medium was ejected, cannot be fetched, or ends before.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, MediaError> {
        let mut ejected = self.ejected.subscribe();
        let result = tokio::select! {
            biased;
            _ = ejected.wait_for(|ejected| *ejected) => Err(MediaError::Ejected),
            result = self.read_blocks(offset, length) => result,
        };
        self.log.read(&result);
        result
    }

    async fn read_blocks(&self, offset: u64, length: u64) -> Result<Bytes, MediaError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size);
        let end = end.ok_or(MediaError::Beyond(length, offset))?;
        let mut out = BytesMut::with_capacity(usize::try_from(length.min(32 * BLOCK)).unwrap_or(0));
        let mut at = offset;
        while at < end {
            let block = self.block(at / BLOCK).await?;
            let from = at % BLOCK;
            let take = (end - at).min(block.len() as u64 - from);
            out.extend_from_slice(&block.slice(from as usize..(from + take) as usize));
            at += take;
        }
        Ok(out.freeze())
    }

    /// One block, from the cache or fetched. Fetches of one medium follow each other, as with a real BMC.
    async fn block(&self, number: u64) -> Result<Bytes, MediaError> {
        let mut cache = self.cache.lock().await;
        if let Some(block) = cache.get(number) {
            return Ok(block);
        }
        let start = number * BLOCK;
        let length = (cache.ahead(number) * BLOCK).min(self.size - start);
        self.faults(length).await?;
        let bytes = self.fetch(start, length).await?;
        // Last to first, so that the requested block stays longest.
        for ahead in (0..length.div_ceil(BLOCK)).rev() {
            let from = (ahead * BLOCK) as usize;
            let block = bytes.slice(from..bytes.len().min(from + BLOCK as usize));
            cache.put(number + ahead, block);
        }
        Ok(bytes.slice(..bytes.len().min(BLOCK as usize)))
    }

    /// Applies the settings' delays and failures.
    async fn faults(&self, length: u64) -> Result<(), MediaError> {
        let faults = self.settings.borrow().media.clone();
        let fetched = self.log.lock().bytes_fetched;
        if faults.fail || faults.unread || faults.fail_after_bytes.is_some_and(|limit| fetched >= limit) {
            return Err(MediaError::Fault);
        }
        let transfer = (length * 1000).checked_div(faults.bytes_per_second).unwrap_or(0);
        let wait = faults.delay_ms.saturating_add(transfer).min(600_000);
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Ok(())
    }

    /// Fetches a range, with retries while the server is unreachable or returns 5xx: a BMC that gave up on the first broken connection would lose its
    /// machine to every restart of that server.
    async fn fetch(&self, start: u64, length: u64) -> Result<Bytes, MediaError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.fetch_once(start, length, Some(self.size)).await {
                Ok((bytes, _)) => return Ok(bytes),
                Err(error) => error,
            };
            let passing = match &error {
                MediaError::Unreachable { .. } => true,
                MediaError::Status { status, .. } => *status >= 500,
                _ => false,
            };
            if !passing || attempt >= ATTEMPTS {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// Sends one range request; returns the bytes and the total size. `expected` is the known size.
    async fn fetch_once(&self, start: u64, length: u64, expected: Option<u64>) -> Result<(Bytes, u64), MediaError> {
        let mut status = None;
        let result = self.request(start, length, expected, &mut status).await;
        let error = result.as_ref().err().map(ToString::to_string);
        let bytes = result.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        self.log.fetched(Fetch { url: self.printable_url(), start, length, status, error }, bytes);
        result
    }

    async fn request(
        &self,
        start: u64,
        length: u64,
        expected: Option<u64>,
        status: &mut Option<u16>,
    ) -> Result<(Bytes, u64), MediaError> {
        let unreachable =
            |error: reqwest::Error| MediaError::Unreachable { url: self.printable_url(), detail: chain(&error) };
        let wrong = |detail: String| MediaError::Range { url: self.printable_url(), detail };
        let range = format!("bytes={start}-{}", start + length - 1);
        let mut response = self.source.get(&self.url, range).await.map_err(unreachable)?;
        *status = Some(response.status().as_u16());
        if response.status() == StatusCode::OK {
            return Err(wrong("the server answered a range request with the whole file".to_owned()));
        }
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(MediaError::Status { url: self.printable_url(), status: response.status().as_u16() });
        }
        let content_range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let (from, to, size) = content_range
            .and_then(parse_content_range)
            .ok_or_else(|| wrong(format!("the answer's Content-Range is {content_range:?}")))?;
        if from != start || to < from || to - from >= length || size > MAX_SIZE || to >= size {
            return Err(wrong(format!("asked for {length} bytes at {start}, got bytes {from}-{to}/{size}")));
        }
        if expected.is_some_and(|expected| expected != size) {
            return Err(wrong(format!("the image had {} bytes and has {size} now", self.size)));
        }
        let promised = to - from + 1;
        if promised < length.min(size - start) {
            return Err(wrong(format!("asked for {length} bytes at {start}, got {promised}")));
        }
        let mut body = BytesMut::with_capacity(promised as usize);
        while let Some(piece) = response.chunk().await.map_err(unreachable)? {
            if (body.len() + piece.len()) as u64 > promised {
                return Err(wrong(format!("the answer is longer than the {promised} bytes that it promised")));
            }
            body.extend_from_slice(&piece);
        }
        if (body.len() as u64) < promised {
            let detail = format!("the answer ended after {} of {promised} bytes", body.len());
            return Err(MediaError::Unreachable { url: self.printable_url(), detail });
        }
        Ok((body.freeze(), size))
    }
}

/// `bytes 0-2047/12345` as numbers.
fn parse_content_range(value: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?, size.parse().ok()?))
}

/// An address without user, password and query.
fn printable(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for addresses that cannot have credentials.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.to_string()
}

/// An error and its causes in one line; reqwest's own text names the address, query included, so it is left out.
fn chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "time ran out".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    if text.is_empty() { "the connection failed".to_owned() } else { text }
}

/// Why no client for media could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file with the authority is unreadable.
    #[error("reading the authority for media from {path}")]
    Read {
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The HTTP library refused.
    #[error("making the HTTP client for media")]
    Build(#[from] reqwest::Error),
}

/// The client by which BMCs fetch media: no proxy, no redirects elsewhere, certificates checked only if `verify`.
///
/// # Errors
/// The authority's file cannot be read or is not PEM.
pub fn client(verify: bool, authority: Option<&std::path::Path>) -> Result<reqwest::Client, ClientError> {
    // An error means that this process has chosen its provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .user_agent("bmc-sim virtual-media")
        .redirect(reqwest::redirect::Policy::limited(3))
        .connect_timeout(FETCH_TIMEOUT)
        .read_timeout(FETCH_TIMEOUT);
    let builder = if verify {
        let mut trusted = Vec::new();
        if let Some(path) = authority {
            let read = |source| ClientError::Read { path: path.display().to_string(), source };
            trusted = reqwest::Certificate::from_pem_bundle(&std::fs::read(path).map_err(read)?)?;
        }
        builder.tls_certs_only(trusted)
    } else {
        builder.tls_certs_only([]).tls_danger_accept_invalid_certs(true)
    };
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ahead_grows_with_sequential_reads() {
        let mut cache = Cache::default();
        let mut at = 7;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = cache.ahead(at);
            windows.push(window);
            at += window;
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 16]);
        assert_eq!(cache.ahead(0), 1);
        for number in 0..200 {
            cache.put(number, Bytes::new());
        }
        assert_eq!((cache.blocks.len(), cache.get(71), cache.get(72)), (CACHED_BLOCKS, None, Some(Bytes::new())));
    }

    #[test]
    fn content_ranges() {
        assert_eq!(parse_content_range("bytes 0-9/10"), Some((0, 9, 10)));
        for bad in ["bytes */10", "bytes 0-9/*", "0-9/10", "bytes 0-9", "bytes -1-9/10", ""] {
            assert_eq!(parse_content_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        let url = Url::parse("https://u:p@h:1/a/b.iso?token=x#y").unwrap();
        assert_eq!(printable(&url), "https://h:1/a/b.iso");
    }
}
