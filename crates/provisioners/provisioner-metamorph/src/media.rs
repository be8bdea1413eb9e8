//! Media on offer: composed for a host and a boot generation, found by their derived address, served by range.
//!
//! The address is derived from a digest of all that goes into the medium, and the digest is recorded with the boot. After a restart of the
//! server the host controller offers the recorded medium again as soon as it has looked at the host, from the agent image of which it is
//! made, be it an earlier one; a BMC that asks before that is kept waiting, not turned away. A medium that can no longer be made (other
//! network data, endpoints, a key that was removed) is gone: its address answers nothing, never other bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use addresses::{PeerPlace, Peers};
use agent_protocol::{
    AgentNetwork, DISCOVERY_CONFIG_PATH, DiscoveryConfig, HOST_CONFIG_PATH, HostConfig, NetworkData, OLDEST_PROTOCOL,
};
use boot_media::{AgentKind, Architecture, HostFile, HostFiles, Medium, MediumError, derive};
use provisioner::HostKey;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Duration, Instant};

use crate::agent_images::AgentImages;
use crate::ipa;
use crate::keys::Key;
use crate::networks::Bases;
use crate::settings::Settings;

/// How long a BMC waits for a medium that is not on offer yet.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most requests that wait at once; more are turned away.
const MAX_WAITING: usize = 2048;
/// Most waiting requests of one peer (a whole IPv6 network, or all BMCs behind one NAT), so that requests for invented media leave places to
/// others.
const MAX_WAITING_OF_PEER: usize = 256;

/// A medium on offer.
pub struct Offer {
    /// Host.
    pub key: HostKey,
    /// Boot generation.
    pub generation: u64,
    /// The bytes.
    pub medium: Medium,
    /// Bytes served so far.
    pub served: AtomicU64,
    /// Requests so far.
    pub asked: AtomicU64,
    /// When a range was first given out, and when last.
    times: Mutex<Option<(Instant, Instant)>>,
    /// When it was first asked for, and from where.
    first_asked: Mutex<Option<(Instant, IpAddr)>>,
}

impl Offer {
    /// Somebody asks for it, or what it is.
    pub fn ask(&self, from: IpAddr) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first_asked.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| (Instant::now(), from));
    }

    /// A range of so many bytes is given out.
    pub fn give(&self, length: u64) {
        self.served.fetch_add(length, Ordering::Relaxed);
        let now = Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        *times = Some((times.map_or(now, |(first, _)| first), now));
    }
}

/// What has been read of a medium that is on offer, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferedReads {
    /// How much.
    pub counted: Reads,
    /// The first range.
    pub first: Option<Instant>,
    /// The last.
    pub last: Option<Instant>,
}

/// What has been read of a test medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestReads {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// The first request, and where it came from.
    pub first: Option<(Instant, IpAddr)>,
}

/// Where a medium is, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its addresses for BMCs, in the order in which they are to be tried.
    pub urls: Vec<String>,
    /// SHA-256 of all that its bytes depend on, lower-case hex.
    pub digest: String,
}

/// For which host a medium is, and at which addresses.
pub struct Place<'a> {
    /// Settings.
    pub settings: &'a Settings,
    /// Host.
    pub key: &'a HostKey,
    /// Where it reaches this server.
    pub bases: &'a Bases,
    /// What the address and the token are derived from.
    pub root: &'a Key,
}

/// How much of a medium has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// All media on offer.
pub struct MediaStore {
    images: AgentImages,
    offers: Mutex<Offers>,
    changed: Notify,
    waiting: Semaphore,
    waiting_peers: Arc<Peers>,
    /// Bytes that have been answered with, by whole ranges.
    pub sent: Arc<AtomicU64>,
}

#[derive(Default)]
struct Offers {
    by_id: HashMap<String, Arc<Offer>>,
    by_host: HashMap<String, String>,
}

