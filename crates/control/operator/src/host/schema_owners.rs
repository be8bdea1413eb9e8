//! FirmwareSchemas and the HostFirmwareSettings that own them. Machines that are alike share one, by its name.
//!
//! A thousand hosts that begin at once would each write the same object, and each write but one would fail: whoever writes it adds all that wait, and the
//! longer the list is, the longer it waits for more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::metal3::{FirmwareSchema, FirmwareSchemaSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::time::sleep;

use super::objects::Objects;
use super::owned::{Failed, has_moved_on, is_owner};
use super::turns::Turns;

/// Most owners of a schema, which keep it from being collected. One whose owners are all gone is made anew by the next host that needs it. An object of
/// all hosts of a large site would become too large for the Kubernetes API.
const MOST_OWNERS: usize = 1000;
const ATTEMPT: &str = "make the HostFirmwareSettings an owner of the FirmwareSchema";

/// Owners of a schema from which on a write of it waits for more of them.
const FEW_OWNERS: usize = 32;
/// Longest wait for more.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

type Key = ObjectRef<FirmwareSchema>;

/// How long a write waits for more owners of a schema that has so many: whoever writes it, stores it and looks for all its owners has the work of each of them.
fn pause(owners: usize) -> Duration {
    let millis = Duration::from_millis(owners.try_into().unwrap_or(u64::MAX));
    if owners < FEW_OWNERS { Duration::ZERO } else { millis.min(LONGEST_PAUSE) }
}

/// How many owners may still join a schema.
fn places(schema: &FirmwareSchema) -> usize {
    MOST_OWNERS.saturating_sub(schema.owner_references().len())
}

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
        let _waits = self.wait(key, &owner);
        let _turn = self.turns.of(&format!("{namespace}/{}", key.name)).await;
        let read = async || schemas.get(client, key).await.map_err(Failed::of("read the FirmwareSchema"));
        let is_done = |known: &FirmwareSchema| is_owner(&known.metadata, &owner) || places(known) == 0;
        let mut known = read().await?;
        // Whoever had the turn has written it.
        if known.as_deref().is_some_and(is_done) {
            return Ok(true);
        }
        let pause = known.as_ref().map_or(Duration::ZERO, |known| pause(known.owner_references().len()));
        if !pause.is_zero() {
            sleep(pause).await;
            known = read().await?;
        }
        if known.as_deref().is_some_and(is_done) {
            return Ok(true);
        }
        let waiting = self.waiting(key, &owner);
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
        let missing = waiting.into_iter().filter(|owner| !is_owner(&known.metadata, owner));
        let joining: Vec<_> = missing.take(places(&known)).collect();
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

    /// It waits until this is dropped, whatever comes of it.
    fn wait<'a>(&'a self, key: &'a Key, owner: &'a OwnerReference) -> Waits<'a> {
        self.lock().entry(key.clone()).or_default().push(owner.clone());
        Waits { all: self, key, owner }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<OwnerReference>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner, and those that wait with it; no more than a schema may have.
    fn waiting(&self, key: &Key, owner: &OwnerReference) -> Vec<OwnerReference> {
        let mut all = vec![owner.clone()];
        let mut seen = HashSet::from([owner.uid.clone()]);
        for other in self.lock().get(key).into_iter().flatten() {
            if all.len() < MOST_OWNERS && seen.insert(other.uid.clone()) {
                all.push(other.clone());
            }
        }
        all
    }
}

/// An owner that waits.
struct Waits<'a> {
    all: &'a SchemaOwners,
    key: &'a Key,
    owner: &'a OwnerReference,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(waiting) = all.get_mut(self.key) else { return };
        if let Some(place) = waiting.iter().position(|waiting| waiting.uid == self.owner.uid) {
            waiting.swap_remove(place);
        }
        if waiting.is_empty() {
            all.remove(self.key);
        }
    }
}
