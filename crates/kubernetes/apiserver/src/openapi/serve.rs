//! Serves documents with ETags, so that clients need not fetch an unchanged document again.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;

use crate::reply::{self, Response};

/// A document to serve.
pub struct Document {
    /// Its bytes.
    pub bytes: Bytes,
    /// A hash of its JSON form.
    pub tag: String,
    /// When it was built.
    pub made: jiff::Timestamp,
}

/// Format of times in headers.
const TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";
/// Cache lifetime of a document whose address contains its hash.
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The index of documents. Upstream sets no media type, so its HTTP library guesses one.
pub fn index(value: &Value, headers: &HeaderMap) -> Response {
    // It has no ETag, but `*` matches any present document.
    let there = text(headers, header::IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|t| t.trim() == "*"));
    let mut response = if there {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        reply::plain(StatusCode::OK, "text/plain; charset=utf-8", value.to_string())
    };
    set(&mut response, header::LAST_MODIFIED, &Timestamp::now().strftime(TIME).to_string());
    response
}

/// Serves a document or a range of it, or reports that the client's copy is current.
pub fn document(document: &Document, media: &'static str, headers: &HeaderMap) -> Response {
    let mut response = if unwanted(document, headers) {
        reply::plain(StatusCode::PRECONDITION_FAILED, media, "")
    } else if has_it(document, headers) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = content(document, media, headers);
        set(&mut response, header::LAST_MODIFIED, &document.made.strftime(TIME).to_string());
        response
    };
    set(&mut response, header::ETAG, &format!("\"{}\"", document.tag));
    set(&mut response, header::VARY, "Accept");
    response
}

/// The document, or the requested range.
fn content(document: &Document, media: &'static str, headers: &HeaderMap) -> Response {
    let length = document.bytes.len();
    let same = text(headers, header::IF_RANGE).is_none_or(|tag| tag.trim_matches('"') == document.tag);
    let part = match text(headers, header::RANGE).filter(|asked| same && !asked.contains(',')) {
        None => return reply::plain(StatusCode::OK, media, document.bytes.clone()),
        Some(asked) => range(asked, length),
    };
    match part {
        Ok(part) => {
            let content_range = format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1));
            let mut response = reply::plain(StatusCode::PARTIAL_CONTENT, media, document.bytes.slice(part));
            set(&mut response, header::CONTENT_RANGE, &content_range);
            set(&mut response, header::ACCEPT_RANGES, "bytes");
            response
        }
        Err(why) => {
            let text = "text/plain; charset=utf-8";
            let mut response = reply::plain(StatusCode::RANGE_NOT_SATISFIABLE, text, format!("{why}\n"));
            set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
            response
        }
    }
}

/// The requested range of a document of this length. Errors are the texts of Go's `net/http`.
fn range(asked: &str, length: usize) -> Result<std::ops::Range<usize>, &'static str> {
    let invalid = "invalid range";
    let (first, last) = asked.strip_prefix("bytes=").and_then(|r| r.split_once('-')).ok_or(invalid)?;
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| invalid);
    if first.trim().is_empty() {
        return Ok(length.saturating_sub(number(last)?)..length);
    }
    let first = number(first)?;
    if first >= length {
        return Err("invalid range: failed to overlap");
    }
    let end = if last.trim().is_empty() { length } else { number(last)?.saturating_add(1).min(length) };
    if end > first { Ok(first..end) } else { Err(invalid) }
}

/// Serves a document whose address may contain its hash, which makes it immutable. A different hash redirects to
/// `address`.
pub fn hashed(of: &Document, media: &'static str, headers: &HeaderMap, (hash, address): (&str, &str)) -> Response {
    if hash.is_empty() {
        return document(of, media, headers);
    }
    if hash != of.tag {
        let mut response = reply::plain(StatusCode::MOVED_PERMANENTLY, media, "");
        set(&mut response, header::LOCATION, address);
        set(&mut response, header::ETAG, &format!("\"{}\"", of.tag));
        set(&mut response, header::VARY, "Accept");
        return response;
    }
    let mut response = document(of, media, headers);
    set(&mut response, header::CACHE_CONTROL, "public, immutable");
    let until = Timestamp::now().saturating_add(YEAR).unwrap_or(Timestamp::MAX);
    set(&mut response, header::EXPIRES, &until.strftime(TIME).to_string().replace("GMT", "UTC"));
    response
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

/// A time from a header, in seconds since 1970.
fn time(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let parsed = jiff::fmt::strtime::parse(TIME, text(headers, name)?).ok()?;
    Some(parsed.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

/// Whether a precondition of the client fails.
fn unwanted(document: &Document, headers: &HeaderMap) -> bool {
    match text(headers, header::IF_MATCH) {
        Some(tags) => !tags.split(',').map(str::trim).any(|t| t == "*" || t == format!("\"{}\"", document.tag)),
        None => time(headers, header::IF_UNMODIFIED_SINCE).is_some_and(|since| document.made.as_second() > since),
    }
}

fn has_it(document: &Document, headers: &HeaderMap) -> bool {
    if let Some(tags) = text(headers, header::IF_NONE_MATCH) {
        let same = |tag: &str| {
            let tag = tag.trim();
            tag == "*" || tag.trim_start_matches("W/").trim_matches('"') == document.tag
        };
        return tags.split(',').any(same);
    }
    time(headers, header::IF_MODIFIED_SINCE).is_some_and(|since| document.made.as_second() <= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: HeaderName, value: &str) -> bool {
        let made = Timestamp::from_second(1_700_000_000).unwrap();
        let document = Document { bytes: "{}".into(), tag: "AB".into(), made };
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        has_it(&document, &headers)
    }

    #[test]
    fn who_has_a_document_gets_not_modified() {
        assert!(asked(header::IF_NONE_MATCH, "\"AB\""));
        assert!(asked(header::IF_NONE_MATCH, "\"x\", W/\"AB\""));
        assert!(asked(header::IF_NONE_MATCH, "*"));
        assert!(!asked(header::IF_NONE_MATCH, "\"A\""));
        assert!(asked(header::IF_MODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:20 GMT"));
        assert!(!asked(header::IF_MODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:19 GMT"));
        assert!(!asked(header::IF_MODIFIED_SINCE, "yesterday"));
    }

    #[test]
    fn parts_are_cut_as_they_are_asked_for() {
        for (asked, part) in [("bytes=0-3", 0..4), ("bytes=4-", 4..10), ("bytes=-3", 7..10), ("bytes=8-99", 8..10)] {
            assert_eq!(range(asked, 10), Ok(part), "{asked}");
        }
        for asked in ["bytes=10-", "bytes=3-2", "bytes=x-", "lines=1-2", "bytes=5"] {
            assert!(range(asked, 10).is_err(), "{asked}");
        }
        let huge = format!("bytes=0-{}", usize::MAX);
        assert_eq!(range(&huge, 10), Ok(0..10));
    }

    #[test]
    fn an_old_hash_leads_to_the_new_one() {
        let document = Document { bytes: "{}".into(), tag: "AB".into(), made: Timestamp::UNIX_EPOCH };
        let sent = |hash: &str| hashed(&document, "application/json", &HeaderMap::new(), (hash, "/x?hash=AB"));
        let moved = sent("00");
        assert_eq!(moved.status(), 301);
        assert_eq!(moved.headers()[header::LOCATION], "/x?hash=AB");
        assert_eq!(sent("AB").headers()[header::CACHE_CONTROL], "public, immutable");
        assert!(sent("").headers().get(header::EXPIRES).is_none());
    }
}
