//! Images over HTTP and HTTPS: resumed by range after a dropped connection, and only if they are still the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use addresses::without_secrets;
use reach::{Lost, Reach, Refused};
use reqwest::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::{Response, StatusCode};
use tokio::runtime::Handle;
use url::Url;

use crate::error::Error;
use crate::source::Source;

/// A forward jump shorter than this continues the response instead of sending a new request, in bytes.
const READ_ON: u64 = 512 << 10;

/// How long and how often to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts without a new byte before giving up; at least 1.
    pub attempts: u32,
    /// Connections in all, however much each of them brings.
    pub connections: u32,
    /// Pause before the second attempt; doubled for each further one.
    pub pause: Duration,
    /// Longest pause.
    pub max_pause: Duration,
    /// Longest wait for an answer, or for the next bytes.
    pub stall: Duration,
    /// Until the first good answer, no attempt begins later than this after the first one: a wrong address or a missing server needs a person, who
    /// should learn of it soon.
    pub first_answer: Duration,
}

impl Default for RetryPolicy {
    /// 8 attempts, 1 s to 20 s apart, 60 s of silence each: enough for a server that restarts during a download. Without any good answer, gives up
    /// after 15 s.
    fn default() -> Self {
        Self {
            attempts: 8,
            connections: 1000,
            pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(20),
            stall: Duration::from_secs(60),
            first_answer: Duration::from_secs(15),
        }
    }
}

/// Why an attempt ended.
enum Failure {
    /// Worth another attempt.
    Lost(Box<dyn std::error::Error + Send + Sync>),
    /// The connection ended before the announced length.
    Short,
    /// A status that may pass: 408, 425, 429, 5xx.
    Busy(u16),
    /// Not worth another attempt.
    Final(Error),
}

/// An image behind an `http` or `https` address.
///
/// Runs the asynchronous client from an ordinary thread by a runtime's handle: never use it on a thread of that
/// runtime. Certificate checks, trusted authorities, proxies and redirects are the client's.
pub struct HttpSource {
    client: Reach,
    handle: Handle,
    url: Url,
    name: String,
    policy: RetryPolicy,
    authorization: Option<HeaderValue>,
    /// Offset of the next byte to give.
    position: u64,
    /// Offset of the next byte of `body` or of the remainder in `rest`.
    arrived: u64,
    body: Option<Response>,
    rest: bytes_of::Rest,
    length: Option<u64>,
    validator: Option<HeaderValue>,
    etag: Option<HeaderValue>,
    ranges: bool,
    ended: bool,
    failures: u32,
    connections: u32,
    /// When the first attempt began.
    begun: Instant,
    /// The server has given a good answer.
    answered: bool,
    /// Bytes that have come, those passed over included.
    received: Arc<AtomicU64>,
}

/// The remainder of a body's last piece.
mod bytes_of {
    /// Bytes and how many of them are used up.
    #[derive(Default)]
    pub(super) struct Rest {
        data: Vec<u8>,
        used: usize,
    }

    impl Rest {
        pub(super) fn left(&self) -> &[u8] {
            &self.data[self.used..]
        }

        pub(super) fn consume(&mut self, count: usize) {
            self.used = (self.used + count).min(self.data.len());
        }

        pub(super) fn refill(&mut self, piece: &[u8]) {
            self.data.clear();
            self.data.extend_from_slice(piece);
            self.used = 0;
        }

        pub(super) fn clear(&mut self) {
            self.refill(&[]);
        }
    }
}

impl std::fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpSource({} at {})", self.name, self.position)
    }
}

impl HttpSource {
    /// Requests the image; returns when the response headers have arrived.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for another scheme, [`Error::SourceStatus`], [`Error::SourceUnreachable`].
    pub fn open(client: impl Into<Reach>, handle: Handle, url: &str, policy: RetryPolicy) -> Result<Self, Error> {
        Self::open_with(client, handle, url, policy, None)
    }

