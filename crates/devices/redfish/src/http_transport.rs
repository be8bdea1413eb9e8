//! HTTP/1.1 to a BMC, over TLS unless the address says otherwise.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bmc::Address;
use reqwest::Certificate;
use reqwest::tls::TlsInfo;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::text::clean;
use crate::transport::{MAX_BODY, Request, Response, Transport, TransportError};

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for a whole exchange.
const OVERALL: Duration = Duration::from_secs(60);
/// Idle connections are closed after this time: many BMCs close theirs sooner or later without a word.
const IDLE: Duration = Duration::from_secs(20);

/// What certificates are accepted.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Any (`spec.bmc.disableCertificateVerification`).
    pub accept_any_certificate: bool,
    /// CA certificates trusted besides the system's, PEM.
    pub extra_ca_pem: Option<String>,
}

/// Why the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file is not a list of PEM certificates.
    #[error("read the CA certificates for BMCs: not a list of PEM certificates; correct the file")]
    CaPem(#[source] reqwest::Error),
    /// The HTTP client cannot be set up, mostly for want of any CA certificates.
    #[error("set up HTTPS to BMCs: {detail}; install the system's CA certificates or name a CA file")]
    Setup {
        /// What was found.
        detail: String,
        /// Cause.
        #[source]
        source: reqwest::Error,
    },
}

/// The network transport to one BMC.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    client: reqwest::Client,
    origin: String,
    overall: Duration,
    key: Arc<Mutex<Option<String>>>,
}

impl HttpTransport {
    /// A transport to this address. No connection is made yet.
    ///
    /// # Errors
    /// When the TLS settings cannot be used.
    pub fn new(address: &Address, tls: &Tls) -> Result<Self, TlsError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Err means that another thread was quicker: fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let extra = match &tls.extra_ca_pem {
            Some(pem) => Certificate::from_pem_bundle(pem.as_bytes()).map_err(TlsError::CaPem)?,
            None => Vec::new(),
        };
        let client = match Self::builder(tls).tls_certs_merge(extra.clone()).build() {
            Ok(client) => client,
            // A machine without a CA bundle: the extra ones alone, if there are any, are all that is trusted.
            Err(_) if !extra.is_empty() => Self::builder(tls).tls_certs_only(extra).build().map_err(setup)?,
            Err(source) => return Err(setup(source)),
        };
        Ok(Self { client, origin: address.origin(), overall: OVERALL, key: Arc::default() })
    }

    fn builder(tls: &Tls) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            .user_agent(concat!("metamorph/", env!("CARGO_PKG_VERSION")))
            .tls_danger_accept_invalid_certs(tls.accept_any_certificate)
            .tls_info(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(CONNECT)
            .timeout(OVERALL)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
    }

    fn failed(&self, error: &reqwest::Error) -> TransportError {
        if error.is_timeout() {
            let seconds = if error.is_connect() { CONNECT } else { self.overall }.as_secs();
            return TransportError::Timeout { seconds };
        }
        let detail = innermost(error);
        match tls_fault(error) {
            Some(TlsFault::Certificate(detail)) => TransportError::Certificate { detail },
            Some(TlsFault::Other(detail)) => TransportError::Tls { detail },
            None if error.is_connect() => TransportError::Connect { detail },
            None if is_parse(error) => TransportError::Protocol { detail },
            None => TransportError::Dropped { detail },
        }
    }
}

fn setup(source: reqwest::Error) -> TlsError {
    TlsError::Setup { detail: innermost(&source), source }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        let url = format!("{}{}", self.origin, request.path);
        let mut builder = self.client.request(request.method.clone(), url).headers(request.headers.clone());
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        let mut answer = builder.send().await.map_err(|error| self.failed(&error))?;
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = key_of(&answer);
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        if answer.content_length().is_some_and(|length| length > MAX_BODY as u64) {
            return Err(TransportError::TooLarge);
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.failed(&error))? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(TransportError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status, headers, body })
    }

    fn key_sha256(&self) -> Option<String> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Digest of the public key in the certificate that the other side showed.
fn key_of(answer: &reqwest::Response) -> Option<String> {
    let certificate = answer.extensions().get::<TlsInfo>()?.peer_certificate()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(hex::encode(Sha256::digest(certificate.public_key().raw)))
}

enum TlsFault {
    Certificate(String),
    Other(String),
}

/// The chain of causes, with what `io::Error` hides inside itself.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: Option<&(dyn Error + 'static)> = Some(error);
    std::iter::successors(first, |current| {
        let current: &(dyn Error + 'static) = *current;
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            && let Some(inner) = io.get_ref()
        {
            return Some(inner as &(dyn Error + 'static));
        }
        current.source()
    })
    .take(16)
}

fn tls_fault(error: &reqwest::Error) -> Option<TlsFault> {
    let fault = chain(error).find_map(|cause| cause.downcast_ref::<rustls::Error>())?;
    Some(match fault {
        rustls::Error::InvalidCertificate(reason) => TlsFault::Certificate(clean(&certificate_text(reason), 300)),
        other => TlsFault::Other(clean(&other.to_string(), 300)),
    })
}

fn certificate_text(reason: &rustls::CertificateError) -> String {
    use rustls::CertificateError as E;
    match reason {
        E::UnknownIssuer => "it is signed by an unknown issuer, or by itself".into(),
        E::Expired | E::ExpiredContext { .. } => "it has expired".into(),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet; check the clocks of BMC and server".into()
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => "it is not made out for this address".into(),
        other => other.to_string(),
    }
}

fn is_parse(error: &reqwest::Error) -> bool {
    // hyper's own type is not reachable here; its words are stable.
    chain(error).any(|cause| cause.to_string().contains("invalid HTTP"))
}

fn innermost(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(String::new, |cause| clean(&cause.to_string(), 300))
}
