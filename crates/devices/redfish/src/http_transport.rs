//! HTTP/1.1 to a BMC, over TLS unless the address says otherwise.
//!
//! One connection is kept for the next request. Many BMCs close theirs at any moment without notice: this is checked right before a request is
//! written, so that a request that could not have arrived is sent over another connection. A request that is lost after it was written is reported as
//! [`TransportError::Dropped`]; callers decide whether to repeat it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use addresses::Allowed;
use async_trait::async_trait;
use bmc::{Address, HostName, Security};
use http::header::{CONNECTION, HOST, HeaderValue, USER_AGENT};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::metered::{Meter, Metered};
use crate::tls::{self, TlsFault};
use crate::tls_probe;
use crate::transport::{MAX_BODY, Opened, Over, Pieces, Request, Response, Transport, TransportError};
use terms::clean;

pub use crate::tls::{Tls, TlsError};

/// Time for a TCP connection, all of a name's addresses together.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for a TLS handshake: small processors need seconds for it.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Time for a whole exchange.
const OVERALL: Duration = Duration::from_secs(60);
/// A connection is kept for so long after an answer: BMCs have few.
const IDLE: Duration = Duration::from_secs(20);
/// A request that must not be lost uses a connection only if it was in use this recently, else a new one: servers commonly close idle connections
/// after 5 s at the earliest.
const LATELY: Duration = Duration::from_secs(2);
/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

type Body = Full<Bytes>;

/// The network transport to one BMC.
pub struct HttpTransport {
    host: HostName,
    port: u16,
    allowed: Allowed,
    /// `Host` of each request.
    authority: HeaderValue,
    tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
    idle: Slot,
    key: Mutex<Option<String>>,
    limits: Limits,
}

/// How long a connection may take, and how large an answer may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time for a TCP connection.
    pub connect: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Largest body, bytes.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: CONNECT, handshake: HANDSHAKE, body: MAX_BODY }
    }
}

type Slot = Arc<Mutex<Option<Connection>>>;

/// A connection between two requests.
struct Connection {
    sender: SendRequest<Body>,
    /// The same socket, to see whether the other side has ended it.
    socket: std::net::TcpStream,
    key: Option<String>,
    answered: Instant,
    meter: Meter,
}

