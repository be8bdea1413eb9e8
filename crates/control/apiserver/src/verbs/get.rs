//! get: one object.

use super::{Backend, Request};
use crate::reply::{self, Response};
use crate::status::ApiResult;

/// Answers with the named object.
pub async fn get(backend: &Backend, request: &Request) -> ApiResult<Response> {
    let stored = backend.stored(&request.key()).await?.ok_or_else(|| request.not_found())?;
    let stored = backend.converted(request.resource(), stored).await?;
    reply::stored(request, http::StatusCode::OK, &stored)
}