    /// The same with this value of `Authorization`. A client leaves it away where it is redirected to another host or port.
    ///
    /// # Errors
    /// As [`HttpSource::open`]; [`Error::Unsupported`] for a value that cannot be sent.
    pub fn open_with(
        client: impl Into<Reach>,
        handle: Handle,
        url: &str,
        policy: RetryPolicy,
        authorization: Option<&str>,
    ) -> Result<Self, Error> {
        let authorization = authorization.map(sensitive).transpose()?;
        let url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| Error::Unsupported { what: "the image's address is not an http or https address".into() })?;
        let client = client.into();
        client.check(&url).map_err(|refused| Error::SourceUnreachable {
            url: without_secrets(&url),
            attempts: 1,
            offset: 0,
            source: Box::new(refused),
        })?;
        let name = match client.via(&url) {
            Some(proxy) => format!("{} (by way of the proxy {proxy})", without_secrets(&url)),
            None => without_secrets(&url),
        };
        let mut source = Self {
            client,
            handle,
            url,
            name,
            policy,
            authorization,
            position: 0,
            arrived: 0,
            body: None,
            rest: bytes_of::Rest::default(),
            length: None,
            validator: None,
            etag: None,
            ranges: false,
            ended: false,
            failures: 0,
            connections: 0,
            begun: Instant::now(),
            answered: false,
            received: Arc::default(),
        };
        source.connect()?;
        Ok(source)
    }

    /// Fetches a small text, a checksum file for instance, which nothing vouches for but the way to it: over TLS it is not redirected to an address without.
    ///
    /// # Errors
    /// As [`HttpSource::open`]; [`Error::LimitExceeded`] beyond `max` bytes.
    pub fn fetch_text(
        client: impl Into<Reach>,
        handle: Handle,
        url: &str,
        policy: RetryPolicy,
        max: usize,
    ) -> Result<String, Error> {
        let mut source = Self::open(client.into().keeping_tls(), handle, url, policy)?;
        let mut text = Vec::new();
        let mut piece = vec![0; 16 << 10];
        loop {
            let count = source.read(&mut piece)?;
            if count == 0 {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            text.extend_from_slice(&piece[..count]);
            if text.len() > max {
                let what = format!("{} is longer than {max} bytes", source.name);
                return Err(Error::LimitExceeded { what, limit: max as u64 });
            }
        }
    }

    /// Connects, with retries, so that the next bytes are at or before `position`.
    fn connect(&mut self) -> Result<(), Error> {
        self.body = None;
        self.rest.clear();
        while let Err(failure) = self.attempt() {
            self.note(failure)?;
        }
        Ok(())
    }

    /// Counts a failure and waits, or gives up.
    fn note(&mut self, failure: Failure) -> Result<(), Error> {
        self.body = None;
        self.rest.clear();
        if let Failure::Final(error) = failure {
            return Err(error);
        }
        self.failures += 1;
        let doubled = self.policy.pause.saturating_mul(1 << (self.failures - 1).min(16));
        let pause = doubled.min(self.policy.max_pause);
        let too_late = !self.answered && self.begun.elapsed() + pause > self.policy.first_answer;
        if too_late || self.failures >= self.policy.attempts || self.connections >= self.policy.connections {
            return Err(match failure {
                Failure::Final(error) => error,
                Failure::Busy(status) => Error::SourceStatus { url: self.name.clone(), status },
                Failure::Short => Error::Truncated {
                    what: format!("the image at {}", self.name),
                    expected: self.length.unwrap_or(self.position + 1),
                    found: self.position,
                },
                Failure::Lost(source) => Error::SourceUnreachable {
                    url: self.name.clone(),
                    attempts: self.failures,
                    offset: self.position,
                    source,
                },
            });
        }
        // The timer must be made inside the runtime.
        self.handle.block_on(async { tokio::time::sleep(pause).await });
        Ok(())
    }

    fn attempt(&mut self) -> Result<(), Failure> {
        self.connections += 1;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.position > 0 {
            let range = HeaderValue::from_str(&format!("bytes={}-", self.position));
            headers.extend(range.ok().map(|range| (RANGE, range)));
            headers.extend(self.validator.clone().map(|validator| (IF_RANGE, validator)));
        }
        let stall = self.policy.stall;
        let answer = self.handle.block_on(async {
            let asked = self.client.follow(&self.url, &headers, self.authorization.as_ref());
            tokio::time::timeout(stall, asked).await
        });
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(lost)) => return Err(self.lost(lost)),
            Err(_) => return Err(Failure::Lost(format!("no answer within {} s", stall.as_secs()).into())),
        };
        let status = response.status();
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
            && let Some(proxy) = self.client.via(response.url())
        {
            return Err(Failure::Final(self.refuse(Refused::unauthorized(proxy))));
        }
        match status {
            StatusCode::OK => self.take_whole(response),
            StatusCode::PARTIAL_CONTENT if self.position > 0 => self.take_range(response),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(Failure::Final(self.changed(format!("it has no byte {} any more", self.position))))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Err(Failure::Busy(status.as_u16()))
            }
            status if status.is_server_error() => Err(Failure::Busy(status.as_u16())),
            status => Err(Failure::Final(Error::SourceStatus { url: self.name.clone(), status: status.as_u16() })),
        }
    }

    /// Why a request has no answer.
    fn lost(&self, lost: Lost) -> Failure {
        let e = match lost {
            Lost::NotAllowed(refused) => return Failure::Final(self.refuse(refused)),
            Lost::Redirected(why) => return Failure::Final(self.refused(why.into())),
            Lost::Http(error) => error,
        };
        if let Some(refused) = reach::not_allowed(&e) {
            return Failure::Final(self.refuse(refused));
        }
        // A redirect may have led to another address.
        let at = e.url().unwrap_or(&self.url);
        match self.client.via(at).and_then(|proxy| reach::refused_by_proxy(&e, proxy)) {
            Some(refused) if refused.for_good => Failure::Final(self.refuse(refused)),
            Some(refused) => Failure::Lost(Box::new(refused)),
            None if e.is_builder() => Failure::Final(self.refuse(e.without_url())),
            None => Failure::Lost(Box::new(e.without_url())),
        }
    }

    fn refuse(&self, why: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.refused(Box::new(why))
    }

    fn refused(&self, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::SourceUnreachable { url: self.name.clone(), attempts: 1, offset: self.position, source }
    }

    fn changed(&self, reason: String) -> Error {
        Error::SourceChanged { url: self.name.clone(), reason }
    }

    /// Starts at the image's beginning: the first answer, or that of a server without ranges (or with another image).
    fn take_whole(&mut self, response: Response) -> Result<(), Failure> {
        let length = response.content_length();
        let headers = response.headers();
        self.same(headers, length)?;
        self.answered = true;
        if self.length.is_none() {
            self.length = length;
        }
        if self.validator.is_none() {
            self.etag = headers.get(ETAG).cloned();
            // A weak tag must not be used for ranges (RFC 9110, 13.1.5).
            let strong = self.etag.clone().filter(|tag| !tag.as_bytes().starts_with(b"W/"));
            self.validator = strong.or_else(|| headers.get(LAST_MODIFIED).cloned());
        }
        self.ranges = headers.get(ACCEPT_RANGES).is_some_and(|value| value.as_bytes() == b"bytes");
        self.arrived = 0;
        self.body = Some(response);
        Ok(())
    }

    fn take_range(&mut self, response: Response) -> Result<(), Failure> {
        let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).and_then(parse_range);
        let Some((first, total)) = range else {
            return Err(Failure::Final(self.changed("its server answered a range without saying which".into())));
        };
        if first != self.position {
            let asked = self.position;
            return Err(Failure::Final(self.changed(format!("asked for byte {asked}, got byte {first}"))));
        }
        self.same(response.headers(), total)?;
        self.ranges = true;
        self.arrived = first;
        self.body = Some(response);
        Ok(())
    }

    /// Fails if an answer is of another image than the first one.
    fn same(&self, headers: &HeaderMap, length: Option<u64>) -> Result<(), Failure> {
        if let (Some(before), Some(now)) = (self.length, length)
            && before != now
        {
            return Err(Failure::Final(self.changed(format!("its length was {before} and is {now}"))));
        }
        match (&self.etag, headers.get(ETAG)) {
            (Some(before), Some(now)) if before != now => {
                Err(Failure::Final(self.changed("its entity tag is another one".into())))
            }
            _ => Ok(()),
        }
    }

    /// Reads the body's next piece into `rest`; false at the image's end.
    fn next_piece(&mut self) -> Result<bool, Failure> {
        let Some(body) = &mut self.body else { return Err(Failure::Lost("not connected".into())) };
        let stall = self.policy.stall;
        match self.handle.block_on(async { tokio::time::timeout(stall, body.chunk()).await }) {
            Ok(Ok(Some(piece))) => {
                self.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
                self.rest.refill(&piece);
                Ok(true)
            }
            Ok(Ok(None)) if self.length.is_none_or(|length| self.arrived >= length) => Ok(false),
            Ok(Ok(None)) => Err(Failure::Short),
            // The body ended before its announced length, or the connection was reset: the client does not distinguish them.
            Ok(Err(e)) if e.is_body() || e.is_decode() => Err(Failure::Short),
            Ok(Err(e)) => Err(Failure::Lost(Box::new(e.without_url()))),
            Err(_) => Err(Failure::Lost(format!("no data within {} s", stall.as_secs()).into())),
        }
    }
}

