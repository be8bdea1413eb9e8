//! create: a new object.

use http::StatusCode;

use super::{Backend, body, prepare, reviews, token_request};
use crate::fields::options::Options;
use crate::reply::{self, Response};
use crate::request::Request;
use crate::status::ApiResult;

/// Creates the object of the body.
pub async fn create(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Create.validate(&request.query)?;
    if request.resource().is_review() {
        return reviews::create(backend, request).await;
    }
    if request.target.sub == "token" {
        return token_request::create(backend, request).await;
    }
    let change = request.change()?;
    let resource = request.resource().clone();
    let mut object = body::object(request, &resource)?;
    let ns = request.target.ns.clone();
    prepare::fit_namespace(&resource, &mut object, &ns)?;
    prepare::unversioned(&object)?;
    let stored = backend.insert(&change, &resource, object, &ns).await;
    request.warnings.append(&mut change.take_warnings());
    reply::stored(request, StatusCode::CREATED, &stored?)
}
