//! The services of a worker.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use http::{Request, Response};
use hyper::body::Incoming;
use provisioner::{HostResource, Provides};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::server::NamedService;
use tonic::{Status, Streaming};

use super::{About, Troubles, call};
use crate::carried::{Carried, kind_of};
use crate::convert;
use crate::exchange::Exchange;
use crate::limits::MAX_MESSAGE;
use crate::versions::Versions;
use crate::wire::v1;
use crate::wire::v1::ask_request::Message as ToWorker;
use crate::wire::v1::ask_response::Message as FromWorker;
use crate::wire::v1::provisioner_service_server::{ProvisionerService, ProvisionerServiceServer};
use crate::wire::v1::trouble_service_server::{TroubleService, TroubleServiceServer};

struct Inner<R: Carried> {
    provisioner: Arc<R::Provisioner>,
    about: About<R>,
    troubles: Option<Arc<dyn Troubles>>,
    drains: Arc<AtomicBool>,
}

/// A worker: what each connection to it is served by.
#[derive(Clone)]
pub struct Worker<R: Carried = HostResource>(Arc<Inner<R>>);

impl<R: Carried> Worker<R> {
    pub(super) fn new(provisioner: Arc<R::Provisioner>, about: About<R>, troubles: Option<Arc<dyn Troubles>>) -> Self {
        Self(Arc::new(Inner { provisioner, about, troubles, drains: Arc::default() }))
    }

    /// From now on its health says that it takes no new calls, or takes them again. Those under way are answered.
    pub fn drain(&self, drains: bool) {
        self.0.drains.store(drains, Ordering::Relaxed);
    }
}

/// A stream of answers, with the work that makes them: it ends when nobody reads them any more.
pub struct Answers<T> {
    stream: ReceiverStream<Result<T, Status>>,
    work: AbortHandle,
    exchange: Weak<Exchange>,
}

impl<T> Drop for Answers<T> {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.upgrade() {
            exchange.end();
        }
        self.work.abort();
    }
}

impl<T> Stream for Answers<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.stream).poll_next(cx)
    }
}

fn wrong(error: convert::Unreadable) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Hears the server and has the provisioner answer, until one of them has ended.
async fn converse<R: Carried>(
    provisioner: Arc<R::Provisioner>,
    first: v1::Call,
    mut incoming: Streaming<v1::AskRequest>,
    exchange: Arc<Exchange>,
) {
    let hears = async {
        while let Ok(Some(message)) = incoming.message().await {
            if let Some(message) = message.message {
                exchange.heed(message);
            }
        }
        exchange.end();
    };
    let answers = async {
        let outcome = call::answer::<R>(provisioner.as_ref(), first, &exchange).await;
        exchange.say(FromWorker::Verdict(convert::verdict(&outcome))).await;
    };
    tokio::select! {
        () = answers => {}
        () = hears => {}
    }
}

#[tonic::async_trait]
impl<R: Carried> ProvisionerService for Worker<R> {
    async fn hello(
        &self,
        request: tonic::Request<v1::HelloRequest>,
    ) -> Result<tonic::Response<v1::HelloResponse>, Status> {
        let request = request.into_inner();
        if kind_of(&request.kind) != R::KIND {
            let sought = terms::clean(kind_of(&request.kind), 64);
            return Err(Status::failed_precondition(format!("it provisions {}s, and not {sought}s", R::KIND)));
        }
        let (about, ours) = (self.0.about.clone(), Versions::ours(R::VERSION));
        Ok(tonic::Response::new(v1::HelloResponse {
            lowest_version: ours.lowest,
            highest_version: ours.highest,
            name: about.name,
            program_version: about.program,
            id_prefix: about.id_prefix,
            capabilities: convert::document(&about.capabilities),
            schemes: about.schemes,
            check_address: about.check_address.unwrap_or_default(),
            kind: R::KIND.to_owned(),
        }))
    }

    async fn describe(
        &self,
        request: tonic::Request<v1::DescribeRequest>,
    ) -> Result<tonic::Response<v1::DescribeResponse>, Status> {
        let facts: R::Facts = convert::read("what is known of it", &request.into_inner().facts).map_err(wrong)?;
        let capabilities = convert::document(&self.0.provisioner.capabilities(&facts));
        Ok(tonic::Response::new(v1::DescribeResponse { capabilities }))
    }

    type AskStream = Answers<v1::AskResponse>;

    async fn ask(
        &self,
        request: tonic::Request<Streaming<v1::AskRequest>>,
    ) -> Result<tonic::Response<Self::AskStream>, Status> {
        let mut incoming = request.into_inner();
        let Some(v1::AskRequest { message: Some(ToWorker::Call(first)) }) = incoming.message().await? else {
            return Err(Status::invalid_argument("a stream of Ask begins with a call"));
        };
        let (out, outgoing) = mpsc::channel(64);
        let exchange = Arc::new(Exchange::new(out, first.leads));
        let work = tokio::spawn(converse::<R>(Arc::clone(&self.0.provisioner), first, incoming, Arc::clone(&exchange)));
        // Weakly: the stream ends when the work has, which has the sender.
        let exchange = Arc::downgrade(&exchange);
        Ok(tonic::Response::new(Answers { stream: ReceiverStream::new(outgoing), work: work.abort_handle(), exchange }))
    }

