//! What the endpoints for agents and BMCs bear: connections in all and of one peer, and the time until a request's head is there. They are open to
//! everybody on the machines' networks.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time for a request's head, from the beginning of the connection or the end of the request before.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Most connections of one endpoint. An agent has one, a BMC a few.
const MOST: u64 = 8192;
/// Most connections of one peer to one endpoint: machines behind a router that translates addresses are one peer.
const MOST_OF_PEER: usize = 512;
/// File descriptors that this program asks for.
const DESCRIPTORS: u64 = 65_536;
/// A refusal is logged at most this often.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The endpoint's server with limits and time-outs, of HTTP/1 alone.
pub fn limited<A>(
    server: Server<SocketAddr, A>,
    name: &'static str,
    handle: Handle<SocketAddr>,
) -> Server<SocketAddr, Limited<A>> {
    let mut server =
        server.handle(handle).map(|inner| Limited { inner, limits: Limits::new(name, most(), MOST_OF_PEER) });
    // One connection is one request at a time: what is in flight is bounded with them.
    server = server.http1_only();
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(64 << 10);
    server
}

/// The configuration of an endpoint over TLS. What is served is HTTP/1, and nothing else is to be agreed on.
pub async fn tls_of(what: &str, certificate: &str, key: &str) -> anyhow::Result<RustlsConfig> {
    let (certificate, key) = (certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
    let config = RustlsConfig::from_pem(certificate, key)
        .await
        .map_err(|e| anyhow!("use the {what}'s certificate and key: {e}"))?;
    let mut inner = rustls::ServerConfig::clone(&config.get_inner());
    inner.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(inner)))
}

/// As many connections as file descriptors allow: a quarter of them an endpoint. The soft limit is raised to the hard one first, which is what it is
/// there for.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let mut current = limit.current.unwrap_or(DESCRIPTORS);
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        current = wanted;
    }
    usize::try_from((current / 4).clamp(64, MOST)).unwrap_or(64)
}

/// Places of one endpoint's connections.
#[derive(Clone)]
struct Limits {
    name: &'static str,
    all: Arc<Semaphore>,
    of_peer: usize,
    peers: Arc<Mutex<Peers>>,
}

#[derive(Default)]
struct Peers {
    open: HashMap<IpAddr, usize>,
    logged: Option<Instant>,
}

impl Limits {
    fn new(name: &'static str, all: usize, of_peer: usize) -> Self {
        Self { name, all: Arc::new(Semaphore::new(all)), of_peer, peers: Arc::default() }
    }

    /// A place for a connection from there.
    fn enter(&self, from: IpAddr) -> Option<Place> {
        let peer = peer(from);
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let open = peers.open.get(&peer).copied().unwrap_or(0);
        // What runs on this machine, a simulator for instance, is many machines.
        let few = open < self.of_peer || peer.is_loopback();
        let permit = few.then(|| Arc::clone(&self.all).try_acquire_owned().ok()).flatten();
        let Some(permit) = permit else {
            if peers.logged.is_none_or(|at| at.elapsed() >= LOGGED_EVERY) {
                peers.logged = Some(Instant::now());
                tracing::warn!(endpoint = self.name, %from, open, "refused a connection: there are too many");
            }
            return None;
        };
        *peers.open.entry(peer).or_default() += 1;
        Some(Place { peer, peers: Arc::clone(&self.peers), _permit: permit })
    }
}

/// Who counts as one: an IPv4 address, the network of an IPv6 address.
fn peer(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// A connection's place, given back with it.
struct Place {
    peer: IpAddr,
    peers: Arc<Mutex<Peers>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = peers.open.get_mut(&self.peer) {
            *open -= 1;
            if *open == 0 {
                peers.open.remove(&self.peer);
            }
        }
    }
}

/// Accepts within the limits.
#[derive(Clone)]
pub struct Limited<A> {
    inner: A,
    limits: Limits,
}

impl<A, S> Accept<TcpStream, S> for Limited<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
    A::Stream: Send + 'static,
    A::Service: Send + 'static,
{
    type Stream = Held<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let place = stream.peer_addr().ok().and_then(|from| self.limits.enter(from.ip()));
        let Some(place) = place else {
            return Box::pin(std::future::ready(Err(io::Error::other("too many connections"))));
        };
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            Ok((Held { stream, _place: place }, service))
        })
    }
}

/// A connection in its place.
pub struct Held<I> {
    stream: I,
    _place: Place,
}

impl<I: AsyncRead + Unpin> AsyncRead for Held<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Held<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn places_are_counted_by_peer_and_in_all_and_given_back() {
        let limits = Limits::new("test", 5, 2);
        let one: Vec<Place> = (0..3).filter_map(|_| limits.enter(address("192.0.2.1"))).collect();
        assert_eq!(one.len(), 2);
        let mapped = limits.enter(address("::ffff:192.0.2.1"));
        assert!(mapped.is_none(), "the same peer by another spelling");
        let network: Vec<Place> = (1..4).filter_map(|n| limits.enter(address(&format!("2001:db8::{n}")))).collect();
        assert_eq!(network.len(), 2, "a network of IPv6 is one peer");
        let last = limits.enter(address("127.0.0.1"));
        assert!(last.is_some() && limits.enter(address("127.0.0.1")).is_none(), "five in all");
        drop((one, network, last));
        let own: Vec<Place> = (0..9).filter_map(|_| limits.enter(address("127.0.0.1"))).collect();
        assert_eq!(own.len(), 5, "this machine's own are not counted by peer");
        drop(own);
        assert!(limits.peers.lock().unwrap().open.is_empty());
    }

    /// The server's address.
    fn serve() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        let server = limited(axum_server::from_tcp(listener).unwrap(), "test", Handle::new());
        tokio::spawn(async move { server.serve(router.into_make_service()).await });
        address
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_head_is_cut_off() {
        let address = serve();
        for begun in ["", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            let mut answer = Vec::new();
            // An end, or a reset.
            let _ = tokio::time::timeout(Duration::from_secs(3600), stream.read_to_end(&mut answer))
                .await
                .expect("the server ends it");
            assert!(begun.elapsed() <= HEAD_TIME + Duration::from_secs(1), "{:?}", begun.elapsed());
            assert!(!String::from_utf8_lossy(&answer).contains("200"));
        }
    }

    #[tokio::test]
    async fn requests_are_answered() {
        let mut stream = TcpStream::connect(serve()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }
}
