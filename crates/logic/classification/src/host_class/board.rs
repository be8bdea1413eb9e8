//! HostClasses and hosts of all namespaces, with the verdict on each pair. Only pairs that a change concerns are judged again, and in parts, so that whoever
//! asks can do something else between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::metal3::{BareMetalHost, HostFirmwareComponents, annotation};

use super::class::{Class, MAX_CLASSES, Verdict};
use super::labels::{Conflict, Labels, Ledger, Plan, Stand, Wish, plan};
use super::vars::{Own, Values, are_same};
use crate::board::{Facts, Key};

/// Hosts whose values are in memory at once.
const TOGETHER: usize = 64;

/// What a host's values cost, as much as rules of this cost.
const HOST: u64 = 1000;
/// What a pair costs beside its rules.
const PAIR: u64 = 20;

/// What would change of a host's labels if a class were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// Labels with the values that it would have.
    pub gains: Labels,
    /// Labels that it would not have any more.
    pub loses: BTreeSet<String>,
}

struct Entry {
    id: u32,
    class: Class,
}

/// A host as it is judged.
pub(crate) struct Host {
    pub(crate) object: Arc<BareMetalHost>,
    pub(crate) own: Own,
    pub(crate) facts: Option<Facts>,
    matched: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
    /// Labels that it does not get.
    conflicts: Vec<Conflict>,
    /// What would change, by the class that is a preview.
    previews: BTreeMap<String, Preview>,
}

/// Pairs of a host that have to be judged.
enum Pending {
    All,
    Some(BTreeSet<u32>),
}

#[derive(Default)]
struct Space {
    classes: BTreeMap<String, Entry>,
    /// Their names, the eldest first.
    order: Vec<String>,
    hosts: BTreeMap<String, Host>,
    pending: BTreeMap<String, Pending>,
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

impl Space {
    /// Sorts the classes, gives places to the eldest, and has hosts judged by those that have come to one, or lost it.
    fn seat(&mut self) {
        let mut all: Vec<(&Class, &String)> = self.classes.iter().map(|(name, entry)| (&entry.class, name)).collect();
        all.sort_by(|one, other| (&one.0.made, one.1).cmp(&(&other.0.made, other.1)));
        self.order = all.into_iter().map(|(_, name)| name.clone()).collect();
        let mut left = MAX_CLASSES;
        let mut moved = Vec::new();
        for name in &self.order {
            let Some(entry) = self.classes.get_mut(name) else { continue };
            if entry.class.take_place(left > 0) {
                moved.push(entry.id);
            }
            left -= usize::from(entry.class.is_sound() && left > 0);
        }
        moved.into_iter().for_each(|id| self.judge_all_by(id));
    }

    /// All hosts are to be judged by the class.
    fn judge_all_by(&mut self, id: u32) {
        for host in self.hosts.keys() {
            match self.pending.entry(host.clone()).or_insert_with(|| Pending::Some(BTreeSet::new())) {
                Pending::Some(ids) => drop(ids.insert(id)),
                Pending::All => {}
            }
        }
    }

    /// The classes before a host, the eldest first. `applied` is one that is taken as if it were applied.
    fn wishes<'a>(&'a self, host: &Host, applied: Option<&str>) -> Vec<Wish<'a>> {
        let entries = self.order.iter().filter_map(|name| self.classes.get(name));
        let wish = |entry: &'a Entry| {
            let is_applied = entry.class.is_applied() || applied == Some(entry.class.name.as_str());
            let stand = match (is_applied, host.matched.contains(&entry.id)) {
                (false, _) => Stand::Keeps,
                (true, true) => Stand::Gives,
                (true, false) => Stand::Drops,
            };
            Wish { class: &entry.class.name, labels: &entry.class.labels, stand }
        };
        entries.map(wish).collect()
    }

    /// Judges what is pending of these hosts, class by class, until that has cost so much, or one pair more: what is left stays pending. How many pairs that
    /// were, their cost, and the hosts whose labels may change.
    fn judge(&mut self, names: &[String], budget: u64) -> (u64, u64, BTreeSet<String>) {
        let (mut pairs, mut spent, mut changed) = (0, 0, BTreeSet::new());
        let mut all = Vec::new();
        let mut rest: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for name in names {
            let (Some(pending), Some(host)) = (self.pending.remove(name), self.hosts.remove(name)) else { continue };
            all.push((name, pending, host, None));
        }
        for entry in self.classes.values() {
            for (name, pending, host, values) in &mut all {
                if matches!(pending, Pending::Some(ids) if !ids.contains(&entry.id)) {
                    continue;
                }
                if spent >= budget {
                    rest.entry((*name).clone()).or_default().insert(entry.id);
                    continue;
                }
                if values.is_none() {
                    spent += HOST;
                }
                let values = values.get_or_insert_with(|| Values::of(&host.own, host.facts.as_ref()));
                // By one that has a fault nobody is judged.
                let (verdict, cost) =
                    if entry.class.fault.is_none() { entry.class.judge(values) } else { (Verdict::IsNot, 0) };
                // A pair costs, too, however little its rules do.
                (pairs, spent) = (pairs + 1, spent + cost + PAIR);
                let before = (host.matched.remove(&entry.id), host.unknown.remove(&entry.id));
                match verdict {
                    Verdict::Is => drop(host.matched.insert(entry.id)),
                    Verdict::Unknown => drop(host.unknown.insert(entry.id)),
                    Verdict::IsNot => {}
                }
                if before.0 != (verdict == Verdict::Is) {
                    changed.insert((*name).clone());
                }
            }
        }
        for (name, pending, host, _) in all {
            // Labels may be there from before the start.
            if matches!(pending, Pending::All) {
                changed.insert(name.clone());
            }
            self.hosts.insert(name.clone(), host);
        }
        self.pending.extend(rest.into_iter().map(|(name, ids)| (name, Pending::Some(ids))));
        (pairs, spent, changed)
    }
}

