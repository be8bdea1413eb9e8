//! Whether this process may call BMCs: only one of several processes acts, and it knows when its term ends.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

/// For how long this process acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// There is no other that could.
    Always,
    /// Until this time, unless the term is changed before.
    Until(Instant),
    /// No longer.
    Over,
}

/// Returns the current [`Term`]; checked before each call, and again when a call outlasts the term.
#[derive(Clone)]
pub struct Lead(Arc<dyn Fn() -> Term + Send + Sync>);

/// Another process may act now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeading {
    /// The call had begun: it may or may not have taken effect.
    pub begun: bool,
}

impl Default for Lead {
    fn default() -> Self {
        Self::new(|| Term::Always)
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lead").field(&(self.0)()).finish()
    }
}

impl Lead {
    /// A source of terms.
    #[must_use]
    pub fn new(term: impl Fn() -> Term + Send + Sync + 'static) -> Self {
        Self(Arc::new(term))
    }

    /// The end of the term, `None` for no end; an error if it has passed.
    fn end(&self, begun: bool) -> Result<Option<Instant>, NotLeading> {
        match (self.0)() {
            Term::Always => Ok(None),
            Term::Until(end) if end > Instant::now() => Ok(Some(end)),
            Term::Until(_) | Term::Over => Err(NotLeading { begun }),
        }
    }

    /// Makes a call for as long as this process leads: cancels it at the term's end, unless the term has been extended meanwhile.
    ///
    /// # Errors
    /// [`NotLeading`]; before the call if the term is over.
    pub async fn during<T>(&self, call: impl Future<Output = T>) -> Result<T, NotLeading> {
        let mut end = self.end(false)?;
        tokio::pin!(call);
        loop {
            let Some(until) = end else { return Ok(call.await) };
            tokio::select! {
                biased;
                done = &mut call => return Ok(done),
                () = sleep_until(until) => end = self.end(true)?,
            }
        }
    }
}
