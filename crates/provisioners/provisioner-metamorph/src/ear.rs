//! What is heard of a BMC's events, by host: over a stream, or posted to an address that only the BMC knows.
//!
//! An event is the word of a BMC, and nothing is believed of it: it wakes the host, whose look then tells how the machine is. However many come, a host is woken no more often
//! than every [`APART`]. A stream that is lost is opened again, ever more slowly, and few are opened at once; a BMC that takes long over it holds up no others.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bmc::{Alert, Backoff, Bmc, BmcError, ErrorKind, EventStream, Events, HealthLevel};
use provisioner::{HostKey, Waker};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A host is not woken more often than that.
pub const APART: Duration = Duration::from_secs(5);
/// A stream of which nothing has come for so long is opened anew: its connection may be dead without either side knowing.
const SILENCE: Duration = Duration::from_mins(15);
/// A stream that has lasted so long was a good one.
const GOOD: Duration = Duration::from_mins(1);
/// Waits before a lost stream is opened again.
const AGAIN: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, most: Duration::from_mins(5), attempts: u32::MAX };
/// Streams that are opened at once.
const OPENINGS: usize = 8;
/// How long an opening occupies its place: a BMC that does not answer, or asks to be left alone for a while, holds up others only briefly.
const COUNTS: Duration = Duration::from_secs(10);
/// Longest time for opening a stream, from when it has its place.
const OPENED_WITHIN: Duration = Duration::from_mins(2);
/// Events of a host that are read at once.
const READINGS: usize = 2;

/// How a BMC tells of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// Not known yet.
    #[default]
    Unknown,
    /// By a stream, which is open or has been.
    Stream,
    /// It has no streams, or this server no room for one more.
    NoStream,
}

/// The ears of all hosts.
pub struct Ears {
    waker: Arc<Waker>,
    by_token: Mutex<HashMap<String, Arc<Heard>>>,
    /// By uid of the host: its next ear wakes it no more often than the one before would.
    paces: Mutex<HashMap<String, Arc<Paces>>>,
    openings: Semaphore,
}

impl Ears {
    /// None yet. They wake hosts by this.
    pub fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self {
            waker,
            by_token: Mutex::default(),
            paces: Mutex::default(),
            openings: Semaphore::new(OPENINGS),
        })
    }

    fn by_token(&self) -> MutexGuard<'_, HashMap<String, Arc<Heard>>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pace at which this host is woken. Those of hosts that have no ear any more go when they say nothing any more.
    fn pace(&self, uid: &str) -> Arc<Paces> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        paces.retain(|_, pace| {
            let is_new = |pace: &Mutex<Pace>| {
                let last = pace.lock().unwrap_or_else(PoisonError::into_inner).last;
                last.is_some_and(|last| last.elapsed() < APART)
            };
            Arc::strong_count(pace) > 1 || is_new(&pace.told) || is_new(&pace.without)
        });
        Arc::clone(paces.entry(uid.to_owned()).or_default())
    }

    /// Opens a stream when there is a place for it.
    async fn open(&self, events: &dyn Events) -> Result<Box<dyn EventStream>, BmcError> {
        // Never closed; if it were, there would be nothing to wait for.
        let place = self.openings.acquire().await;
        let mut opening = events.listen();
        if let Ok(opened) = timeout(COUNTS, &mut opening).await {
            return opened;
        }
        drop(place);
        timeout(OPENED_WITHIN.saturating_sub(COUNTS), opening).await.unwrap_or_else(|_| {
            let found = format!("the stream was not open within {} s", OPENED_WITHIN.as_secs());
            Err(BmcError::new(ErrorKind::Timeout, "listen to the BMC's events", found))
        })
    }

    /// What is heard at the address with this token.
    pub fn find(&self, token: &str) -> Option<Arc<Heard>> {
        self.by_token().get(token).cloned()
    }
}

/// What an address for events is known by, and what comes with each event. It has no `Debug`: both are secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The last part of the address.
    pub token: String,
    /// The subscription's context.
    pub context: String,
}

/// What is heard of one host's machine.
pub struct Heard {
    key: HostKey,
    waker: Arc<Waker>,
    secrets: Secrets,
    bmc: Arc<dyn Bmc>,
    /// The machine was not well when it was last looked at.
    is_ill: AtomicBool,
    means: Mutex<Means>,
    pace: Arc<Paces>,
    readings: Semaphore,
}

