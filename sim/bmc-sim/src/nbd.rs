//! A medium as a network block device, by which QEMU reads it: the NBD protocol's newstyle fixed handshake and simple
//! replies, read-only (the protocol's description, `doc/proto.md` of NetworkBlockDevice/nbd).

use std::{io, path::Path, sync::Arc};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixListener,
    task::{JoinHandle, JoinSet},
};

use crate::media::Medium;

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Fixed newstyle, and no 124 zero bytes at the end of the handshake.
const HANDSHAKE_FLAGS: u16 = 0b11;
/// Flags present, and read-only.
const EXPORT_FLAGS: u16 = 0b11;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
const REPLY_INVALID: u32 = 0x8000_0003;

const COMMAND_READ: u16 = 0;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Longest option a client may send.
const MAX_OPTION: u32 = 64 << 10;
/// Longest read, which is also the limit announced to clients.
const MAX_READ: u32 = 32 << 20;
/// The export's size is a whole number of these: a CD's sector.
const SECTOR: u64 = 2048;

/// A listening NBD server for one medium; ends, with its connections, when dropped.
pub struct Server(JoinHandle<()>);

impl Server {
    /// Serves `medium` on a unix socket at `path`, replacing a stale one.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(path: &Path, medium: Arc<Medium>) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        Ok(Self(tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((mut socket, _)) = accepted else { continue };
                        let medium = medium.clone();
                        connections.spawn(async move {
                            if let Err(error) = serve(&mut socket, &medium).await {
                                tracing::debug!(%error, "NBD connection ended");
                            }
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        })))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn export_size(medium: &Medium) -> u64 {
    medium.size().next_multiple_of(SECTOR)
}

/// Speaks with one client until it leaves.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S, medium: &Medium) -> io::Result<()> {
    if negotiate(socket, export_size(medium)).await? {
        transmit(socket, medium).await?;
    }
    Ok(())
}

/// The handshake; false when the client gave up.
async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S, size: u64) -> io::Result<bool> {
    socket.write_u64(INIT_MAGIC).await?;
    socket.write_u64(OPTION_MAGIC).await?;
    socket.write_u16(HANDSHAKE_FLAGS).await?;
    socket.flush().await?;
    let client_flags = socket.read_u32().await?;
    loop {
        if socket.read_u64().await? != OPTION_MAGIC {
            return Err(invalid("an option does not begin with its magic number"));
        }
        let option = socket.read_u32().await?;
        let length = socket.read_u32().await?;
        if length > MAX_OPTION {
            return Err(invalid("an option is too long"));
        }
        let mut data = vec![0; length as usize];
        socket.read_exact(&mut data).await?;
        match option {
            OPTION_EXPORT_NAME => {
                socket.write_u64(size).await?;
                socket.write_u16(EXPORT_FLAGS).await?;
                if client_flags & 0b10 == 0 {
                    socket.write_all(&[0; 124]).await?;
                }
                socket.flush().await?;
                return Ok(true);
            }
            OPTION_ABORT => {
                reply(socket, option, REPLY_ACK, &[]).await?;
                return Ok(false);
            }
            OPTION_LIST if data.is_empty() => {
                // One export, with the empty name.
                reply(socket, option, REPLY_SERVER, &[0; 4]).await?;
                reply(socket, option, REPLY_ACK, &[]).await?;
            }
            OPTION_INFO | OPTION_GO if well_formed(&data) => {
                let mut export = vec![0, 0];
                export.extend_from_slice(&size.to_be_bytes());
                export.extend_from_slice(&EXPORT_FLAGS.to_be_bytes());
                reply(socket, option, REPLY_INFO, &export).await?;
                let mut blocks = vec![0, 3];
                for limit in [1, 4096, MAX_READ] {
                    blocks.extend_from_slice(&limit.to_be_bytes());
                }
                reply(socket, option, REPLY_INFO, &blocks).await?;
                reply(socket, option, REPLY_ACK, &[]).await?;
                if option == OPTION_GO {
                    return Ok(true);
                }
            }
            OPTION_LIST | OPTION_INFO | OPTION_GO => reply(socket, option, REPLY_INVALID, &[]).await?,
            _ => reply(socket, option, REPLY_UNSUPPORTED, &[]).await?,
        }
    }
}

/// Whether the data of an INFO or GO option is valid: a name with its length, and a list of information requests.
fn well_formed(data: &[u8]) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let length = u32::from_be_bytes(*length) as usize;
    let Some(rest) = rest.get(length..) else { return false };
    let Some((count, requests)) = rest.split_first_chunk::<2>() else { return false };
    requests.len() == usize::from(u16::from_be_bytes(*count)) * 2
}

