//! Registries over HTTP and HTTPS.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use addresses::{Allowed, NotAllowed};
use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use crate::transport::{Answer, Request, Transport, TransportError};

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for a whole exchange: what is asked for has some kilobytes.
const OVERALL: Duration = Duration::from_secs(30);
/// Longest field of a header that is looked at, in bytes, and most challenges.
const MAX_FIELD: usize = 8192;
const MAX_CHALLENGES: usize = 8;
/// Most extra certificate authorities.
const MAX_AUTHORITIES: usize = 64;
/// Most causes of an error that are looked through.
const MAX_CAUSES: usize = 16;

/// Certificate authorities in PEM, beside the public ones: asked for at each request, as they may be replaced.
type Trust = Arc<dyn Fn() -> String + Send + Sync>;

/// The network. Names are resolved by the system, and only allowed addresses are connected to; there is no proxy, and no redirect is followed.
pub struct HttpTransport {
    allowed: Allowed,
    trust: Trust,
    /// The client, and the authorities that it was made with.
    client: Mutex<Option<(String, Client)>>,
}

impl std::fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpTransport")
    }
}

impl HttpTransport {
    /// A transport that calls local addresses only if they are allowed, and trusts the public authorities and those of `trust`.
    #[must_use]
    pub fn new(allowed: Allowed, trust: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { allowed, trust: Arc::new(trust), client: Mutex::new(None) }
    }

    fn client(&self) -> Result<Client, TransportError> {
        let pem = (self.trust)();
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = kept.as_ref().filter(|(made_with, _)| *made_with == pem) {
            return Ok(client.clone());
        }
        let client =
            client(&pem, &self.allowed).map_err(|()| TransportError::Lost("TLS cannot be set up".to_owned()))?;
        *kept = Some((pem, client.clone()));
        Ok(client)
    }
}

fn client(pem: &str, allowed: &Allowed) -> Result<Client, ()> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()).take(MAX_AUTHORITIES).flatten() {
        // One that cannot be used is trusted by nobody.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(drop)?;
    Client::builder()
        .tls_backend_preconfigured(tls.with_root_certificates(roots).with_no_client_auth())
        .dns_resolver(Guard(allowed.clone()))
        .redirect(Policy::none())
        .http1_only()
        .no_proxy()
        .connect_timeout(CONNECT)
        .user_agent(concat!("metamorph/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(drop)
}

#[async_trait]
impl Transport for HttpTransport {
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        let mut asked = self.client()?.get(request.url.clone());
        if !request.accept.is_empty() {
            asked = asked.header(ACCEPT, request.accept);
        }
        if let Some(authorization) = request.authorization {
            let value = HeaderValue::from_str(authorization.expose_secret());
            let mut value = value.map_err(|_| TransportError::Lost("the credentials cannot be sent".to_owned()))?;
            value.set_sensitive(true);
            asked = asked.header(AUTHORIZATION, value);
        }
        let whole = async {
            let response = asked.send().await.map_err(|error| lost(&error))?;
            read(response, request.max_body).await
        };
        let late = || TransportError::Lost(format!("no whole answer within {} s", OVERALL.as_secs()));
        timeout(OVERALL, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

async fn read(mut response: Response, max: usize) -> Result<Answer, TransportError> {
    let headers = response.headers();
    let field = |name: &str| text(headers, name).next();
    let mut answer = Answer {
        status: response.status().as_u16(),
        challenges: text(headers, WWW_AUTHENTICATE.as_str()).take(MAX_CHALLENGES).collect(),
        location: field(LOCATION.as_str()),
        digest: field("docker-content-digest"),
        retry_after: field(RETRY_AFTER.as_str()),
        body: Vec::new(),
    };
    // What a refusal says is of no use.
    if answer.status != 200 {
        return Ok(answer);
    }
    while let Some(piece) = response.chunk().await.map_err(|error| lost(&error))? {
        if answer.body.len() + piece.len() > max {
            return Err(TransportError::TooLarge);
        }
        answer.body.extend_from_slice(&piece);
    }
    Ok(answer)
}

/// The fields of this name that are text and not too long.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + 'a {
    let all = headers.get_all(name).into_iter().filter(|value| value.len() <= MAX_FIELD);
    all.filter_map(|value| value.to_str().ok()).map(ToOwned::to_owned)
}

/// Why there is no answer: in words of this program, as certificates are the other side's.
fn lost(error: &reqwest::Error) -> TransportError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut why = None;
    for _ in 0..MAX_CAUSES {
        let Some(this) = cause else { break };
        if let Some(refused) = this.downcast_ref::<NotAllowed>() {
            return TransportError::NotAllowed(*refused);
        }
        if let Some(io) = this.downcast_ref::<std::io::Error>() {
            let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            why = Some(tls.map_or_else(|| io.kind().to_string(), |tls| of_tls(tls).to_owned()));
        }
        cause = this.source();
    }
    let plain = if error.is_connect() { "no connection" } else { "the connection broke off" };
    TransportError::Lost(why.unwrap_or_else(|| plain.to_owned()))
}

const fn of_tls(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(fault) => match fault {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            CertificateError::UnknownIssuer => "its certificate is of an authority that is not trusted",
            _ => "its certificate is not trusted",
        },
        rustls::Error::InvalidMessage(_) => "it does not speak TLS",
        _ => "TLS fails",
    }
}

/// Resolves names with the system's resolver, and keeps the allowed addresses.
struct Guard(Allowed);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let good: Addrs = Box::new(allowed.among(found)?.into_iter());
            Ok(good)
        })
    }
}
