//! What a host's provisioner remembers, kept in the host's MachineRecord.
//!
//! This process is the only writer while it leads, so it keeps what it has read; a conflict, or a read by [`super::machine`], refreshes that. The
//! provisioner's revision counts the writes of its own part alone: a write of the machine's identity in between is no conflict.

use std::sync::Arc;

use api::metal3::{annotation, label};
use api::metamorph::{HostOperation, HostReference, MachineRecord, MachineRecordSpec, ProvisionerRecord};
use async_trait::async_trait;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use provisioner::{
    Cause, Failure, HistoryEntry, MAX_COUNT, MAX_RECORD_BYTES, Purpose, Record, RecordContent, RecordError, Recorded,
    Retry,
};

use super::fetched::asked_by;
use super::freeze::frozen;
use super::history::{has_none, host_label, is_ours, number};
use super::machine::KubeMachine;
use super::objects::lean;
use super::records::{Known, has_content, is_blank, is_same, lock};
use super::wanted::{STEPS_WITHDRAWN, WITHDRAWN, changed, is_asked_for_steps, is_asked_to_erase};
use crate::kube_errors::{api_message, is_refused, is_terminating};

/// How long a refused name waits until it is tried again. Until it is written, the host's id decides.
const AGAIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(300);
/// Most attempts at a write while other parts of the object change.
const MAX_CONFLICTS: usize = 4;

/// The fault when a write succeeds and is not kept.
pub const DROPPED: &str =
    "the API server took it and did not keep spec.provisioner: apply the definitions that `metamorph crds` prints";

