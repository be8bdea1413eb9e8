//! Responses: objects in the negotiated form, errors as Status, streams.

use std::io::Write as _;

use bytes::Bytes;
use core_kinds::protobuf;
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::media::{Accept, Encoding, Shape};
use crate::object;
use crate::request::Request;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::Stored;
use crate::{pretty, table};

/// A response that could not be completed. The connection is closed, so that clients notice.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off: {0}")]
pub struct Broken(pub String);

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, Broken>;
/// A response.
pub type Response = http::Response<Body>;

/// Responses larger than this are compressed for clients that accept it, in bytes.
const COMPRESS_FROM: usize = 128 << 10;
/// Limit of all warnings of a response in bytes, as in kube-apiserver.
const WARNING_BYTES: usize = 4096;

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response of any media type.
pub fn plain(code: StatusCode, media: &'static str, bytes: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// A response without a body.
pub fn empty(code: StatusCode) -> Response {
    let mut response = http::Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    response
}

/// A response in a negotiated encoding.
fn negotiated(code: StatusCode, encoding: Encoding, bytes: impl Into<Bytes>) -> Response {
    let mut response = plain(code, encoding.media(), bytes);
    if encoding == Encoding::Json {
        response.extensions_mut().insert(pretty::Plain);
    }
    response
}

/// A JSON value with a newline, as Go's encoder writes it.
pub fn json_value(code: StatusCode, value: &Value) -> Response {
    plain(code, "application/json", gotext::encoded(value) + "\n")
}

/// A value in an encoding; 406 if the encoding cannot represent it.
pub fn form(code: StatusCode, value: &Value, encoding: Encoding) -> ApiResult<Response> {
    Ok(negotiated(code, encoding, in_form(value, encoding)?))
}

/// An error as Status, in an encoding that the client can read.
pub fn error(error: &ApiError, encoding: Encoding) -> Response {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if *error == ApiError::unknown_path() {
        let mut response = plain(code, "text/plain; charset=utf-8", format!("{}\n", error.message));
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        return response;
    }
    let status = error.to_status();
    let mut response = match in_form(&status, encoding) {
        Ok(bytes) => negotiated(code, encoding, bytes),
        Err(_) => json_value(code, &status),
    };
    let seconds = error.details.as_ref().map_or(0, |d| d.retry_after);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == 401 {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A stored object in the negotiated form.
pub fn stored(request: &Request, code: StatusCode, stored: &Stored) -> ApiResult<Response> {
    let resource = request.resource();
    let damaged = |e: serde_json::Error| ApiError::internal(format!("a stored object is damaged: {e}"));
    match &request.accept.shape {
        Shape::Plain => {
            let encoded = if stored.rev == 0 {
                // A new object in a dry run has no resourceVersion.
                let mut object = resource.load(0, &stored.tail).map_err(damaged)?;
                object::metadata_mut(&mut object).shift_remove("resourceVersion");
                serde_json::to_vec(&object).map_err(damaged)?
            } else {
                resource.encode(stored.rev, &stored.tail).map_err(damaged)?
            };
            bytes(request, code, encoded)
        }
        Shape::Partial => bytes(request, code, resource.encode_partial(stored.rev, &stored.tail).map_err(damaged)?),
        Shape::Table(version) => {
            let object = resource.load(stored.rev, &stored.tail).map_err(damaged)?;
            let row = table::row(resource, object, table::included(request.query.get("includeObject"))?, version);
            let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": {"resourceVersion": stored.rev.to_string()},
                "columnDefinitions": table::columns(resource), "rows": [row]});
            whole(request, code, &table)
        }
    }
}

/// A value that has no other shapes, such as a Status.
pub fn value(request: &Request, code: StatusCode, value: Value) -> ApiResult<Response> {
    whole(request, code, &value)
}

/// A value in the negotiated encoding.
pub fn whole(request: &Request, code: StatusCode, value: &Value) -> ApiResult<Response> {
    bytes(request, code, gotext::encode(value))
}

/// A value in an encoding.
fn in_form(value: &Value, encoding: Encoding) -> ApiResult<Vec<u8>> {
    match encoding {
        Encoding::Json => Ok((gotext::encoded(value) + "\n").into_bytes()),
        Encoding::Yaml => Ok(gojson::to_yaml(value).into_bytes()),
        Encoding::Protobuf => protobuf::encode(value).ok_or_else(|| {
            let text = "the object does not implement the protobuf marshalling interface and cannot be encoded to a \
                        protobuf message";
            ApiError::new(StatusCode::NOT_ACCEPTABLE, StatusReason::NotAcceptable, text)
        }),
    }
}

/// Encoded JSON, converted to the negotiated encoding.
pub fn bytes(request: &Request, code: StatusCode, mut encoded: Vec<u8>) -> ApiResult<Response> {
    let accept = &request.accept;
    let mut response = if accept.encoding == Encoding::Json && !accept.beta {
        encoded.push(b'\n');
        negotiated(code, accept.encoding, encoded)
    } else {
        let mut value: Value = serde_json::from_slice(&encoded).map_err(ApiError::internal)?;
        if accept.beta && value.get("apiVersion").is_some_and(|v| v == "meta.k8s.io/v1") {
            value["apiVersion"] = json!("meta.k8s.io/v1beta1");
        }
        negotiated(code, accept.encoding, in_form(&value, accept.encoding)?)
    };
    for warning in warnings(request) {
        response.headers_mut().append(header::WARNING, warning);
    }
    Ok(response)
}

/// Adds the request's warnings to a response.
pub fn warned(request: &Request, mut response: Response) -> Response {
    warn(&mut response, &request.warnings);
    response
}

/// Adds warnings to a response.
pub fn warn(response: &mut Response, texts: &[String]) {
    for warning in warning_values(texts) {
        response.headers_mut().append(header::WARNING, warning);
    }
}

fn warnings(request: &Request) -> impl Iterator<Item = HeaderValue> {
    warning_values(&request.warnings)
}

fn warning_values(texts: &[String]) -> impl Iterator<Item = HeaderValue> + use<> {
    let mut left = WARNING_BYTES;
    let mut seen: Vec<&String> = Vec::new();
    for warning in texts {
        if !seen.contains(&warning) && warning.len() < left {
            left -= warning.len();
            seen.push(warning);
        }
    }
    seen.into_iter()
        .filter_map(|w| {
            let text = w.replace(['\r', '\n'], " ").replace('\\', "\\\\").replace('"', "\\\"");
            HeaderValue::from_str(&format!("299 - \"{text}\"")).ok()
        })
        .collect::<Vec<_>>()
        .into_iter()
}

/// A watch frame: the event type, and the object as encoded JSON.
pub fn frame(accept: &Accept, kind: &str, object: &[u8]) -> Result<Bytes, serde_json::Error> {
    if accept.encoding == Encoding::Protobuf || accept.beta {
        let mut value: Value = serde_json::from_slice(object)?;
        if accept.beta && value.get("apiVersion").is_some_and(|v| v == "meta.k8s.io/v1") {
            value["apiVersion"] = json!("meta.k8s.io/v1beta1");
        }
        if accept.encoding == Encoding::Protobuf {
            return Ok(protobuf::frame(kind, &value).unwrap_or_default().into());
        }
        return frame(&Accept { beta: false, ..accept.clone() }, kind, &serde_json::to_vec(&value)?);
    }
    // Made at its size: it is kept for as long as a watcher may want it.
    Ok([&b"{\"type\":\""[..], kind.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into())
}

/// A stream of watch frames.
pub fn stream(request: &Request, frames: impl Stream<Item = Bytes> + Send + 'static) -> ApiResult<Response> {
    let body = StreamBody::new(frames.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync();
    let mut response = http::Response::new(body);
    let media = match request.accept.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    for warning in warnings(request) {
        response.headers_mut().append(header::WARNING, warning);
    }
    Ok(response)
}

/// Marks a large streamed response.
#[derive(Clone)]
struct Large;

/// A body that streams the received parts.
pub fn unending(parts: mpsc::Receiver<Result<Bytes, Broken>>) -> Body {
    let parts = futures::stream::unfold(parts, |mut parts| async move {
        let part = parts.recv().await?;
        Some((part.map(Frame::data), parts))
    });
    StreamBody::new(parts).boxed_unsync()
}

/// A streamed JSON response.
pub fn parts(request: &Request, parts: mpsc::Receiver<Result<Bytes, Broken>>) -> Response {
    let mut response = http::Response::new(unending(parts));
    response.extensions_mut().insert(Large);
    response.extensions_mut().insert(pretty::Plain);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for warning in warnings(request) {
        response.headers_mut().append(header::WARNING, warning);
    }
    response
}

fn mark_compressed(headers: &mut http::HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Compresses a streamed body.
fn compress_parts(body: Body) -> Body {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let packed = futures::stream::unfold(Some((body, encoder)), |state| async move {
        let (mut body, mut encoder) = state?;
        let broken = |e: std::io::Error| Broken(e.to_string());
        loop {
            let part = match body.frame().await {
                None => return Some((encoder.finish().map(|rest| Frame::data(rest.into())).map_err(broken), None)),
                Some(Err(error)) => return Some((Err(error), None)),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if let Err(error) = encoder.write_all(&part) {
                return Some((Err(broken(error)), None));
            }
            if encoder.get_ref().len() >= 16 << 10 {
                let ready = std::mem::take(encoder.get_mut());
                return Some((Ok(Frame::data(ready.into())), Some((body, encoder))));
            }
        }
    });
    StreamBody::new(packed).boxed_unsync()
}

/// Compresses a large response if the client accepts gzip.
pub async fn compress(response: Response, accept_encoding: &str) -> Response {
    use hyper::body::Body as _;
    if !accept_encoding.split(',').any(|coding| coding.trim() == "gzip") {
        return response;
    }
    let size = response.body().size_hint().exact().unwrap_or(0);
    if size <= COMPRESS_FROM as u64 && response.extensions().get::<Large>().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    if parts.extensions.get::<Large>().is_some() {
        mark_compressed(&mut parts.headers);
        return http::Response::from_parts(parts, compress_parts(body));
    }
    let bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(broken) => return error(&ApiError::internal(broken), Encoding::Json),
    };
    let kept = bytes.clone();
    let packed = tokio::task::spawn_blocking(move || {
        let mut encoder =
            flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
        encoder.write_all(&bytes).and_then(|()| encoder.finish()).ok()
    });
    let body = match packed.await {
        Ok(Some(packed)) => {
            mark_compressed(&mut parts.headers);
            Bytes::from(packed)
        }
        _ => kept,
    };
    http::Response::from_parts(parts, full(body))
}
