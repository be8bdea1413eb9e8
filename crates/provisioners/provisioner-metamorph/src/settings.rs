//! What the native provisioner is told once, when the server starts.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use addresses::Allowed;
use oci_registry::Registries;
use provisioner::{MayAct, OtherMaster};

use crate::keys::KeyRing;
use crate::networks::{Bases, NetworkRule};

/// Addresses, keys and patience.
#[derive(Clone)]
pub struct Settings {
    /// Where BMCs and servers reach this server.
    pub bases: Bases,
    /// Where some reach it elsewhere; the first rule that fits a host counts.
    pub networks: Vec<NetworkRule>,
    /// The media endpoint's certificates, for BMCs that want to know them before they read over HTTPS.
    pub media_certificates: MediaCertificates,
    /// What media addresses and agents' tokens are derived from.
    pub keys: KeyRing,
    /// CA certificates (PEM) that agents trust for image downloads, beside the public ones.
    pub image_authorities: ImageAuthorities,
    /// Words added to the agent's kernel command line.
    pub kernel_arguments: String,
    /// Local addresses at which images may be.
    pub allowed: Allowed,
    /// Registries of images.
    pub registries: Registries,
    /// Whether this process gives orders: of several, one does.
    pub may_act: MayAct,
    /// Hosts that are worked on at once.
    pub provisioning_limit: usize,
    /// Patience.
    pub timing: Timing,
    /// Who else may run machines: none of theirs is touched.
    pub other_masters: Vec<Arc<dyn OtherMaster>>,
}

/// [`Settings::provisioning_limit`] where nobody sets it: a boot reads some 100 MB from this server, at the pace of its BMC.
pub const PROVISIONING_LIMIT: usize = 200;

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("bases", &self.bases)
            .field("networks", &self.networks)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// Certificates (PEM) by which BMCs know the media endpoint. Clones share them, so that they can be replaced while the server works.
#[derive(Clone, Default)]
pub struct MediaCertificates(Arc<RwLock<Option<String>>>);

impl MediaCertificates {
    /// These certificates.
    #[must_use]
    pub fn new(pem: Option<String>) -> Self {
        Self(Arc::new(RwLock::new(pem)))
    }

    /// From now on these are given to BMCs.
    pub fn replace(&self, pem: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(pem);
    }

    /// Those that are given to BMCs now.
    #[must_use]
    pub fn pem(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// CA certificates (PEM) that agents trust for image downloads. Clones share them, so that they can be replaced while the server works: agents
/// booted from then on know the new ones.
#[derive(Clone, Default)]
pub struct ImageAuthorities(Arc<RwLock<String>>);

impl ImageAuthorities {
    /// These certificates.
    #[must_use]
    pub fn new(pem: String) -> Self {
        Self(Arc::new(RwLock::new(pem)))
    }

    /// From now on agents are given these.
    pub fn replace(&self, pem: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pem;
    }

    /// Those that agents are given now.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How long things may take before they count as failed.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From reset to the agent's first report. Servers need minutes for their self-test.
    pub agent_boot: Duration,
    /// An agent that has not reported for this long is taken for dead.
    pub agent_silence: Duration,
    /// After this server has first looked at a host: how long an agent that was there before may take to report again. An agent
    /// whose server went away without a word notices after its own time-outs, up to 50 s.
    pub reconnect: Duration,
    /// From a polite power-off to cutting the power (Metal³: 180 s).
    pub soft_power_off: Duration,
    /// How long a hard power change may take.
    pub power_change: Duration,
    /// How long a BMC that does not let go of the medium is asked again.
    pub eject: Duration,
    /// How long the firmware may take to switch Secure Boot: a job of its setup with a restart.
    pub secure_boot: Duration,
    /// How long the firmware may take to apply settings: a self-test with one or two restarts, and minutes of a job on some.
    pub firmware_settings: Duration,
    /// How long a command may go without any progress.
    pub stall: Duration,
    /// How long a BMC that has not answered in time may take to put a medium in.
    pub insertion: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            agent_boot: Duration::from_secs(1200),
            agent_silence: Duration::from_secs(90),
            reconnect: Duration::from_secs(60),
            soft_power_off: Duration::from_secs(180),
            power_change: Duration::from_secs(120),
            eject: Duration::from_secs(300),
            secure_boot: Duration::from_secs(900),
            firmware_settings: Duration::from_secs(1800),
            stall: Duration::from_secs(900),
            insertion: Duration::from_secs(600),
        }
    }
}
