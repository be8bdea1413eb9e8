//! Where a worker listens.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Worker;
use crate::carried::Carried;
use crate::limits::SHORT;
use crate::transport::Stream;

/// Most connections at once: one server has one, and its successor another.
const MAX_CONNECTIONS: usize = 64;
/// Calls of one connection that are under way at once.
const MAX_STREAMS: u32 = 4096;

/// A worker that listens, until it is dropped.
pub struct Bound {
    tasks: JoinSet<()>,
    /// Where, for TCP: the port is the system's choice if none was named.
    pub address: Option<SocketAddr>,
    socket: Option<PathBuf>,
}

impl Bound {
    /// Until it ends, which it does not by itself.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            // The next one removes what is left.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves one connection to its end.
pub async fn serve_stream<R: Carried>(stream: impl Stream, worker: Worker<R>) {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(64 << 10);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), worker).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Listens on a Unix socket that this user alone may use. A socket that nobody serves is removed first.
///
/// # Errors
/// When it cannot be bound.
pub async fn listen_unix<R: Carried>(path: &Path, worker: Worker<R>) -> io::Result<Bound> {
    if let Ok(found) = tokio::fs::symlink_metadata(path).await {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else than a socket"));
        }
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody serves it already"));
        }
        tokio::fs::remove_file(path).await?;
    }
    let listener = UnixListener::bind(path)?;
    tokio::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let worker = worker.clone();
                    connections.spawn(async move {
                        serve_stream(stream, worker).await;
                        drop(place);
                    });
                }
                Err(error) => refused(&error).await,
            }
        }
    });
    Ok(Bound { tasks, address: None, socket: Some(path.to_owned()) })
}

/// Out of descriptors, say: those who are connected go on.
async fn refused(error: &io::Error) {
    tracing::warn!(%error, "accepting a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Listens on TLS; only who is certified as the configuration says is heard.
///
/// # Errors
/// When it cannot be bound.
pub async fn listen_tls<R: Carried>(
    address: SocketAddr,
    config: Arc<ServerConfig>,
    worker: Worker<R>,
) -> io::Result<Bound> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (acceptor, places) = (TlsAcceptor::from(config), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let mut connections = JoinSet::new();
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (acceptor, worker) = (acceptor.clone(), worker.clone());
                    connections.spawn(async move {
                        match timeout(SHORT, acceptor.accept(stream)).await {
                            Ok(Ok(stream)) => serve_stream(stream, worker).await,
                            Ok(Err(error)) => tracing::info!(%error, "a connection is refused"),
                            Err(_) => tracing::info!("a connection is refused: it does not say who it is"),
                        }
                        drop(place);
                    });
                }
                Err(error) => refused(&error).await,
            }
        }
    });
    Ok(Bound { tasks, address: Some(address), socket: None })
}
