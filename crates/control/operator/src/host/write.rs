//! Writes what a decision says: HardwareData, status, metadata, Events; each at most once.

use api::metal3::{BareMetalHost, BareMetalHostStatus, HardwareData, HardwareDataSpec, annotation, finalizer};
use host_lifecycle::{Change, HostEvent, Next};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::reconcile::Fetched;
use super::secrets::HostSecrets;
use super::{Context, ReconcileError};
use crate::events::Said;

/// What came of a change.
pub enum Applied {
    /// It is written; this is when to look again.
    Written(Next),
    /// The host has moved on since it was read: what it means now is to be decided again. The status has not been written.
    Conflict,
}

/// Applies the change to the very object that it was decided on.
pub async fn apply(context: &Context, fetched: &Fetched, change: Change) -> Result<Applied, ReconcileError> {
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    if !change.children.is_empty() {
        // Decided on only where such objects are read, or a provisioner serves them: never dropped in silence.
        let what = "it is not written: this server has no writer for such objects";
        return Err(provisioner::RecordError::new("an object beside the host", what).into());
    }
    let host = &fetched.host;
    let writer =
        Writer { context, host, api: Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default()) };
    if let Some(hardware) = &change.hardware_data {
        // It goes by the host's name: a host made anew meanwhile inherits nothing.
        let now =
            writer.api.get_metadata_opt(&host.name_any()).await.map_err(ReconcileError::api("read the host again"))?;
        if now.and_then(|now| now.metadata.uid) != host.uid() {
            return Ok(Applied::Conflict);
        }
        writer
            .hardware_data(fetched.hardware_data.as_deref(), HardwareDataSpec { hardware: Some((**hardware).clone()) })
            .await?;
    }
    let mut version = host.resource_version();
    if change.remove_annotations.iter().any(|key| key == annotation::OVERWRITE_OWNER) {
        match writer.use_up_consent().await? {
            Some(newer) => version = Some(newer),
            None => return Ok(Applied::Conflict),
        }
    }
    if change.status_differs(host.status.as_ref()) {
        match writer.status(&change.status, version).await? {
            Some(newer) => version = Some(newer),
            None => return Ok(Applied::Conflict),
        }
    }
    if !writer.metadata(&change, version).await? {
        return Ok(Applied::Conflict);
    }
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
    if change.next == Next::Gone {
        writer.release(fetched.hardware_data.as_deref()).await?;
    }
    Ok(Applied::Written(change.next))
}

/// Fills in `spec.architecture` of the very object that was read; the object then, `None` if it has moved on since.
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

    async fn hardware_data(&self, old: Option<&HardwareData>, spec: HardwareDataSpec) -> Result<(), ReconcileError> {
        let name = self.host.name_any();
        if let Some(old) = old {
            if old.spec != spec {
                let mut new = old.clone();
                new.spec = spec;
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
        // One that has come meanwhile, or is about to go with an earlier host of the same name, is read and replaced next time.
        let api = self.data_api();
        let call = async { api.create(&PostParams::default(), &new).await };
        let created = self.context.hardware_data.writing(&ObjectRef::from_obj(&new), call).await;
        created.map(|_| ()).map_err(ReconcileError::api("create the HardwareData"))
    }

    /// Writes the status onto the version that it was decided on, which also names the uid: a host of the same name made meanwhile is
    /// another. The host's version after that; `None` if it was not written.
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

    /// Takes consent away before the host says that what it was for is done: what has used it is recorded, so that a process which dies here
    /// leaves no consent to be used a second time. The host's version after that; `None` if the host is not what was decided on.
    async fn use_up_consent(&self) -> Result<Option<String>, ReconcileError> {
        let meta = &self.host.metadata;
        let annotations = json!({ annotation::OVERWRITE_OWNER: null });
        let patch = json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations } });
        let patched =
            self.api.patch_metadata(&self.host.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        self.context.hosts.doubt(&self.key());
        match patched {
            Ok(patched) => Ok(patched.metadata.resource_version),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(None),
            Err(error) => Err(ReconcileError::api("use up the host's consent")(error)),
        }
    }

    /// Finalizer, annotations, architecture: one patch, none if there is nothing to say. It is of this very version: an annotation that somebody has put
    /// right meanwhile is another wish. Whether it was written.
    async fn metadata(&self, change: &Change, version: Option<String>) -> Result<bool, ReconcileError> {
        let mut metadata = Map::new();
        if change.add_finalizer && !self.host.has_finalizer(finalizer::HOST) {
            let mut all = self.host.finalizers().to_vec();
            all.push(finalizer::HOST.to_owned());
            metadata.insert("finalizers".to_owned(), json!(all));
        }
        if !change.remove_annotations.is_empty() {
            let gone = change.remove_annotations.iter().filter(|key| *key != annotation::OVERWRITE_OWNER);
            let gone: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
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

    /// Events are for people: one that cannot be published is logged and not missed.
    async fn event(&self, event: &HostEvent) {
        publish(self.context, self.host, event).await;
    }

    /// Secrets, HardwareData, host: the finalizers go, the host last.
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
        let Some(fresh) = fresh else { return Ok(()) };
        let rest: Vec<&String> = fresh.finalizers().iter().filter(|f| *f != finalizer::HOST).collect();
        let patch = json!({ "metadata": { "finalizers": rest, "resourceVersion": fresh.metadata.resource_version } });
        let released = self.api.patch(&fresh.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
        self.context.hosts.doubt(&self.key());
        gone_is_fine(released).map_err(ReconcileError::api("release the host"))
    }
}

/// Publishes an Event about a host.
pub async fn publish(context: &Context, host: &BareMetalHost, event: &HostEvent) {
    let said = Said { reason: event.reason.to_owned(), note: event.message.clone(), warning: event.warning };
    if let Err(error) = context.recorder.publish(&said, &host.object_ref(&())).await {
        tracing::warn!(host = %host.name_any(), reason = event.reason, %error, "publish an Event");
    }
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
