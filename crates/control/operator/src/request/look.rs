//! One look at a request: as far as it goes without waiting for the host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{HostOperation, HostOperationStatus};
use host_lifecycle::{RequestStep, RequestView, decide_request, is_request, mark};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::{All, api};
use crate::events::Said;
use crate::host::ReconcileError;

/// How soon a request that waits for its host is looked at again, in case no event tells of it.
const AGAIN: Duration = Duration::from_secs(60);
/// Most steps of one look: more would go round in circles.
const MOST_STEPS: usize = 6;

/// A look that could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Another client has changed or deleted the request or its host.
    #[error("the HostOperation or its host has changed")]
    Moved,
    /// The Kubernetes API failed.
    #[error("{attempt} (Kubernetes API): {source}")]
    Api {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// Another process acts.
    #[error(transparent)]
    Host(#[from] ReconcileError),
}

impl LookError {
    fn of(attempt: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match &source {
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Self::Moved,
            _ => Self::Api { attempt, source: Box::new(source) },
        }
    }
}

/// Looks at the request.
pub async fn look(seen: Arc<HostOperation>, all: Arc<All>) -> Result<Action, LookError> {
    if all.unreadable.hold(seen.as_ref()) || !is_request(&seen) {
        return Ok(Action::await_change());
    }
    // A restarted server takes no word for new of which it has not seen the hosts.
    all.host.begin().await;
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let requests = api(&all, &namespace);
    let hosts: Api<BareMetalHost> = Api::namespaced(all.host.client.clone(), &namespace);
    for _ in 0..MOST_STEPS {
        if !(all.host.settings.may_act)() {
            return Err(ReconcileError::NotLeading.into());
        }
        let read = requests.get_opt(&name).await.map_err(LookError::of("read the HostOperation"))?;
        let Some(request) = read.filter(|request| request.uid() == seen.uid()) else {
            return Ok(Action::await_change());
        };
        if request.metadata.deletion_timestamp.is_some() || !is_request(&request) {
            return Ok(Action::await_change());
        }
        let host = hosts.get_opt(&request.spec.host.name).await.map_err(LookError::of("read the host"))?;
        let other = other(&requests, &request, host.as_ref()).await?;
        let now = all.host.settings.clock.now();
        let view = RequestView { request: &request, host: host.as_ref(), other: other.as_deref(), now };
        match decide_request(&view) {
            RequestStep::Nothing => {
                let open = request.status.as_ref().is_none_or(|status| !status.phase.is_final());
                return Ok(if open { Action::requeue(AGAIN) } else { Action::await_change() });
            }
            RequestStep::Status(status) => put(&all, &requests, &request, *status).await?,
            RequestStep::Annotate(annotations) => {
                let Some(host) = host else { return Err(LookError::Moved) };
                annotate(&all, &hosts, &host, &annotations).await?;
            }
        }
    }
    Ok(Action::requeue(AGAIN))
}

/// The request that the host's annotation names, if it is another one and has not ended.
async fn other(
    requests: &Api<HostOperation>,
    request: &HostOperation,
    host: Option<&BareMetalHost>,
) -> Result<Option<String>, LookError> {
    let Some(named) = host.and_then(|host| host.annotation(annotation::REQUEST)) else { return Ok(None) };
    let name = named.split('/').next().filter(|name| !name.is_empty() && *named != mark(request));
    let Some(name) = name else { return Ok(None) };
    let found = match requests.get_opt(name).await {
        // Nobody can have created one of such a name.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => None,
        found => found.map_err(LookError::of("read the HostOperation that the host's annotation names"))?,
    };
    let open = |other: &HostOperation| {
        is_request(other) && mark(other) == named && !other.status.as_ref().is_some_and(|s| s.phase.is_final())
    };
    Ok(found.filter(open).map(|other| other.name_any()))
}

/// Writes the annotations to the version of the host that was read.
async fn annotate(
    all: &All,
    hosts: &Api<BareMetalHost>,
    host: &BareMetalHost,
    annotations: &BTreeMap<&'static str, Option<String>>,
) -> Result<(), LookError> {
    let meta = &host.metadata;
    let change = json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations } });
    let name = host.name_any();
    let params = PatchParams::default();
    let call = async { hosts.patch(&name, &params, &Patch::Merge(change)).await };
    let written = all.host.hosts.writing(&ObjectRef::from_obj(host), call).await;
    written.map(|_| ()).map_err(LookError::of("write the host's annotations"))
}

/// Writes the status to the version of the request that was read. Its end is told by an Event, too.
async fn put(
    all: &All,
    requests: &Api<HostOperation>,
    request: &HostOperation,
    status: HostOperationStatus,
) -> Result<(), LookError> {
    let said = status.phase.is_final().then(|| {
        let advice = status.error.as_ref().and_then(|error| error.advice.as_deref());
        let advice = advice.map(|advice| format!(" — {advice}")).unwrap_or_default();
        let note = format!("{}{advice}", status.message.as_deref().unwrap_or_default());
        let warning = status.error.is_some();
        Said { reason: if warning { "RequestFailed" } else { "RequestSucceeded" }.to_owned(), note, warning }
    });
    let object = HostOperation { status: Some(status), ..request.clone() };
    let written = requests.replace_status(&request.name_any(), &PostParams::default(), &object).await;
    written.map_err(LookError::of("write the status of the HostOperation"))?;
    if let Some(said) = said
        && let Err(error) = all.host.recorder.publish(&said, &request.object_ref(&())).await
    {
        tracing::warn!(request = %request.name_any(), reason = said.reason, %error, "publish an Event");
    }
    Ok(())
}