impl KubeMachine {
    /// Reads the record unless this process has, and for a host without one its history.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn load(&self) -> Result<(), kube::Error> {
        let known = {
            let known = lock(&self.slot);
            let has_part = known.object.as_deref().is_some_and(has_content);
            // The watch shows a record that appears later, by a restore for instance.
            let is_reported =
                known.looked && (known.object.is_some() || !known.earlier.is_empty() || self.is_known_absent());
            known.read && (has_part || is_reported)
        };
        if known {
            return Ok(());
        }
        let object = self.read().await?;
        let earlier = if object.as_ref().is_some_and(has_content) { Vec::new() } else { self.earlier().await? };
        let object = object.map(|object| self.shared(object));
        let mut known = lock(&self.slot);
        *known = Known { read: true, object, pending: known.pending.take(), earlier, looked: true, ..*known };
        Ok(())
    }

    /// The object as it is now. If it was deleted with its namespace, the copy that this process remembers; one deleted on its own counts as absent.
    pub(super) async fn read(&self) -> Result<Option<MachineRecord>, kube::Error> {
        let (gone, remembered) = {
            let known = lock(&self.slot);
            (known.gone, known.object.clone().filter(|object| self.is_ours(&object.spec)))
        };
        if gone {
            return Ok(remembered.map(Arc::unwrap_or_clone));
        }
        let found = self.api().get_opt(&self.name()).await?.map(lean);
        if let (None, Some(object)) = (&found, &remembered)
            && self.namespace_goes(object).await?
        {
            self.has_gone();
            return Ok(remembered.map(Arc::unwrap_or_clone));
        }
        Ok(found)
    }

    /// Whether the host's namespace is terminating and refuses this object.
    async fn namespace_goes(&self, object: &MachineRecord) -> Result<bool, kube::Error> {
        let mut trial = MachineRecord::new(&self.name(), object.spec.clone());
        trial.metadata.namespace = self.host.namespace();
        match self.api().create(&PostParams { dry_run: true, ..PostParams::default() }, &trial).await {
            Ok(_) => Ok(false),
            Err(error) if is_terminating(&error) => Ok(true),
            // Another client has recreated it, say: the next read finds it.
            Err(kube::Error::Api(e)) if e.code < 500 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The object, in the copy that the watch has of it if it shows this version.
    pub(super) fn shared(&self, object: MachineRecord) -> Arc<MachineRecord> {
        let watched = self.common.records.watched(&ObjectRef::from_obj(&object)).flatten();
        watched.filter(|watched| is_same(watched, &object)).unwrap_or_else(|| Arc::new(object))
    }

    fn has_gone(&self) {
        lock(&self.slot).gone = true;
        tracing::warn!(
            host = %self.name(),
            "the host's namespace is being deleted, and its MachineRecord has gone first: until the host is gone, what is recorded is kept in this process alone"
        );
    }

    /// Seals and writes the object, as a replacement or a new one; in a terminating namespace, into the memory of this process alone.
    pub(super) async fn put(&self, mut object: MachineRecord, is_new: bool) -> Result<MachineRecord, kube::Error> {
        let before = lock(&self.slot).object.clone().filter(|before| !is_new && self.is_ours(&before.spec));
        object.spec.seal =
            self.common.seals.seal(&object, before.as_deref(), self.provisioner.vouches(), self.common.clock.now());
        if lock(&self.slot).gone {
            return Ok(object);
        }
        if !is_new {
            return self.api().replace(&self.name(), &PostParams::default(), &object).await.map(lean);
        }
        match self.api().create(&PostParams::default(), &object).await.map(lean) {
            Err(error) if is_terminating(&error) => {
                self.has_gone();
                Ok(object)
            }
            other => other,
        }
    }

    /// Fills in the host's provisioner in a record that names none, as versions without a choice of provisioners wrote it. What the API refuses is not
    /// tried at each step: an admission webhook, say, will refuse it again.
    ///
    /// # Errors
    /// When it cannot be written; it is read again then.
    pub async fn name_provisioner(&self) -> Result<(), RecordError> {
        let unnamed = |object: &MachineRecord| {
            self.is_ours(&object.spec) && object.spec.provisioner.as_ref().is_none_or(|part| part.name.is_empty())
        };
        let now = self.common.clock.now();
        let object = {
            let known = lock(&self.slot);
            let may_try = known.unnamed.is_none_or(|refused| now.duration_since(refused) >= AGAIN);
            known.object.clone().filter(|_| may_try)
        };
        let Some(object) = object.filter(|object| unnamed(object)).filter(|_| (self.common.may_act)()) else {
            return Ok(());
        };
        let mut object = Arc::unwrap_or_clone(object);
        object.spec.provisioner = Some(self.named(object.spec.provisioner.take()));
        let written = self.put(object, false).await;
        let mut known = lock(&self.slot);
        match written {
            Ok(object) => {
                (known.read, known.object, known.unnamed) = (true, Some(Arc::new(object)), None);
                Ok(())
            }
            Err(error) => {
                let refused = is_refused(&error);
                known.unnamed = refused.then_some(now);
                known.read &= refused;
                Err(RecordError::new(format!("MachineRecord {}", self.name()), api_message(&error)))
            }
        }
    }

    /// Seals the record of a host at rest if it is unsealed: it was edited, or written by a version without seals. What the API refuses is not tried at
    /// each look.
    pub async fn seal(&self) {
        let unsealed = |object: &MachineRecord| self.is_ours(&object.spec) && self.common.seals.since(object).is_none();
        let now = self.common.clock.now();
        let object = {
            let known = lock(&self.slot);
            let may_try = known.unsealed.is_none_or(|refused| now.duration_since(refused) >= AGAIN);
            known.object.clone().filter(|_| may_try && !known.gone && !known.unsealable)
        };
        let Some(object) = object.filter(|_| (self.common.may_act)()).filter(|object| unsealed(object)) else { return };
        match self.put(Arc::unwrap_or_clone(object), false).await {
            Ok(written) => {
                let mut known = lock(&self.slot);
                known.unsealable = written.spec.seal.is_none();
                if known.unsealable {
                    // A definition of an earlier version drops what it does not know.
                    self.common.definitions.invalidate();
                }
                known.object = Some(Arc::new(written));
            }
            Err(error) => {
                // Its claim stays the youngest of those to its machine until a later look tries again.
                tracing::debug!(host = %self.name(), error = %api_message(&error), "seal the MachineRecord");
                let (refused, mut known) = (is_refused(&error), lock(&self.slot));
                known.unsealed = refused.then_some(now);
                known.read &= refused;
            }
        }
    }

    /// Refuses a record with a revision that no writes can reach: it was edited.
    ///
    /// # Errors
    /// When it is one.
    pub fn check(&self) -> Result<(), Failure> {
        let revision = self.part(lock(&self.slot).object.as_deref()).map_or(0, |part| part.revision);
        if revision < MAX_COUNT {
            return Ok(());
        }
        let text = format!(
            "read the host's record: spec.provisioner.revision of its MachineRecord is {revision}, and no record is written more than {MAX_COUNT} times"
        );
        let mut failure = Failure::new(Cause::RecordUnreadable, text)
            .advise("restore the MachineRecord from a backup; or set the revision to 1");
        failure.retry = Retry::Held;
        Err(failure)
    }

    /// What versions without records have kept in HostOperations.
    async fn earlier(&self) -> Result<Vec<HistoryEntry>, kube::Error> {
        let api: Api<HostOperation> =
            Api::namespaced(self.common.client.clone(), &self.host.namespace().unwrap_or_default());
        let selector = format!("{}={}", label::HOST, host_label(&self.name()));
        let mut found = match api.list(&ListParams::default().labels(&selector)).await {
            Ok(list) => list.items,
            // The kind is not installed: there is nothing to take over.
            Err(kube::Error::Api(e)) if e.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
        if found.is_empty() {
            has_none(&self.history).await;
        }
        let uid = self.host.uid().unwrap_or_default();
        found.retain(|operation| is_ours(operation, &uid));
        found.sort_by_key(number);
        let entry = |operation: HostOperation| HistoryEntry {
            number: number(&operation),
            id: format!("{}/{}", operation.name_any(), operation.uid().unwrap_or_default()),
            operation: operation.spec.operation,
            wish: operation.spec.wish,
            status: operation.status.unwrap_or_default(),
        };
        Ok(found.into_iter().map(entry).collect())
    }

    /// The provisioner's part of the object, if the object is this host's.
    fn part<'a>(&self, object: Option<&'a MachineRecord>) -> Option<&'a ProvisionerRecord> {
        object.filter(|object| self.is_ours(&object.spec)).and_then(|object| object.spec.provisioner.as_ref())
    }

    /// Fails where another process leads, or may: what this one knows of the host is old then.
    fn leads(&self) -> Result<(), RecordError> {
        let leads = (self.common.may_act)();
        if leads { Ok(()) } else { Err(RecordError::not_leading(format!("MachineRecord {}", self.name()))) }
    }

    /// One attempt to write this part; `None` if another version of the object was found, which is known then.
    async fn try_write(&self, expected: u64, part: &ProvisionerRecord) -> Result<Option<()>, RecordError> {
        let failed = |why: String| RecordError::new(format!("MachineRecord {}", self.name()), why);
        let (object, pending) = {
            let known = lock(&self.slot);
            (known.object.clone(), known.pending.clone())
        };
        let found = self.part(object.as_deref()).map_or(0, |part| part.revision);
        if found != expected {
            return Err(failed(format!("revision {found} is there, and not {expected}: it is read again")));
        }
        let address = self.host.spec.bmc.as_ref().map(|bmc| bmc.address.clone()).unwrap_or_default();
        let blank = MachineRecordSpec {
            host: HostReference { name: self.name(), uid: self.host.uid() },
            bmc_address: address,
            ..MachineRecordSpec::default()
        };
        let content = |object: Option<&MachineRecord>| self.part(object).filter(|part| !is_blank(part)).cloned();
        let before = content(object.as_deref());
        let written = match object {
            Some(object) => {
                let mut object = Arc::unwrap_or_clone(object);
                if let Some(machine) = pending {
                    object.spec = machine;
                } else if !self.is_ours(&object.spec) {
                    object.spec = blank;
                }
                object.spec.provisioner = Some(part.clone());
                self.put(object, false).await
            }
            None => {
                let mut new = MachineRecord::new(&self.name(), pending.unwrap_or(blank));
                new.spec.provisioner = Some(part.clone());
                new.metadata.namespace = self.host.namespace();
                self.put(new, true).await
            }
        };
        let error = match written {
            Ok(object) => {
                let kept = self.part(Some(&object)) == Some(part);
                let object = self.shared(object);
                let mut known = lock(&self.slot);
                (known.object, known.pending) = (Some(object), None);
                known.earlier.clear();
                return if kept {
                    Ok(Some(()))
                } else {
                    // A definition of an earlier version drops what it does not know, and says nothing of it.
                    self.common.definitions.invalidate();
                    Err(failed(DROPPED.to_owned()))
                };
            }
            Err(error) => error,
        };
        // Another client wrote, or the answer was lost: read the object again.
        let conflict = matches!(&error, kube::Error::Api(e) if e.code == 409 || e.code == 404);
        match self.read().await {
            Ok(there) => {
                let landed = self.part(there.as_ref()) == Some(part);
                let same = content(there.as_ref()) == before;
                let mut known = lock(&self.slot);
                (known.object, known.looked) = (there.map(Arc::new), false);
                if landed || !conflict {
                    known.pending = None;
                }
                drop(known);
                match (landed, conflict) {
                    (true, _) => Ok(Some(())),
                    (false, true) if same => Ok(None),
                    (false, true) => {
                        Err(failed("it has been edited or deleted meanwhile: it is read again".to_owned()))
                    }
                    (false, false) => Err(failed(api_message(&error))),
                }
            }
            Err(_) => {
                let mut known = lock(&self.slot);
                // The known object is kept in case it is deleted with its namespace.
                (known.read, known.pending) = (false, None);
                Err(failed(api_message(&error)))
            }
        }
    }
}

