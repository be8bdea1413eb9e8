//! Workers that do what a test says, right or wrong, and the host that asks them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use provisioner::{HostContext, HostFacts, HostKey, Provisioner};
use provisioner_external::v1::ask_response::Message;
use provisioner_external::v1::provisioner_service_server::{ProvisionerService, ProvisionerServiceServer};
use provisioner_external::{InMemory, v1};
use provisioner_kit::{MemoryHistory, MemoryMachine, MemoryRecord, paused_clock};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status, Streaming};

/// What is said on a call's stream, and how it ends.
pub type Out = mpsc::Sender<Result<v1::AskResponse, Status>>;
type Line = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What a worker says when it is asked what it can do with one host.
#[derive(Clone)]
pub enum Describes {
    /// That it does not know this question.
    Nothing,
    /// No word.
    Never,
    /// This.
    So(String),
}

type Script = Arc<dyn Fn(v1::Call, Streaming<v1::AskRequest>, Out) -> Line + Send + Sync>;

/// A worker by script.
#[derive(Clone)]
pub struct Scripted {
    /// What it says of itself.
    pub hello: v1::HelloResponse,
    /// What it does with a call.
    pub script: Script,
    /// What it wakes, when it is subscribed to; then the stream ends.
    pub wakes: Vec<v1::SubscribeResponse>,
    /// While it is set, nothing is answered.
    pub hangs: Arc<AtomicBool>,
    /// From now on it says that it makes RAID volumes.
    pub makes_raid: Arc<AtomicBool>,
    /// What it says of one host.
    pub describes: Arc<Mutex<Describes>>,
    /// How often it was asked that.
    pub described: Arc<AtomicUsize>,
    /// While it is set, no subscription is taken.
    pub deaf: Arc<AtomicBool>,
    /// Of which hosts it was told that they are gone.
    pub forgotten: Arc<Mutex<Vec<String>>>,
    /// It says nothing at all, not even that it has a call, before it hears that its server does not lead.
    pub hears_first: Option<Arc<Notify>>,
}

impl Scripted {
    /// The worker `acme`, which does so with each call.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(v1::Call, Streaming<v1::AskRequest>, Out) -> F + Send + Sync + 'static,
    ) -> Self {
        let hello = v1::HelloResponse {
            lowest_version: 1,
            highest_version: 1,
            name: "acme".into(),
            id_prefix: "acme-".into(),
            capabilities: b"{\"health\": true}".into(),
            ..v1::HelloResponse::default()
        };
        let script: Script = Arc::new(move |call, incoming, out| Box::pin(script(call, incoming, out)));
        Self {
            hello,
            script,
            wakes: Vec::new(),
            hangs: Arc::default(),
            makes_raid: Arc::default(),
            describes: Arc::new(Mutex::new(Describes::Nothing)),
            described: Arc::default(),
            deaf: Arc::default(),
            forgotten: Arc::default(),
            hears_first: None,
        }
    }
}

/// Says this on a call's stream.
pub async fn say(out: &Out, message: Message) -> bool {
    out.send(Ok(v1::AskResponse { message: Some(message) })).await.is_ok()
}

/// Ends the call: done, with this answer and its value.
pub fn done(answer: &str, value: &str) -> Message {
    let done = v1::Done { answer: answer.into(), value: value.into() };
    Message::Verdict(v1::Verdict { verdict: Some(v1::verdict::Verdict::Done(done)) })
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ProvisionerService for Scripted {
    type AskStream = Answers<v1::AskResponse>;
    type SubscribeStream = Answers<v1::SubscribeResponse>;

    async fn hello(&self, _: Request<v1::HelloRequest>) -> Result<Response<v1::HelloResponse>, Status> {
        let mut hello = self.hello.clone();
        if self.makes_raid.load(Ordering::SeqCst) {
            hello.capabilities = b"{\"health\": true, \"hardwareRaid\": true}".into();
        }
        Ok(Response::new(hello))
    }

    async fn describe(&self, _: Request<v1::DescribeRequest>) -> Result<Response<v1::DescribeResponse>, Status> {
        self.described.fetch_add(1, Ordering::SeqCst);
        let describes = self.describes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match describes {
            Describes::Nothing => Err(Status::unimplemented("all hosts have the same")),
            Describes::Never => std::future::pending().await,
            Describes::So(said) => Ok(Response::new(v1::DescribeResponse { capabilities: said.into() })),
        }
    }

    async fn ask(&self, request: Request<Streaming<v1::AskRequest>>) -> Result<Response<Self::AskStream>, Status> {
        let mut incoming = request.into_inner();
        let first = incoming.message().await?.and_then(|first| first.message);
        let Some(v1::ask_request::Message::Call(call)) = first else { return Err(Status::invalid_argument("no call")) };
        if let Some(heard) = &self.hears_first {
            while let Some(said) = incoming.message().await? {
                if let Some(v1::ask_request::Message::Leadership(v1::Leadership { leads: false })) = said.message {
                    heard.notify_one();
                }
            }
        }
        let (out, outgoing) = mpsc::channel(16);
        tokio::spawn((self.script)(call, incoming, out));
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }

    async fn subscribe(&self, _: Request<v1::SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        if self.deaf.load(Ordering::SeqCst) {
            return Err(Status::unavailable("not yet"));
        }
        let all: Vec<Result<v1::SubscribeResponse, Status>> = self.wakes.iter().cloned().map(Ok).collect();
        Ok(Response::new(Box::pin(futures::stream::iter(all))))
    }

    async fn expect(&self, _: Request<v1::ExpectRequest>) -> Result<Response<v1::ExpectResponse>, Status> {
        Ok(Response::new(v1::ExpectResponse {}))
    }

    async fn forget(&self, request: Request<v1::ForgetRequest>) -> Result<Response<v1::ForgetResponse>, Status> {
        let host = request.into_inner().host.unwrap_or_default();
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).push(host.name);
        Ok(Response::new(v1::ForgetResponse {}))
    }

    async fn close(&self, _: Request<v1::CloseRequest>) -> Result<Response<v1::CloseResponse>, Status> {
        Ok(Response::new(v1::CloseResponse {}))
    }
}

