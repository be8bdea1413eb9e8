//! The controller of HardwareClassifications: hosts that have the hardware which one asks for bear its label.
//!
//! It listens to the news of hosts and HardwareData beside the host controller, and watches the classifications. Which host matches is decided by the
//! pure crate `classification`, whose board judges only the pairs that a change concerns; what comes out is gathered for a moment and then written:
//! labels of hosts in one patch each, on the very host (its uid) and on nothing but keys of its own; the status of each classification; and Events,
//! not more than two a classification each time. What is there already is not written. A classification bears a finalizer before any host bears
//! its label, as upstream's do, and loses it when no host does any more.
//!
//! Nothing is written before hosts, HardwareData and classifications have been listed: counts of a part would be wrong.

mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, HardwareClassification, HardwareData, label};
use classification::{Board, Class, Facts, Fault, HostError, Key, MAX_CLASSES, Trouble};
use futures::StreamExt as _;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use crate::host::readable::Marks;
use crate::host::{Context, HostController, objects, scoped};
use crate::news::Novelty;

/// How long news are gathered before what comes of them is written.
const GATHER: Duration = Duration::from_millis(200);
/// Pause before what could not be written is tried again; doubles each time in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How soon a definition that is not installed is looked for again.
const ABSENT: Duration = Duration::from_secs(60);

/// The controller.
pub struct ClassificationController {
    context: Arc<Context>,
}

type Classes = Result<Event<HardwareClassification>, Error>;

/// What it knows.
pub(crate) struct All {
    context: Arc<Context>,
    board: Board,
    /// The classifications as last seen or written.
    objects: HashMap<Key, HardwareClassification>,
    /// Those that a list under way has shown.
    listing: HashSet<Key>,
    /// The classifications have been listed and are watched.
    are_listed: bool,
    unreadable: Arc<Marks>,
    /// What classes say of the diagnosis of their hosts, by namespace and key of their label.
    detecting: HashMap<Key, bool>,
    /// By host: labels that could not be written, and why.
    troubles: BTreeMap<Key, (BTreeSet<String>, Trouble)>,
    /// Hosts and classes that are tried again later.
    later: (BTreeSet<Key>, BTreeSet<Key>),
    /// How often in a row something had to be.
    failures: u32,
}

impl ClassificationController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController) -> Self {
        let context = hosts.context();
        *context.detecting.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Self { context }
    }

    /// Runs until `shutdown` resolves. Where there is no definition of HardwareClassifications, it waits for it.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) {
        let mut news = self.context.news.listen();
        let (sender, mut classes) = unbounded_channel();
        let unreadable = Arc::<Marks>::default();
        let mut watch = tokio::task::JoinSet::new();
        watch.spawn(follow(Arc::clone(&self.context), Arc::clone(&unreadable), sender));
        let mut all = All {
            context: self.context,
            board: Board::default(),
            objects: HashMap::new(),
            listing: HashSet::new(),
            are_listed: false,
            unreadable,
            detecting: HashMap::new(),
            troubles: BTreeMap::new(),
            later: Default::default(),
            failures: 0,
        };
        // When what was gathered is written, and when what could not be written is tried again.
        let (mut flush, mut again): (Option<Instant>, Option<Instant>) = (None, None);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let (at, retry_at) = (flush.unwrap_or_else(Instant::now), again.unwrap_or_else(Instant::now));
            tokio::select! {
                () = &mut shutdown => break,
                novelty = news.recv() => match novelty {
                    None => break,
                    Some(novelty) => all.hear(novelty),
                },
                Some(event) = classes.recv() => all.hear_class(event),
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
            while let Ok(novelty) = news.try_recv() {
                all.hear(novelty);
            }
            while let Ok(event) = classes.try_recv() {
                all.hear_class(event);
            }
            if flush.is_none() && all.has_work() && all.is_in_step() {
                flush = Some(Instant::now() + GATHER);
            }
            if again.is_none() && all.has_later() {
                again = Some(Instant::now() + all.pause());
            }
        }
    }
}

