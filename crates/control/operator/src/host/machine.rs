//! Which machine a host is, kept in a MachineRecord of the host's name.
//!
//! The host does not own it: the record outlives the host, so that one restored from a backup or declared again is held against it. A host
//! that is declared under an old name for another BMC's address is a new wish, and begins without.

use std::sync::Arc;
use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{MachineRecord, MachineRecordSpec, ProvisionerRecord};
use async_trait::async_trait;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use provisioner::{Machine, MayAct, OtherMachine, Provisioner, RecordError};
use serde_json::json;

use super::Context;
use super::objects::Objects;
use super::record::{Slot, lock};
use super::trouble::told;
use crate::Clock;
use crate::definitions::Definitions;
use crate::events::{Recorder, Said};

/// How long the records may take to be listed when the controller has started.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// One host's record.
pub struct KubeMachine {
    pub(super) client: Client,
    pub(super) api: Api<MachineRecord>,
    pub(super) hosts: Api<BareMetalHost>,
    pub(super) host: Arc<BareMetalHost>,
    /// What this process knows of the object.
    pub(super) slot: Slot,
    pub(super) may_act: MayAct,
    known: Arc<Objects<BareMetalHost>>,
    records: Arc<Objects<MachineRecord>>,
    recorder: Recorder,
    pub(super) definitions: Arc<Definitions>,
    clock: Arc<dyn Clock>,
    pub(super) provisioner: Arc<dyn Provisioner>,
}

impl KubeMachine {
    /// The record of this host.
    pub fn new(context: &Context, host: &Arc<BareMetalHost>, provisioner: Arc<dyn Provisioner>) -> Self {
        let namespace = host.namespace().unwrap_or_default();
        Self {
            client: context.client.clone(),
            api: Api::namespaced(context.client.clone(), &namespace),
            hosts: Api::namespaced(context.client.clone(), &namespace),
            slot: context.machines.slot(&host.uid().unwrap_or_default()),
            may_act: Arc::clone(&context.settings.may_act),
            host: Arc::clone(host),
            known: Arc::clone(&context.hosts),
            records: Arc::clone(&context.records),
            recorder: context.recorder.clone(),
            definitions: Arc::clone(&context.definitions),
            clock: Arc::clone(&context.settings.clock),
            provisioner,
        }
    }

    pub(super) fn name(&self) -> String {
        self.host.name_any()
    }

    fn failed(&self, attempt: &str, why: impl std::fmt::Display) -> RecordError {
        RecordError::new(format!("{attempt} MachineRecord {}", self.name()), why.to_string())
    }

    async fn found(&self) -> Result<Option<MachineRecord>, RecordError> {
        let found = self.read().await.map_err(|e| self.failed("read", told(&e)))?;
        lock(&self.slot).object.clone_from(&found);
        Ok(found)
    }

    /// The watch, in step, shows none.
    pub(super) fn shown_to_be_absent(&self) -> bool {
        let key = ObjectRef::new(&self.name()).within(&self.host.namespace().unwrap_or_default());
        matches!(self.records.shown(&key), Some(None))
    }

    /// The record as this process has read or written it last, while the watch shows that very version.
    fn unchanged(&self) -> Option<MachineRecord> {
        let key = ObjectRef::new(&self.name()).within(&self.host.namespace().unwrap_or_default());
        let shown = self.records.shown(&key)??;
        let known = lock(&self.slot);
        known.object.as_ref().filter(|own| known.read && own.resource_version() == shown.resource_version()).cloned()
    }

    /// Whether two addresses are of one machine at one BMC, however they are written.
    fn same_address(&self, one: &str, other: &str) -> bool {
        one == other
            || self.provisioner.machine_key(one).is_some_and(|key| self.provisioner.machine_key(other) == Some(key))
    }

    /// Whether the record is this host's: made for it, for one of the same name at the same BMC, or for one that was restored with its status. A
    /// host that is declared anew under an old name, for another BMC, has none yet.
    pub(super) fn is_ours(&self, record: &MachineRecordSpec) -> bool {
        let address = self.host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
        self.is_registered() || record.host.uid == self.host.uid() || self.same_address(&record.bmc_address, address)
    }

