//! DataImages that are left without a host.

use std::sync::Arc;

use api::metal3::{BareMetalHost, DataImage};
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Duration, sleep};

use super::context::Context;
use super::media;

/// Pause before a DataImage that could not be released is looked at again.
const AGAIN: Duration = Duration::from_secs(30);

/// Releases DataImages whose host is gone, or was never there: nobody else would. Never returns.
pub async fn release_orphans(context: Arc<Context>, mut names: UnboundedReceiver<ObjectRef<DataImage>>) {
    while let Some(name) = names.recv().await {
        let (namespace, called) = (name.namespace.clone().unwrap_or_default(), name.name.clone());
        while let Err(error) = release_orphan(&context, &namespace, &called).await {
            tracing::warn!(namespace, name = called, %error, "release a DataImage without a host");
            sleep(AGAIN).await;
        }
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
        let Some(image) = images.get_opt(name).await?.filter(media::waits_for_a_host) else { return Ok(()) };
        // A host that is there decides for itself.
        if hosts.get_metadata_opt(name).await?.is_some() {
            return Ok(());
        }
        if media::release(&context.beside.data_images, client, &image).await? {
            return Ok(());
        }
    }
    Ok(())
}
