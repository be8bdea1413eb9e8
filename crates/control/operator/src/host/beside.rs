//! The objects beside hosts, of their firmware and their data image: one watch per kind shows them, and the life cycle's decisions are written to them.
//!
//! Each has its host's name. One that is being deleted, or that another host of that name owns, is not this host's: it was meant for another
//! machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::metal3::{
    BareMetalHost, DataImage, FirmwareSchema, HostFirmwareComponents, HostFirmwareComponentsSpec, HostFirmwareSettings,
    HostFirmwareSettingsSpec, HostUpdatePolicy, ProvisioningState as State,
};
use host_lifecycle::{ChildWrite, Children, Served, Targets};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt as _};
use std::fmt::Debug;

use super::media;
use super::objects::Objects;
use super::owned::{Failed, Refusal, create, get, is_anothers, is_unchanged, owner, put_status, refusal, take};
use super::schema_owners::SchemaOwners;

/// How soon a write that the Kubernetes API refused is retried.
const AGAIN: Duration = Duration::from_secs(300);
/// The same, where the refusal may be a moment's fault.
const SOON: Duration = Duration::from_secs(30);
/// What is attempted before a wish is handed over.
const WISHED: &str = "read what is wished of the firmware again";
/// Longest part of an API server's message that is reported, bytes.
const MAX_MESSAGE: usize = 512;

/// How long a machine in use waits for a refusal to pass.
const PATIENCE: Duration = Duration::from_secs(120);

/// The writes that the Kubernetes API has refused.
type Refusals = HashMap<Object, Refused>;

/// A write that the Kubernetes API has refused, and did not take since.
#[derive(Clone, Copy, Debug)]
struct Refused {
    /// When it refused it first.
    since: Timestamp,
    /// When it refused it last.
    last: Timestamp,
    /// How.
    refusal: Refusal,
}

impl Refused {
    /// Whether a machine in use has waited long enough for it.
    fn is_lasting(&self, now: Timestamp) -> bool {
        self.refusal == Refusal::Definite || passed(self.since, now) >= PATIENCE
    }

    /// Whether it is too early to try again.
    fn is_recent(&self, now: Timestamp) -> bool {
        passed(self.last, now) < pause(self.refusal)
    }
}

fn passed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// What is known of the objects beside all hosts.
#[derive(Default)]
pub struct Beside {
    /// Settings of firmware.
    pub settings: Objects<HostFirmwareSettings>,
    /// What settings may be.
    pub schemas: Objects<FirmwareSchema>,
    schema_owners: SchemaOwners,
    /// Versions of firmware.
    pub components: Objects<HostFirmwareComponents>,
    /// When the firmware of provisioned hosts may be changed.
    pub policies: Objects<HostUpdatePolicy>,
    /// Media that provisioned hosts are shown.
    pub data_images: Objects<DataImage>,
    /// When the firmware of each host, by its uid, was last read, and for which wishes.
    read: Mutex<HashMap<String, (Timestamp, Wishes)>>,
    /// When each host, by its uid, was last asked for its medium, and for which version of its DataImage.
    seen: Mutex<HashMap<String, (Timestamp, media::Wish)>>,
    /// By host uid, the refused writes.
    refused: Mutex<HashMap<String, Refusals>>,
}

/// An object beside a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// The HostFirmwareSettings, with their FirmwareSchema.
    Settings,
    /// The HostFirmwareComponents.
    Components,
    /// The HostUpdatePolicy.
    Policy,
    /// The DataImage.
    DataImage,
}

impl Object {
    /// The object that is written; `None` for kinds that this server does not write.
    const fn of(write: &ChildWrite) -> Option<Self> {
        match write {
            ChildWrite::OwnFirmwareSettings | ChildWrite::FirmwareSchema { .. } | ChildWrite::FirmwareSettings(_) => {
                Some(Self::Settings)
            }
            ChildWrite::OwnFirmwareComponents | ChildWrite::FirmwareComponents(_) => Some(Self::Components),
            ChildWrite::OwnUpdatePolicy => Some(Self::Policy),
            ChildWrite::HoldDataImage | ChildWrite::DataImage(_) | ChildWrite::ReleaseDataImage => {
                Some(Self::DataImage)
            }
            _ => None,
        }
    }
}

