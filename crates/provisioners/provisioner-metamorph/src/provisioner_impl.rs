//! The provisioner object: shared state, the endpoints' routers, wake-ups.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent_protocol::{Afterwards, DISCOVERY_PROTOCOL, DiscoveryConfig};
use api::metal3::DiskFormat;
use async_trait::async_trait;
use axum::Router;
use bmc::Connectors;
use boot_media::{AgentKind, Architecture, MediumError};
use provisioner::{
    Capabilities, Failure, Host, HostContext, HostFacts, HostKey, Named, Provisioner, Recorded, WakeUps, Waker,
};
use tokio::task::JoinSet;
use tokio::time::Duration;

use crate::agent_images::AgentImages;
use crate::data::Data;
use crate::ear::Ears;
use crate::endpoint;
use crate::host::{NativeHost, Shared, Subjects};
use crate::hub::Hub;
use crate::ipa::{self, Ipa};
use crate::live::{Live, Restart};
use crate::media::{self, MediaStore, Place};
use crate::name::NAME;
use crate::networks::bases_for;
use crate::places::Places;
use crate::settings::Settings;

/// How long the end of a session may take when the server stops.
const PARTING: Duration = Duration::from_secs(5);

/// The native provisioner.
pub struct NativeProvisioner {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    ipa: Arc<Ipa>,
}

impl NativeProvisioner {
    /// A provisioner over agent images, reaching BMCs through the `connectors`.
    #[must_use]
    pub fn new(settings: Settings, images: AgentImages, connectors: Connectors) -> Self {
        let waker = Arc::new(Waker::default());
        let shared = Shared {
            hub: Hub::new(
                Arc::clone(&waker),
                settings.timing.agent_silence,
                settings.timing.reconnect,
                Arc::clone(&settings.may_act),
            ),
            media: MediaStore::new(images),
            connectors,
            live: Live::default(),
            places: Places::new(settings.provisioning_limit, Arc::clone(&waker)),
            ears: Ears::new(Arc::clone(&waker)),
            subjects: Subjects::default(),
            settings,
        };
        let ipa = Ipa::new(Arc::clone(&shared.hub), shared.settings.keys.clone());
        Self { shared: Arc::new(shared), waker, ipa }
    }

    /// Routes of the agent endpoint; to be served over TLS with the certificate that the settings name, and with the peer's address
    /// ([`axum::extract::ConnectInfo`]), without which no ironic-python-agent is heard.
    pub fn agent_router(&self) -> Router {
        endpoint::agent_router(Arc::clone(&self.shared)).merge(ipa::router(Arc::clone(&self.ipa)))
    }

    /// Routes of the media endpoint, for BMCs.
    pub fn media_router(&self) -> Router {
        endpoint::media_router(Arc::clone(&self.shared))
    }

    /// Offers the medium of a HostDiscovery, which `key` names, in place of the one before: its addresses, for each architecture that there is an image with
    /// our agent for. The same arguments give the same medium, while key, agent image and this server's addresses are the same.
    ///
    /// # Errors
    /// When it cannot be composed.
    pub fn offer_discovery(
        &self,
        key: &HostKey,
        revision: u32,
        (afterwards, stay_minutes): (Afterwards, u32),
    ) -> Result<Vec<(Architecture, Vec<String>)>, MediumError> {
        let settings = &self.shared.settings;
        // Its machines may be anywhere in the namespace: no BMC's address is known yet.
        let bases = bases_for(&settings.bases, &settings.networks, &key.namespace, None);
        let root = settings.keys.current();
        let config = DiscoveryConfig {
            protocol: DISCOVERY_PROTOCOL,
            discovery: format!("{}/{}", key.namespace, key.name),
            token: boot_media::derive::discovery_credential(&root.secret, &key.uid, revision.into()),
            endpoints: media::sharded(&bases),
            server_certificate_sha256: root.certificate_sha256.clone(),
            afterwards,
            stay_minutes,
        };
        let place = Place { settings, key, bases: &bases, root: &root };
        let offered = self.shared.media.offer_discovery(&place, revision.into(), &config)?;
        Ok(offered.into_iter().map(|(architecture, offered)| (architecture, offered.urls)).collect())
    }

    /// Withdraws the medium of the HostDiscovery with this uid.
    pub fn withdraw_discovery(&self, uid: &str) {
        self.shared.media.withdraw_discovery(uid);
    }

