//! Media types: what a client accepts, and what its body is in.

use bytes::Bytes;
use http::{HeaderMap, header};

use serde_json::Value;

use crate::builtin::protobuf;
use crate::json::{self, Parsed};
use crate::status::{ApiError, ApiResult};

/// Bytes of a request's body.
pub const MAX_BODY: usize = 3 << 20;

/// Kubernetes' protobuf, for core kinds in requests only.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Form of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// The object itself.
    Plain,
    /// `meta.k8s.io` Table of this version.
    Table(String),
    /// PartialObjectMetadata or its list.
    Partial,
}

/// What the client accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Form of the answer.
    pub shape: Shape,
    /// YAML instead of JSON.
    pub yaml: bool,
}

/// One part of an Accept header.
pub struct Range<'a> {
    /// Media type without parameters.
    pub media: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Range<'a> {
    /// A parameter, empty if absent.
    pub fn param(&self, key: &str) -> &'a str {
        self.params.iter().find(|(k, _)| *k == key).map_or("", |(_, v)| v)
    }
}

/// The parts of an Accept header, in order.
pub fn ranges(accept: &str) -> Vec<Range<'_>> {
    accept.split(',').take(32).filter_map(range).collect()
}

fn range(part: &str) -> Option<Range<'_>> {
    let mut pieces = part.split(';').map(str::trim);
    let media = pieces.next().filter(|m| !m.is_empty())?;
    let params = pieces.filter_map(|p| p.split_once('=')).map(|(k, v)| (k, v.trim_matches('"'))).collect();
    Some(Range { media, params })
}

/// The Accept header as text.
pub fn accept_header(headers: &HeaderMap) -> String {
    let all: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect();
    all.join(",")
}

/// Picks the first form that can be made.
pub fn negotiate(accept: &str) -> ApiResult<Accept> {
    if accept.trim().is_empty() {
        return Ok(Accept { shape: Shape::Plain, yaml: false });
    }
    for range in ranges(accept) {
        let yaml = match range.media {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" => true,
            _ => continue,
        };
        let shape = match (range.param("as"), range.param("g"), range.param("v")) {
            ("", _, _) => Shape::Plain,
            ("Table", "meta.k8s.io", version @ ("v1" | "v1beta1")) => Shape::Table(version.to_owned()),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Shape::Partial,
            _ => continue,
        };
        return Ok(Accept { shape, yaml });
    }
    Err(ApiError::not_acceptable("application/json, application/yaml"))
}

/// The media type of the body, without parameters; JSON if none is given.
pub fn content_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.is_empty() { "application/json".to_owned() } else { media }
}

/// Reads a body that is an object, in JSON, YAML or (core kinds and options) protobuf.
pub fn decode(content_type: &str, body: &Bytes) -> ApiResult<Parsed> {
    let parsed = match content_type {
        "application/json" => json::from_json(body),
        "application/yaml" => json::from_yaml(body),
        PROTOBUF => {
            return protobuf::decode(body).map(|o| (Value::Object(o), Vec::new())).map_err(ApiError::bad_request);
        }
        other => {
            return Err(ApiError::unsupported_media_type(other, "application/json, application/yaml"));
        }
    };
    parsed.map_err(|e| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_a_table_and_protobuf_falls_back_to_json() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(kubectl).unwrap().shape, Shape::Table("v1".into()));
        let both = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(both).unwrap().shape, Shape::Plain);
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
        assert!(negotiate("application/yaml").unwrap().yaml);
        assert_eq!(
            negotiate("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").unwrap().shape,
            Shape::Partial
        );
    }
}
