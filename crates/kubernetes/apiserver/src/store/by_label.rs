//! An index of objects by label, for lists that want one value of a label: they read the objects that may have it, and
//! not the keys of all.
//!
//! It holds every object that has had a label since the index was made, so more than a list wants: readers check the
//! labels of what they find. The writer adds the objects of a group before it commits them, so that no reader sees an
//! object that the index lacks; what was relabelled or deleted stays until the index is made anew. A resource is
//! indexed by its first such list.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Approximate bytes of an entry besides its texts.
const OVERHEAD: usize = 96;
/// Entries in vain after which the index of a resource may be made anew.
const VAIN: usize = 1024;

/// Namespace as stored, and name.
pub(super) type Place = (Box<str>, Box<str>);

/// A label and one value of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The label's key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A write.
pub(super) struct About<'w> {
    pub(super) resource: &'w Arc<str>,
    /// Namespace as stored.
    pub(super) ns: String,
    pub(super) name: &'w str,
    /// What is stored; `None` if the object goes.
    pub(super) body: Option<&'w [u8]>,
}

#[derive(Default)]
struct Indexed {
    places: HashMap<Pair, BTreeSet<Place>>,
    entries: usize,
    bytes: usize,
    /// Whether the objects that were there before are in it.
    complete: bool,
    /// How many entries readers have found in vain.
    vain: usize,
}

#[derive(Default)]
struct Known {
    resources: HashMap<Arc<str>, Indexed>,
    /// Resources whose index would be too large.
    refused: HashSet<Arc<str>>,
    /// Resources of the group that is being committed: it may have been noted before its resource was to be indexed, and
    /// be committed after the objects that are there were read.
    under_way: Vec<Arc<str>>,
}

/// The index, see the module.
pub(super) struct ByLabel {
    known: Mutex<Known>,
    /// Most bytes of a resource.
    limit: usize,
}

impl ByLabel {
    pub(super) fn new(limit: usize) -> Self {
        Self { known: Mutex::default(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the writer add objects of the resource from now on. True if the caller has to add those that are there, which
    /// it must read after this.
    pub(super) fn begin(&self, resource: &Arc<str>) -> bool {
        let mut known = self.lock();
        let is_under_way = known.under_way.contains(resource);
        if is_under_way || known.refused.contains(resource) || known.resources.contains_key(resource) {
            return false;
        }
        known.resources.insert(Arc::clone(resource), Indexed::default());
        true
    }

    /// All objects of the resource that were there have been added, or could not be.
    pub(super) fn end(&self, resource: &Arc<str>, added: bool) {
        let mut known = self.lock();
        if !added {
            known.resources.remove(resource);
        } else if let Some(indexed) = known.resources.get_mut(resource) {
            indexed.complete = true;
        }
    }

    /// Adds an object if its resource is indexed. A damaged body has no labels.
    pub(super) fn add(&self, resource: &Arc<str>, ns: &str, name: &str, body: &[u8]) {
        self.lock().add(self.limit, resource, (ns, name), body);
    }

    /// Before a commit: adds what is about to be stored.
    pub(super) fn begin_group<'w>(&self, writes: impl Iterator<Item = About<'w>>) {
        let mut known = self.lock();
        for About { resource, ns, name, body } in writes {
            if !known.under_way.contains(resource) {
                known.under_way.push(Arc::clone(resource));
            }
            if let Some(body) = body {
                known.add(self.limit, resource, (&ns, name), body);
            }
        }
    }

    /// After it.
    pub(super) fn end_group(&self) {
        self.lock().under_way.clear();
    }

    /// The objects that may have the label, in order; `None` if that is not known.
    pub(super) fn places(&self, resource: &Arc<str>, pair: &Pair) -> Option<Vec<Place>> {
        let known = self.lock();
        let indexed = known.resources.get(resource).filter(|indexed| indexed.complete)?;
        Some(indexed.places.get(pair).into_iter().flatten().cloned().collect())
    }

    /// So many of them did not have it. With too many of these, the next list makes the index anew.
    pub(super) fn found_in_vain(&self, resource: &Arc<str>, count: usize) {
        let mut known = self.lock();
        if let Some(indexed) = known.resources.get_mut(resource) {
            indexed.vain += count;
            if indexed.vain > VAIN && indexed.vain > indexed.entries {
                known.resources.remove(resource);
            }
        }
    }
}

impl Known {
    fn add(&mut self, limit: usize, resource: &Arc<str>, (ns, name): (&str, &str), body: &[u8]) {
        let Some(indexed) = self.resources.get_mut(resource) else { return };
        let Some(labels) = crate::object::labels(body) else { return };
        let labels = serde_json::from_slice::<HashMap<String, Option<String>>>(labels).unwrap_or_default();
        for (key, value) in labels {
            indexed.add(Pair { key, value: value.unwrap_or_default() }, ns, name);
        }
        if indexed.bytes > limit {
            self.resources.remove(resource);
            self.refused.insert(Arc::clone(resource));
        }
    }
}

impl Indexed {
    fn add(&mut self, pair: Pair, ns: &str, name: &str) {
        let texts = pair.key.len() + pair.value.len() + ns.len() + name.len();
        if self.places.entry(pair).or_default().insert((ns.into(), name.into())) {
            self.entries += 1;
            self.bytes += texts + OVERHEAD;
        }
    }
}