#[derive(Clone)]
struct Served(Scripted);

impl hyper::service::Service<http::Request<Incoming>> for Served {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        if self.0.hangs.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        let server = ProvisionerServiceServer::new(self.0.clone());
        server.max_encoding_message_size(64 << 20).call(request)
    }
}

/// Serves it; dropping `JoinSet`s of connections is how a process dies: see [`Process`].
pub struct Process {
    /// How it is reached.
    pub connect: InMemory,
    /// How often it was connected to.
    pub connections: Arc<AtomicUsize>,
    dies: mpsc::Sender<()>,
}

impl Process {
    /// Starts it.
    pub fn start(worker: Scripted) -> Self {
        let (sender, mut incoming) = mpsc::channel::<DuplexStream>(4);
        let (dies, mut dying) = mpsc::channel::<()>(1);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                tokio::select! {
                    Some(()) = dying.recv() => open.shutdown().await,
                    stream = incoming.recv() => {
                        let Some(stream) = stream else { return };
                        counted.fetch_add(1, Ordering::SeqCst);
                        let builder = http2::Builder::new(TokioExecutor::new());
                        let connection = builder.serve_connection(TokioIo::new(stream), Served(worker.clone()));
                        open.spawn(async move { drop(connection.await) });
                    }
                }
            }
        });
        Self { connect: InMemory(sender), connections, dies }
    }

    /// All its connections break; it is started again at once.
    pub async fn dies(&self) {
        self.dies.send(()).await.unwrap();
    }
}

/// The record, history and machine of a host, and what is known of it.
pub struct Declared {
    pub record: Arc<MemoryRecord>,
    pub history: Arc<MemoryHistory>,
    name: &'static str,
}

impl Declared {
    pub fn new(name: &'static str) -> Self {
        Self { record: Arc::default(), history: Arc::default(), name }
    }

    pub fn key(&self) -> HostKey {
        HostKey { namespace: "ns".into(), name: self.name.into(), uid: format!("uid-of-{}", self.name) }
    }

    pub fn context(&self) -> HostContext {
        let facts = HostFacts { key: self.key(), address: "redfish://192.0.2.7".into(), ..HostFacts::default() };
        HostContext {
            facts: Arc::new(facts),
            bmc: None,
            record: Arc::clone(&self.record) as Arc<_>,
            history: Arc::clone(&self.history) as Arc<_>,
            machine: Arc::new(MemoryMachine::default()),
            now: paused_clock(),
            may_act: Arc::new(|| true),
        }
    }

    pub async fn ask(
        &self,
        provisioner: &dyn Provisioner,
        call: provisioner::Call,
    ) -> provisioner::Outcome<provisioner::Answer> {
        self.ask_so(provisioner, call, |_| {}).await
    }

    /// Asks, and more is known of the host.
    pub async fn ask_so(
        &self,
        provisioner: &dyn Provisioner,
        call: provisioner::Call,
        edit: impl FnOnce(&mut HostFacts),
    ) -> provisioner::Outcome<provisioner::Answer> {
        let mut context = self.context();
        edit(Arc::make_mut(&mut context.facts));
        let mut host = provisioner.host(context)?;
        provisioner::ask(host.as_mut(), call).await
    }
}
