//! The network transport against real sockets: certificates, limits, silence.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::kit::{Bmc, PASSWORD, SYSTEM, local};
use addresses::Allowed;
use axum::Router;
use axum::body::Body;
use axum::extract::Request as HttpRequest;
use axum::response::IntoResponse;
use bmc::{Address, BmcRegistry, Credentials, ErrorKind};
use redfish::{Client, ClientOptions, HttpTransport, MAX_BODY, Request, Tls, Transport, TransportError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The BMC in memory behind a router, as a network service.
pub fn router(bmc: Arc<Bmc>) -> Router {
    Router::new().fallback(move |request: HttpRequest| {
        let bmc = Arc::clone(&bmc);
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let mut inner = Request::new(parts.method, parts.uri.path_and_query().unwrap().as_str(), None);
            inner.headers = parts.headers;
            inner.body = (!body.is_empty()).then(|| body.to_vec());
            let answer = bmc.send(&inner).await.unwrap();
            let mut response = axum::http::Response::builder().status(answer.status);
            *response.headers_mut().unwrap() = answer.headers;
            response.body(Body::from(answer.body)).unwrap()
        }
    })
}

async fn serve(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// Serves with a certificate of its own for 127.0.0.1; gives the certificate as PEM.
async fn serve_tls(router: Router) -> (SocketAddr, String) {
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let pem = pair.cert.pem();
    (serve_with(router, &pem, &pair.signing_key).await, pem)
}

/// Serves with this certificate.
pub async fn serve_with(router: Router, pem: &str, key: &rcgen::KeyPair) -> SocketAddr {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = key.serialize_pem().into_bytes();
    let config = axum_server::tls_rustls::RustlsConfig::from_pem(pem.to_owned().into_bytes(), key).await.unwrap();
    serve_config(router, config).await
}

/// Serves with this side of TLS.
pub async fn serve_config(router: Router, config: axum_server::tls_rustls::RustlsConfig) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum_server::from_tcp_rustls(listener, config).unwrap();
    tokio::spawn(async move { server.serve(router.into_make_service()).await.unwrap() });
    address
}

fn parsed(scheme: &str, at: SocketAddr) -> Address {
    Address::parse(&format!("redfish-virtualmedia+{scheme}://{at}{SYSTEM}")).unwrap()
}

fn client(scheme: &str, at: SocketAddr, tls: &Tls) -> Client {
    let credentials = Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    Client::connect(parsed(scheme, at), credentials, tls, &BmcRegistry::new(), local()).unwrap()
}

/// A peer that reads something and writes these bytes.
async fn raw(bytes: &'static [u8]) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = [0; 1024];
            let _ = stream.read(&mut some).await;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn plain_http_works_and_leaves_no_session() {
    let bmc = Bmc::generic();
    let at = serve(router(Arc::clone(&bmc))).await;
    let client = client("http", at, &Tls::default());
    assert_eq!(client.system().await.unwrap().path, SYSTEM);
    assert!(client.session_address().unwrap().starts_with(&format!("http://{at}/redfish")));
    client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 0);
}

#[tokio::test]
async fn certificates_are_verified_unless_switched_off_or_trusted() {
    let bmc = Bmc::generic();
    let (at, pem) = serve_tls(router(Arc::clone(&bmc))).await;
    let error = client("https", at, &Tls::default()).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TlsNotTrusted, "{error}");
    assert!(error.advice.contains("disableCertificateVerification"));
    assert!(bmc.take_log().is_empty(), "nothing was said to a stranger");

    let trusted = Tls { extra_ca_pem: Some(pem), ..Tls::default() };
    client("https", at, &trusted).system().await.unwrap();
    let any = Tls { accept_any_certificate: true, ..Tls::default() };
    client("https", at, &any).system().await.unwrap();
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let (at, pem) = serve_tls(router(Bmc::generic())).await;
    let trusted = Tls { extra_ca_pem: Some(pem), ..Tls::default() };
    let named = Address::parse(&format!("redfish-virtualmedia://localhost:{}{SYSTEM}", at.port())).unwrap();
    let transport = HttpTransport::new(&named, &trusted, &Allowed::loopback()).unwrap();
    let error = transport.send(&Request::new(http::Method::GET, "/redfish/v1/", None)).await.unwrap_err();
    assert!(matches!(&error, TransportError::Certificate { detail } if detail.contains("not made out")), "{error:?}");
}

