//! Reports that a host waits because the Kubernetes API refuses something.
//!
//! A quota, a missing right, a definition of another version: none of them is the host's error, and each keeps it from going on. The condition
//! `Progressing` and an Event report it; the next change of the status removes it.

use api::Time;
use api::metal3::{BareMetalHost, BareMetalHostStatus, annotation};
use host_lifecycle::HostEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

use super::context::Context;
use super::error::ReconcileError;
use super::record::DROPPED;
use super::write::publish;
use crate::kube_errors::api_message;

/// The condition.
const CONDITION: &str = "Progressing";
/// Its reason, and the Event's.
const REASON: &str = "KubernetesAPIFailed";
/// Longest text of an error that is shown, bytes.
const MAX_TEXT: usize = 800;

/// Reports the error in the host's conditions and in an Event. A failure to do so is logged.
pub async fn report(context: &Context, host: &BareMetalHost, error: &ReconcileError) {
    if matches!(error, ReconcileError::NotLeading) {
        // The leader reports.
        return;
    }
    let message = text(error);
    if let Err(failed) = say(&context.client, host, &message, context.settings.clock.now()).await {
        tracing::warn!(host = %host.name_any(), error = %failed, "say in the host's conditions that the Kubernetes API fails");
    }
    publish(context, host, &HostEvent { reason: REASON, message, warning: true }).await;
}

async fn say(client: &Client, host: &BareMetalHost, message: &str, now: jiff::Timestamp) -> Result<(), kube::Error> {
    let api: Api<BareMetalHost> = Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
    let Some(found) = api.get_opt(&host.name_any()).await? else { return Ok(()) };
    if found.uid() != host.uid() {
        return Ok(());
    }
    let Some(status) = found.status.as_ref().filter(|_| found.annotation(annotation::PAUSED).is_none()) else {
        return Ok(());
    };
    let mut conditions = status.conditions.clone();
    let said = Condition {
        last_transition_time: Time(now),
        message: message.to_owned(),
        // Only the life cycle reports that an edit was observed.
        observed_generation: None,
        reason: REASON.to_owned(),
        status: "False".to_owned(),
        type_: CONDITION.to_owned(),
    };
    match conditions.iter_mut().find(|c| c.type_ == CONDITION) {
        Some(old) if old.reason == REASON && old.message == message => return Ok(()),
        Some(old) => {
            let since = if old.status == said.status {
                old.last_transition_time.clone()
            } else {
                said.last_transition_time.clone()
            };
            *old = Condition { last_transition_time: since, observed_generation: old.observed_generation, ..said };
        }
        None => conditions.push(said),
    }
    let mut object = found.clone();
    object.status = Some(BareMetalHostStatus { conditions, ..status.clone() });
    match api.replace_status(&found.name_any(), &PostParams::default(), &object).await {
        // Another writer has newer information.
        Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// What was attempted, what the API said, what to do.
fn text(error: &ReconcileError) -> String {
    let what = match error {
        ReconcileError::Api { attempt, source } => format!("{attempt}: {}", api_message(source)),
        ReconcileError::Beside(failed) => format!("{}: {}", failed.attempt, api_message(&failed.source)),
        ReconcileError::NotLeading | ReconcileError::Record(_) => error.to_string(),
    };
    let printable = what.get(..what.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
    // This error contains its own advice.
    let advice = if what.contains(DROPPED) { String::new() } else { format!(" — {}", advice(&what)) };
    format!("The host waits, for the Kubernetes API does not let it go on: {printable}{advice}; it is tried again")
}

/// What to do, by the API server's words (apimachinery `api/errors`, the quota plug-in's `resource_quota`).
fn advice(what: &str) -> &'static str {
    let says = |words: &str| what.contains(words);
    match () {
        () if says("exceeded quota") => "raise the ResourceQuota of the namespace, or delete what is no longer needed",
        () if says("being terminated") => "the namespace is being deleted",
        () if says("is forbidden") => "give the server's account the right to do so",
        () if says("could not find the requested resource") || says("not found") => {
            "install the definitions (metamorph crds)"
        }
        () if says("deserializ") => "correct what is written in the object: this server does not understand it",
        () if says("is invalid") || says("admission webhook") || says("ValidatingAdmissionPolicy") => {
            "bring the definitions in the cluster to this server's version (metamorph crds), and look at what admission says"
        }
        () => "look at the API server's health and disk, and at the way to it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> String {
        let status = kube::core::Status::failure(message, "Reason").with_code(403);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        text(&ReconcileError::Api { attempt: "create the HardwareData", source })
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let quota = refused("hostoperations \"a\" is forbidden: exceeded quota: small");
        assert!(quota.contains("create the HardwareData") && quota.contains("raise the ResourceQuota"), "{quota}");
        let right = refused("hostoperations is forbidden: User \"x\" cannot create resource");
        assert!(right.contains("give the server's account the right"), "{right}");
        assert!(refused("HostOperation \"a\" is invalid: spec.type").contains("metamorph crds"));
        assert!(refused("database or disk is full").contains("disk"));
        assert!(refused(&"ä".repeat(5000)).len() < 1024, "an Event holds 1024 bytes");
    }
}
