//! The controller of HostClasses: hosts of a class bear its labels.
//!
//! It hears what the controller of HardwareClassifications hears, and judges by the pure `classification::host_class`, in parts, so that nobody else in this
//! process waits for it. Labels of a host and the annotation that says which of them are a class's are written in one patch, on the very version of the
//! host that was decided on: what somebody else writes meanwhile is not overwritten. Labels of a class that is gone are found by that annotation, so that
//! classes need no finalizer. What is there already is not written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use api::metal3::{BareMetalHost, label};
use api::metamorph::HostClass;
use classification::Key;
use classification::host_class::{Board, Class};
use futures::future::BoxFuture;
use kube::ResourceExt as _;

use super::facts_of;
use super::watch::{self, Classifies, Ears, Later, Listing, key};
use crate::host::readable::Marks;
use crate::host::{Context, HostController};
use crate::shutdown::Shutdown;

/// The controller.
pub struct HostClassController {
    context: Arc<Context>,
}

/// What it knows.
pub(super) struct Classes {
    pub context: Arc<Context>,
    pub board: Board,
    /// The classes as last seen or written.
    pub objects: HashMap<Key, HostClass>,
    listing: Listing,
    unreadable: Arc<Marks>,
    /// What classes say of the diagnosis of hosts.
    pub detecting: HashMap<Key, bool>,
    /// By host: the classes whose labels could not be written, and why.
    pub troubles: BTreeMap<Key, (BTreeSet<String>, String)>,
    pub later: Later,
}

impl HostClassController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController) -> Self {
        let context = hosts.context();
        *context.detecting_classes.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Self { context }
    }

    /// Runs until `shutdown` resolves. Where there is no definition of HostClasses, it waits for it.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let unreadable = Arc::<Marks>::default();
        let ears = Ears::open(&self.context, &unreadable, know_no_detection);
        let all = Classes {
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

/// Classes that cannot be listed say nothing of the diagnosis of hosts.
fn know_no_detection(context: &Context) {
    context.detecting_classes.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

impl Classes {
    /// Notes why labels of the host could not be written, or that they were; whether that is news. Classes that this concerns are marked.
    pub fn trouble_is(&mut self, host: &Key, trouble: Option<(BTreeSet<String>, String)>) -> bool {
        let before = match &trouble {
            Some(trouble) => self.troubles.insert(host.clone(), trouble.clone()),
            None => self.troubles.remove(host),
        };
        if before == trouble {
            return false;
        }
        let classes: BTreeSet<&String> = before.iter().chain(&trouble).flat_map(|(classes, _)| classes).collect();
        for class in classes {
            self.board.mark_class((host.0.clone(), class.clone()));
        }
        true
    }
}

impl Classifies for Classes {
    type Class = HostClass;

    fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn listing(&mut self) -> &mut Listing {
        &mut self.listing
    }

    fn are_listed(&self) -> bool {
        self.listing.is_done
    }

    /// Versions of firmware count, too.
    fn is_in_step(&self) -> bool {
        let (facts, firmware) = (&self.context.hardware_data, &self.context.beside.components);
        self.listing.is_done
            && self.context.hosts.in_step.get()
            && (facts.in_step.get() || facts.is_absent())
            && (firmware.in_step.get() || firmware.is_absent())
    }

    fn later(&mut self) -> &mut Later {
        &mut self.later
    }

    fn has_work(&self) -> bool {
        self.board.has_work()
    }

    fn put_host(&mut self, host: &Arc<BareMetalHost>) {
        let namespace = host.namespace().unwrap_or_default();
        // It is not judged by what is left of it, and keeps its labels until it can be read.
        if self.context.hosts.marks().hold(host.as_ref()) {
            self.forget_host(&(namespace, host.name_any()));
            return;
        }
        let firmware = self.context.beside.components_of(host);
        self.board.put_host(&namespace, host, facts_of(&self.context, host), firmware.as_deref());
    }

    fn forget_host(&mut self, key: &Key) {
        self.board.remove_host(&key.0, &key.1);
        self.later.hosts.remove(key);
        self.detecting.remove(key);
        self.trouble_is(key, None);
    }

    fn host_keys(&self) -> Vec<Key> {
        self.board.host_keys().map(|(namespace, host)| (namespace.to_owned(), host.to_owned())).collect()
    }

    fn put_class(&mut self, object: HostClass) {
        let key = key(object.namespace(), object.name_any());
        // Of one that goes the labels go first, whatever else keeps it.
        if object.metadata.deletion_timestamp.is_some() {
            self.forget_class(&key);
            return;
        }
        let class = if self.unreadable.hold(&object) {
            Class::unreadable(&object)
        } else {
            Class::of(&object, self.board.class(&key.0, &key.1))
        };
        self.board.put_class(&key.0, class);
        let before = self.objects.insert(key.clone(), object);
        // Somebody else may have written to the status.
        if before.is_some_and(|before| self.objects.get(&key).is_some_and(|now| now.status != before.status)) {
            self.board.mark_class(key);
        }
    }

    fn forget_class(&mut self, key: &Key) {
        self.objects.remove(key);
        self.later.classes.remove(key);
        self.board.remove_class(&key.0, &key.1);
    }

    fn class_keys(&self) -> Vec<Key> {
        self.objects.keys().cloned().collect()
    }

    /// Where no class switches the diagnosis of hosts, that does not wait until they have been judged.
    fn have_listed(&mut self) {
        let switches = |class: &HostClass| class.labels().contains_key(label::ERROR_DETECT);
        if !self.objects.values().any(switches) {
            know_no_detection(&self.context);
        }
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
