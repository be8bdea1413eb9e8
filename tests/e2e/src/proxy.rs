//! Proxies around a server under test: to the Kubernetes API, to a BMC, and from the agents. Each effect that the server has on
//! the world outside passes here, is noted in one log, and may be where the server is killed.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Directive;
use anyhow::{Context, anyhow};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};
use axum_server::tls_rustls::RustlsConfig;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::Effects;

/// Largest body that passes, in bytes.
const MAX_BODY: usize = 128 << 20;

/// A certificate with its key, PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Certificate.
    pub certificate: String,
    /// Key.
    pub key: String,
}

impl Certificate {
    /// A self-signed one for 127.0.0.1.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn for_loopback() -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).context("make a certificate")?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2120, 1, 1);
        let certificate = params.self_signed(&key).context("make a certificate")?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// What stands behind a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Api,
    Bmc,
    Agent,
}

#[derive(Clone)]
struct Behind {
    kind: Kind,
    /// Where requests go: to the first that can be reached.
    bases: Vec<String>,
    token: Option<String>,
    http: reqwest::Client,
    effects: Arc<Effects>,
}

/// Where a proxy will stand whose other side is not there yet.
pub struct Door {
    listener: TcpListener,
    /// Its address.
    pub address: SocketAddr,
}

impl Door {
    /// A free port of loopback.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn new() -> anyhow::Result<Self> {
        let (listener, address) = listen()?;
        Ok(Self { listener, address })
    }
}

/// The proxies; they end when this is dropped.
pub struct Proxies {
    effects: Arc<Effects>,
    tasks: JoinSet<()>,
}

impl Proxies {
    /// None yet.
    #[must_use]
    pub fn new(effects: Arc<Effects>) -> Self {
        Self { effects, tasks: JoinSet::new() }
    }

    /// In front of the Kubernetes API at `base`, which trusts the bearer of `token` and shows a certificate signed by `ca`. Gives
    /// the proxy's address; it shows `certificate`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn api(
        &mut self,
        base: &str,
        token: &str,
        ca: &str,
        certificate: &Certificate,
    ) -> anyhow::Result<String> {
        let ca = reqwest::Certificate::from_pem(ca.as_bytes()).context("read the API's CA")?;
        let http = client()?.tls_certs_only([ca]).build().context("make an HTTP client")?;
        let behind = self.behind(Kind::Api, &[base], Some(token), http);
        let door = Door::new()?;
        let address = door.address;
        self.serve_tls(door, behind, certificate).await?;
        Ok(format!("https://{address}"))
    }

    /// In front of the BMC at `base` (plain HTTP). Gives the proxy's address.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn bmc(&mut self, base: &str) -> anyhow::Result<String> {
        let http = client()?.tls_certs_only([]).build().context("make an HTTP client")?;
        let router = router(self.behind(Kind::Bmc, &[base], None, http));
        let (listener, address) = listen()?;
        let listener = tokio::net::TcpListener::from_std(listener).context("listen")?;
        self.tasks.spawn(async move {
            // Ends only with the task.
            let _ = axum::serve(listener, router).await;
        });
        Ok(format!("http://{address}"))
    }

    /// In front of servers' endpoints for agents at `bases`, of which the first that can be reached is asked, with the certificate that
    /// agents expect.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn agents(&mut self, door: Door, bases: &[&str], certificate: &Certificate) -> anyhow::Result<()> {
        // Agents pin the certificate, which has no name: it is known here because the test has made or read it.
        let http = client()?.tls_danger_accept_invalid_certs(true).build().context("make an HTTP client")?;
        let behind = self.behind(Kind::Agent, bases, None, http);
        self.serve_tls(door, behind, certificate).await
    }

    /// In front of servers' endpoints for media: connections go to the first of `servers` that can be reached.
    pub fn media(&mut self, door: Door, servers: Vec<SocketAddr>) {
        self.tasks.spawn(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(door.listener) else { return };
            while let Ok((mut client, _)) = listener.accept().await {
                let servers = servers.clone();
                tokio::spawn(async move {
                    for server in servers {
                        if let Ok(mut server) = tokio::net::TcpStream::connect(server).await {
                            // An end is an end, whatever brought it about.
                            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                            return;
                        }
                    }
                });
            }
        });
    }

    fn behind(&self, kind: Kind, bases: &[&str], token: Option<&str>, http: reqwest::Client) -> Behind {
        let bases = bases.iter().map(|base| base.trim_end_matches('/').to_owned()).collect();
        Behind { kind, bases, token: token.map(|t| format!("Bearer {t}")), http, effects: Arc::clone(&self.effects) }
    }

    async fn serve_tls(&mut self, door: Door, behind: Behind, certificate: &Certificate) -> anyhow::Result<()> {
        let (certificate, key) = (certificate.certificate.clone().into_bytes(), certificate.key.clone().into_bytes());
        let tls = RustlsConfig::from_pem(certificate, key).await.map_err(|e| anyhow!("use the certificate: {e}"))?;
        let server = axum_server::from_tcp_rustls(door.listener, tls).context("listen")?;
        self.tasks.spawn(async move {
            // Ends only with the task.
            let _ = server.serve(router(behind).into_make_service()).await;
        });
        Ok(())
    }
}

