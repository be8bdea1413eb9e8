//! One exchange with an Ironic, as data.

use async_trait::async_trait;
use serde_json::Value;

/// Largest answer that is read, bytes: a list of a thousand nodes, or an inventory.
pub const MAX_ANSWER: usize = 16 << 20;

/// HTTP methods that Ironic's API has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Makes something.
    Post,
    /// Orders.
    Put,
    /// Changes fields.
    Patch,
    /// Removes.
    Delete,
}

impl Method {
    /// As HTTP writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What is sent. Its body may hold passwords and user data: it has no `Debug`.
#[derive(Clone)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Path and query below the endpoint, such as `/v1/nodes?limit=1000`.
    pub path: String,
    /// Minor number of the API version that is asked for; `None` asks for none.
    pub version: Option<u32>,
    /// JSON.
    pub body: Option<Value>,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The header `X-OpenStack-Ironic-API-Maximum-Version`, such as `1.115`.
    pub maximum: Option<String>,
    /// At most [`MAX_ANSWER`] bytes.
    pub body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// It could not be reached, or did not answer in time.
    #[error("{0}")]
    Unreachable(String),
    /// Its certificate, or ours, is not accepted; or a file with one cannot be used.
    #[error("{0}")]
    Untrusted(String),
    /// What it sends is no answer of Ironic's.
    #[error("{0}")]
    Unreadable(String),
}

/// The way to one Ironic.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a request and returns the answer, whatever its status.
    ///
    /// # Errors
    /// When there is no whole answer.
    async fn send(&self, request: &Request) -> Result<Response, TransportError>;

    /// Where it is, for messages: no user, no password.
    fn endpoint(&self) -> String;
}
