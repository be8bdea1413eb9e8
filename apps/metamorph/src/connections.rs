//! Limits of the endpoints for agents and BMCs: connections in total and per peer, the time for a request's head, and the time in which a peer must
//! read some of its answer. Every machine on these networks can reach the endpoints.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use addresses::{PeerPlace, Peers};
use anyhow::anyhow;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Time for a request's head, from the start of the connection or the end of the previous request.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time in which the peer must read some of its answer: twice the common value, for BMCs that read a medium at their machine's pace. A slow peer that
/// reads a little now and then is fine.
const TAKE_TIME: Duration = Duration::from_secs(120);
/// Unsent bytes in the kernel per connection. With more, a slow peer's connection would accept a lot at once, and then nothing for a long time.
const UNSENT: u32 = 128 << 10;
/// Most connections of one endpoint. An agent has one, a BMC a few.
const MOST: u64 = 8192;
/// Most connections of one peer to one endpoint; machines behind one NAT router count as one peer.
const MOST_OF_PEER: usize = 512;
/// File descriptors that this program requests.
const DESCRIPTORS: u64 = 65_536;
/// A refusal is logged at most this often.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The endpoint's server with limits and timeouts, HTTP/1 only.
pub fn limited<A>(
    server: Server<SocketAddr, A>,
    name: &'static str,
    handle: Handle<SocketAddr>,
) -> Server<SocketAddr, Limited<A>> {
    limited_to((most(), MOST_OF_PEER), server, name, handle)
}

/// The same with at most this many connections, in total and of one peer.
pub fn limited_to<A>(
    (all, of_peer): (usize, usize),
    server: Server<SocketAddr, A>,
    name: &'static str,
    handle: Handle<SocketAddr>,
) -> Server<SocketAddr, Limited<A>> {
    let mut server = server.handle(handle).map(|inner| Limited { inner, limits: Limits::new(name, all, of_peer) });
    // One request per connection at a time: this also bounds the requests in flight.
    server = server.http1_only();
    server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(64 << 10);
    server
}

/// The TLS configuration of an endpoint, HTTP/1 only.
pub async fn tls_of(what: &str, certificate: &str, key: &str) -> anyhow::Result<RustlsConfig> {
    let (certificate, key) = (certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
    let config = RustlsConfig::from_pem(certificate, key)
        .await
        .map_err(|e| anyhow!("use the {what}'s certificate and key: {e}"))?;
    let mut inner = rustls::ServerConfig::clone(&config.get_inner());
    inner.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(inner)))
}

/// Connections per endpoint: a quarter of the file descriptors. Raises the soft limit to the hard one first, or to `DESCRIPTORS` if that is less.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let mut current = limit.current.unwrap_or(DESCRIPTORS);
    if current < wanted && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_ok() {
        current = wanted;
    }
    usize::try_from((current / 4).clamp(64, MOST)).unwrap_or(64)
}

/// Connection limits of one endpoint.
#[derive(Clone)]
struct Limits {
    name: &'static str,
    all: Arc<Semaphore>,
    of_peer: usize,
    peers: Arc<Peers>,
    logged: Arc<Mutex<Option<Instant>>>,
}

impl Limits {
    fn new(name: &'static str, all: usize, of_peer: usize) -> Self {
        let all = Arc::new(Semaphore::new(all));
        Self { name, all, of_peer, peers: Arc::default(), logged: Arc::default() }
    }

    /// Takes a place for a connection from this address.
    fn enter(&self, from: IpAddr) -> Option<Place> {
        // A loopback peer, such as a simulator, may stand for many machines.
        let most = if addresses::peer(from).is_loopback() { usize::MAX } else { self.of_peer };
        let peer = self.peers.enter(from, most);
        match (peer, Arc::clone(&self.all).try_acquire_owned()) {
            (Ok(peer), Ok(permit)) => return Some(Place { _peer: peer, _permit: permit }),
            (Err(open), _) => self.refused(from, Some(open)),
            (Ok(_), Err(_)) => self.refused(from, None),
        }
        None
    }

    fn refused(&self, from: IpAddr, of_peer: Option<usize>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= LOGGED_EVERY) {
            *logged = Some(Instant::now());
            tracing::warn!(endpoint = self.name, %from, of_peer, "refused a connection: there are too many");
        }
    }
}

/// A connection's place, released on drop.
struct Place {
    _peer: PeerPlace,
    _permit: OwnedSemaphorePermit,
}

/// Accepts within the limits.
#[derive(Clone)]
pub struct Limited<A> {
    inner: A,
    limits: Limits,
}

