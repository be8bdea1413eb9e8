//! What the native provisioner needs of a BMC, whatever it speaks.

use async_trait::async_trait;
use inventory::{BmcPin, MachineEvidence};
use provisioner::BmcAccess;

/// What one look at the machine shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Whether the machine is on; `None` where the BMC does not say.
    pub powered_on: Option<bool>,
    /// Maker and model, for logs.
    pub model: String,
    /// Which machine it is, without MACs.
    pub evidence: MachineEvidence,
}

/// Secure Boot as the BMC shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureBootSeen {
    /// The setting, in force from a later boot on.
    pub enable: Option<bool>,
    /// In force since the last boot.
    pub current: Option<bool>,
    /// There is no platform key, or what fails to be verified is only noted: the setting means nothing.
    pub setup_mode: bool,
}

/// A change of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerAction {
    /// On.
    On,
    /// Off at once.
    HardOff,
    /// Off, politely.
    SoftOff,
    /// Restart, politely where the BMC can ask; never off.
    SoftRestart,
    /// Reset; switches a machine that is off on.
    Restart,
}

/// Kinds of failures, enough to choose a cause and advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlErrorKind {
    /// Address or scheme.
    Address,
    /// Nothing answers.
    Unreachable,
    /// What was asked for has not been answered in time; it may still be done.
    TimedOut,
    /// Certificate.
    Certificate,
    /// User or password.
    Credentials,
    /// Another BMC than the one recorded; it was sent no password.
    AnotherBmc {
        /// What it shows.
        pin: BmcPin,
    },
    /// The answer was lost, and nothing shows whether the BMC has done what was asked.
    Unanswered,
    /// The BMC puts it off, for longer than it is waited for.
    Busy,
    /// The BMC said no, or lacks something.
    Refused,
}

/// A failed exchange with a BMC.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// Kind.
    pub kind: ControlErrorKind,
    /// What was attempted, what was found.
    pub message: String,
    /// What to do.
    pub advice: String,
}

/// What is in the virtual drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The medium in question.
    Medium,
    /// Another one.
    Another,
    /// None.
    Empty,
    /// Something, or nothing: the BMC does not say.
    Unknown,
}

/// What the BMC says of a boot that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSight {
    /// Whether the machine is on; `None` where the BMC does not say.
    pub powered_on: Option<bool>,
    /// Whether a boot from the medium is still ahead: the override has been set and not been used. `None` where the BMC does not say.
    pub override_ahead: Option<bool>,
    /// How far the machine's boot is, in the BMC's word (`BootProgress.LastState`).
    pub progress: Option<String>,
    /// The virtual drive.
    pub drive: Drive,
}

/// A connected BMC.
#[async_trait]
pub trait BmcControl: Send + Sync {
    /// Checks access and reads facts; ends sessions that an earlier life of this server left behind (`stale`: their addresses).
    async fn register(&self, stale: &[String]) -> Result<Sight, ControlError>;
    /// Looks at the machine. One call.
    async fn look(&self) -> Result<Sight, ControlError>;
    /// Permanent MACs of the machine, as far as the BMC shows them. A call an interface.
    async fn macs(&self) -> Result<Vec<String>, ControlError>;
    /// By what the BMC itself is known.
    fn pin(&self) -> BmcPin;
    /// Puts the medium in that these addresses have, whatever is in now: by the first that the BMC takes. One that wants to know the media
    /// server's certificate (PEM) is given it.
    async fn insert(&self, urls: &[String], certificate: Option<&str>) -> Result<(), ControlError>;
    /// What is in the drive, compared with the medium that these addresses have. One call, once the drive is known.
    async fn drive(&self, urls: &[String]) -> Result<Drive, ControlError>;
    /// How a boot from this medium stands. Two calls.
    async fn boot_sight(&self, urls: &[String]) -> Result<BootSight, ControlError>;
    /// Takes the medium out; fine if there is none.
    async fn eject(&self) -> Result<(), ControlError>;
    /// The next boot, and only that, is from the medium.
    async fn boot_once_from_medium(&self) -> Result<(), ControlError>;
    /// The next boot is the firmware's own choice.
    async fn boot_normally(&self) -> Result<(), ControlError>;
    /// Secure Boot as it is; `None` when the BMC does not show it. One call.
    async fn secure_boot(&self) -> Result<Option<SecureBootSeen>, ControlError>;
    /// Sets Secure Boot; it may take a restart of the machine to be in force.
    async fn set_secure_boot(&self, on: bool) -> Result<(), ControlError>;
    /// Changes the power; a machine that is there already is fine.
    async fn power(&self, action: PowerAction) -> Result<(), ControlError>;
    /// Calls made since the connection was made.
    fn calls(&self) -> u32;
    /// Address of the open session.
    fn session(&self) -> Option<String>;
    /// Ends the session.
    async fn close(&self);
}

/// Makes connections. No call to the BMC happens here.
pub trait Connect: Send + Sync + 'static {
    /// A connection to this BMC, which signs in only if it is the one that the pin says.
    ///
    /// # Errors
    /// When the address cannot be used.
    fn connect(&self, access: &BmcAccess, pin: &BmcPin) -> Result<Box<dyn BmcControl>, ControlError>;
}