fn client() -> anyhow::Result<reqwest::ClientBuilder> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().http1_only().redirect(reqwest::redirect::Policy::none());
    Ok(builder.connect_timeout(Duration::from_secs(5)).retry(reqwest::retry::never()))
}

fn listen() -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen")?;
    listener.set_nonblocking(true).context("listen")?;
    let address = listener.local_addr().context("listen")?;
    Ok((listener, address))
}

fn router(behind: Behind) -> Router {
    Router::new().fallback(pass).with_state(behind)
}

fn bad_gateway() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// Lets a request through, in a task of its own: what has been sent takes place even if the sender dies.
async fn pass(State(behind): State<Behind>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else { return bad_gateway() };
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let task = tokio::spawn(behind.exchange(parts.method, path, parts.headers, body));
    task.await.ok().flatten().unwrap_or_else(bad_gateway)
}

impl Behind {
    async fn exchange(self, method: Method, path: String, headers: HeaderMap, body: Bytes) -> Option<Response<Body>> {
        let reading = method == Method::GET || method == Method::HEAD;
        let what = match self.kind {
            Kind::Api if !reading && !is_renewal(&method, &path) => Some(api_effect(&method, &path, &body)),
            Kind::Bmc if !reading => Some(bmc_effect(&method, &path, &body)),
            _ => None,
        };
        let sent = self.send(method, &path, headers, body);
        let Some(what) = what else {
            let response = sent.await?;
            return if self.kind == Kind::Agent { self.to_agent(response).await } else { Some(stream(response)) };
        };
        self.effects.perform(&what, async { whole(sent.await?).await.map(|(response, _)| response) }).await?
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Option<reqwest::Response>> + use<> {
        for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
        if let Some(token) = self.token.as_ref().and_then(|t| t.parse().ok()) {
            headers.insert(header::AUTHORIZATION, token);
        }
        let requests: Vec<_> = self
            .bases
            .iter()
            .map(|base| self.http.request(method.clone(), format!("{base}{path}")))
            .map(|request| request.headers(headers.clone()).body(body.clone()))
            .collect();
        async move {
            for request in requests {
                match request.send().await {
                    Err(error) if error.is_connect() => {}
                    sent => return sent.ok(),
                }
            }
            None
        }
    }

    /// A directive of the server: what it tells for the first time is an effect.
    async fn to_agent(&self, response: reqwest::Response) -> Option<Response<Body>> {
        let (response, bytes) = whole(response).await?;
        let directive: Directive = serde_json::from_slice(&bytes).unwrap_or_default();
        let acknowledged = directive.acknowledged.map(|id| ("acknowledge", id));
        let delivered_parts: Vec<String> = [acknowledged, directive.command.map(|c| ("command", c.id))]
            .into_iter()
            .flatten()
            .filter(|(what, id)| self.effects.is_new(&format!("{what} {id:?}")))
            .map(|(what, id)| {
                // Without the uid, which is another in each run.
                let operation = id.operation.split('/').next().unwrap_or_default();
                format!("{what} {operation}/{} attempt {}", id.step, id.attempt)
            })
            .collect();
        let delivered = delivered_parts.is_empty()
            || self.effects.deliver(&format!("agent {}", delivered_parts.join(" and "))).await;
        delivered.then_some(response)
    }
}

/// Headers that pass back.
fn head(response: &reqwest::Response) -> axum::http::response::Builder {
    let mut builder = Response::builder().status(response.status());
    let hop_by_hop: [HeaderName; 3] = [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    for (name, value) in response.headers().iter().filter(|(name, _)| !hop_by_hop.contains(name)) {
        builder = builder.header(name, value);
    }
    builder
}

/// The answer as it comes: watches have no end.
fn stream(response: reqwest::Response) -> Response<Body> {
    let builder = head(&response);
    builder.body(Body::from_stream(response.bytes_stream())).unwrap_or_else(|_| bad_gateway())
}

/// The answer once it is there as a whole.
async fn whole(response: reqwest::Response) -> Option<(Response<Body>, Bytes)> {
    let builder = head(&response);
    let bytes = response.bytes().await.ok()?;
    Some((builder.body(Body::from(bytes.clone())).ok()?, bytes))
}

/// A Lease that is kept: a matter of time, not of the host.
fn is_renewal(method: &Method, path: &str) -> bool {
    *method == Method::PUT && path.contains("/leases/")
}

/// `api PUT hostoperations/node-0-001-inspect/status Running boot-agent=Running`.
fn api_effect(method: &Method, path: &str, body: &[u8]) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let skipped = words.iter().position(|w| *w == "namespaces").map_or(3, |at| at + 2);
    let mut words: Vec<&str> = words.into_iter().skip(skipped).collect();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    if words.first() == Some(&"events") {
        // Their names are made up, their reasons are not.
        words.truncate(1);
    }
    let resource = words.join("/");
    let detail = match words.first() {
        Some(&"events") => text(&body["reason"]),
        Some(&"hostoperations") => steps_of(&body),
        _ if words.last() == Some(&"status") => state_of(&body),
        _ => {
            let keys = ["metadata", "spec"].map(|part| body[part].as_object().cloned().unwrap_or_default());
            let mut keys: Vec<String> = keys.into_iter().flat_map(|o| o.into_iter().map(|(key, _)| key)).collect();
            keys.retain(|key| !matches!(key.as_str(), "resourceVersion" | "uid"));
            if *method == Method::PATCH { keys.join(",") } else { String::new() }
        }
    };
    format!("api {method} {resource} {detail}").trim_end().to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// How far an operation is.
fn steps_of(operation: &Value) -> String {
    let steps = operation["status"]["steps"].as_array().cloned().unwrap_or_default();
    let steps = steps.iter().map(|step| format!("{}={}", text(&step["name"]), text(&step["phase"])));
    let phase = text(&operation["status"]["phase"]);
    [phase].into_iter().chain(steps.filter(|s| !s.ends_with("Pending"))).collect::<Vec<_>>().join(" ")
}

/// Where a host is.
fn state_of(host: &Value) -> String {
    let status = &host["status"];
    format!("{} {}", text(&status["provisioning"]["state"]), text(&status["operationalStatus"]))
}

/// `api WATCH hostoperations/node-0-001-inspect Running boot-agent=Running`: what a watch showed of an object.
#[must_use]
pub fn seen_in_api(plural: &str, object: &Value) -> String {
    let detail = match plural {
        "hostoperations" => steps_of(object),
        "baremetalhosts" => state_of(object),
        _ => String::new(),
    };
    format!("api WATCH {plural}/{} {detail}", text(&object["metadata"]["name"])).trim_end().to_owned()
}

/// `bmc POST Systems/node-0/Actions/ComputerSystem.Reset ForceRestart`.
fn bmc_effect(method: &Method, path: &str, body: &[u8]) -> String {
    let path = path.trim_start_matches("/redfish/v1/");
    let path = match path.split_once("/Sessions/") {
        Some((service, _)) if *method == Method::DELETE => format!("{service}/Sessions/…"),
        _ => path.to_owned(),
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = body["ResetType"].as_str().or_else(|| body["Boot"]["BootSourceOverrideEnabled"].as_str());
    format!("bmc {method} {path} {}", detail.unwrap_or_default()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cut, Side};

    #[test]
    fn effects_have_names_that_no_run_changes() {
        let status =
            br#"{"status":{"phase":"Running","steps":[{"name":"a","phase":"Done"},{"name":"b","phase":"Pending"}]}}"#;
        let path = "/apis/metamorph.metal3.io/v1alpha1/namespaces/default/hostoperations/x-001-inspect/status?pretty=1";
        assert_eq!(
            api_effect(&Method::PUT, path, status),
            "api PUT hostoperations/x-001-inspect/status Running a=Done"
        );
        let event = br#"{"metadata":{"name":"x.17c5"},"reason":"Registered"}"#;
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        assert_eq!(api_effect(&Method::POST, path, event), "api POST events Registered");
        let path = "/redfish/v1/SessionService/Sessions/17";
        assert_eq!(bmc_effect(&Method::DELETE, path, b""), "bmc DELETE SessionService/Sessions/…");
    }

    #[tokio::test]
    async fn a_cut_lets_the_effect_through_or_not_and_never_its_answer() {
        for (side, wanted) in [(Side::Before, false), (Side::After, true)] {
            let effects = Effects::new(Some(Cut { label: "a #2".into(), side }));
            effects.set_dead();
            effects.arm();
            assert_eq!(effects.perform("a", async { 1 }).await, Some(1));
            let mut happened = false;
            assert_eq!(effects.perform("a", async { happened = true }).await, None);
            assert_eq!((happened, effects.has_struck()), (wanted, true));
            assert_eq!(effects.perform("b", async { 2 }).await, Some(2));
        }
    }
}
