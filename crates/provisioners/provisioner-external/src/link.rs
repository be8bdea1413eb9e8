//! The connection to one worker: made when it is needed, agreed on by `Hello`, and made anew after it broke, with a back-off.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use provisioner::{Cause, Failure, HostResource, Resource, Retry};
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tonic::body::Body;

use crate::carried::kind_of;
use crate::convert;
use crate::limits::{MAX_MESSAGE, MAX_TEXT, SHORT};
use crate::transport::Connect;
use crate::versions::Versions;
use crate::wire::v1;
use crate::wire::v1::provisioner_service_client::ProvisionerServiceClient;
use terms::clean;

/// The first pause after a connection that failed; it doubles up to [`MOST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(30);
/// So many connections in a row without a greeting, a minute of them, and the program counts as hanging: it may have been about to begin before.
const UNGREETED: u32 = 5;
/// How long a program may take no connection at all.
const MOST_UNHEARD: Duration = Duration::from_secs(300);
/// So many requests may be answered and not read, beside twice the calls that may be under way: as many may have ended just now.
const MOST_UNREAD: usize = 64;

/// The client of one connection.
pub type Client = ProvisionerServiceClient<Connection>;

/// Held while a worker is waited for. Where time is paused, it keeps it so: a worker in another process takes real time.
pub type Hold = Arc<dyn Fn() -> Box<dyn Send> + Send + Sync>;

/// What a worker has said of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<R: Resource = HostResource> {
    /// Version of the contract that both use.
    pub version: u32,
    /// Version of the program.
    pub program: String,
    /// What can be asked of one of which nothing else is known.
    pub capabilities: R::Capabilities,
    /// Schemes of addresses that it serves; all without any.
    pub schemes: Vec<String>,
    /// Address of machines to check it with, if it has some.
    pub check_address: Option<String>,
}

/// Counts the requests of one connection.
#[derive(Default)]
struct Requests {
    /// Those whose bodies are being sent.
    sending: AtomicUsize,
    /// Those that have no answer yet.
    waiting: AtomicUsize,
}

impl Requests {
    /// How many are answered, or not waited for any more, and not sent wholly: calls that are under way, and what nobody reads. Those that wait without
    /// being sent make it less, never more.
    fn unread(&self) -> usize {
        self.sending.load(Ordering::Relaxed).saturating_sub(self.waiting.load(Ordering::Relaxed))
    }
}

/// A request that has no answer yet.
struct Awaited(Arc<Requests>);

