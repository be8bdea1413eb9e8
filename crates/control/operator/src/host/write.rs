//! Writes what a decision says: HardwareData, status, metadata, Events; each at most once.

use std::sync::Arc;

use api::metal3::{
    BareMetalHost, BareMetalHostStatus, DEVICES, HardwareData, HardwareDataSpec, LLDP, NOT_LISTED, REPORTED_BY,
    annotation, finalizer,
};
use api::metamorph::{Erasure, HostOperation, HostOperationStatus, StepsReport};
use host_lifecycle::{BUDGET_EXCEEDED, Change, ChildWrite, HostEvent, Next, answered, is_live, mark, named};
use inventory::{Inspected, links};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::beside::Written;
use super::cause;
use super::context::Context;
use super::error::ReconcileError;
use super::fetched::Fetched;
use super::secrets::HostSecrets;
use crate::events::Said;

/// Result of applying a change.
pub enum Applied {
    /// It is written; this is when to look again.
    Written(Next),
    /// The host has changed since it was read and has to be decided on again. Parts of the change may have been written.
    Conflict,
}

/// Applies the change to the version that it was decided on.
pub async fn apply(context: &Context, fetched: &Fetched, mut change: Box<Change>) -> Result<Applied, ReconcileError> {
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    let host = &fetched.host;
    let writer =
        Writer { context, host, api: Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default()) };
    if let Some(found) = &change.hardware_data {
        // HardwareData goes by the host's name: a host recreated meanwhile must not inherit it.
        let now =
            writer.api.get_metadata_opt(&host.name_any()).await.map_err(ReconcileError::api("read the host again"))?;
        if now.and_then(|now| now.metadata.uid) != host.uid() {
            return Ok(Applied::Conflict);
        }
        writer.hardware_data(fetched.hardware_data.as_deref(), found).await?;
    }
    if !writer.erasure(change.erasure.as_deref()).await? || !writer.steps(change.steps.as_deref()).await? {
        return Ok(Applied::Conflict);
    }
    let mut beside = None;
    for write in &change.children {
        let beside = beside.get_or_insert_with(|| fetched.beside.clone());
        match context.beside.write(&context.client, host, beside, write, context.settings.clock.now()).await? {
            Written::Done => {}
            Written::Refused(message) => {
                // Further decisions leave the object out for a while.
                let of_media = matches!(
                    write,
                    ChildWrite::HoldDataImage | ChildWrite::DataImage(_) | ChildWrite::ReleaseDataImage
                );
                let reason = if of_media { "DataImageRefused" } else { "FirmwareObjectRefused" };
                writer.event(&HostEvent { reason, message, warning: true }).await;
                return Ok(Applied::Conflict);
            }
            Written::Conflict => return Ok(Applied::Conflict),
            Written::Unserved => {
                // Such a write is decided on only where the objects are read or served: never drop one silently.
                let what = "it is not written: this server has no writer for such objects";
                return Err(provisioner::RecordError::new("an object beside the host", what).into());
            }
        }
    }
    let mut version = host.resource_version();
    let used_up = change.remove_annotations.iter().filter(|key| is_used_up_first(host, &change, key));
    let used_up: Vec<&String> = used_up.collect();
    if !used_up.is_empty() {
        match writer.use_up(&used_up).await? {
            Some(newer) => version = Some(newer),
            None => return Ok(Applied::Conflict),
        }
    }
    let tells = cause::put(host, &mut change, fetched.stored().as_deref(), context.settings.clock.now());
    if tells {
        match writer.status(&change.status, version).await? {
            Some(newer) => version = Some(newer),
            None => return Ok(Applied::Conflict),
        }
    }
    let all = writer.metadata(&change, version).await?;
    if !all && !tells {
        return Ok(Applied::Conflict);
    }
    // The status that these Events are about is written, whatever has become of the annotations.
    context.metrics.written(host, &change);
    for event in &change.events {
        if matches!(event.reason, "DeletionGaveUp" | "LeftRunning") {
            tracing::warn!(
                namespace = host.namespace().unwrap_or_default(),
                host = %host.name_any(),
                reason = event.reason,
                "{}",
                event.message
            );
        }
        writer.event(event).await;
    }
    if !all {
        return Ok(Applied::Conflict);
    }
    if change.next == Next::Gone {
        writer.release(fetched.hardware_data.as_deref()).await?;
    }
    Ok(Applied::Written(change.next))
}

