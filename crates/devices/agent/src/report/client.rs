//! One exchange: sends the report over HTTPS, receives the directive.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_protocol::{
    AgentState, BOOT_KEY_HEADER, CommandError, DISMISSED_HEADER, Directive, ErrorCode, HostConfig, MAX_DIRECTIVE_BYTES,
    MAX_REPORT_BYTES,
};
use agent_protocol::{Outcome, REPORT_PATH, Report};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::tls::{self, ServerClock};
use crate::text::cut;

/// Longest time to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// Time for an answer, in addition to the long poll.
const ANSWER: Duration = Duration::from_secs(20);

/// Most endpoints.
const MAX_ENDPOINTS: usize = 16;

/// Most bytes of an error's text that are kept.
const MAX_ERROR_TEXT: usize = 300;

/// Why the medium's configuration yields no client.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No server.
    #[error("the boot medium names no address of the server")]
    NoEndpoint,
    /// The digest is no SHA-256.
    #[error(
        "the boot medium names \"{0}\" as the SHA-256 of the server's certificate: 64 hexadecimal digits are needed"
    )]
    Digest(String),
    /// TLS cannot be set up.
    #[error("setting up TLS failed")]
    Tls(#[from] rustls::Error),
    /// HTTP cannot be set up.
    #[error("setting up HTTP failed")]
    Http(#[from] reqwest::Error),
}

/// Why an exchange failed.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// No answer.
    #[error("the server at {endpoint} could not be reached")]
    Unreachable {
        /// Base address.
        endpoint: String,
        /// Why.
        source: reqwest::Error,
    },
    /// It does not accept this agent.
    #[error("the server at {endpoint} does not accept this agent (status {status}): {text}")]
    Refused {
        /// Base address.
        endpoint: String,
        /// 401 or 403.
        status: u16,
        /// The body's text.
        text: String,
        /// Whether it says that this boot is over ([`DISMISSED_HEADER`]).
        dismissed: bool,
    },
    /// It answered with an error.
    #[error("the server at {endpoint} answered with status {status}: {text}")]
    Status {
        /// Base address.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// The body's text.
        text: String,
    },
    /// Its answer is longer than is accepted.
    #[error("the server at {endpoint} answered with more than {most} bytes")]
    TooLarge {
        /// Base address.
        endpoint: String,
        /// Most bytes that are read.
        most: usize,
    },
    /// Its answer cannot be understood.
    #[error("the server at {endpoint} answered with something that cannot be understood")]
    Malformed {
        /// Base address.
        endpoint: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The report could not be written.
    #[error("writing the report failed")]
    Encode(#[source] serde_json::Error),
}

impl ExchangeError {
    /// Whether trying again soon is of no use.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the server knows this boot and has no work for it any more: the host was let go, or booted again. A token that it does not know
    /// (401) proves nothing of that kind, nor does a 403 that may be a proxy's.
    #[must_use]
    pub fn is_dismissal(&self) -> bool {
        matches!(self, Self::Refused { dismissed: true, .. })
    }
}

/// Talks with the server.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    endpoints: Vec<String>,
    token: String,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    clock: Arc<ServerClock>,
}

impl Client {
    /// A client for the medium's configuration.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(config: &HostConfig) -> Result<Self, ClientError> {
        Self::to(&config.endpoints, &config.server_certificate_sha256, &config.token)
    }

    /// A client of the server at these base addresses, with this certificate's SHA-256 and this token.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn to(endpoints: &[String], certificate_sha256: &str, token: &str) -> Result<Self, ClientError> {
        let endpoints: Vec<String> =
            endpoints.iter().take(MAX_ENDPOINTS).map(|base| base.trim_end_matches('/').to_owned()).collect();
        if endpoints.is_empty() {
            return Err(ClientError::NoEndpoint);
        }
        let digest = certificate_sha256.trim();
        let bytes = hex::decode(digest).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let sha256 = bytes.ok_or_else(|| ClientError::Digest(cut(digest, 100).to_owned()))?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::pinned(sha256)?)
            .http1_only()
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .build()?;
        Ok(Self { http, endpoints, token: token.to_owned(), preferred: AtomicUsize::new(0), clock: Arc::default() })
    }

    /// The server's time of day, as its answers report it.
    #[must_use]
    pub fn clock(&self) -> Arc<ServerClock> {
        Arc::clone(&self.clock)
    }

    /// Sends the report, with the boot's key, to the first endpoint that answers; tries the last working one first.
    ///
    /// # Errors
    /// The last endpoint's [`ExchangeError`]; but a refusal takes precedence, since it is more specific, and a dismissal even more so.
    pub async fn exchange(&self, report: &Report, key: &str) -> Result<Directive, ExchangeError> {
        let sent = Sent {
            path: REPORT_PATH,
            body: encode(report)?,
            boot: Some((key, report.generation)),
            patience: Duration::from_secs(report.wait_seconds) + ANSWER,
            most: MAX_DIRECTIVE_BYTES,
        };
        self.to_any(&sent).await
    }

    /// Sends a document to this path of the first endpoint that answers, and reads an answer of at most so many bytes.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub async fn send<T: DeserializeOwned>(
        &self,
        path: &'static str,
        body: Vec<u8>,
        most: usize,
    ) -> Result<T, ExchangeError> {
        self.to_any(&Sent { path, body, boot: None, patience: ANSWER, most }).await
    }

    async fn to_any<T: DeserializeOwned>(&self, sent: &Sent<'_>) -> Result<T, ExchangeError> {
        let preferred = self.preferred.load(Ordering::Relaxed);
        let count = self.endpoints.len();
        let mut worst: Option<ExchangeError> = None;
        for index in (0..count).map(|step| (preferred + step) % count) {
            match self.post(&self.endpoints[index], sent).await {
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) if worst.as_ref().is_some_and(ExchangeError::is_refusal) && !error.is_dismissal() => {
                    tracing::debug!(%error, "another address of the server");
                }
                Err(error) => worst = Some(error),
            }
        }
        Err(worst.unwrap_or_else(|| ExchangeError::TooLarge { endpoint: String::new(), most: sent.most }))
    }

    async fn post<T: DeserializeOwned>(&self, endpoint: &str, sent: &Sent<'_>) -> Result<T, ExchangeError> {
        let unreachable = |source| ExchangeError::Unreachable { endpoint: endpoint.to_owned(), source };
        let mut request = self
            .http
            .post(format!("{endpoint}{}", sent.path))
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .timeout(sent.patience)
            .body(sent.body.clone());
        if let Some((key, _)) = sent.boot {
            request = request.header(BOOT_KEY_HEADER, key);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        if let Some(date) = response.headers().get("date").and_then(|date| date.to_str().ok()) {
            self.clock.observe(date);
        }
        let status = response.status();
        let named: Option<u64> =
            response.headers().get(DISMISSED_HEADER).and_then(|named| named.to_str().ok()?.parse().ok());
        let dismissed =
            status.as_u16() == 403 && named.is_some() && named == sent.boot.map(|(_, generation)| generation);
        let limit = if status.is_success() { sent.most } else { 64 << 10 };
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if bytes.len() + chunk.len() > limit {
                return Err(ExchangeError::TooLarge { endpoint: endpoint.to_owned(), most: limit });
            }
            bytes.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            let text = cut(String::from_utf8_lossy(&bytes).trim(), MAX_ERROR_TEXT).to_owned();
            let (endpoint, status) = (endpoint.to_owned(), status.as_u16());
            return Err(match status {
                401 | 403 => ExchangeError::Refused { endpoint, status, text, dismissed },
                _ => ExchangeError::Status { endpoint, status, text },
            });
        }
        serde_json::from_slice(&bytes)
            .map_err(|source| ExchangeError::Malformed { endpoint: endpoint.to_owned(), source })
    }
}

/// What is sent.
struct Sent<'a> {
    path: &'static str,
    body: Vec<u8>,
    /// Key and generation of a host's boot.
    boot: Option<(&'a str, u64)>,
    patience: Duration,
    /// Most bytes of the answer.
    most: usize,
}

/// The report in JSON; without its log lines, then without its outcome, should it be longer than the server reads.
fn encode(report: &Report) -> Result<Vec<u8>, ExchangeError> {
    let bytes = serde_json::to_vec(report).map_err(ExchangeError::Encode)?;
    if bytes.len() <= MAX_REPORT_BYTES {
        return Ok(bytes);
    }
    let mut less = report.clone();
    less.logs.clear();
    let bytes = serde_json::to_vec(&less).map_err(ExchangeError::Encode)?;
    if bytes.len() <= MAX_REPORT_BYTES {
        return Ok(bytes);
    }
    if let AgentState::Finished { outcome, .. } = &mut less.state {
        let message = format!("the outcome has {} bytes, {MAX_REPORT_BYTES} can be reported", bytes.len());
        *outcome = Outcome::Failed(CommandError { code: ErrorCode::Internal, message, untouched: false });
    }
    serde_json::to_vec(&less).map_err(ExchangeError::Encode)
}