impl Awaited {
    fn new(requests: &Arc<Requests>) -> Self {
        requests.waiting.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(requests))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request, which is counted from when it is begun to be sent until nobody has it any more.
struct Counted {
    body: Body,
    requests: Arc<Requests>,
    is_begun: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.is_begun {
            self.requests.sending.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl hyper::body::Body for Counted {
    type Data = tonic::codegen::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.is_begun {
            self.is_begun = true;
            self.requests.sending.fetch_add(1, Ordering::Relaxed);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// One HTTP/2 connection, as a service of requests.
#[derive(Clone)]
pub struct Connection {
    sender: http2::SendRequest<Body>,
    requests: Arc<Requests>,
}

impl tonic::codegen::Service<http::Request<Body>> for Connection {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let awaited = Awaited::new(&self.requests);
        let requests = Arc::clone(&self.requests);
        let request = request.map(|body| Body::new(Counted { body, requests, is_begun: false }));
        let answer = self.sender.send_request(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(awaited);
            answer
        })
    }
}

/// The tasks that HTTP/2 makes for one connection: the one that moves its bytes, and those that send the bodies of requests and wait for answers. There
/// are none any more when it is given up.
#[derive(Clone)]
struct Tasks(Arc<std::sync::Mutex<Option<JoinSet<()>>>>);

impl Tasks {
    fn new() -> Self {
        Self(Arc::new(std::sync::Mutex::new(Some(JoinSet::new()))))
    }

    /// All of them end, with what they hold, and no other begins.
    fn abort(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(all);
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks.as_mut() {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }
}

/// What a connection is made of: the task that takes its requests in, and those of HTTP/2, which would live on by themselves while a worker does not read
/// what was sent to it, and with them that. All end with the last user, or when the connection is given up.
struct Moving {
    requests: AbortHandle,
    tasks: Tasks,
}

impl Moving {
    fn end(&self) {
        self.requests.abort();
        self.tasks.abort();
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a worker says of its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It takes calls.
    Serves,
    /// It takes no new ones (`NOT_SERVING`).
    Drains,
    /// It does not answer.
    Silent,
}

/// A connection that was agreed on.
#[derive(Clone)]
pub struct Live<R: Resource> {
    connection: Connection,
    moving: Arc<Moving>,
    given_up: Arc<watch::Sender<bool>>,
    /// What the worker has said of itself.
    pub known: Arc<Known<R>>,
    /// Counts the connections.
    pub generation: u64,
}

impl<R: Resource> Live<R> {
    /// A client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        client(self.connection.clone())
    }

    /// Asks the worker's health (grpc.health.v1). One that answers with an error, or has no such service, is well.
    pub async fn standing(&self) -> Standing {
        let mut health = tonic_health::pb::health_client::HealthClient::with_origin(self.connection.clone(), origin());
        let asked = health.check(tonic_health::pb::HealthCheckRequest { service: String::new() });
        match timeout(SHORT, asked).await {
            Ok(Ok(said)) => match said.into_inner().status() {
                tonic_health::pb::health_check_response::ServingStatus::NotServing => Standing::Drains,
                _ => Standing::Serves,
            },
            Ok(Err(status)) => match status.code() {
                tonic::Code::Unavailable | tonic::Code::Cancelled | tonic::Code::DeadlineExceeded => Standing::Silent,
                // It answers: that nobody is to ask, or that it knows no such service.
                _ => Standing::Serves,
            },
            Err(_) => Standing::Silent,
        }
    }

    /// Resolves when nobody waits for an answer on it any more.
    pub async fn given_up(&self) {
        // Its sender is this one's own.
        let _ = self.given_up.subscribe().wait_for(|given_up| *given_up).await;
    }

    /// It has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.connection.sender.is_closed()
    }

    /// The worker, which may have so many calls at once, answers what it does not read: that stays in memory while the connection lasts.
    #[must_use]
    pub fn is_clogged(&self, calls: usize) -> bool {
        self.connection.requests.unread() > calls.saturating_mul(2).saturating_add(MOST_UNREAD)
    }
}

/// Requests name somebody: over a socket there is no name, and over TLS the certificate has proved it.
fn origin() -> http::Uri {
    http::Uri::from_static("http://provisioner")
}

fn client(connection: Connection) -> Client {
    let client = ProvisionerServiceClient::with_origin(connection, origin());
    client.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

struct State<R: Resource> {
    live: Option<Live<R>>,
    failures: u32,
    not_before: Option<Instant>,
    /// Connections in a row on which nobody has greeted in time.
    ungreeted: u32,
    /// Since when nobody has taken a connection.
    unheard: Option<Instant>,
    why: String,
}

impl<R: Resource> Default for State<R> {
    fn default() -> Self {
        Self { live: None, failures: 0, not_before: None, ungreeted: 0, unheard: None, why: String::new() }
    }
}

/// Why there is no connection.
enum Unmade {
    /// Nobody takes it.
    Unheard(String),
    /// Whoever takes it is not the one meant, or does not say who it is.
    Unfit(String),
}

/// Who a worker has to be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The name of its entry.
    pub name: String,
    /// How the ids of its machines begin.
    pub id_prefix: String,
}

/// The link to one worker.
pub struct Link<R: Resource> {
    expected: Expected,
    connect: Arc<dyn Connect>,
    hold: Option<Hold>,
    state: Mutex<State<R>>,
    known: RwLock<Option<Arc<Known<R>>>>,
    draining: AtomicBool,
    generations: AtomicU64,
    /// The connection of this number is open; 0 for none.
    open: Arc<AtomicU64>,
}

/// Asks whoever answers for its name, and how the ids of what it makes begin, as one who seeks a provisioner of this kind.
///
/// # Errors
/// Why it does not say so.
pub async fn introduce<R: Resource>(connect: &dyn Connect) -> Result<(String, String), String> {
    let asked = async {
        let (connection, moving) = dial(connect, async {}).await?;
        let said = greet::<R>(connection).await?;
        drop(moving);
        Ok((clean(&said.name, 64), clean(&said.id_prefix, 64)))
    };
    timeout(SHORT, asked).await.unwrap_or_else(|_| Err(format!("it has not greeted within {} s", SHORT.as_secs())))
}

/// A new connection, and what happens when it is over.
async fn dial(
    connect: &dyn Connect,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<(Connection, Moving), String> {
    let stream = connect.connect().await?;
    let failed =
        |error: &dyn std::fmt::Display| format!("it does not speak HTTP/2: {}", clean(&error.to_string(), 200));
    let tasks = Tasks::new();
    let mut builder = http2::Builder::new(tasks.clone());
    builder.max_header_list_size(64 << 10).max_frame_size(1 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let moving = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to a provisioner ended");
        }
        over.await;
    });
    let connection = Connection { sender, requests: Arc::default() };
    Ok((connection, Moving { requests: moving.abort_handle(), tasks }))
}

async fn greet<R: Resource>(connection: Connection) -> Result<v1::HelloResponse, String> {
    let server = concat!("metamorph/", env!("CARGO_PKG_VERSION")).to_owned();
    let ours = Versions::ours(R::VERSION);
    let (lowest_version, highest_version) = (ours.lowest, ours.highest);
    let hello = v1::HelloRequest { lowest_version, highest_version, server, kind: R::KIND.to_owned() };
    let said = client(connection).hello(hello).await;
    Ok(said.map_err(|status| format!("it does not greet: {}", shown(&status)))?.into_inner())
}

impl<R: Resource> Link<R> {
    /// A link to a worker that nothing is known of, or what is known from before.
    pub fn new(
        expected: Expected,
        connect: Arc<dyn Connect>,
        hold: Option<Hold>,
        known: Option<Arc<Known<R>>>,
    ) -> Self {
        Self {
            expected,
            connect,
            hold,
            state: Mutex::default(),
            known: RwLock::new(known),
            draining: AtomicBool::new(false),
            generations: AtomicU64::new(0),
            open: Arc::default(),
        }
    }

