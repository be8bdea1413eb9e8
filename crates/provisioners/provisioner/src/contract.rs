//! The traits and what goes through them.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BootMode, Image};
use async_trait::async_trait;
use inventory::{HardwareDetails, RootDeviceHints};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{Capabilities, Failure, History, Machine, Record, Recorded};

/// A host's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the BareMetalHost.
    pub uid: String,
}

/// How to reach the BMC.
#[derive(Clone)]
pub struct BmcAccess {
    /// `spec.bmc.address`.
    pub address: String,
    /// User.
    pub username: String,
    /// Password.
    pub password: SecretString,
    /// Accept any certificate.
    pub disable_certificate_verification: bool,
}

/// Whether this process may still act on machines. Another may have taken its place since it was last asked: it is asked before each effect.
pub type MayAct = Arc<dyn Fn() -> bool + Send + Sync>;

/// The time, given from outside.
pub type Now = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Everything a provisioner is told of a host when a reconcile begins.
#[derive(Clone)]
pub struct HostContext {
    /// Who.
    pub key: HostKey,
    /// BMC access; `None` only while a host without usable credentials is deleted.
    pub bmc: Option<BmcAccess>,
    /// `status.provisioning.ID`: the owner on the machine's disks. Empty before registration.
    pub provisioning_id: String,
    /// Boot mode in force.
    pub boot_mode: BootMode,
    /// Network of the system that the provisioner boots to work on the machine: OpenStack's `network_data.json`, as its owner wrote it (YAML has
    /// become JSON); `None` means DHCP.
    pub agent_network: Option<serde_json::Value>,
    /// The host's power must never be cut.
    pub disable_power_off: bool,
    /// The host is being deleted: what can no longer be recorded keeps it from nothing.
    pub deleting: bool,
    /// What inspection found earlier, or what was declared in its stead.
    pub hardware: Option<HardwareDetails>,
    /// Fingerprint of the machine that may take this host's place (annotation, used once).
    pub accept_machine: Option<String>,
    /// What the provisioner remembers of the host.
    pub record: Arc<dyn Record>,
    /// Where it shows what it does.
    pub history: Arc<dyn History>,
    /// Which machine the host is.
    pub machine: Arc<dyn Machine>,
    /// The time.
    pub now: Now,
    /// Asked before each call to the machine.
    pub may_act: MayAct,
}

/// Answer of a call that did not fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict<T> {
    /// Done.
    Done(T),
    /// Not yet.
    Working(Working),
}

/// Under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Working {
    /// What is being waited for, a sentence.
    pub step: String,
    /// Look again at the latest after this time; a wake-up may come sooner.
    pub look_again: Duration,
}

impl<T> Verdict<T> {
    /// Working, with the sentence and the time in seconds.
    #[must_use]
    pub fn working(step: impl Into<String>, seconds: u64) -> Self {
        Self::Working(Working { step: step.into(), look_again: Duration::from_secs(seconds) })
    }
}

/// Answer of a call.
pub type Outcome<T> = Result<Verdict<T>, Failure>;

/// Wake-ups: hosts about which something happened.
pub type WakeUps = UnboundedReceiver<HostKey>;

/// A way to provision machines. One object for all hosts of a server.
#[async_trait]
pub trait Provisioner: Send + Sync + 'static {
    /// Name in annotations and flags.
    fn name(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// What all addresses of one machine have in common, if the address can be read: two hosts with the same key are one machine.
    fn machine_key(&self, address: &str) -> Option<String>;

    /// The object for one host and reconcile. Cheap: no call to the machine is made here.
    ///
    /// # Errors
    /// When the host's access data cannot be used (address, certificate store).
    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure>;

    /// Whether the host's machine has shown a sign of life that failed work may have been waiting for, since [`Provisioner::heard`] was last called: the
    /// work is tried again then, however long its back-off still is.
    fn has_news(&self, key: &HostKey) -> bool;

    /// The host's work is about to be tried: what has been new is not any more.
    fn heard(&self, key: &HostKey);

    /// The stream of wake-ups; it can be taken once, later calls get `None`.
    fn wake_ups(&self) -> Option<WakeUps>;

    /// The host waits, and nothing is asked of it yet in this process: whatever its machine has to say is to be heard all the same.
    fn expect(&self, key: &HostKey, recorded: &Recorded);

    /// The host is gone, released or not: what is kept of it in this process goes as well. Nothing is waited for.
    fn forget(&self, key: &HostKey);

    /// Ends what is open on machines (sessions), before the server stops.
    async fn close(&self);
}

/// All that a host can be asked.
pub trait Host: Manage + Power + Inspect + Deploy + Send {}
impl<T: Manage + Power + Inspect + Deploy + Send> Host for T {}

/// What registration needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterRequest {
    /// Address or credentials differ from those that last worked: check them against the BMC even if a connection is open.
    pub credentials_changed: bool,
}

/// What registration finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The provisioner's id of the machine for `status.provisioning.ID`; the one given in the context if there was one.
    pub id: String,
    /// Power state seen.
    pub powered_on: Option<bool>,
}

/// Registration, adoption and release.
#[async_trait]
pub trait Manage {
    /// Checks access to the BMC.
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered>;

    /// Takes over a machine that is provisioned already, without touching it.
    async fn adopt(&mut self) -> Outcome<()>;

    /// Lets go: ends work, ejects media, closes sessions. The machine's power is left alone.
    async fn release(&mut self) -> Outcome<()>;
}

/// A power wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PowerRequest {
    /// On.
    On,
    /// Off: asked politely first, cut after the provisioner's grace period.
    SoftOff,
    /// Off at once.
    HardOff,
}

/// Power.
#[async_trait]
pub trait Power {
    /// Whether the machine is on. One cheap call.
    async fn power_state(&mut self) -> Outcome<bool>;

    /// Brings the machine to the wish; done when it is seen there. The result is the state seen.
    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool>;
}

/// What inspection needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// Inspection.
#[async_trait]
pub trait Inspect {
    /// Finds out what the machine is made of.
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<HardwareDetails>>;
}

/// Documents of a config drive, as text; they may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDrive {
    /// `openstack/latest/meta_data.json`: a JSON object.
    pub meta_data: String,
    /// `openstack/latest/network_data.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// `openstack/latest/user_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
}

impl std::fmt::Debug for ConfigDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigDrive(secret)")
    }
}

/// What provisioning needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProvisionRequest {
    /// Identity of the wish: when the host began with it, and a digest of what was asked for. What has been done for one wish is done for no
    /// other. `None` where the host does not say when: the wish is taken for the one that the work under way is for.
    pub wish: Option<String>,
    /// Image.
    pub image: Image,
    /// Which disk.
    pub root_device_hints: RootDeviceHints,
    /// What the operating system is told when it boots for the first time, `None` for nothing.
    pub config_drive: Option<ConfigDrive>,
    /// Owner whose mark may be overwritten.
    pub overwrite_owner: Option<String>,
}

/// What cleaning needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleaningRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// Remove partition tables and signatures; otherwise the disks are left.
    pub clean: bool,
    /// Owner whose mark may be removed.
    pub overwrite_owner: Option<String>,
    /// Hints that the image was written by: they may name a disk that is left otherwise.
    pub root_device_hints: RootDeviceHints,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// Deployment.
#[async_trait]
pub trait Deploy {
    /// Puts the image on the machine and boots it.
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()>;

    /// Removes what was provisioned.
    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<()>;
}
