//! Which machine a host is, kept in a MachineRecord of the host's name.
//!
//! The host does not own it: the record outlives the host, so that a host restored from a backup or declared again is compared with it. A host
//! declared under an old name with another BMC address is a new host, and begins without a record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{MachineRecord, MachineRecordSpec, ProvisionerRecord};
use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use provisioner::{Machine, OtherMachine, Provisioner, RecordError};
use serde_json::{Value, json};

use super::context::Context;
use super::history::Cache;
use super::records::{Common, Slot, lock};
use super::wanted::changed;
use crate::events::Said;
use crate::kube_errors::api_message;

/// How long the records may take to be listed when the controller has started.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// One host's record.
pub struct KubeMachine {
    pub(super) common: Arc<Common>,
    pub(super) host: Arc<BareMetalHost>,
    /// What this process knows of the object.
    pub(super) slot: Slot,
    /// What this process has reported of the host's work.
    pub(super) history: Cache,
    pub(super) provisioner: Arc<dyn Provisioner>,
    /// What is about to be done is what the host asks for its power: a change of that wish makes it unwanted.
    pub(super) switches: bool,
    /// What is about to be done is what a request asks for by the annotation of this key (to erase disks, to run steps): without the request it is
    /// unwanted.
    pub(super) asked: Option<&'static str>,
    /// Fingerprints whose consent this call has used up.
    consents_used: Mutex<Vec<String>>,
}

