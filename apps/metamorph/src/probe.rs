//! One look at an HTTP server from this machine: its name, its port, its certificate, its answer and its clock, each told apart.
//!
//! Nothing secret is ever sent, so a certificate that is not trusted ends nothing: it is told. Everything takes ten seconds at most, and what is read is bounded.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use addresses::Allowed;
use axum::http::header::{ACCEPT, CONNECTION, DATE, HOST, HeaderName, HeaderValue, RANGE, USER_AGENT};
use axum::http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use terms::clean;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Time for a whole look.
pub const LONGEST: Duration = Duration::from_secs(10);
/// Time for one address.
const CONNECT: Duration = Duration::from_secs(3);
/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 4;
/// Longest reason, characters.
const MAX_WHY: usize = 300;
/// Names of a certificate that are told.
const MOST_NAMES: usize = 8;

/// What is asked.
pub struct Question<'a> {
    /// Of which address.
    pub url: &'a Url,
    /// Which local addresses may be called; `None` for an address that the person has typed.
    pub allowed: Option<&'a Allowed>,
    /// Whom to trust beside the system's authorities, PEM.
    pub authorities: &'a str,
    /// Whether one of these that is shown by the server itself is trusted, though it is an authority or another's: so the server trusts BMCs, and Kubernetes
    /// trusts webhooks; whoever reads images does not.
    pub by_itself: bool,
    /// GET, or HEAD.
    pub method: Method,
    /// The first bytes alone are asked for.
    pub range: Option<&'static str>,
    /// Most bytes of the body that are read.
    pub body: usize,
}

impl<'a> Question<'a> {
    /// A GET that reads nothing of the body.
    pub const fn get(url: &'a Url) -> Self {
        Self { url, allowed: None, authorities: "", by_itself: false, method: Method::GET, range: None, body: 0 }
    }
}

/// A certificate, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// From when it is valid.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
    /// Names that it is for.
    pub names: Vec<String>,
    /// Why nobody should trust it, if so.
    pub fault: Option<String>,
}

/// The answer.
#[derive(Debug)]
pub struct Answer {
    /// Who answered.
    pub at: SocketAddr,
    /// Its certificate, of HTTPS.
    pub certificate: Option<Certificate>,
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body's beginning.
    pub body: Vec<u8>,
    /// When it came, by this machine's clock.
    pub received: Timestamp,
}

impl Answer {
    /// How far the server's clock is ahead of this machine's, in seconds; negative if it is behind. `Date` has whole seconds.
    pub fn skew(&self) -> Option<i64> {
        let date = self.headers.get(DATE)?.to_str().ok()?;
        let date = httpdate::parse_http_date(date).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(i64::try_from(date.as_secs()).ok()?.saturating_sub(self.received.as_second()))
    }

    /// A header's value, fit to be shown.
    pub fn header(&self, name: &HeaderName) -> Option<String> {
        Some(clean(self.headers.get(name)?.to_str().ok()?, MAX_WHY))
    }
}

/// An answer whose body is still to be read.
pub struct Opened {
    /// All but the body.
    pub answer: Answer,
    body: Incoming,
    /// The connection, which ends with this.
    _driven: JoinSet<hyper::Result<()>>,
    _sender: SendRequest<Empty<Bytes>>,
}

