//! A look's writes, each conditional on the version that it was decided on.

use api::metal3::{BareMetalHost, BoundObject, HostClaim, HostClaimStatus, condition, finalizer};
use host_claims::Report;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::claims::Claims;
use crate::events::Said;
use crate::host::readable::Readable;

/// A look could not be completed; it is made again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// The Kubernetes API failed.
    #[error("{attempt} (Kubernetes API): {source}")]
    Api {
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// The claim or its host has moved on since it was read: what it means now is to be decided again.
    #[error("the claim or its host has changed meanwhile")]
    Moved,
    /// The claim's host cannot be read: nothing is done to it until that is corrected.
    #[error(
        "BareMetalHost {0} is this claim's and cannot be read: whoever looks after the hosts corrects what is written in it, an Event of it says what"
    )]
    Unreadable(BoundObject),
    /// Another process acts.
    #[error("another process leads: nothing is done")]
    NotLeading,
}

impl LookError {
    pub fn api(attempt: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match source {
            kube::Error::Api(error) if error.code == 409 || error.code == 404 => Self::Moved,
            source => Self::Api { attempt, source: Box::new(source) },
        }
    }
}

/// Result of a write to a host.
pub enum Written {
    /// Written: the host as it is now.
    Host(Box<BareMetalHost>),
    /// The API server refused it; a clause that names only the class of the refusal. The full message is in the log: it may reveal the host's BMC
    /// and Secrets, which the claim's owner must not see.
    Refused(String),
}

impl Claims {
    fn may_act(&self) -> Result<(), LookError> {
        if (self.host.settings.may_act)() { Ok(()) } else { Err(LookError::NotLeading) }
    }

    pub fn api_of(&self, claim: &HostClaim) -> Api<HostClaim> {
        Api::namespaced(self.host.client.clone(), &claim.namespace().unwrap_or_default())
    }

    pub fn hosts_of(&self, namespace: &str) -> Api<BareMetalHost> {
        Api::namespaced(self.host.client.clone(), namespace)
    }

    /// A host, read anew.
    pub async fn host_at(&self, at: &BoundObject) -> Result<Option<Readable<BareMetalHost>>, LookError> {
        let api: Api<Readable<BareMetalHost>> = Api::namespaced(self.host.client.clone(), &at.namespace);
        api.get_opt(&at.name).await.map_err(LookError::api("read the claim's host"))
    }

    /// Adds or removes the finalizer. Returns the updated claim.
    pub async fn hold(&self, claim: &HostClaim, held: bool) -> Result<HostClaim, LookError> {
        self.may_act()?;
        let others = claim.finalizers().iter().filter(|name| *name != finalizer::HOST_CLAIM);
        let mut all: Vec<&str> = others.map(String::as_str).collect();
        if held {
            all.push(finalizer::HOST_CLAIM);
        }
        let patch = json!({ "metadata": {
            "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "finalizers": all } });
        let patched = self.api_of(claim).patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(LookError::api("change the claim's finalizers"))
    }

    /// Changes the claim's annotations, by a JSON merge patch of them.
    pub async fn annotate(&self, claim: &HostClaim, annotations: Value) -> Result<HostClaim, LookError> {
        self.may_act()?;
        let patch = json!({ "metadata": {
            "uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version, "annotations": annotations } });
        let patched = self.api_of(claim).patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(LookError::api("change the claim's annotations"))
    }

    /// Writes the claim's status if it has changed, and publishes Events about the changes. Returns the updated claim.
    pub async fn report(&self, claim: &HostClaim, report: &Report<'_>) -> Result<HostClaim, LookError> {
        let Some(status) = host_claims::status(claim, report, self.host.settings.clock.now()) else {
            return Ok(claim.clone());
        };
        self.may_act()?;
        let mut object = claim.clone();
        object.status = Some(status);
        let written = self.api_of(claim).replace_status(&claim.name_any(), &PostParams::default(), &object).await;
        let written = written.map_err(LookError::api("write the claim's status"))?;
        for said in news(claim.status.as_ref(), written.status.as_ref()) {
            self.say(&written, &said).await;
        }
        Ok(written)
    }

    /// Publishes an Event; a failure is only logged.
    pub async fn say(&self, claim: &HostClaim, said: &Said) {
        if let Err(error) = self.host.recorder.publish(said, &claim.object_ref(&())).await {
            tracing::warn!(claim = %claim.name_any(), reason = said.reason, %error, "publish an Event");
        }
    }

    /// Changes a host by a JSON merge patch, of which `metadata` gets uid and version.
    pub async fn change_host(&self, host: &BareMetalHost, mut patch: Value) -> Result<Written, LookError> {
        self.may_act()?;
        if !patch["metadata"].is_object() {
            patch["metadata"] = json!({});
        }
        patch["metadata"]["uid"] = json!(host.metadata.uid);
        patch["metadata"]["resourceVersion"] = json!(host.metadata.resource_version);
        let api = self.hosts_of(&host.namespace().unwrap_or_default());
        let (name, params, patch) = (host.name_any(), PatchParams::default(), Patch::Merge(patch));
        let call = async { api.patch(&name, &params, &patch).await };
        match self.host.hosts.writing(&ObjectRef::from_obj(host), call).await {
            Ok(written) => Ok(Written::Host(Box::new(written))),
            Err(kube::Error::Api(error)) if matches!(error.code, 400 | 403 | 422) => {
                tracing::warn!(host = %ObjectRef::from_obj(host), code = error.code, why = %error.message, "a claim's write to its host is refused");
                Ok(Written::Refused(refused(&error)))
            }
            Err(error) => Err(LookError::api("change the host")(error)),
        }
    }
}

/// The class of the Kubernetes API's refusal, without its message.
pub fn refused(error: &kube::core::Status) -> String {
    // A proper reason is one word; anything else could hold arbitrary text.
    let is_word = error.reason.len() <= 64 && error.reason.chars().all(|c| c.is_ascii_alphanumeric());
    let reason = Some(error.reason.as_str()).filter(|reason| is_word && !reason.is_empty()).unwrap_or("no reason");
    format!(
        "the Kubernetes API refuses it ({} {reason}; why is in the server's log, for whoever looks after the hosts)",
        error.code
    )
}

/// Events for the conditions, except Ready, whose status or reason has changed.
fn news(old: Option<&HostClaimStatus>, new: Option<&HostClaimStatus>) -> Vec<Said> {
    let of = |status: Option<&HostClaimStatus>, kind: &str| -> Option<Condition> {
        status?.conditions.iter().find(|condition| condition.type_ == kind).cloned()
    };
    let kinds = [condition::ASSOCIATED, condition::SYNCHRONIZED, condition::PROVISIONED];
    let turned = kinds.into_iter().filter_map(|kind| {
        let (old, new) = (of(old, kind), of(new, kind)?);
        let same = old.is_some_and(|old| old.status == new.status && old.reason == new.reason);
        // Not worth an Event: they follow from a missing host, which Associated reports, or pass in a moment.
        let dull = matches!(new.reason.as_str(), "NotAssociated" | "NotProvisioned" | "Associating");
        (!same && !dull).then_some(new)
    });
    let quiet = ["Provisioning", "Deprovisioning", "HostClaimDeleting", "HostPaused"];
    turned
        .map(|found| Said {
            warning: found.status != "True" && !quiet.contains(&found.reason.as_str()),
            reason: found.reason,
            note: found.message,
        })
        .collect()
}
