//! What the tests share: a simulator, a client that says what it got, and a server of media.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path as UrlPath, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use bmc_sim::{Config, MachineConfig, MachineKind, Simulator};
use reqwest::Method;
use serde_json::{Value, json};

/// Longest wait for something that must happen.
pub const PATIENCE: u64 = 30;

/// A simulator with a client for its BMCs and its control API.
pub struct Lab {
    pub simulator: Simulator,
    pub folder: tempfile::TempDir,
    http: reqwest::Client,
}

/// An answer, read.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The id of the first message of an error.
    pub fn message_id(&self) -> &str {
        let id = self.body["error"]["@Message.ExtendedInfo"][0]["MessageId"].as_str().unwrap_or_default();
        id.rsplit('.').next().unwrap()
    }
}

/// A client that trusts no authority.
pub fn client() -> reqwest::Client {
    // An error means that a test of this program was here before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

pub const SYSTEM: &str = "/redfish/v1/Systems/m";

pub fn path(rest: &str) -> String {
    format!("{SYSTEM}{rest}")
}

impl Lab {
    /// A simulator with one fake machine `m`, whose agent is a script with this body.
    pub async fn fake(script: &str) -> Self {
        Self::with(MachineConfig::new("m", MachineKind::Fake), script).await
    }

    pub async fn with(machine: MachineConfig, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = agent(folder.path(), script);
        let state_dir = Some(folder.path().join("state"));
        let config = Config { machines: vec![machine], agent: Some(agent), state_dir, ..Config::default() };
        Self::of(folder, config).await
    }

    pub async fn of(folder: tempfile::TempDir, config: Config) -> Self {
        let simulator = Simulator::start(config).await.unwrap();
        let http = client();
        Self { simulator, folder, http }
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Result<Got, reqwest::Error> {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Got { status, headers, body })
    }

    /// A request to the BMC without credentials.
    pub fn bare(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.simulator.redfish_url("m").unwrap()))
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.bare(method, path).basic_auth("admin", Some("password"))
    }

    pub async fn get(&self, path: &str) -> Got {
        self.send(self.request(Method::GET, path)).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: Value) -> Got {
        self.send(self.request(Method::POST, path).json(&body)).await.unwrap()
    }

    pub async fn patch(&self, path: &str, body: Value) -> Got {
        self.send(self.request(Method::PATCH, path).json(&body)).await.unwrap()
    }

    pub async fn control(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method, format!("{}{path}", self.simulator.control_url())).json(&body);
        let got = self.send(request).await.unwrap();
        assert_eq!(got.status, 200, "{path}: {}", got.body);
        got.body
    }

    pub async fn machine(&self) -> Value {
        self.control(Method::GET, "/machines/m", Value::Null).await
    }

    pub async fn reset(&self, kind: &str) -> Got {
        self.post(&path("/Actions/ComputerSystem.Reset"), json!({ "ResetType": kind })).await
    }

    pub async fn insert(&self, image: &str) -> Got {
        self.post(&path("/VirtualMedia/CD1/Actions/VirtualMedia.InsertMedia"), json!({ "Image": image })).await
    }

    pub async fn boot_cd_once(&self) {
        let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
        assert_eq!(self.patch(SYSTEM, boot).await.status, 200);
    }

    /// Waits for an event of a kind whose data fits; gives its data.
    pub async fn event(&self, after: u64, kind: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Vec::new();
        let mut last = after;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(PATIENCE);
        while tokio::time::Instant::now() < deadline {
            let page = self.control(Method::GET, &format!("/events?after={last}&wait={PATIENCE}"), Value::Null).await;
            last = page["last"].as_u64().unwrap();
            for event in page["events"].as_array().unwrap() {
                if event["kind"] == kind && matches(&event["data"]) {
                    return event["data"].clone();
                }
                seen.push(event.to_string());
            }
        }
        panic!("no {kind} event came; these did:\n{}\nthe console:\n{}", seen.join("\n"), self.console());
    }

    pub fn now(&self) -> u64 {
        self.simulator.machines().shared.events.last()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn console(&self) -> String {
        std::fs::read_to_string(self.file("state/m/console.log")).unwrap_or_default()
    }
}

/// A script that stands for the agent.
pub fn agent(folder: &Path, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("agent");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Serves bytes under any name, with ranges unless the name begins with `whole`, and 404 if it begins with `missing`.
pub struct Images {
    pub address: SocketAddr,
    pub ranges: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Images {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Served(Bytes, Arc<Mutex<Vec<String>>>);

impl Images {
    pub async fn serve(content: Vec<u8>) -> Self {
        let ranges = Arc::<Mutex<Vec<String>>>::default();
        let state = Served(content.into(), ranges.clone());
        let router = Router::new().route("/{name}", axum::routing::get(image)).with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, ranges, task }
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

async fn image(State(served): State<Served>, UrlPath(name): UrlPath<String>, headers: HeaderMap) -> Response {
    if name.starts_with("missing") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let range = headers.get("range").map(|value| value.to_str().unwrap().to_owned());
    let Some(range) = range.filter(|_| !name.starts_with("whole")) else { return served.0.into_response() };
    served.1.lock().unwrap().push(range.clone());
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let size = served.0.len();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse::<usize>().unwrap().min(size - 1));
    let content_range = format!("bytes {first}-{last}/{size}");
    (StatusCode::PARTIAL_CONTENT, [("content-range", content_range)], served.0.slice(first..=last)).into_response()
}

/// Bytes that differ everywhere.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
