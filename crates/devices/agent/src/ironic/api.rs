//! Ironic's API, as the agent calls it.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use ipa_protocol::{
    CONTINUE_PATH, ContinueAnswer, HEARTBEAT_PATH, HEARTBEAT_VERSION, Heartbeat, InspectionData, LOOKUP_PATH,
    LOOKUP_VERSION, LookupAnswer, MAX_LOOKUP_BYTES, Parameters, VERSION_HEADER, api_error, read,
};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use thiserror::Error;

use crate::report::tls::{self, ServerClock};
use crate::text::chain;

/// Longest time to connect, and until the answer is there.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// Largest answer but a lookup's, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Why a call gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApiError {
    /// Nobody answered, or not in time.
    #[error("Ironic could not be reached at {url}: {why}")]
    Unreachable {
        /// The last address.
        url: String,
        /// Why.
        why: String,
    },
    /// The node is locked: it passes.
    #[error("Ironic is at work on the node: {0}")]
    Locked(String),
    /// Another error.
    #[error("Ironic answered with status {status}: {text}")]
    Status {
        /// HTTP status.
        status: u16,
        /// In words.
        text: String,
    },
    /// It cannot be understood.
    #[error("Ironic's answer cannot be used: {0}")]
    Malformed(String),
}

impl ApiError {
    /// Whether sending the same again may help: as ironic-python-agent sends again (`A:inspector.py`, `call_inspector`), and when Ironic knows no such
    /// node, for it knows none that it is still about to wait for: this agent may have started before Ironic has seen that the machine has.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Locked(_) => true,
            Self::Status { status, .. } => *status == 404 || *status >= 500,
            Self::Malformed(_) => false,
        }
    }
}

/// What the agent asks of Ironic.
pub trait Api: Send + Sync {
    /// Sends what was found; gives the node's UUID.
    fn inspected(&self, data: &InspectionData) -> impl Future<Output = Result<Option<String>, ApiError>> + Send;

    /// Looks for the node by the machine's addresses, or by its UUID.
    fn lookup(
        &self,
        addresses: &[String],
        node: Option<&str>,
    ) -> impl Future<Output = Result<LookupAnswer, ApiError>> + Send;

    /// Says that the agent lives.
    fn heartbeat(&self, node: &str, beat: &Heartbeat) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// Ironic over HTTP.
#[derive(Debug)]
pub struct HttpApi {
    http: reqwest::Client,
    urls: Vec<String>,
    inspection: Vec<String>,
    request_id: Option<String>,
    /// The address that answered last.
    preferred: AtomicUsize,
    clock: Arc<ServerClock>,
}

impl HttpApi {
    /// The Ironic that the parameters name; `authorities` are those of the ramdisk, in PEM.
    ///
    /// # Errors
    /// HTTP or TLS cannot be set up.
    pub fn new(parameters: &Parameters, authorities: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let time: Arc<dyn TimeProvider> = Arc::new(DefaultTimeProvider);
        let tls = if parameters.insecure() {
            tracing::warn!(
                "ipa-insecure is set: whoever answers at Ironic's address may have this agent do what it likes"
            );
            tls::unverified()?
        } else {
            tls::for_images(authorities, time)?.0
        };
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .build()?;
        let urls = parameters.api_urls();
        let mut inspection = parameters.inspection_urls();
        if inspection.is_empty() {
            inspection = urls.iter().map(|url| format!("{url}{CONTINUE_PATH}")).collect();
        }
        let request_id = parameters.request_id().map(str::to_owned);
        Ok(Self { http, urls, inspection, request_id, preferred: AtomicUsize::new(0), clock: Arc::default() })
    }

    /// The time by Ironic's answers.
    #[must_use]
    pub fn clock(&self) -> Arc<ServerClock> {
        Arc::clone(&self.clock)
    }

    /// The time: by Ironic's answers, or, before there is one, by the machine's clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        let told = self.clock.current_time().map(|time| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()));
        told.unwrap_or_else(SystemTime::now)
    }