// Beneath TLS, so that the time limit applies to bytes that the peer has accepted from the network.
impl<A, S> Accept<TcpStream, S> for Limited<A>
where
    A: Accept<Held<TcpStream>, S>,
    A::Future: Send + 'static,
    A::Stream: Send + 'static,
    A::Service: Send + 'static,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let place = stream.peer_addr().ok().and_then(|from| self.limits.enter(from.ip()));
        let Some(place) = place else {
            return Box::pin(std::future::ready(Err(io::Error::other("too many connections"))));
        };
        // On a system without this option, a slow peer has more bytes queued.
        let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT);
        Box::pin(self.inner.accept(Held { stream, untaken: None, _place: Some(place) }, service))
    }
}

/// A connection in its place. It fails if the peer reads nothing for `TAKE_TIME`: an unread answer would hold the place for ever.
pub struct Held<I> {
    stream: I,
    /// Runs while a write waits for the peer.
    untaken: Option<Pin<Box<Sleep>>>,
    _place: Option<Place>,
}

impl<I> Held<I> {
    /// The result of a write attempt: an error if writes have been blocked for too long.
    fn judged<T>(&mut self, cx: &mut Context<'_>, attempt: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.untaken = None;
            return attempt;
        }
        let untaken = self.untaken.get_or_insert_with(|| Box::pin(sleep(TAKE_TIME)));
        match untaken.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let text = format!("the other side has taken nothing for {} s", TAKE_TIME.as_secs());
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Held<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Held<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judged(cx, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judged(cx, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket's flush returns at once, which is no sign of progress by the peer.
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
        let network: Vec<Place> = (0..3).filter_map(|_| limits.enter(address("2001:db8::1"))).collect();
        assert_eq!(network.len(), 2, "a network of IPv6 is one peer");
        let last = limits.enter(address("127.0.0.1"));
        assert!(last.is_some() && limits.enter(address("127.0.0.1")).is_none(), "five in all");
        drop((one, network, last));
        let places: Vec<Place> = (0..9).filter_map(|_| limits.enter(address("127.0.0.1"))).collect();
        assert_eq!(places.len(), 5, "this machine's own are not counted by peer");
        drop(places);
        assert_eq!(limits.peers.count(), 0);
    }

    /// The server's address, and the peers that hold places.
    fn serve() -> (SocketAddr, Arc<Peers>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here")).route("/large", get(async || vec![7; 64 << 20]));
        let server = limited(axum_server::from_tcp(listener).unwrap(), "test", Handle::new());
        let peers = Arc::clone(&server.get_ref().limits.peers);
        tokio::spawn(async move { server.serve(router.into_make_service()).await });
        (address, peers)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_does_not_hold_its_place() {
        let (address, peers) = serve();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        let begun = tokio::time::Instant::now();
        while peers.count() > 0 {
            assert!(begun.elapsed() < 3 * TAKE_TIME, "the connection still has its place");
            sleep(Duration::from_secs(1)).await;
        }
        assert!(begun.elapsed() >= TAKE_TIME, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_a_little_again_and_again_is_served_to_the_end() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut held = Held { stream: ours, untaken: None, _place: None };
        let writing = tokio::spawn(async move { held.write_all(&[7; 100]).await });
        let mut taken = Vec::new();
        let mut part = [0; 5];
        while taken.len() < 100 {
            sleep(TAKE_TIME - Duration::from_secs(1)).await;
            let read = theirs.read(&mut part).await.unwrap();
            taken.extend_from_slice(&part[..read]);
        }
        writing.await.unwrap().unwrap();
        let (ours, _theirs) = tokio::io::duplex(10);
        let mut held = Held { stream: ours, untaken: None, _place: None };
        let begun = tokio::time::Instant::now();
        let error = held.write_all(&[7; 100]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, TAKE_TIME.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_its_head_is_cut_off() {
        let (address, _) = serve();
        for begun in ["", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            let mut answer = Vec::new();
            // End of stream, or a reset.
            let _ = tokio::time::timeout(Duration::from_secs(3600), stream.read_to_end(&mut answer))
                .await
                .expect("the server ends it");
            assert!(begun.elapsed() <= HEAD_TIME + Duration::from_secs(1), "{:?}", begun.elapsed());
            assert!(!String::from_utf8_lossy(&answer).contains("200"));
        }
    }

    #[tokio::test]
    async fn requests_are_answered() {
        let mut stream = TcpStream::connect(serve().0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }
}
