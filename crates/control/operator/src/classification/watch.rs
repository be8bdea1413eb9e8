//! What the controllers of HardwareClassifications and of HostClasses share: what they hear, when they write, and when they try again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::metal3::BareMetalHost;
use classification::Key;
use futures::StreamExt as _;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::host::readable::Marks;
use crate::host::{Context, objects, scoped};
use crate::news::Novelty;
use crate::shutdown::Shutdown;

/// How long news are gathered before what comes of them is written.
const GATHER: Duration = Duration::from_millis(200);
/// Pause before what could not be written is tried again; doubles each time in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What the watch of classes shows.
pub(super) type Shown<K> = Result<Event<K>, Error>;

/// Hosts and classes that are tried again later.
#[derive(Default)]
pub(super) struct Later {
    pub hosts: BTreeSet<Key>,
    pub classes: BTreeSet<Key>,
    /// How often in a row something had to be.
    failures: u32,
}

impl Later {
    fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.classes.is_empty()
    }

    /// How many are tried again.
    pub fn len(&self) -> usize {
        self.hosts.len() + self.classes.len()
    }

    /// A round has ended, before which so many were.
    pub fn ended(&mut self, before: usize) {
        self.failures = if self.len() > before { self.failures.saturating_add(1) } else { 0 };
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE)
    }
}

/// Which classes have been listed.
#[derive(Default)]
pub(super) struct Listing {
    /// Those that a list under way has shown.
    under_way: HashSet<Key>,
    /// They have been listed and are watched.
    pub is_done: bool,
}

/// A controller that judges hosts by classes of one kind.
pub(super) trait Classifies {
    /// The kind.
    type Class: objects::Followed;

    fn context(&self) -> &Arc<Context>;
    fn listing(&mut self) -> &mut Listing;
    fn are_listed(&self) -> bool;
    fn later(&mut self) -> &mut Later;
    /// Whether something may have to be written.
    fn has_work(&self) -> bool;

    fn put_host(&mut self, host: &Arc<BareMetalHost>);
    fn forget_host(&mut self, key: &Key);
    fn host_keys(&self) -> Vec<Key>;

    fn put_class(&mut self, class: Self::Class);
    fn forget_class(&mut self, key: &Key);
    fn class_keys(&self) -> Vec<Key>;
    /// All classes have been listed.
    fn have_listed(&mut self);

    fn mark_host(&mut self, key: Key);
    fn mark_class(&mut self, key: Key);
    /// Writes what has come of it.
    fn write(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether all has been listed that is counted.
    fn is_in_step(&self) -> bool {
        let facts = &self.context().hardware_data;
        self.are_listed() && self.context().hosts.in_step.get() && (facts.in_step.get() || facts.is_absent())
    }

    fn hear(&mut self, novelty: Novelty) {
        match novelty {
            Novelty::Host(host) => self.put_host(&host),
            Novelty::HostGone(host) => self.forget_host(&key(host.namespace(), host.name_any())),
            Novelty::Facts(namespace, name) => self.facts_of(&(namespace, name)),
            Novelty::FactsListed => self.host_keys().iter().for_each(|key| self.facts_of(key)),
            Novelty::Listed => {
                // The list of Secrets ends with this, too: then the hosts may not be listed yet.
                if !self.context().hosts.in_step.get() {
                    return;
                }
                let Some(store) = self.context().hosts.store().cloned() else { return };
                let gone = self.host_keys().into_iter().filter(|key| store.get(&reference(key)).is_none());
                gone.for_each(|key| self.forget_host(&key));
            }
            Novelty::Secret(..) => {}
        }
    }

    fn facts_of(&mut self, key: &Key) {
        let host = self.context().hosts.store().and_then(|store| store.get(&reference::<BareMetalHost>(key)));
        if let Some(host) = host {
            self.put_host(&host);
        }
    }

    fn hear_class(&mut self, event: Shown<Self::Class>) {
        match event {
            Ok(Event::Init) => self.listing().under_way.clear(),
            Ok(Event::InitApply(object)) => {
                self.listing().under_way.insert(key(object.namespace(), object.name_any()));
                self.put_class(object);
            }
            Ok(Event::Apply(object)) => self.put_class(object),
            Ok(Event::Delete(object)) => self.forget_class(&key(object.namespace(), object.name_any())),
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut self.listing().under_way);
                let gone = self.class_keys().into_iter().filter(|key| !listed.contains(key));
                gone.for_each(|key| self.forget_class(&key));
                self.listing().is_done = true;
                self.have_listed();
            }
            Err(_) => self.listing().is_done = false,
        }
    }

    /// Marks what is to be tried again.
    fn retry(&mut self) {
        let (hosts, classes) = (std::mem::take(&mut self.later().hosts), std::mem::take(&mut self.later().classes));
        hosts.into_iter().for_each(|host| self.mark_host(host));
        classes.into_iter().for_each(|class| self.mark_class(class));
    }
}

