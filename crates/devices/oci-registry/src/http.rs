//! Registries over HTTP and HTTPS.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use addresses::Allowed;
use async_trait::async_trait;
use image_sources::Route;
use reach::{Reach, Refused};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
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

/// Most clients that are kept: one for each proxy.
const MAX_CLIENTS: usize = 16;

/// What a client was made with.
#[derive(Clone, PartialEq, Eq)]
struct Made {
    authorities: String,
    proxy: Option<Route>,
}

/// The network: only allowed addresses are connected to (see [`reach`]), and no redirect is followed.
pub struct HttpTransport {
    allowed: Allowed,
    trust: Trust,
    /// The clients, and what each was made with.
    clients: Mutex<Vec<(Made, Reach)>>,
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
        Self { allowed, trust: Arc::new(trust), clients: Mutex::default() }
    }

    fn client(&self, proxy: Option<&Route>) -> Result<Reach, TransportError> {
        let made = Made { authorities: (self.trust)(), proxy: proxy.cloned() };
        let mut kept = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of authorities that have been replaced are of no use any more.
        kept.retain(|(with, _)| with.authorities == made.authorities);
        if let Some((_, client)) = kept.iter().find(|(with, _)| *with == made) {
            return Ok(client.clone());
        }
        let client =
            client(&made, &self.allowed).map_err(|()| TransportError::Lost("TLS cannot be set up".to_owned()))?;
        if kept.len() >= MAX_CLIENTS {
            kept.remove(0);
        }
        kept.push((made, client.clone()));
        Ok(client)
    }
}

fn client(made: &Made, allowed: &Allowed) -> Result<Reach, ()> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(made.authorities.as_bytes()).take(MAX_AUTHORITIES).flatten() {
        // One that cannot be used is trusted by nobody.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(drop)?;
    let builder = Client::builder()
        .tls_backend_preconfigured(tls.with_root_certificates(roots).with_no_client_auth())
        .http1_only()
        .connect_timeout(CONNECT)
        .user_agent(concat!("metamorph/", env!("CARGO_PKG_VERSION")));
    Reach::new(builder, allowed, made.proxy.as_ref()).map_err(drop)
}

#[async_trait]
impl Transport for HttpTransport {
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        let reach = self.client(request.proxy)?;
        reach.check(request.url).map_err(TransportError::NotAllowed)?;
        let via = reach.via(request.url);
        let mut asked = reach.get(request.url.clone());
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
            let response = asked.send().await.map_err(|error| lost(&error, via))?;
            match (response.status().as_u16(), via) {
                (407, Some(proxy)) => Err(TransportError::Lost(Refused::unauthorized(proxy).to_string())),
                _ => read(response, request.max_body, via).await,
            }
        };
        let late = || TransportError::Lost(format!("no whole answer within {} s{}", OVERALL.as_secs(), by_way_of(via)));
        timeout(OVERALL, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

async fn read(mut response: Response, max: usize, via: Option<&Route>) -> Result<Answer, TransportError> {
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
    while let Some(piece) = response.chunk().await.map_err(|error| lost(&error, via))? {
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
fn lost(error: &reqwest::Error, via: Option<&Route>) -> TransportError {
    if let Some(refused) = reach::not_allowed(error) {
        return TransportError::NotAllowed(refused);
    }
    if let Some(refused) = via.and_then(|proxy| reach::refused_by_proxy(error, proxy)) {
        return TransportError::Lost(refused.to_string());
    }
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut why = None;
    for _ in 0..MAX_CAUSES {
        let Some(this) = cause else { break };
        if let Some(io) = this.downcast_ref::<std::io::Error>() {
            let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            why = Some(tls.map_or_else(|| io.kind().to_string(), |tls| of_tls(tls).to_owned()));
        }
        cause = this.source();
    }
    let plain = if error.is_connect() { "no connection" } else { "the connection broke off" };
    TransportError::Lost(format!("{}{}", why.unwrap_or_else(|| plain.to_owned()), by_way_of(via)))
}

fn by_way_of(via: Option<&Route>) -> String {
    via.map(|proxy| format!(", by way of the proxy {proxy}")).unwrap_or_default()
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
