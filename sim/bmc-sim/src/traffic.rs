//! What goes over the connections to a BMC: their number, and the bytes of both directions, as TCP carries them: with HTTP's headers, and
//! where there is TLS with its handshakes and records. Headers of TCP and IP are not counted.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counters of one BMC, over the simulator's life.
#[derive(Debug, Default)]
pub struct Traffic {
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Traffic {
    /// Connections that were accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Bytes from clients.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes to clients.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// A connection whose bytes are counted.
pub struct Metered<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Metered<S> {
    /// A connection that was accepted.
    pub fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        Self { stream, traffic }
    }

    fn wrote(&self, result: io::Result<usize>) -> io::Result<usize> {
        if let Ok(count) = &result {
            self.traffic.sent.fetch_add(*count as u64, Ordering::Relaxed);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        let count = buffer.filled().len().saturating_sub(before);
        self.traffic.received.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(self.wrote(result))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices));
        Poll::Ready(self.wrote(result))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_passes_is_counted_in_its_direction() {
        let traffic = Arc::<Traffic>::default();
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = Metered::new(ours, traffic.clone());
        let client = tokio::spawn(async move {
            theirs.write_all(b"request").await.unwrap();
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let mut request = [0; 7];
        ours.read_exact(&mut request).await.unwrap();
        ours.write_all(b"the answer").await.unwrap();
        drop(ours);
        assert_eq!(client.await.unwrap(), "the answer");
        assert_eq!((traffic.connections(), traffic.received(), traffic.sent()), (1, 7, 10));
    }
}
