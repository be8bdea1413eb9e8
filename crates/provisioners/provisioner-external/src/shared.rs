//! What all hosts of one worker share, and how one of them is asked.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use provisioner::{
    Answer, Call, Capabilities, Cause, Failure, HostContext, HostFacts, HostKey, Outcome, Retry, Verdict, Waiting,
    Waker,
};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::ask::{Conversation, Effects, Told, Unanswered};
use crate::convert;
use crate::limits::{MAX_ID, SHORT};
use crate::link::{Hold, Link, Live};
use crate::progress::Progress;
use crate::wire::v1;

/// When a host looks again that found no room.
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

/// What is known of hosts in this process.
#[derive(Default)]
pub struct Hosts {
    /// Those that this process has to do with, by uid.
    pub known: HashMap<String, HostKey>,
    /// Whose machine has shown something new.
    pub news: HashSet<String>,
    /// What the worker can do with them, by uid: at this address, as asked on this connection.
    described: HashMap<String, (String, u64, Capabilities)>,
    progress: Progress,
}

/// What all hosts of one worker share.
pub struct Shared {
    /// Its name.
    pub name: String,
    /// How the ids of its machines begin.
    pub id_prefix: String,
    /// How long a call may take.
    pub deadline: Duration,
    /// The connection.
    pub link: Link,
    /// Wakes hosts.
    pub waker: Waker,
    /// Room for calls.
    pub room: Semaphore,
    /// So many at once.
    pub most_calls: usize,
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Who sees effects.
    pub effects: Option<Arc<dyn Effects>>,
    /// What is known of hosts.
    pub hosts: Mutex<Hosts>,
    /// Counts the calls.
    pub calls: AtomicU64,
    /// Counts what the worker has said in calls.
    pub heard: Arc<AtomicU64>,
    /// Notified when the worker hangs.
    pub hangs: Option<Arc<Notify>>,
}

impl Shared {
    /// What is known of hosts.
    pub fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the worker can do with this host, as far as it has said so.
    pub fn capabilities(&self, host: &HostFacts) -> Capabilities {
        let described = self.hosts().described.get(&host.key.uid).cloned();
        match described {
            Some((address, _, capabilities)) if address == host.address => capabilities,
            // No wish is refused that the worker may serve, and nothing is promised of its care.
            _ => self.link.known().map_or_else(Capabilities::everything, |known| known.capabilities.clone()),
        }
    }

    /// Drops what is kept of a host; false if this process had nothing to do with it.
    pub fn forget(&self, key: &HostKey) -> bool {
        let mut hosts = self.hosts();
        let known = hosts.known.remove(&key.uid).is_some();
        hosts.news.remove(&key.uid);
        hosts.described.remove(&key.uid);
        hosts.progress.forget(&key.uid);
        known
    }

    /// Calls are under way.
    pub fn is_at_work(&self) -> bool {
        self.room.available_permits() < self.most_calls
    }

    /// Asks the worker. Where it is away, nothing was attempted: a host that is being deleted waits for it, or for its user's word, and does not go with its
    /// disks as they are. One that is there and does not come to an end counts as a failure: its machine may be dead.
    pub async fn ask(self: &Arc<Self>, context: &HostContext, call: Call) -> Outcome<Answer> {
        let outcome = self.asked(context, call).await;
        outcome.map_err(|mut failure| {
            let is_away = failure.cause == Cause::ProvisionerUnavailable && !self.link.is_connected();
            if is_away && context.facts.deleting {
                failure.retry = Retry::Held;
            }
            failure
        })
    }

    async fn asked(self: &Arc<Self>, context: &HostContext, call: Call) -> Outcome<Answer> {
        let name = call.name();
        let Ok(_place) = self.room.try_acquire() else {
            return Ok(self.no_room("as many calls are under way as it may have"));
        };
        self.hosts().known.insert(context.key.uid.clone(), context.key.clone());
        let live = self.link.live().await?;
        if self.link.drains() {
            return Ok(self.no_room("it is about to end, and takes no new calls"));
        }
        self.describe(&live, context).await;
        let (_, request) = convert::call(&call);
        let leads = (context.may_act)();
        let message = v1::Call {
            version: live.known.version,
            number: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            host: Some(convert::key(&context.key)),
            name: name.to_owned(),
            request: request.clone(),
            facts: convert::document(&*context.facts),
            bmc: context.bmc.as_ref().map(convert::access),
            recorded: Some(convert::recorded(&context.record.current())),
            now: Some(convert::time((context.now)())),
            deadline: Some(convert::span(self.deadline)),
            leads,
        };
        let conversation = Conversation {
            client: live.client(),
            provisioner: self.name.clone(),
            context: context.clone(),
            deadline: self.deadline,
            hold: self.hold.clone(),
            effects: self.effects.clone(),
            heard: Arc::clone(&self.heard),
            told: Told::default(),
        };
        let broken = |why: &str| Err(Unanswered::Broken(why.to_owned()));
        let verdict = tokio::select! {
            verdict = Task(tokio::spawn(conversation.verdict(message))) => {
                verdict.unwrap_or_else(|| broken("this program broke off"))
            }
            () = live.given_up() => broken("it does not answer any question, and is connected to anew"),
        };
        let outcome = self.outcome(name, context, verdict);
        self.hosts().progress.heed(&context.key.uid, name, &request, outcome)
    }