/// Generations of HostFirmwareSettings and HostFirmwareComponents.
type Wishes = [Option<i64>; 2];

/// The objects beside one host.
#[derive(Clone, Debug, Default)]
pub struct Found {
    settings: Option<Arc<HostFirmwareSettings>>,
    schema: Option<Arc<FirmwareSchema>>,
    components: Option<Arc<HostFirmwareComponents>>,
    policy: Option<Arc<HostUpdatePolicy>>,
    pub(super) data_image: Option<Arc<DataImage>>,
    /// When the host's firmware was last read.
    pub read: Option<Timestamp>,
    /// Whether it was for these wishes.
    pub tried: bool,
    /// When the BMC was last asked for the medium of this DataImage.
    pub media_seen: Option<Timestamp>,
}

/// Result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is written.
    Done,
    /// An object has changed since it was read and has to be decided on again.
    Conflict,
    /// The Kubernetes API refuses it, for a quota or an admission webhook, say: a sentence. The host goes on without it for a while.
    Refused(String),
    /// This server does not write such objects.
    Unserved,
}

impl Written {
    const fn of(done: bool) -> Self {
        if done { Self::Done } else { Self::Conflict }
    }
}

/// Versions of the objects that wish something: settings, components, policy, data image.
pub type Versions = [Option<String>; 4];

impl Found {
    /// As decisions are made from them.
    pub fn children(&self) -> Children<'_> {
        Children {
            firmware_settings: self.settings.as_deref(),
            firmware_schema: self.schema.as_deref(),
            firmware_components: self.components.as_deref(),
            update_policy: self.policy.as_deref(),
            data_image: self.data_image.as_deref(),
            ..Children::default()
        }
    }

    fn firmware_wishes(&self) -> Wishes {
        let settings = self.settings.as_ref().and_then(|object| object.metadata.generation);
        [settings, self.components.as_ref().and_then(|object| object.metadata.generation)]
    }

    /// Whether the object wishes something of the firmware.
    fn wishes(&self, object: Object) -> bool {
        match object {
            Object::Settings => self.settings.as_ref().is_some_and(|object| !object.spec.settings.is_empty()),
            Object::Components => self.components.as_ref().is_some_and(|object| !object.spec.updates.is_empty()),
            Object::Policy => self.policy.as_ref().is_some_and(|object| object.spec != Default::default()),
            Object::DataImage => false,
        }
    }

    /// Which they are.
    pub fn versions(&self) -> Versions {
        [
            version(self.settings.as_ref()),
            version(self.components.as_ref()),
            version(self.policy.as_ref()),
            version(self.data_image.as_ref()),
        ]
    }
}

/// How long an object is left alone after a refusal.
const fn pause(refusal: Refusal) -> Duration {
    match refusal {
        Refusal::Definite => AGAIN,
        Refusal::Passing => SOON,
    }
}

/// Whether the host waits for a refused object that `wishes` something: nothing is written to a machine, nor is it booted, without what is wished of its
/// firmware. A machine in use, which may be off for a restart, does not wait for what somebody has to put right first.
fn is_held_for(host: &BareMetalHost, refused: &Refused, now: Timestamp, wishes: impl FnOnce() -> bool) -> bool {
    let is_empty = !matches!(
        host.state(),
        State::Provisioned
            | State::ExternallyProvisioned
            | State::Deprovisioning
            | State::PoweringOffBeforeDelete
            | State::Deleting
    );
    host.metadata.deletion_timestamp.is_none() && (is_empty || !refused.is_lasting(now)) && wishes()
}

fn version<K: Resource<DynamicType = ()>>(object: Option<&Arc<K>>) -> Option<String> {
    object.and_then(|object| object.resource_version())
}

