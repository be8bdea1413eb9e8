//! Media on offer: composed for a host and a boot generation, found by their derived address, served by range.
//!
//! After a restart of the server the host controller offers the medium again as soon as it has looked at the host; a BMC that
//! asks before that is kept waiting, not turned away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::{AgentNetwork, HOST_CONFIG_PATH, HostConfig, NetworkData, PROTOCOL_VERSION};
use boot_media::{Assets, HostFile, HostFiles, Medium, MediumError, derive};
use provisioner::HostKey;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Duration, Instant};

use crate::settings::Settings;

/// How long a BMC waits for a medium that is not on offer yet.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most BMCs that wait at once; more are turned away.
const MAX_WAITING: usize = 256;

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
}

/// All media on offer.
pub struct MediaStore {
    assets: Assets,
    offers: Mutex<Offers>,
    changed: Notify,
    waiting: Semaphore,
}

#[derive(Default)]
struct Offers {
    by_id: HashMap<String, Arc<Offer>>,
    by_host: HashMap<String, String>,
}

impl MediaStore {
    /// A store over the shared files.
    pub fn new(assets: Assets) -> Self {
        Self { assets, offers: Mutex::default(), changed: Notify::new(), waiting: Semaphore::new(MAX_WAITING) }
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers the host's medium of this generation and gives its address. Offering it again changes nothing; another generation
    /// replaces the one before.
    pub fn offer(
        &self,
        settings: &Settings,
        key: &HostKey,
        generation: u64,
        network: Option<&NetworkData>,
    ) -> Result<String, MediumError> {
        let path = derive::path(&settings.secret, &key.uid, generation);
        let url = format!("{}{path}", settings.media_base.trim_end_matches('/'));
        let Some(id) = derive::path_id(&path).map(ToOwned::to_owned) else { return Ok(url) };
        let known = self.lock().by_id.contains_key(&id);
        if !known {
            let medium = Medium::compose(&self.assets, &host_files(settings, key, generation, network))?;
            let offer = Arc::new(Offer { key: key.clone(), generation, medium, served: AtomicU64::new(0) });
            let mut offers = self.lock();
            if let Some(old) = offers.by_host.insert(key.uid.clone(), id.clone()) {
                offers.by_id.remove(&old);
            }
            offers.by_id.insert(id, offer);
            drop(offers);
            self.changed.notify_waiters();
        }
        Ok(url)
    }

    /// Takes the host's medium off.
    pub fn withdraw(&self, uid: &str) {
        let mut offers = self.lock();
        if let Some(id) = offers.by_host.remove(uid) {
            offers.by_id.remove(&id);
        }
    }

    /// Bytes of the host's medium that have been read.
    pub fn served(&self, uid: &str) -> Option<u64> {
        let offers = self.lock();
        let offer = offers.by_id.get(offers.by_host.get(uid)?)?;
        Some(offer.served.load(Ordering::Relaxed))
    }

    /// The medium at this path, waited for if need be.
    pub async fn find(&self, path: &str) -> Option<Arc<Offer>> {
        let id = derive::path_id(path)?;
        let deadline = Instant::now() + PATIENCE;
        let permit = self.waiting.try_acquire().ok();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(offer) = self.lock().by_id.get(id) {
                return Some(Arc::clone(offer));
            }
            if permit.is_none() || tokio::time::timeout_at(deadline, changed).await.is_err() {
                return None;
            }
        }
    }
}

/// The few kilobytes that are a host's own: a pure function of what is recorded.
fn host_files(settings: &Settings, key: &HostKey, generation: u64, network: Option<&NetworkData>) -> HostFiles {
    let config = HostConfig {
        protocol: PROTOCOL_VERSION,
        host: key.uid.clone(),
        host_name: format!("{}/{}", key.namespace, key.name),
        generation,
        token: derive::credential(&settings.secret, &key.uid, generation),
        endpoints: settings.agent_bases.clone(),
        server_certificate_sha256: settings.certificate_sha256.clone(),
        image_ca_pem: settings.image_ca_pem.clone(),
        network: network.map_or(AgentNetwork::Dhcp, |data| AgentNetwork::Static { data: data.clone() }),
    };
    // A HostConfig has string keys only: it always serialises.
    let bytes = serde_json::to_vec_pretty(&config).unwrap_or_default();
    let path = HOST_CONFIG_PATH.trim_start_matches('/').to_owned();
    HostFiles {
        files: vec![HostFile { path, mode: 0o600, bytes }],
        kernel_arguments: settings.kernel_arguments.split_whitespace().map(ToOwned::to_owned).collect(),
    }
}
