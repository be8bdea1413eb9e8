//! Which machines are to be heard: those of hosts whose faults are diagnosed. Their provisioner is told with each look, and listens to what their BMCs tell by themselves.

use std::sync::atomic::Ordering;

use api::metal3::{BareMetalHost, OperationalStatus, detection_fault};
use classification::host_class::detection;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use tokio::time::{Duration, Instant};

use super::{All, is_detected};
use crate::host::LookError;

/// For how long the label of a namespace is believed.
const LASTS: Duration = Duration::from_mins(10);

/// What the label of a namespace said, and when.
pub(super) type Namespaces = std::collections::HashMap<String, (Option<bool>, Instant)>;

/// Whether the host has a machine that could be heard.
fn is_registered(host: &BareMetalHost) -> bool {
    let status = host.status.as_ref();
    let is_detached = status.is_some_and(|status| status.operational_status == OperationalStatus::Detached);
    status.is_some_and(|status| !status.provisioning.id.is_empty()) && !is_detached && !host.is_deleting()
}

/// Tells the host's provisioner whether the machine is to be heard, if that is another answer than before.
pub(super) async fn note(all: &All, host: &BareMetalHost) -> Result<(), LookError> {
    let uid = host.uid().unwrap_or_default();
    if !is_registered(host) {
        all.context.listening().remove(&uid);
        return Ok(());
    }
    let Some(wanted) = is_detected(all, host, true).await? else {
        all.unjudged.store(true, Ordering::Relaxed);
        return Ok(());
    };
    let before = all.context.listening().insert(uid, wanted);
    // What is left to be ended of an earlier process waits for the host's next look.
    if before != Some(wanted) && (wanted || before.is_some()) {
        all.context.poke(&ObjectRef::from_obj(host));
    }
    Ok(())
}

impl All {
    /// What the label of the host's namespace says. `lately` is good enough for what goes on for days.
    pub(super) async fn said_by_namespace(
        &self,
        host: &BareMetalHost,
        lately: bool,
    ) -> Result<Option<bool>, LookError> {
        let name = host.namespace().unwrap_or_default();
        let known =
            self.namespaces().get(&name).filter(|(_, at)| lately && at.elapsed() < LASTS).map(|(said, _)| *said);
        if let Some(known) = known {
            return Ok(known);
        }
        let namespaces: Api<Namespace> = Api::all(self.context.client.clone());
        let namespace = match namespaces.get_metadata_opt(&name).await {
            // Who may not read namespaces has the server's default.
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            read => read.map_err(LookError::of("read the namespace's labels"))?,
        };
        let labels = namespace.and_then(|namespace| namespace.metadata.labels);
        let told = detection(labels.as_ref());
        let before = self.namespaces().insert(name.clone(), (told, Instant::now()));
        if let Some(fault) = detection_fault(labels.as_ref()).filter(|_| before.is_none()) {
            tracing::warn!(namespace = %name, "of the namespace, the {fault}");
        }
        Ok(told)
    }
}
