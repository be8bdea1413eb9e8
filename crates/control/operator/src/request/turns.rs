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

impl Turns {
    /// Takes the turn of this request. `Err`, if its last one was not `pace` ago: how long it has to wait.
    pub fn take(&self, uid: String, pace: Duration) -> Result<(), Duration> {
        let now = Instant::now();
        let mut called = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = called.get(&uid).map(|before| pace.saturating_sub(now.duration_since(*before)));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Err(left);
        }
        called.retain(|_, at| now.duration_since(*at) < FORGOTTEN);
        called.insert(uid, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_own_and_none_comes_before_its_pace() {
        let (turns, pace) = (Turns::default(), Duration::from_secs(3));
        let take = |uid: &str| turns.take(uid.to_owned(), pace);
        assert_eq!((take("a"), take("a"), take("b")), (Ok(()), Err(pace), Ok(())));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(take("a"), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((take("a"), take("a"), take("b")), (Ok(()), Err(pace), Ok(())));
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!((take("c"), take("a")), (Ok(()), Ok(())));
        assert_eq!(turns.0.lock().unwrap().len(), 2, "what has ended is forgotten");
    }
}