    fn no_room<T>(&self, why: &str) -> Verdict<T> {
        let reason = format!("the provisioner \"{}\" has no room: {why}", self.name);
        Verdict::Waiting(Waiting::Busy { reason, look_again: NO_ROOM })
    }

    fn outcome(
        &self,
        name: &str,
        context: &HostContext,
        verdict: Result<(v1::Verdict, Told), Unanswered>,
    ) -> Outcome<Answer> {
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
                let outcome = self.checked(&context.facts, outcome).map_err(|why| wrong(&why))?;
                outcome.map_err(|failure| told.judged(failure, (context.may_act)()).unwrap_or_else(|why| wrong(&why)))
            }
            Err(Unanswered::Wrong(why)) => Err(wrong(&why)),
            Err(Unanswered::NoRoom(why)) => Ok(self.no_room(&why)),
            Err(Unanswered::Broken(why)) => Err(self.link.unavailable(&asked(&why))),
            Err(Unanswered::TooLong(after)) => {
                let failure =
                    self.link.unavailable(&asked(&format!("it has not answered within {} s", after.as_secs())));
                Err(failure
                    .advise("see the log of its program for what it waits for, such as a BMC; it is asked again"))
            }
        }
    }

    /// An id has to be the worker's own, for ever: by it the worker is found again.
    fn checked(&self, facts: &HostFacts, outcome: Outcome<Answer>) -> Result<Outcome<Answer>, String> {
        let Ok(Verdict::Done(Answer::Registered(registered))) = &outcome else { return Ok(outcome) };
        let id = &registered.id;
        let is_plain = id.len() <= MAX_ID && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
        if !is_plain {
            return Err(
                "it gives the machine an id of other characters than letters, digits and -_.:, or too long a one"
                    .to_owned(),
            );
        }
        if !id.starts_with(&self.id_prefix) || id.len() == self.id_prefix.len() {
            return Err(format!("it gives the machine an id that does not begin with \"{}\"", self.id_prefix));
        }
        if !facts.provisioning_id.is_empty() && facts.provisioning_id != *id {
            return Err(format!("it gives the machine another id than it has, {}", facts.provisioning_id));
        }
        Ok(outcome)
    }

    /// Asks what the worker can do with this host, once a connection and address.
    async fn describe(&self, live: &Live, context: &HostContext) {
        let uid = &context.key.uid;
        let is_known = |found: &(String, u64, Capabilities)| found.0 == context.address && found.1 == live.generation;
        if self.hosts().described.get(uid).is_some_and(is_known) {
            return;
        }
        let before = self.capabilities(&context.facts);
        let request = v1::DescribeRequest {
            version: live.known.version,
            host: Some(convert::key(&context.key)),
            facts: convert::document(&*context.facts),
        };
        let held = self.link.held();
        let said = timeout(SHORT, live.client().describe(request)).await;
        drop(held);
        let said = match said {
            Ok(Ok(said)) => convert::read::<Capabilities>("its capabilities", &said.into_inner().capabilities),
            // It has said what all its hosts have.
            Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => Ok(live.known.capabilities.clone()),
            Ok(Err(_)) | Err(_) => return,
        };
        match said {
            Ok(capabilities) => {
                let differs = capabilities != before;
                self.hosts().described.insert(uid.clone(), (context.address.clone(), live.generation, capabilities));
                if differs {
                    self.waker.wake(&context.key);
                }
            }
            Err(error) => {
                tracing::warn!(provisioner = %self.name, "the provisioner does not say what it can do: {error}")
            }
        }
    }

    /// A failure of what is asked of a host that is none of the worker's.
    pub fn refused(cause: Cause, message: String, advice: &str) -> Failure {
        let mut failure = Failure::new(cause, message).advise(advice);
        failure.retry = Retry::AfterChange;
        failure
    }
}
