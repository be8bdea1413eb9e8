//! How requests travel: the seam between the client's logic and a network.

use std::fmt;
use std::time::Duration;

use addresses::NotAllowed;
use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Largest answer that is read, bytes.
pub const MAX_BODY: usize = 4 << 20;

/// A request to the BMC.
#[derive(Clone)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Absolute path, with query if any; always at the BMC's own address.
    pub path: String,
    /// Headers; those with secrets are marked sensitive.
    pub headers: HeaderMap,
    /// JSON.
    pub body: Option<Vec<u8>>,
    /// Which connections it may use.
    pub over: Over,
}

/// The connections that a request may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// Any.
    #[default]
    Any,
    /// A connection without earlier requests; later ones may use it.
    New,
    /// A connection for this request alone.
    Own,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may hold a password.
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("headers", &self.headers)
            .field("body", &self.body.as_ref().map(Vec::len))
            .field("over", &self.over)
            .finish()
    }
}

impl Request {
    /// A request with the headers that every Redfish request has (DSP0266, 6.5).
    #[must_use]
    pub fn new(method: Method, path: &str, body: Option<Vec<u8>>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(HeaderName::from_static("odata-version"), HeaderValue::from_static("4.0"));
        if body.is_some() {
            headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Self { method, path: path.to_owned(), headers, body, over: Over::Any }
    }
}

/// The BMC's answer.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, at most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
    /// It came over a connection that had answered a request before.
    pub reused: bool,
    /// Path that it is the answer of, after redirects; left empty by transports.
    pub path: String,
}

impl Response {
    /// A header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// `Retry-After` in seconds; dates are ignored.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
    }
}

/// An answer whose body goes on for as long as the connection does.
pub struct Opened {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body, piece by piece.
    pub pieces: Box<dyn Pieces>,
}

/// A body that comes in pieces.
#[async_trait]
pub trait Pieces: Send {
    /// Waits for the next one; `None` at the end.
    ///
    /// # Errors
    /// [`TransportError`] when the connection is lost.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, TransportError>;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection: name not found, refused, no route.
    #[error("no connection: {detail}")]
    Connect {
        /// The network's error.
        detail: String,
    },
    /// None of the host's addresses may be called.
    #[error("no connection: {refused}")]
    NotAllowed {
        /// The first of them.
        refused: NotAllowed,
        /// They are those of a name.
        by_name: bool,
    },
    /// Another process acts on machines.
    #[error("{}", if *.begun { "the call was cut: another process leads" } else { "the call was not made: another process leads" })]
    NotLeading {
        /// The call had begun.
        begun: bool,
    },
    /// The certificate is not trusted.
    #[error("the certificate is not trusted: {detail}")]
    Certificate {
        /// What is wrong with it.
        detail: String,
    },
    /// The other side does not speak TLS.
    #[error("no TLS connection: {detail}")]
    Tls {
        /// What was found.
        detail: String,
    },
    /// Both sides speak TLS, and have no version or cipher suite in common.
    #[error("no TLS connection: {detail}")]
    NoCommonTls {
        /// What both sides offer.
        detail: String,
    },
    /// The connection was lost after the request had been sent and before the answer was complete.
    #[error("the connection was lost before the answer: {detail}")]
    Dropped {
        /// The network's error.
        detail: String,
        /// The connection had answered a request before, and closed without an answer to this one: many BMCs do so at any time.
        reused: bool,
    },
    /// No connection in time: the name was not resolved, the address was silent, or TLS was not agreed on. The request was not sent.
    #[error("no answer within {seconds} s")]
    Unconnected {
        /// Limit.
        seconds: u64,
    },
    /// No answer in time.
    #[error("no answer within {seconds} s")]
    Timeout {
        /// Limit.
        seconds: u64,
    },
    /// More than [`MAX_BODY`].
    #[error("the answer is larger than {MAX_BODY} bytes")]
    TooLarge,
    /// Not HTTP.
    #[error("the answer is not HTTP: {detail}")]
    Protocol {
        /// What was found.
        detail: String,
    },
}

impl TransportError {
    /// Whether the BMC has certainly not seen the request.
    #[must_use]
    pub const fn never_sent(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::NotAllowed { .. }
                | Self::NotLeading { begun: false }
                | Self::Certificate { .. }
                | Self::Tls { .. }
                | Self::NoCommonTls { .. }
                | Self::Unconnected { .. }
        )
    }
}

/// Sends requests to one BMC.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends and waits for the whole answer. Does not follow redirects; sends again only if the request has certainly not left, because the
    /// connection was closed before.
    ///
    /// # Errors
    /// [`TransportError`] when there is no answer; an answer of any status is no error.
    async fn send(&self, request: &Request) -> Result<Response, TransportError>;

    /// Sends over a connection of its own, and waits for the beginning of an answer that may have no end.
    ///
    /// # Errors
    /// As [`Self::send`].
    async fn open(&self, _request: &Request) -> Result<Opened, TransportError> {
        Err(TransportError::Protocol { detail: "it is not one that goes on".to_owned() })
    }

    /// SHA-256 of the public key (SubjectPublicKeyInfo, DER) of the certificate that the last answer came with, lower-case hex; `None`
    /// without TLS.
    fn key_sha256(&self) -> Option<String> {
        None
    }

    /// The certificate (DER) that the BMC shows, whether it is trusted or not, over a connection of its own that ends with the handshake; `None` without TLS, or if none
    /// comes.
    async fn shown_certificate(&self) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_before_there_is_a_connection_was_never_sent() {
        let detail = String::new;
        for (error, never) in [
            (TransportError::Connect { detail: detail() }, true),
            (TransportError::Unconnected { seconds: 10 }, true),
            (TransportError::Tls { detail: detail() }, true),
            (TransportError::NotLeading { begun: false }, true),
            (TransportError::NotLeading { begun: true }, false),
            (TransportError::Dropped { detail: detail(), reused: false }, false),
            (TransportError::Timeout { seconds: 60 }, false),
            (TransportError::TooLarge, false),
            (TransportError::Protocol { detail: detail() }, false),
        ] {
            assert_eq!(error.never_sent(), never, "{error}");
        }
    }
}
