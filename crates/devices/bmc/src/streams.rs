//! Limit on streams of events that are open at once: each is a connection that lasts.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most streams of a process.
pub const MAX_STREAMS: usize = 2048;

/// The places for streams. Clones share them.
#[derive(Clone, Debug)]
pub struct Streams(Arc<Semaphore>);

/// A place, taken until this value is dropped.
#[derive(Debug)]
pub struct StreamPlace(#[allow(dead_code, reason = "it is held")] OwnedSemaphorePermit);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_STREAMS)))
    }
}

impl Streams {
    /// A place, if there is one.
    #[must_use]
    pub fn place(&self) -> Option<StreamPlace> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(StreamPlace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_each_is_given_back() {
        let streams = Streams::default();
        let mut places: Vec<_> = (0..MAX_STREAMS).map(|_| streams.place().unwrap()).collect();
        assert!(streams.clone().place().is_none());
        places.pop();
        assert!(streams.place().is_some());
    }
}