    /// The machine's own address on the way to Ironic.
    ///
    /// # Errors
    /// No name server, or no way.
    pub async fn own_address(&self) -> std::io::Result<IpAddr> {
        let mut last = std::io::Error::other("no address of Ironic's is given");
        for url in &self.urls {
            let Ok(url) = url::Url::parse(url) else { continue };
            let (Some(host), port) = (url.host_str(), url.port_or_known_default().unwrap_or(80)) else { continue };
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, port)).await {
                Ok(found) => found.collect(),
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            for to in found {
                // Connecting a datagram socket sends nothing: the kernel looks for a way alone.
                let any: IpAddr = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
                match std::net::UdpSocket::bind((any, 0)).and_then(|socket| {
                    socket.connect(to)?;
                    socket.local_addr()
                }) {
                    Ok(own) => return Ok(own.ip()),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    /// Sends to one address after the other, until one answers.
    async fn send(
        &self,
        urls: &[String],
        make: &(dyn Fn(&str) -> reqwest::RequestBuilder + Send + Sync),
        limit: usize,
    ) -> Result<Vec<u8>, ApiError> {
        let first = self.preferred.load(Ordering::Relaxed) % urls.len().max(1);
        let mut failed = ApiError::Unreachable { url: String::new(), why: "no address of it is given".to_owned() };
        for at in (0..urls.len()).map(|step| (first + step) % urls.len()) {
            let url = &urls[at];
            let mut request = make(url).header("Accept", "application/json");
            if let Some(id) = &self.request_id {
                request = request.header("X-OpenStack-Request-ID", id);
            }
            let unreachable =
                |error: reqwest::Error| ApiError::Unreachable { url: url.clone(), why: chain(&error.without_url()) };
            match request.send().await {
                Ok(response) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return self.answer(response, limit).await.map_err(|fault| match fault {
                        Fault::Cut(error) => unreachable(error),
                        Fault::Api(error) => error,
                    });
                }
                Err(error) => {
                    failed = unreachable(error);
                    tracing::debug!("{failed}");
                }
            }
        }
        Err(failed)
    }

    async fn answer(&self, mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, Fault> {
        if let Some(date) = response.headers().get("date").and_then(|date| date.to_str().ok()) {
            self.clock.observe(date);
        }
        let status = response.status();
        let limit = if status.is_success() { limit } else { 64 << 10 };
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(Fault::Cut)? {
            if bytes.len() + chunk.len() > limit {
                return Err(Fault::Api(ApiError::Malformed(format!("it has more than {limit} bytes"))));
            }
            bytes.extend_from_slice(&chunk);
        }
        match status.as_u16() {
            200..=299 => Ok(bytes),
            409 => Err(Fault::Api(ApiError::Locked(api_error(&bytes)))),
            status => Err(Fault::Api(ApiError::Status { status, text: api_error(&bytes) })),
        }
    }
}

enum Fault {
    Cut(reqwest::Error),
    Api(ApiError),
}

fn json(request: reqwest::RequestBuilder, body: Vec<u8>) -> reqwest::RequestBuilder {
    request.header("Content-Type", "application/json").body(body)
}

fn written<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::Malformed(error.to_string()))
}

impl Api for HttpApi {
    async fn inspected(&self, data: &InspectionData) -> Result<Option<String>, ApiError> {
        let body = written(data)?;
        let bytes = self.send(&self.inspection, &|url| json(self.http.post(url), body.clone()), MAX_ANSWER).await?;
        let answer: ContinueAnswer = read("the answer to the inspection", &bytes, MAX_ANSWER)
            .map_err(|error| ApiError::Malformed(error.to_string()))?;
        Ok(answer.node_uuid().map(str::to_owned))
    }

    async fn lookup(&self, addresses: &[String], node: Option<&str>) -> Result<LookupAnswer, ApiError> {
        let query = {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("addresses", &addresses.join(","));
            if let Some(node) = node {
                query.append_pair("node_uuid", node);
            }
            query.finish()
        };
        let make =
            |url: &str| self.http.get(format!("{url}{LOOKUP_PATH}?{query}")).header(VERSION_HEADER, LOOKUP_VERSION);
        let bytes = self.send(&self.urls, &make, MAX_LOOKUP_BYTES).await?;
        let answer: LookupAnswer = read("the lookup's answer", &bytes, MAX_LOOKUP_BYTES)
            .map_err(|error| ApiError::Malformed(error.to_string()))?;
        // It becomes a part of addresses.
        let uuid = &answer.node.uuid;
        let is_id = (1..=64).contains(&uuid.len()) && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if is_id { Ok(answer) } else { Err(ApiError::Malformed("the node has no UUID".to_owned())) }
    }

    async fn heartbeat(&self, node: &str, beat: &Heartbeat) -> Result<(), ApiError> {
        let body = written(beat)?;
        let make = |url: &str| {
            json(self.http.post(format!("{url}{HEARTBEAT_PATH}{node}")), body.clone())
                .header(VERSION_HEADER, HEARTBEAT_VERSION)
        };
        self.send(&self.urls, &make, MAX_ANSWER).await.map(drop)
    }
}