/// Watches the classifications, as soon as there is a definition of them.
async fn follow(context: Arc<Context>, marks: Arc<Marks>, to: UnboundedSender<Classes>) {
    let namespace = context.settings.namespace.as_deref();
    let api: Api<HardwareClassification> = scoped(&context.client, namespace);
    let none = kube::api::ListParams::default().limit(1);
    while matches!(api.list_metadata(&none).await, Err(kube::Error::Api(error)) if error.code == 404) {
        know_no_detection(&context);
        tracing::debug!(
            "there is no definition of HardwareClassifications: install those of `metamorph crds` to have hosts classified"
        );
        tokio::time::sleep(ABSENT).await;
    }
    let mut events = std::pin::pin!(objects::follow::<HardwareClassification>(
        &context.client,
        namespace,
        &context.recorder,
        &marks
    ));
    let mut fails = false;
    while let Some(event) = events.next().await {
        if let Err(error) = &event
            && !fails
        {
            know_no_detection(&context);
            tracing::warn!(error = error as &dyn std::error::Error, "watch the HardwareClassifications");
        }
        fails = event.is_err();
        if to.send(event).is_err() {
            return;
        }
    }
}

/// Classifications that cannot be listed say nothing of the diagnosis of their hosts.
fn know_no_detection(context: &Context) {
    context.detecting.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

fn key(namespace: Option<String>, name: String) -> Key {
    (namespace.unwrap_or_default(), name)
}

fn reference<K: kube::Resource<DynamicType = ()>>((namespace, name): &Key) -> ObjectRef<K> {
    ObjectRef::new(name).within(namespace)
}

/// What differs of a host's labels: keys with the values that they are to have, or `None` for those that are to go.
pub(crate) fn difference(
    wanted: BTreeMap<String, Option<String>>,
    is: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    wanted.into_iter().filter(|(key, value)| is.get(key) != value.as_ref()).collect()
}

impl All {
    /// Whether all has been listed that is counted.
    fn is_in_step(&self) -> bool {
        let facts = &self.context.hardware_data;
        self.are_listed && self.context.hosts.in_step.get() && (facts.in_step.get() || facts.is_absent())
    }

    fn has_work(&self) -> bool {
        self.board.has_marks()
    }

    fn has_later(&self) -> bool {
        !self.later.0.is_empty() || !self.later.1.is_empty()
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE)
    }

    /// Marks what is to be tried again.
    fn retry(&mut self) {
        let (hosts, classes) = std::mem::take(&mut self.later);
        hosts.into_iter().for_each(|host| self.board.mark_host(host));
        classes.into_iter().for_each(|class| self.board.mark_class(class));
    }

    fn hear(&mut self, novelty: Novelty) {
        match novelty {
            Novelty::Host(host) => self.put_host(&host),
            Novelty::HostGone(host) => {
                let key = key(host.namespace(), host.name_any());
                self.forget_host(&key);
            }
            Novelty::Facts(namespace, name) => self.facts_of(&(namespace, name)),
            Novelty::FactsListed => {
                let all: Vec<Key> = self.board.host_keys().map(|(n, h)| (n.to_owned(), h.to_owned())).collect();
                all.iter().for_each(|key| self.facts_of(key));
            }
            Novelty::Listed => {
                let Some(store) = self.context.hosts.store() else { return };
                let is_there = |(n, h): &(&str, &str)| store.get(&ObjectRef::new(h).within(n)).is_some();
                // The list of Secrets ends with this, too: then the hosts may not be listed yet.
                if !self.context.hosts.in_step.get() {
                    return;
                }
                let gone: Vec<Key> = self
                    .board
                    .host_keys()
                    .filter(|key| !is_there(key))
                    .map(|(n, h)| (n.to_owned(), h.to_owned()))
                    .collect();
                gone.iter().for_each(|key| self.forget_host(key));
            }
            Novelty::Secret(..) => {}
        }
    }

    fn forget_host(&mut self, key: &Key) {
        self.board.remove_host(&key.0, &key.1);
        self.later.0.remove(key);
        self.trouble_is(key, None);
    }

    fn facts_of(&mut self, key: &Key) {
        let host = self.context.hosts.store().and_then(|store| store.get(&reference::<BareMetalHost>(key)));
        if let Some(host) = host {
            self.put_host(&host);
        }
    }

    fn put_host(&mut self, host: &Arc<BareMetalHost>) {
        let key = key(host.namespace(), host.name_any());
        let facts = &self.context.hardware_data;
        let of_host = reference::<HardwareData>(&key);
        let data = facts.store().and_then(|store| store.get(&of_host));
        // What cannot be read is not judged by what is left of it.
        let data = data.filter(|data| !facts.marks().hold(data.as_ref()));
        let error = HostError::of(host.status.as_ref());
        let uid = host.metadata.uid.as_deref().unwrap_or_default();
        self.board.put_host((&key.0, &key.1), uid, Facts::of(host, data.as_ref()), error);
        // Somebody else may have written to the labels.
        if !difference(self.board.labels(&key.0, &key.1), host.labels()).is_empty() {
            self.board.mark_host(key);
        }
    }

    fn hear_class(&mut self, event: Classes) {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(object)) => {
                self.listing.insert(key(object.namespace(), object.name_any()));
                self.put_class(object);
            }
            Ok(Event::Apply(object)) => self.put_class(object),
            Ok(Event::Delete(object)) => self.forget_class(&key(object.namespace(), object.name_any())),
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut self.listing);
                let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.forget_class(key));
                self.are_listed = true;
                self.tell_detection();
            }
            Err(_) => self.are_listed = false,
        }
    }

    fn put_class(&mut self, object: HardwareClassification) {
        let key = key(object.namespace(), object.name_any());
        // What is left of one that cannot be read may match hosts that it does not ask for: an Event of it says what is wrong. One that goes asks for none.
        if self.unreadable.hold(&object) && !object.is_deleting() {
            return;
        }
        let class = Class::of(&object);
        let detect = match object.label(label::ERROR_DETECT) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => None,
        };
        self.detects((key.0.clone(), class.key.clone()), detect);
        let namespace = key.0.clone();
        self.objects.insert(key, object);
        if !self.seat(&namespace) {
            self.board.put_class(&namespace, class);
        }
    }

    /// Hosts are judged by the eldest classes of a namespace, whatever the order in which they are heard of; whether there are more than that. One without a
    /// fault of its own has a place until it is gone.
    fn seat(&mut self, namespace: &str) -> bool {
        let of_namespace = self.objects.iter().filter(|(key, _)| key.0 == namespace);
        let mut classes: Vec<_> = of_namespace.map(|(key, object)| (object, key, Class::of(object))).collect();
        let are_many = classes.len() > MAX_CLASSES;
        let are_seated =
            |class: &Class| self.board.class(namespace, &class.name).is_none_or(|before| before.fault == class.fault);
        if !are_many && classes.iter().all(|(.., class)| are_seated(class)) {
            return false;
        }
        let made = |object: &HardwareClassification| object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        classes.sort_by(|one, other| (made(one.0), one.1).cmp(&(made(other.0), other.1)));
        let mut places = 0..MAX_CLASSES;
        for (.., class) in &mut classes {
            if class.fault.is_none() && places.next().is_none() {
                class.fault = Some(Fault::TooMany);
            }
        }
        let changed: Vec<Class> = classes
            .into_iter()
            .map(|(.., class)| class)
            .filter(|class| self.board.class(namespace, &class.name) != Some(class))
            .collect();
        changed.into_iter().for_each(|class| self.board.put_class(namespace, class));
        true
    }

    /// Notes what a class says of the diagnosis of its hosts. It is told when all have been listed: a part of them may say something else.
    fn detects(&mut self, key: Key, said: Option<bool>) {
        let before = match said {
            Some(said) => self.detecting.insert(key, said),
            None => self.detecting.remove(&key),
        };
        if before != said && self.are_listed {
            self.tell_detection();
        }
    }

    fn tell_detection(&self) {
        let mut told = self.context.detecting.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(self.detecting.clone());
    }

    fn forget_class(&mut self, key: &Key) {
        self.objects.remove(key);
        self.later.1.remove(key);
        self.detects((key.0.clone(), format!("{}{}", label::CLASS_PREFIX, key.1)), None);
        self.board.remove_class(&key.0, &key.1);
        // One that was too many takes its place.
        self.seat(&key.0);
    }

    /// Notes why labels of the host could not be written, or that they were. Classes that this concerns are marked.
    fn trouble_is(&mut self, host: &Key, trouble: Option<(BTreeSet<String>, Trouble)>) {
        let before = match &trouble {
            Some(trouble) => self.troubles.insert(host.clone(), trouble.clone()),
            None => self.troubles.remove(host),
        };
        if before == trouble {
            return;
        }
        let keys = before.iter().chain(&trouble).flat_map(|(keys, _)| keys);
        for key in keys {
            let Some(class) = key.strip_prefix(label::CLASS_PREFIX) else { continue };
            self.board.mark_class((host.0.clone(), class.to_owned()));
        }
    }
}
