//! When provisioners are called for requests: what is written of an answer wakes the request, and must not have it called again at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A request for which nobody was called for this long has ended: none is tried for longer than an hour.
const FORGOTTEN: Duration = Duration::from_secs(7200);

/// When a provisioner was last called for each request, by the request's uid.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, Instant>>);

/// Whether one may be called for a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// For the first time since this process leads.
    First,
    /// Once more.
    Again,
    /// Not before this has passed.
    Later(Duration),
}

impl Turns {
    /// Takes the turn of this request, if its last one was `pace` ago.
    pub fn take(&self, uid: String, pace: Duration) -> Turn {
        let now = Instant::now();
        let mut called = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = called.get(&uid).map(|before| now.duration_since(*before));
        if let Some(left) = since.and_then(|since| pace.checked_sub(since)).filter(|left| !left.is_zero()) {
            return Turn::Later(left);
        }
        called.retain(|_, at| now.duration_since(*at) < FORGOTTEN);
        called.insert(uid, now);
        if since.is_some() { Turn::Again } else { Turn::First }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_own_and_none_comes_before_its_pace() {
        let (turns, pace) = (Turns::default(), Duration::from_secs(3));
        let take = |uid: &str| turns.take(uid.to_owned(), pace);
        assert_eq!((take("a"), take("a"), take("b")), (Turn::First, Turn::Later(pace), Turn::First));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(take("a"), Turn::Later(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((take("a"), take("a"), take("b")), (Turn::Again, Turn::Later(pace), Turn::Again));
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!((take("c"), take("a")), (Turn::First, Turn::First));
        assert_eq!(turns.0.lock().unwrap().len(), 2, "what has ended is forgotten");
    }
}
