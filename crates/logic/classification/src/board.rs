//! Classes and hosts of all namespaces, with the verdict on each pair. Only pairs that a change concerns are judged again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::metal3::{BareMetalHost, BareMetalHostStatus, ErrorType, HardwareData, OperationalStatus, REPORTED_BY, label};
use inventory::HardwareDetails;

use crate::class::{Class, Fault};
use crate::judge::{Mismatch, judge};
use crate::report::error_label;

/// Namespace and name.
pub type Key = (String, String);

/// What is known of a host's hardware.
#[derive(Clone, Debug)]
pub enum Facts {
    /// HardwareData.
    Data(Arc<HardwareData>),
    /// The host's status, where there is no HardwareData.
    Status(Arc<BareMetalHost>),
}

impl Facts {
    /// Those of a host, if it has any.
    #[must_use]
    pub fn of(host: &Arc<BareMetalHost>, data: Option<&Arc<HardwareData>>) -> Option<Self> {
        // What a machine has told of itself before it was approved is anybody's word: then the inspection's facts count.
        let is_told =
            |data: &HardwareData| data.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(REPORTED_BY));
        let is_past = |data: &HardwareData| host.spec.bmc.is_some() && is_told(data);
        if let Some(data) = data.filter(|data| data.spec.hardware.is_some() && !is_past(data)) {
            return Some(Self::Data(Arc::clone(data)));
        }
        let is_there = host.status.as_ref().is_some_and(|status| status.hardware.is_some());
        is_there.then(|| Self::Status(Arc::clone(host)))
    }

    pub(crate) fn details(&self) -> Option<&HardwareDetails> {
        match self {
            Self::Data(data) => data.spec.hardware.as_deref(),
            Self::Status(host) => host.status.as_ref()?.hardware.as_deref(),
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Data(one), Self::Data(other)) if Arc::ptr_eq(one, other) => true,
            (Self::Status(one), Self::Status(other)) if Arc::ptr_eq(one, other) => true,
            _ => self.details() == other.details(),
        }
    }
}

/// That a host is in error, and of which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError(pub Option<ErrorType>);

impl HostError {
    /// The error that a host shows, if any.
    #[must_use]
    pub fn of(status: Option<&BareMetalHostStatus>) -> Option<Self> {
        let status = status?;
        let is = status.error_type.is_some() || status.operational_status == OperationalStatus::Error;
        is.then_some(Self(status.error_type))
    }
}

/// Hosts of a namespace, as a class counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub hosts: usize,
    /// Those that match, in error or not.
    pub matched: usize,
    /// Those that neither match nor are in error.
    pub unmatched: usize,
    /// Those in error.
    pub errors: usize,
    /// Those of them whose error has a type.
    pub by_type: HashMap<ErrorType, usize>,
}

struct Entry {
    id: u32,
    class: Class,
    matched: usize,
    matched_in_error: usize,
}

#[derive(Default)]
struct Host {
    uid: String,
    facts: Option<Facts>,
    error: Option<HostError>,
    /// Ids of the classes that it matches, in ascending order.
    matched: Vec<u32>,
    /// Keys of labels of classes that are gone without having given them back.
    stale: BTreeSet<String>,
}

#[derive(Default)]
struct Space {
    classes: BTreeMap<String, Entry>,
    hosts: BTreeMap<String, Host>,
    errors: usize,
    by_type: HashMap<ErrorType, usize>,
    next_id: u32,
}

/// All of them.
#[derive(Default)]
pub struct Board {
    spaces: BTreeMap<String, Space>,
    hosts: BTreeSet<Key>,
    classes: BTreeSet<Key>,
    judgements: u64,
}

impl Entry {
    fn count(&mut self, host: &Host, up: bool) {
        let change = |number: &mut usize| *number = if up { *number + 1 } else { number.saturating_sub(1) };
        change(&mut self.matched);
        if host.error.is_some() {
            change(&mut self.matched_in_error);
        }
    }
}

impl Space {
    fn count_error(&mut self, error: Option<HostError>, up: bool) {
        let change = |number: &mut usize| *number = if up { *number + 1 } else { number.saturating_sub(1) };
        let Some(HostError(kind)) = error else { return };
        change(&mut self.errors);
        if let Some(kind) = kind {
            change(self.by_type.entry(kind).or_default());
        }
    }

    /// All verdicts on the host leave the counters, or come into them.
    fn count(&mut self, host: &Host, up: bool) {
        for entry in self.classes.values_mut().filter(|entry| host.matched.binary_search(&entry.id).is_ok()) {
            entry.count(host, up);
        }
        self.count_error(host.error, up);
    }
}

impl Board {
    /// How many pairs have been judged so far.
    #[must_use]
    pub const fn judgements(&self) -> u64 {
        self.judgements
    }

    /// Whether anything is to be looked at.
    #[must_use]
    pub fn has_marks(&self) -> bool {
        !self.hosts.is_empty() || !self.classes.is_empty()
    }

