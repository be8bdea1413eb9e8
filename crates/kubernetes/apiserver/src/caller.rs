//! Requests from within the process: a client whose connection is a function call.
//!
//! A request takes the same path as one from the network, from [`crate::server::handle`] on: it is authenticated,
//! authorized, admitted, stored and audited alike. What falls away is the connection: sockets, TLS, and the buffers
//! that both of its ends have, which are more than the requests themselves for a client with a thousand calls at
//! once.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use crate::delivery::Deliveries;
use crate::pki::ClientCertificate;
use crate::reply::{Body, Broken};
use crate::server::{self, App, Peer};
use crate::user::User;

/// The identity of a caller.
#[derive(Debug, Clone)]
pub struct Identity(ClientCertificate);

impl Identity {
    /// The administrator, who may do everything.
    pub fn administrator() -> Self {
        Self(ClientCertificate::User(User::administrator()))
    }

    /// An authenticated user.
    pub fn user(name: &str, groups: &[&str]) -> Self {
        Self(ClientCertificate::User(User::authenticated(name, groups)))
    }

    /// The user of each request's bearer token; without one, anonymous.
    pub fn by_token() -> Self {
        Self(ClientCertificate::Nothing)
    }
}

/// The server has ended: as if the connection were refused, or closed before the response.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the server in process has ended")]
pub struct Gone;

/// The connection of one client. Clones are the same client.
#[derive(Clone)]
pub struct Caller {
    app: Arc<App>,
    peer: Arc<Peer>,
    cut: CancellationToken,
    calls: TaskTracker,
    /// Requests under way at once; `None` for any number.
    places: Option<Arc<Semaphore>>,
}

impl Caller {
    /// A client of this server. `cut` breaks off its calls and watches; `calls` waits for calls under way.
    pub fn new(app: &Arc<App>, identity: Identity, cut: CancellationToken, calls: TaskTracker) -> Self {
        let peer = Arc::new(Peer::of(identity.0, Arc::new(Deliveries::default())));
        Self { app: Arc::clone(app), peer, cut, calls, places: None }
    }

    /// Names this address as the client's, in the audit log.
    pub fn at_address(self, address: IpAddr) -> Self {
        let peer = Arc::new(self.peer.at_address(address));
        Self { peer, ..self }
    }

    /// Has at most `most` requests under way at once, so that their memory is bounded; others wait in order. A watch
    /// is under way until it begins.
    pub fn at_most(self, most: usize) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(most))), ..self }
    }
}

impl<B> tower::Service<http::Request<B>> for Caller
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = http::Response<Body>;
    type Error = Gone;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Gone>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Self { app, peer, cut, calls, places } = self.clone();
        Box::pin(async move {
            let _place = match &places {
                // It is never closed.
                Some(places) => Some(places.acquire().await.map_err(|_| Gone)?),
                None => None,
            };
            let _call = calls.token();
            if app.backend.stop.is_cancelled() {
                return Err(Gone);
            }
            // Boxed, so that a request that waits for its place takes no more than itself.
            let answering = Box::pin(server::handle(&app, &peer, request.map(server::unread)));
            let answer = tokio::select! {
                biased;
                () = cut.cancelled() => return Err(Gone),
                answer = answering => answer,
            };
            Ok(answer.map(|inner| Cut { inner, killed: Box::pin(cut.cancelled_owned()) }.boxed_unsync()))
        })
    }
}

/// A body that is cut off when its server is killed.
struct Cut {
    inner: Body,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl hyper::body::Body for Cut {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.killed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(Broken("the server was killed".to_owned()))));
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
