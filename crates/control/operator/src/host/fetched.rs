//! A host with everything that decisions on it are made from.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use api::metal3::{BareMetalHost, BareMetalHostStatus, HardwareData, HardwareDataSpec, REPORTED_BY, annotation};
use api::metamorph::{AgentStep, EraseOptions, HostOperation};
use host_lifecycle::{Change, View, answered, erase_of, is_rebuild_of, named, steps_of};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};
use provisioner::{Capabilities, HostFacts, HostKey, Provisioner};

use super::beside::Found;
use super::cause;
use super::choice::{Choice, choose};
use super::context::Context;
use super::error::ReconcileError;
use super::facts;
use super::heard::Entry;
use super::looks::Seen;
use super::secrets::{FoundCredentials, HostSecrets};

/// Everything that is known of a host.
#[derive(Clone)]
pub struct Fetched {
    /// The host, without the cause behind the words of its error.
    pub host: Arc<BareMetalHost>,
    /// `status.errorMessage` as it is stored, where there is a cause in it.
    told: Option<String>,
    /// What its inspection has found.
    pub hardware_data: Option<Arc<HardwareData>>,
    /// The objects beside it.
    pub beside: Found,
    /// The BMC's.
    pub credentials: FoundCredentials,
    /// A request that has not ended asks for its rebuild.
    rebuild: bool,
    /// What a request that has not ended asks to be erased.
    erase: Option<EraseOptions>,
    /// Which steps of hardware managers such a request asks for.
    steps: Option<Vec<AgentStep>>,
    /// Versions of the BMC's Secret that held the same user and password.
    same_versions: Arc<Vec<String>>,
    /// The host's provisioner.
    pub choice: Choice,
    /// The server's settings, with what that provisioner serves for this host.
    settings: host_lifecycle::Settings,
    /// What is known of the host, as its provisioner is told.
    pub facts: Arc<HostFacts>,
    /// What has been heard of its work, as long as it is in the state in which that was.
    pub heard: Option<Entry>,
}

/// The capabilities that a host is decided by. Events are another controller's; the objects that ask for boot images are not read here, and each gets an
/// Event ([`crate::UNSERVED`]).
fn served(context: &Context, host: &BareMetalHost, capabilities: Capabilities) -> Capabilities {
    let read = Capabilities { events: false, boot_images: Vec::new(), ..capabilities };
    context.beside.served_of(read, host, context.settings.clock.now())
}

impl Fetched {
    /// The host and what belongs to it, as the watches show it and this process has written it; what is not known is read. `None` if the host was
    /// deleted.
    pub async fn read(context: &Context, namespace: &str, name: &str) -> Result<Option<Box<Self>>, ReconcileError> {
        let found = context.hosts.get(&context.client, &ObjectRef::new(name).within(namespace)).await;
        let Some(host) = found.map_err(ReconcileError::api("read the host"))? else {
            return Ok(None);
        };
        let (host, told) = cause::taken(host);
        let hardware_data = context.hardware_data.get(&context.client, &ObjectRef::new(name).within(namespace)).await;
        let hardware_data = hardware_data.map_err(ReconcileError::api("read the HardwareData"))?;
        let secrets = HostSecrets::new(context, &host);
        let credentials = secrets.credentials().await.map_err(ReconcileError::api("read the BMC's Secret"))?;
        let same_versions = match &credentials {
            FoundCredentials::Present(found) => match found.login() {
                Some(login) => {
                    let ObjectMeta { uid, resource_version, .. } = found.metadata();
                    let version = resource_version.as_deref().unwrap_or_default();
                    context.versions.note(uid.as_deref().unwrap_or_default(), version, &login.content)
                }
                None => Arc::default(),
            },
            _ => Arc::default(),
        };
        let choice = choose(context, &host).await?;
        let listens = context.listening().get(&host.uid().unwrap_or_default()).copied();
        let facts = Arc::new(HostFacts { listens, ..facts::facts(&host, hardware_data.as_deref()) });
        let mut settings = context.settings.lifecycle.clone();
        if let Ok(provisioner) = &choice {
            provisioner.learn(&facts);
            settings.served = served(context, &host, provisioner.capabilities(&facts));
        }
        let beside =
            context.beside.read(&context.client, &host, &settings.served, context.settings.clock.now()).await?;
        let now = context.settings.clock.now();
        let asked = asked_by(&context.client, &host, annotation::REBUILD).await;
        let asked = asked.map_err(ReconcileError::api("read the request to rebuild"))?;
        let rebuild = host.annotation(annotation::REBUILD);
        let rebuild = rebuild.is_some_and(|value| is_rebuild_of(value, asked.as_ref(), &host, now));
        let asked = asked_by(&context.client, &host, annotation::ERASE).await;
        let asked = asked.map_err(ReconcileError::api("read the request to erase"))?;
        let erase = host.annotation(annotation::ERASE);
        let erase = erase.and_then(|value| erase_of(value, asked.as_ref(), &host, now).cloned());
        let asked = asked_by(&context.client, &host, annotation::STEPS).await;
        let asked = asked.map_err(ReconcileError::api("read the request for steps"))?;
        let steps = host.annotation(annotation::STEPS);
        let steps = steps.and_then(|value| steps_of(value, asked.as_ref(), &host, now).map(<[_]>::to_vec));
        let heard = context.heard.known(&host.uid().unwrap_or_default(), host.state(), now);
        Ok(Some(Box::new(Self {
            host,
            told,
            hardware_data,
            beside,
            rebuild,
            erase,
            steps,
            credentials,
            same_versions,
            choice,
            settings,
            facts,
            heard,
        })))
    }