impl MediaStore {
    /// A store over agent images.
    pub fn new(images: AgentImages) -> Self {
        let waiting = Semaphore::new(MAX_WAITING);
        Self {
            images,
            offers: Mutex::default(),
            changed: Notify::new(),
            waiting,
            waiting_peers: Arc::default(),
            sent: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent images.
    pub const fn images(&self) -> &AgentImages {
        &self.images
    }

    /// Offers the host's medium of a new generation, for a machine of this architecture; it replaces the one before. `None` without an agent image for
    /// it.
    pub fn offer(
        &self,
        place: &Place<'_>,
        (generation, architecture): (u64, Architecture),
        network: Option<&NetworkData>,
    ) -> Result<Option<Offered>, MediumError> {
        let Some(image) = self.images.of(architecture) else { return Ok(None) };
        let files = host_files(place, generation, network, (Form::Sharded, image.agent()));
        let medium = Medium::compose(image, &files)?;
        Ok(Some(self.put(place, generation, medium)))
    }

    /// Offers a medium that no host has, for machines of each architecture that there is an image with our agent for; each replaces the one before under
    /// its name, which is the key's with the architecture.
    pub fn offer_discovery(
        &self,
        place: &Place<'_>,
        revision: u64,
        config: &DiscoveryConfig,
    ) -> Result<Vec<(Architecture, Offered)>, MediumError> {
        let mut offered = Vec::new();
        for image in self.images.current().filter(|image| image.agent() == AgentKind::Metamorph) {
            let medium = Medium::compose(image, &discovery_files(place.settings, config))?;
            let uid = discovery_subject(&place.key.uid, image.architecture());
            let key = HostKey { uid, ..place.key.clone() };
            offered.push((image.architecture(), self.put(&Place { key: &key, ..*place }, revision, medium)));
        }
        Ok(offered)
    }

    /// Offers a medium that is there to be read by the host's BMC alone, beside the one that the host may have; it replaces the test medium before.
    pub fn offer_test(&self, place: &Place<'_>, number: u64) -> Result<Offered, MediumError> {
        let HostKey { namespace, name, .. } = place.key;
        let medium = Medium::test(&format!(
            "Metamorph's test medium {number} for the host {namespace}/{name}: it is there to be read, and nothing starts from it.\n"
        ))?;
        let key = HostKey { uid: test_subject(&place.key.uid), ..place.key.clone() };
        Ok(self.put(&Place { key: &key, ..*place }, number, medium))
    }

    /// Withdraws the host's test medium.
    pub fn withdraw_test(&self, uid: &str) {
        self.withdraw(&test_subject(uid));
    }

    /// What has been read of the host's test medium; nothing where none is on offer.
    pub fn test_reads(&self, uid: &str) -> TestReads {
        let offers = self.lock();
        let offer = offers.by_host.get(&test_subject(uid)).and_then(|id| offers.by_id.get(id));
        offer.map_or_else(TestReads::default, |offer| TestReads {
            requests: offer.asked.load(Ordering::Relaxed),
            bytes: offer.served.load(Ordering::Relaxed),
            first: *offer.first_asked.lock().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Withdraws what no host has.
    pub fn withdraw_discovery(&self, uid: &str) {
        Architecture::ALL.iter().for_each(|architecture| self.withdraw(&discovery_subject(uid, *architecture)));
    }

    /// Offers the medium of a generation that was recorded with this digest again, if it can still be made. One that is on offer stays as it is,
    /// whatever has changed since.
    pub fn offer_again(
        &self,
        place: &Place<'_>,
        generation: u64,
        digest: &str,
        network: Option<&NetworkData>,
    ) -> Result<Option<Offered>, MediumError> {
        let mut bytes = [0; 32];
        if hex::decode_to_slice(digest, &mut bytes).is_err() {
            return Ok(None);
        }
        let path = path_of(place, generation, &bytes);
        if derive::path_id(&path).is_some_and(|id| self.lock().by_id.contains_key(id)) {
            return Ok(Some(offered(place, &path, &bytes)));
        }
        for form in [Form::Sharded, Form::Plain] {
            for image in self.images.all() {
                let files = host_files(place, generation, network, (form, image.agent()));
                let medium = Medium::compose(image, &files)?;
                if *medium.digest() == bytes {
                    return Ok(Some(self.put(place, generation, medium)));
                }
            }
        }
        Ok(None)
    }

    /// Where the medium of a generation with this digest is, or was, on offer; nothing is offered by that.
    pub fn addresses(place: &Place<'_>, generation: u64, digest: &str) -> Vec<String> {
        let mut bytes = [0; 32];
        if hex::decode_to_slice(digest, &mut bytes).is_err() {
            return Vec::new();
        }
        offered(place, &path_of(place, generation, &bytes), &bytes).urls
    }

    fn put(&self, place: &Place<'_>, generation: u64, medium: Medium) -> Offered {
        let (key, path) = (place.key, path_of(place, generation, medium.digest()));
        let offered = offered(place, &path, medium.digest());
        let Some(id) = derive::path_id(&path).map(ToOwned::to_owned) else { return offered };
        let mut offers = self.lock();
        if !offers.by_id.contains_key(&id) {
            let (served, asked) = (AtomicU64::new(0), AtomicU64::new(0));
            let (times, first_asked) = (Mutex::default(), Mutex::default());
            let offer = Arc::new(Offer { key: key.clone(), generation, medium, served, asked, times, first_asked });
            if let Some(old) = offers.by_host.insert(key.uid.clone(), id.clone()) {
                offers.by_id.remove(&old);
            }
            offers.by_id.insert(id, offer);
            drop(offers);
            self.changed.notify_waiters();
        }
        offered
    }

    /// Withdraws the host's medium.
    pub fn withdraw(&self, uid: &str) {
        let mut offers = self.lock();
        if let Some(id) = offers.by_host.remove(uid) {
            offers.by_id.remove(&id);
        }
    }

    /// What has been read of the host's medium.
    pub fn reads(&self, uid: &str) -> Reads {
        let offers = self.lock();
        let offer = offers.by_host.get(uid).and_then(|id| offers.by_id.get(id));
        offer.map_or_else(Reads::default, |offer| Reads {
            requests: offer.asked.load(Ordering::Relaxed),
            bytes: offer.served.load(Ordering::Relaxed),
        })
    }

    /// The id of the host's medium, if one is on offer: who knows it may fetch the medium.
    pub fn offered_id(&self, uid: &str) -> Option<String> {
        self.lock().by_host.get(uid).cloned()
    }

    /// What has been read of the host's medium and when, and its size in bytes; `None` if none is on offer.
    pub fn offered_reads(&self, uid: &str) -> Option<(OfferedReads, u64)> {
        let offers = self.lock();
        let offer = offers.by_host.get(uid).and_then(|id| offers.by_id.get(id))?;
        let times = *offer.times.lock().unwrap_or_else(PoisonError::into_inner);
        let counted =
            Reads { requests: offer.asked.load(Ordering::Relaxed), bytes: offer.served.load(Ordering::Relaxed) };
        let reads = OfferedReads { counted, first: times.map(|(first, _)| first), last: times.map(|(_, last)| last) };
        Some((reads, offer.medium.len()))
    }

    /// A place among the waiting requests; local peers, a simulator for instance, may take all places.
    fn wait_place(&self, from: IpAddr) -> Option<(PeerPlace, SemaphorePermit<'_>)> {
        let most = if addresses::peer(from).is_loopback() { MAX_WAITING } else { MAX_WAITING_OF_PEER };
        let place = self.waiting_peers.enter(from, most).ok()?;
        Some((place, self.waiting.try_acquire().ok()?))
    }

    /// The medium at this path, waiting for it if necessary; `from` is the requesting peer.
    pub async fn find(&self, path: &str, from: IpAddr) -> Option<Arc<Offer>> {
        let id = derive::path_id(path)?;
        let deadline = Instant::now() + PATIENCE;
        let place = self.wait_place(from);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(offer) = self.lock().by_id.get(id) {
                return Some(Arc::clone(offer));
            }
            if place.is_none() || tokio::time::timeout_at(deadline, changed).await.is_err() {
                return None;
            }
        }
    }
}

/// The name under which a medium that no host has is kept: no host's uid has a slash.
fn discovery_subject(uid: &str, architecture: Architecture) -> String {
    format!("discovery/{uid}/{architecture}")
}

/// The name under which a host's test medium is kept, beside its own.
fn test_subject(uid: &str) -> String {
    format!("test/{uid}")
}

/// What a medium has that no host has.
fn discovery_files(settings: &Settings, config: &DiscoveryConfig) -> HostFiles {
    // A DiscoveryConfig has string keys only: it always serialises.
    let bytes = serde_json::to_vec_pretty(config).unwrap_or_default();
    let path = DISCOVERY_CONFIG_PATH.trim_start_matches('/').to_owned();
    let kernel_arguments = settings.kernel_arguments.split_whitespace().map(ToOwned::to_owned).collect();
    HostFiles { files: vec![HostFile { path, mode: 0o600, bytes }], kernel_arguments }
}

fn path_of(place: &Place<'_>, generation: u64, digest: &[u8; 32]) -> String {
    derive::path(&place.root.secret, &place.key.uid, generation, digest)
}

fn offered(place: &Place<'_>, path: &str, digest: &[u8; 32]) -> Offered {
    let urls = place.bases.media.iter().map(|base| format!("{}{path}", base.trim_end_matches('/'))).collect();
    Offered { urls, digest: hex::encode(digest) }
}

/// Form of this server's addresses for agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// With the host's shard, then without it, so that the previous version can hear them after a rollback.
    Sharded,
    /// Without a shard, as the previous version wrote them: boots that began then keep their medium.
    Plain,
}

/// The agent endpoint's base addresses with a shard, then without one.
pub fn sharded(bases: &Bases) -> Vec<String> {
    let shard = derive::shard(derive::SHARD);
    let sharded = bases.agents.iter().map(|base| format!("{}{shard}", base.trim_end_matches('/')));
    sharded.chain(bases.agents.iter().cloned()).collect()
}

/// The few kilobytes that are a host's own: a pure function of what is recorded.
fn host_files(
    place: &Place<'_>,
    generation: u64,
    network: Option<&NetworkData>,
    (form, agent): (Form, AgentKind),
) -> HostFiles {
    let Place { settings, key, bases, root } = place;
    let kernel_arguments = settings.kernel_arguments.split_whitespace().map(ToOwned::to_owned).collect();
    if agent == AgentKind::IronicPythonAgent {
        let authorities = settings.image_authorities.pem();
        let files = ipa::config::files(key, root, generation, &bases.agents, &authorities);
        return HostFiles { files, kernel_arguments };
    }
    let endpoints = match form {
        Form::Sharded => sharded(bases),
        Form::Plain => bases.agents.clone(),
    };
    let config = HostConfig {
        protocol: OLDEST_PROTOCOL,
        host: key.uid.clone(),
        host_name: format!("{}/{}", key.namespace, key.name),
        generation,
        token: derive::credential(&root.secret, &key.uid, generation),
        endpoints,
        server_certificate_sha256: root.certificate_sha256.clone(),
        image_ca_pem: settings.image_authorities.pem(),
        network: network.map_or(AgentNetwork::Dhcp, |data| AgentNetwork::Static { data: data.clone() }),
    };
    // A HostConfig has string keys only: it always serialises.
    let bytes = serde_json::to_vec_pretty(&config).unwrap_or_default();
    let path = HOST_CONFIG_PATH.trim_start_matches('/').to_owned();
    HostFiles { files: vec![HostFile { path, mode: 0o600, bytes }], kernel_arguments }
}

#[cfg(test)]
mod tests {
    use boot_media::{Assets, Manifest};

    use super::*;
    use crate::keys::KeyRing;
    use crate::settings::{MediaCertificates, Timing};

    #[test]
    fn a_boot_that_began_without_a_shard_goes_on_with_its_medium() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["vmlinuz", "initramfs", "shimx64.efi", "gcdx64.efi"] {
            std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
        }
        let manifest = Manifest::describe(folder.path(), "6.1.0", "0.1.0").unwrap();
        std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
        let image = Assets::open(folder.path()).unwrap();
        let root =
            Key { number: 1, secret: [7; 32], certificate_sha256: "00".repeat(32), certificate_pem: String::new() };
        let bases = Bases { media: vec!["http://a:1/".into()], agents: vec!["https://a:2/".into()], images: None };
        let settings = Settings {
            bases: bases.clone(),
            networks: Vec::new(),
            media_certificates: MediaCertificates::default(),
            keys: KeyRing::new(root.clone(), vec![]),
            image_authorities: Default::default(),
            kernel_arguments: String::new(),
            allowed: addresses::Allowed::default(),
            registries: Default::default(),
            may_act: Arc::new(|| true),
            provisioning_limit: 1,
            other_masters: Vec::new(),
            timing: Timing::default(),
        };
        let key = HostKey { namespace: "n".into(), name: "a".into(), uid: "u".into() };
        let place = Place { settings: &settings, key: &key, bases: &bases, root: &root };
        let [plain, sharded] = [Form::Plain, Form::Sharded].map(|form| {
            *Medium::compose(&image, &host_files(&place, 1, None, (form, AgentKind::Metamorph))).unwrap().digest()
        });
        assert_ne!(plain, sharded);
        let store = MediaStore::new(image.into());
        let offered = store.offer_again(&place, 1, &hex::encode(plain), None).unwrap().unwrap();
        assert_eq!(offered.digest, hex::encode(plain));
        let id = |url: &str| derive::path_id(url.strip_prefix("http://a:1").unwrap()).unwrap().to_owned();
        assert!(store.lock().by_id.contains_key(&id(&offered.urls[0])) && offered.urls[0].contains("/shard/0/media/"));
        assert_eq!(store.offer(&place, (2, Architecture::X86_64), None).unwrap().unwrap().digest.len(), 64);
        assert_eq!(store.offer(&place, (3, Architecture::Aarch64), None).unwrap(), None);
        assert!(store.offer_again(&place, 1, &hex::encode([0; 32]), None).unwrap().is_none());
    }
}
