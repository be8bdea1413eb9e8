//! What all resources of one worker share, and how one of them is asked. They are hosts, or of another kind.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use provisioner::{
    Asked, Cause, Failure, Given, ObjectKey, Outcome, Resource, Retry, Verdict, Waiting, Waker, Working,
};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{Conversation, Effects, Told};
use crate::carried::{Carried, Unanswered};
use crate::convert;
use crate::flood::Pace;
use crate::limits::{MAX_ID, SHORT};
use crate::link::{Hold, Known, Link, Live, shown as status_shown};
use crate::progress::Progress;
use crate::wire::v1;

/// How long a worker that is there has for one that is let go by force.
const FORCED: Duration = Duration::from_secs(60);

/// When a worker is asked again, at the latest, that has not let one go by force.
const FORCED_AGAIN: Duration = Duration::from_secs(10);

/// Of how many is asked at once what can be done with them, beside calls.
pub const LEARNERS: usize = 4;

/// When is asked again for what found no room.
const NO_ROOM: Duration = Duration::from_secs(5);

/// A task that ends with whoever waits for it: a call that nobody wants any more is broken off.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}

/// What is known of resources in this process.
pub struct Those<R: Resource> {
    /// Those that this process has to do with, by uid.
    pub known: HashMap<String, ObjectKey>,
    /// Whose machine has shown something new.
    pub news: HashSet<String>,
    /// What the worker can do with them, by uid.
    described: HashMap<String, Described<R>>,
    /// Of whom that is being asked, by uid.
    learning: HashSet<String>,
    /// Those that are let go by force, by uid.
    forced: HashMap<String, Forced>,
    /// On which connection it was last told that the worker does not say that.
    complained: u64,
    progress: Progress,
}

/// One that is let go by force.
struct Forced {
    /// Until when its worker has time for it.
    end: Instant,
    /// What that has said last.
    said: Option<String>,
}

/// What a worker can do with one resource.
struct Described<R: Resource> {
    /// At this address.
    address: String,
    /// As asked on this connection.
    generation: u64,
    /// What it had said there of all its resources, and the version of its program: one that says something else by now has to be asked anew.
    greeting: Arc<Known<R>>,
    /// Those of all its resources, if it has said nothing else of this one.
    capabilities: Option<R::Capabilities>,
    /// It has not answered: it is asked again then.
    again: Option<Instant>,
}

/// When a worker that has not said what it can do with a resource is asked again.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// What a worker answers that has too much to do for now.
const fn is_passing(code: tonic::Code) -> bool {
    use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable};
    matches!(code, Aborted | Cancelled | DeadlineExceeded | ResourceExhausted | Unavailable)
}

/// Whether it is time to ask again.
fn is_due(again: Option<Instant>) -> bool {
    again.is_some_and(|again| Instant::now() >= again)
}

impl<R: Resource> Described<R> {
    fn is_of(&self, known: &Known<R>) -> bool {
        self.greeting.capabilities == known.capabilities && self.greeting.program == known.program
    }

    fn capabilities(&self) -> &R::Capabilities {
        self.capabilities.as_ref().unwrap_or(&self.greeting.capabilities)
    }
}

impl<R: Resource> Those<R> {
    /// Ends the question of what can be done with one. False if it was forgotten meanwhile: then so is the answer.
    fn has_learned(&mut self, uid: &str) -> bool {
        let is_known = self.learning.remove(uid);
        if !is_known {
            self.described.remove(uid);
        }
        is_known
    }
}

impl<R: Resource> Default for Those<R> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            news: HashSet::new(),
            described: HashMap::new(),
            learning: HashSet::new(),
            forced: HashMap::new(),
            complained: 0,
            progress: Progress::default(),
        }
    }
}