impl Opened {
    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// [`Trouble`]: it breaks off, or nothing comes for [`LONGEST`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        loop {
            let frame = timeout(LONGEST, self.body.frame()).await.map_err(|_| Trouble::Time)?;
            let Some(frame) = frame else { return Ok(None) };
            // What is no data are trailers.
            if let Ok(data) = frame.map_err(|error| http(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// What kept it from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is a local address that is not to be called.
    NotAllowed(String),
    /// It cannot be asked: another scheme, no host.
    Unusable(String),
    /// The name has no address.
    Name(String),
    /// Nobody takes the connection.
    Connect(String),
    /// TLS does not come to an end.
    Tls(String),
    /// No HTTP comes back.
    Http(String),
    /// It took longer than [`LONGEST`].
    Time,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAllowed(why) => write!(f, "{why} (--allow-address)"),
            Self::Unusable(why) => write!(f, "it cannot be asked: {why}"),
            Self::Name(why) => write!(f, "the name has no address: {why}"),
            Self::Connect(why) => write!(f, "no connection: {why}"),
            Self::Tls(why) => write!(f, "TLS fails: {why}"),
            Self::Http(why) => write!(f, "no answer by HTTP: {why}"),
            Self::Time => write!(f, "no answer within {} s", LONGEST.as_secs()),
        }
    }
}

/// Asks.
///
/// # Errors
/// [`Trouble`].
pub async fn ask(question: &Question<'_>) -> Result<Answer, Trouble> {
    timeout(LONGEST, asked(question)).await.unwrap_or(Err(Trouble::Time))
}

async fn asked(question: &Question<'_>) -> Result<Answer, Trouble> {
    let mut opened = begun(question).await?;
    let mut read = Vec::new();
    while read.len() < question.body {
        let Some(data) = opened.next().await? else { break };
        let room = question.body - read.len();
        read.extend_from_slice(data.get(..data.len().min(room)).unwrap_or_default());
    }
    Ok(Answer { body: read, ..opened.answer })
}

/// Asks for what is too large to be kept: the body is the caller's to read, whatever the question says of it.
///
/// # Errors
/// [`Trouble`].
pub async fn open(question: &Question<'_>) -> Result<Opened, Trouble> {
    timeout(LONGEST, begun(question)).await.unwrap_or(Err(Trouble::Time))
}

async fn begun(question: &Question<'_>) -> Result<Opened, Trouble> {
    let url = question.url;
    let tls = match url.scheme() {
        "https" => true,
        "http" => false,
        other => return Err(Trouble::Unusable(format!("its scheme is {}", clean(other, 40)))),
    };
    let host = url.host().ok_or_else(|| Trouble::Unusable("it names no host".to_owned()))?.to_owned();
    let port = url.port_or_known_default().unwrap_or(if tls { 443 } else { 80 });
    let addresses = resolve(&host, port, question.allowed).await?;
    let (stream, at) = connect(&addresses).await?;
    if !tls {
        return exchange(question, stream, at, None).await;
    }
    let name = match &host {
        Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| unusable(&error))?,
        Host::Ipv4(ip) => ServerName::from(std::net::IpAddr::from(*ip)),
        Host::Ipv6(ip) => ServerName::from(std::net::IpAddr::from(*ip)),
    };
    let (config, seen) = config(question.authorities, question.by_itself)?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| Trouble::Tls(clean(&error.to_string(), MAX_WHY)))?;
    let chain = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let fault = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    let certificate = chain.map(|certificate| {
        let unreadable = || Certificate {
            not_before: Timestamp::MIN,
            not_after: Timestamp::MAX,
            names: Vec::new(),
            fault: Some(fault.clone().unwrap_or_else(|| "it cannot be read".to_owned())),
        };
        described(certificate, fault.clone()).unwrap_or_else(unreadable)
    });
    exchange(question, stream, at, certificate).await
}

fn unusable(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Unusable(clean(&error.to_string(), MAX_WHY))
}

/// The addresses of a host that may be called.
async fn resolve(host: &Host<String>, port: u16, allowed: Option<&Allowed>) -> Result<Vec<SocketAddr>, Trouble> {
    let found: Vec<SocketAddr> = match host {
        Host::Ipv4(ip) => vec![SocketAddr::from((*ip, port))],
        Host::Ipv6(ip) => vec![SocketAddr::from((*ip, port))],
        Host::Domain(name) => tokio::net::lookup_host((name.as_str(), port))
            .await
            .map_err(|error| Trouble::Name(clean(&error.to_string(), MAX_WHY)))?
            .collect(),
    };
    let mut good = match allowed {
        Some(allowed) => allowed.among(found).map_err(|refused| Trouble::NotAllowed(refused.to_string()))?,
        None => found,
    };
    good.truncate(MOST_ADDRESSES);
    if good.is_empty() { Err(Trouble::Name("it has none".to_owned())) } else { Ok(good) }
}