impl Connection {
    /// Nothing has arrived since the last answer: neither an end of stream nor data.
    fn is_quiet(&self) -> bool {
        let seen = self.socket.peek(&mut [0]);
        !self.sender.is_closed() && matches!(seen, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl std::fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpTransport").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// How a request went that was given to a connection.
enum Sent {
    /// The result, final.
    Over(Result<Response, TransportError>),
    /// The connection was already closed: nothing was written.
    Not(http::Request<Body>),
}

impl HttpTransport {
    /// A transport to this address, which connects to local addresses only if they are allowed. No connection is made yet.
    ///
    /// # Errors
    /// When the TLS settings cannot be used.
    pub fn new(address: &Address, tls: &Tls, allowed: &Allowed) -> Result<Self, TlsError> {
        let origin = address.origin();
        let authority = origin.split_once("://").map_or(origin.as_str(), |(_, rest)| rest);
        let authority = HeaderValue::from_str(authority).map_err(|_| TlsError::Name(address.host().to_string()))?;
        let tls = match address.security() {
            Security::Http => None,
            Security::Https => Some((tls::config(tls)?, name_of(address.host())?)),
        };
        let (host, port, allowed) = (address.host().clone(), address.port(), allowed.clone());
        let limits = Limits::default();
        Ok(Self { host, port, allowed, authority, tls, idle: Slot::default(), key: Mutex::default(), limits })
    }

    /// The same within other limits.
    #[must_use]
    pub(crate) fn within(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    async fn exchange(&self, request: &Request) -> Result<Response, TransportError> {
        let mut built = self.built(request)?;
        if let Some(connection) = self.kept(request).await {
            match self.over(connection, built, true).await {
                Sent::Over(result) => return result,
                Sent::Not(back) => built = back,
            }
        }
        let connection = self.connect().await?;
        match self.over(connection, built, false).await {
            Sent::Over(result) => result,
            Sent::Not(_) => Err(TransportError::Connect { detail: "it was ended at once".to_owned() }),
        }
    }

    fn built(&self, request: &Request) -> Result<http::Request<Body>, TransportError> {
        let body = Full::new(Bytes::from(request.body.clone().unwrap_or_default()));
        let mut built = http::Request::new(body);
        *built.method_mut() = request.method.clone();
        let path = request.path.parse();
        *built.uri_mut() = path.map_err(|_| TransportError::Protocol {
            detail: format!("{:?} is no path of a request", clean(&request.path, 200)),
        })?;
        *built.headers_mut() = request.headers.clone();
        built.headers_mut().insert(HOST, self.authority.clone());
        let agent = HeaderValue::from_static(concat!("metamorph/", env!("CARGO_PKG_VERSION")));
        built.headers_mut().insert(USER_AGENT, agent);
        if request.over == Over::Own {
            // The connection will not be used again.
            built.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(built)
    }

    /// The kept connection, if this request may use it and the BMC has not closed it.
    async fn kept(&self, request: &Request) -> Option<Connection> {
        let mut connection = locked(&self.idle).take()?;
        let limit = if request.method == http::Method::POST { LATELY } else { IDLE };
        if request.over != Over::Any || connection.answered.elapsed() >= limit || !connection.is_quiet() {
            return None;
        }
        connection.sender.ready().await.ok()?;
        connection.is_quiet().then_some(connection)
    }

    /// Sends over this connection and reads the answer; then the connection is kept, if it can be.
    async fn over(&self, mut connection: Connection, request: http::Request<Body>, reused: bool) -> Sent {
        let keep = !request.headers().contains_key(CONNECTION);
        connection.meter.restart();
        let answer = match connection.sender.try_send_request(request).await {
            Ok(answer) => answer,
            Err(mut error) => {
                return match error.take_message() {
                    Some(request) => Sent::Not(request),
                    None => Sent::Over(Err(lost(&error.into_error(), reused))),
                };
            }
        };
        self.key.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&connection.key);
        let response = read(answer, reused, self.limits.body).await;
        if keep && response.is_ok() && !connection.sender.is_closed() {
            self.keep(connection);
        }
        Sent::Over(response)
    }

    fn keep(&self, mut connection: Connection) {
        let answered = Instant::now();
        connection.answered = answered;
        *locked(&self.idle) = Some(connection);
        let slot: Weak<_> = Arc::downgrade(&self.idle);
        tokio::spawn(async move {
            tokio::time::sleep(IDLE).await;
            if let Some(slot) = slot.upgrade() {
                let mut slot = locked(&slot);
                if slot.as_ref().is_some_and(|kept| kept.answered == answered) {
                    *slot = None;
                }
            }
        });
    }

    async fn connect(&self) -> Result<Connection, TransportError> {
        let stream = self.tcp().await?;
        let socket = |stream: TcpStream| -> std::io::Result<(TcpStream, std::net::TcpStream)> {
            stream.set_nodelay(true)?;
            let stream = stream.into_std()?;
            let second = stream.try_clone()?;
            Ok((TcpStream::from_std(stream)?, second))
        };
        let (stream, second) = socket(stream).map_err(|error| refused(&error))?;
        // Beneath TLS, whose own messages count too.
        let meter = Meter::default();
        let stream = Metered::new(stream, meter.clone());
        let Some((config, name)) = &self.tls else {
            return begun(stream, second, None, meter).await;
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = match timeout(self.limits.handshake, connector.connect(name.clone(), stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.no_tls(&error).await),
            Err(_) => return Err(TransportError::Unconnected { seconds: self.limits.handshake.as_secs() }),
        };
        let key = stream.get_ref().1.peer_certificates().and_then(|chain| key_of(chain.first()?));
        begun(stream, second, key, meter).await
    }

    /// The error of a failed handshake; without a common version or cipher suite, probes what the BMC supports.
    async fn no_tls(&self, error: &std::io::Error) -> TransportError {
        match tls::fault_of(error) {
            TlsFault::Certificate(detail) => TransportError::Certificate { detail },
            TlsFault::Other(detail) => TransportError::Tls { detail },
            TlsFault::NothingInCommon(detail) => {
                let theirs = match self.tcp().await {
                    Ok(stream) => tls_probe::ask(stream, &self.host).await,
                    Err(_) => None,
                };
                match theirs {
                    Some(theirs) => TransportError::NoCommonTls {
                        detail: format!("the BMC offers {theirs}; this server offers {}", tls::offered()),
                    },
                    None => TransportError::Tls { detail: format!("{detail}; this server offers {}", tls::offered()) },
                }
            }
        }
    }

    /// Connects to the first of the host's addresses that is allowed and accepts. The addresses checked are the ones connected to, so a DNS name
    /// cannot change in between.
    async fn tcp(&self) -> Result<TcpStream, TransportError> {
        let found: Vec<SocketAddr> = match &self.host {
            HostName::V4(address) => vec![(IpAddr::V4(*address), self.port).into()],
            HostName::V6(address) => vec![(IpAddr::V6(*address), self.port).into()],
            HostName::Dns(name) => match timeout(CONNECT, tokio::net::lookup_host((name.as_str(), self.port))).await {
                Ok(Ok(found)) => found.take(MAX_ADDRESSES).collect(),
                Ok(Err(error)) => return Err(refused(&error)),
                Err(_) => return Err(TransportError::Unconnected { seconds: CONNECT.as_secs() }),
            },
        };
        let by_name = matches!(self.host, HostName::Dns(_));
        let found = self.allowed.among(found).map_err(|refused| TransportError::NotAllowed { refused, by_name })?;
        let share = self.limits.connect / u32::try_from(found.len().max(1)).unwrap_or(1);
        let mut last = TransportError::Connect { detail: "the name has no address".to_owned() };
        for address in found {
            last = match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => refused(&error),
                Err(_) => TransportError::Unconnected { seconds: self.limits.connect.as_secs() },
            };
        }
        Err(last)
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        match timeout(OVERALL, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::Timeout { seconds: OVERALL.as_secs() }),
        }
    }

    async fn open(&self, request: &Request) -> Result<Opened, TransportError> {
        let opening = async {
            let built = self.built(request)?;
            let mut connection = self.connect().await?;
            let answer = connection.sender.try_send_request(built).await;
            let (parts, incoming) = answer.map_err(|error| lost(&error.into_error(), false))?.into_parts();
            let pieces = Box::new(Arriving { connection, incoming });
            Ok(Opened { status: parts.status.as_u16(), headers: parts.headers, pieces })
        };
        match timeout(OVERALL, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(TransportError::Timeout { seconds: OVERALL.as_secs() }),
        }
    }

    async fn shown_certificate(&self) -> Option<Vec<u8>> {
        let (_, name) = self.tls.as_ref()?;
        let config = tls::config(&Tls { accept_any_certificate: true, extra_ca_pem: None }).ok()?;
        let stream = Metered::new(self.tcp().await.ok()?, Meter::default());
        let connecting = TlsConnector::from(config).connect(name.clone(), stream);
        let stream = timeout(HANDSHAKE, connecting).await.ok()?.ok()?;
        stream.get_ref().1.peer_certificates()?.first().map(|shown| shown.as_ref().to_vec())
    }

    fn key_sha256(&self) -> Option<String> {
        self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A body that goes on.
struct Arriving {
    connection: Connection,
    incoming: Incoming,
}

#[async_trait]
impl Pieces for Arriving {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        self.connection.meter.restart();
        loop {
            match self.incoming.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(lost(&error, false)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data.to_vec()));
                    }
                }
            }
        }
    }
}