/// What all resources of one worker share.
pub struct Shared<R: Carried> {
    /// Its name.
    pub name: String,
    /// How the ids of its machines begin.
    pub id_prefix: String,
    /// How long a call may take.
    pub deadline: Duration,
    /// The connection.
    pub link: Link<R>,
    /// Wakes them.
    pub waker: Waker,
    /// Room for calls.
    pub room: Semaphore,
    /// So many at once.
    pub most_calls: usize,
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Who sees effects.
    pub effects: Option<Arc<dyn Effects>>,
    /// What is known of them.
    pub those: Mutex<Those<R>>,
    /// Counts the calls.
    pub calls: AtomicU64,
    /// Counts what the worker has said in calls.
    pub heard: Arc<AtomicU64>,
    /// How often it may ask in them.
    pub pace: Arc<Mutex<Pace>>,
    /// Room for long answers to it, in KiB.
    pub long: Arc<Semaphore>,
    /// Counts what the worker has read, in all its calls.
    pub read: Arc<AtomicU64>,
    /// Room for questions of what it can do with one that is asked for nothing yet.
    pub learners: Semaphore,
    /// Notified when the worker hangs.
    pub hangs: Option<Arc<Notify>>,
}

impl<R: Carried> Shared<R> {
    /// What is known of them.
    pub fn those(&self) -> MutexGuard<'_, Those<R>> {
        self.those.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the worker can do with this host, as far as it has said so.
    pub fn capabilities(&self, facts: &R::Facts) -> R::Capabilities {
        let known = self.link.known();
        let described = self.described(facts, known.as_deref(), |described| described.capabilities().clone());
        described.unwrap_or_else(|| known.map_or_else(R::unknown, |known| known.capabilities.clone()))
    }

    /// What is taken from the worker's word on this one, if it has given that since it said what all have.
    fn described<T>(
        &self,
        facts: &R::Facts,
        known: Option<&Known<R>>,
        take: impl FnOnce(&Described<R>) -> T,
    ) -> Option<T> {
        let those = self.those();
        let described = those.described.get(&R::key(facts).uid)?;
        let counts = described.address == R::address(facts) && known.is_none_or(|known| described.is_of(known));
        counts.then(|| take(described))
    }

    /// Asks what the worker can do with one of which it has not said that, beside whatever is done: a wish that it serves there alone must not be refused for good
    /// before anything is asked. Whoever waits is woken if it says something else than of all.
    pub fn learn(self: &Arc<Self>, facts: &R::Facts) {
        let (key, known) = (R::key(facts), self.link.known());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let is_needed = !key.uid.is_empty()
            && self.link.is_connected()
            && self.described(facts, known.as_deref(), |found| found.again).is_none_or(is_due)
            && self.those().learning.insert(key.uid.clone());
        if !is_needed {
            return;
        }
        let (shared, facts) = (Arc::clone(self), facts.clone());
        runtime.spawn(async move {
            let place = shared.learners.acquire().await;
            if let Ok(live) = shared.link.live().await {
                shared.describe(&live, &facts).await;
            }
            drop(place);
            let known = shared.link.known();
            let again = shared.described(&facts, known.as_deref(), |found| found.again).flatten();
            if !shared.those().has_learned(&R::key(&facts).uid) {
                return;
            }
            // It is looked at again when the worker may answer.
            if let Some(again) = again {
                sleep_until(again).await;
                shared.waker.wake(R::key(&facts));
            }
        });
    }

    /// Begins the time that a worker has for one that is let go by force, and returns when it ends. It is asked all the while: a wish that nobody has spoken of
    /// for as long again was given up, and the next one has a time of its own.
    pub fn forced(&self, key: &ObjectKey) -> Instant {
        let now = Instant::now();
        let mut those = self.those();
        let new = || Forced { end: now + FORCED, said: None };
        let forced = those.forced.entry(key.uid.clone()).or_insert_with(new);
        if now.duration_since(forced.end) > FORCED {
            *forced = new();
        }
        forced.end
    }