/// How often a host is woken. An event does not wait for what was said of streams.
#[derive(Default)]
struct Paces {
    /// By what its BMC tells.
    told: Mutex<Pace>,
    /// As its BMC has no streams: a look is to make a subscription.
    without: Mutex<Pace>,
}

#[derive(Default)]
struct Pace {
    /// When the host was woken last.
    last: Option<Instant>,
    /// It will be.
    waits: bool,
}

impl Heard {
    /// The subscription's context.
    pub fn context(&self) -> &str {
        &self.secrets.context
    }

    /// The BMC.
    pub fn bmc(&self) -> &dyn Bmc {
        self.bmc.as_ref()
    }

    /// How the BMC tells.
    pub fn means(&self) -> Means {
        *self.means.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_by(&self, means: Means) {
        *self.means.lock().unwrap_or_else(PoisonError::into_inner) = means;
    }

    /// A place to read an event that is posted; none if enough are being read.
    pub fn reads(&self) -> Option<SemaphorePermit<'_>> {
        self.readings.try_acquire().ok()
    }

    /// How the machine was, seen by a look.
    pub fn saw(&self, health: Option<HealthLevel>) {
        self.is_ill.store(health.is_some_and(|level| level != HealthLevel::OK), Ordering::Relaxed);
    }

    /// The BMC has told this. Of a machine that is well, events that are no alerts wake nobody.
    pub fn told(self: &Arc<Self>, alert: Alert) {
        if alert.severity > HealthLevel::OK || alert.is_health || self.is_ill.load(Ordering::Relaxed) {
            self.wake(|paces| &paces.told);
        }
    }

    /// Wakes the host, or will when it has been left alone for long enough.
    fn wake(self: &Arc<Self>, by: fn(&Paces) -> &Mutex<Pace>) {
        let later = {
            let (now, mut pace) = (Instant::now(), by(&self.pace).lock().unwrap_or_else(PoisonError::into_inner));
            match pace.last.map(|last| last + APART).filter(|next| *next > now) {
                _ if pace.waits => return,
                Some(next) => {
                    pace.waits = true;
                    next
                }
                None => {
                    pace.last = Some(now);
                    now
                }
            }
        };
        if later <= Instant::now() {
            self.waker.wake(&self.key);
            return;
        }
        let heard = Arc::clone(self);
        tokio::spawn(async move {
            sleep_until(later).await;
            *by(&heard.pace).lock().unwrap_or_else(PoisonError::into_inner) =
                Pace { last: Some(Instant::now()), waits: false };
            heard.waker.wake(&heard.key);
        });
    }
}

/// One host's ear. Dropped, nothing is heard of it any more.
pub struct Ear {
    heard: Arc<Heard>,
    ears: Arc<Ears>,
    task: JoinHandle<()>,
    /// When the subscription was last looked after.
    checked: Option<Instant>,
}

impl Ear {
    /// One at this BMC. It begins with trying to open a stream.
    pub fn new(ears: &Arc<Ears>, key: HostKey, bmc: Arc<dyn Bmc>, secrets: Secrets) -> Self {
        let heard = Arc::new(Heard {
            pace: ears.pace(&key.uid),
            key,
            waker: Arc::clone(&ears.waker),
            secrets,
            bmc,
            is_ill: AtomicBool::new(false),
            means: Mutex::default(),
            readings: Semaphore::new(READINGS),
        });
        ears.by_token().insert(heard.secrets.token.clone(), Arc::clone(&heard));
        let task = tokio::spawn(listen(Arc::clone(ears), Arc::clone(&heard)));
        Self { heard, ears: Arc::clone(ears), task, checked: None }
    }

    /// Whether it hears, at this BMC's connection, with these secrets.
    pub fn is_at(&self, bmc: &Arc<dyn Bmc>, secrets: &Secrets) -> bool {
        let hears = !self.task.is_finished() || self.heard.means() == Means::NoStream;
        hears && Arc::ptr_eq(&self.heard.bmc, bmc) && self.heard.secrets == *secrets
    }