#[async_trait]
impl Record for KubeMachine {
    fn current(&self) -> Recorded {
        let known = lock(&self.slot);
        let part = self.part(known.object.as_deref());
        let revision = part.map_or(0, |part| part.revision);
        let Some(part) = part.filter(|part| !is_blank(part)) else {
            return Recorded { revision, content: None, earlier: known.earlier.clone() };
        };
        // Another provisioner's data does not count for this one, unless the host is registered: then its provisioner is fixed.
        let content = (part.name == self.provisioner.name() || self.is_registered()).then(|| RecordContent {
            provisioner: part.name.clone(),
            version: part.version,
            data: part.data.clone(),
        });
        Recorded { revision, content, earlier: Vec::new() }
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        let failed = |why: String| RecordError::new(format!("MachineRecord {}", self.name()), why);
        let bytes = content.data.to_string().len();
        if bytes > MAX_RECORD_BYTES {
            return Err(failed(format!("{bytes} bytes are to be recorded, {MAX_RECORD_BYTES} are accepted")));
        }
        let revision = expected.saturating_add(1);
        let part =
            ProvisionerRecord { name: content.provisioner, version: content.version, revision, data: content.data };
        if purpose == Purpose::Intent {
            self.still_wanted().await?;
        }
        self.leads()?;
        let mut written = None;
        for _ in 0..MAX_CONFLICTS {
            written = self.try_write(expected, &part).await?;
            if written.is_some() {
                break;
            }
        }
        if written.is_none() {
            return Err(failed("somebody else writes it all the time".to_owned()));
        }
        // The calls took time, in which the leadership may have been lost.
        if purpose == Purpose::Intent {
            self.leads()?;
        }
        Ok(revision)
    }