impl Board {
    /// How many pairs have been judged so far.
    #[must_use]
    pub const fn judgements(&self) -> u64 {
        self.judgements
    }

    /// Whether pairs are to be judged, or anything is to be looked at.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.hosts.is_empty()
            || !self.classes.is_empty()
            || self.spaces.values().any(|space| !space.pending.is_empty())
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

    fn mark_hosts_of(&mut self, namespace: &str) {
        let names = self.spaces.get(namespace).into_iter().flat_map(|space| space.hosts.keys());
        self.hosts.extend(names.map(|name| (namespace.to_owned(), name.clone())));
    }

    fn mark_classes_of(&mut self, namespace: &str) {
        let names = self.spaces.get(namespace).into_iter().flat_map(|space| space.classes.keys());
        self.classes.extend(names.map(|name| (namespace.to_owned(), name.clone())));
    }

    /// There is such a class, or it has changed.
    pub fn put_class(&mut self, namespace: &str, mut class: Class) {
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        let name = class.name.clone();
        let before = space.classes.remove(&name);
        // It keeps its place for now.
        class.take_place(before.as_ref().is_none_or(|before| !before.class.is_sound() || before.class.fault.is_none()));
        let is_judged = before.as_ref().is_some_and(|before| before.class.judges_as(&class));
        let gives_the_same = before.as_ref().is_some_and(|before| {
            let parts = |class: &Class| (class.labels.clone(), class.is_applied(), class.made.clone(), class.detect);
            parts(&before.class) == parts(&class)
        });
        let is_same_version = before.as_ref().is_some_and(|before| before.class.generation == class.generation);
        let id = match &before {
            Some(before) => before.id,
            None => {
                space.next_id = space.next_id.wrapping_add(1);
                space.next_id
            }
        };
        space.classes.insert(name.clone(), Entry { id, class });
        if !is_judged {
            space.judge_all_by(id);
        }
        self.seats(namespace);
        if !is_judged || !gives_the_same || !is_same_version {
            self.classes.insert((namespace.to_owned(), name));
            self.mark_hosts_of(namespace);
        }
    }

    /// Places are given anew; classes that this concerns are marked.
    fn seats(&mut self, namespace: &str) {
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        let faults = |space: &Space| -> Vec<(String, bool)> {
            space.classes.iter().map(|(name, entry)| (name.clone(), entry.class.fault.is_some())).collect()
        };
        let before = faults(space);
        space.seat();
        let after = faults(space);
        let moved: Vec<String> =
            before.into_iter().zip(after).filter(|(b, a)| b != a).map(|(_, (name, _))| name).collect();
        if !moved.is_empty() {
            self.classes.extend(moved.into_iter().map(|name| (namespace.to_owned(), name)));
            self.mark_hosts_of(namespace);
        }
    }

    /// The class is gone, and so are its labels.
    pub fn remove_class(&mut self, namespace: &str, name: &str) {
        self.classes.remove(&(namespace.to_owned(), name.to_owned()));
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        let Some(entry) = space.classes.remove(name) else { return };
        for host in space.hosts.values_mut() {
            host.matched.remove(&entry.id);
            host.unknown.remove(&entry.id);
        }
        // One that was too many takes its place.
        self.seats(namespace);
        self.mark_hosts_of(namespace);
        self.sweep(namespace);
    }

