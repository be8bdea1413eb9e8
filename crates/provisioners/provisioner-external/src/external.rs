//! The provisioner object of one worker, for any kind of resource.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use provisioner::{
    Cause, Failure, Given, HostResource, Named, ObjectKey, Outcome, Provides, Recorded, Resource, Retry, WakeUps, Waker,
};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::ask::Effects;
use crate::carried::Carried;
use crate::convert;
use crate::flood::Pace;
use crate::keeper::keep;
use crate::limits::{LONG_ANSWERS, SHORT};
use crate::link::{Expected, Hold, Known, Link};
use crate::shared::{LEARNERS, Shared, Those};
use crate::site::{Reached, Site, unix_socket};
use crate::supervise::{Patience, Supervised, supervise};
use crate::transport::Connect;
use crate::wire::v1;

/// How a provisioner is watched and timed by those who check it.
pub struct Checking<R: Resource = HostResource> {
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Sees effects.
    pub effects: Option<Arc<dyn Effects>>,
    /// What the worker has said of itself before.
    pub known: Option<Arc<Known<R>>>,
    /// Notified when the worker hangs.
    pub hangs: Option<Arc<Notify>>,
}

impl<R: Resource> Default for Checking<R> {
    fn default() -> Self {
        Self { hold: None, effects: None, known: None, hangs: None }
    }
}

impl<R: Resource> Clone for Checking<R> {
    fn clone(&self) -> Self {
        let (hold, effects) = (self.hold.clone(), self.effects.clone());
        Self { hold, effects, known: self.known.clone(), hangs: self.hangs.clone() }
    }
}

/// A provisioner that is another program.
pub struct External<R: Carried> {
    name: &'static str,
    site: Site,
    /// What all that it looks after share.
    pub(crate) shared: Arc<Shared<R>>,
    keeper: Mutex<Option<AbortHandle>>,
}

impl<R: Carried> Drop for External<R> {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.abort();
        }
    }
}

impl<R: Carried> External<R> {
    /// The provisioner of this entry, reached so. It is not connected to yet.
    #[must_use]
    pub fn new(site: Site, connect: Arc<dyn Connect>) -> Self {
        Self::checked(site, connect, Checking::default())
    }

    /// The provisioner of this entry, reached as that says; and its program, if it is one that is started, which runs until it is dropped.
    ///
    /// # Errors
    /// When the program cannot be looked after.
    pub fn begin(site: Site) -> io::Result<(Self, Option<Supervised>)> {
        let connect: Arc<dyn Connect> = match &site.reached {
            Reached::Socket(path, user) => Arc::new(unix_socket(path.clone(), *user)),
            Reached::Tls(tls) => Arc::new(tls.clone()),
            Reached::Started(program) => {
                let started = supervise(&site.name, program, Patience::default())?;
                let connect = Arc::new(unix_socket(started.socket.clone(), program.user));
                let hangs = started.hangs();
                return Ok((Self::started(site, connect, hangs), Some(started)));
            }
        };
        Ok((Self::new(site, connect), None))
    }

    /// One of a program that this server has started: whoever looks after it hears by this that it hangs.
    #[must_use]
    pub fn started(site: Site, connect: Arc<dyn Connect>, hangs: Arc<Notify>) -> Self {
        Self::checked(site, connect, Checking { hangs: Some(hangs), ..Checking::default() })
    }

    /// The same, for those who check it.
    #[must_use]
    pub fn checked(site: Site, connect: Arc<dyn Connect>, checking: Checking<R>) -> Self {
        let expected = Expected { name: site.name.clone(), id_prefix: site.id_prefix.clone() };
        let shared = Shared {
            name: site.name.clone(),
            id_prefix: site.id_prefix.clone(),
            deadline: site.deadline,
            link: Link::new(expected, connect, checking.hold.clone(), checking.known),
            waker: Waker::default(),
            room: Semaphore::new(site.calls),
            most_calls: site.calls,
            hold: checking.hold,
            effects: checking.effects,
            those: Mutex::new(Those::default()),
            calls: AtomicU64::new(0),
            heard: Arc::default(),
            pace: Arc::new(Mutex::new(Pace::new(Instant::now()))),
            long: Arc::new(Semaphore::new(LONG_ANSWERS)),
            read: Arc::default(),
            learners: Semaphore::new(LEARNERS),
            hangs: checking.hangs,
        };
        // A registry's names last as long as the program, and there are as many as its file lists.
        let name = Box::leak(site.name.clone().into_boxed_str());
        Self { name, site, shared: Arc::new(shared), keeper: Mutex::new(None) }
    }

