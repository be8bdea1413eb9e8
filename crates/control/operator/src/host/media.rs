//! DataImages: what is written to them beside their hosts.

use std::sync::Arc;

use api::metal3::{BareMetalHost, DataImage, finalizer};
use host_lifecycle::ChildWrite;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::objects::Objects;
use super::owned::{Failed, has_moved_on, is_owner, owner, put_status};

/// What a DataImage asks for: its uid, its generation, and whether it is being deleted.
pub type Wish = (Option<String>, Option<i64>, bool);

/// What this DataImage asks for.
pub fn wish(image: &DataImage) -> Wish {
    let metadata = &image.metadata;
    (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some())
}

/// Carries out a write to the version that was read. Returns whether it is done, and the object as it is then.
pub async fn write(
    objects: &Objects<DataImage>,
    client: &Client,
    host: &BareMetalHost,
    image: &DataImage,
    write: &ChildWrite,
) -> Result<(bool, Option<Arc<DataImage>>), Failed> {
    match write {
        ChildWrite::DataImage(status) => {
            let object = DataImage { status: Some((**status).clone()), ..image.clone() };
            let written = put_status(objects, client, &object).await;
            let written = written.map_err(Failed::of("write the status of the DataImage"))?;
            Ok((written.is_some(), written))
        }
        ChildWrite::ReleaseDataImage => {
            let done = release(objects, client, image).await.map_err(Failed::of("release the DataImage"))?;
            Ok((done, None))
        }
        _ => {
            let held = hold(objects, client, host, image).await.map_err(Failed::of("take the DataImage"))?;
            Ok((held.is_some(), held))
        }
    }
}

/// Puts the finalizer on the DataImage and makes the host an owner; `None` if it has changed since.
async fn hold(
    objects: &Objects<DataImage>,
    client: &Client,
    host: &BareMetalHost,
    image: &DataImage,
) -> Result<Option<Arc<DataImage>>, kube::Error> {
    let (meta, owner) = (&image.metadata, owner(host));
    let mut owners = meta.owner_references.clone().unwrap_or_default();
    if !is_owner(meta, &owner) {
        owners.push(owner);
    }
    let mut finalizers = image.finalizers().to_vec();
    if !finalizers.iter().any(|held| held == finalizer::DATA_IMAGE) {
        finalizers.push(finalizer::DATA_IMAGE.to_owned());
    }
    let change = json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "ownerReferences": owners, "finalizers": finalizers } });
    let api: Api<DataImage> = Api::namespaced(client.clone(), &image.namespace().unwrap_or_default());
    let (name, params, patch) = (image.name_any(), PatchParams::default(), Patch::Merge(change));
    match objects.writing(&ObjectRef::from_obj(image), api.patch(&name, &params, &patch)).await {
        Ok(held) => Ok(Some(Arc::new(held))),
        Err(error) if has_moved_on(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the finalizer; false if the DataImage has changed since. One that is gone is released.
pub async fn release(objects: &Objects<DataImage>, client: &Client, image: &DataImage) -> Result<bool, kube::Error> {
    let rest: Vec<&String> = image.finalizers().iter().filter(|held| *held != finalizer::DATA_IMAGE).collect();
    let meta = &image.metadata;
    let change =
        json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": rest } });
    let api: Api<DataImage> = Api::namespaced(client.clone(), &image.namespace().unwrap_or_default());
    let (name, params, patch) = (image.name_any(), PatchParams::default(), Patch::Merge(change));
    let released = api.patch(&name, &params, &patch).await;
    objects.doubt(&ObjectRef::from_obj(image));
    match released {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) if has_moved_on(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the DataImage would wait for a host before it goes.
pub fn is_held(image: &DataImage) -> bool {
    image.finalizers().iter().any(|held| held == finalizer::DATA_IMAGE)
}