    /// What is heard.
    pub fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }

    /// Whether the subscription is to be looked after, as it was not for so long; from now on it was.
    pub fn is_due(&mut self, every: Duration) -> bool {
        let due = self.checked.is_none_or(|at| at.elapsed() >= every);
        if due {
            self.checked = Some(Instant::now());
        }
        due
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.task.abort();
        let mut all = self.ears.by_token();
        // Another one may have taken its place already.
        if all.get(&self.heard.secrets.token).is_some_and(|heard| Arc::ptr_eq(heard, &self.heard)) {
            all.remove(&self.heard.secrets.token);
        }
    }
}

/// Listens for as long as the ear is there.
async fn listen(ears: Arc<Ears>, heard: Arc<Heard>) {
    let mut failures: u32 = 0;
    loop {
        // What is waited for until it is open is no time in which it was heard.
        let mut open = None;
        let error = match hears(&ears, &heard, failures > 0, &mut open).await {
            Ended::HasNone(error) => {
                tracing::info!(host = %heard.key.name, "its BMC's events do not come by a stream: {error}");
                heard.is_by(Means::NoStream);
                // A subscription is made at a look, for which no later event waits.
                heard.wake(|paces| &paces.without);
                return;
            }
            // Trying again would sign in again: that is left to the host's own looks, after one of which another ear begins.
            Ended::Refused(error) => {
                tracing::info!(host = %heard.key.name, "its BMC's events are not listened to for now: {error}");
                return;
            }
            Ended::Lost(error) => error,
        };
        if open.is_some_and(|at: Instant| at.elapsed() >= GOOD) {
            failures = 0;
        }
        let wait = spread(AGAIN.wait(failures).unwrap_or(AGAIN.most), &heard.key.uid, failures);
        tracing::debug!(host = %heard.key.name, seconds = wait.as_secs(), "the stream of its BMC's events is opened again later: {error}");
        failures = failures.saturating_add(1);
        sleep(wait).await;
    }
}

/// How listening has ended.
enum Ended {
    /// There are no streams.
    HasNone(BmcError),
    /// Access is refused, or another process acts.
    Refused(BmcError),
    /// The stream was lost, or could not be opened.
    Lost(BmcError),
}

/// One stream to its end.
async fn hears(ears: &Ears, heard: &Arc<Heard>, again: bool, open: &mut Option<Instant>) -> Ended {
    let events = match heard.bmc.events() {
        Ok(events) => events,
        Err(lacking) => return Ended::HasNone(lacking.into()),
    };
    let mut stream = match ears.open(events).await {
        Ok(stream) => stream,
        Err(error) if is_final(&error) => return Ended::HasNone(error),
        Err(error) => return lost(error),
    };
    *open = Some(Instant::now());
    heard.is_by(Means::Stream);
    if again {
        // What was told in between was told to nobody.
        heard.wake(|paces| &paces.told);
    }
    loop {
        match timeout(SILENCE, stream.next()).await {
            Ok(Ok(Some(alert))) => heard.told(alert),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return lost(error),
            Err(_) => {
                let error = BmcError::new(ErrorKind::Timeout, "listen to the BMC's events", "nothing comes any more");
                return Ended::Lost(error);
            }
        }
    }
}

/// Whether the BMC has no streams, so that trying again is of no use.
const fn is_final(error: &BmcError) -> bool {
    matches!(error.kind, ErrorKind::Unsupported | ErrorKind::NotFound)
        || matches!(error.kind, ErrorKind::Rejected { status } if status >= 400 && status < 500 || status == 501)
}

/// A failure to open a stream, or its end.
const fn is_refused(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unauthorized
            | ErrorKind::SessionLimit
            | ErrorKind::AnotherBmc
            | ErrorKind::NotAllowed
            | ErrorKind::NotLeading
            | ErrorKind::TlsNotTrusted
            | ErrorKind::NoCommonTls
            | ErrorKind::Address
    )
}

fn lost(error: BmcError) -> Ended {
    if is_refused(error.kind) { Ended::Refused(error) } else { Ended::Lost(error) }
}

/// A wait that is up to a quarter longer, by chance of the host's own: streams that were lost together are not opened together.
fn spread(wait: Duration, uid: &str, failures: u32) -> Duration {
    let mut hash = DefaultHasher::new();
    (uid, failures).hash(&mut hash);
    wait + wait / 1024 * u32::try_from(hash.finish() % 256).unwrap_or_default()
}
