//! Sends documents: with tags, so that who has one need not fetch it again.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;

use super::Document;
use crate::reply::{self, Response};

/// How times stand in headers.
const TIME: &str = "%a, %d %b %Y %H:%M:%S GMT";
/// How long a document stays what it is under an address that has its hash.
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// The list of documents; upstream says nothing of its media type, and so its HTTP library guesses.
pub fn index(value: &Value) -> Response {
    let mut response = reply::plain(StatusCode::OK, "text/plain; charset=utf-8", value.to_string());
    set(&mut response, header::LAST_MODIFIED, &Timestamp::now().strftime(TIME).to_string());
    response
}

/// A document, or that the client has it already.
pub fn document(document: &Document, media: &'static str, headers: &HeaderMap) -> Response {
    let mut response = if has_it(document, headers) {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = reply::plain(StatusCode::OK, media, document.bytes.clone());
        set(&mut response, header::LAST_MODIFIED, &document.made.strftime(TIME).to_string());
        response
    };
    set(&mut response, header::ETAG, &format!("\"{}\"", document.tag));
    set(&mut response, header::VARY, "Accept");
    response
}

/// The same, at an address that may have the document's hash: then it never changes. With another hash the client is
/// sent to `address`.
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

fn has_it(document: &Document, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    if let Some(tags) = text(header::IF_NONE_MATCH) {
        let same = |tag: &str| {
            let tag = tag.trim();
            tag == "*" || tag.trim_start_matches("W/").trim_matches('"') == document.tag
        };
        return tags.split(',').any(same);
    }
    let since = text(header::IF_MODIFIED_SINCE).and_then(|t| jiff::fmt::strtime::parse(TIME, t).ok());
    let since = since.and_then(|parsed| parsed.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok());
    since.is_some_and(|since| document.made.as_second() <= since.timestamp().as_second())
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
    fn who_has_a_document_is_told_so() {
        assert!(asked(header::IF_NONE_MATCH, "\"AB\""));
        assert!(asked(header::IF_NONE_MATCH, "\"x\", W/\"AB\""));
        assert!(asked(header::IF_NONE_MATCH, "*"));
        assert!(!asked(header::IF_NONE_MATCH, "\"A\""));
        assert!(asked(header::IF_MODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:20 GMT"));
        assert!(!asked(header::IF_MODIFIED_SINCE, "Tue, 14 Nov 2023 22:13:19 GMT"));
        assert!(!asked(header::IF_MODIFIED_SINCE, "yesterday"));
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