/// Whether the annotation is removed before the status says what it was for. A consent must not be used twice, and a reboot that was asked for earlier
/// must not hit the system that the status says has come. The others are removed afterwards, when the status holds what they asked for.
fn is_used_up_first(host: &BareMetalHost, change: &Change, key: &str) -> bool {
    let moves = host.state() != change.status.provisioning.state;
    key == annotation::OVERWRITE_OWNER || moves && key.starts_with(annotation::REBOOT)
}

/// Fills in `spec.architecture` of the version that was read. Returns the updated host, or `None` if it has changed since.
pub async fn architecture(
    context: &Context,
    fetched: &Fetched,
    architecture: &str,
) -> Result<Option<BareMetalHost>, ReconcileError> {
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    let host = &fetched.host;
    let api: Api<BareMetalHost> = Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default());
    let (uid, version) = (&host.metadata.uid, &host.metadata.resource_version);
    let patch = Patch::Merge(json!({
        "metadata": { "uid": uid, "resourceVersion": version },
        "spec": { "architecture": architecture },
    }));
    let call = async { api.patch(&host.name_any(), &PatchParams::default(), &patch).await };
    match context.hosts.writing(&ObjectRef::from_obj(host.as_ref()), call).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(e)) if e.code == 409 || e.code == 404 => Ok(None),
        Err(error) => Err(ReconcileError::api("fill in the host's architecture")(error)),
    }
}

struct Writer<'a> {
    context: &'a Context,
    host: &'a BareMetalHost,
    api: Api<BareMetalHost>,
}

