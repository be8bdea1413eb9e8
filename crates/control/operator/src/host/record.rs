//! What a host's provisioner remembers, kept in the host's MachineRecord.
//!
//! This process is the only writer while it leads, so it keeps what it has read; a conflict, or a read by [`super::machine`], refreshes that. The
//! provisioner's revision counts the writes of its own part alone: a write of the machine's identity in between is no conflict.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::metal3::{BareMetalHost, annotation, label};
use api::metamorph::{
    HostOperation, HostReference, MachineRecord, MachineRecordSpec, OperationType, ProvisionerRecord,
};
use async_trait::async_trait;
use host_lifecycle::{inspection_disabled, wished_root_device_hints};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use provisioner::{
    Cause, Failure, HistoryEntry, MAX_COUNT, MAX_RECORD_BYTES, Purpose, Record, RecordContent, RecordError, Recorded,
    Retry,
};
use sha2::{Digest, Sha256};

use super::brake::frozen;
use super::history::{host_label, is_ours, number};
use super::machine::KubeMachine;
use super::trouble::told;

/// Most attempts at a write while other parts of the object change.
const MAX_CONFLICTS: usize = 4;

/// The fault when a write succeeds and is not kept.
pub const DROPPED: &str =
    "the API server took it and did not keep spec.provisioner: apply the definitions that `metamorph crds` prints";

/// What this process knows of a host's MachineRecord.
#[derive(Default)]
pub struct Known {
    /// It has been read.
    pub read: bool,
    /// As it was read or written last.
    pub object: Option<MachineRecord>,
    /// The record was deleted with its namespace, which refuses new objects: only this copy is left until the host is deleted too.
    pub gone: bool,
    /// The machine's identity to write with the next write of the provisioner's part.
    pub pending: Option<MachineRecordSpec>,
    /// What HostOperations tell of a host without a record.
    earlier: Vec<HistoryEntry>,
    /// They have been read since the record was.
    looked: bool,
    /// The API server does not keep seals.
    unsealable: bool,
}

/// One host's.
pub type Slot = Arc<Mutex<Known>>;

/// The records of all hosts that this process has read, by host uid.
#[derive(Default)]
pub struct Records(Mutex<HashMap<String, Slot>>);

impl Records {
    /// The host's slot.
    pub fn slot(&self, uid: &str) -> Slot {
        Arc::clone(self.lock().entry(uid.to_owned()).or_default())
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
            known.read && known.earlier.is_empty() && !known.object.as_ref().is_some_and(has_content)
        })
    }

    /// What was read is unusable: it is read again first. The object stays known in case it is deleted with its namespace.
    pub fn doubt(&self, uid: &str) {
        let slot = self.slot(uid);
        let mut known = lock(&slot);
        *known = Known { object: known.object.take(), gone: known.gone, ..Known::default() };
    }

    /// Forgets what was read of the host.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn lock(slot: &Slot) -> MutexGuard<'_, Known> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part has only its name: the provisioner has written nothing.
fn is_blank(part: &ProvisionerRecord) -> bool {
    part.version == 0 && part.data.as_object().is_none_or(serde_json::Map::is_empty)
}

fn has_content(object: &MachineRecord) -> bool {
    object.spec.provisioner.as_ref().is_some_and(|part| !is_blank(part))
}