    /// The host's status as it is stored.
    pub fn stored(&self) -> Option<Cow<'_, BareMetalHostStatus>> {
        let mut status = self.host.status.as_ref().map(Cow::Borrowed);
        if let (Some(status), Some(told)) = (&mut status, &self.told) {
            status.to_mut().error_message.clone_from(told);
        }
        status
    }

    /// Takes in what has been heard of the host's work since.
    pub fn hear(&mut self, context: &Context) {
        let (uid, now) = (self.host.uid().unwrap_or_default(), context.settings.clock.now());
        self.heard = context.heard.known(&uid, self.host.state(), now);
    }

    /// What it was made from.
    pub fn seen(&self, context: &Context) -> Seen {
        let secret = match &self.credentials {
            FoundCredentials::Present(found) => Some(found.body().identity()),
            _ => None,
        };
        Seen {
            host: self.host.resource_version(),
            hardware_data: self.hardware_data.as_ref().and_then(|data| data.resource_version()),
            beside: self.beside.versions(),
            secret,
            news: has_news(context, self.key()),
        }
    }

    /// Whether a BMC's answer for one also holds for the other.
    pub fn asks_the_same_bmc(&self, other: &Self) -> bool {
        let secret = |fetched: &Self| match &fetched.credentials {
            FoundCredentials::Present(found) => Some(found.body().identity()),
            _ => None,
        };
        self.host.spec.bmc == other.host.spec.bmc && secret(self) == secret(other)
    }

    /// Applies the change, as if it had been written.
    pub fn becomes(&mut self, change: &Change) {
        let host = Arc::make_mut(&mut self.host);
        host.status = Some(change.status.clone());
        if let Some(architecture) = &change.set_architecture {
            host.spec.architecture = Some(architecture.clone());
        }
        for key in &change.remove_annotations {
            host.annotations_mut().remove(key);
        }
        self.rebuild &= host.annotation(annotation::REBUILD).is_some();
        self.erase = self.erase.take().filter(|_| host.annotation(annotation::ERASE).is_some());
        self.steps = self.steps.take().filter(|_| host.annotation(annotation::STEPS).is_some());
        if let Some(answer) = change.answer
            && let Some(request) = host.annotations_mut().get_mut(annotation::REQUEST)
        {
            *request = answered(request, answer);
        }
        if let Some(hardware) = &change.hardware_data {
            let spec = HardwareDataSpec { hardware: Some(Arc::new(hardware.hardware.clone())) };
            self.hardware_data = Some(Arc::new(HardwareData::new(&self.host.name_any(), spec)));
        }
    }

    /// What its inspection has found: not what its machine has told of itself, which is anybody's word.
    pub fn inspected(&self) -> Option<&HardwareData> {
        self.hardware_data.as_deref().filter(|data| !data.annotations().contains_key(REPORTED_BY))
    }

    /// Its identity.
    pub fn key(&self) -> &HostKey {
        &self.facts.key
    }

    /// The provisioner, if it has the one that it asks for.
    pub fn provisioner(&self) -> Option<&Arc<dyn Provisioner>> {
        self.choice.as_ref().ok()
    }

    /// The view that decisions are made from.
    pub fn view<'a>(&'a self, context: &'a Context) -> View<'a> {
        let credentials = match &self.credentials {
            FoundCredentials::NotNeeded => host_lifecycle::Credentials::NotNeeded,
            FoundCredentials::Missing { name } => host_lifecycle::Credentials::Missing { name },
            FoundCredentials::Forbidden { name } => host_lifecycle::Credentials::Forbidden { name },
            FoundCredentials::Invalid { name, what } => {
                host_lifecycle::Credentials::Invalid { name, what: what.clone() }
            }
            FoundCredentials::Present(found) => host_lifecycle::Credentials::Present {
                name: found.metadata().name.as_deref().unwrap_or_default(),
                namespace: found.metadata().namespace.as_deref().unwrap_or_default(),
                resource_version: found.metadata().resource_version.as_deref().unwrap_or_default(),
                same: &self.same_versions,
            },
        };
        View {
            host: &self.host,
            hardware_data: self.inspected().and_then(|data| data.spec.hardware.as_ref()),
            children: self.beside.children(),
            credentials,
            firmware_read: self.beside.read,
            firmware_tried: self.beside.tried,
            media_seen: self.beside.media_seen,
            health: context
                .health
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&self.key().uid)
                .copied()
                .unwrap_or_default(),
            news: self.provisioner().is_some_and(|provisioner| provisioner.has_news(self.key())),
            rebuild: self.rebuild,
            erase: self.erase.as_ref(),
            steps: self.steps.as_deref(),
            heard: Entry::of(self.heard.as_ref(), self.host.state()),
            settings: &self.settings,
            now: context.settings.clock.now(),
        }
    }
}

/// The request that the host's annotation of this key names.
pub(super) async fn asked_by(
    client: &Client,
    host: &BareMetalHost,
    key: &str,
) -> Result<Option<HostOperation>, kube::Error> {
    let Some((name, _)) = host.annotation(key).and_then(named) else { return Ok(None) };
    let requests = Api::<HostOperation>::namespaced(client.clone(), &host.namespace().unwrap_or_default());
    requests.get_opt(name).await
}

/// Whether any provisioner has news of the host.
pub fn has_news(context: &Context, key: &HostKey) -> bool {
    context.registry.iter().any(|provisioner| provisioner.has_news(key))
}
