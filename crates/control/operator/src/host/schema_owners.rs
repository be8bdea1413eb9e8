//! FirmwareSchemas and the HostFirmwareSettings that own them. Machines that are alike share one, by its name.
//!
//! A thousand hosts that begin at once would each write the same object, and each write but one would fail: whoever writes it adds all that wait.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::metal3::{FirmwareSchema, FirmwareSchemaSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::objects::Objects;
use super::owned::{Failed, has_moved_on, is_owner};
use super::turns::Turns;

/// Most owners of a schema, which keep it from being collected. One whose owners are all gone is made anew by the next host that needs it. An object of
/// all hosts of a large site would become too large for the Kubernetes API.
const MOST_OWNERS: usize = 1000;
const ATTEMPT: &str = "make the HostFirmwareSettings an owner of the FirmwareSchema";

type Key = ObjectRef<FirmwareSchema>;

/// Settings that wait to become owners of schemas.
#[derive(Default)]
pub struct SchemaOwners {
    waiting: Mutex<HashMap<Key, Vec<OwnerReference>>>,
    turns: Turns,
}

impl SchemaOwners {
    /// Makes the settings an owner of the schema, which is created if it is not there. False if somebody else has written it meanwhile.
    pub async fn join(
        &self,
        schemas: &Objects<FirmwareSchema>,
        client: &Client,
        key: &Key,
        spec: &FirmwareSchemaSpec,
        owner: OwnerReference,
    ) -> Result<bool, Failed> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let api: Api<FirmwareSchema> = Api::namespaced(client.clone(), namespace);
        self.wait(key, owner.clone());
        let _turn = self.turns.of(&format!("{namespace}/{}", key.name)).await;
        let waiting = self.take(key, &owner);
        let known = schemas.get(client, key).await.map_err(Failed::of("read the FirmwareSchema"))?;
        let Some(known) = known else {
            let mut new = FirmwareSchema::new(&key.name, spec.clone());
            new.metadata.namespace = Some(namespace.to_owned());
            new.metadata.owner_references = Some(waiting);
            let params = PostParams::default();
            return match schemas.writing(key, api.create(&params, &new)).await {
                Ok(_) => Ok(true),
                // Another server has created it meanwhile.
                Err(error) if has_moved_on(&error) => Ok(false),
                Err(error) => Err(Failed::of("create the FirmwareSchema")(error)),
            };
        };
        let places = MOST_OWNERS.saturating_sub(known.owner_references().len());
        if places == 0 || is_owner(&known.metadata, &owner) {
            return Ok(true);
        }
        let joining: Vec<_> =
            waiting.into_iter().filter(|owner| !is_owner(&known.metadata, owner)).take(places).collect();
        let patch = match &known.metadata.owner_references {
            Some(_) => {
                let adds = joining
                    .iter()
                    .map(|owner| json!({ "op": "add", "path": "/metadata/ownerReferences/-", "value": owner }));
                std::iter::once(json!({ "op": "test", "path": "/metadata/uid", "value": known.metadata.uid }))
                    .chain(adds)
                    .collect()
            }
            None => {
                json!([{ "op": "test", "path": "/metadata/resourceVersion", "value": known.metadata.resource_version },
                { "op": "add", "path": "/metadata/ownerReferences", "value": joining }])
            }
        };
        let patch =
            serde_json::from_value(patch).map_err(|error| Failed::of(ATTEMPT)(kube::Error::SerdeError(error)))?;
        let (params, patch) = (PatchParams::default(), Patch::<()>::Json(patch));
        match schemas.writing(key, api.patch(&key.name, &params, &patch)).await {
            Ok(_) => Ok(true),
            // 422 is a failed test of the patch: the object has changed.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(false),
            Err(error) => Err(Failed::of(ATTEMPT)(error)),
        }
    }

    fn wait(&self, key: &Key, owner: OwnerReference) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(key.clone()).or_default().push(owner);
    }

    /// The owner, and those that wait with it; no more than a schema may have.
    fn take(&self, key: &Key, owner: &OwnerReference) -> Vec<OwnerReference> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default();
        let mut taken = vec![owner.clone()];
        for owner in waiting {
            if taken.len() < MOST_OWNERS && taken.iter().all(|known| known.uid != owner.uid) {
                taken.push(owner);
            }
        }
        taken
    }
}