    /// The host has been registered: its provisioner is settled.
    pub(super) fn is_registered(&self) -> bool {
        self.host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty())
    }

    async fn warn(&self, reason: &str, note: String) {
        let said = Said { reason: reason.to_owned(), note, warning: true };
        if let Err(error) = self.recorder.publish(&said, &self.host.object_ref(&())).await {
            tracing::warn!(host = %self.name(), reason, %error, "publish an Event");
        }
    }

    /// The consent is used up, and whatever may be inspected is inspected anew.
    async fn use_up_consent(&self, fingerprint: &str) -> Result<(), RecordError> {
        let inspect = (self.host.spec.externally_provisioned != Some(true)
            && self.host.annotation(annotation::INSPECT).is_none())
        .then_some("");
        let mut annotations = json!({ annotation::ACCEPT_MACHINE: null });
        if let Some(value) = inspect {
            annotations[annotation::INSPECT] = json!(value);
        }
        let (uid, version) = (self.host.uid(), self.host.resource_version());
        let patch = json!({ "metadata": { "uid": uid, "resourceVersion": version, "annotations": annotations } });
        let patched = self.hosts.patch_metadata(&self.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.known.doubt(&ObjectRef::from_obj(self.host.as_ref()));
        patched.map_err(|e| self.failed("use up the consent for", told(&e)))?;
        let note = format!(
            "The machine {fingerprint} was accepted in this host's place by the annotation {}; nothing on it is wiped unless it carries this host's mark",
            annotation::ACCEPT_MACHINE
        );
        self.warn("MachineAccepted", note).await;
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
        let Some(records) = self.records.store() else {
            return Err(self.failed("compare", "the controller does not run"));
        };
        let listed = tokio::time::timeout(LISTED_WITHIN, records.wait_until_ready()).await;
        if !matches!(listed, Ok(Ok(()))) {
            return Err(self.failed(
                "compare",
                "the MachineRecords cannot be listed; apply the definitions that `metamorph crds` prints, and let the server list and watch them",
            ));
        }
        let own = (self.host.namespace(), self.name());
        let all = records.state();
        // A machine that was accepted is this host's since then, however long another one was.
        let since = |record: &MachineRecord| record.spec.accepted.as_ref().and_then(|accepted| accepted.time.clone());
        let age = |record: &MachineRecord| (since(record).or_else(|| record.creation_timestamp()), record.uid());
        let own_age =
            all.iter().find(|record| (record.namespace(), record.name_any()) == own).map(|record| age(record));
        // One that has gone with its namespace is as old as it was.
        let own_age = own_age.or_else(|| lock(&self.slot).object.as_ref().map(age));
        let others = all.iter().filter(|record| (record.namespace(), record.name_any()) != own);
        let with_host = others.map(|record| {
            let key = (record.namespace(), record.name_any());
            // One of that name which is another wish, for another BMC, has not this machine.
            let named = ObjectRef::new(&key.1).within(key.0.as_deref().unwrap_or_default());
            let exists = self.known.store().and_then(|hosts| hosts.get(&named)).is_some_and(|host| {
                let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
                host.uid() == record.spec.host.uid || self.same_address(&record.spec.bmc_address, address)
            });
            let is_older = own_age.as_ref().is_some_and(|own| age(record) < *own);
            // Whoever declares a host learns no names of other namespaces by it.
            let is_near = key.0 == own.0;
            let host = if is_near {
                format!("{}/{}", key.0.unwrap_or_default(), key.1)
            } else {
                "of another namespace".to_owned()
            };
            OtherMachine { host, exists, is_older, is_near, record: record.spec.clone() }
        });
        Ok(with_host.collect())
    }

    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        match self.write(record.clone()).await {
            Err(error) if self.host.is_deleting() => {
                // A namespace that goes takes no new objects: what is to be let go is let go nonetheless.
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
}

impl KubeMachine {
    /// The provisioner's part with the name of the one that the host has: registration fixes it.
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
            accepted.time = jiff::Timestamp::from_second(self.clock.now().as_second()).ok().map(Time);
            accepted.fingerprint.clone()
        });
        let written = record.clone();
        let there = match self.found().await? {
            Some(mut old) => {
                // What the provisioner remembers is not this write's matter.
                let kept = if self.is_ours(&old.spec) { old.spec.provisioner.take() } else { None };
                old.spec = MachineRecordSpec { provisioner: Some(self.named(kept)), ..record };
                let replaced = self.put(old, false).await;
                replaced.map_err(|e| self.failed("replace", told(&e)))?
            }
            None => {
                let provisioner = Some(self.named(None));
                let mut new = MachineRecord::new(&self.name(), MachineRecordSpec { provisioner, ..record });
                new.metadata.namespace = self.host.namespace();
                let created = self.put(new, true).await;
                created.map_err(|e| self.failed("create", told(&e)))?
            }
        };
        {
            let mut known = lock(&self.slot);
            (known.object, known.pending) = (Some(there), None);
        }
        if let Some(fingerprint) = accepted {
            self.use_up_consent(&fingerprint).await?;
        }
        Ok(written)
    }
}
