//! Whether this process may call BMCs: of several, one acts, and its right ends at a moment that it knows.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

/// For how long this process acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// There is no other that could.
    Always,
    /// Until then, unless it is told otherwise before.
    Until(Instant),
    /// No longer.
    Over,
}

/// Tells the present [`Term`]; asked before each call, and again when one lasts until the term's end.
#[derive(Clone)]
pub struct Lead(Arc<dyn Fn() -> Term + Send + Sync>);

/// Another process may act now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeading {
    /// The call had begun: what it asked for may be done or not.
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
    /// What is told so.
    #[must_use]
    pub fn new(term: impl Fn() -> Term + Send + Sync + 'static) -> Self {
        Self(Arc::new(term))
    }

    /// Until when, if there is an end; an end that has come is told as one.
    fn end(&self, begun: bool) -> Result<Option<Instant>, NotLeading> {
        match (self.0)() {
            Term::Always => Ok(None),
            Term::Until(end) if end > Instant::now() => Ok(Some(end)),
            Term::Until(_) | Term::Over => Err(NotLeading { begun }),
        }
    }

    /// Makes a call for as long as this process leads: one that lasts beyond the term's end is cut there, unless the term has been made longer
    /// meanwhile.
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
