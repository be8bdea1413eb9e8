//! Which provisioner a host gets: the one that its annotation names, else its namespace's annotation, else the server's default, unless its record says that its
//! machine may be in use by another's word. Registration fixes it: another provisioner cannot use what this one remembers of the machine, and might not begin safely. The host's record names the
//! provisioner, and the id (`status.provisioning.ID`) must be one of its own: no other provisioner ever gets the host.

use std::sync::Arc;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use api::metamorph::ProvisionerRecord;
use host_lifecycle::detached_by_force;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Resource, ResourceExt};
use provisioner::in_use::may_change;
use provisioner::{Capabilities, Cause, Failure, Provisioner, Retry};

use super::context::Context;
use super::error::ReconcileError;
use super::facts;
use super::machine::KubeMachine;
use super::records::{is_blank, lock};
use crate::events::Said;
use crate::kube_errors::api_message;

/// The host's provisioner, or why it cannot have the one that it asks for.
pub type Choice = Result<Arc<dyn Provisioner>, Failure>;

/// The name of the host's provisioner, and what that can do with the host; `None` while it has none.
///
/// # Errors
/// When the Kubernetes API fails.
pub(crate) async fn capabilities_of(
    context: &Context,
    host: &BareMetalHost,
) -> Result<Option<(&'static str, Capabilities)>, ReconcileError> {
    let host = Arc::new(host.clone());
    let Ok(provisioner) = choose(context, &host).await? else { return Ok(None) };
    Ok(Some((provisioner.name(), provisioner.capabilities(&facts::facts(&host, None)))))
}

/// Chooses.
///
/// # Errors
/// When the Kubernetes API fails.
pub async fn choose(context: &Context, host: &Arc<BareMetalHost>) -> Result<Choice, ReconcileError> {
    let annotated = host.annotation(annotation::PROVISIONER);
    let id = host.status.as_ref().map(|status| status.provisioning.id.as_str()).unwrap_or_default();
    if !id.is_empty() {
        let fixed = fixed(context, host, id).await?;
        return Ok(fixed.and_then(|fixed| allowed(host, fixed, annotated)));
    }
    let wanted = match annotated {
        Some(annotated) => Some(annotated.to_owned()),
        None => namespaces(context, host).await?,
    };
    let place = if annotated.is_some() { "the host's" } else { "the namespace's" };
    let chosen = context.registry.choose(wanted.as_deref()).cloned().map_err(|error| {
        let mut failure = Failure::new(Cause::InvalidRequest, error.to_string())
            .advise(format!("correct {place} annotation {}", annotation::PROVISIONER));
        // A correction of the namespace triggers no look at the host: look again soon.
        failure.retry = Retry::Waiting;
        failure
    });
    match chosen {
        Ok(chosen) => made_anew(context, host, chosen, wanted.is_some()).await,
        Err(failure) => Ok(Err(failure)),
    }
}

/// The provisioner of a host that was made anew, as after its deletion while it was detached, or without its status. What another one has recorded of its machine,
/// the one that is chosen cannot read: the machine may be in use. Where nobody asks for another, the host goes on with that one, which can.
///
/// # Errors
/// When the Kubernetes API fails.
async fn made_anew(
    context: &Context,
    host: &Arc<BareMetalHost>,
    chosen: Arc<dyn Provisioner>,
    is_asked_for: bool,
) -> Result<Choice, ReconcileError> {
    if host.spec.externally_provisioned == Some(true) {
        return Ok(Ok(chosen));
    }
    let Some(part) = recorded_part(context, host).await? else { return Ok(Ok(chosen)) };
    if is_blank(&part) || part.name == chosen.name() {
        return Ok(Ok(chosen));
    }
    // Another program's record it alone can read.
    let recorded = context.settings.readers.iter().find_map(|reads| reads(&part));
    let consent = host.annotation(annotation::OVERWRITE_OWNER);
    let earlier = context.registry.choose(Some(&part.name)).ok();
    match (may_change(recorded.as_ref(), consent, (&part.name, chosen.name())), earlier) {
        (Ok(()), _) => Ok(Ok(chosen)),
        (Err(_), Some(earlier)) if !is_asked_for => Ok(Ok(Arc::clone(earlier))),
        // A host that is deleted is let go without a call: what was recorded of the machine stays, for whoever declares it next.
        (Err(failure), _) => Ok(Err(failure)),
    }
}

/// Says of a host that is about to be registered, once while that Event is kept, that it goes on with the provisioner that it had before it was made anew, which nobody has asked for.
pub async fn tell_of_earlier(context: &Context, host: &BareMetalHost, chosen: &dyn Provisioner) {
    let id = host.status.as_ref().map(|status| status.provisioning.id.as_str()).unwrap_or_default();
    let is_default = chosen.name() == context.registry.default().name();
    if is_default || !id.is_empty() || host.annotation(annotation::PROVISIONER).is_some() {
        return;
    }
    let Ok(None) = namespaces(context, host).await else { return };
    let said = Said {
        reason: "EarlierProvisioner".to_owned(),
        note: format!(
            "By this host's MachineRecord the machine was last the provisioner \"{}\"'s, and may be in use: the host goes on with that one, and not with the \
             server's default; to have another, name it in the annotation {}",
            chosen.name(),
            annotation::PROVISIONER
        ),
        warning: false,
    };
    let published = context.recorder.publish_once(&said, &host.object_ref(&()), &host.uid().unwrap_or_default()).await;
    if let Err(error) = published {
        tracing::warn!(host = %host.name_any(), error = %api_message(&error), "publish an Event");
    }
}