/// The object, unless it is being deleted or belongs to another host.
fn if_owned<K: Resource<DynamicType = ()>>(object: Option<Arc<K>>, host: &BareMetalHost) -> Option<Arc<K>> {
    object.filter(|object| {
        object.meta().deletion_timestamp.is_none() && !is_anothers(object.as_ref(), host.metadata.uid.as_deref())
    })
}

/// The object as far as it is known without a call: a refused write leaves in doubt what is there, and the watch still shows it.
fn shown<K>(objects: &Objects<K>, key: &ObjectRef<K>, host: &BareMetalHost) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    if_owned(objects.cached(key).or_else(|| objects.watched(key)).flatten(), host)
}

impl Beside {
    /// The versions of firmware of this host, as the watch shows them.
    pub fn components_of(&self, host: &BareMetalHost) -> Option<Arc<HostFirmwareComponents>> {
        let key = ObjectRef::new(&host.name_any()).within(&host.namespace().unwrap_or_default());
        let object = self.components.store()?.get(&key).filter(|object| !self.components.marks().hold(object.as_ref()));
        if_owned(object, host)
    }

    fn times(&self) -> MutexGuard<'_, HashMap<String, (Timestamp, Wishes)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the host's firmware was read, or that this was attempted.
    pub fn was_read(&self, uid: &str, found: &mut Found, now: Timestamp) {
        self.times().insert(uid.to_owned(), (now, found.firmware_wishes()));
        (found.read, found.tried) = (Some(now), true);
    }

    /// Notes that the BMC was asked for the medium of this DataImage, or that this was attempted.
    pub fn media_was_seen(&self, uid: &str, found: &mut Found, now: Timestamp) {
        let Some(image) = found.data_image.as_deref() else { return };
        self.sights().insert(uid.to_owned(), (now, media::wish(image)));
        found.media_seen = Some(now);
    }

