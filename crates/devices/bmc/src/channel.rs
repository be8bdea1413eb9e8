//! The channel to a BMC: one call in flight at a time for all callers, each recorded in the ledger. A stream of events is beside them: it would keep the turn for hours.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::{Duration, Instant};

use crate::address::Address;
use crate::lead::Lead;
use crate::ledger::{Call, CallOutcome, Ledger};
use crate::sign_ins::SignIns;
use crate::streams::Streams;
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
    streams: Streams,
}

/// How long to avoid sessions on a BMC that refused its own tokens.
const TOKENLESS: Duration = Duration::from_secs(600);

/// BMCs that refused the token of a session that they had just opened, and when. Each further sign-in would leave another session behind, which this
/// server cannot end.
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

/// Whether a request may reuse a connection to this BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Reuse has not been tried lately: only for requests that are safe to repeat.
    #[default]
    Untried,
    /// It has worked.
    Works,
    /// A request on a reused connection was lost lately: do not reuse.
    Loses,
}

/// Whether each BMC's connections can be reused, and since when that is known. Outlives the channels.
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

    /// Restricts all calls to the time in which this process leads.
    #[must_use]
    pub fn led_by(self, lead: Lead) -> Self {
        Self { lead, ..self }
    }

    /// The channel to the BMC at this address, shared by all systems behind it. It exists while a caller holds it.
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
        let (lead, sign_ins, streams) = (self.lead.clone(), self.sign_ins.clone(), self.streams.clone());
        let channel =
            Channel { key: key.clone(), tokenless, totals, reuse, lead, sign_ins, streams, ..Channel::default() };
        let channel = Arc::new(channel);
        channels.insert(key, Arc::downgrade(&channel));
        channel
    }

    /// Counters of all calls.
    #[must_use]
    pub fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }
}

/// The channel to one BMC.
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
    streams: Streams,
}

impl Channel {
    /// Waits for its turn (first come, first served) and begins a call. The next call begins when the returned value is dropped.
    ///
    /// `retry` is 0 for the first attempt.
    pub async fn begin(&self, method: &str, path: &str, retry: u32) -> InFlight<'_> {
        let gate = self.gate.lock().await;
        let mut turn = self.beside(method, path, retry);
        if let Some(call) = &mut turn.call {
            call.is_beside = false;
        }
        turn.gate = Some(gate);
        turn
    }

    /// Begins what is answered for as long as it lasts (a stream of events): it does not wait for its turn, and keeps nobody from theirs.
    #[must_use]
    pub fn beside(&self, method: &str, path: &str, retry: u32) -> InFlight<'_> {
        let call = Call {
            sequence: 0,
            method: method.to_owned(),
            path: path.to_owned(),
            outcome: CallOutcome::Abandoned,
            milliseconds: 0,
            retry,
            is_beside: true,
        };
        InFlight { ledger: &self.ledger, totals: &self.totals, call: Some(call), started: Instant::now(), gate: None }
    }

    /// So many bytes of a stream have come.
    pub fn received(&self, bytes: usize) {
        self.totals.received(bytes);
    }

    /// The limit on streams from all BMCs.
    #[must_use]
    pub const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Whether, and for how long, calls are allowed: to be checked for each call once it has its turn.
    #[must_use]
    pub const fn lead(&self) -> &Lead {
        &self.lead
    }

    /// The limit on concurrent sign-ins to all BMCs.
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

    /// Notes that no client of this process uses the session any more.
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

    /// Notes whether a request on a reused connection was answered, or lost before any answer. A loss counts for ten minutes, even if later requests
    /// succeed.
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
    // Declared last, so that the record is written before the next call begins.
    gate: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl InFlight<'_> {
    /// The answer has a body of so many bytes.
    pub fn received(&self, bytes: usize) {
        self.totals.received(bytes);
    }

    /// Ends the call.
    pub fn end(mut self, outcome: CallOutcome) {
        self.record(outcome);
    }

    fn record(&mut self, outcome: CallOutcome) {
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
        self.record(CallOutcome::Abandoned);
    }
}
