//! OpenAPI: v2 (JSON and protobuf) and v3, built from the table of own kinds and from stored definitions.

use http::HeaderMap;

use crate::reply::Response;
use crate::status::{ApiError, ApiResult};
use crate::verbs::Backend;

/// Documents as built last.
#[derive(Default)]
pub struct Cache {}

impl Cache {
    /// Answers a path below `/openapi`.
    pub async fn answer(&self, _: &Backend, _: &[&str], _: &HeaderMap, _: &str) -> ApiResult<Response> {
        Err(ApiError::unknown_path())
    }
}