    /// The HostDiscovery, by its uid, and the revision of whose medium this is the token.
    #[must_use]
    pub fn discovery_holder<'a>(&self, credential: &'a str) -> Option<(&'a str, u64)> {
        self.shared.settings.keys.discovery_holder(credential)
    }

    /// What it can do beside the basics, with the agent images that it has.
    #[must_use]
    pub fn served(&self) -> Capabilities {
        let images = self.shared.media.images();
        let able = match images.agent() {
            AgentKind::Metamorph => capabilities(),
            AgentKind::IronicPythonAgent => with_ironic_python_agent(),
        };
        Capabilities { architectures: images.architectures().iter().map(ToString::to_string).collect(), ..able }
    }

    /// Bytes of media that have been asked for and answered with since this process began.
    pub fn media_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.media.sent)
    }
}

/// What this provisioner can do beside the basics, whatever its settings. Of the architectures, a server boots those that it has agent images for
/// ([`NativeProvisioner::served`]).
#[must_use]
pub fn capabilities() -> Capabilities {
    Capabilities {
        proves_identity: true,
        marks_disks: true,
        architectures: Architecture::ALL.iter().map(ToString::to_string).collect(),
        secure_boot: true,
        live_iso: true,
        data_images: true,
        events: true,
        firmware_settings: true,
        firmware_components: true,
        health: true,
        service: true,
        fast_inspection: true,
        erase: true,
        logs: true,
        locate: true,
        diagnose: true,
        test_medium: true,
        image_formats: vec![DiskFormat::Qcow2, DiskFormat::Raw],
        image_schemes: ["http", "https", "oci"].map(ToOwned::to_owned).to_vec(),
        ..Capabilities::default()
    }
}

/// The same where machines boot ironic-python-agent: it reads and writes no marks of owners, tells nothing of Secure Boot, erases without a report of each
/// disk, and reads images over HTTP only; and it has hardware managers, whose steps are run by name.
fn with_ironic_python_agent() -> Capabilities {
    Capabilities {
        marks_disks: false,
        secure_boot: false,
        erase: false,
        steps: true,
        image_schemes: ["http", "https"].map(ToOwned::to_owned).to_vec(),
        ..capabilities()
    }
}

/// Why a host with this BMC address cannot be registered, a sentence; `None` if the address gives no reason.
#[must_use]
pub fn address_fault(address: &str) -> Option<String> {
    bmc::Address::parse(address).err().map(|error| error.to_string())
}

impl Named for NativeProvisioner {
    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl Provisioner for NativeProvisioner {
    /// The same for each host: what a BMC lacks is said by the BMC's own capabilities when it is first reached.
    fn capabilities(&self, _: &HostFacts) -> Capabilities {
        self.served()
    }

    /// The uid of the host that was registered first, which a host that is restored with its status keeps.
    fn made(&self, id: &str) -> bool {
        let groups: Vec<&str> = id.split('-').collect();
        groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
            && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }

    fn machine_key(&self, address: &str) -> Option<String> {
        let address = bmc::Address::parse(address).ok()?;
        Some(format!("{}{}", address.key(), address.system_path().unwrap_or_default()))
    }

    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        Ok(Box::new(NativeHost::new(Arc::clone(&self.shared), context)?))
    }

    fn has_news(&self, key: &HostKey) -> bool {
        self.shared.hub.has_news(&self.shared.subjects.known(&key.uid))
    }

    fn acknowledge_news(&self, key: &HostKey) {
        self.shared.hub.acknowledge_news(&self.shared.subjects.known(&key.uid));
    }

    fn restart_is_noted(&self, key: &HostKey) {
        self.shared.live.host(&key.uid).timers().restart = Restart::Over;
    }

    fn subscribe(&self) -> WakeUps {
        self.waker.subscribe()
    }

    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        // An unreadable record is reported by the host's next call.
        let Ok(data) = Data::read(recorded) else { return };
        let key = self.shared.subjects.of(key, &data.proved_subject(key, &self.shared.settings.keys));
        self.shared.hub.expect(&key, data.boot.as_ref());
    }

    fn forget(&self, key: &HostKey) {
        let shared = &self.shared;
        if let Some(subject) = shared.subjects.forget(&key.uid) {
            shared.media.withdraw(&subject);
            shared.media.withdraw_test(&subject);
            shared.hub.forget(&subject);
        }
        if let Some(live) = shared.live.forget(&key.uid) {
            // A BMC that does not answer ends the session by its own time-out.
            tokio::spawn(async move { live.close().await });
        }
    }

    async fn close(&self) {
        let mut closing = JoinSet::new();
        for host in self.shared.live.all() {
            closing.spawn(async move { tokio::time::timeout(PARTING, host.close()).await });
        }
        while let Some(closed) = closing.join_next().await {
            if !matches!(closed, Ok(Ok(()))) {
                tracing::warn!("a BMC does not let its session be ended; it is ended at the next start");
            }
        }
    }
}