    /// Nobody lets it go by force any more.
    pub fn unforced(&self, key: &ObjectKey) {
        self.those().forced.remove(&key.uid);
    }

    /// What comes of letting one go by force: a worker that is away, hangs, fails or has no room keeps nobody. One that is there gets a minute for it, in which it is
    /// asked again however late it wants that. At its `end` nothing more is asked of it, and the host goes as one does whose provisioner cannot be asked: with an
    /// Event.
    pub fn by_force(&self, key: &ObjectKey, end: Instant, answer: Option<Outcome<()>>) -> Outcome<()> {
        let (why, pause) = match answer {
            Some(Ok(Verdict::Done(()))) => {
                self.unforced(key);
                return Ok(Verdict::Done(()));
            }
            Some(Err(failure)) if failure.cause == Cause::NotLeading => return Err(failure),
            Some(Err(failure)) => (failure.message, FORCED_AGAIN),
            Some(Ok(Verdict::Working(working))) => (working.step, working.look_again),
            Some(Ok(Verdict::Waiting(Waiting::Busy { reason, look_again }))) => (reason, look_again),
            Some(Ok(Verdict::Waiting(_))) => ("it waits for what it cannot have now".to_owned(), FORCED_AGAIN),
            None => {
                let said = self.those().forced.get(&key.uid).and_then(|forced| forced.said.clone());
                (said.unwrap_or_else(|| "it has not answered".to_owned()), FORCED_AGAIN)
            }
        };
        if let Some(forced) = self.those().forced.get_mut(&key.uid) {
            forced.said = Some(why.clone());
        }
        let left = end.saturating_duration_since(Instant::now());
        if self.link.is_connected() && !left.is_zero() {
            let step = format!("the provisioner \"{}\" has a minute to let it go: {why}", self.name);
            return Ok(Verdict::Working(Working {
                step,
                look_again: pause.min(FORCED_AGAIN).min(left),
                ..Working::default()
            }));
        }
        self.unforced(key);
        let text = format!("let it go by force: the provisioner \"{}\" has not done so: {why}", self.name);
        let failure = Failure::new(Cause::ProvisionerUnavailable, text)
            .advise("see that it does nothing to the machine any more");
        Err(Failure { retry: Retry::Held, ..failure })
    }

    /// Drops what is kept of one; false if this process had nothing to do with it.
    pub fn forget(&self, key: &ObjectKey) -> bool {
        let mut those = self.those();
        let known = those.known.remove(&key.uid).is_some();
        those.news.remove(&key.uid);
        those.described.remove(&key.uid);
        those.learning.remove(&key.uid);
        those.forced.remove(&key.uid);
        those.progress.forget(&key.uid);
        known
    }

    /// Calls are under way.
    pub fn is_at_work(&self) -> bool {
        self.room.available_permits() < self.most_calls
    }

    /// Asks the worker. Where it is away, nothing was attempted: a host that is being deleted waits for it, or for its user's word, and does not go with its
    /// disks as they are. One that is there and does not come to an end counts as a failure: its machine may be dead.
    pub async fn ask(self: &Arc<Self>, context: &R::Context, call: R::Call) -> Outcome<R::Answer> {
        let outcome = self.asked(context, call).await;
        outcome.map_err(|mut failure| {
            let is_away = failure.cause == Cause::ProvisionerUnavailable && !self.link.is_connected();
            if is_away && R::is_leaving(context.facts()) {
                failure.retry = Retry::Held;
            }
            failure
        })
    }

