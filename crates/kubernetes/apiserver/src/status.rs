//! Errors as clients see them: `meta.k8s.io` Status objects.
//!
//! The texts and reasons follow what kube-apiserver answers, because clients match on them.

pub use field_errors::{FieldError, FieldErrorKind};
use http::StatusCode;
use serde_json::{Map, Value, json};

/// One reason within [`Details`], usually about one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Text for people, without the field's path.
    pub message: String,
    /// Path of the field; empty if the cause is about none.
    pub field: String,
}

/// What a failure is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// Object name, empty if none.
    pub name: String,
    /// API group of the kind, empty for core.
    pub group: String,
    /// Resource (plural) or kind, as kube-apiserver gives it for the reason.
    pub kind: String,
    /// UID of the object, empty if unknown.
    pub uid: String,
    /// Single causes.
    pub causes: Vec<Cause>,
    /// Seconds after which a retry can help; 0 is none.
    pub retry_after: u32,
    /// Continue token for the rest of a list whose revision was compacted. It is in the Status' metadata.
    pub next: String,
}

/// Why a request failed, for programs (`metav1.StatusReason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusReason {
    /// No reason is given.
    Unknown,
    /// No known credentials.
    Unauthorized,
    /// Understood and refused.
    Forbidden,
    /// No such object, or nothing at this path.
    NotFound,
    /// A create met an existing object.
    AlreadyExists,
    /// The object changed, or a precondition failed.
    Conflict,
    /// The object breaks its schema or rules.
    Invalid,
    /// It took too long.
    Timeout,
    /// The request cannot be understood.
    BadRequest,
    /// The resource has no such verb.
    MethodNotAllowed,
    /// None of the accepted media types can be produced.
    NotAcceptable,
    /// The body's media type is not supported.
    UnsupportedMediaType,
    /// The request is over a limit.
    RequestEntityTooLarge,
    /// A fault of the server.
    InternalError,
    /// The requested history was compacted.
    Expired,
    /// The server does not serve this now.
    ServiceUnavailable,
    /// There is no room for it.
    InsufficientStorage,
}

impl StatusReason {
    /// As a Status has it; empty for [`Self::Unknown`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Invalid => "Invalid",
            Self::Timeout => "Timeout",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::InsufficientStorage => "InsufficientStorage",
        }
    }
}

/// A failed request: HTTP status code, reason and message of the Status object.
#[derive(Debug, Clone, thiserror::Error, PartialEq)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Why, for programs.
    pub reason: StatusReason,
    /// Text for people.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<Details>>,
    /// A Status that is passed on as a webhook gave it, in place of one made of the rest.
    pub given: Option<Box<Map<String, Value>>>,
}