/// What a provisioner has recorded of the host's machine.
async fn recorded_part(
    context: &Context,
    host: &Arc<BareMetalHost>,
) -> Result<Option<ProvisionerRecord>, ReconcileError> {
    // Any provisioner will do for reading the record.
    let machine = KubeMachine::new(context, host, Arc::clone(context.registry.default()));
    machine.load().await.map_err(ReconcileError::api("read the host's record"))?;
    let known = lock(&machine.slot);
    let ours = known.object.as_ref().filter(|object| machine.is_ours(&object.spec));
    Ok(ours.and_then(|object| object.spec.provisioner.clone()).filter(|part| !part.name.is_empty()))
}

/// The host's own provisioner, or a failure if its annotation asks for another. Deletion, detachment by force and work under way go on with its own; the failure
/// shows once the host is at rest.
fn allowed(host: &BareMetalHost, fixed: Arc<dyn Provisioner>, annotated: Option<&str>) -> Choice {
    let in_work =
        matches!(host.state(), State::Inspecting | State::Preparing | State::Provisioning | State::Deprovisioning);
    let goes = host.is_deleting() || detached_by_force(host);
    let Some(annotated) = annotated.filter(|annotated| *annotated != fixed.name() && !in_work && !goes) else {
        return Ok(fixed);
    };
    let (fixed, annotated) = (fixed.name(), annotated.chars().take(64).collect::<String>());
    Err(held(
        Cause::InvalidRequest,
        format!(
            "choose a provisioner: the host is registered with \"{fixed}\", and its annotation asks for \"{annotated}\""
        ),
        format!(
            "set the annotation {} to {fixed} or remove it; to have another, delete the host and declare it anew",
            annotation::PROVISIONER
        ),
    ))
}

/// A failure that blocks the host until it is corrected; a deletion waits too.
fn held(cause: Cause, text: String, advice: String) -> Failure {
    let mut failure = Failure::new(cause, text).advise(advice);
    failure.retry = Retry::Held;
    failure
}

/// The provisioner that registration has fixed: the one that the host's record names, or, if it names none, the one that made the host's id,
/// which the record names from then on.
async fn fixed(context: &Context, host: &Arc<BareMetalHost>, id: &str) -> Result<Choice, ReconcileError> {
    let name = recorded_part(context, host).await?.map(|part| part.name);
    let printable: String = id.chars().take(64).collect();
    let Some(name) = name else {
        let maker = maker(context, host, id, &printable).await?;
        if let Ok(maker) = &maker {
            let machine = KubeMachine::new(context, host, Arc::clone(maker));
            if let Err(error) = machine.name_provisioner().await {
                // Until that is written, the id decides.
                tracing::warn!(host = %host.name_any(), %error, "name the provisioner in the host's record");
            }
        }
        return Ok(maker);
    };
    Ok(match context.registry.choose(Some(&name)).cloned() {
        // The record may be corrected or restored.
        Err(error) => Err(held(
            Cause::RecordUnreadable,
            error.to_string(),
            format!("the host is registered with \"{}\": run a server that has it", error.wanted),
        )),
        Ok(named) if !named.made(id) => Err(held(
            Cause::RecordUnreadable,
            format!("choose a provisioner: the host's MachineRecord names \"{name}\", which has not made the id {printable} of status.provisioning.ID"),
            "restore the MachineRecord from a backup; a machine is never given to a provisioner with which it was not registered".to_owned(),
        )),
        Ok(named) => Ok(named),
    })
}

/// The provisioner that made the host's id. If several may have, the one among them that a new host would get.
async fn maker(
    context: &Context,
    host: &Arc<BareMetalHost>,
    id: &str,
    printable: &str,
) -> Result<Choice, ReconcileError> {
    let makers: Vec<_> = context.registry.iter().filter(|provisioner| provisioner.made(id)).collect();
    if let [maker] = makers.as_slice() {
        return Ok(Ok(Arc::clone(maker)));
    }
    let text = |what: String| format!("choose a provisioner: {what} made the id {printable} of status.provisioning.ID");
    if makers.is_empty() {
        let what = format!("this server has {}, and none of them has", context.registry.names().join(", "));
        let advice = "run a server that has the host's provisioner, or detach the host by force".to_owned();
        return Ok(Err(held(Cause::RecordUnreadable, text(what), advice)));
    }
    let wanted = match host.annotation(annotation::PROVISIONER) {
        Some(annotated) => Some(annotated.to_owned()),
        None => namespaces(context, host).await?,
    };
    let wanted = wanted.unwrap_or_else(|| context.registry.default().name().to_owned());
    Ok(makers.iter().find(|maker| maker.name() == wanted).map(|maker| Arc::clone(maker)).ok_or_else(|| {
        let names: Vec<_> = makers.iter().map(|maker| maker.name()).collect();
        let advice = format!("name the one that did in the host's annotation {}", annotation::PROVISIONER);
        held(Cause::RecordUnreadable, text(format!("each of {} may have", names.join(", "))), advice)
    }))
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