    /// Hosts whose labels may have to be written, and none twice.
    pub fn take_hosts(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.hosts)
    }

    /// Classes whose status may have to be written, and none twice.
    pub fn take_classes(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.classes)
    }

    /// The host is to be looked at, again.
    pub fn mark_host(&mut self, key: Key) {
        self.hosts.insert(key);
    }

    /// The class is to be looked at, again.
    pub fn mark_class(&mut self, key: Key) {
        self.classes.insert(key);
    }

    /// There is such a class, or it has changed.
    pub fn put_class(&mut self, namespace: &str, class: Class) {
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        let name = class.name.clone();
        self.classes.insert((namespace.to_owned(), name.clone()));
        let before = space.classes.remove(&name);
        let (id, is_judged) = match &before {
            Some(before) => (before.id, before.class.judges_as(&class)),
            None => {
                space.next_id = space.next_id.wrapping_add(1);
                (space.next_id, false)
            }
        };
        let is_same_label = before.as_ref().is_some_and(|before| before.class.value == class.value);
        // The first class of a namespace, and the last, decide on the labels of errors.
        let counts_errors = !class.is_deleting;
        let counted_errors = before.as_ref().is_some_and(|before| !before.class.is_deleting);
        let mut entry = match before {
            Some(before) if is_judged => Entry { class, ..before },
            _ => Entry { id, class, matched: 0, matched_in_error: 0 },
        };
        for (host_name, host) in &mut space.hosts {
            let was = host.matched.binary_search(&id);
            let is_error_new = host.error.is_some() && counts_errors != counted_errors;
            let mut is_new = host.stale.remove(&entry.class.key) || is_error_new;
            if is_judged {
                is_new |= !is_same_label && was.is_ok();
            } else {
                let takes = host.facts.as_ref().and_then(Facts::details).is_some_and(|found| {
                    self.judgements = self.judgements.wrapping_add(1);
                    entry.class.takes(found)
                });
                match (was, takes) {
                    (Err(place), true) => host.matched.insert(place, id),
                    (Ok(place), false) => drop(host.matched.remove(place)),
                    _ => {}
                }
                if takes {
                    entry.count(host, true);
                }
                // A label may be there from before the start.
                is_new = true;
            }
            if is_new {
                self.hosts.insert((namespace.to_owned(), host_name.clone()));
            }
        }
        space.classes.insert(name, entry);
    }

    /// The class is gone. Labels that it has not given back are to be removed.
    pub fn remove_class(&mut self, namespace: &str, name: &str) {
        self.classes.remove(&(namespace.to_owned(), name.to_owned()));
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        let Some(entry) = space.classes.remove(name) else { return };
        for (host_name, host) in &mut space.hosts {
            if let Ok(place) = host.matched.binary_search(&entry.id) {
                host.matched.remove(place);
                host.stale.insert(entry.class.key.clone());
                self.hosts.insert((namespace.to_owned(), host_name.clone()));
            }
            // With the last class the labels of errors go.
            if host.error.is_some() {
                if space.classes.is_empty() {
                    host.stale.insert(label::CLASS_ERROR.to_owned());
                }
                self.hosts.insert((namespace.to_owned(), host_name.clone()));
            }
        }
        self.sweep(namespace);
    }

    /// Forgets a namespace in which nothing is left.
    fn sweep(&mut self, namespace: &str) {
        if self.spaces.get(namespace).is_some_and(|space| space.hosts.is_empty() && space.classes.is_empty()) {
            self.spaces.remove(namespace);
        }
    }

    /// There is such a host, with this uid, or it or its HardwareData has changed.
    pub fn put_host(
        &mut self,
        (namespace, name): (&str, &str),
        uid: &str,
        facts: Option<Facts>,
        error: Option<HostError>,
    ) {
        if self.uid(namespace, name).is_some_and(|before| before != uid) {
            self.remove_host(namespace, name);
        }
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        let key = (namespace.to_owned(), name.to_owned());
        let before = space.hosts.remove(name);
        let is_new = before.is_none();
        let before = before.unwrap_or_default();
        let is_judged = !is_new
            && match (&facts, &before.facts) {
                (None, None) => true,
                (Some(facts), Some(before)) => facts.is_same(before),
                _ => false,
            };
        if is_judged && error == before.error {
            space.hosts.insert(name.to_owned(), Host { facts, ..before });
            return;
        }
        if !is_new {
            space.count(&before, false);
        }
        let matched = if is_judged {
            before.matched
        } else {
            let found = facts.as_ref().and_then(Facts::details);
            let classes = space.classes.values().filter(|entry| {
                found.is_some_and(|found| {
                    self.judgements = self.judgements.wrapping_add(1);
                    entry.class.takes(found)
                })
            });
            let mut matched: Vec<u32> = classes.map(|entry| entry.id).collect();
            matched.sort_unstable();
            matched
        };
        let host = Host { uid: uid.to_owned(), facts, error, matched, stale: before.stale };
        space.count(&host, true);
        space.hosts.insert(name.to_owned(), host);
        self.hosts.insert(key);
        self.mark_classes(namespace);
    }

    /// The host is gone.
    pub fn remove_host(&mut self, namespace: &str, name: &str) {
        self.hosts.remove(&(namespace.to_owned(), name.to_owned()));
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        let Some(host) = space.hosts.remove(name) else { return };
        space.count(&host, false);
        self.mark_classes(namespace);
        self.sweep(namespace);
    }

    fn mark_classes(&mut self, namespace: &str) {
        let names = self.spaces.get(namespace).into_iter().flat_map(|space| space.classes.keys());
        self.classes.extend(names.map(|name| (namespace.to_owned(), name.clone())));
    }

    /// Hosts that the board holds.
    pub fn host_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.spaces
            .iter()
            .flat_map(|(namespace, space)| space.hosts.keys().map(move |name| (namespace.as_str(), name.as_str())))
    }

    /// Whether a class of the namespace lives: without one, nobody looks after the label of errors.
    #[must_use]
    pub fn is_lived_in(&self, namespace: &str) -> bool {
        self.spaces.get(namespace).is_some_and(|space| space.classes.values().any(|entry| !entry.class.is_deleting))
    }

    /// The uid of the host that is judged under this name; `None` if none is.
    #[must_use]
    pub fn uid(&self, namespace: &str, name: &str) -> Option<&str> {
        Some(self.spaces.get(namespace)?.hosts.get(name)?.uid.as_str())
    }

    /// Hosts of a namespace.
    pub fn hosts_of(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.spaces.get(namespace).into_iter().flat_map(|space| space.hosts.keys().map(String::as_str))
    }

    /// The class.
    #[must_use]
    pub fn class(&self, namespace: &str, name: &str) -> Option<&Class> {
        Some(&self.spaces.get(namespace)?.classes.get(name)?.class)
    }

    /// Labels that are this controller's on the host: what they are to be, or `None` for those that are not to be there. No others are touched; where
    /// a namespace has no classification there are none.
    #[must_use]
    pub fn labels(&self, namespace: &str, name: &str) -> BTreeMap<String, Option<String>> {
        let mut all = BTreeMap::new();
        let Some(space) = self.spaces.get(namespace) else { return all };
        let Some(host) = space.hosts.get(name) else { return all };
        all.extend(host.stale.iter().map(|key| (key.clone(), None)));
        for entry in space.classes.values().filter(|entry| entry.class.fault != Some(Fault::LongName)) {
            let matches = host.matched.binary_search(&entry.id).is_ok();
            all.insert(entry.class.key.clone(), matches.then(|| entry.class.value.clone()));
        }
        if !space.classes.is_empty() {
            let counts = self.is_lived_in(namespace);
            let kind = host.error.and_then(|HostError(kind)| kind).filter(|_| counts);
            all.insert(label::CLASS_ERROR.to_owned(), kind.map(error_label));
        }
        all
    }

    /// The host bears its labels: what classes that are gone have left there is removed.
    pub fn settled(&mut self, namespace: &str, name: &str) {
        if let Some(host) = self.spaces.get_mut(namespace).and_then(|space| space.hosts.get_mut(name)) {
            host.stale.clear();
        }
    }

    /// How the class counts its namespace's hosts.
    #[must_use]
    pub fn counts(&self, namespace: &str, class: &str) -> Counts {
        let Some(space) = self.spaces.get(namespace) else { return Counts::default() };
        let entry = space.classes.get(class);
        let (matched, both) = entry.map_or((0, 0), |entry| (entry.matched, entry.matched_in_error));
        let hosts = space.hosts.len();
        Counts {
            hosts,
            matched,
            unmatched: (hosts + both).saturating_sub(matched + space.errors),
            errors: space.errors,
            by_type: space
                .by_type
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(kind, count)| (*kind, *count))
                .collect(),
        }
    }

    /// Hosts that do not match the class, by name, each with the fields that do not hold: none for a host of whose hardware nothing is known.
    pub fn unmatched(&self, namespace: &str, class: &str) -> impl Iterator<Item = (&str, Option<Vec<Mismatch<'_>>>)> {
        let space = self.spaces.get(namespace);
        let entry = space.and_then(|space| space.classes.get(class));
        let hosts = space.into_iter().flat_map(|space| &space.hosts);
        hosts.filter_map(move |(name, host)| {
            let entry = entry?;
            let is_in = host.matched.binary_search(&entry.id).is_ok();
            let why = || host.facts.as_ref().and_then(Facts::details).map(|found| judge(&entry.class.wanted, found));
            (!is_in).then(|| (name.as_str(), why()))
        })
    }

    /// Why a host does not match a class: the fields that do not hold; `None` if nothing is known of its hardware, or of it.
    #[must_use]
    pub fn why(&self, namespace: &str, class: &str, host: &str) -> Option<Vec<Mismatch<'_>>> {
        let space = self.spaces.get(namespace)?;
        let (entry, host) = (space.classes.get(class)?, space.hosts.get(host)?);
        Some(judge(&entry.class.wanted, host.facts.as_ref()?.details()?))
    }
}
