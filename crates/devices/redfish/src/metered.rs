//! A stream from which no more is read for one answer than an answer may have: a BMC that sends informational answers (RFC 9110, 15.2), headers or
//! chunks, or messages of TLS that carry nothing, without end would otherwise keep a core busy for as long as a call may take.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::MAX_BODY;

/// Bytes of one answer on the wire: the largest body, headers, and what chunks add.
const MAX_ANSWER: usize = MAX_BODY + (1 << 20);

/// What may still be read.
#[derive(Clone, Debug)]
pub struct Meter(Arc<AtomicUsize>);

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_ANSWER)))
    }
}

impl Meter {
    /// Another answer is awaited.
    pub fn restart(&self) {
        self.0.store(MAX_ANSWER, Ordering::Relaxed);
    }

    /// Takes so many bytes.
    fn take(&self, bytes: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
        left >= bytes
    }
}

/// A stream with its meter.
pub struct Metered<S> {
    inner: S,
    meter: Meter,
}

impl<S> Metered<S> {
    /// This stream, read by this meter.
    pub const fn new(inner: S, meter: Meter) -> Self {
        Self { inner, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if !self.meter.take(buf.filled().len() - before) {
            return Poll::Ready(Err(io::Error::other(format!("the answer has more than {MAX_ANSWER} bytes"))));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