/// Result type of everything that handles a request.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error with the given code, reason and message and no details.
    pub fn new(code: StatusCode, reason: StatusReason, message: impl Into<String>) -> Self {
        Self { code: code.as_u16(), reason, message: message.into(), details: None, given: None }
    }

    /// An error with a given Status. `code` and `message` are those of the Status.
    pub fn given(code: u16, message: String, status: Map<String, Value>) -> Self {
        Self { code, reason: StatusReason::Unknown, message, details: None, given: Some(Box::new(status)) }
    }

    fn detailed(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, StatusReason::BadRequest, message)
    }

    /// 500: a fault of the server.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::InternalError, text).detailed(Details {
            causes: vec![Cause { reason: "", message: message.to_string(), field: String::new() }],
            ..Details::default()
        })
    }

    /// 404: the named object does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let text = format!("{} \"{name}\" not found", qualified(resource, group));
        Self::new(StatusCode::NOT_FOUND, StatusReason::NotFound, text).detailed(about(group, resource, name))
    }

    /// 404: nothing is served at this path. Clients get the text alone, no Status.
    pub fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, StatusReason::NotFound, "404 page not found")
    }

    /// 404: the server knows the group, but has nothing at this path.
    pub fn unknown_resource() -> Self {
        let text = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, StatusReason::NotFound, text).detailed(Details::default())
    }

    /// 409: a create met an existing object.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let text = format!("{} \"{name}\" already exists", qualified(resource, group));
        Self::new(StatusCode::CONFLICT, StatusReason::AlreadyExists, text).detailed(about(group, resource, name))
    }

    /// 409: the object changed, or a precondition failed.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let text = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(resource, group));
        Self::new(StatusCode::CONFLICT, StatusReason::Conflict, text).detailed(about(group, resource, name))
    }

    /// 409 with the usual text of a lost update.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 403: the request is understood and refused.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let text = if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(resource, group))
        } else {
            format!("{} \"{name}\" is forbidden: {why}", qualified(resource, group))
        };
        Self::new(StatusCode::FORBIDDEN, StatusReason::Forbidden, text).detailed(about(group, resource, name))
    }

    /// 401: no known credentials.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, StatusReason::Unauthorized, "Unauthorized")
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            StatusReason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .detailed(Details::default())
    }

    /// 405: the custom resource does not support this verb.
    pub fn verb_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let text = format!("{verb} is not supported on resources of kind \"{}\"", qualified(resource, group));
        Self::new(StatusCode::METHOD_NOT_ALLOWED, StatusReason::MethodNotAllowed, text)
            .detailed(about(group, resource, ""))
    }

    /// 406: no media type of the request's Accept can be made.
    pub fn not_acceptable(offered: &str) -> Self {
        let text = format!("only the following media types are accepted: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, StatusReason::NotAcceptable, text)
    }

    /// 406: the router has no route to any of the media types of the request's Accept.
    pub fn not_routed(offered: &str) -> Self {
        let text = format!("406: Not Acceptable\n\nAvailable representations: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, StatusReason::NotAcceptable, text).with_details()
    }

    /// 415: the body's media type is not understood.
    pub fn unsupported_media_type(_given: &str, accepted: &str) -> Self {
        let text =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, StatusReason::UnsupportedMediaType, text)
    }

    /// 413: the body is over the limit in bytes.
    pub fn too_large(limit: usize) -> Self {
        let text = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, StatusReason::RequestEntityTooLarge, text)
    }

    /// 413: a limit other than that of the body's bytes.
    pub fn too_large_because(why: &str) -> Self {
        let text = format!("Request entity too large: {why}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, StatusReason::RequestEntityTooLarge, text)
    }

    /// 410: the requested history was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, StatusReason::Expired, message)
    }

    /// 410: a list's revision was compacted; `next` continues with the newest one.
    pub fn expired_list(next: String) -> Self {
        let text = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                    list without the continue parameter, or use the continue token in this response to retrieve the \
                    remainder of the results. Continuing with the provided token results in an inconsistent list - \
                    objects that were created, modified, or deleted between the time the first chunk was returned and \
                    now may show up in the list.";
        Self::expired(text).detailed(Details { next, ..Details::default() })
    }

    /// 504: the client requests a revision that does not exist yet.
    pub fn future_version(asked: u64, current: u64) -> Self {
        let text = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, StatusReason::Timeout, text).detailed(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }],
            retry_after: 1,
            ..Details::default()
        })
    }

    /// 422: the object breaks its schema or rules.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // Each text once, as Kubernetes' aggregates do.
        let mut seen = std::collections::HashSet::with_capacity(errors.len());
        let texts = errors.iter().map(FieldError::to_string);
        let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
        let mut joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        if joined.len() > 65_536 {
            joined.truncate(joined.floor_char_boundary(65_536));
            joined.push('…');
        }
        let text = format!("{} {} is invalid: {joined}", qualified(kind, group), gotext::quote(name));
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, StatusReason::Invalid, text).detailed(Details {
            causes: errors
                .iter()
                .map(|e| Cause { reason: e.kind.reason(), message: e.body(), field: e.path().to_owned() })
                .collect(),
            ..about(group, kind, name)
        })
    }

    /// Sets details, even if they are empty.
    pub fn with_details(mut self) -> Self {
        self.details.get_or_insert_with(Box::default);
        self
    }

    /// Adds a cause.
    pub fn with_cause(mut self, reason: &'static str, field: &str, message: impl Into<String>) -> Self {
        let details = self.details.get_or_insert_with(Box::default);
        details.causes.push(Cause { reason, message: message.into(), field: field.to_owned() });
        self
    }

    /// The Status object.
    pub fn to_status(&self) -> Value {
        let mut status = Map::new();
        status.insert("kind".into(), json!("Status"));
        status.insert("apiVersion".into(), json!("v1"));
        let next = self.details.as_ref().map(|d| d.next.as_str()).filter(|next| !next.is_empty());
        status.insert("metadata".into(), next.map_or_else(|| json!({}), |next| json!({"continue": next})));
        if let Some(given) = &self.given {
            status.extend(given.iter().filter(|(k, _)| !matches!(k.as_str(), "kind" | "apiVersion")).map(cloned));
            return Value::Object(status);
        }
        status.insert("status".into(), json!("Failure"));
        status.insert("message".into(), json!(self.message));
        if self.reason != StatusReason::Unknown {
            status.insert("reason".into(), json!(self.reason.as_str()));
        }
        if let Some(details) = self.details.as_ref().filter(|_| next.is_none()) {
            status.insert("details".into(), details.to_json());
        }
        status.insert("code".into(), json!(self.code));
        Value::Object(status)
    }
}

impl Details {
    /// `metav1.StatusDetails`; empty fields are left out.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !value.is_empty() {
                out.insert(key.into(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|c| {
                let mut cause = Map::new();
                if !c.reason.is_empty() {
                    cause.insert("reason".into(), json!(c.reason));
                }
                cause.insert("message".into(), json!(c.message));
                if !c.field.is_empty() {
                    cause.insert("field".into(), json!(c.field));
                }
                Value::Object(cause)
            });
            out.insert("causes".into(), causes.collect());
        }
        if self.retry_after > 0 {
            out.insert("retryAfterSeconds".into(), json!(self.retry_after));
        }
        Value::Object(out)
    }
}

fn cloned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn about(group: &str, kind: &str, name: &str) -> Details {
    Details { name: name.to_owned(), group: group.to_owned(), kind: kind.to_owned(), ..Details::default() }
}

/// `resource.group`, or the resource alone for the core group.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lists_all_causes() {
        let errors = [
            FieldError::required("spec.size", ""),
            FieldError::invalid("spec.name", &json!("x"), "spec.name in body should match '^a'"),
        ];
        let status = ApiError::invalid("example.com", "Widget", "w", &errors).to_status();
        assert_eq!(
            status["message"],
            "Widget.example.com \"w\" is invalid: [spec.size: Required value, spec.name: Invalid value: \"x\": \
             spec.name in body should match '^a']"
        );
        assert_eq!(status["code"], 422);
        assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueRequired");
        assert_eq!(status["details"]["causes"][1]["field"], "spec.name");
    }

    #[test]
    fn not_found_names_resource_and_group() {
        let status = ApiError::not_found("metal3.io", "baremetalhosts", "a").to_status();
        assert_eq!(status["message"], "baremetalhosts.metal3.io \"a\" not found");
        assert_eq!(status["details"], json!({"name": "a", "group": "metal3.io", "kind": "baremetalhosts"}));
    }
}