    async fn asked(self: &Arc<Self>, context: &R::Context, call: R::Call) -> Outcome<R::Answer> {
        let name = call.name();
        let Ok(_place) = self.room.try_acquire() else {
            return Ok(self.no_room("as many calls are under way as it may have"));
        };
        self.those().known.insert(context.key().uid.clone(), context.key().clone());
        let live = self.link.live().await?;
        if self.gives_up_unread(&live).await {
            return Err(self.link.unavailable("it answers what it does not read, and is connected to anew"));
        }
        if self.link.drains() {
            return Ok(self.no_room("it is about to end, and takes no new calls"));
        }
        self.describe(&live, context.facts()).await;
        let (_, request) = convert::call(&call);
        let mut message = v1::Call {
            version: live.known.version,
            number: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            host: Some(convert::key(context.key())),
            name: name.to_owned(),
            request: request.clone(),
            facts: convert::document(context.facts()),
            bmc: None,
            recorded: Some(convert::recorded(&context.record().current())),
            now: Some(convert::time(context.time())),
            deadline: Some(convert::span(self.deadline)),
            leads: context.leads(),
            kind: R::KIND.to_owned(),
        };
        R::add(context, &mut message);
        let conversation = Conversation::<R> {
            client: live.client(),
            provisioner: self.name.clone(),
            context: context.clone(),
            deadline: self.deadline,
            hold: self.hold.clone(),
            effects: self.effects.clone(),
            heard: Arc::clone(&self.heard),
            pace: Arc::clone(&self.pace),
            long: Arc::clone(&self.long),
            read: Arc::clone(&self.read),
            told: Told::default(),
        };
        let broken = |why: &str| Err(Unanswered::Broken(why.to_owned()));
        let verdict = tokio::select! {
            verdict = Task(tokio::spawn(conversation.verdict(message))) => {
                verdict.unwrap_or_else(|| broken("this program broke off"))
            }
            () = live.given_up() => broken("it does not answer, or does not read what it asks for, and is connected to anew"),
        };
        if matches!(verdict, Err(Unanswered::Unread(_))) {
            // What ended calls have left unread is in the way of all others for as long as the connection lasts.
            tracing::warn!(provisioner = %self.name, "the provisioner reads nothing of what it asks for: it is connected to anew");
            self.link.give_up(&live).await;
        }
        let outcome = self.outcome(name, context, verdict);
        self.those().progress.heed(&context.key().uid, name, &request, outcome)
    }

    /// Gives a connection up on which the worker answers what it does not read, true if so: all of that is kept for it, with the passwords in it.
    pub async fn gives_up_unread(&self, live: &Live<R>) -> bool {
        if !live.is_clogged(self.most_calls) {
            return false;
        }
        tracing::warn!(provisioner = %self.name, "the provisioner answers what it does not read: it is connected to anew");
        self.link.give_up(live).await;
        true
    }

    fn no_room<T>(&self, why: &str) -> Verdict<T> {
        let reason = format!("the provisioner \"{}\" has no room: {why}", self.name);
        Verdict::Waiting(Waiting::Busy { reason, look_again: NO_ROOM })
    }

    fn outcome(
        &self,
        name: &str,
        context: &R::Context,
        verdict: Result<(v1::Verdict, Told), Unanswered>,
    ) -> Outcome<R::Answer> {
        let asked = |what: &str| format!("asked for {name}, {what}");
        let wrong = |why: &str| {
            let failure = Failure::new(
                Cause::ProvisionerFailed,
                format!("ask the provisioner \"{}\": {}", self.name, asked(why)),
            );
            failure.advise("report it to whoever makes that program; it is asked again")
        };
        match verdict {
            Ok((verdict, told)) => {
                let outcome = convert::verdict_read(verdict)
                    .map_err(|error| wrong(&format!("it is not understood ({error})")))?;
                let outcome = self.checked(context.facts(), outcome).map_err(|why| wrong(&why))?;
                outcome.map_err(|failure| told.judged(failure, context.leads()).unwrap_or_else(|why| wrong(&why)))
            }
            Err(Unanswered::Wrong(why)) => Err(wrong(&why)),
            Err(Unanswered::NoRoom(why)) => Ok(self.no_room(&why)),
            Err(Unanswered::Broken(why) | Unanswered::Unread(why)) => Err(self.link.unavailable(&asked(&why))),
            Err(Unanswered::TooLong(after)) => {
                let failure =
                    self.link.unavailable(&asked(&format!("it has not answered within {} s", after.as_secs())));
                Err(failure.advise("see the log of its program for what it waits for; it is asked again"))
            }
        }
    }