impl KubeMachine {
    /// Reads the record unless this process has, and for a host without one its history.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn load(&self) -> Result<(), kube::Error> {
        let known = {
            let known = lock(&self.slot);
            let has_part = known.object.as_ref().is_some_and(has_content);
            // The watch shows a record that appears later, by a restore for instance.
            let is_told =
                known.looked && (known.object.is_some() || !known.earlier.is_empty() || self.shown_to_be_absent());
            known.read && (has_part || is_told)
        };
        if known {
            return Ok(());
        }
        let object = self.read().await?;
        let earlier = if object.as_ref().is_some_and(has_content) { Vec::new() } else { self.earlier().await? };
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
            return Ok(remembered);
        }
        let found = self.api.get_opt(&self.name()).await?;
        if let (None, Some(object)) = (&found, &remembered)
            && self.namespace_goes(object).await?
        {
            self.has_gone();
            return Ok(remembered);
        }
        Ok(found)
    }

    /// Whether the host's namespace is terminating and refuses this object.
    async fn namespace_goes(&self, object: &MachineRecord) -> Result<bool, kube::Error> {
        let mut trial = MachineRecord::new(&self.name(), object.spec.clone());
        trial.metadata.namespace = self.host.namespace();
        match self.api.create(&PostParams { dry_run: true, ..PostParams::default() }, &trial).await {
            Ok(_) => Ok(false),
            Err(error) if is_terminating(&error) => Ok(true),
            // Another client has recreated it, say: the next read finds it.
            Err(kube::Error::Api(e)) if e.code < 500 => Ok(false),
            Err(error) => Err(error),
        }
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
        object.spec.seal = self.seals.seal(&object, before.as_ref(), self.clock.now());
        if lock(&self.slot).gone {
            return Ok(object);
        }
        if !is_new {
            return self.api.replace(&self.name(), &PostParams::default(), &object).await;
        }
        match self.api.create(&PostParams::default(), &object).await {
            Err(error) if is_terminating(&error) => {
                self.has_gone();
                Ok(object)
            }
            other => other,
        }
    }

    /// Fills in the host's provisioner in a record that names none, as versions without a choice of provisioners wrote it.
    ///
    /// # Errors
    /// When it cannot be written; it is read again then.
    pub async fn name_provisioner(&self) -> Result<(), RecordError> {
        let unnamed = |object: &MachineRecord| {
            self.is_ours(&object.spec) && object.spec.provisioner.as_ref().is_none_or(|part| part.name.is_empty())
        };
        let Some(mut object) = lock(&self.slot).object.clone().filter(unnamed).filter(|_| (self.may_act)()) else {
            return Ok(());
        };
        object.spec.provisioner = Some(self.named(object.spec.provisioner.take()));
        let written = self.put(object, false).await;
        let mut known = lock(&self.slot);
        known.read = written.is_ok();
        known.object = Some(written.map_err(|e| RecordError::new(format!("MachineRecord {}", self.name()), told(&e)))?);
        Ok(())
    }

    /// Seals the record of a host at rest if it is unsealed: it was edited, or written by a version without seals.
    pub async fn seal(&self) {
        let unsealed = |object: &MachineRecord| self.is_ours(&object.spec) && self.seals.since(object).is_none();
        let object = {
            let known = lock(&self.slot);
            known.object.clone().filter(|_| !known.gone && !known.unsealable)
        };
        let Some(object) = object.filter(|_| (self.may_act)()).filter(unsealed) else { return };
        match self.put(object, false).await {
            Ok(written) => {
                let mut known = lock(&self.slot);
                known.unsealable = written.spec.seal.is_none();
                if known.unsealable {
                    // A definition of an earlier version drops what it does not know.
                    self.definitions.doubt();
                }
                known.object = Some(written);
            }
            Err(error) => {
                // Its claim stays the youngest of those to its machine until the next look tries again.
                tracing::debug!(host = %self.name(), error = %told(&error), "seal the MachineRecord");
                lock(&self.slot).read = false;
            }
        }
    }

    /// Refuses a record with a revision that no writes can reach: it was edited.
    ///
    /// # Errors
    /// When it is one.
    pub fn check(&self) -> Result<(), Failure> {
        let revision = self.part(lock(&self.slot).object.as_ref()).map_or(0, |part| part.revision);
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
        let api: Api<HostOperation> = Api::namespaced(self.client.clone(), &self.host.namespace().unwrap_or_default());
        let selector = format!("{}={}", label::HOST, host_label(&self.name()));
        let mut found = match api.list(&ListParams::default().labels(&selector)).await {
            Ok(list) => list.items,
            // The kind is not installed: there is nothing to take over.
            Err(kube::Error::Api(e)) if e.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
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

    /// One attempt to write this part; `None` if another version of the object was found, which is known then.
    async fn try_write(&self, expected: u64, part: &ProvisionerRecord) -> Result<Option<()>, RecordError> {
        let failed = |why: String| RecordError::new(format!("MachineRecord {}", self.name()), why);
        let (object, pending) = {
            let known = lock(&self.slot);
            (known.object.clone(), known.pending.clone())
        };
        let found = self.part(object.as_ref()).map_or(0, |part| part.revision);
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
        let before = content(object.as_ref());
        let written = match object {
            Some(mut object) => {
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
                let mut known = lock(&self.slot);
                (known.object, known.pending) = (Some(object), None);
                known.earlier.clear();
                return if kept {
                    Ok(Some(()))
                } else {
                    // A definition of an earlier version drops what it does not know, and says nothing of it.
                    self.definitions.doubt();
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
                (known.object, known.looked) = (there, false);
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
                    (false, false) => Err(failed(told(&error))),
                }
            }
            Err(_) => {
                let mut known = lock(&self.slot);
                // The known object is kept in case it is deleted with its namespace.
                (known.read, known.pending) = (false, None);
                Err(failed(told(&error)))
            }
        }
    }
}

#[async_trait]
impl Record for KubeMachine {
    fn current(&self) -> Recorded {
        let known = lock(&self.slot);
        let part = self.part(known.object.as_ref());
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
        if !(self.may_act)() {
            return Err(RecordError::not_leading(format!("MachineRecord {}", self.name())));
        }
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
        if purpose == Purpose::Intent && !(self.may_act)() {
            return Err(RecordError::not_leading(format!("MachineRecord {}", self.name())));
        }
        Ok(revision)
    }

    /// Reads host and namespace anew, because what this process has seen of them may be stale.
    async fn still_wanted(&self) -> Result<(), RecordError> {
        let failed = |why: String| RecordError::new(format!("MachineRecord {}", self.name()), why);
        let found = self.hosts.get_opt(&self.name()).await.map_err(|e| failed(told(&e)))?;
        if let Some(what) = changed(&self.host, found.as_ref(), self.switches) {
            return Err(failed(format!("{what} since this was decided: it is decided again")));
        }
        let namespace = self.host.namespace().unwrap_or_default();
        match frozen(&self.client, &namespace).await.map_err(|e| failed(told(&e)))? {
            None => Ok(()),
            Some(why) => Err(failed(why)),
        }
    }
}

/// When the host began with its present work of this kind.
fn began(host: &BareMetalHost, operation: OperationType) -> Option<api::Time> {
    let history = &host.status.as_ref()?.operation_history;
    match operation {
        OperationType::Inspect => history.inspect.start.clone(),
        OperationType::Provision => history.provision.start.clone(),
        OperationType::Deprovision => history.deprovision.start.clone(),
        // The host does not say when.
        OperationType::Prepare | OperationType::Service => None,
    }
}

/// Identity of the host's wish: when its work began and, for provisioning, the image and the disk. `None` if the status does not record when.
pub fn wish(host: &BareMetalHost, operation: OperationType) -> Option<String> {
    let began = jiff::Timestamp::from_second(began(host, operation)?.0.as_second()).ok()?;
    if operation != OperationType::Provision {
        return Some(began.to_string());
    }
    let status = host.status.as_ref()?;
    let asked = serde_json::json!([status.last_attempted_image, status.provisioning.root_device_hints]);
    let digest = Sha256::digest(asked.to_string().as_bytes());
    Some(format!("{began} {}", hex::encode(&digest[..8])))
}

/// The API refuses a new object because its namespace is being deleted, or is gone.
pub(super) fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating") || status.code == 404 && namespace
}

