//! A provisioner, and what it is told of a host.

use std::ops::Deref;
use std::sync::Arc;

use api::metal3::{BootMode, CleaningMode};
use async_trait::async_trait;
use inventory::HardwareDetails;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};

use crate::in_use::Past;
use crate::{
    AgentImage, Capabilities, Deployed, Failure, History, Host, Machine, MayAct, Named, Now, ObjectKey, Record,
    Recorded, WakeUps,
};

/// Version of the contract. It grows when a reader of the previous version would misunderstand. A new field does not make it grow, because readers
/// preserve it; nor does a new call, because a reader that does not know it answers that it is not served ([`crate::Envelope::read`]).
pub const CONTRACT_VERSION: u32 = 1;

/// A host's identity.
pub type HostKey = ObjectKey;

/// How to reach the BMC. It serialises for the way to the provisioner, and for nothing else: the password goes with it.
#[derive(Clone, Serialize, Deserialize)]
pub struct BmcAccess {
    /// `spec.bmc.address`.
    pub address: String,
    /// User.
    pub username: String,
    /// Password.
    #[serde(serialize_with = "exposed")]
    pub password: SecretString,
    /// Accept any certificate.
    pub disable_certificate_verification: bool,
}

fn exposed<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose_secret())
}

/// What is known of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Who.
    pub key: HostKey,
    /// `spec.bmc.address`, empty if the host has none.
    #[serde(default)]
    pub address: String,
    /// `status.provisioning.ID`: the owner on the machine's disks. Empty before registration.
    #[serde(default)]
    pub provisioning_id: String,
    /// What the host's status tells of its machine's past.
    #[serde(default)]
    pub past: Past,
    /// Boot mode in force.
    #[serde(default)]
    pub boot_mode: BootMode,
    /// `spec.bootMACAddress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mac: Option<String>,
    /// `spec.architecture`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Network of the system that the provisioner boots to work on the machine: OpenStack's `network_data.json`, as its owner wrote it (YAML has
    /// become JSON); `None` means DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_network: Option<serde_json::Value>,
    /// The host's power must never be cut.
    #[serde(default)]
    pub disable_power_off: bool,
    /// `spec.automatedCleaningMode`: whether the disks are cleaned when a user gives the machine back, or it comes for the first time.
    #[serde(default)]
    pub cleaning: CleaningMode,
    /// The system to boot that was built for this host, if the provisioner asked for one ([`crate::Waiting::AgentImage`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_image: Option<AgentImage>,
    /// The host is being deleted: failures to record do not stop it.
    #[serde(default)]
    pub deleting: bool,
    /// What inspection found earlier, or what was declared in its stead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Arc<HardwareDetails>>,
    /// What is on the machine, by the host's status; `None` where that is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed: Option<Deployed>,
    /// Whether the machine is to be heard: its faults are to be known at once, and the provisioner may listen to what its BMC tells by itself. `None` while that is not known: what
    /// there is stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<bool>,
    /// Fingerprint of the machine that may take this host's place (annotation, used once).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_machine: Option<String>,
}

/// Everything that a provisioner is given for a host when a reconcile begins: it dereferences to what is known of the host.
#[derive(Clone)]
pub struct HostContext {
    /// What is known of the host.
    pub facts: Arc<HostFacts>,
    /// BMC access; `None` only while a host without usable credentials is deleted.
    pub bmc: Option<BmcAccess>,
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

impl Deref for HostContext {
    type Target = HostFacts;

    fn deref(&self) -> &HostFacts {
        &self.facts
    }
}

/// A way to provision machines. One object for all hosts of a server.
#[async_trait]
pub trait Provisioner: Named + Send + Sync + 'static {
    /// What it can do with this host, by the scheme of its address, its vendor or its licence, without asking the machine.
    fn capabilities(&self, host: &HostFacts) -> Capabilities;

    /// Has to be ready to say that of this host, which is looked after: where it takes a question to somebody else, it is asked now, and the host woken by the answer.
    fn learn(&self, _host: &HostFacts) {}

    /// Whether this provisioner may have made this id at a registration (`status.provisioning.ID`). The form of the ids must distinguish it from
    /// every other provisioner, forever: a host is never given to a provisioner that has not made its id.
    fn made(&self, id: &str) -> bool;

    /// What all addresses of one machine have in common, if the address can be read: two hosts with the same key are one machine.
    fn machine_key(&self, address: &str) -> Option<String>;

    /// Whether what it records of machines is of this server's own making. What another program records is its word alone: a claim to a machine does
    /// not keep its age when that program names something new of it.
    fn vouches(&self) -> bool {
        true
    }

    /// The object for one host and reconcile. Cheap: no call to the machine is made here.
    ///
    /// # Errors
    /// When the host's access data cannot be used (address, certificate store).
    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure>;

    /// Whether the machine has, since the last [`Provisioner::acknowledge_news`], shown a sign of life that failed work may have been waiting for: the
    /// work is then retried, whatever is left of its back-off.
    fn has_news(&self, key: &HostKey) -> bool;

    /// Acknowledges the news so far: the host's work is about to be tried.
    fn acknowledge_news(&self, key: &HostKey);

    /// The host has noted that the restart which it was told is made ([`crate::Power::set_power`], where its power must not be cut): the next that is asked for is another.
    fn restart_is_noted(&self, _key: &HostKey) {}

    /// The stream of wake-ups from now on. A new subscription, after a lost connection or lease, ends the previous stream.
    fn subscribe(&self) -> WakeUps;

    /// The host waits, and this process has not called it yet: reports of its machine are accepted all the same.
    fn expect(&self, key: &HostKey, recorded: &Recorded);

    /// The host was deleted, released or not: drops what this process keeps of it, without waiting.
    fn forget(&self, key: &HostKey);

    /// Ends what is open on machines (sessions), before the server stops.
    async fn close(&self);
}
