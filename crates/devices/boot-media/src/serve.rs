//! Serves a medium over HTTP, whole or one range at a time (RFC 9110, chapter 14), in pieces of bounded size.

use std::io;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE,
    RANGE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;

use crate::medium::Medium;
use crate::read_at::ReadAt;

/// Most bytes of one piece of a body.
const PIECE: u64 = 128 << 10;
/// A `Range` longer than this is not one that a BMC sends.
const MAX_RANGE_HEADER: usize = 128;

/// The requested part of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part { start: u64, len: u64 },
    Unsatisfiable,
}

/// Bytes of an answer that were handed to the connection; reported on drop, whether or not the body was read to its end.
struct Progress<F: FnOnce(u64, u64)> {
    start: u64,
    asked: u64,
    sent: u64,
    served: Option<F>,
}

impl<F: FnOnce(u64, u64)> Drop for Progress<F> {
    fn drop(&mut self) {
        if let Some(served) = self.served.take() {
            served(self.start, self.sent);
        }
    }
}

/// Answers a request for `medium`. GET and HEAD; one range, `If-Range`, `If-None-Match`.
///
/// Requests with several or invalid ranges get the whole medium (RFC 9110, 14.2 allows it). The body is read from the shared files at the
/// connection's pace. `served` is called once for an answer with a body, when the body has ended or the connection has broken, with the first byte's
/// offset and the number of bytes handed over.
pub fn respond(
    medium: &Medium,
    method: &Method,
    headers: &HeaderMap,
    served: impl FnOnce(u64, u64) + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::empty());
    let total = medium.len();
    let response_headers = response.headers_mut();
    response_headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response_headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-transform"));
    if let Ok(etag) = HeaderValue::from_str(medium.etag()) {
        response_headers.insert(ETAG, etag);
    }
    let head = *method == Method::HEAD;
    let (status, start, len) = if !head && *method != Method::GET {
        response_headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        (StatusCode::METHOD_NOT_ALLOWED, 0, 0)
    } else if header(headers, IF_NONE_MATCH).is_some_and(|tags| matches_any(tags, medium.etag())) {
        (StatusCode::NOT_MODIFIED, 0, 0)
    } else {
        match wanted(headers, medium.etag(), total) {
            Wanted::Whole => (StatusCode::OK, 0, total),
            Wanted::Part { start, len } => (StatusCode::PARTIAL_CONTENT, start, len),
            Wanted::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
        }
    };
    *response.status_mut() = status;
    let response_headers = response.headers_mut();
    match status {
        StatusCode::PARTIAL_CONTENT => {
            insert(response_headers, CONTENT_RANGE, &format!("bytes {start}-{}/{total}", start + len - 1))
        }
        StatusCode::RANGE_NOT_SATISFIABLE => insert(response_headers, CONTENT_RANGE, &format!("bytes */{total}")),
        _ => {}
    }
    if status != StatusCode::NOT_MODIFIED {
        insert(response_headers, CONTENT_LENGTH, &len.to_string());
    }
    if len > 0 {
        response_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if !head {
            let progress = Progress { start, asked: len, sent: 0, served: Some(served) };
            *response.body_mut() = body(medium.clone(), progress);
        }
    }
    response
}

fn body<F: FnOnce(u64, u64) + Send + 'static>(medium: Medium, progress: Progress<F>) -> Body {
    Body::from_stream(stream::try_unfold((medium, progress), |(medium, mut progress)| async move {
        let left = progress.asked - progress.sent;
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let offset = progress.start + progress.sent;
        let len = usize::try_from(left.min(PIECE)).unwrap_or_default();
        let source = medium.clone();
        let read = move || {
            let mut piece = vec![0; len];
            source.read_exact_at(offset, &mut piece).map(|()| piece)
        };
        let piece = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        let piece = piece.inspect_err(|error| {
            tracing::warn!(offset, %error, "reading a shared file of a boot medium failed");
        })?;
        progress.sent += piece.len() as u64;
        Ok(Some((Bytes::from(piece), (medium, progress))))
    }))
}

fn insert(headers: &mut HeaderMap, name: axum::http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A header that occurs exactly once and is text.
fn header(headers: &HeaderMap, name: axum::http::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// `If-None-Match` compares weakly (RFC 9110, 13.1.2).
fn matches_any(tags: &str, etag: &str) -> bool {
    tags.trim() == "*" || tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag)
}

fn wanted(headers: &HeaderMap, etag: &str, total: u64) -> Wanted {
    let Some(range) = header(headers, RANGE).filter(|range| range.len() <= MAX_RANGE_HEADER) else {
        return Wanted::Whole;
    };
    // strong comparison (RFC 9110, 13.1.5); a date never matches, as a medium has none
    if headers.contains_key(IF_RANGE) && header(headers, IF_RANGE).map(str::trim) != Some(etag) {
        return Wanted::Whole;
    }
    parse_range(range, total)
}

/// One range of bytes (RFC 9110, 14.1.2).
fn parse_range(range: &str, total: u64) -> Wanted {
    let Some((unit, set)) = range.split_once('=') else { return Wanted::Whole };
    let Some((first, last)) = set.trim().split_once('-') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    // a number too large for u64 is a number beyond the end
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let (first, last) = (first.trim(), last.trim());
    match (number(first), number(last)) {
        (Some(start), _) if last.is_empty() && start < total => Wanted::Part { start, len: total - start },
        (Some(start), _) if last.is_empty() || start >= total && number(last).is_some_and(|last| last >= start) => {
            Wanted::Unsatisfiable
        }
        (Some(start), Some(last)) if last >= start => {
            let end = last.saturating_add(1).min(total);
            Wanted::Part { start, len: end - start }
        }
        (None, Some(0)) if first.is_empty() => Wanted::Unsatisfiable,
        (None, Some(suffix)) if first.is_empty() => {
            let len = suffix.min(total);
            Wanted::Part { start: total - len, len }
        }
        _ => Wanted::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_understood() {
        let part = |start, len| Wanted::Part { start, len };
        for (range, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-99", part(0, 100)),
            ("bytes=10-", part(10, 90)),
            ("bytes=99-", part(99, 1)),
            ("bytes=90-1000", part(90, 10)),
            ("bytes=0-18446744073709551615", part(0, 100)),
            ("bytes=0-99999999999999999999999", part(0, 100)),
            ("bytes=-1", part(99, 1)),
            ("bytes=-1000", part(0, 100)),
            ("Bytes= 5-6 ", part(5, 2)),
            ("bytes=100-", Wanted::Unsatisfiable),
            ("bytes=100-200", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=200-100", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=0-1,5-6", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("bytes", Wanted::Whole),
            ("bytes=--1", Wanted::Whole),
        ] {
            assert_eq!(parse_range(range, 100), expected, "{range}");
        }
    }
}