    /// Forgets a namespace in which nothing is left.
    fn sweep(&mut self, namespace: &str) {
        if self.spaces.get(namespace).is_some_and(|space| space.hosts.is_empty() && space.classes.is_empty()) {
            self.spaces.remove(namespace);
        }
    }

    /// There is such a host, or it, its HardwareData or its versions of firmware have changed.
    pub fn put_host(
        &mut self,
        namespace: &str,
        object: &Arc<BareMetalHost>,
        facts: Option<Facts>,
        firmware: Option<&HostFirmwareComponents>,
    ) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let ledger = ledger_of(object);
        let own = Own::of(object, &ledger, firmware);
        if self.uid(namespace, &name).is_some_and(|uid| Some(uid) != object.metadata.uid.as_deref()) {
            self.remove_host(namespace, &name);
        }
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        let before = space.hosts.remove(&name);
        let is_judged =
            before.as_ref().is_some_and(|before| before.own == own && are_same(before.facts.as_ref(), facts.as_ref()));
        let are_labels_same = before.as_ref().is_some_and(|before| {
            let parts = |host: &BareMetalHost| {
                (host.metadata.labels.clone(), host.annotation(annotation::HOST_CLASSES).map(ToOwned::to_owned))
            };
            parts(&before.object) == parts(object)
        });
        let mut host = before.unwrap_or_else(|| Host {
            object: Arc::clone(object),
            own: Own::default(),
            facts: None,
            matched: BTreeSet::new(),
            unknown: BTreeSet::new(),
            conflicts: Vec::new(),
            previews: BTreeMap::new(),
        });
        (host.object, host.own, host.facts) = (Arc::clone(object), own, facts);
        space.hosts.insert(name.clone(), host);
        if !is_judged {
            space.pending.insert(name.clone(), Pending::All);
            // Counts, errors and reasons may have changed, whatever the verdict is.
            self.mark_classes_of(namespace);
        }
        if !is_judged || !are_labels_same {
            self.hosts.insert((namespace.to_owned(), name));
        }
    }

    /// The host is gone.
    pub fn remove_host(&mut self, namespace: &str, name: &str) {
        self.hosts.remove(&(namespace.to_owned(), name.to_owned()));
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        space.pending.remove(name);
        if space.hosts.remove(name).is_some() {
            self.mark_classes_of(namespace);
        }
        self.sweep(namespace);
    }

    /// Judges pairs that wait for it until they have cost this much, or one pair more; whether there are more.
    pub fn judge(&mut self, budget: u64) -> bool {
        let mut left = budget.max(1);
        let namespaces: Vec<String> = self.spaces.keys().cloned().collect();
        for namespace in namespaces {
            let Some(space) = self.spaces.get_mut(&namespace) else { continue };
            while !space.pending.is_empty() {
                let names: Vec<String> = space.pending.keys().take(TOGETHER).cloned().collect();
                let (pairs, spent, changed) = space.judge(&names, left);
                self.judgements = self.judgements.wrapping_add(pairs);
                self.hosts.extend(changed.into_iter().map(|host| (namespace.clone(), host)));
                left = left.saturating_sub(spent);
                if left == 0 {
                    return self.spaces.values().any(|space| !space.pending.is_empty());
                }
            }
        }
        false
    }

    /// Looks anew at what the host does not get, and what would change of it. Classes of which that is another than before are marked.
    pub fn refresh(&mut self, namespace: &str, name: &str) {
        let Some(space) = self.spaces.get(namespace) else { return };
        let Some(host) = space.hosts.get(name) else { return };
        let ledger = ledger_of(&host.object);
        let none = Labels::new();
        let labels = host.object.metadata.labels.as_ref().unwrap_or(&none);
        let now = plan(&space.wishes(host, None), &ledger, labels);
        let mut conflicts = now.conflicts.clone();
        let mut previews = BTreeMap::new();
        for entry in space.classes.values().filter(|entry| entry.class.is_preview()) {
            let then = plan(&space.wishes(host, Some(&entry.class.name)), &ledger, labels);
            let preview = between(&now, &then);
            // What it would not get is seen before it is applied.
            conflicts.extend(then.conflicts.into_iter().filter(|conflict| conflict.class == entry.class.name));
            if preview != Preview::default() {
                previews.insert(entry.class.name.clone(), preview);
            }
        }
        let mut concerned = BTreeSet::new();
        if host.conflicts != conflicts {
            let all = host.conflicts.iter().chain(&conflicts);
            concerned.extend(all.map(|conflict| conflict.class.clone()));
        }
        if host.previews != previews {
            concerned.extend(host.previews.keys().chain(previews.keys()).cloned());
        }
        self.classes.extend(concerned.into_iter().map(|class| (namespace.to_owned(), class)));
        let host = self.spaces.get_mut(namespace).and_then(|space| space.hosts.get_mut(name));
        if let Some(host) = host {
            (host.conflicts, host.previews) = (conflicts, previews);
        }
    }

    /// What is to be written to this very host, which may be newer than the one that is judged; `None` if it is not judged, or another one of its name is.
    #[must_use]
    pub fn plan(&self, namespace: &str, object: &BareMetalHost) -> Option<Plan> {
        let space = self.spaces.get(namespace)?;
        let host = space.hosts.get(object.metadata.name.as_deref()?)?;
        if host.object.metadata.uid != object.metadata.uid {
            return None;
        }
        let none = Labels::new();
        let labels = object.metadata.labels.as_ref().unwrap_or(&none);
        Some(plan(&space.wishes(host, None), &ledger_of(object), labels))
    }

    /// What the classes that a host is of say of its diagnosis; where they contradict each other, it is off. Previews say nothing.
    #[must_use]
    pub fn detection(&self, namespace: &str, name: &str) -> Option<bool> {
        let space = self.spaces.get(namespace)?;
        let host = space.hosts.get(name)?;
        let classes = space.classes.values().filter(|entry| host.matched.contains(&entry.id));
        let said: Vec<bool> =
            classes.filter(|entry| entry.class.is_applied()).filter_map(|entry| entry.class.detect).collect();
        (!said.is_empty()).then(|| said.iter().all(|said| *said))
    }

    /// Hosts that the board holds.
    pub fn host_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.spaces
            .iter()
            .flat_map(|(namespace, space)| space.hosts.keys().map(move |name| (namespace.as_str(), name.as_str())))
    }

    /// The uid of the host that is judged under this name; `None` if none is.
    #[must_use]
    pub fn uid(&self, namespace: &str, name: &str) -> Option<&str> {
        self.spaces.get(namespace)?.hosts.get(name)?.object.metadata.uid.as_deref()
    }

    /// The class.
    #[must_use]
    pub fn class(&self, namespace: &str, name: &str) -> Option<&Class> {
        Some(&self.spaces.get(namespace)?.classes.get(name)?.class)
    }

    /// Hosts of the namespace, by name, as the class sees them.
    pub(crate) fn seen<'a>(&'a self, namespace: &str, class: &'a str) -> impl Iterator<Item = Seen<'a>> {
        let space = self.spaces.get(namespace);
        let id = space.and_then(|space| space.classes.get(class)).map(|entry| entry.id);
        let hosts = space.into_iter().flat_map(|space| &space.hosts);
        hosts.filter_map(move |(name, host)| {
            let id = id?;
            Some(Seen {
                name,
                host,
                is_matched: host.matched.contains(&id),
                is_unknown: host.unknown.contains(&id),
                conflicts: host.conflicts.iter().filter(|conflict| conflict.class == class).collect(),
                preview: host.previews.get(class),
            })
        })
    }
}

/// A host as a class sees it.
pub(crate) struct Seen<'a> {
    pub(crate) name: &'a str,
    pub(crate) host: &'a Host,
    pub(crate) is_matched: bool,
    pub(crate) is_unknown: bool,
    pub(crate) conflicts: Vec<&'a Conflict>,
    pub(crate) preview: Option<&'a Preview>,
}

/// What classes have given the host, as it says itself.
pub(crate) fn ledger_of(host: &BareMetalHost) -> Ledger {
    Ledger::read(host.annotation(annotation::HOST_CLASSES))
}

/// What of the second plan is not in the first one.
fn between(now: &Plan, then: &Plan) -> Preview {
    let mut preview = Preview::default();
    let keys: BTreeSet<&String> = now.changes.keys().chain(then.changes.keys()).collect();
    for key in keys {
        match (now.changes.get(key), then.changes.get(key)) {
            (before, Some(Some(value))) if before != Some(&Some(value.clone())) => {
                preview.gains.insert(key.clone(), value.clone());
            }
            (before, Some(None)) if before != Some(&None) => {
                preview.loses.insert(key.clone());
            }
            // A label that is about to change stays as it is.
            _ => {}
        }
    }
    preview
}