async fn connect(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Trouble> {
    let mut why = String::new();
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, *address)),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: nobody answers within {} s", CONNECT.as_secs()),
        }
    }
    Err(Trouble::Connect(clean(&why, MAX_WHY)))
}

async fn exchange(
    question: &Question<'_>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    at: SocketAddr,
    certificate: Option<Certificate>,
) -> Result<Opened, Trouble> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| http(&error))?;
    let mut driven = JoinSet::new();
    driven.spawn(connection);
    let url = question.url;
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let authority = match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let agent = concat!("metamorph/", env!("CARGO_PKG_VERSION"));
    let mut request = Request::builder()
        .method(question.method.clone())
        .uri(path)
        .header(HOST, HeaderValue::from_str(&authority).map_err(|error| http(&error))?)
        .header(USER_AGENT, agent)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close");
    if let Some(range) = question.range {
        request = request.header(RANGE, range);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| http(&error))?;
    let answered = sender.send_request(request).await.map_err(|error| http(&error))?;
    let received = Timestamp::now();
    let (head, body) = answered.into_parts();
    let (status, headers) = (head.status.as_u16(), head.headers);
    let answer = Answer { at, certificate, status, headers, body: Vec::new(), received };
    Ok(Opened { answer, body, _driven: driven, _sender: sender })
}

fn http(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Http(clean(&error.to_string(), MAX_WHY))
}

/// The certificate's facts.
pub fn described(der: &CertificateDer<'_>, fault: Option<String>) -> Option<Certificate> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    // Without an end (RFC 5280, section 4.1.2.5) is the end of year 9999, which is later than a Timestamp may be.
    let at = |time: &x509_parser::time::ASN1Time| {
        let end = if time.timestamp() > 0 { Timestamp::MAX } else { Timestamp::MIN };
        Timestamp::from_second(time.timestamp()).unwrap_or(end)
    };
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let names: Vec<String> = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(clean(name, 100)),
            GeneralName::IPAddress(bytes) => match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
                16 => <[u8; 16]>::try_from(*bytes).ok().map(|ip| std::net::Ipv6Addr::from(ip).to_string()),
                _ => None,
            },
            _ => None,
        })
        .take(MOST_NAMES)
        .collect();
    let validity = parsed.validity();
    Some(Certificate { not_before: at(&validity.not_before), not_after: at(&validity.not_after), names, fault })
}

type Fault = Arc<Mutex<Option<String>>>;

/// TLS that goes through with any certificate, and keeps what is wrong with it.
fn config(authorities: &str, by_itself: bool) -> Result<(Arc<ClientConfig>, Fault), Trouble> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let given: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(authorities.as_bytes()).filter_map(Result::ok).collect();
    roots.add_parsable_certificates(given.iter().cloned());
    let inner = match roots.is_empty() {
        true => None,
        false => WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().ok(),
    };
    let fault = Fault::default();
    let given = if by_itself { given } else { Vec::new() };
    let verifier = Telling { inner, given, fault: Arc::clone(&fault), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Trouble::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((Arc::new(config), fault))
}

