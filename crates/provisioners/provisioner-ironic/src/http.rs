//! HTTP to one Ironic: TLS with its authority and a certificate of ours, user and password from files that may change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::header::{HeaderValue, USER_AGENT};
use reqwest::{Client, redirect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::transport::{MAX_ANSWER, Method, Request, Response, Transport, TransportError};

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for an exchange: baremetal-operator's default. Some calls ask the BMC meanwhile.
const OVERALL: Duration = Duration::from_secs(60);
/// Files are read again after this time: those of mounted Secrets change.
const FILES: Duration = Duration::from_secs(60);
/// Largest file that is read, bytes.
const MAX_FILE: u64 = 1 << 20;

/// How an Ironic is reached.
#[derive(Clone, Debug)]
pub struct Access {
    /// `https://host[:port]`, with or without a path.
    pub endpoint: Url,
    /// Certificates of its authority, PEM; without it those that the system trusts.
    pub authority: Option<PathBuf>,
    /// Our certificate and its key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Files with user and password (HTTP basic).
    pub login: Option<(PathBuf, PathBuf)>,
}

struct Ready {
    made: Instant,
    client: Client,
    login: Option<(String, SecretString)>,
}

/// The network's way to an Ironic.
pub struct HttpTransport {
    access: Access,
    ready: Mutex<Option<Arc<Ready>>>,
}

impl HttpTransport {
    /// The way to it. Files are read when it is used.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access, ready: Mutex::default() }
    }

    async fn ready(&self) -> Result<Arc<Ready>, TransportError> {
        let known = self.ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.made.elapsed() < FILES) {
            return Ok(known);
        }
        let access = self.access.clone();
        let made = tokio::task::spawn_blocking(move || ready(&access));
        let made = made.await.map_err(|error| TransportError::Untrusted(error.to_string()))?;
        let made = Arc::new(made.map_err(TransportError::Untrusted)?);
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&made));
        Ok(made)
    }
}

fn file(path: &PathBuf) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let length = std::fs::metadata(path).map_err(|error| format!("read {shown}: {error}"))?.len();
    if length > MAX_FILE {
        return Err(format!("read {shown}: it has {length} bytes, {MAX_FILE} are accepted"));
    }
    std::fs::read(path).map_err(|error| format!("read {shown}: {error}"))
}

fn word(path: &PathBuf) -> Result<String, String> {
    let text = String::from_utf8(file(path)?).map_err(|_| format!("read {}: it is no text", path.display()))?;
    Ok(text.trim().to_owned())
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, String> {
    let bad = |error: String| format!("read the certificates in {}: {error}", path.display());
    let pem = file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() { Err(bad("there is none".into())) } else { Ok(found) }
}

fn roots(access: &Access) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &access.authority {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("use {}: {error}", path.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn ready(access: &Access) -> Result<Ready, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(access)?);
    let tls = match &access.certificate {
        None => tls.with_no_client_auth(),
        Some((certificate, key)) => {
            let bad = |error: String| format!("use the key in {}: {error}", key.display());
            let parsed = PrivateKeyDer::from_pem_slice(&file(key)?).map_err(|error| bad(error.to_string()))?;
            tls.with_client_auth_cert(certificates(certificate)?, parsed).map_err(|error| bad(error.to_string()))?
        }
    };
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .timeout(OVERALL)
        .build()
        .map_err(|error| error.to_string())?;
    let login = match &access.login {
        None => None,
        Some((user, password)) => Some((word(user)?, SecretString::from(word(password)?))),
    };
    Ok(Ready { made: Instant::now(), client, login })
}

/// What a request's error says, with its causes, and whether a certificate is at fault.
fn failed(error: &reqwest::Error) -> TransportError {
    if error.is_timeout() {
        return TransportError::Unreachable(format!("no answer within {} s", OVERALL.as_secs()));
    }
    let (mut text, mut at): (String, Option<&dyn std::error::Error>) =
        (String::new(), std::error::Error::source(error));
    let mut untrusted = false;
    while let Some(cause) = at {
        untrusted |= cause.is::<rustls::Error>();
        text = cause.to_string();
        untrusted |= text.contains("certificate");
        at = cause.source();
    }
    if text.is_empty() {
        text = error.to_string();
    }
    if untrusted { TransportError::Untrusted(text) } else { TransportError::Unreachable(text) }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        let ready = self.ready().await?;
        let address = format!("{}{}", self.endpoint(), request.path);
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut built = ready
            .client
            .request(method, address)
            .header(USER_AGENT, HeaderValue::from_static(concat!("metamorph/", env!("CARGO_PKG_VERSION"))));
        if let Some(minor) = request.version {
            built = built.header("X-OpenStack-Ironic-API-Version", format!("1.{minor}"));
        }
        if let Some((user, password)) = &ready.login {
            built = built.basic_auth(user, Some(password.expose_secret()));
        }
        if let Some(body) = &request.body {
            built = built.json(body);
        }
        let mut answer = built.send().await.map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        if status == 401 {
            // The password may have been changed a moment ago.
            *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let maximum = answer.headers().get("X-OpenStack-Ironic-API-Maximum-Version");
        let maximum = maximum.and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| failed(&error))? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(TransportError::Unreadable(format!("it has more than {MAX_ANSWER} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status, maximum, body })
    }

    fn endpoint(&self) -> String {
        let mut shown = self.access.endpoint.clone();
        // A user in an address is refused where it is configured.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.set_query(None);
        shown.set_fragment(None);
        shown.as_str().trim_end_matches('/').to_owned()
    }
}
