//! A claim that is being deleted gives its host back: emptied, released, without copies of Secrets.

use std::collections::BTreeSet;

use api::metal3::{BareMetalHost, BoundObject, HostClaim, annotation};
use host_claims::{Release, Report, Title};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use super::claims::Claims;
use super::look::{Titles, WAIT, admits, place};
use super::write::{LookError, Written};
use crate::host::readable::Readable;

/// Looks at a claim that is being deleted.
pub(crate) async fn depart(all: &Claims, claim: &HostClaim) -> Result<Action, LookError> {
    if !claim.is_held() {
        return Ok(Action::await_change());
    }
    let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
    let hosts = all.host.hosts.store().map(|store| store.state()).unwrap_or_default();
    let holding = hosts.iter().filter(|host| may_be_left(host, claim)).map(|host| place(host));
    let places: BTreeSet<BoundObject> = holding.chain(named.clone()).collect();
    let mut titles = Titles::default();
    for at in &places {
        if named.as_ref() == Some(at) {
            void(all, claim, at).await?;
        }
        // Read from the API, not the cache: nothing looks for hosts of this claim later.
        let host = match all.host_at(at).await? {
            Some(Readable::Read(host)) => *host,
            Some(Readable::Unreadable(host)) => {
                if let Some(rest) = &host.rest
                    && titles.are_good(all, claim, rest).await?
                {
                    return Err(LookError::Unreadable(at.clone()));
                }
                continue;
            }
            None => continue,
        };
        // A host that merely names the claim is left alone: nothing on it is the claim's, and the claim's deletion does not wait for it.
        if !titles.are_good(all, claim, &host).await? {
            if is_late(&host, claim)
                && let Written::Refused(why) = let_go(all, &host).await?
            {
                tracing::warn!(host = %place(&host), claim = %claim.name_any(), why, "a host goes on naming a claim that is gone");
            }
            continue;
        }
        if let Some(action) = give_back(all, claim, host).await? {
            return Ok(action);
        }
    }
    all.clear_all(claim, places.iter().map(|at| at.namespace.as_str())).await?;
    all.forget_promises(claim.metadata.uid.as_deref().unwrap_or_default());
    all.hold(claim, false).await?;
    Ok(Action::await_change())
}

/// Whether a host may have to be given back, or at least let go.
fn may_be_left(host: &BareMetalHost, claim: &HostClaim) -> bool {
    host_claims::title(host, claim) != Title::Foreign || is_late(host, claim)
}

/// Whether the host names just this claim and has no work: a delayed write of an earlier choice, even if the claim could not choose it any more.
fn is_late(host: &BareMetalHost, claim: &HostClaim) -> bool {
    host_claims::holds(host, claim) && !host_claims::is_of_another_life(host, claim) && host_claims::is_idle(host)
}

/// Advances the host's return. Returns what to do meanwhile, or `None` once the host is given back.
async fn give_back(all: &Claims, claim: &HostClaim, mut host: BareMetalHost) -> Result<Option<Action>, LookError> {
    let wait = async |message: String, host: &BareMetalHost| {
        all.report(claim, &Report::leaving(claim, message, Some(host))).await?;
        Ok(Some(Action::requeue(WAIT)))
    };
    let is_paused = host.annotation(annotation::PAUSED) == Some(annotation::PAUSED_BY_CLAIM);
    let clears = match host_claims::release(&host) {
        Release::Clear(spec) => Some(json!({ "spec": spec })),
        // It waits for the claim, which may have been paused when it was emptied already.
        Release::Wait(_) if is_paused => Some(json!({})),
        Release::Wait(_) | Release::LetGo => None,
    };
    if let Some(change) = clears {
        // This also resumes a host that the claim has paused.
        match all.change_host(&host, with_annotations(&host, change)).await? {
            Written::Host(written) => host = *written,
            Written::Refused(why) => {
                let message = format!("BareMetalHost {} cannot be emptied: {why}", place(&host));
                return wait(message, &host).await;
            }
        }
    }
    match host_claims::release(&host) {
        Release::Wait(message) => wait(message, &host).await,
        Release::Clear(_) => Err(LookError::Moved),
        Release::LetGo => match let_go(all, &host).await? {
            Written::Host(_) => Ok(None),
            Written::Refused(why) => {
                wait(format!("BareMetalHost {} cannot be let go: {why}", place(&host)), &host).await
            }
        },
    }
}

async fn let_go(all: &Claims, host: &BareMetalHost) -> Result<Written, LookError> {
    all.change_host(host, with_annotations(host, json!({ "spec": { "consumerRef": null } }))).await
}

/// Adds the removal of the claim's annotations on the host to a patch.
fn with_annotations(host: &BareMetalHost, mut patch: Value) -> Value {
    let handed_on = host.annotation(annotation::CLAIM_REBOOT).is_some();
    let of_claim = |key: &str, value: &str| {
        let reboot = format!("{}/{}", annotation::REBOOT, annotation::CLAIM_REBOOT_PREFIX);
        key == annotation::CLAIM_REBOOT
            || (key == annotation::REBOOT && handed_on)
            || key.starts_with(&reboot)
            || (key == annotation::PAUSED && value == annotation::PAUSED_BY_CLAIM)
    };
    for (key, _) in host.metadata.annotations.iter().flatten().filter(|(key, value)| of_claim(key, value)) {
        patch["metadata"]["annotations"][key] = Value::Null;
    }
    patch
}

/// Makes any delayed write that would name the claim on this host fail. On an unused host such a write succeeds as long as the host has the
/// version that it was meant for, so an annotation changes the version; the next claim removes the annotation.
pub(crate) async fn void(all: &Claims, claim: &HostClaim, at: &BoundObject) -> Result<(), LookError> {
    // One that cannot be read has another version than it was chosen with.
    let Some(Readable::Read(host)) = all.host_at(at).await? else { return Ok(()) };
    // That write has landed and another host was chosen: release this one, on which no work has begun.
    let names_another = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref()) != Some(at);
    let is_own = host_claims::holds(&host, claim) && !host_claims::is_of_another_life(&host, claim);
    if names_another && is_own && host.spec.image.is_none() && host.spec.custom_deploy.is_none() {
        return let_go(all, &host).await.map(|_| ());
    }
    if host.spec.consumer_ref.is_some() || host.is_deleting() {
        return Ok(());
    }
    // A claim's owner may be able to write any host into its status: a host that the claim may not have was never chosen for it.
    if !admits(all, claim, &host).await? {
        return Ok(());
    }
    // A single write: a crash or a lost answer leaves nothing to clean up.
    let patch = json!({ "metadata": { "annotations": { annotation::NOT_CLAIMED: host.metadata.resource_version } } });
    all.change_host(&host, patch).await.map(|_| ())
}