/// Verifies as usual, and lets pass whatever comes of it.
#[derive(Debug)]
struct Telling {
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Those that are trusted by themselves.
    given: Vec<CertificateDer<'static>>,
    fault: Fault,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Telling {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let judged = match &self.inner {
            // As the server does.
            _ if self.given.iter().any(|given| given.as_ref() == end_entity.as_ref()) => {
                redfish::by_itself(end_entity, server_name, now)
            }
            Some(inner) => inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Err(rustls::CertificateError::UnknownIssuer.into()),
        };
        if let Err(error) = judged {
            let told = clean(&error.to_string(), MAX_WHY);
            *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server of one answer.
    async fn serve(answer: Vec<u8>) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a?b", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 1024];
            let _ = stream.read(&mut asked).await.unwrap();
            let _ = stream.write_all(&answer).await;
        });
        Url::parse(&url).unwrap()
    }

    #[tokio::test]
    async fn an_answer_tells_status_clock_and_a_bounded_body() {
        let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(3600));
        let answer = format!("HTTP/1.1 206 Partial\r\nDate: {date}\r\nContent-Length: 10\r\n\r\n0123456789");
        let url = serve(answer.into_bytes()).await;
        let answer = ask(&Question { body: 4, ..Question::get(&url) }).await.unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (206, &b"0123"[..]));
        let skew = answer.skew().unwrap();
        assert!((3590..=3605).contains(&skew), "{skew}");
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_end_and_one_that_breaks_off_has_none() {
        for (length, whole) in [(10, true), (11, false)] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n0123456789");
            let url = serve(answer.into_bytes()).await;
            let mut opened = open(&Question::get(&url)).await.unwrap();
            let mut read = Vec::new();
            let end = loop {
                match opened.next().await {
                    Ok(Some(data)) => read.extend_from_slice(&data),
                    Ok(None) => break Ok(()),
                    Err(trouble) => break Err(trouble),
                }
            };
            assert_eq!((read.as_slice(), end.is_ok()), (&b"0123456789"[..], whole), "{end:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_to_be_called_is_not_and_nonsense_is_no_answer() {
        let url = serve(b"SSH-2.0-x\r\n".to_vec()).await;
        let none = Allowed::default();
        let refused = ask(&Question { allowed: Some(&none), ..Question::get(&url) }).await.unwrap_err();
        assert!(matches!(refused, Trouble::NotAllowed(_)), "{refused}");
        assert!(matches!(ask(&Question::get(&url)).await.unwrap_err(), Trouble::Http(_)));
        for (text, said) in [("ftp://h/x", "its scheme is ftp"), ("http://127.0.0.1:1/", "no connection")] {
            let trouble = ask(&Question::get(&Url::parse(text).unwrap())).await.unwrap_err().to_string();
            assert!(trouble.contains(said), "{trouble}");
        }
    }

    #[tokio::test]
    async fn a_certificate_that_nobody_trusts_is_told_and_one_that_is_given_is_trusted() {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "bmc.example".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(9999, 12, 31);
        // As `openssl req -x509` makes them.
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der], rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("https://{}/", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            for _ in 0..4 {
                let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
                let mut asked = [0; 1024];
                let _ = stream.read(&mut asked).await.unwrap();
                stream.write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        });
        let answer = ask(&Question::get(&url)).await.unwrap();
        let seen = answer.certificate.unwrap();
        assert!(answer.status == 404 && seen.fault.is_some(), "{seen:?}");
        assert_eq!(seen.names, ["127.0.0.1", "bmc.example"]);
        assert_eq!(seen.not_after, Timestamp::MAX);
        let given = Question { authorities: &pem, by_itself: true, ..Question::get(&url) };
        assert_eq!(ask(&given).await.unwrap().certificate.unwrap().fault, None);
        // Who reads images takes no authority for a server.
        let answer = ask(&Question { by_itself: false, ..given }).await.unwrap();
        assert!(answer.certificate.unwrap().fault.is_some());
        // One that is given and bears other names is not for this one.
        let renamed = Url::parse(&format!("https://localhost:{}/", url.port().unwrap())).unwrap();
        let question = Question { authorities: &pem, by_itself: true, ..Question::get(&renamed) };
        let answer = ask(&question).await.unwrap();
        assert!(answer.certificate.unwrap().fault.is_some());
    }
}
