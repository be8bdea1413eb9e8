//! A provisioner's work as people see it: HostOperations, named `<host>-<number>-<kind>`. Numbers only grow, whatever is deleted: a new one is
//! higher than all that exist for this host's name and all that this process has written.
//!
//! They are written after the fact, and no decision depends on them: the next write makes up for a failed one, and deleting them loses history
//! and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, annotation, label};
use api::metamorph::{HostOperation, HostOperationSpec, HostReference, OperationPhase};
use async_trait::async_trait;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use provisioner::{History, HistoryEntry, Tell, operation_name};
use tokio::time::Instant;

use super::objects::lean;
use crate::kube_errors::{api_message, is_terminating};
use crate::metrics::Metrics;

/// Operations kept per host; older ones that have ended are deleted.
const KEEP: usize = 20;
/// Progress is written at most this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Largest number that a name can carry; far more than a host has operations.
const MAX_NUMBER: u64 = 999_999_999;

/// Largest number of another host's operation that counts.
const MOST_OF_OTHERS: u64 = 1_000_000;

/// Names in a row that may belong to other objects.
const MOST_TAKEN: usize = 16;

/// The object that shows a piece of work, or the first number for a new one.
enum Found {
    Existing(Box<HostOperation>),
    /// From this number on; with the host's operations that are there.
    Free(u64, Vec<HostOperation>),
}

/// What has been reported of a host's newest piece of work.
#[derive(Default)]
pub(super) struct Reported {
    /// The object as it was read or written last.
    object: Option<HostOperation>,
    /// The highest number that was seen or shown.
    highest: u64,
    /// The last that was to be reported.
    entry: Option<HistoryEntry>,
    /// It could not be written.
    owing: bool,
    /// The last piece of work whose object this process has written or found.
    seen: Option<u64>,
    written: Option<Instant>,
    /// The operations that have ended, oldest first, by number and name; `None` until this process has listed them.
    ended: Option<Vec<(u64, String)>>,
}

impl Reported {
    /// Whether an entry is newer than all that there are: this process, the only writer, has listed them, and has written all since.
    fn is_new(&self, entry: &HistoryEntry) -> bool {
        self.ended.is_some() && !self.owing && entry.number > self.highest
    }

    /// Whether its object, which is not there, has been deleted as far as is known: this process has seen it, or owes nothing that it could not write.
    fn is_deleted(&self, entry: &HistoryEntry) -> bool {
        self.seen == Some(entry.number) || !self.owing
    }
}

impl Reported {
    /// Of work that has ended, number and name are enough: who tells more of it finds its object again.
    fn settle(&mut self) {
        if let Some(ended) = &mut self.ended
            && let Some(object) = self.object.take_if(|object| is_over(object))
        {
            note_ended(ended, &object);
        }
    }
}

/// What has been reported of one host.
pub(super) type Cache = Arc<tokio::sync::Mutex<Reported>>;

/// What has been reported of all hosts, by host uid.
pub struct Histories {
    hosts: Mutex<HashMap<String, Cache>>,
    metrics: Arc<Metrics>,
}