/// What has happened to a host that makes an effect unwanted which was decided on `decided`; `switches`: it is the power that the host itself asks for.
pub(super) fn changed(decided: &BareMetalHost, now: Option<&BareMetalHost>, switches: bool) -> Option<&'static str> {
    let Some(now) = now.filter(|now| now.uid() == decided.uid()) else { return Some("the host has gone") };
    let has = |host: &BareMetalHost, key: &str| host.annotation(key).is_some();
    if has(now, annotation::PAUSED) {
        return Some("the host has been paused");
    }
    if has(now, annotation::DETACHED) != has(decided, annotation::DETACHED) {
        return Some("the host has been detached or attached");
    }
    if now.is_deleting() != decided.is_deleting() {
        return Some("the host's deletion has been asked for");
    }
    if now.annotation(annotation::OVERWRITE_OWNER) != decided.annotation(annotation::OVERWRITE_OWNER) {
        return Some("the consent to overwrite has changed");
    }
    if now.spec.bmc != decided.spec.bmc {
        return Some("spec.bmc has changed");
    }
    if now.spec.automated_cleaning_mode != decided.spec.automated_cleaning_mode {
        return Some("spec.automatedCleaningMode has changed");
    }
    if inspection_disabled(now) != inspection_disabled(decided) {
        return Some("inspection has been disabled or enabled");
    }
    if now.spec.disable_power_off != decided.spec.disable_power_off {
        return Some("spec.disablePowerOff has changed");
    }
    if wished_root_device_hints(now) != wished_root_device_hints(decided) {
        return Some("spec.rootDeviceHints has changed");
    }
    if now.spec.externally_provisioned != decided.spec.externally_provisioned {
        return Some("spec.externallyProvisioned has changed");
    }
    let data = |host: &BareMetalHost| {
        let spec = &host.spec;
        (spec.user_data.clone(), spec.network_data.clone(), spec.meta_data.clone(), spec.custom_deploy.clone())
    };
    if data(now) != data(decided) {
        return Some("the data or the method of the deployment has changed");
    }
    if switches && (now.spec.online != decided.spec.online || !reboots(now).eq(reboots(decided))) {
        return Some("the wish for the machine's power has changed");
    }
    (now.spec.image != decided.spec.image).then_some("spec.image has changed")
}