#[tokio::test]
async fn nobody_there_no_tls_and_no_http_are_told_apart() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let error = client("http", gone, &Tls::default()).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");

    let plain = serve(router(Bmc::generic())).await;
    let error =
        client("https", plain, &Tls { accept_any_certificate: true, ..Tls::default() }).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.advice.contains("+http"), "{error} {}", error.advice);

    let ssh = raw(b"SSH-2.0-OpenSSH_9.2\r\n").await;
    let error = client("http", ssh, &Tls::default()).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");

    let mute = raw(b"").await;
    let error = client("http", mute, &Tls::default()).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);

    let torn = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\"").await;
    let error = client("http", torn, &Tls::default()).system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn local_addresses_are_not_called_unless_they_are_allowed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let credentials = || Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    let tls = Tls { accept_any_certificate: true, ..Tls::default() };
    let client = |host: &str, scheme: &str, ranges: &[&str]| {
        let address = Address::parse(&format!("redfish-virtualmedia+{scheme}://{host}:{port}{SYSTEM}")).unwrap();
        let allowed = Allowed::new(ranges.iter().map(|range| range.parse().unwrap()));
        let options = ClientOptions { allowed, ..ClientOptions::new("server-a") };
        Client::connect(address, credentials(), &tls, &BmcRegistry::new(), options).unwrap()
    };
    for (host, kind) in [
        ("127.0.0.1", ErrorKind::NotAllowed),
        ("0.0.0.0", ErrorKind::NotAllowed),
        ("[::ffff:127.0.0.1]", ErrorKind::NotAllowed),
        ("[::]", ErrorKind::NotAllowed),
        ("169.254.169.254", ErrorKind::NotAllowed),
        ("[fd00:ec2::254]", ErrorKind::NotAllowed),
        // A name may lead elsewhere tomorrow.
        ("localhost", ErrorKind::Unreachable),
    ] {
        for scheme in ["http", "https"] {
            let error = client(host, scheme, &["10.0.0.0/8"]).system().await.unwrap_err();
            assert_eq!(error.kind, kind, "{host}: {error}");
            assert!(error.to_string().contains("which is not called"), "{error}");
            assert!(error.advice.contains("--allow-address"), "{error:?}");
            // A metadata service is no link-local address like others.
            let ranges = ["0.0.0.0/0", "::/0"].map(|range| if host.contains("254") { range } else { "fe80::/10" });
            assert_eq!(client(host, scheme, &ranges).system().await.unwrap_err().kind, kind, "{host}");
        }
    }
    let nobody = futures::FutureExt::now_or_never(listener.accept());
    assert!(nobody.is_none(), "somebody has connected");
    let allowed = client("localhost", "http", &["127.0.0.0/8"]);
    let calling = tokio::spawn(async move { allowed.system().await });
    listener.accept().await.unwrap();
    calling.abort();
}

#[tokio::test]
async fn answers_are_read_up_to_the_limit() {
    // Of declared and of undeclared length.
    let big = || vec![b' '; MAX_BODY + 1];
    let declared = serve(Router::new().fallback(move || async move { big().into_response() })).await;
    let endless = Router::new().fallback(|| async {
        let chunk = || Ok::<_, std::io::Error>(vec![b' '; 1 << 16]);
        let stream = std::iter::repeat_with(chunk);
        Body::from_stream(Endless(stream)).into_response()
    });
    let endless = serve(endless).await;
    for at in [declared, endless] {
        let transport = HttpTransport::new(&parsed("http", at), &Tls::default(), &Allowed::loopback()).unwrap();
        let error = transport.send(&Request::new(http::Method::GET, "/redfish/v1/", None)).await.unwrap_err();
        assert!(matches!(error, TransportError::TooLarge), "{error:?}");
    }
}

