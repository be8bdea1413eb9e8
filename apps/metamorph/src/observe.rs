//! Observability of the server: `/metrics`, `/healthz`, `/livez`, `/readyz`, and notifications to its service manager.
//!
//! The endpoint speaks HTTP without authentication, as probes do; its metrics, which may be served by [`crate::scrape`] instead, expose names of hosts and
//! namespaces, but no secrets. Paths and answers are Kubernetes' (kubernetes.io/docs/reference/using-api/health-checks).

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bmc::Totals;
use exposition::{Counter, Family, gauges};
use kube::Client;
use operator::Observer;
use provisioner::Named as _;
use provisioner_external::ExternalProvisioner;

/// How long the Kubernetes API may take to answer a health check.
const PATIENCE: Duration = Duration::from_secs(3);

/// The sources of metrics and health.
pub struct Seen {
    /// The controller.
    pub observer: Observer,
    /// Calls to BMCs.
    pub calls: Arc<Totals>,
    /// Bytes of media that BMCs were answered with.
    pub media_bytes: Arc<AtomicU64>,
    /// The Kubernetes API.
    pub client: Client,
    /// Provisioners that are other programs.
    pub external: Vec<Arc<ExternalProvisioner>>,
    /// Whether the server is stopping.
    pub stopping: AtomicBool,
}

impl Seen {
    /// The sources of a server that has not been asked to stop.
    pub fn new(
        observer: Observer,
        (calls, media_bytes): (Arc<Totals>, Arc<AtomicU64>),
        client: Client,
        external: Vec<Arc<ExternalProvisioner>>,
    ) -> Self {
        Self { observer, calls, media_bytes, client, external, stopping: AtomicBool::new(false) }
    }
}

/// The routes; metrics are among them unless they are served elsewhere.
pub fn router(seen: Arc<Seen>, with_metrics: bool) -> Router {
    let router = Router::new().route("/healthz", get(alive)).route("/livez", get(alive)).route("/readyz", get(ready));
    if with_metrics { router.route("/metrics", get(metrics)) } else { router }.with_state(seen)
}

/// The routes of a standby process: alive, but not ready.
pub fn standby_router() -> Router {
    let ready = |request: Request| async move {
        let other = Some(
            "another process leads, or baremetal-operator; this one stands by, and its log says for whom".to_owned(),
        );
        answer(&request, &[("ping", None), ("leader", other)])
    };
    Router::new().route("/healthz", get(alive)).route("/livez", get(alive)).route("/readyz", get(ready))
}

/// One check: its name, and the problem if it fails.
type Check = (&'static str, Option<String>);

/// An answer is proof enough: when a part ends, the process ends too.
async fn alive(request: Request) -> Response {
    answer(&request, &[("ping", None)])
}

async fn ready(State(seen): State<Arc<Seen>>, request: Request) -> Response {
    let stopping = seen.stopping.load(Ordering::Relaxed).then(|| "the server is being stopped".to_owned());
    let hosts = seen.observer.not_at_work();
    let api = if stopping.is_some() { None } else { api_trouble(&seen.client).await };
    answer(&request, &[("ping", None), ("kubernetes", api), ("hosts", hosts), ("shutdown", stopping)])
}

/// The problem with the Kubernetes API, if any.
async fn api_trouble(client: &Client) -> Option<String> {
    let request = axum::http::Request::get("/readyz").body(Vec::new()).ok()?;
    match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
        Ok(Ok(_)) => None,
        // The API answered, even if it denied access.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404) => None,
        Ok(Err(error)) => Some(format!("the Kubernetes API is not ready: {error}")),
        Err(_) => Some(format!("the Kubernetes API has not answered within {} s", PATIENCE.as_secs())),
    }
}

/// `ok`, or all checks line by line if one fails or the request is verbose.
fn answer(request: &Request, checks: &[Check]) -> Response {
    let name = request.uri().path().trim_start_matches('/');
    let failed = checks.iter().any(|(_, wrong)| wrong.is_some());
    let verbose = request.uri().query().is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let mut text = String::new();
    for (check, wrong) in checks {
        // A String takes everything.
        let _ = match wrong {
            None => writeln!(text, "[+]{check} ok"),
            Some(wrong) => writeln!(text, "[-]{check} failed: {wrong}"),
        };
    }
    let (code, text) = match (failed, verbose) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, format!("{text}{name} check failed\n")),
        (false, true) => (StatusCode::OK, format!("{text}{name} check passed\n")),
        (false, false) => (StatusCode::OK, "ok".to_owned()),
    };
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, plain, text).into_response()
}

/// All metrics.
pub async fn metrics(State(seen): State<Arc<Seen>>) -> Response {
    let mut text = seen.observer.metrics();
    text.push_str(&seen.calls.text());
    media(&mut text, seen.media_bytes.load(Ordering::Relaxed));
    programs(&mut text, &seen.external);
    process(&mut text);
    ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response()
}

/// The bytes of media.
fn media(out: &mut String, bytes: u64) {
    let help = "Bytes of boot media that BMCs were answered with, by whole ranges.";
    let family = Counter::new("metamorph_media_bytes_total", help, &[]);
    family.add(&[], bytes);
    family.write(out);
}

/// Which provisioners that are other programs are connected.
fn programs(out: &mut String, all: &[Arc<ExternalProvisioner>]) {
    let help = "Whether a provisioner that is another program is connected, with the version of that program.";
    let labels = &["provisioner", "version"];
    let standing = all.iter().map(|one| {
        let (connected, program) = one.standing();
        (vec![one.name().to_owned(), program], if connected { 1.0 } else { 0.0 })
    });
    gauges(out, Family { name: "metamorph_provisioner_connected", help, labels }, standing);
}

/// The system's metrics of this process, and its version.
fn process(out: &mut String) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    exposition::process(out, &stat, descriptors);
    let family = Family { name: "metamorph_build_info", help: "The version of this program.", labels: &["version"] };
    gauges(out, family, [(vec![env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
}

/// Binds `--health-listen`.
pub fn bind(address: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    let attempt = || format!("listen for probes and metrics on {address}; choose another place with --health-listen");
    let listener = TcpListener::bind(address).with_context(attempt)?;
    listener.set_nonblocking(true).with_context(attempt)?;
    Ok(listener)
}

/// Sends a state to the service manager (sd_notify(3)): a datagram to the socket that `NOTIFY_SOCKET` names. Does nothing without one; errors are
/// ignored.
pub fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = (|| {
        let socket = UnixDatagram::unbound()?;
        let text = name.to_string_lossy();
        // A name that begins with @ is an abstract socket, outside the file system (unix(7)).
        match text.strip_prefix('@') {
            Some(rest) => socket.send_to_addr(state.as_bytes(), &SocketAddr::from_abstract_name(rest)?),
            None => socket.send_to(state.as_bytes(), &name),
        }
    })();
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager cannot be told that the server is \"{state}\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, checks: &[Check]) -> StatusCode {
        answer(&Request::get(path).body(axum::body::Body::empty()).unwrap(), checks).status()
    }

    #[test]
    fn one_check_that_fails_is_a_server_that_is_not_ready() {
        assert_eq!(asked("/readyz", &[("ping", None), ("hosts", None)]), StatusCode::OK);
        let bad = [("ping", None), ("hosts", Some("they cannot be watched".to_owned()))];
        assert_eq!(asked("/readyz?verbose", &bad), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn the_process_is_described() {
        let mut text = String::new();
        process(&mut text);
        for name in ["process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"] {
            assert!(text.contains(&format!("\n{name} ")), "{text}");
        }
    }
}