/// Its reboot annotations.
fn reboots(host: &BareMetalHost) -> impl Iterator<Item = (&String, &String)> {
    host.metadata.annotations.iter().flatten().filter(|(key, _)| key.starts_with(annotation::REBOOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Time;

    fn host(history: serde_json::Value) -> BareMetalHost {
        let mut host = BareMetalHost::new("h", api::metal3::BareMetalHostSpec::default());
        host.status = Some(serde_json::from_value(serde_json::json!({ "operationHistory": history })).unwrap());
        host
    }

    #[test]
    fn a_wish_is_of_its_time_and_of_what_was_asked_for() {
        let at = |time: &str| host(serde_json::json!({ "provision": { "start": time, "end": null } }));
        let one = at("2026-01-01T00:00:00Z");
        let kind = OperationType::Provision;
        assert_eq!(wish(&one, kind), wish(&at("2026-01-01T00:00:00Z"), kind));
        assert_ne!(wish(&one, kind), wish(&at("2026-01-01T00:00:01Z"), kind));
        assert_eq!(wish(&one, OperationType::Deprovision), None);
        let mut other = one.clone();
        let image = api::metal3::Image { url: "http://images/other".to_owned(), ..Default::default() };
        other.status.as_mut().unwrap().last_attempted_image = Some(image);
        assert_ne!(wish(&one, kind), wish(&other, kind));
    }

    #[test]
    fn an_effect_is_unwanted_when_the_host_has_changed() {
        let mut decided = host(serde_json::json!({}));
        decided.metadata.uid = Some("u".to_owned());
        assert_eq!(changed(&decided, Some(&decided), true), None);
        assert!(changed(&decided, None, false).is_some());
        let hints = serde_json::json!({ "deviceName": "/dev/sda" });
        decided.spec.root_device_hints = Some(serde_json::from_value(hints).unwrap());
        let edits: [fn(&mut BareMetalHost); 12] = [
            |h| h.metadata.uid = Some("v".to_owned()),
            |h| h.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            |h| h.annotations_mut().insert(annotation::PAUSED.to_owned(), String::new()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::DETACHED.to_owned(), String::new()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::INSPECT.to_owned(), "disabled".to_owned()).map_or((), drop),
            |h| h.spec.automated_cleaning_mode = Some(api::metal3::CleaningMode::Disabled),
            |h| h.spec.disable_power_off = Some(true),
            |h| h.spec.root_device_hints = None,
            |h| h.spec.externally_provisioned = Some(true),
            |h| h.spec.user_data = Some(api::metal3::SecretReference::default()),
            |h| h.spec.image = Some(api::metal3::Image::default()),
            |h| h.spec.bmc = Some(api::metal3::Bmc { address: "redfish://x".to_owned(), ..Default::default() }),
        ];
        for (index, edit) in edits.into_iter().enumerate() {
            let mut now = decided.clone();
            edit(&mut now);
            assert!(changed(&decided, Some(&now), false).is_some(), "edit {index}");
        }
        let mut now = decided.clone();
        now.spec.online = !now.spec.online;
        now.labels_mut().insert("rack".to_owned(), "1".to_owned());
        now.annotations_mut().insert(annotation::REBOOT.to_owned(), String::new());
        assert_eq!(changed(&decided, Some(&now), false), None, "what does not matter to it");
        // The power that the host asks for is another matter.
        assert!(changed(&decided, Some(&now), true).is_some());
        now.spec.online = decided.spec.online;
        assert!(changed(&decided, Some(&now), true).is_some());
        now.annotations_mut().clear();
        assert_eq!(changed(&decided, Some(&now), true), None);
    }
}