    /// Reads host and namespace anew, because what this process has seen of them may be stale.
    async fn still_wanted(&self) -> Result<(), RecordError> {
        let failed = |why: String| RecordError::new(format!("MachineRecord {}", self.name()), why);
        let found = self.hosts().get_opt(&self.name()).await.map_err(|e| failed(api_message(&e)))?;
        if let Some(what) = changed(&self.host, found.as_ref(), self.switches) {
            return Err(failed(format!("{what} since this was decided: it is decided again")));
        }
        let namespace = self.host.namespace().unwrap_or_default();
        if let Some((now, key)) = found.as_ref().zip(self.asked) {
            // The annotation alone is no request: that may have been deleted, and the host not have been told yet.
            let asked = asked_by(&self.common.client, now, key).await.map_err(|e| failed(api_message(&e)))?;
            let (is_asked, withdrawn) = match key {
                annotation::STEPS => {
                    (is_asked_for_steps(now, asked.as_ref(), self.common.clock.now()), STEPS_WITHDRAWN)
                }
                _ => (is_asked_to_erase(now, asked.as_ref(), self.common.clock.now()), WITHDRAWN),
            };
            if !is_asked {
                return Err(failed(format!("{withdrawn} since this was decided: it is decided again")));
            }
        }
        match frozen(&self.common.client, &namespace).await.map_err(|e| failed(api_message(&e)))? {
            None => Ok(()),
            Some(why) => Err(failed(why)),
        }
    }
}
