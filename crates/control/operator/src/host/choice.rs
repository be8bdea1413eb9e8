//! Which provisioner a host gets: the one that its annotation names, else its namespace's, else the server's default. Registration fixes it: what
//! the provisioner remembers of the machine is of no use to another, and what another would do first is not known to be safe.

use std::sync::Arc;

use api::metal3::{BareMetalHost, annotation};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use provisioner::{Cause, Failure, Provisioner, Retry};

use super::machine::KubeMachine;
use super::record::lock;
use super::{Context, ReconcileError};

/// What the host gets; a failure where it asks for what it cannot have.
pub type Choice = Result<Arc<dyn Provisioner>, Failure>;

/// Chooses.
///
/// # Errors
/// When the Kubernetes API fails.
pub async fn choose(context: &Context, host: &Arc<BareMetalHost>) -> Result<Choice, ReconcileError> {
    let own = host.annotation(annotation::PROVISIONER);
    if let Some(fixed) = fixed(context, host).await? {
        return Ok(keep(context, &fixed, own));
    }
    let wanted = match own {
        Some(own) => Some(own.to_owned()),
        None => namespaces(context, host).await?,
    };
    let place = if own.is_some() { "the host's" } else { "the namespace's" };
    Ok(context.registry.choose(wanted.as_deref()).cloned().map_err(|error| {
        let mut failure = Failure::new(Cause::InvalidRequest, error.to_string())
            .advise(format!("correct {place} annotation {}", annotation::PROVISIONER));
        // Nothing of the host tells that its namespace has been corrected: it is looked at again soon.
        failure.retry = Retry::Waiting;
        failure
    }))
}

/// The provisioner that a registered host has.
fn keep(context: &Context, fixed: &str, own: Option<&str>) -> Choice {
    let refuse = |cause, retry, text: String, advice: String| {
        let mut failure = Failure::new(cause, text);
        failure.retry = retry;
        Err(failure.advise(advice))
    };
    if let Some(own) = own.filter(|own| *own != fixed) {
        let own: String = own.chars().take(64).collect();
        return refuse(
            Cause::InvalidRequest,
            Retry::AfterChange,
            format!("choose a provisioner: the host is registered with «{fixed}», and its annotation asks for «{own}»"),
            format!(
                "set the annotation {} to {fixed} or remove it; to have another, delete the host and declare it anew",
                annotation::PROVISIONER
            ),
        );
    }
    context.registry.choose(Some(fixed)).cloned().or_else(|error| {
        // Its record may be put right, or restored.
        let advice = format!("the host is registered with «{fixed}»: run a server that has it");
        refuse(Cause::RecordUnreadable, Retry::Waiting, error.to_string(), advice)
    })
}

/// What registration has fixed: the name in the host's record.
async fn fixed(context: &Context, host: &Arc<BareMetalHost>) -> Result<Option<String>, ReconcileError> {
    let registered = host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty());
    if !registered {
        return Ok(None);
    }
    // Which of them reads the record does not matter here.
    let Ok(any) = context.registry.choose(None) else { return Ok(None) };
    let machine = KubeMachine::new(context, host, Arc::clone(any));
    machine.load().await.map_err(ReconcileError::api("read the host's record"))?;
    let known = lock(&machine.slot);
    let part = known.object.as_ref().and_then(|object| object.spec.provisioner.as_ref());
    Ok(part.map(|part| part.name.clone()).filter(|name| !name.is_empty()))
}

/// What the namespace's annotation names. Without the right to read namespaces there is none.
async fn namespaces(context: &Context, host: &BareMetalHost) -> Result<Option<String>, ReconcileError> {
    let api: Api<Namespace> = Api::all(context.client.clone());
    match api.get_metadata_opt(&host.namespace().unwrap_or_default()).await {
        Ok(found) => Ok(found.and_then(|n| n.annotations().get(annotation::PROVISIONER).cloned())),
        Err(kube::Error::Api(error)) if error.code == 403 => {
            tracing::warn!(
                "read the namespace's annotation {}: {} — apply the rights that `metamorph rbac` prints",
                annotation::PROVISIONER,
                error.message
            );
            Ok(None)
        }
        Err(error) => Err(ReconcileError::api("read the host's namespace")(error)),
    }
}