impl Histories {
    /// Nothing has been told; pieces of work that end are counted.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { hosts: Mutex::default(), metrics }
    }

    /// The host's history.
    pub fn of(&self, client: &Client, host: &Arc<BareMetalHost>) -> KubeHistory {
        KubeHistory {
            api: Api::namespaced(client.clone(), &host.namespace().unwrap_or_default()),
            host: Arc::clone(host),
            cache: self.cache(&host.uid().unwrap_or_default()),
            metrics: Arc::clone(&self.metrics),
        }
    }

    /// What has been reported of the host with this uid.
    pub(super) fn cache(&self, uid: &str) -> Cache {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        match hosts.get(uid) {
            Some(cache) => Arc::clone(cache),
            None => Arc::clone(hosts.entry(uid.to_owned()).or_default()),
        }
    }

    /// Forgets what was told of the host.
    pub fn forget(&self, uid: &str) {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// Notes that a list of the operations of this host's name has shown none.
pub(super) async fn has_none(cache: &Cache) {
    cache.lock().await.ended.get_or_insert_default();
}

/// A label's value for the host: its name, or, where that is too long for a label, the end of it.
pub fn host_label(name: &str) -> &str {
    let start = name.len().saturating_sub(63);
    name.get(start..).unwrap_or(name).trim_start_matches(['.', '-'])
}

/// The number in an operation's name; names of people's making count as oldest.
pub fn number(operation: &HostOperation) -> u64 {
    let number = operation.name_any().rsplit('-').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    if number <= MAX_NUMBER { number } else { 0 }
}

/// Made by this controller for the host of this uid: owned by it and named as the controller names.
pub fn is_ours(operation: &HostOperation, uid: &str) -> bool {
    number(operation) > 0 && operation.owner_references().iter().any(|o| o.uid == uid && o.controller == Some(true))
}

fn is_over(operation: &HostOperation) -> bool {
    operation.status.as_ref().is_some_and(|status| status.phase.is_final())
}

/// Whether the object is of the host with this uid and shows this piece of work. Two pieces of work with the same wish may begin in the same
/// second, so the identity counts; objects of versions that did not write it are distinguished by number and start time.
fn shows(object: &HostOperation, entry: &HistoryEntry, uid: &str) -> bool {
    let begun = object.status.as_ref().and_then(|status| status.start_time.as_ref());
    let same = match object.annotations().get(annotation::OPERATION) {
        Some(id) => *id == entry.id,
        None => number(object) >= entry.number && (begun.is_none() || begun == entry.status.start_time.as_ref()),
    };
    same && is_ours(object, uid) && (object.spec.operation, &object.spec.wish) == (entry.operation, &entry.wish)
}

/// One host's history.
pub struct KubeHistory {
    api: Api<HostOperation>,
    host: Arc<BareMetalHost>,
    cache: Cache,
    metrics: Arc<Metrics>,
}

impl KubeHistory {
    fn object(&self, entry: &HistoryEntry, number: u64) -> HostOperation {
        let host = self.host.name_any();
        let spec = HostOperationSpec {
            operation: entry.operation,
            host: HostReference { name: host.clone(), uid: self.host.uid() },
            wish: entry.wish.clone(),
            reboot: None,
            erase: None,
            steps: Vec::new(),
            locate: None,
            diagnose: None,
        };
        let mut new = HostOperation::new(&operation_name(&host, number, entry.operation), spec);
        new.metadata.namespace = self.host.namespace();
        new.metadata.labels = Some([(label::HOST.to_owned(), host_label(&host).to_owned())].into());
        new.metadata.annotations = Some([(annotation::OPERATION.to_owned(), entry.id.clone())].into());
        new.metadata.owner_references = self.host.controller_owner_ref(&()).map(|o| vec![o]);
        new
    }

    /// The object that shows this piece of work, or the first number for a new one: above all operations of this host's name, even earlier hosts'.
    async fn find(&self, entry: &HistoryEntry, reported: &mut Reported) -> Result<Found, String> {
        if reported.is_new(entry) {
            return Ok(Found::Free(entry.number, Vec::new()));
        }
        let host = self.host.name_any();
        let selector = format!("{}={}", label::HOST, host_label(&host));
        let mut listed = self.api.list(&ListParams::default().labels(&selector)).await.map_err(|e| api_message(&e))?;
        let uid = self.host.uid().unwrap_or_default();
        // Of an earlier host, or made up: those must not use up the numbers.
        let made = |operation: &&HostOperation| {
            let controlled = operation.owner_references().iter().any(|o| o.controller == Some(true));
            let mine = is_ours(operation, &uid);
            operation.spec.host.name == host && controlled && (mine || number(operation) <= MOST_OF_OTHERS)
        };
        let highest = listed.items.iter().filter(made).map(number).fold(reported.highest, u64::max);
        let existing = listed.items.iter().position(|operation| shows(operation, entry, &uid));
        listed.items.retain(|operation| is_ours(operation, &uid) || shows(operation, entry, &uid));
        if let Some(existing) = existing {
            return Ok(Found::Existing(Box::new(lean(listed.items.swap_remove(existing)))));
        }
        reported.ended = Some(Vec::new());
        Ok(Found::Free(entry.number.max(highest.saturating_add(1)), listed.items))
    }

    /// Writes the entry; the object as it is then, `None` if it is not to be shown again.
    async fn write(
        &self,
        reported: &mut Reported,
        entry: &HistoryEntry,
        when: Tell,
    ) -> Result<Option<HostOperation>, String> {
        let uid = self.host.uid().unwrap_or_default();
        let (mut known, former) = match reported.object.take() {
            Some(object) if shows(&object, entry, &uid) => (Some(object), None),
            former => (None, former),
        };
        let recorded_as = known.as_ref().map(number);
        let mut before: Vec<HostOperation> = former.into_iter().collect();
        // Twice: the known object may have been deleted, and is recreated.
        for _ in 0..2 {
            let mut object = match known.take() {
                Some(object) => object,
                None => match self.find(entry, reported).await? {
                    Found::Existing(object) => *object,
                    // Work that has ended is not shown again once its object is deleted.
                    Found::Free(..)
                        if entry.status.phase.is_final() && when == Tell::Soon && reported.is_deleted(entry) =>
                    {
                        return Ok(None);
                    }
                    Found::Free(free, listed) => {
                        let Some(created) = self.create(entry, recorded_as.unwrap_or(free)).await? else {
                            return Ok(None);
                        };
                        let listed = if listed.is_empty() { std::mem::take(&mut before) } else { listed };
                        self.prune(reported, listed, number(&created)).await;
                        created
                    }
                },
            };
            reported.seen = Some(entry.number);
            if object.status.as_ref() == Some(&entry.status) {
                return Ok(Some(object));
            }
            object.status = Some(entry.status.clone());
            let name = object.name_any();
            match self.api.replace_status(&name, &PostParams::default(), &object).await {
                Err(kube::Error::Api(e)) if e.code == 404 => {
                    // It was deleted, and with it perhaps others.
                    reported.ended = None;
                }
                written => return written.map(lean).map(Some).map_err(|error| api_message(&error)),
            }
        }
        Err(format!("{} comes and goes", entry.name(&self.host.name_any())))
    }

    /// Creates it with this number, or the next whose name is free. `None` if the namespace is being deleted.
    async fn create(&self, entry: &HistoryEntry, first: u64) -> Result<Option<HostOperation>, String> {
        for number in (first..).take(MOST_TAKEN) {
            match self.api.create(&PostParams::default(), &self.object(entry, number)).await {
                Ok(created) => return Ok(Some(lean(created))),
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(error) if is_terminating(&error) => return Ok(None),
                Err(error) => return Err(api_message(&error)),
            }
        }
        Err(format!(
            "{} and the next {MOST_TAKEN} names are taken",
            operation_name(&self.host.name_any(), first, entry.operation)
        ))
    }

    /// Of the operations that were there before `newest`, deletes those that are too old, and marks as cancelled those that still show as under way.
    async fn prune(&self, reported: &mut Reported, mut known: Vec<HostOperation>, newest: u64) {
        for left in known.iter_mut().filter(|operation| !is_over(operation) && number(operation) < newest) {
            let status = left.status.get_or_insert_default();
            status.phase = OperationPhase::Cancelled;
            status.message = Some("another has followed; how it ended could not be shown".to_owned());
            let (name, left) = (left.name_any(), &*left);
            if let Err(error) = self.api.replace_status(&name, &PostParams::default(), left).await {
                tracing::debug!(%error, name, "an operation still shows as under way");
            }
        }
        let ended = reported.ended.get_or_insert_default();
        for name in prunable(ended, &known) {
            match self.api.delete(&name, &DeleteParams::default()).await {
                Ok(_) | Err(kube::Error::Api(_)) => {}
                Err(error) => tracing::debug!(%error, name, "an old operation stays"),
            }
        }
    }
}

fn note_ended(ended: &mut Vec<(u64, String)>, operation: &HostOperation) {
    let (number, name) = (number(operation), operation.name_any());
    if !ended.iter().any(|(_, known)| *known == name) {
        ended.push((number, name));
    }
}

/// Adds those that have ended; takes out those that are too many, and returns their names.
fn prunable(ended: &mut Vec<(u64, String)>, known: &[HostOperation]) -> Vec<String> {
    known.iter().filter(|operation| is_over(operation)).for_each(|operation| note_ended(ended, operation));
    ended.sort();
    let surplus = ended.len().saturating_sub(KEEP);
    ended.drain(..surplus).map(|(_, name)| name).collect()
}

#[async_trait]
impl History for KubeHistory {
    async fn tell(&self, entry: &HistoryEntry, when: Tell) {
        let mut cache = self.cache.lock().await;
        let same_work = cache.entry.as_ref().filter(|known| known.number == entry.number);
        if same_work == Some(entry) && !cache.owing {
            return;
        }
        if entry.status.phase.is_final()
            && when == Tell::Now
            && same_work.is_none_or(|known| !known.status.phase.is_final())
        {
            self.metrics.operation_ended(entry);
        }
        if when == Tell::Soon && cache.written.is_some_and(|at| at.elapsed() < PROGRESS_EVERY) {
            return;
        }
        cache.entry = Some(entry.clone());
        cache.written = Some(Instant::now());
        match self.write(&mut cache, entry, when).await {
            Ok(object) => {
                cache.highest = object.as_ref().map_or(0, number).max(cache.highest);
                (cache.object, cache.owing) = (object, false);
                cache.settle();
            }
            Err(error) => {
                cache.owing = true;
                tracing::warn!(host = %self.host.name_any(), error, "the HostOperation does not show what is done; it is tried again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Time;
    use api::metamorph::{HostOperationStatus, OperationPhase, OperationType};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    #[test]
    fn work_that_begins_in_the_second_of_another_is_another() {
        let begun = jiff::Timestamp::from_second(1_000).ok().map(Time);
        let entry = |number: u64| HistoryEntry {
            number,
            id: format!("id-{number}"),
            operation: OperationType::Deprovision,
            wish: Some("to be empty".to_owned()),
            status: HostOperationStatus { start_time: begun.clone(), ..HostOperationStatus::default() },
        };
        let object = |entry: &HistoryEntry, id: Option<&str>| {
            let spec = HostOperationSpec {
                operation: entry.operation,
                host: HostReference::default(),
                wish: entry.wish.clone(),
                reboot: None,
                erase: None,
                steps: Vec::new(),
                locate: None,
                diagnose: None,
            };
            let mut object = HostOperation::new(&entry.name("host"), spec);
            let owner = OwnerReference { uid: "uid".into(), controller: Some(true), ..OwnerReference::default() };
            object.metadata.owner_references = Some(vec![owner]);
            object.metadata.annotations = id.map(|id| [(annotation::OPERATION.to_owned(), id.to_owned())].into());
            object.status = Some(entry.status.clone());
            object
        };
        let (first, second) = (entry(3), entry(4));
        for id in [Some("id-3"), None] {
            assert!(shows(&object(&first, id), &first, "uid"), "{id:?}");
            assert!(!shows(&object(&first, id), &second, "uid"), "{id:?}");
            assert!(!shows(&object(&first, id), &first, "another"), "{id:?}");
        }
        assert!(shows(&object(&second, None), &first, "uid"), "the name may have been somebody else's");
        assert!(!shows(&object(&second, Some("id-4")), &first, "uid"));
    }

    #[test]
    fn old_operations_go() {
        let ended = |number: u64| {
            let spec = HostOperationSpec {
                operation: OperationType::Provision,
                host: HostReference::default(),
                wish: None,
                reboot: None,
                erase: None,
                steps: Vec::new(),
                locate: None,
                diagnose: None,
            };
            let mut operation = HostOperation::new(&format!("host-{number:03}-provision"), spec);
            let phase = if number == 3 { OperationPhase::Running } else { OperationPhase::Succeeded };
            operation.status = Some(HostOperationStatus { phase, ..HostOperationStatus::default() });
            operation
        };
        let all = |numbers: std::ops::RangeInclusive<u64>| numbers.rev().map(ended).collect::<Vec<_>>();
        let mut known = Vec::new();
        let names = prunable(&mut known, &all(1..=30));
        assert_eq!(names.len(), 9, "{names:?}");
        assert_eq!(names[2], "host-004-provision", "what is under way stays: {names:?}");
        assert!(prunable(&mut Vec::new(), &all(1..=20)).is_empty());
        // One after the other, as a process sees them end.
        assert_eq!(prunable(&mut known, &all(30..=31)), ["host-011-provision"]);
        assert_eq!(known.len(), KEEP);
    }

    #[test]
    fn of_work_that_has_ended_no_object_is_kept() {
        let object = |number: u64, phase| {
            let spec = HostOperationSpec {
                operation: OperationType::Inspect,
                host: HostReference::default(),
                wish: None,
                reboot: None,
                erase: None,
                steps: Vec::new(),
                locate: None,
                diagnose: None,
            };
            let mut object = HostOperation::new(&format!("host-{number:03}-inspect"), spec);
            object.status = Some(HostOperationStatus { phase, ..HostOperationStatus::default() });
            Some(object)
        };
        let mut reported = Reported { object: object(1, OperationPhase::Succeeded), ..Reported::default() };
        reported.settle();
        assert!(reported.object.is_some(), "what there is has not been listed, so that it may have to be pruned");
        reported.ended = Some(Vec::new());
        reported.settle();
        assert!(reported.object.is_none());
        assert_eq!(reported.ended, Some(vec![(1, "host-001-inspect".to_owned())]));
        reported.object = object(2, OperationPhase::Running);
        reported.settle();
        assert!(reported.object.is_some(), "it will be written again");
    }
}
