//! What this process has read of the hosts' MachineRecords.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::metal3::BareMetalHost;
use api::metamorph::{MachineRecord, MachineRecordSpec, ProvisionerRecord};
use kube::Client;
use provisioner::{HistoryEntry, MayAct};

use super::objects::Objects;
use super::seal::Seals;
use crate::Clock;
use crate::definitions::Definitions;
use crate::events::Recorder;

/// What the records of all hosts are read, compared and written with.
pub struct Common {
    /// The API.
    pub client: Client,
    /// The hosts.
    pub known: Arc<Objects<BareMetalHost>>,
    /// Their records, as the watch shows them.
    pub records: Arc<Objects<MachineRecord>>,
    /// Tells of what has become of them.
    pub recorder: Recorder,
    /// Whether the cluster keeps what is written.
    pub definitions: Arc<Definitions>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether this server wrote them.
    pub seals: Arc<Seals>,
    /// Whether this process leads.
    pub may_act: MayAct,
}

/// What this process knows of a host's MachineRecord.
#[derive(Default)]
pub struct Known {
    /// It has been read.
    pub read: bool,
    /// As it was read or written last: the watch's own copy where the watch shows that version.
    pub object: Option<Arc<MachineRecord>>,
    /// The record was deleted with its namespace, which refuses new objects: only this copy is left until the host is deleted too.
    pub gone: bool,
    /// The machine's identity to write with the next write of the provisioner's part.
    pub pending: Option<MachineRecordSpec>,
    /// What HostOperations tell of a host without a record.
    pub(super) earlier: Vec<HistoryEntry>,
    /// They have been read since the record was.
    pub(super) looked: bool,
    /// The API server does not keep seals.
    pub(super) unsealable: bool,
    /// When it last refused the provisioner's name.
    pub(super) unnamed: Option<jiff::Timestamp>,
    /// When it last refused a seal.
    pub(super) unsealed: Option<jiff::Timestamp>,
}

/// One host's.
pub type Slot = Arc<Mutex<Known>>;

/// The records of all hosts that this process has read, by host uid.
#[derive(Default)]
pub struct Records(Mutex<HashMap<String, Slot>>);

impl Records {
    /// The host's slot.
    pub fn slot(&self, uid: &str) -> Slot {
        let mut all = self.lock();
        match all.get(uid) {
            Some(slot) => Arc::clone(slot),
            None => Arc::clone(all.entry(uid.to_owned()).or_default()),
        }
    }

    /// Whether the host's record has been read.
    pub fn has(&self, uid: &str) -> bool {
        let slot = self.lock().get(uid).cloned();
        slot.is_some_and(|slot| lock(&slot).read)
    }

    /// Whether the host's record has been read, and its provisioner has written nothing: no work on the machine has begun.
    pub fn is_blank(&self, uid: &str) -> bool {
        let slot = self.lock().get(uid).cloned();
        slot.is_some_and(|slot| {
            let known = lock(&slot);
            known.read && known.earlier.is_empty() && !known.object.as_deref().is_some_and(has_content)
        })
    }

    /// Invalidates what was read, which is unusable: it is read again first. The object stays known in case it is deleted with its namespace.
    pub fn invalidate(&self, uid: &str) {
        let slot = self.slot(uid);
        let mut known = lock(&slot);
        let (object, gone, unnamed, unsealed) = (known.object.take(), known.gone, known.unnamed, known.unsealed);
        *known = Known { object, gone, unnamed, unsealed, ..Known::default() };
    }

    /// The watch shows this record: if it is the version that is known of its host, one copy is enough.
    pub fn share(&self, watched: &Arc<MachineRecord>) {
        let uid = watched.spec.host.uid.as_deref().unwrap_or_default();
        let Some(slot) = self.lock().get(uid).cloned() else { return };
        let mut known = lock(&slot);
        if known.object.as_deref().is_some_and(|object| is_same(object, watched)) {
            known.object = Some(Arc::clone(watched));
        }
    }

    /// Forgets what was read of the host.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks what is known, even if a thread died while it held it.
pub fn lock(slot: &Slot) -> MutexGuard<'_, Known> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether both are one version of one object. What is recorded after the object has gone with its namespace is in this process alone, under the version that was
/// there last: so the content is compared as well.
pub fn is_same(one: &MachineRecord, other: &MachineRecord) -> bool {
    let (meta, others) = (&one.metadata, &other.metadata);
    meta.resource_version.is_some()
        && meta.uid.is_some()
        && (&meta.uid, &meta.resource_version) == (&others.uid, &others.resource_version)
        && one.spec == other.spec
}

/// The part has only its name: the provisioner has written nothing.
pub fn is_blank(part: &ProvisionerRecord) -> bool {
    part.version == 0 && part.data.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Whether the record has more than its provisioner's name.
pub fn has_content(object: &MachineRecord) -> bool {
    object.spec.provisioner.as_ref().is_some_and(|part| !is_blank(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_this_process_alone_is_not_what_the_watch_shows_under_that_version() {
        let records = Records::default();
        let mut watched = MachineRecord::new("a", MachineRecordSpec::default());
        watched.spec.host.uid = Some("u".to_owned());
        (watched.metadata.uid, watched.metadata.resource_version) = (Some("r".to_owned()), Some("5".to_owned()));
        let mut kept = watched.clone();
        kept.spec.bmc_address = "recorded since".to_owned();
        lock(&records.slot("u")).object = Some(Arc::new(kept.clone()));
        records.share(&Arc::new(watched.clone()));
        assert_eq!(lock(&records.slot("u")).object.as_deref(), Some(&kept));
        let shown = Arc::new(kept);
        records.share(&shown);
        assert!(lock(&records.slot("u")).object.as_ref().is_some_and(|object| Arc::ptr_eq(object, &shown)));
    }

    #[test]
    fn a_version_that_the_watch_shows_is_held_once() {
        let record = |version: &str| {
            let mut record = MachineRecord::new("a", MachineRecordSpec::default());
            record.spec.host.uid = Some("host".to_owned());
            (record.metadata.uid, record.metadata.resource_version) = (Some("u".into()), Some(version.to_owned()));
            Arc::new(record)
        };
        let (records, written) = (Records::default(), record("2"));
        let held = || lock(&records.slot("host")).object.clone();
        lock(&records.slot("host")).object = Some(Arc::clone(&written));
        // What the watch shows late, or of another's write, takes the place of nothing.
        for other in [record("1"), record("3")] {
            records.share(&other);
            assert!(held().is_some_and(|held| Arc::ptr_eq(&held, &written)));
        }
        let watched = record("2");
        records.share(&watched);
        assert!(held().is_some_and(|held| Arc::ptr_eq(&held, &watched)));
        drop(written);
        assert_eq!(Arc::strong_count(&watched), 2, "one of the watch, one of the host");
    }
}
