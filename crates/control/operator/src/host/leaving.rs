//! Secrets that somebody has deleted while a host holds them.

use std::collections::HashSet;
use std::sync::Arc;

use api::metal3::{BareMetalHost, annotation, finalizer};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use super::context::Context;
use super::secrets::{HostSecrets, networks};
use crate::events::Said;

/// Time in which its hosts may be deleted, too, as with a namespace.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time in which a host may be declared again that signs in with a deleted Secret.
const DECLARED_AGAIN: Duration = Duration::from_secs(300);
/// Pause after the Kubernetes API has failed.
const AGAIN: Duration = Duration::from_secs(30);
/// Reason of the Event.
const REASON: &str = "SecretInUse";
/// What a host has the Secret for.
const SIGNS_IN: &str = "signs in to its BMC with it (spec.bmc.credentialsName)";
const GIVES_NETWORK: &str = "gives its agent its network by it (spec.preprovisioningNetworkDataName)";

type Metadata = PartialObjectMeta<Secret>;

/// Whether the Secret is deleted and held by a host.
pub fn waits_for_a_host(secret: &Metadata) -> bool {
    secret.metadata.deletion_timestamp.is_some() && secret.finalizers().iter().any(|held| held == finalizer::SECRET)
}

/// What a look at such a Secret has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is gone, a host's, or let go.
    Settled,
    /// A host names it for its agent's network, of which nothing tells when it names another.
    Network,
    /// There is no host that it could be held for.
    NoHost,
}

/// Says of each host that it holds such a Secret, and lets go of it where the host names another, and where there has been no host for it for a while.
/// Never returns.
pub async fn tell(context: Arc<Context>, mut names: UnboundedReceiver<ObjectRef<Metadata>>) {
    let mut later = JoinSet::new();
    // One look at a time for each, however often it is touched.
    let mut waiting = HashSet::new();
    let after = |pause: Duration, name: ObjectRef<Metadata>, waited: bool| async move {
        sleep(pause).await;
        (name, waited)
    };
    loop {
        tokio::select! {
            name = names.recv() => match name {
                Some(name) if waiting.insert(name.clone()) => drop(later.spawn(after(PATIENCE, name, false))),
                Some(_) => {}
                None => return,
            },
            Some(Ok((name, waited))) = later.join_next(), if !later.is_empty() => {
                context.begin().await;
                match look(&context, &name, waited).await {
                    Ok(Found::NoHost) => drop(later.spawn(after(DECLARED_AGAIN, name, true))),
                    Ok(Found::Network) => drop(later.spawn(after(DECLARED_AGAIN, name, false))),
                    Ok(Found::Settled) => drop(waiting.remove(&name)),
                    Err(error) => {
                        tracing::warn!(secret = %name, %error, "look for the hosts that hold a deleted Secret");
                        later.spawn(after(AGAIN, name, waited));
                    }
                }
            }
        }
    }
}

/// With `waited`, a Secret without a host has had none a while ago either, and is let go.
async fn look(context: &Context, name: &ObjectRef<Metadata>, waited: bool) -> Result<Found, kube::Error> {
    let namespace = name.namespace.clone().unwrap_or_default();
    let Some(secret) = context.bodies.watched(&namespace, &name.name).filter(|secret| waits_for_a_host(secret)) else {
        return Ok(Found::Settled);
    };
    let Some(hosts) = context.hosts.store().filter(|_| (context.settings.may_act)()) else { return Ok(Found::Settled) };
    let mut owned = false;
    for owner in secret.owner_references().iter().filter(|owner| owner.kind == "BareMetalHost") {
        let found = hosts.get(&ObjectRef::new(&owner.name).within(&namespace));
        let Some(host) = found.filter(|host| host.uid().as_ref() == Some(&owner.uid)) else { continue };
        owned = true;
        if names(&host, &name.name) {
            say(context, &host, &secret, SIGNS_IN).await?;
        } else if host.annotation(annotation::PAUSED).is_none() {
            HostSecrets::new(context, &host).release_others().await?;
        }
    }
    let in_namespace = |host: &BareMetalHost| host.namespace().as_ref() == Some(&namespace);
    let networks = networks(context, &namespace, &name.name);
    for host in &networks {
        say(context, host, &secret, GIVES_NETWORK).await?;
    }
    if !networks.is_empty() {
        return Ok(Found::Network);
    }
    if owned || hosts.state().iter().any(|host| in_namespace(host) && names(host, &name.name)) {
        return Ok(Found::Settled);
    }
    if !waited {
        return Ok(Found::NoHost);
    }
    tracing::info!(secret = %name, "let go of a deleted Secret that is held for a host that is gone");
    let finalizers: Vec<_> = secret.finalizers().iter().filter(|held| *held != finalizer::SECRET).collect();
    let patch = json!({ "metadata": { "resourceVersion": secret.resource_version(), "finalizers": finalizers } });
    let api = Api::namespaced(context.client.clone(), &namespace);
    match context.bodies.patch(&api, &namespace, &name.name, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(error)) if error.code == 404 => {}
        patched => patched?,
    }
    Ok(Found::Settled)
}

fn names(host: &BareMetalHost, secret: &str) -> bool {
    host.spec.bmc.as_ref().is_some_and(|bmc| bmc.credentials_name == secret)
}

/// Once: not again by the next server either.
async fn say(context: &Context, host: &BareMetalHost, secret: &Metadata, why: &str) -> Result<(), kube::Error> {
    if host.is_deleting() {
        return Ok(());
    }
    let note = format!(
        "The Secret \"{}\" was deleted and stays, because the host \"{}\" {why} — name another Secret there, or delete the host: the Secret goes then",
        secret.name_any(),
        host.name_any()
    );
    let said = Said { reason: REASON.to_owned(), note, warning: true };
    let uid = secret.uid().unwrap_or_default();
    context.recorder.publish_once(&said, &host.object_ref(&()), &uid).await.map(|_| ())
}