fn lock_used(used: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KubeMachine {
    /// The record of this host.
    pub fn new(context: &Context, host: &Arc<BareMetalHost>, provisioner: Arc<dyn Provisioner>) -> Self {
        let uid = host.metadata.uid.as_deref().unwrap_or_default();
        Self {
            common: Arc::clone(&context.of_machines),
            slot: context.machines.slot(uid),
            history: context.histories.cache(uid),
            host: Arc::clone(host),
            provisioner,
            switches: false,
            asked: None,
            consents_used: Mutex::default(),
        }
    }

    /// The same for a call that switches the power as the host itself asks.
    #[must_use]
    pub fn switching(self, switches: bool) -> Self {
        Self { switches, ..self }
    }

    /// The same for a call that a request asks for by the annotation of this key.
    #[must_use]
    pub fn asked_by(self, asked: Option<&'static str>) -> Self {
        Self { asked, ..self }
    }

    pub(super) fn api(&self) -> Api<MachineRecord> {
        Api::namespaced(self.common.client.clone(), &self.host.namespace().unwrap_or_default())
    }

    pub(super) fn hosts(&self) -> Api<BareMetalHost> {
        Api::namespaced(self.common.client.clone(), &self.host.namespace().unwrap_or_default())
    }

    pub(super) fn name(&self) -> String {
        self.host.name_any()
    }

    fn failed(&self, attempt: &str, why: impl std::fmt::Display) -> RecordError {
        RecordError::new(format!("{attempt} MachineRecord {}", self.name()), why.to_string())
    }

    async fn found(&self) -> Result<Option<MachineRecord>, RecordError> {
        let found = self.read().await.map_err(|e| self.failed("read", api_message(&e)))?;
        let shared = found.as_ref().map(|found| self.shared(found.clone()));
        lock(&self.slot).object = shared;
        Ok(found)
    }

    /// Whether the watch is in step and shows no record.
    pub(super) fn is_known_absent(&self) -> bool {
        let key = ObjectRef::new(&self.name()).within(&self.host.namespace().unwrap_or_default());
        matches!(self.common.records.watched(&key), Some(None))
    }

    /// The record as this process has read or written it last, while the watch shows that very version.
    fn unchanged(&self) -> Option<MachineRecord> {
        let key = ObjectRef::new(&self.name()).within(&self.host.namespace().unwrap_or_default());
        let watched = self.common.records.watched(&key)??;
        let known = lock(&self.slot);
        known
            .object
            .as_ref()
            .filter(|record| known.read && record.resource_version() == watched.resource_version())
            .map(|record| MachineRecord::clone(record))
    }

    /// Whether two addresses are of one machine at one BMC, however they are written.
    fn same_address(&self, one: &str, other: &str) -> bool {
        one == other
            || self.provisioner.machine_key(one).is_some_and(|key| self.provisioner.machine_key(other) == Some(key))
    }

    /// Whether the record is this host's: made for it or for a host of the same name at the same BMC, or the host is registered, as one restored with
    /// its status is. A host declared under an old name for another BMC has none yet.
    pub(super) fn is_ours(&self, record: &MachineRecordSpec) -> bool {
        let address = self.host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
        self.is_registered() || record.host.uid == self.host.uid() || self.same_address(&record.bmc_address, address)
    }

    /// Whether the host is registered, which fixes its provisioner.
    pub(super) fn is_registered(&self) -> bool {
        self.host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty())
    }

    async fn warn(&self, reason: &str, note: String) {
        let said = Said { reason: reason.to_owned(), note, warning: true };
        if let Err(error) = self.common.recorder.publish(&said, &self.host.object_ref(&())).await {
            tracing::warn!(host = %self.name(), reason, %error, "publish an Event");
        }
    }

    /// The host as it is now, if it still consents: the call that found the machine may have begun long ago.
    async fn consenting(&self) -> Result<BareMetalHost, RecordError> {
        let refused = |why: String| self.failed("accept another machine in", why);
        let found = self.hosts().get_opt(&self.name()).await.map_err(|e| refused(api_message(&e)))?;
        if let Some(what) = changed(&self.host, found.as_ref(), false) {
            return Err(refused(format!("{what} since this was decided: it is decided again")));
        }
        let consent = self.host.annotation(annotation::ACCEPT_MACHINE);
        // The same call may accept a BMC and the machine behind it.
        let used = !lock_used(&self.consents_used).is_empty();
        let stands = |given: Option<&str>| given == consent || used && given.is_none();
        found.filter(|now| stands(now.annotation(annotation::ACCEPT_MACHINE))).ok_or_else(|| {
            refused(format!("the annotation {} has been taken back or changed since", annotation::ACCEPT_MACHINE))
        })
    }

    /// Removes the consent that was given in this version of the host, and asks for another inspection where one is possible.
    async fn use_up_consent(&self, fingerprint: &str, consenting: ObjectMeta) -> Result<(), RecordError> {
        let failed = |error: &kube::Error| self.failed("use up the consent for", api_message(error));
        let consent = self.host.annotation(annotation::ACCEPT_MACHINE);
        let mut now = consenting;
        for last in [false, false, false, false, true] {
            let value = |key: &str| now.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
            let mut annotations = json!({});
            // What has been written there meanwhile is another wish.
            if value(annotation::ACCEPT_MACHINE) == consent {
                annotations[annotation::ACCEPT_MACHINE] = Value::Null;
            }
            if self.host.spec.externally_provisioned != Some(true) && value(annotation::INSPECT).is_none() {
                annotations[annotation::INSPECT] = json!("");
            }
            if annotations == json!({}) {
                break;
            }
            let meta =
                json!({ "uid": self.host.uid(), "resourceVersion": now.resource_version, "annotations": annotations });
            let patch = Patch::Merge(json!({ "metadata": meta }));
            let patched = self.hosts().patch_metadata(&self.name(), &PatchParams::default(), &patch).await;
            self.common.known.doubt(&ObjectRef::from_obj(self.host.as_ref()));
            match patched {
                Ok(_) => break,
                // The record says already that the machine is accepted, so an edit that came in between does not keep the consent.
                Err(kube::Error::Api(e)) if e.code == 409 && !last => {
                    let found = self.hosts().get_metadata_opt(&self.name()).await.map_err(|e| failed(&e))?;
                    // A host that was declared again has given no consent.
                    let Some(found) = found.filter(|found| found.uid() == self.host.uid()) else { break };
                    now = found.metadata;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
        let note = format!(
            "The machine {fingerprint} was accepted in this host's place by the annotation {}; nothing on it is wiped unless it carries this host's mark",
            annotation::ACCEPT_MACHINE
        );
        self.warn("MachineAccepted", note).await;
        lock_used(&self.consents_used).push(fingerprint.to_owned());
        Ok(())
    }
}

#[async_trait]
impl Machine for KubeMachine {
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError> {
        let found = match self.unchanged() {
            Some(record) => Some(record),
            None => self.found().await?,
        };
        Ok(found.map(|found| found.spec).filter(|spec| self.is_ours(spec)))
    }

    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError> {
        let Some(records) = self.common.records.store() else {
            return Err(self.failed("compare", "the controller does not run"));
        };
        let listed = tokio::time::timeout(LISTED_WITHIN, records.wait_until_ready()).await;
        if !matches!(listed, Ok(Ok(()))) {
            return Err(self.failed(
                "compare",
                "the MachineRecords cannot be listed; apply the definitions that `metamorph crds` prints, and let the server list and watch them",
            ));
        }
        let own_key = (self.host.namespace(), self.name());
        let all = records.state();
        let own_age = all
            .iter()
            .find(|record| (record.namespace(), record.name_any()) == own_key)
            .map(|record| self.common.seals.age(record, Some(&self.host)));
        // A record deleted with its namespace keeps its age.
        let own_age = own_age.or_else(|| {
            let known = lock(&self.slot).object.clone();
            known.map(|record| self.common.seals.age(&record, Some(&self.host)))
        });
        // A record of this name that is of another BMC is of an earlier host, and may be of this machine all the same.
        let is_other =
            |record: &MachineRecord| (record.namespace(), record.name_any()) != own_key || !self.is_ours(&record.spec);
        let others = all.iter().filter(|record| is_other(record));
        let with_host = others.map(|record| {
            let key = (record.namespace(), record.name_any());
            // A host of that name with another BMC does not have this machine.
            let named = ObjectRef::new(&key.1).within(key.0.as_deref().unwrap_or_default());
            let host = self.common.known.store().and_then(|hosts| hosts.get(&named)).filter(|host| {
                let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
                host.uid() == record.spec.host.uid || self.same_address(&record.spec.bmc_address, address)
            });
            let exists = host.is_some();
            let is_there = host.as_ref().is_some_and(|host| {
                let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
                self.same_address(&record.spec.bmc_address, address)
            });
            let is_older = own_age.as_ref().is_some_and(|age| self.common.seals.age(record, host.as_deref()) < *age);
            // Declaring a host must not reveal names of other namespaces.
            let is_near = key.0 == own_key.0;
            let host = if is_near {
                format!("{}/{}", key.0.unwrap_or_default(), key.1)
            } else {
                "of another namespace".to_owned()
            };
            let is_sealed = self.common.seals.since(record).is_some();
            OtherMachine { host, exists, is_older, is_near, is_there, is_sealed, record: record.spec.clone() }
        });
        Ok(with_host.collect())
    }

    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        match self.write(record.clone()).await {
            Err(error) if self.host.is_deleting() => {
                // A terminating namespace refuses new objects: the release goes on without the record.
                tracing::warn!(host = %self.name(), %error, "the host is deleted");
                Ok(record)
            }
            other => other,
        }
    }

    fn record_with_next(&self, record: MachineRecordSpec) {
        lock(&self.slot).pending = Some(record);
    }

    async fn note(&self, text: &str) {
        self.warn("MachineDrifted", text.to_owned()).await;
    }

    async fn boots_once(&self, text: &str) {
        self.warn("LiveISOBootsOnce", text.to_owned()).await;
    }

    async fn interrupted(&self, text: &str) {
        self.warn("WorkInterrupted", text.to_owned()).await;
    }
}

impl KubeMachine {
    /// The provisioner's part for the host's provisioner: an unnamed part gets its name; a registered host also keeps another's part.
    pub(super) fn named(&self, mut kept: Option<ProvisionerRecord>) -> ProvisionerRecord {
        let name = self.provisioner.name();
        if let Some(unnamed) = kept.as_mut().filter(|kept| kept.name.is_empty()) {
            name.clone_into(&mut unnamed.name);
        }
        let revision = kept.as_ref().map_or(0, |kept| kept.revision);
        let blank = || ProvisionerRecord { name: name.to_owned(), version: 0, revision, data: json!({}) };
        kept.filter(|kept| kept.name == name || self.is_registered()).unwrap_or_else(blank)
    }

    async fn write(&self, mut record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        let news = record.accepted.as_mut().filter(|accepted| accepted.time.is_none());
        let accepted = news.map(|accepted| {
            accepted.time = jiff::Timestamp::from_second(self.common.clock.now().as_second()).ok().map(Time);
            accepted.fingerprint.clone()
        });
        let accepted = accepted.filter(|fingerprint| !lock_used(&self.consents_used).contains(fingerprint));
        let consented = match &accepted {
            Some(_) => Some(self.consenting().await?.metadata),
            None => None,
        };
        let written = record.clone();
        let there = match self.found().await? {
            Some(mut old) => {
                // This write leaves the provisioner's part as it is.
                let kept = if self.is_ours(&old.spec) { old.spec.provisioner.take() } else { None };
                old.spec = MachineRecordSpec { provisioner: Some(self.named(kept)), ..record };
                let replaced = self.put(old, false).await;
                replaced.map_err(|e| self.failed("replace", api_message(&e)))?
            }
            None => {
                let provisioner = Some(self.named(None));
                let mut new = MachineRecord::new(&self.name(), MachineRecordSpec { provisioner, ..record });
                new.metadata.namespace = self.host.namespace();
                let created = self.put(new, true).await;
                created.map_err(|e| self.failed("create", api_message(&e)))?
            }
        };
        {
            let mut known = lock(&self.slot);
            (known.object, known.pending) = (Some(Arc::new(there)), None);
        }
        if let Some((fingerprint, consenting)) = accepted.zip(consented) {
            self.use_up_consent(&fingerprint, consenting).await?;
        }
        Ok(written)
    }
}
