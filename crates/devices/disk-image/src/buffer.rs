//! Aligned memory for direct I/O, and chunks of it that return to their pool when the last reader drops them.

use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Alignment of every buffer: enough for direct I/O on any disk with sectors of up to 4096 bytes.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes per chunk of the pipeline.
pub(crate) const CHUNK: usize = 1 << 20;

/// A buffer that starts at a multiple of [`ALIGNMENT`].
pub(crate) struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    capacity: usize,
    len: usize,
}

impl AlignedBuf {
    /// Zero-filled room for `capacity` bytes; its length is zero at first.
    pub(crate) fn new(capacity: usize) -> Self {
        // The vector never grows, so its address and hence the start stay valid.
        let memory = vec![0; capacity + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start, capacity, len: 0 }
    }

    /// All of the room, used or not.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.capacity]
    }

    /// The first `len` bytes are in use.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

/// Bytes at an offset of a stream. Its buffer returns to the pool when it is dropped.
pub(crate) struct Chunk {
    /// Offset of the first byte in the stream.
    pub(crate) offset: u64,
    buf: Option<AlignedBuf>,
    home: Sender<AlignedBuf>,
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            // If the pool no longer exists, the memory is simply freed.
            let _ = self.home.send(buf);
        }
    }
}

/// A fixed number of buffers, handed out again and again.
pub(crate) struct Pool {
    home: Sender<AlignedBuf>,
    free: Receiver<AlignedBuf>,
}

impl Pool {
    /// `count` buffers of [`CHUNK`] bytes.
    pub(crate) fn new(count: usize) -> Self {
        let (home, free) = channel();
        for _ in 0..count {
            let _ = home.send(AlignedBuf::new(CHUNK));
        }
        Self { home, free }
    }

    /// Waits for a free buffer.
    pub(crate) fn take(&self) -> Option<AlignedBuf> {
        self.free.recv().ok()
    }

    /// Makes a chunk of a filled buffer.
    pub(crate) fn chunk(&self, offset: u64, buf: AlignedBuf) -> Chunk {
        Chunk { offset, buf: Some(buf), home: self.home.clone() }
    }
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    data.chunks(4096).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_home() {
        let pool = Pool::new(1);
        for round in 0..3 {
            let mut buf = pool.take().unwrap();
            assert_eq!(buf.room().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buf.room().len(), CHUNK);
            buf.room()[0] = round;
            buf.set_len(1);
            assert_eq!(&*pool.chunk(0, buf), [round]);
        }
    }

    #[test]
    fn one_set_bit_is_seen_anywhere() {
        let mut data = vec![0; 10_000];
        assert!(is_zero(&data));
        for at in [0, 4095, 4096, 9_999] {
            data[at] = 0x80;
            assert!(!is_zero(&data));
            data[at] = 0;
        }
    }
}
