//! The virtual drive of fake machines: media served on loopback by HTTP range requests, read through the BMC's fetcher.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use tokio::{net::TcpListener, task::JoinHandle};
use uuid::Uuid;

use crate::media::{MediaError, Medium};

/// Bytes handed on at a time.
const PIECE: u64 = 256 << 10;

type Media = Arc<Mutex<HashMap<Uuid, Arc<Medium>>>>;

fn lock(media: &Media) -> MutexGuard<'_, HashMap<Uuid, Arc<Medium>>> {
    media.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server; ends when dropped.
pub struct MediaServer {
    address: SocketAddr,
    media: Media,
    task: JoinHandle<()>,
}

/// A medium while it is served.
pub struct Served {
    media: Media,
    id: Uuid,
    url: String,
}

impl Served {
    /// Where.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        lock(&self.media).remove(&self.id);
    }
}

impl MediaServer {
    /// Listens on a port of loopback that the system chooses.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let media = Media::default();
        let router =
            Router::new().route("/drive/{id}/medium.iso", axum::routing::get(answer)).with_state(media.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the drives' server ended");
            }
        });
        Ok(Self { address, media, task })
    }

    /// Serves a medium until the handle is dropped.
    #[must_use]
    pub fn serve(&self, medium: Arc<Medium>) -> Served {
        let id = Uuid::new_v4();
        lock(&self.media).insert(id, medium);
        Served { media: self.media.clone(), id, url: format!("http://{}/drive/{id}/medium.iso", self.address) }
    }
}

impl Drop for MediaServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(media): State<Media>, Path(id): Path<Uuid>, method: Method, headers: HeaderMap) -> Response {
    let Some(medium) = lock(&media).get(&id).cloned() else { return StatusCode::NOT_FOUND.into_response() };
    let size = medium.size();
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let (status, start, end) = match range.map(|range| parse_range(range, size)) {
        None | Some(Range::Ignored) => (StatusCode::OK, 0, size),
        Some(Range::Bytes(start, end)) => (StatusCode::PARTIAL_CONTENT, start, end),
        Some(Range::Outside) => {
            let header = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, header).into_response();
        }
    };
    if medium.is_ejected() {
        return (StatusCode::GONE, "the medium was ejected").into_response();
    }
    let mut response = Response::builder()
        .status(status)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, end - start);
    if status == StatusCode::PARTIAL_CONTENT {
        response = response.header(header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end.saturating_sub(1)));
    }
    let body = if method == Method::HEAD { Body::empty() } else { stream(medium, start, end) };
    response.body(body).unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// The medium's bytes, read piece by piece while they are sent.
fn stream(medium: Arc<Medium>, start: u64, end: u64) -> Body {
    Body::from_stream(futures::stream::try_unfold(start, move |at| {
        let medium = medium.clone();
        async move {
            if at >= end {
                return Ok::<_, MediaError>(None);
            }
            let bytes = medium.read(at, PIECE.min(end - at)).await?;
            let next = at + bytes.len() as u64;
            Ok(Some((bytes, next)))
        }
    }))
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// From, and to exclusively.
    Bytes(u64, u64),
    /// Not a single byte range: answered with the whole.
    Ignored,
    /// Beyond the end.
    Outside,
}

/// One range of a `Range` header (RFC 9110, 14.2); several are answered with the whole.
fn parse_range(value: &str, size: u64) -> Range {
    let Some((first, last)) = value.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Range::Ignored;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), _) if last.is_empty() && first < size => Range::Bytes(first, size),
        (Ok(first), Ok(last)) if first <= last && first < size => Range::Bytes(first, last.saturating_add(1).min(size)),
        (Ok(first), Ok(last)) if first > last => Range::Ignored,
        (Ok(first), _) if first >= size => Range::Outside,
        (Err(_), Ok(suffix)) if first.is_empty() && suffix > 0 && size > 0 => {
            Range::Bytes(size.saturating_sub(suffix), size)
        }
        (Err(_), Ok(_)) if first.is_empty() => Range::Outside,
        _ => Range::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, range) in [
            ("bytes=0-9", Range::Bytes(0, 10)),
            ("bytes=90-", Range::Bytes(90, 100)),
            ("bytes=-10", Range::Bytes(90, 100)),
            ("bytes=-1000", Range::Bytes(0, 100)),
            ("bytes=99-1000", Range::Bytes(99, 100)),
            ("bytes=100-", Range::Outside),
            ("bytes=100-200", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=0-1,4-5", Range::Ignored),
            ("bytes=9-1", Range::Ignored),
            ("lines=0-1", Range::Ignored),
            ("bytes=0-18446744073709551615", Range::Bytes(0, 100)),
        ] {
            assert_eq!(parse_range(text, 100), range, "{text}");
        }
    }
}
