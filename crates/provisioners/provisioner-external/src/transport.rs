//! How a worker is reached: over a Unix socket, over TLS, or in memory.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::Sender;
use tokio_rustls::TlsConnector;

use crate::tls::{self, Identity, Pin, Trust};
use terms::clean;

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Makes connections to one worker.
#[async_trait]
pub trait Connect: Send + Sync {
    /// A new connection.
    ///
    /// # Errors
    /// Why there is none, a clause that names the address.
    async fn connect(&self) -> Result<Box<dyn Stream>, String>;
}

/// A Unix socket of this machine.
#[derive(Clone, Debug)]
pub struct UnixSocket {
    /// Where.
    pub path: PathBuf,
    /// uid of whoever may serve it.
    pub owner: u32,
}

impl UnixSocket {
    /// Whether this user may be talked to: whoever serves the socket gets the passwords of BMCs.
    fn trusts(&self, uid: u32) -> Result<(), String> {
        if uid == self.owner {
            return Ok(());
        }
        let (path, owner) = (self.path.display(), self.owner);
        Err(format!(
            "the socket {path} is the user's with uid {uid}, and only that of uid {owner} is trusted: correct its owner, or the entry's `user`"
        ))
    }
}

#[async_trait]
impl Connect for UnixSocket {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let shown = self.path.display();
        let failed = |error: io::Error| format!("the socket {shown}: {error}");
        let found = tokio::fs::symlink_metadata(&self.path).await.map_err(failed)?;
        if !found.file_type().is_socket() {
            return Err(format!("{shown} is no socket"));
        }
        self.trusts(found.uid())?;
        let stream = UnixStream::connect(&self.path).await.map_err(failed)?;
        // The file may have been replaced since: the peer counts.
        self.trusts(stream.peer_cred().map_err(failed)?.uid())?;
        Ok(Box::new(stream))
    }
}

/// Whom a worker has to be, by files that are read at each connection: they may be renewed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// Certified by an authority of this PEM file.
    Authority(PathBuf),
    /// The owner of this key.
    Key(Pin),
}

/// TLS over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whom the worker has to be.
    pub trusted: Trusted,
    /// PEM file with our certificate.
    pub certificate: PathBuf,
    /// PEM file with its key.
    pub key: PathBuf,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which cannot be used, and why.
    pub async fn config(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        let (certificate, key) = (file(&self.certificate).await?, file(&self.key).await?);
        let ours = Identity { certificate: &certificate, key: &key };
        match &self.trusted {
            Trusted::Authority(path) => tls::client(&Trust::Authority(&file(path).await?), &ours),
            Trusted::Key(pin) => tls::client(&Trust::Key(*pin), &ours),
        }
    }
}

/// Largest file of certificates, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads a file of certificates or a key.
///
/// # Errors
/// Why it cannot be read, with its path.
pub async fn file(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let read = async {
        let file = tokio::fs::File::open(path).await?;
        file.take(MAX_FILE).read_to_end(&mut text).await
    };
    read.await.map_err(|error| format!("read {}: {error}", path.display()))?;
    Ok(text)
}

#[async_trait]
impl Connect for Tls {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let shown = format!("https://{}:{}", self.host, self.port);
        let failed = |error: io::Error| format!("{shown}: {}", clean(&error.to_string(), 300));
        let bare = self.host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name =
            ServerName::try_from(bare.clone()).map_err(|_| format!("{shown}: no name that a certificate can have"))?;
        let stream = TcpStream::connect((bare.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let stream = TlsConnector::from(self.config().await?).connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }
}

/// A worker in this process: it is given the other end of each connection.
#[derive(Clone)]
pub struct InMemory(pub Sender<DuplexStream>);

#[async_trait]
impl Connect for InMemory {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        self.0.send(theirs).await.map_err(|_| "the worker in this process has ended".to_owned())?;
        Ok(Box::new(ours))
    }
}