async fn reply<S: AsyncWrite + Unpin>(socket: &mut S, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(20 + data.len());
    message.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&(data.len() as u32).to_be_bytes());
    message.extend_from_slice(data);
    socket.write_all(&message).await?;
    socket.flush().await
}

/// Commands, one after the other.
async fn transmit<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S, medium: &Medium) -> io::Result<()> {
    loop {
        if socket.read_u32().await? != REQUEST_MAGIC {
            return Err(invalid("a request does not begin with its magic number"));
        }
        let _flags = socket.read_u16().await?;
        let command = socket.read_u16().await?;
        let cookie = socket.read_u64().await?;
        let offset = socket.read_u64().await?;
        let length = socket.read_u32().await?;
        let (error, data) = match command {
            COMMAND_READ => read(medium, offset, length).await,
            COMMAND_DISCONNECT => return Ok(()),
            COMMAND_FLUSH => (0, Bytes::new()),
            1 => {
                // A refused write's data must still be read from the wire.
                let mut rest = (&mut *socket).take(u64::from(length));
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
                (EPERM, Bytes::new())
            }
            _ => (EINVAL, Bytes::new()),
        };
        let mut header = Vec::with_capacity(16);
        header.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
        header.extend_from_slice(&error.to_be_bytes());
        header.extend_from_slice(&cookie.to_be_bytes());
        socket.write_all(&header).await?;
        socket.write_all(&data).await?;
        socket.flush().await?;
    }
}

async fn read(medium: &Medium, offset: u64, length: u32) -> (u32, Bytes) {
    let end = offset.checked_add(u64::from(length));
    if length > MAX_READ || end.is_none_or(|end| end > export_size(medium)) {
        return (EINVAL, Bytes::new());
    }
    let there = u64::from(length).min(medium.size().saturating_sub(offset));
    match medium.read(offset.min(medium.size()), there).await {
        Ok(data) if data.len() == length as usize => (0, data),
        Ok(data) => {
            // The image is not a whole number of sectors: the rest reads as zeros.
            let mut padded = data.to_vec();
            padded.resize(length as usize, 0);
            (0, padded.into())
        }
        Err(error) => {
            tracing::debug!(%error, offset, length, "reading the medium");
            (EIO, Bytes::new())
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_handshake_answers_or_refuses_every_option() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let task = tokio::spawn(async move { negotiate(&mut server, 4096).await });
        assert_eq!(client.read_u64().await.unwrap(), INIT_MAGIC);
        assert_eq!(client.read_u64().await.unwrap(), OPTION_MAGIC);
        assert_eq!(client.read_u16().await.unwrap(), HANDSHAKE_FLAGS);
        client.write_u32(0b11).await.unwrap();
        for (option, data, kind) in
            [(8_u32, &[][..], REPLY_UNSUPPORTED), (OPTION_GO, &[0, 0, 0, 9, 0][..], REPLY_INVALID)]
        {
            client.write_u64(OPTION_MAGIC).await.unwrap();
            client.write_u32(option).await.unwrap();
            client.write_u32(data.len() as u32).await.unwrap();
            client.write_all(data).await.unwrap();
            assert_eq!(client.read_u64().await.unwrap(), OPTION_REPLY_MAGIC);
            assert_eq!(client.read_u32().await.unwrap(), option);
            assert_eq!(client.read_u32().await.unwrap(), kind);
            assert_eq!(client.read_u32().await.unwrap(), 0);
        }
        client.write_u64(OPTION_MAGIC).await.unwrap();
        client.write_u32(OPTION_EXPORT_NAME).await.unwrap();
        client.write_u32(0).await.unwrap();
        assert_eq!(client.read_u64().await.unwrap(), 4096);
        assert_eq!(client.read_u16().await.unwrap(), EXPORT_FLAGS);
        assert!(task.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn an_option_without_bounds_ends_the_connection() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let task = tokio::spawn(async move { negotiate(&mut server, 4096).await });
        let mut greeting = [0; 18];
        client.read_exact(&mut greeting).await.unwrap();
        client.write_u32(0b11).await.unwrap();
        client.write_u64(OPTION_MAGIC).await.unwrap();
        client.write_u32(OPTION_GO).await.unwrap();
        client.write_u32(u32::MAX).await.unwrap();
        assert!(task.await.unwrap().is_err());
    }
}
