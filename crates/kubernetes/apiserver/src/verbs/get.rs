//! get: one object.

use http::StatusCode;

use super::Backend;
use super::options::{version, wait_for};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::status::{ApiError, ApiResult, StatusReason};

/// Answers with the named object, as of the asked revision or a later one.
pub async fn get(backend: &Backend, request: &Request) -> ApiResult<Response> {
    let asked = version(request.query.get("resourceVersion"))
        .map_err(|text| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text))?;
    wait_for(backend, asked).await?;
    let stored = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let stored = backend.converted(request.resource(), stored).await?;
    reply::stored(request, StatusCode::OK, &stored)
}
