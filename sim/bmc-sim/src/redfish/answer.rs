//! Answers of a Redfish service, and its error bodies (Redfish specification DSP0266, "Error responses").

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Additional headers, besides those of every answer.
    pub headers: Vec<(HeaderName, String)>,
    /// JSON body.
    pub body: Option<Value>,
    /// A body that is not JSON, in place of the other, with its type.
    pub document: Option<Box<(&'static str, String)>>,
    /// It is the beginning of a stream of events.
    pub streams: bool,
}

impl Answer {
    /// 200 with a resource.
    #[must_use]
    pub fn resource(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: Some(body), document: None, streams: false }
    }

    /// 200 with a document that is not JSON, of this type.
    #[must_use]
    pub fn document(kind: &'static str, text: String) -> Self {
        Self { status: 200, headers: Vec::new(), body: None, document: Some(Box::new((kind, text))), streams: false }
    }

    /// 200, and a stream of events after it.
    #[must_use]
    pub fn stream() -> Self {
        Self { streams: true, ..Self::empty(200) }
    }

    /// A status without body.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None, document: None, streams: false }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// An error with one message of the Base registry.
    ///
    /// `id` is the message's name there (a message of another registry includes registry and version), `arguments` are its arguments; the sentence is
    /// the simulator's own.
    #[must_use]
    pub fn error(status: u16, id: &str, message: impl Into<String>, arguments: &[&str]) -> Self {
        let id = if id.contains('.') { id.to_owned() } else { format!("Base.1.18.{id}") };
        let message = message.into();
        let severity = if status >= 500 { "Critical" } else { "Warning" };
        let body = json!({
            "error": {
                "code": id,
                "message": message,
                "@Message.ExtendedInfo": [{
                    "@odata.type": "#Message.v1_1_2.Message",
                    "MessageId": id,
                    "Message": message,
                    "MessageArgs": arguments,
                    "MessageSeverity": severity,
                    "Resolution": resolution(status),
                }],
            }
        });
        Self { status, headers: Vec::new(), body: Some(body), document: None, streams: false }
    }

    /// 404 for a path.
    #[must_use]
    pub fn not_found(path: &str) -> Self {
        Self::error(404, "ResourceMissingAtURI", format!("There is no resource at {path}."), &[path])
    }

    /// 405, with the allowed methods.
    #[must_use]
    pub fn not_allowed(method: &str, allowed: &str) -> Self {
        let message = format!("The resource does not take {method}.");
        Self::error(405, "OperationNotAllowed", message, &[method]).with(header::ALLOW, allowed)
    }

    /// 400 for a body that is invalid for the action.
    #[must_use]
    pub fn malformed() -> Self {
        Self::error(400, "MalformedJSON", "The request's body is not the JSON object that was expected.", &[])
    }

    /// As an HTTP response.
    #[must_use]
    pub fn into_response(self, head: bool) -> Response {
        let mut builder = Response::builder().status(self.status).header("OData-Version", "4.0");
        if !self.headers.iter().any(|(name, _)| name == header::CACHE_CONTROL) {
            builder = builder.header(header::CACHE_CONTROL, "no-cache");
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                builder = builder.header(name, value);
            }
        }
        let text = match (self.document, self.body) {
            (Some(document), _) => Some(*document),
            (None, Some(value)) => {
                Some(("application/json;charset=utf-8", serde_json::to_string_pretty(&value).unwrap_or_default()))
            }
            (None, None) => None,
        };
        let mut body = Body::empty();
        if let Some((kind, text)) = text {
            builder = builder.header(header::CONTENT_TYPE, kind);
            if head {
                builder = builder.header(header::CONTENT_LENGTH, text.len());
            } else {
                body = text.into();
            }
        }
        builder.body(body).unwrap_or_else(|_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    }
}

fn resolution(status: u16) -> &'static str {
    match status {
        401 | 403 => "Give a user name and password, or a session's token, that are valid here.",
        404 | 405 => "Look at what the service offers and correct the address or the method.",
        409 | 412 => "Read the resource's state and try again if the request still makes sense.",
        500.. => "Try again later.",
        _ => "Correct the request.",
    }
}
