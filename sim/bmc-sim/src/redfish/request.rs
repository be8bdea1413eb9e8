//! A request to the Redfish service, and who sent it.

use axum::http::{HeaderMap, header};
use serde_json::{Map, Value};

/// A request, read and bounded.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Path without a slash at its end.
    pub path: String,
    /// The part after the question mark, if any.
    pub query: String,
    /// Headers.
    pub headers: HeaderMap,
    /// The JSON body; none when there was no body, an error when it was no JSON.
    pub body: Result<Option<Value>, ()>,
}

impl Request {
    /// The text of a header.
    pub(crate) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as an object.
    pub(crate) fn object(&self) -> Option<&Map<String, Value>> {
        self.body.as_ref().ok()?.as_ref()?.as_object()
    }
}

/// How a client authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By a session's token.
    Session(u64),
    /// By user name and password.
    Basic,
    /// Not authenticated.
    Nobody,
    /// By something that is not valid here.
    Refused,
}

impl Identity {
    /// Its name in the request log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Session(_) => "session",
            Self::Basic => "basic",
            Self::Nobody => "none",
            Self::Refused => "refused",
        }
    }
}