impl Writer<'_> {
    fn key(&self) -> ObjectRef<BareMetalHost> {
        ObjectRef::from_obj(self.host)
    }

    fn data_api(&self) -> Api<HardwareData> {
        Api::namespaced(self.context.client.clone(), &self.host.namespace().unwrap_or_default())
    }

    /// Writes what was found, with the annotations that say what was not listed, what was heard on the ports, and what upstream has no fields for.
    async fn hardware_data(&self, old: Option<&HardwareData>, found: &Inspected) -> Result<(), ReconcileError> {
        let name = self.host.name_any();
        let spec = HardwareDataSpec { hardware: Some(Arc::new(found.hardware.clone())) };
        let notes =
            [(NOT_LISTED, found.gaps()), (LLDP, links::words(&found.links)), (DEVICES, found.devices.annotation())];
        if let Some(old) = old {
            let was_told = old.annotations().contains_key(REPORTED_BY);
            let is_other = notes.iter().any(|(key, value)| old.annotations().get(*key) != value.as_ref());
            if is_other || was_told || old.spec != spec {
                let mut new = old.clone();
                new.spec = spec;
                for (key, value) in notes {
                    note(&mut new, key, value);
                }
                note(&mut new, REPORTED_BY, None);
                let api = self.data_api();
                let call = async { api.replace(&name, &PostParams::default(), &new).await };
                let written = self.context.hardware_data.writing(&ObjectRef::from_obj(&new), call).await;
                written.map_err(ReconcileError::api("replace the HardwareData"))?;
            }
            return Ok(());
        }
        let mut new = HardwareData::new(&name, spec);
        new.metadata.namespace = self.host.namespace();
        new.metadata.owner_references = self.host.controller_owner_ref(&()).map(|o| vec![o]);
        new.metadata.finalizers = Some(vec![finalizer::HARDWARE_DATA.to_owned()]);
        for (key, value) in notes {
            note(&mut new, key, value);
        }
        // One that was created meanwhile, or is being deleted with an earlier host of this name, is read and replaced next time.
        let api = self.data_api();
        let call = async { api.create(&PostParams::default(), &new).await };
        let created = self.context.hardware_data.writing(&ObjectRef::from_obj(&new), call).await;
        created.map(|_| ()).map_err(ReconcileError::api("create the HardwareData"))
    }

    /// Tells the request that the host's annotation names what has become of the disks; one that is gone is told nothing. Returns false on a conflict.
    async fn erasure(&self, erasure: Option<&Erasure>) -> Result<bool, ReconcileError> {
        let Some(erasure) = erasure else { return Ok(true) };
        self.tell(annotation::ERASE, |told| {
            let is_news = told.erasure.as_ref() != Some(erasure);
            told.erasure = Some(erasure.clone());
            is_news
        })
        .await
    }

    /// The same of steps of hardware managers.
    async fn steps(&self, report: Option<&StepsReport>) -> Result<bool, ReconcileError> {
        let Some(report) = report else { return Ok(true) };
        self.tell(annotation::STEPS, |told| {
            let is_news = told.steps_report.as_ref() != Some(report);
            told.steps_report = Some(report.clone());
            is_news
        })
        .await
    }

    /// Tells the request that the host's annotation of this key names what `tell` puts into its status, which says whether it is news.
    async fn tell(
        &self,
        key: &str,
        tell: impl FnOnce(&mut HostOperationStatus) -> bool,
    ) -> Result<bool, ReconcileError> {
        let Some((name, value)) = self.host.annotation(key).and_then(named) else { return Ok(true) };
        let requests: Api<HostOperation> =
            Api::namespaced(self.context.client.clone(), &self.host.namespace().unwrap_or_default());
        let failed = || ReconcileError::api("tell the HostOperation what has become of what it asks for");
        let Some(mut request) = requests.get_opt(name).await.map_err(failed())? else { return Ok(true) };
        if !is_live(&request) || mark(&request) != value {
            return Ok(true);
        }
        if !tell(request.status.get_or_insert_default()) {
            return Ok(true);
        }
        match requests.replace_status(name, &PostParams::default(), &request).await {
            Err(kube::Error::Api(error)) if error.code == 409 => Ok(false),
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(true),
            written => written.map(|_| true).map_err(failed()),
        }
    }

    /// Writes the status to the version that it was decided on, so never to another host of the same name. Returns the host's new version, or
    /// `None` on a conflict.
    async fn status(
        &self,
        status: &BareMetalHostStatus,
        version: Option<String>,
    ) -> Result<Option<String>, ReconcileError> {
        let mut object = self.host.clone();
        object.metadata.resource_version = version;
        object.status = Some(status.clone());
        let (name, params) = (self.host.name_any(), PostParams::default());
        let call = async { self.api.replace_status(&name, &params, &object).await };
        match self.context.hosts.writing(&self.key(), call).await {
            Ok(written) => Ok(written.metadata.resource_version),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(None),
            Err(error) => Err(ReconcileError::api("write the host's status")(error)),
        }
    }

    /// Removes annotations before the status is written. Returns the host's new version, or `None` on a conflict.
    async fn use_up(&self, keys: &[&String]) -> Result<Option<String>, ReconcileError> {
        let meta = &self.host.metadata;
        let annotations: Map<String, Value> = keys.iter().map(|key| ((*key).clone(), Value::Null)).collect();
        let patch = json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations } });
        let patched =
            self.api.patch_metadata(&self.host.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.context.hosts.doubt(&self.key());
        match patched {
            Ok(patched) => Ok(patched.metadata.resource_version),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(None),
            Err(error) => Err(ReconcileError::api("remove what the host asked for")(error)),
        }
    }

    /// Writes finalizer, annotations and architecture in one patch, if there are any. The patch is conditional on the version, because an annotation
    /// corrected meanwhile is a new wish. Returns false on a conflict.
    async fn metadata(&self, change: &Change, version: Option<String>) -> Result<bool, ReconcileError> {
        let mut metadata = Map::new();
        if change.add_finalizer && !self.host.has_finalizer(finalizer::HOST) {
            let mut all = self.host.finalizers().to_vec();
            all.push(finalizer::HOST.to_owned());
            metadata.insert("finalizers".to_owned(), json!(all));
        }
        if !change.remove_annotations.is_empty() {
            let gone = change.remove_annotations.iter().filter(|key| !is_used_up_first(self.host, change, key));
            let mut gone: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
            if let Some(answer) = change.answer
                && let Some(request) = self.host.annotation(annotation::REQUEST)
            {
                gone.insert(annotation::REQUEST.to_owned(), json!(answered(request, answer)));
            }
            if !gone.is_empty() {
                metadata.insert("annotations".to_owned(), Value::Object(gone));
            }
        }
        if metadata.is_empty() && change.set_architecture.is_none() {
            return Ok(true);
        }
        metadata.insert("uid".to_owned(), json!(self.host.metadata.uid));
        metadata.insert("resourceVersion".to_owned(), json!(version));
        let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
        if let Some(architecture) = &change.set_architecture {
            patch.insert("spec".to_owned(), json!({ "architecture": architecture }));
        }
        let (name, patch) = (self.host.name_any(), Patch::Merge(Value::Object(patch)));
        let call = async { self.api.patch(&name, &PatchParams::default(), &patch).await };
        let written = self.context.hosts.writing(&self.key(), call).await;
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(false),
            Err(error) => Err(ReconcileError::api("change the host's metadata")(error)),
        }
    }

    /// Publishes an Event; a failure is only logged.
    async fn event(&self, event: &HostEvent) {
        publish(self.context, self.host, event).await;
        if event.reason == BUDGET_EXCEEDED {
            self.context.heard.told_late(&self.host.uid().unwrap_or_default(), self.host.state());
        }
    }

    /// Removes the finalizers of Secrets, HardwareData and host, the host's last.
    async fn release(&self, data: Option<&HardwareData>) -> Result<(), ReconcileError> {
        let secrets = HostSecrets::new(self.context, self.host);
        secrets.release().await.map_err(ReconcileError::api("release the BMC's Secret"))?;
        if let Some(data) = data.filter(|d| d.finalizers().iter().any(|f| f == finalizer::HARDWARE_DATA)) {
            let rest: Vec<&String> = data.finalizers().iter().filter(|f| *f != finalizer::HARDWARE_DATA).collect();
            let patch =
                json!({ "metadata": { "finalizers": rest, "resourceVersion": data.metadata.resource_version } });
            let api = self.data_api();
            let released = api.patch(&data.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
            self.context.hardware_data.doubt(&ObjectRef::from_obj(data));
            gone_is_fine(released).map_err(ReconcileError::api("release the HardwareData"))?;
        }
        let fresh =
            self.api.get_opt(&self.host.name_any()).await.map_err(ReconcileError::api("read the host again"))?;
        // Another host of that name keeps its finalizer.
        let Some(fresh) = fresh.filter(|fresh| fresh.uid() == self.host.uid()) else { return Ok(()) };
        let rest: Vec<&String> = fresh.finalizers().iter().filter(|f| *f != finalizer::HOST).collect();
        let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": fresh.metadata.resource_version } });
        let released = self.api.patch(&fresh.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        self.context.hosts.doubt(&self.key());
        gone_is_fine(released).map_err(ReconcileError::api("release the host"))?;
        if !rest.is_empty() {
            let others = rest.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            let message =
                format!("The host is let go, and its object stays until others take their finalizers away: {others}");
            self.event(&HostEvent { reason: "DeletionWaits", message, warning: true }).await;
        }
        Ok(())
    }
}

/// Says something beside the facts, or takes back what was said.
fn note(data: &mut HardwareData, key: &str, words: Option<String>) {
    match words {
        Some(words) => drop(data.annotations_mut().insert(key.to_owned(), words)),
        None => drop(data.annotations_mut().remove(key)),
    }
}

/// Publishes an Event about a host, related to its consumer.
pub async fn publish(context: &Context, host: &BareMetalHost, event: &HostEvent) {
    let said = Said { reason: event.reason.to_owned(), note: event.message.clone(), warning: event.warning };
    let published = context.recorder.publish_beside(&said, &host.object_ref(&()), consumer(host)).await;
    if let Err(error) = published {
        tracing::warn!(host = %host.name_any(), reason = event.reason, %error, "publish an Event");
    }
}

/// Who uses the host, as its spec says.
fn consumer(host: &BareMetalHost) -> Option<ObjectReference> {
    let consumer = host.spec.consumer_ref.clone()?;
    Some(ObjectReference {
        api_version: consumer.api_version,
        field_path: consumer.field_path,
        kind: consumer.kind,
        name: consumer.name,
        namespace: consumer.namespace,
        resource_version: consumer.resource_version,
        uid: consumer.uid,
    })
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
