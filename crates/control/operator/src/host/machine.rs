//! Which machine a host is, kept in a MachineRecord of the host's name.
//!
//! The host does not own it: the record outlives the host, so that one restored from a backup or declared again is held against it. A host
//! that is declared under an old name for another BMC's address is a new wish, and begins without.

use std::sync::Arc;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{MachineRecord, MachineRecordSpec};
use async_trait::async_trait;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType};
use kube::runtime::reflector::Store;
use kube::{Resource, ResourceExt};
use provisioner::{JournalError, Machine, OtherMachine};
use serde_json::json;

use super::Context;
use crate::Clock;

/// One host's record.
pub struct KubeMachine {
    api: Api<MachineRecord>,
    hosts: Api<BareMetalHost>,
    host: BareMetalHost,
    known: Option<Store<BareMetalHost>>,
    records: Option<Store<MachineRecord>>,
    recorder: kube::runtime::events::Recorder,
    clock: Arc<dyn Clock>,
}

impl KubeMachine {
    /// The record of this host.
    pub fn new(context: &Context, host: &BareMetalHost) -> Self {
        let namespace = host.namespace().unwrap_or_default();
        Self {
            api: Api::namespaced(context.client.clone(), &namespace),
            hosts: Api::namespaced(context.client.clone(), &namespace),
            host: host.clone(),
            known: context.known.get().cloned(),
            records: context.records.get().cloned(),
            recorder: context.recorder.clone(),
            clock: Arc::clone(&context.settings.clock),
        }
    }

    fn name(&self) -> String {
        self.host.name_any()
    }

    fn failed(&self, attempt: &str, why: impl std::fmt::Display) -> JournalError {
        JournalError { what: format!("{attempt} MachineRecord {}", self.name()), why: why.to_string() }
    }

    async fn found(&self) -> Result<Option<MachineRecord>, JournalError> {
        self.api.get_opt(&self.name()).await.map_err(|e| self.failed("read", e))
    }

    /// Whether the record is this host's: made for it, or for one of the same name at the same BMC.
    fn is_ours(&self, record: &MachineRecordSpec) -> bool {
        let address = self.host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str());
        record.host.uid == self.host.uid() || Some(record.bmc_address.as_str()) == address
    }

    async fn publish(&self, reason: &str, note: String, type_: EventType) {
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: reason.to_owned(), secondary: None };
        if let Err(error) = self.recorder.publish(&event, &self.host.object_ref(&())).await {
            tracing::warn!(host = %self.name(), reason, %error, "publish an Event");
        }
    }

    /// The consent is used up, and whatever may be inspected is inspected anew.
    async fn use_up_consent(&self, fingerprint: &str) -> Result<(), JournalError> {
        let inspect = (self.host.spec.externally_provisioned != Some(true)
            && self.host.annotation(annotation::INSPECT).is_none())
        .then_some("");
        let mut annotations = json!({ annotation::ACCEPT_MACHINE: null });
        if let Some(value) = inspect {
            annotations[annotation::INSPECT] = json!(value);
        }
        let patch = json!({ "metadata": { "uid": self.host.uid(), "annotations": annotations } });
        self.hosts
            .patch_metadata(&self.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|e| self.failed("use up the consent for", e))?;
        let note = format!(
            "The machine {fingerprint} was accepted in this host's place by the annotation {}; nothing on it is wiped unless it carries this host's mark",
            annotation::ACCEPT_MACHINE
        );
        self.publish("MachineAccepted", note, EventType::Warning).await;
        Ok(())
    }
}

#[async_trait]
impl Machine for KubeMachine {
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, JournalError> {
        Ok(self.found().await?.map(|found| found.spec).filter(|spec| self.is_ours(spec)))
    }

    async fn others(&self) -> Result<Vec<OtherMachine>, JournalError> {
        let Some(records) = &self.records else { return Err(self.failed("compare", "the controller does not run")) };
        records.wait_until_ready().await.map_err(|e| self.failed("compare", e))?;
        let hosts = self.known.as_ref().map(Store::state).unwrap_or_default();
        let own = (self.host.namespace(), self.name());
        let others = records.state().into_iter().filter(|record| (record.namespace(), record.name_any()) != own);
        let with_host = others.map(|record| {
            let (namespace, name) = (record.namespace().unwrap_or_default(), record.name_any());
            let exists = hosts
                .iter()
                .any(|host| host.namespace().as_deref() == Some(namespace.as_str()) && host.name_any() == name);
            OtherMachine { host: format!("{namespace}/{name}"), exists, record: record.spec.clone() }
        });
        Ok(with_host.collect())
    }

    async fn record(&self, mut record: MachineRecordSpec) -> Result<(), JournalError> {
        let news = record.accepted.as_mut().filter(|accepted| accepted.time.is_none());
        let accepted = news.map(|accepted| {
            accepted.time = jiff::Timestamp::from_second(self.clock.now().as_second()).ok().map(Time);
            accepted.fingerprint.clone()
        });
        match self.found().await? {
            Some(mut old) => {
                old.spec = record;
                self.api
                    .replace(&self.name(), &PostParams::default(), &old)
                    .await
                    .map_err(|e| self.failed("replace", e))?;
            }
            None => {
                let mut new = MachineRecord::new(&self.name(), record);
                new.metadata.namespace = self.host.namespace();
                self.api.create(&PostParams::default(), &new).await.map_err(|e| self.failed("create", e))?;
            }
        }
        match accepted {
            Some(fingerprint) => self.use_up_consent(&fingerprint).await,
            None => Ok(()),
        }
    }

    async fn note(&self, text: &str) {
        self.publish("MachineDrifted", text.to_owned(), EventType::Warning).await;
    }
}