/// A value that no log shows.
fn sensitive(value: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| Error::Unsupported { what: "the authorization for the image cannot be sent".into() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads `bytes 5-9/10` (RFC 9110, 14.4): first byte, total length if given.
fn parse_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, total))
}

impl Source for HttpSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn has_ranges(&self) -> bool {
        self.ranges
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        if buf.is_empty() || self.ended || self.length.is_some_and(|length| self.position >= length) {
            return Ok(0);
        }
        loop {
            let left = self.rest.left();
            if !left.is_empty() {
                if self.arrived < self.position {
                    // A server without ranges sends bytes again that have been read already.
                    let skip = (self.position - self.arrived).min(left.len() as u64);
                    self.rest.consume(skip as usize);
                    self.arrived += skip;
                    continue;
                }
                let count = left.len().min(buf.len());
                buf[..count].copy_from_slice(&left[..count]);
                self.rest.consume(count);
                self.arrived += count as u64;
                self.position += count as u64;
                self.failures = 0;
                return Ok(count);
            }
            if self.body.is_none() {
                self.connect()?;
            }
            match self.next_piece() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    return Ok(0);
                }
                Err(failure) => self.note(failure)?,
            }
        }
    }

    fn restart_at(&mut self, offset: u64) -> Result<(), Error> {
        let reads_on = offset >= self.arrived && (offset - self.arrived <= READ_ON || !self.ranges);
        self.position = offset;
        self.ended = false;
        if !reads_on || self.body.is_none() {
            self.body = None;
            self.rest.clear();
            self.connections = 0;
            if self.length.is_none_or(|length| offset < length) {
                self.connect()?;
            }
        }
        Ok(())
    }

    fn arriving(&self) -> Option<Arc<AtomicU64>> {
        Some(Arc::clone(&self.received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        assert_eq!(parse_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_range("bytes 5-9/*"), Some((5, None)));
        for bad in ["bytes */10", "items 1-2/3", "bytes 5-9", "bytes x-9/10", ""] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }
}