    /// What the worker has said of itself last.
    pub fn known(&self) -> Option<Arc<Known<R>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is a connection, as far as is known without asking.
    pub fn is_connected(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// The worker does not want new calls.
    pub fn drains(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// What its health has said.
    pub fn set_draining(&self, drains: bool) {
        self.draining.store(drains, Ordering::Relaxed);
    }

    /// Holds the clock.
    pub fn held(&self) -> Option<Box<dyn Send>> {
        self.hold.as_ref().map(|hold| hold())
    }

    /// A failure of the worker's: the machine was not asked, as far as is known.
    pub fn unavailable(&self, why: &str) -> Failure {
        let mut failure = Failure::new(
            Cause::ProvisionerUnavailable,
            format!("ask the provisioner \"{}\": {why}", self.expected.name),
        );
        failure.retry = Retry::Waiting;
        failure.advise("see whether its program runs, and its log; it is asked again")
    }

    /// The connection, made now if there is none.
    ///
    /// # Errors
    /// Why there is none. For some time after that, nobody tries again.
    pub async fn live(&self) -> Result<Live<R>, Failure> {
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| !live.is_over()) {
            return Ok(live.clone());
        }
        state.live = None;
        // Who is not there any more may not have said so, and nobody else connects meanwhile.
        self.open.store(0, Ordering::SeqCst);
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return Err(self.unavailable(&state.why));
        }
        let held = self.held();
        let made = timeout(SHORT, self.agree()).await;
        drop(held);
        state.ungreeted = if made.is_err() { state.ungreeted.saturating_add(1) } else { 0 };
        let made =
            made.unwrap_or_else(|_| Err(Unmade::Unfit(format!("it has not greeted within {} s", SHORT.as_secs()))));
        let is_heard = !matches!(made, Err(Unmade::Unheard(_)));
        state.unheard = if is_heard { None } else { state.unheard.or_else(|| Some(Instant::now())) };
        let made = made.map_err(|(Unmade::Unheard(why) | Unmade::Unfit(why))| why);
        match made {
            Ok(live) => {
                if state.failures > 0 || live.generation > 1 {
                    tracing::info!(provisioner = %self.expected.name, program = %live.known.program, "the provisioner is connected again");
                }
                *state = State { live: Some(live.clone()), ..State::default() };
                Ok(live)
            }
            Err(why) => {
                if state.failures == 0 {
                    tracing::warn!(provisioner = %self.expected.name, "the provisioner cannot be used: {why}");
                }
                let pause = PAUSE.saturating_mul(1 << state.failures.min(5)).min(MOST_PAUSE);
                state.failures += 1;
                state.not_before = Some(Instant::now() + pause);
                state.why.clone_from(&why);
                Err(self.unavailable(&why))
            }
        }
    }

