//! The controller of HardwareClassifications: hosts that have the hardware which one asks for bear its label.
//!
//! It listens to the news of hosts and HardwareData beside the host controller, and watches the classifications. Which host matches is decided by the
//! pure crate `classification`, whose board judges only the pairs that a change concerns; what comes out is gathered for a moment and then written:
//! labels of hosts in one patch each, on the very host (its uid) and on nothing but keys of its own; the status of each classification; and Events,
//! not more than two a classification each time. What is there already is not written. A classification bears a finalizer before any host bears
//! its label, as upstream's do, and loses it when no host does any more.
//!
//! Nothing is written before hosts, HardwareData and classifications have been listed: counts of a part would be wrong.

mod host_class;
mod host_class_write;
mod watch;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use api::metal3::{BareMetalHost, HardwareClassification, HardwareData, label};
use classification::host_class::detection;
use classification::{Board, Class, Facts, Fault, HostError, Key, MAX_CLASSES, Trouble};
use futures::future::BoxFuture;
use kube::ResourceExt as _;

use crate::host::readable::Marks;
use crate::host::{Context, HostController};
use crate::shutdown::Shutdown;

pub use host_class::HostClassController;
use watch::{Classifies, Ears, Later, Listing, difference, key, reference};

/// The controller.
pub struct ClassificationController {
    context: Arc<Context>,
}

/// What it knows.
pub(crate) struct All {
    context: Arc<Context>,
    board: Board,
    /// The classifications as last seen or written.
    objects: HashMap<Key, HardwareClassification>,
    listing: Listing,
    unreadable: Arc<Marks>,
    /// What classes say of the diagnosis of their hosts, by namespace and key of their label.
    detecting: HashMap<Key, bool>,
    /// By host: labels that could not be written, and why.
    troubles: BTreeMap<Key, (BTreeSet<String>, Trouble)>,
    later: Later,
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
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let unreadable = Arc::<Marks>::default();
        let ears = Ears::open(&self.context, &unreadable, know_no_detection);
        let all = All {
            context: self.context,
            board: Board::default(),
            objects: HashMap::new(),
            listing: Listing::default(),
            unreadable,
            detecting: HashMap::new(),
            troubles: BTreeMap::new(),
            later: Later::default(),
        };
        watch::run(all, ears, shutdown).await;
    }
}

/// Classifications that cannot be listed say nothing of the diagnosis of their hosts.
fn know_no_detection(context: &Context) {
    context.detecting.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// What is known of a host's hardware.
fn facts_of(context: &Context, host: &Arc<BareMetalHost>) -> Option<Facts> {
    let facts = &context.hardware_data;
    let of_host = reference::<HardwareData>(&key(host.namespace(), host.name_any()));
    let data = facts.store().and_then(|store| store.get(&of_host));
    // What cannot be read is not judged by what is left of it.
    let data = data.filter(|data| !facts.marks().hold(data.as_ref()));
    Facts::of(host, data.as_ref())
}

impl Classifies for All {
    type Class = HardwareClassification;

    fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn listing(&mut self) -> &mut Listing {
        &mut self.listing
    }

    fn are_listed(&self) -> bool {
        self.listing.is_done
    }

    fn later(&mut self) -> &mut Later {
        &mut self.later
    }

    fn has_work(&self) -> bool {
        self.board.has_marks()
    }

    fn put_host(&mut self, host: &Arc<BareMetalHost>) {
        let key = key(host.namespace(), host.name_any());
        let error = HostError::of(host.status.as_ref());
        let uid = host.metadata.uid.as_deref().unwrap_or_default();
        self.board.put_host((&key.0, &key.1), uid, facts_of(&self.context, host), error);
        // Somebody else may have written to the labels.
        if !difference(self.board.labels(&key.0, &key.1), host.labels()).is_empty() {
            self.board.mark_host(key);
        }
    }

    fn forget_host(&mut self, key: &Key) {
        self.board.remove_host(&key.0, &key.1);
        self.later.hosts.remove(key);
        self.trouble_is(key, None);
    }

    fn host_keys(&self) -> Vec<Key> {
        self.board.host_keys().map(|(namespace, host)| (namespace.to_owned(), host.to_owned())).collect()
    }

    fn put_class(&mut self, object: HardwareClassification) {
        self.put_classification(object);
    }

    fn forget_class(&mut self, key: &Key) {
        self.objects.remove(key);
        self.later.classes.remove(key);
        self.detects((key.0.clone(), format!("{}{}", label::CLASS_PREFIX, key.1)), None);
        self.board.remove_class(&key.0, &key.1);
        // One that was too many takes its place.
        self.seat(&key.0);
    }

    fn class_keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    fn have_listed(&mut self) {
        self.tell_detection();
    }

    fn mark_host(&mut self, key: Key) {
        self.board.mark_host(key);
    }

    fn mark_class(&mut self, key: Key) {
        self.board.mark_class(key);
    }

    async fn write(&mut self) {
        self.write_all().await;
    }
}

impl All {
    fn put_classification(&mut self, object: HardwareClassification) {
        let key = key(object.namespace(), object.name_any());
        // What is left of one that cannot be read may match hosts that it does not ask for: an Event of it says what is wrong. One that goes asks for none.
        if self.unreadable.hold(&object) && !object.is_deleting() {
            return;
        }
        let class = Class::of(&object);
        let detect = detection(object.metadata.labels.as_ref());
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
        if before != said && self.listing.is_done {
            self.tell_detection();
        }
    }

    fn tell_detection(&self) {
        let mut told = self.context.detecting.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(self.detecting.clone());
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
