//! A BMC on the wire: its listener, which can stop listening, and a request's way through log and faults.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request as HttpRequest, State},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket},
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    bmc::{Bmc, BootOverride, lock},
    faults::{self, Action, Effect, Held, Struck, When},
    journal::{RequestRecord, redacted},
    redfish::{
        self,
        answer::Answer,
        request::{Identity, Request},
        tree,
    },
    scene::Scene,
    settings::Settings,
    traffic::Metered,
    wire,
};

/// Longest request body.
const MAX_BODY: usize = 1 << 20;
/// Longest TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// The connection that a request came on.
#[derive(Default)]
struct Line {
    /// Cuts it.
    cut: Notify,
    /// Requests that it has carried.
    requests: AtomicU32,
    /// The BMC ignores further requests on it.
    closing: AtomicBool,
}

/// What a BMC without a listener answers, with 502, where a fault would cut the connection.
pub const CUT: &str = "the connection was cut";

/// The BMC as an in-process service, without a listener: faults that would cut the connection answer [`CUT`].
pub fn router(bmc: Arc<Bmc>) -> Router {
    Router::new().fallback(handle).with_state(bmc)
}

/// A BMC's listener; ends, with its connections, when dropped.
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A socket bound to an address that may be bound again by this program.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Listener {
    /// Listens for a BMC's clients. While the settings refuse connections, the listener is closed, and the system refuses them.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(address: SocketAddr, tls: Option<TlsAcceptor>, bmc: Arc<Bmc>) -> io::Result<Self> {
        // Bound and never listening: it keeps the port while the listener is closed.
        let holder = bound(address)?;
        let address = holder.local_addr()?;
        let refused = bmc.settings.borrow().refuse;
        let first = if refused { None } else { Some(bound(address)?.listen(1024)?) };
        bmc.listening.send_replace(Some(!refused));
        let task = tokio::spawn(async move {
            let _holder = holder;
            if let Err(error) = listen(address, first, tls, &bmc).await {
                tracing::error!(machine = bmc.config.id, %error, "a BMC stopped listening");
            }
        });
        Ok(Self { address, task })
    }
}

/// Waits until connections are to be refused, or accepted again.
async fn until(settings: &mut watch::Receiver<Settings>, refuse: bool) {
    // An error would mean that the BMC, which holds the sender, was dropped.
    let _ = settings.wait_for(|settings| settings.refuse == refuse).await;
}

async fn listen(
    address: SocketAddr,
    mut first: Option<TcpListener>,
    tls: Option<TlsAcceptor>,
    bmc: &Arc<Bmc>,
) -> io::Result<()> {
    let mut settings = bmc.settings.subscribe();
    let router = router(bmc.clone());
    loop {
        let listener = match first.take() {
            Some(listener) => listener,
            None => {
                until(&mut settings, false).await;
                bound(address)?.listen(1024)?
            }
        };
        bmc.listening.send_replace(Some(true));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((socket, _)) => {
                        if let Err(error) = socket.set_nodelay(true) {
                            tracing::debug!(%error, "TCP_NODELAY");
                        }
                        let (router, tls) = (router.clone(), tls.clone());
                        // Below TLS: handshakes count.
                        let socket = Metered::new(socket, bmc.traffic.clone());
                        connections.spawn(async move {
                            let Some(tls) = tls else { return serve(socket, router).await };
                            match tokio::time::timeout(HANDSHAKE_LIMIT, tls.accept(socket)).await {
                                Ok(Ok(stream)) => serve(stream, router).await,
                                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
                                Err(_) => tracing::debug!("TLS handshake took too long"),
                            }
                        });
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: others may be closed in a moment.
                        tracing::warn!(%error, "accepting a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = until(&mut settings, true) => break,
            }
        }
        drop(listener);
        connections.shutdown().await;
        bmc.listening.send_replace(Some(false));
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, router: Router) {
    let line = Arc::<Line>::default();
    let service = TowerToHyperService::new(router.layer(axum::Extension(line.clone())));
    let builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    tokio::select! {
        result = builder.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended");
            }
        }
        () = line.cut.notified() => {}
    }
}

/// Never returns if there is a connection to cut.
async fn cut(parts: &Parts) -> Response {
    if let Some(line) = parts.extensions.get::<Arc<Line>>() {
        line.cut.notify_one();
        std::future::pending::<()>().await;
    }
    (StatusCode::BAD_GATEWAY, CUT).into_response()
}

async fn handle(State(bmc): State<Arc<Bmc>>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let head = parts.method == axum::http::Method::HEAD;
    if bmc.settings.borrow().refuse {
        return cut(&parts).await;
    }
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return Answer::error(413, "PayloadTooLarge", "The request is larger than 1 MiB, or broke off.", &[])
            .into_response(head);
    };
    if parts.extensions.get::<Arc<Line>>().is_some_and(|line| line.closing.load(Ordering::Relaxed)) {
        return cut(&parts).await;
    }
    let request = read(&parts, &body);
    let seq = bmc.next_request();
    let Struck { rules, actions } = strike(&bmc, &parts, &request);
    bmc.requests.begin(RequestRecord { faults: rules, ..record(&bmc, seq, &parts, &request) });
    let wait = faults::delay(&actions);
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    also(&bmc, &actions, When::Before).await;
    hold(&bmc, &actions, When::Before, seq, &request).await;
    if actions.contains(&Action::Drop { when: When::Before }) {
        return cut(&parts).await;
    }
    let mut answer = match wire::forced(&actions, When::Before) {
        Some(answer) => answer,
        None => perform(&bmc, seq, wire::routed(&request, &actions)).await,
    };
    if let Some(forced) = wire::forced(&actions, When::After) {
        answer = forced;
    }
    wire::edit(&mut answer, &actions);
    expand(&bmc, &request, &mut answer);
    also(&bmc, &actions, When::After).await;
    hold(&bmc, &actions, When::After, seq, &request).await;
    if actions.contains(&Action::Drop { when: When::After }) {
        return cut(&parts).await;
    }
    if actions.contains(&Action::Garbage) {
        answer = Answer::empty(200);
    }
    let whole = !actions.iter().any(|action| matches!(action, Action::Pieces { cut_after: Some(_), .. }));
    bmc.requests.update(seq, |record| record.status = whole.then_some(answer.status));
    close_after(&parts, &actions);
    if answer.streams && answer.status == 200 {
        let response = bmc.pushes.stream();
        bmc.event("stream", bmc.pushes.describe());
        return response;
    }
    wire::shaped(answer.into_response(head), &actions).await
}