    /// An id has to be the worker's own, for ever: by it the worker is found again.
    fn checked(&self, facts: &R::Facts, outcome: Outcome<R::Answer>) -> Result<Outcome<R::Answer>, String> {
        let Ok(Verdict::Done(answer)) = &outcome else { return Ok(outcome) };
        let Some(id) = R::given_id(answer) else { return Ok(outcome) };
        let (what, known) = (R::THING, R::id(facts));
        let is_plain = id.len() <= MAX_ID && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
        if !is_plain {
            return Err(format!(
                "it gives the {what} an id of other characters than letters, digits and -_.:, or too long a one"
            ));
        }
        if !id.starts_with(&self.id_prefix) || id.len() == self.id_prefix.len() {
            return Err(format!("it gives the {what} an id that does not begin with \"{}\"", self.id_prefix));
        }
        if !known.is_empty() && known != id {
            return Err(format!("it gives the {what} another id than it has, {known}"));
        }
        Ok(outcome)
    }

    /// Asks what the worker can do with this host, once a connection and address. Where it does not say so, what it has said of all counts.
    async fn describe(&self, live: &Live<R>, facts: &R::Facts) {
        let (key, address) = (R::key(facts), R::address(facts));
        let uid = &key.uid;
        let is_known = |found: &Described<R>| {
            found.address == address
                && found.generation == live.generation
                && found.again.is_none_or(|again| Instant::now() < again)
        };
        if self.those().described.get(uid).is_some_and(is_known) {
            return;
        }
        let before = self.capabilities(facts);
        let request = v1::DescribeRequest {
            version: live.known.version,
            host: Some(convert::key(key)),
            facts: convert::document(facts),
        };
        let held = self.link.held();
        let said = timeout(SHORT, live.client().describe(request)).await;
        drop(held);
        let mut again = None;
        let mut later = || again = Some(Instant::now() + ASKED_AGAIN);
        let said = match said {
            Ok(Ok(said)) => {
                let said = convert::capabilities::<R::Capabilities>(&said.into_inner().capabilities);
                said.map(Some).map_err(|error| error.to_string())
            }
            // It has said what all its hosts have.
            Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => Ok(None),
            Ok(Err(status)) => {
                if is_passing(status.code()) {
                    later();
                }
                Err(status_shown(&status))
            }
            Err(_) => {
                later();
                Err(format!("it has not answered within {} s", SHORT.as_secs()))
            }
        };
        let said = said.unwrap_or_else(|why| {
            self.complain(live, key, &why);
            None
        });
        let greeting = Arc::clone(&live.known);
        let capabilities = said.filter(|said| *said != greeting.capabilities);
        let described =
            Described { address: address.to_owned(), generation: live.generation, greeting, capabilities, again };
        let differs = *described.capabilities() != before;
        self.those().described.insert(uid.clone(), described);
        if differs {
            self.waker.wake(key);
        }
    }

    /// Tells once a connection that the worker does not say what it can do.
    fn complain(&self, live: &Live<R>, key: &ObjectKey, why: &str) {
        let told = std::mem::replace(&mut self.those().complained, live.generation);
        if told != live.generation {
            let (namespace, name) = (&key.namespace, &key.name);
            tracing::warn!(provisioner = %self.name, %namespace, %name, "the provisioner does not say what it can do with this {}, and perhaps with others: {why}", R::KIND);
        }
    }

    /// A failure of what is asked of one that is none of the worker's.
    pub fn refused(cause: Cause, message: String, advice: &str) -> Failure {
        let mut failure = Failure::new(cause, message).advise(advice);
        failure.retry = Retry::AfterChange;
        failure
    }
}
