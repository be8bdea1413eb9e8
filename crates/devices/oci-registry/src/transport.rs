//! One request to a registry or its token service: what goes out, what comes back, and how it can fail.

use addresses::NotAllowed;
use async_trait::async_trait;
use image_sources::Route;
use secrecy::SecretString;
use url::Url;

/// A GET request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Where.
    pub url: &'a Url,
    /// `Accept`; empty for none.
    pub accept: &'static str,
    /// `Authorization`, whole.
    pub authorization: Option<&'a SecretString>,
    /// Most bytes of the body.
    pub max_body: usize,
    /// By way of this proxy, if it carries the URL.
    pub proxy: Option<&'a Route>,
}

/// What came back: of the header, what is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// `WWW-Authenticate`, each of them.
    pub challenges: Vec<String>,
    /// `Location`.
    pub location: Option<String>,
    /// `Docker-Content-Digest`.
    pub digest: Option<String>,
    /// `Retry-After`.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The address is not called.
    NotAllowed(NotAllowed),
    /// No connection, no answer in time, or it broke off: in words of this program.
    Lost(String),
    /// The body has more bytes than asked for.
    TooLarge,
}

/// The way to registries. It follows no redirect.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Asks.
    ///
    /// # Errors
    /// See [`TransportError`].
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError>;
}
