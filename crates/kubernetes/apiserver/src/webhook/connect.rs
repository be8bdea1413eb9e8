//! Connections to webhooks: TCP, TLS, HTTP/1.1, and a few idle ones kept for the next call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Idle connections kept for one webhook.
const MAX_IDLE: usize = 16;
/// How long one is kept.
const IDLE_TIME: Duration = Duration::from_secs(90);

/// A connection that takes requests, one after another.
pub type Sender = SendRequest<Full<Bytes>>;

/// Idle connections.
#[derive(Default)]
pub struct Idle {
    kept: Mutex<Vec<(Instant, Sender)>>,
}

impl Idle {
    /// The connection used last that is still open and young enough.
    pub fn take(&self) -> Option<Sender> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((since, sender)) = kept.pop() {
            if since.elapsed() < IDLE_TIME && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection for the next call, if there is room.
    pub fn keep(&self, sender: Sender) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, sender)| since.elapsed() < IDLE_TIME && !sender.is_closed());
        if kept.len() < MAX_IDLE && !sender.is_closed() {
            kept.push((Instant::now(), sender));
        }
    }
}

/// Connects to `host:port` and checks that the certificate is for `name`.
pub async fn dial(host: &str, port: u16, name: &str, tls: Arc<ClientConfig>) -> Result<Sender, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await.map_err(|e| refused(bare, port, &e))?;
    let _ = stream.set_nodelay(true);
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| format!("{name:?} is no name of a server"))?;
    let stream = TlsConnector::from(tls).connect(server, stream).await.map_err(|e| untrusted(&e, &name))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    // Ends with the connection: when the sender is dropped, or the other side hangs up.
    tokio::spawn(connection);
    Ok(sender)
}

fn refused(host: &str, port: u16, error: &std::io::Error) -> String {
    let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {place}: connect: connection refused"),
        std::io::ErrorKind::TimedOut => format!("dial tcp {place}: connect: connection timed out"),
        std::io::ErrorKind::NetworkUnreachable => format!("dial tcp {place}: connect: network is unreachable"),
        std::io::ErrorKind::HostUnreachable => format!("dial tcp {place}: connect: no route to host"),
        _ if host.parse::<std::net::IpAddr>().is_err() => format!("dial tcp: lookup {host}: no such host"),
        _ => format!("dial tcp {place}: connect: {error}"),
    }
}

/// What Go's TLS client says of a certificate that does not hold.
fn untrusted(error: &std::io::Error, name: &str) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = inner else {
        return match error.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => "EOF".to_owned(),
            _ => format!("tls: {error}"),
        };
    };
    let detail = match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "certificate is not valid for any names, but wanted to match ".to_owned() + name
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().map(|n| plain_name(n)).collect();
            format!("certificate is valid for {}, not {name}", names.join(", "))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {detail}")
}

/// `DnsName("a")` or `IpAddress(1.2.3.4)` as the bare name.
fn plain_name(presented: &str) -> String {
    let inner = presented.split_once('(').map_or(presented, |(_, rest)| rest.trim_end_matches(')'));
    inner.trim_matches('"').to_owned()
}

/// A connection that broke.
pub fn broken(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