/// What a controller listens to: the news of hosts, and its classes, which are watched for as long as this lives.
pub(super) struct Ears<K: objects::Followed> {
    news: UnboundedReceiver<Novelty>,
    classes: UnboundedReceiver<Shown<K>>,
    _watch: JoinSet<()>,
}

impl<K: objects::Followed> Ears<K> {
    /// Listens from now on. `unlisted` is called whenever the classes cannot be listed.
    pub fn open(context: &Arc<Context>, marks: &Arc<Marks>, unlisted: fn(&Context)) -> Self {
        let news = context.news.listen();
        let (sender, classes) = unbounded_channel();
        let mut watch = JoinSet::new();
        watch.spawn(follow::<K>(Arc::clone(context), Arc::clone(marks), sender, unlisted));
        Self { news, classes, _watch: watch }
    }
}

/// Runs the controller until `shutdown` resolves. Where there is no definition of its classes, it waits for it.
pub(super) async fn run<C: Classifies>(mut all: C, mut ears: Ears<C::Class>, mut shutdown: Shutdown) {
    // When what was gathered is written, and when what could not be written is tried again.
    let (mut flush, mut again): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let (at, retry_at) = (flush.unwrap_or_else(Instant::now), again.unwrap_or_else(Instant::now));
        tokio::select! {
            () = &mut shutdown => break,
            novelty = ears.news.recv() => match novelty {
                None => break,
                Some(novelty) => all.hear(novelty),
            },
            Some(event) = ears.classes.recv() => all.hear_class(event),
            () = sleep_until(at), if flush.is_some() => {
                flush = None;
                all.write().await;
            }
            () = sleep_until(retry_at), if again.is_some() => {
                again = None;
                all.retry();
                all.write().await;
            }
        }
        while let Ok(novelty) = ears.news.try_recv() {
            all.hear(novelty);
        }
        while let Ok(event) = ears.classes.try_recv() {
            all.hear_class(event);
        }
        if flush.is_none() && all.has_work() && all.is_in_step() {
            flush = Some(Instant::now() + GATHER);
        }
        if again.is_none() && !all.later().is_empty() {
            again = Some(Instant::now() + all.later().pause());
        }
    }
}

/// Watches the classes, as soon as there is a definition of them.
async fn follow<K: objects::Followed>(
    context: Arc<Context>,
    marks: Arc<Marks>,
    to: UnboundedSender<Shown<K>>,
    unlisted: fn(&Context),
) {
    let kind = K::kind(&());
    let namespace = context.settings.namespace.as_deref();
    let api: Api<K> = scoped(&context.client, namespace);
    objects::installed(&api, || {
        unlisted(&context);
        tracing::debug!(
            "there is no definition of the kind {kind}: install those of `metamorph crds` to have hosts classified by it"
        );
    })
    .await;
    let mut events = std::pin::pin!(objects::follow::<K>(&context.client, namespace, &context.recorder, &marks));
    let mut fails = false;
    while let Some(event) = events.next().await {
        if let Err(error) = &event
            && !fails
        {
            unlisted(&context);
            tracing::warn!(error = error as &dyn std::error::Error, "watch objects of the kind {kind}");
        }
        fails = event.is_err();
        if to.send(event).is_err() {
            return;
        }
    }
}

pub(super) fn key(namespace: Option<String>, name: String) -> Key {
    (namespace.unwrap_or_default(), name)
}

pub(super) fn reference<K: kube::Resource<DynamicType = ()>>((namespace, name): &Key) -> ObjectRef<K> {
    ObjectRef::new(name).within(namespace)
}

/// What differs of a host's labels: keys with the values that they are to have, or `None` for those that are to go.
pub(super) fn difference(
    wanted: BTreeMap<String, Option<String>>,
    is: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    wanted.into_iter().filter(|(key, value)| is.get(key) != value.as_ref()).collect()
}