    fn sights(&self) -> MutexGuard<'_, HashMap<String, (Timestamp, media::Wish)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str, namespace: &str, name: &str) {
        self.times().remove(uid);
        self.refusals().remove(uid);
        self.sights().remove(uid);
        self.data_images.forget(&ObjectRef::new(name).within(namespace));
        self.settings.forget(&ObjectRef::new(name).within(namespace));
        self.components.forget(&ObjectRef::new(name).within(namespace));
        self.policies.forget(&ObjectRef::new(name).within(namespace));
    }

    /// Waits until the watches of all installed kinds are in step.
    pub async fn in_step(&self) {
        self.settings.listed().await;
        self.schemas.listed().await;
        self.components.listed().await;
        self.policies.listed().await;
        self.data_images.listed().await;
    }

    /// What of this can be served: a kind that is not installed carries no wishes.
    pub fn served(&self, all: Served) -> Served {
        let settings = all.firmware_settings && !self.settings.is_absent() && !self.schemas.is_absent();
        let has_components = !self.components.is_absent();
        let service = all.service && !self.policies.is_absent();
        let (components, updates) = (all.firmware_components && has_components, all.firmware_updates && has_components);
        let data_images = all.data_images && !self.data_images.is_absent();
        Served {
            data_images,
            firmware_settings: settings,
            firmware_components: components,
            firmware_updates: updates,
            service,
            ..all
        }
    }

    /// Like [`Self::served`], for one host: without the objects that are left alone.
    pub fn served_of(&self, all: Served, host: &BareMetalHost, now: Timestamp) -> Served {
        let all = self.served(all);
        let left_alone = self.left_alone(host, now);
        let is_open = |object: Object| !left_alone.contains(&object);
        let (settings, components, policy) =
            (is_open(Object::Settings), is_open(Object::Components), is_open(Object::Policy));
        Served {
            firmware_settings: all.firmware_settings && settings,
            firmware_components: all.firmware_components && components,
            firmware_updates: all.firmware_updates && components,
            service: all.service && policy,
            data_images: all.data_images && is_open(Object::DataImage),
            ..all
        }
    }

    /// Objects of the host whose writes the Kubernetes API has lately refused, and without which the host goes on.
    fn left_alone(&self, host: &BareMetalHost, now: Timestamp) -> Vec<Object> {
        let refused = self.refusals();
        let of_host = refused.get(host.metadata.uid.as_deref().unwrap_or_default()).into_iter().flatten();
        let left = of_host.filter(|(object, refused)| {
            refused.is_recent(now) && !is_held_for(host, refused, now, || self.wishes(host, **object))
        });
        left.map(|(object, _)| *object).collect()
    }

    /// Whether the object is known, or seen by its watch, to wish something.
    fn wishes(&self, host: &BareMetalHost, object: Object) -> bool {
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        let found = Found {
            settings: shown(&self.settings, &ObjectRef::new(&name).within(&namespace), host),
            components: shown(&self.components, &ObjectRef::new(&name).within(&namespace), host),
            policy: shown(&self.policies, &ObjectRef::new(&name).within(&namespace), host),
            ..Found::default()
        };
        found.wishes(object)
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<String, Refusals>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects beside a host, as the watches show them and this process has written them; what is not known is read. For what is not served, the
    /// watches suffice.
    pub async fn read(
        &self,
        client: &Client,
        host: &BareMetalHost,
        served: &Served,
        now: Timestamp,
    ) -> Result<Found, Failed> {
        let left_alone = self.left_alone(host, now);
        let is_read = |object: Object| !left_alone.contains(&object);
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        let settings = get(&self.settings, client, &namespace, &name, served.firmware_settings).await;
        let settings = if_owned(settings.map_err(Failed::of("read the HostFirmwareSettings"))?, host);
        let settings = settings.filter(|_| is_read(Object::Settings));
        let components = get(&self.components, client, &namespace, &name, served.reads_components()).await;
        let components = if_owned(components.map_err(Failed::of("read the HostFirmwareComponents"))?, host);
        let components = components.filter(|_| is_read(Object::Components));
        let policy = get(&self.policies, client, &namespace, &name, served.service).await;
        let policy = if_owned(policy.map_err(Failed::of("read the HostUpdatePolicy"))?, host);
        let policy = policy.filter(|_| is_read(Object::Policy));
        let data_image = get(&self.data_images, client, &namespace, &name, served.data_images).await;
        let data_image = data_image.map_err(Failed::of("read the DataImage"))?;
        // One that is being deleted is the host's until what it asked for is undone.
        let data_image = data_image
            .filter(|image| is_read(Object::DataImage) && !is_anothers(image.as_ref(), host.metadata.uid.as_deref()));
        let named = settings.as_ref().and_then(|settings| settings.status.as_ref()?.schema.as_ref());
        let schema = match named.filter(|named| named.namespace == namespace && !named.name.is_empty()) {
            Some(named) => {
                let schema = get(&self.schemas, client, &namespace, &named.name, served.firmware_settings).await;
                schema.map_err(Failed::of("read the FirmwareSchema"))?
            }
            None => None,
        };
        let schema = schema.filter(|schema| schema.metadata.deletion_timestamp.is_none());
        let uid = host.metadata.uid.as_deref().unwrap_or_default();
        let tried = self.times().get(uid).copied();
        let seen = self.sights().get(uid).cloned();
        let is_of = |wish: &media::Wish| data_image.as_deref().is_some_and(|image| media::wish(image) == *wish);
        let media_seen = seen.filter(|(_, wish)| is_of(wish)).map(|(time, _)| time);
        let read = tried.map(|(time, _)| time);
        let mut found = Found { settings, schema, components, policy, data_image, read, tried: false, media_seen };
        found.tried = tried.is_some_and(|(_, wishes)| wishes == found.firmware_wishes());
        Ok(found)
    }

    /// Their versions, if they are known without a call.
    pub fn versions(&self, host: &BareMetalHost) -> Option<Versions> {
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        Some([
            version(if_owned(self.settings.cached(&ObjectRef::new(&name).within(&namespace))?, host).as_ref()),
            version(if_owned(self.components.cached(&ObjectRef::new(&name).within(&namespace))?, host).as_ref()),
            version(if_owned(self.policies.cached(&ObjectRef::new(&name).within(&namespace))?, host).as_ref()),
            version(
                self.data_images
                    .cached(&ObjectRef::new(&name).within(&namespace))?
                    .filter(|image| !is_anothers(image.as_ref(), host.metadata.uid.as_deref()))
                    .as_ref(),
            ),
        ])
    }

    /// Whether the objects behind `targets` still have the same versions, read from the API because the watches may be stale. With `service`, the
    /// policy counts too.
    pub async fn are_as_decided(
        &self,
        client: &Client,
        found: &Found,
        targets: &Targets,
        service: bool,
    ) -> Result<bool, Failed> {
        let mut same = true;
        if let Some(settings) = found.settings.as_deref().filter(|_| targets.settings.is_some()) {
            same &= is_unchanged(&self.settings, client, settings, WISHED).await?;
        }
        if let Some(components) = found.components.as_deref().filter(|_| !targets.updates.is_empty()) {
            same &= is_unchanged(&self.components, client, components, WISHED).await?;
        }
        if let Some(policy) = found.policy.as_deref().filter(|_| service) {
            same &= is_unchanged(&self.policies, client, policy, WISHED).await?;
        }
        Ok(same)
    }

    /// Whether the DataImage still has the same version, read from the API because the watch may be stale.
    pub async fn has_decided_medium(&self, client: &Client, found: &Found) -> Result<bool, Failed> {
        match found.data_image.as_deref() {
            Some(image) => is_unchanged(&self.data_images, client, image, "read the DataImage again").await,
            None => Ok(false),
        }
    }

    /// Carries out a write that a change of the host contains. A refusal is reported, and the write is not retried for a while; where the object wishes
    /// something that the host must not go on without, it is an error.
    pub async fn write(
        &self,
        client: &Client,
        host: &BareMetalHost,
        found: &mut Found,
        write: &ChildWrite,
        now: Timestamp,
    ) -> Result<Written, Failed> {
        let uid = host.metadata.uid.clone().unwrap_or_default();
        let (Failed { attempt, source }, object) =
            match (self.try_write(client, host, found, write).await, Object::of(write)) {
                (Err(failed), Some(object)) => (failed, object),
                (Ok(written), Some(object)) => {
                    if let Some(refused) = self.refusals().get_mut(&uid) {
                        refused.remove(&object);
                    }
                    return Ok(written);
                }
                (written, None) => return written,
            };
        let Some(refusal) = refusal(&source) else { return Err(Failed { attempt, source }) };
        let refused = {
            let mut refusals = self.refusals();
            let known = refusals.entry(uid).or_default().entry(object);
            *known.and_modify(|known| (known.last, known.refusal) = (now, refusal)).or_insert(Refused {
                since: now,
                last: now,
                refusal,
            })
        };
        if is_held_for(host, &refused, now, || found.wishes(object)) {
            return Err(Failed { attempt, source });
        }
        let words = source.to_string();
        let end = words.floor_char_boundary(MAX_MESSAGE);
        Ok(Written::Refused(format!(
            "The Kubernetes API refuses to {attempt}: {} — the host goes on without it, and it is tried again in {} s",
            words.get(..end).unwrap_or_default(),
            pause(refusal).as_secs()
        )))
    }

    async fn try_write(
        &self,
        client: &Client,
        host: &BareMetalHost,
        found: &mut Found,
        write: &ChildWrite,
    ) -> Result<Written, Failed> {
        let namespace = host.namespace().unwrap_or_default();
        let done = match write {
            ChildWrite::OwnFirmwareSettings => self.ensure_settings(client, host, found).await?,
            ChildWrite::OwnFirmwareComponents => self.ensure_components(client, host, found).await?,
            ChildWrite::OwnUpdatePolicy => {
                let Some(policy) = found.policy.as_deref() else { return Ok(Written::Conflict) };
                found.policy = take(&self.policies, client, policy, owner(host), "take the HostUpdatePolicy").await?;
                found.policy.is_some()
            }
            ChildWrite::FirmwareSchema { name, spec } => {
                self.ensure_settings(client, host, found).await?;
                let Some(settings) = found.settings.as_deref() else { return Ok(Written::Conflict) };
                let key = ObjectRef::new(name).within(&namespace);
                self.schema_owners.join(&self.schemas, client, &key, spec, owner(settings)).await?
            }
            ChildWrite::FirmwareSettings(status) => {
                self.ensure_settings(client, host, found).await?;
                let Some(settings) = found.settings.as_deref() else { return Ok(Written::Conflict) };
                let object = HostFirmwareSettings { status: Some((**status).clone()), ..settings.clone() };
                let attempt = "write the status of the HostFirmwareSettings";
                found.settings = put_status(&self.settings, client, &object).await.map_err(Failed::of(attempt))?;
                found.settings.is_some()
            }
            ChildWrite::FirmwareComponents(status) => {
                self.ensure_components(client, host, found).await?;
                let Some(components) = found.components.as_deref() else { return Ok(Written::Conflict) };
                let object = HostFirmwareComponents { status: Some((**status).clone()), ..components.clone() };
                let attempt = "write the status of the HostFirmwareComponents";
                found.components = put_status(&self.components, client, &object).await.map_err(Failed::of(attempt))?;
                found.components.is_some()
            }
            ChildWrite::HoldDataImage | ChildWrite::DataImage(_) | ChildWrite::ReleaseDataImage => {
                let Some(image) = found.data_image.as_deref() else { return Ok(Written::Conflict) };
                let (written, there) = media::write(&self.data_images, client, host, image, write).await?;
                found.data_image = there;
                written
            }
            // Boot images are never served here, so no decision writes them.
            ChildWrite::BootImage(_) | ChildWrite::ReleaseBootImage => return Ok(Written::Unserved),
        };
        Ok(Written::of(done))
    }

    async fn ensure_settings(&self, client: &Client, host: &BareMetalHost, found: &mut Found) -> Result<bool, Failed> {
        found.settings = match found.settings.as_deref() {
            Some(settings) => {
                take(&self.settings, client, settings, owner(host), "take the HostFirmwareSettings").await?
            }
            None => {
                let new = HostFirmwareSettings::new(&host.name_any(), HostFirmwareSettingsSpec::default());
                Some(create(&self.settings, client, host, new, "create the HostFirmwareSettings").await?)
            }
        };
        Ok(found.settings.is_some())
    }

    async fn ensure_components(
        &self,
        client: &Client,
        host: &BareMetalHost,
        found: &mut Found,
    ) -> Result<bool, Failed> {
        found.components = match found.components.as_deref() {
            Some(components) => {
                take(&self.components, client, components, owner(host), "take the HostFirmwareComponents").await?
            }
            None => {
                let new = HostFirmwareComponents::new(&host.name_any(), HostFirmwareComponentsSpec::default());
                Some(create(&self.components, client, host, new, "create the HostFirmwareComponents").await?)
            }
        };
        Ok(found.components.is_some())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    #[test]
    fn what_another_host_of_the_name_wished_is_not_this_hosts() {
        let mut host = BareMetalHost::new("a", Default::default());
        host.metadata.uid = Some("new".into());
        let of =
            |uid: &str| OwnerReference { kind: "BareMetalHost".into(), uid: uid.into(), ..OwnerReference::default() };
        let settings = |owners: Vec<OwnerReference>| {
            let mut object = HostFirmwareSettings::new("a", HostFirmwareSettingsSpec::default());
            object.metadata.owner_references = Some(owners);
            Some(Arc::new(object))
        };
        let set = OwnerReference { kind: "ConfigMap".into(), uid: "set".into(), ..OwnerReference::default() };
        for owners in [vec![], vec![of("new")], vec![of("old"), of("new")], vec![set.clone()]] {
            assert!(if_owned(settings(owners), &host).is_some());
        }
        for owners in [vec![of("old")], vec![of("old"), set]] {
            assert!(if_owned(settings(owners), &host).is_none());
        }
        let mut going = settings(vec![of("new")]).unwrap();
        Arc::make_mut(&mut going).metadata.deletion_timestamp = Some(api::Time(Timestamp::UNIX_EPOCH));
        assert!(if_owned(Some(going), &host).is_none());
    }
}