    /// Connects, and says what the worker says of itself.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn greet(&self) -> Result<Arc<Known<R>>, Failure> {
        Ok(self.shared.link.live().await?.known)
    }

    /// Whether the worker is connected, and the version of its program, as far as is known without asking.
    #[must_use]
    pub fn standing(&self) -> (bool, String) {
        let program = self.shared.link.known().map(|known| known.program.clone()).unwrap_or_default();
        (self.shared.link.is_connected(), program)
    }

    /// What its entry and the worker say of whom it serves is asked of those who choose it: a host that it has registered is not given to another, and
    /// is not left with its disks as they are because a list was edited. The same is so of any kind.
    pub(crate) fn serves(&self, facts: &R::Facts) -> Result<(), Failure> {
        let (name, kind) = (&self.site.name, R::KIND);
        let namespace = &R::key(facts).namespace;
        let is_registered = !R::id(facts).is_empty();
        if !self.site.namespaces.is_empty() && !self.site.namespaces.contains(namespace) {
            let text = format!("use the provisioner \"{name}\": it is not for {kind}s of the namespace {namespace}");
            if is_registered {
                // An id is no more than a status says: it opens no namespace.
                let mut failure = Failure::new(Cause::NotServed, text);
                failure.retry = Retry::Held;
                return Err(failure.advise(format!(
                    "the {kind} is registered with it: add the namespace to the list of provisioners again, until the {kind} is gone"
                )));
            }
            return Err(Shared::<R>::refused(
                Cause::NotServed,
                text,
                "choose another one, or have the namespace added to the list of provisioners",
            ));
        }
        if is_registered {
            return Ok(());
        }
        let Some(scheme) = R::scheme(facts) else { return Ok(()) };
        let said = self.shared.link.known();
        let scheme = scheme.to_ascii_lowercase();
        let fits = |schemes: &[String]| schemes.is_empty() || schemes.contains(&scheme);
        if fits(&self.site.schemes) && said.is_none_or(|known| fits(&known.schemes)) {
            return Ok(());
        }
        // It is woken when a worker comes that may serve it.
        self.shared.those().known.insert(R::key(facts).uid.clone(), R::key(facts).clone());
        let scheme = terms::clean(&scheme, 64);
        let text = format!("reach the BMC: the provisioner \"{name}\" does not serve addresses of the scheme {scheme}");
        Err(Shared::<R>::refused(
            Cause::BmcAddressInvalid,
            text,
            "correct spec.bmc.address, or choose another provisioner",
        ))
    }
}

impl<R: Carried> Named for External<R> {
    fn name(&self) -> &'static str {
        self.name
    }
}

#[async_trait]
impl<R: Carried> Provides<R> for External<R> {
    fn capabilities(&self, facts: &R::Facts) -> R::Capabilities {
        self.shared.capabilities(facts)
    }

    async fn ask(&self, context: R::Context, call: R::Call) -> Outcome<R::Answer> {
        self.serves(context.facts())?;
        self.shared.ask(&context, call).await
    }

    fn has_news(&self, key: &ObjectKey) -> bool {
        self.shared.those().news.contains(&key.uid)
    }

    fn acknowledge_news(&self, key: &ObjectKey) {
        self.shared.those().news.remove(&key.uid);
    }

    fn subscribe(&self) -> WakeUps {
        let wake_ups = self.shared.waker.subscribe();
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() {
            *keeper = Some(tokio::spawn(keep(Arc::downgrade(&self.shared))).abort_handle());
        }
        wake_ups
    }

    fn expect(&self, key: &ObjectKey, recorded: &Recorded) {
        self.shared.those().known.insert(key.uid.clone(), key.clone());
        let (shared, host, recorded) = (Arc::clone(&self.shared), convert::key(key), convert::recorded(recorded));
        tokio::spawn(async move {
            let Ok(live) = shared.link.live().await else { return };
            let request = v1::ExpectRequest { host: Some(host), recorded: Some(recorded) };
            // It is asked when its time comes in any case.
            let _ = timeout(SHORT, live.client().expect(request)).await;
        });
    }

    fn forget(&self, key: &ObjectKey) {
        // Others' are not its business.
        if !self.shared.forget(key) {
            return;
        }
        let (shared, host) = (Arc::clone(&self.shared), convert::key(key));
        tokio::spawn(async move {
            let Ok(live) = shared.link.live().await else { return };
            // A worker that does not hear it keeps a little more than it needs.
            let _ = timeout(SHORT, live.client().forget(v1::ForgetRequest { host: Some(host) })).await;
        });
    }

    async fn close(&self) {
        // Who is not connected has no sessions by this server's orders that it could hear of now.
        if !self.shared.link.is_connected() {
            return;
        }
        let Ok(live) = self.shared.link.live().await else { return };
        if !matches!(timeout(SHORT, live.client().close(v1::CloseRequest {})).await, Ok(Ok(_))) {
            tracing::warn!(provisioner = %self.name, "the provisioner may have left sessions open");
        }
    }
}