    /// Gives a connection up on which nobody answers: calls on it break off, and the next one connects anew.
    pub async fn give_up(&self, silent: &Live<R>) {
        // Where it was aborted, nobody says so; and whoever hears of it finds it closed.
        closed(&self.open, silent.generation);
        silent.given_up.send_replace(true);
        silent.moving.end();
        let mut state = self.state.lock().await;
        if state.live.as_ref().is_some_and(|live| live.generation == silent.generation) {
            state.live = None;
        }
    }

    /// Whether its program takes connections and greets nobody, or takes none, for so long that it hangs; it is counted anew then.
    pub async fn greets_nobody(&self) -> bool {
        let mut state = self.state.lock().await;
        let hangs = state.ungreeted >= UNGREETED || state.unheard.is_some_and(|since| since.elapsed() >= MOST_UNHEARD);
        if hangs {
            (state.ungreeted, state.unheard) = (0, None);
        }
        hangs
    }

    /// When it is tried again, if it is not connected.
    pub async fn next_try(&self) -> Option<Instant> {
        self.state.lock().await.not_before
    }

    async fn agree(&self) -> Result<Live<R>, Unmade> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let open = Arc::clone(&self.open);
        let over = async move { closed(&open, generation) };
        let (connection, moving) = dial(self.connect.as_ref(), over).await.map_err(Unmade::Unheard)?;
        let said = greet::<R>(connection.clone()).await.map_err(Unmade::Unfit)?;
        let known = Arc::new(self.expected.known(said).map_err(Unmade::Unfit)?);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&known));
        self.draining.store(false, Ordering::Relaxed);
        self.open.store(generation, Ordering::SeqCst);
        // One that has ended before it counted as open has found nothing to take back.
        if connection.sender.is_closed() {
            closed(&self.open, generation);
        }
        Ok(Live { connection, moving: Arc::new(moving), given_up: Arc::default(), known, generation })
    }
}

/// The connection of this number is not open any more. Another may have taken its place.
fn closed(open: &AtomicU64, generation: u64) {
    let _ = open.compare_exchange(generation, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// A status of gRPC, for people.
pub fn shown(status: &tonic::Status) -> String {
    let message = clean(status.message(), MAX_TEXT);
    if message.is_empty() { format!("{:?}", status.code()) } else { format!("{:?}: {message}", status.code()) }
}

impl Expected {
    /// What the worker says of itself, if it is the one meant and can be understood.
    fn known<R: Resource>(&self, said: v1::HelloResponse) -> Result<Known<R>, String> {
        if kind_of(&said.kind) != R::KIND {
            let found = clean(kind_of(&said.kind), 64);
            return Err(format!("it provisions {found}s, and not {}s: correct the list of provisioners", R::KIND));
        }
        let version = Versions::ours(R::VERSION)
            .agree(Versions { lowest: said.lowest_version, highest: said.highest_version })?;
        if said.name != self.name {
            let found = clean(&said.name, 64);
            return Err(format!(
                "it says that it is \"{found}\": correct the name, or the address, in the list of provisioners"
            ));
        }
        if said.id_prefix != self.id_prefix {
            let (found, wanted) = (clean(&said.id_prefix, 64), &self.id_prefix);
            return Err(format!(
                "its ids begin with \"{found}\", and \"{wanted}\" is expected: correct idPrefix in the list of provisioners"
            ));
        }
        let capabilities = convert::capabilities(&said.capabilities).map_err(|error| error.to_string())?;
        let schemes = said.schemes.iter().take(64).map(|scheme| clean(&scheme.to_ascii_lowercase(), 64)).collect();
        let check_address = Some(said.check_address).filter(|address| !address.is_empty() && address.len() <= 1024);
        Ok(Known { version, program: clean(&said.program_version, 64), capabilities, schemes, check_address })
    }
}

/// Asks for a condition of a machine, on a connection of its own; false if it cannot be so.
pub async fn trouble(connect: &dyn Connect, wish: v1::SetConditionRequest) -> bool {
    let Ok((connection, moving)) = dial(connect, async {}).await else { return false };
    let mut client = v1::trouble_service_client::TroubleServiceClient::with_origin(connection, origin());
    let set = client.set_condition(wish).await.is_ok();
    drop(moving);
    set
}
