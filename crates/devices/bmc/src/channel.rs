//! The way to a BMC: one call in flight at a time, whoever calls, each written to the ledger.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::{Duration, Instant};

use crate::address::Address;
use crate::lead::Lead;
use crate::ledger::{Call, CallOutcome, Ledger};
use crate::sign_ins::SignIns;
use crate::totals::Totals;

/// All BMCs that this process talks to, by `host:port`.
#[derive(Debug, Default)]
pub struct BmcRegistry {
    channels: Mutex<HashMap<String, Weak<Channel>>>,
    tokenless: Arc<Tokenless>,
    totals: Arc<Totals>,
    reuse: Arc<Reuses>,
    lead: Lead,
    sign_ins: SignIns,
}

/// How long a BMC that refused its own tokens is asked without sessions.
const TOKENLESS: Duration = Duration::from_secs(600);

/// BMCs that have refused the tokens of sessions that they had just opened, and when: each further sign-in would leave one more session
/// behind, which nobody can end.
#[derive(Debug, Default)]
struct Tokenless(Mutex<HashMap<String, Instant>>);

impl Tokenless {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, since| since.elapsed() < TOKENLESS);
        known
    }
}

/// How long a BMC that lost a request on a connection used before is given a new one for each.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Whether a request may go over a connection to this BMC that has answered others before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// It has not been tried yet, or not lately: only what may be sent twice.
    #[default]
    Untried,
    /// It has worked.
    Works,
    /// A request was lost that way lately: not at all.
    Loses,
}

/// What is known of BMCs' connections, and since when. Outlives the channels.
#[derive(Debug, Default)]
struct Reuses(Mutex<HashMap<String, (Reuse, Instant)>>);

impl Reuses {
    fn known(&self) -> MutexGuard<'_, HashMap<String, (Reuse, Instant)>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, since)| since.elapsed() < FORGOTTEN);
        known
    }
}

impl BmcRegistry {
    /// An empty registry. There is one per process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls are made only while this says so.
    #[must_use]
    pub fn led_by(self, lead: Lead) -> Self {
        Self { lead, ..self }
    }

    /// The channel to the BMC at this address: the same one for all systems behind it, as long as somebody holds it.
    #[must_use]
    pub fn channel(&self, address: &Address) -> Arc<Channel> {
        let key = address.key();
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&key).and_then(Weak::upgrade) {
            return channel;
        }
        channels.retain(|_, channel| channel.strong_count() > 0);
        let tokenless = Arc::clone(&self.tokenless);
        let (totals, reuse) = (Arc::clone(&self.totals), Arc::clone(&self.reuse));
        let (lead, sign_ins) = (self.lead.clone(), self.sign_ins.clone());
        let channel =
            Arc::new(Channel { key: key.clone(), tokenless, totals, reuse, lead, sign_ins, ..Channel::default() });
        channels.insert(key, Arc::downgrade(&channel));
        channel
    }

    /// What is counted of all calls.
    #[must_use]
    pub fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }
}

/// The way to one BMC.
#[derive(Debug, Default)]
pub struct Channel {
    gate: tokio::sync::Mutex<()>,
    ledger: Ledger,
    sessions: Mutex<BTreeSet<String>>,
    key: String,
    tokenless: Arc<Tokenless>,
    totals: Arc<Totals>,
    reuse: Arc<Reuses>,
    lead: Lead,
    sign_ins: SignIns,
}

impl Channel {
    /// Waits for its turn (first come, first served) and begins a call. The next call begins when the returned value is gone.
    ///
    /// `retry` is 0 for the first try.
    pub async fn begin(&self, method: &str, path: &str, retry: u32) -> InFlight<'_> {
        let gate = self.gate.lock().await;
        let call = Call {
            sequence: 0,
            method: method.to_owned(),
            path: path.to_owned(),
            outcome: CallOutcome::Abandoned,
            milliseconds: 0,
            retry,
        };
        InFlight { ledger: &self.ledger, totals: &self.totals, call: Some(call), started: Instant::now(), _gate: gate }
    }

    /// Whether, and for how long, a call may be made: to be asked for each, once it has its turn.
    #[must_use]
    pub const fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The places of those that sign in to any BMC.
    #[must_use]
    pub const fn sign_ins(&self) -> &SignIns {
        &self.sign_ins
    }

    /// The ledger.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client of this process uses the session at this path.
    pub fn add_session(&self, path: &str) {
        self.sessions().insert(path.to_owned());
    }

    /// Notes that nobody here uses the session any more.
    pub fn remove_session(&self, path: &str) {
        self.sessions().remove(path);
    }

    /// Notes that the BMC refuses the tokens that it gives.
    pub fn refuses_tokens(&self) {
        self.tokenless.known().insert(self.key.clone(), Instant::now());
    }

    /// Whether it has done so lately: sessions are of no use there. Outlives the channel.
    #[must_use]
    pub fn is_tokenless(&self) -> bool {
        self.tokenless.known().contains_key(&self.key)
    }

    /// Whether connections may be used again.
    #[must_use]
    pub fn reuse(&self) -> Reuse {
        self.reuse.known().get(&self.key).map(|(reuse, _)| *reuse).unwrap_or_default()
    }

    /// Notes how a request fared that went over a connection used before: answered, or lost before any answer. One that was lost counts
    /// for ten minutes, whatever others do meanwhile.
    pub fn note_reuse(&self, answered: bool) {
        let mut known = self.reuse.known();
        let now = Instant::now();
        if answered {
            let entry = known.entry(self.key.clone()).or_insert((Reuse::Works, now));
            if entry.0 != Reuse::Loses {
                *entry = (Reuse::Works, now);
            }
        } else {
            known.insert(self.key.clone(), (Reuse::Loses, now));
        }
    }

    /// Whether a client of this process uses the session at this path.
    #[must_use]
    pub fn holds_session(&self, path: &str) -> bool {
        self.sessions().contains(path)
    }
}

/// A call that has its turn. Dropped without [`InFlight::end`], it is written down as abandoned.
#[derive(Debug)]
pub struct InFlight<'a> {
    ledger: &'a Ledger,
    totals: &'a Totals,
    call: Option<Call>,
    started: Instant,
    // Last: the record is written before the next call begins.
    _gate: tokio::sync::MutexGuard<'a, ()>,
}

impl InFlight<'_> {
    /// Ends the call.
    pub fn end(mut self, outcome: CallOutcome) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: CallOutcome) {
        if let Some(mut call) = self.call.take() {
            call.outcome = outcome;
            call.milliseconds = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.totals.count(&call);
            self.ledger.record(call);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.settle(CallOutcome::Abandoned);
    }
}