/// An iterator as a stream.
struct Endless<I>(I);

impl<I: Iterator + Unpin> futures::Stream for Endless<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn redirects_are_not_followed_by_the_transport() {
    let elsewhere = serve(Router::new().fallback(|| async { "never asked" })).await;
    let target = format!("http://{elsewhere}/x");
    let redirecting = Router::new().fallback(move || async move { axum::response::Redirect::temporary(&target) });
    let at = serve(redirecting).await;
    let transport = HttpTransport::new(&parsed("http", at), &Tls::default(), &Allowed::loopback()).unwrap();
    let answer = transport.send(&Request::new(http::Method::GET, "/redfish/v1/", None)).await.unwrap();
    assert_eq!(answer.status, 307);
    let error = client("http", at, &Tls::default()).system().await.unwrap_err();
    assert!(error.to_string().contains("redirect"), "{error}");
}

#[test]
fn a_broken_ca_file_is_named() {
    let address = Address::parse("redfish-virtualmedia://h").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let tls = Tls { extra_ca_pem: Some(broken), ..Tls::default() };
    assert!(HttpTransport::new(&address, &tls, &Allowed::default()).is_err());
}

/// A BMC that says without end that it is at work keeps no core busy: what belongs to one answer is bounded on the wire.
#[tokio::test]
async fn informational_answers_without_end_are_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    tokio::spawn(async move {
        let again = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(1000);
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await;
            while stream.write_all(&again).await.is_ok() {
                counted.fetch_add(again.len(), std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    let bmc = Address::parse(&format!("redfish+http://{address}/redfish/v1/Systems/1")).unwrap();
    let transport = HttpTransport::new(&bmc, &Tls::default(), &Allowed::loopback()).unwrap();
    let error = transport.send(&Request::new(http::Method::GET, SYSTEM, None)).await.unwrap_err();
    assert!(!matches!(error, TransportError::Timeout { .. }), "{error}");
    // What the sockets hold comes on top.
    assert!(sent.load(std::sync::atomic::Ordering::Relaxed) < 4 * MAX_BODY);
}

/// A BMC that takes connections and says nothing: when the time for TLS is over, no request has been sent.
#[tokio::test(start_paused = true)]
async fn a_time_out_before_there_is_a_connection_is_none_of_the_request() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let tls = Tls { accept_any_certificate: true, ..Tls::default() };
    let transport = HttpTransport::new(&parsed("https", at), &tls, &Allowed::loopback()).unwrap();
    let error = transport.send(&Request::new(http::Method::POST, SYSTEM, None)).await.unwrap_err();
    assert!(matches!(error, TransportError::Unconnected { .. }) && error.never_sent(), "{error}");
}

/// A BMC whose TLS never gets to an answer: its messages count as the answer's.
#[tokio::test]
async fn messages_of_tls_without_end_are_given_up() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![pair.cert.der().clone()], key)
        .unwrap();
    config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    config.send_tls13_tickets = 60_000;
    let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(config));
    let slow = Router::new().fallback(|| async { std::future::pending::<()>().await });
    let at = serve_config(slow, config).await;
    let tls = Tls { accept_any_certificate: true, ..Tls::default() };
    let transport = HttpTransport::new(&parsed("https", at), &tls, &Allowed::loopback()).unwrap();
    let error = transport.send(&Request::new(http::Method::GET, SYSTEM, None)).await.unwrap_err();
    assert!(!matches!(error, TransportError::Timeout { .. }), "{error}");
}