fn locked(slot: &Mutex<Option<Connection>>) -> MutexGuard<'_, Option<Connection>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(host: &HostName) -> Result<ServerName<'static>, TlsError> {
    match host {
        HostName::V4(address) => Ok(IpAddr::V4(*address).into()),
        HostName::V6(address) => Ok(IpAddr::V6(*address).into()),
        HostName::Dns(name) => ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name.clone())),
    }
}

/// Starts HTTP on a stream.
async fn begun<S>(
    stream: S,
    socket: std::net::TcpStream,
    key: Option<String>,
    meter: Meter,
) -> Result<Connection, TransportError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, driver) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| TransportError::Connect { detail: clean(&innermost(&error), 300) })?;
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::trace!(%error, "a connection to a BMC ended");
        }
    });
    Ok(Connection { sender, socket, key, answered: Instant::now(), meter })
}

async fn read(answer: http::Response<Incoming>, reused: bool, most: usize) -> Result<Response, TransportError> {
    let (parts, mut incoming) = answer.into_parts();
    let declared =
        parts.headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > most as u64) {
        return Err(TransportError::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| lost(&error, false))?;
        let Some(data) = frame.data_ref() else { continue };
        if body.len() + data.len() > most {
            return Err(TransportError::TooLarge);
        }
        body.extend_from_slice(data);
    }
    Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body, reused, path: String::new() })
}

/// Digest of the public key in a certificate.
fn key_of(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(hex::encode(Sha256::digest(certificate.public_key().raw)))
}

fn refused(error: &std::io::Error) -> TransportError {
    TransportError::Connect { detail: clean(&error.to_string(), 300) }
}

fn lost(error: &hyper::Error, reused: bool) -> TransportError {
    let detail = clean(&innermost(error), 300);
    if error.is_parse() { TransportError::Protocol { detail } } else { TransportError::Dropped { detail, reused } }
}

/// The text of the innermost cause.
fn innermost(error: &hyper::Error) -> String {
    let first: &(dyn std::error::Error + 'static) = error;
    let last = std::iter::successors(Some(first), |cause| cause.source()).take(16).last();
    last.map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration has the system's authorities and a cache of sessions in it: a thousand BMCs share one for each setting of trust.
    #[test]
    fn tls_is_set_up_once_for_all_bmcs_that_are_trusted_alike() {
        let rcgen::CertifiedKey { cert, .. } = rcgen::generate_simple_self_signed(vec!["bmc".into()]).unwrap();
        let settings = [
            Tls { accept_any_certificate: true, extra_ca_pem: None },
            Tls { accept_any_certificate: false, extra_ca_pem: Some(cert.pem()) },
        ];
        let made: Vec<HttpTransport> = (0..200)
            .map(|n| {
                let address = Address::parse(&format!("redfish://bmc-{n}.example.org")).unwrap();
                HttpTransport::new(&address, &settings[n % settings.len()], &Allowed::default()).unwrap()
            })
            .collect();
        let configs: std::collections::BTreeSet<_> =
            made.iter().filter_map(|made| made.tls.as_ref()).map(|(config, _)| Arc::as_ptr(config)).collect();
        assert_eq!((made.len(), configs.len()), (200, settings.len()));
    }
}
