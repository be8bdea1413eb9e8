//! DataImages that are left without a host.

use std::sync::Arc;

use api::metal3::{BareMetalHost, DataImage};
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use super::context::Context;
use super::{media, owned};

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
        if let Some(host) = hosts.get_metadata_opt(name).await?
            && !owned::is_anothers(&image, host.metadata.uid.as_deref())
        {
            return Ok(());
        }
        if media::release(&context.beside.data_images, client, &image).await? {
            return Ok(());
        }
    }
    Ok(())
}
