//! DataImages that are left without a host.

use std::sync::Arc;

use api::metal3::{BareMetalHost, DataImage, ProvisioningState as State, annotation};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use super::context::Context;
use super::{media, owned};
use crate::events::Said;

/// Pause before a DataImage that could not be released is looked at again.
const AGAIN: Duration = Duration::from_secs(30);

/// Releases DataImages whose host is gone, or was never there: nobody else would. Never returns.
pub async fn release_orphans(context: Arc<Context>, mut names: UnboundedReceiver<ObjectRef<DataImage>>) {
    let mut later = JoinSet::new();
    loop {
        let name = tokio::select! {
            name = names.recv() => match name {
                Some(name) => name,
                None => return,
            },
            Some(Ok(name)) = later.join_next(), if !later.is_empty() => name,
        };
        let (namespace, called) = (name.namespace.clone().unwrap_or_default(), name.name.clone());
        if let Err(error) = release_orphan(&context, &namespace, &called).await {
            tracing::warn!(namespace, name = called, %error, "release a DataImage without a host");
            // The others do not wait for what an admission webhook refuses.
            later.spawn(async move {
                sleep(AGAIN).await;
                name
            });
        }
    }
}

/// Why a host does not look at the DataImage now. What a host at rest waits for it says in the DataImage's status.
fn waits(host: &BareMetalHost) -> Option<String> {
    let state = host.state();
    let rests = matches!(state, State::Available | State::Ready | State::Provisioned | State::ExternallyProvisioned);
    let error = host.status.as_ref().map(|status| status.error_message.as_str()).filter(|error| !error.is_empty());
    if host.annotation(annotation::PAUSED).is_some() {
        let key = annotation::PAUSED;
        return Some(format!("which is paused: remove its annotation {key}"));
    }
    match error {
        Some(error) => Some(format!("which waits itself: {error}")),
        None if rests => None,
        None => Some(format!("which it does when it is not {} any more", state.as_str())),
    }
}

async fn release_orphan(context: &Context, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let client = &context.client;
    for _ in 0..3 {
        if !(context.settings.may_act)() {
            return Ok(());
        }
        let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
        let images: Api<DataImage> = Api::namespaced(client.clone(), namespace);
        let Some(image) = images.get_opt(name).await?.filter(media::is_held) else { return Ok(()) };
        // A host that is there decides for itself; one of an earlier host of its name is not its own.
        if let Some(host) = hosts.get_opt(name).await?
            && !owned::is_anothers(&image, host.metadata.uid.as_deref())
        {
            if let Some(why) = waits(&host) {
                let note = format!("The data image goes when the host {name} lets it go, {why}");
                let said = Said { reason: "DeletionWaits".to_owned(), note, warning: true };
                return context.recorder.publish(&said, &image.object_ref(&())).await;
            }
            return Ok(());
        }
        if media::release(&context.beside.data_images, client, &image).await? {
            return Ok(());
        }
    }
    Ok(())
}