    type SubscribeStream = Answers<v1::SubscribeResponse>;

    async fn subscribe(
        &self,
        _: tonic::Request<v1::SubscribeRequest>,
    ) -> Result<tonic::Response<Self::SubscribeStream>, Status> {
        let mut wake_ups = self.0.provisioner.subscribe();
        let provisioner = Arc::clone(&self.0.provisioner);
        let (out, outgoing) = mpsc::channel(64);
        let work = tokio::spawn(async move {
            while let Some(woken) = wake_ups.recv().await {
                let news = provisioner.has_news(&woken.key);
                if news {
                    provisioner.acknowledge_news(&woken.key);
                }
                let response = v1::SubscribeResponse { host: Some(convert::key(&woken.key)), news };
                if out.send(Ok(response)).await.is_err() {
                    return;
                }
            }
        });
        Ok(tonic::Response::new(Answers {
            stream: ReceiverStream::new(outgoing),
            work: work.abort_handle(),
            exchange: Weak::new(),
        }))
    }

    async fn expect(
        &self,
        request: tonic::Request<v1::ExpectRequest>,
    ) -> Result<tonic::Response<v1::ExpectResponse>, Status> {
        let request = request.into_inner();
        let recorded = convert::recorded_read(request.recorded.unwrap_or_default()).map_err(wrong)?;
        self.0.provisioner.expect(&request.host.map(convert::key_read).unwrap_or_default(), &recorded);
        Ok(tonic::Response::new(v1::ExpectResponse {}))
    }

    async fn forget(
        &self,
        request: tonic::Request<v1::ForgetRequest>,
    ) -> Result<tonic::Response<v1::ForgetResponse>, Status> {
        self.0.provisioner.forget(&request.into_inner().host.map(convert::key_read).unwrap_or_default());
        Ok(tonic::Response::new(v1::ForgetResponse {}))
    }

    async fn close(&self, _: tonic::Request<v1::CloseRequest>) -> Result<tonic::Response<v1::CloseResponse>, Status> {
        self.0.provisioner.close().await;
        Ok(tonic::Response::new(v1::CloseResponse {}))
    }
}

#[tonic::async_trait]
impl<R: Carried> TroubleService for Worker<R> {
    async fn set_condition(
        &self,
        request: tonic::Request<v1::SetConditionRequest>,
    ) -> Result<tonic::Response<v1::SetConditionResponse>, Status> {
        let request = request.into_inner();
        let set = match &self.0.troubles {
            Some(troubles) => troubles.set(&request.address, request.condition(), request.on).await,
            None => false,
        };
        if set {
            Ok(tonic::Response::new(v1::SetConditionResponse {}))
        } else {
            Err(Status::unimplemented("machines cannot be so"))
        }
    }
}

/// What is asked about the worker's health (grpc.health.v1).
struct Healthy(Arc<AtomicBool>);

#[tonic::async_trait]
impl tonic_health::pb::health_server::Health for Healthy {
    async fn check(
        &self,
        _: tonic::Request<tonic_health::pb::HealthCheckRequest>,
    ) -> Result<tonic::Response<tonic_health::pb::HealthCheckResponse>, Status> {
        use tonic_health::pb::health_check_response::ServingStatus;
        let status = if self.0.load(Ordering::Relaxed) { ServingStatus::NotServing } else { ServingStatus::Serving };
        Ok(tonic::Response::new(tonic_health::pb::HealthCheckResponse { status: status.into() }))
    }

    type WatchStream = ReceiverStream<Result<tonic_health::pb::HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        _: tonic::Request<tonic_health::pb::HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("ask by Check"))
    }
}

impl<R: Carried> hyper::service::Service<Request<Incoming>> for Worker<R> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    /// The path of a request names the service.
    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path().trim_start_matches('/');
        let service = path.split('/').next().unwrap_or_default();
        if service == <ProvisionerServiceServer<Self> as NamedService>::NAME {
            let server = ProvisionerServiceServer::new(self.clone());
            return server.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE).call(request);
        }
        if service == <TroubleServiceServer<Self> as NamedService>::NAME {
            return TroubleServiceServer::new(self.clone()).call(request);
        }
        if service == "grpc.health.v1.Health" {
            let health = Healthy(Arc::clone(&self.0.drains));
            return tonic_health::pb::health_server::HealthServer::new(health).call(request);
        }
        Box::pin(async { Ok(Status::unimplemented("there is no such service").into_http()) })
    }
}