/// The faults for a request.
fn strike(bmc: &Bmc, parts: &Parts, request: &Request) -> Struck {
    let line = parts.extensions.get::<Arc<Line>>();
    let reused = line.is_some_and(|line| line.requests.fetch_add(1, Ordering::Relaxed) > 0);
    bmc.faults.strike(&scene(bmc, request, reused))
}

/// A request and its machine.
fn scene<'a>(bmc: &Bmc, request: &'a Request, reused: bool) -> Scene<'a> {
    let power = bmc.power();
    Scene {
        method: &request.method,
        path: &request.path,
        headers: &request.headers,
        body: request.body.as_ref().ok().and_then(Option::as_ref),
        reused,
        power: power.on,
        since_power: power.since.elapsed(),
        medium: bmc.medium().is_some(),
    }
}

/// Puts subordinate resources into an answer, each as the BMC shows it: faults that change a resource change it here too.
fn expand(bmc: &Bmc, request: &Request, answer: &mut Answer) {
    let Some(body) = answer.body.as_mut().filter(|_| answer.status == 200 && request.method == "GET") else { return };
    redfish::expand(&request.query, body, |path| {
        let inner = Request { path: path.to_owned(), query: String::new(), ..request.clone() };
        let actions = bmc.faults.strike_inside(&scene(bmc, &inner, false))?;
        let mut resource = tree::resource(bmc, &wire::routed(&inner, &actions).path)?;
        // A member is known by the link that it stands for.
        resource["@odata.id"] = path.into();
        let mut answer = Answer::resource(resource);
        wire::edit(&mut answer, &actions);
        answer.body
    });
}

/// Performs the side effects of faults.
async fn also(bmc: &Arc<Bmc>, actions: &[Action], at: When) {
    for action in actions {
        let Action::Also { effect, when } = action else { continue };
        if *when != at {
            continue;
        }
        let done = match effect {
            Effect::EndSessions => {
                lock(&bmc.sessions).clear();
                Ok(())
            }
            Effect::Eject => {
                bmc.eject();
                Ok(())
            }
            Effect::ForgetOverride => {
                bmc.change_system(|system| system.boot = BootOverride::default());
                Ok(())
            }
            Effect::PowerOn => bmc.power_on().await,
            Effect::PowerOff => bmc.force_off().await,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a fault's effect had nothing to do");
        }
    }
}

/// Has the connection closed some time after the answer.
fn close_after(parts: &Parts, actions: &[Action]) {
    let after =
        actions.iter().find_map(|action| if let Action::Close { after_ms } = action { Some(*after_ms) } else { None });
    let Some((after, line)) = after.zip(parts.extensions.get::<Arc<Line>>().cloned()) else { return };
    line.closing.store(true, Ordering::Relaxed);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(after)).await;
        line.cut.notify_one();
    });
}

/// Performs the request, to its end even if the client disconnects, like real BMCs.
async fn perform(bmc: &Arc<Bmc>, seq: u64, request: Request) -> Answer {
    let bmc = bmc.clone();
    let work = tokio::spawn(async move {
        let identity = redfish::identify(&bmc, &request.headers);
        bmc.requests.update(seq, |record| record.authentication = identity.name());
        let answer = redfish::answer(&bmc, &request, identity).await;
        bmc.requests.update(seq, |record| record.performed = answer.status < 400);
        answer
    });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "answering a request");
        Answer::error(500, "InternalError", "The simulator failed; its log says more.", &[])
    })
}

async fn hold(bmc: &Bmc, actions: &[Action], when: When, seq: u64, request: &Request) {
    if actions.contains(&Action::Hold { when }) {
        let held = Held { seq, method: request.method.clone(), path: request.path.clone(), when };
        bmc.event("held", json!(held));
        bmc.faults.hold(held).await;
    }
}

fn read(parts: &Parts, body: &Bytes) -> Request {
    let path = parts.uri.path();
    let trimmed = path.trim_end_matches('/');
    let body = if body.is_empty() { Ok(None) } else { serde_json::from_slice::<Value>(body).map(Some).map_err(|_| ()) };
    Request {
        method: parts.method.as_str().to_owned(),
        path: if trimmed.is_empty() { "/" } else { trimmed }.to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.clone(),
        body,
    }
}

fn record(bmc: &Bmc, seq: u64, parts: &Parts, request: &Request) -> RequestRecord {
    let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let uri = parts.uri.path_and_query().map_or("/", |text| text.as_str());
    RequestRecord {
        seq,
        machine: bmc.config.id.clone(),
        method: request.method.clone(),
        path: uri.chars().take(1024).collect(),
        status: None,
        user_agent: agent.chars().take(256).collect(),
        authentication: Identity::Nobody.name(),
        body: request.body.as_ref().ok().and_then(|body| body.as_ref().map(redacted)),
        at_ms: u64::try_from(bmc.shared.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        performed: false,
        faults: Vec::new(),
    }
}
