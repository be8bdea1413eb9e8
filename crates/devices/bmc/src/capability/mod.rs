//! The capabilities of a connected BMC, independent of its protocol: one small trait per capability, and [`Bmc`], which reports which of them this
//! BMC has.
//!
//! Every BMC has power. For each other capability, the BMC returns either the capability or [`Lacking`], which says what was looked for and what to
//! do. It answers from its last look at the machine, without a call, so that a missing capability is known before any work begins that needs it.
//!
//! The traits contain nothing of a protocol. A protocol without a capability (IPMI has no virtual media) keeps the method's default: then the BMC
//! lacks it.
//!
//! | capability | Redfish | IPMI would use |
//! |---|---|---|
//! | identity: [`Bmc::look`], [`Bmc::macs`], [`Bmc::pin`] | `ComputerSystem`, its interfaces, service root, certificate | `chassis power status`, `fru`, system GUID |
//! | [`Power`] | `ComputerSystem.Reset` | `chassis power on`, `off`, `soft`, `reset` |
//! | [`BootDevice`] | boot override of `ComputerSystem` | `chassis bootdev cdrom options=efiboot`, `bootdev none`, `bootparam get 5` |
//! | [`VirtualMedia`] | `VirtualMedia`, certificates of media servers among it | – |
//! | [`DataDrive`] | a member of the `VirtualMedia` collection, that of the boot medium or another | – |
//! | [`Events`] | `EventService`: subscriptions, and its stream | `pef` |
//! | [`SecureBoot`] | `SecureBoot` | – |
//! | [`Bios`] | `Bios`, its settings resource and attribute registry | – |
//! | [`FirmwareInventory`] | `SoftwareInventory` of `UpdateService` | `mc info` |
//! | [`HardwareInventory`] | `ComputerSystem`, its processors, memory, drives and interfaces | `fru` |
//! | [`Logs`] | `LogServices` of system and manager | `sel elist` |
//! | [`LocationIndicator`] | `LocationIndicatorActive` or `IndicatorLED` of `ComputerSystem` and `Chassis` | `chassis identify` |
//! | [`Diagnostics`] | all of these by reading, parts and tasks | `sdr`, `sel elist`, `chassis status` |

mod bios;
mod boot_device;
mod data_drive;
mod diagnostics;
mod events;
mod firmware;
mod hardware;
mod location_indicator;
mod logs;
mod power;
mod secure_boot;
mod virtual_media;

use std::borrow::Cow;

use async_trait::async_trait;
use inventory::{BmcPin, MachineEvidence};

use crate::error::{BmcError, ErrorKind};

pub use bios::{Applied, AttributeKind, AttributeSchema, Bios, BiosSchema, BiosSeen, JobState};
pub use boot_device::{BootDevice, BootStanding, Lasting};
pub use data_drive::DataDrive;
pub use diagnostics::{Diagnostics, EvidenceBudget};
pub use events::{Alert, EventDestination, EventStream, Events, Posted};
pub use firmware::{FirmwareInventory, FirmwareVersion};
pub use hardware::HardwareInventory;
pub use location_indicator::LocationIndicator;
pub use logs::{BmcLog, LogEntry, Logs, MAX_COLLECTED, MAX_LOG_ENTRIES};
pub use power::Power;
pub use secure_boot::{SecureBoot, SecureBootSeen};
pub use terms::{HealthLevel, PowerAction};
pub use virtual_media::{Drive, Insertion, VirtualMedia};

/// The result of one look at the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Whether the machine is on; `None` if the BMC does not report it.
    pub powered_on: Option<bool>,
    /// Maker and model, for logs.
    pub model: String,
    /// Which machine it is, without MACs.
    pub evidence: MachineEvidence,
    /// What the BMC says of the whole machine's health; `None` if it says nothing.
    pub health: Option<HealthLevel>,
}

/// A connected BMC.
#[async_trait]
pub trait Bmc: Send + Sync {
    /// The first contact: checks access, ends sessions that an earlier process of this server left behind (`stale`: their addresses), and looks at
    /// the machine. From then on the BMC knows its capabilities.
    async fn begin(&self, stale: &[String]) -> Result<Sight, BmcError>;
    /// Looks at the machine. One call.
    async fn look(&self) -> Result<Sight, BmcError>;
    /// Permanent MACs of the machine, as far as the BMC reports them. One call per interface.
    async fn macs(&self) -> Result<Vec<String>, BmcError>;
    /// The identity of the BMC itself.
    fn pin(&self) -> BmcPin;
    /// Calls made since the connection was made.
    fn calls(&self) -> u32;
    /// Address of the open session.
    fn session(&self) -> Option<String>;
    /// Ends the session.
    async fn close(&self);

    /// Power.
    fn power(&self) -> &dyn Power;
    /// Selection of the next boot's source.
    ///
    /// # Errors
    /// [`Lacking`] when the BMC does not have it; likewise for the methods below.
    fn boot_device(&self) -> Result<&dyn BootDevice, Lacking> {
        Err(Lacking::unspoken(Capability::BootDevice))
    }
    /// Virtual media.
    ///
    /// # Errors
    /// [`Lacking`].
    fn virtual_media(&self) -> Result<&dyn VirtualMedia, Lacking> {
        Err(Lacking::unspoken(Capability::VirtualMedia))
    }
    /// A drive for the media of users.
    ///
    /// # Errors
    /// [`Lacking`].
    fn data_drive(&self) -> Result<&dyn DataDrive, Lacking> {
        Err(Lacking::unspoken(Capability::DataDrive))
    }
    /// Events for others.
    ///
    /// # Errors
    /// [`Lacking`].
    fn events(&self) -> Result<&dyn Events, Lacking> {
        Err(Lacking::unspoken(Capability::Events))
    }
    /// Secure Boot.
    ///
    /// # Errors
    /// [`Lacking`].
    fn secure_boot(&self) -> Result<&dyn SecureBoot, Lacking> {
        Err(Lacking::unspoken(Capability::SecureBoot))
    }
    /// The firmware's settings.
    ///
    /// # Errors
    /// [`Lacking`].
    fn bios(&self) -> Result<&dyn Bios, Lacking> {
        Err(Lacking::unspoken(Capability::Bios))
    }
    /// Versions of the firmware.
    ///
    /// # Errors
    /// [`Lacking`].
    fn firmware(&self) -> Result<&dyn FirmwareInventory, Lacking> {
        Err(Lacking::unspoken(Capability::Firmware))
    }
    /// The machine's hardware.
    ///
    /// # Errors
    /// [`Lacking`].
    fn hardware(&self) -> Result<&dyn HardwareInventory, Lacking> {
        Err(Lacking::unspoken(Capability::Hardware))
    }
    /// The BMC's log.
    ///
    /// # Errors
    /// [`Lacking`].
    fn logs(&self) -> Result<&dyn Logs, Lacking> {
        Err(Lacking::unspoken(Capability::Logs))
    }
    /// Evidence for a diagnosis. It can be asked for before the first contact, which may be what fails.
    ///
    /// # Errors
    /// [`Lacking`].
    fn diagnostics(&self) -> Result<&dyn Diagnostics, Lacking> {
        Err(Lacking::unspoken(Capability::Diagnostics))
    }
    /// The light by which a person finds the machine.
    ///
    /// # Errors
    /// [`Lacking`].
    fn location_indicator(&self) -> Result<&dyn LocationIndicator, Lacking> {
        Err(Lacking::unspoken(Capability::LocationIndicator))
    }
}

/// Capabilities that a BMC may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// [`BootDevice`].
    BootDevice,
    /// [`VirtualMedia`].
    VirtualMedia,
    /// [`DataDrive`].
    DataDrive,
    /// [`Events`].
    Events,
    /// [`SecureBoot`].
    SecureBoot,
    /// [`Bios`].
    Bios,
    /// [`FirmwareInventory`].
    Firmware,
    /// [`HardwareInventory`].
    Hardware,
    /// [`Logs`].
    Logs,
    /// [`Diagnostics`].
    Diagnostics,
    /// [`LocationIndicator`].
    LocationIndicator,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::BootDevice,
        Self::VirtualMedia,
        Self::DataDrive,
        Self::Events,
        Self::SecureBoot,
        Self::Bios,
        Self::Firmware,
        Self::Hardware,
        Self::Logs,
        Self::Diagnostics,
        Self::LocationIndicator,
    ];

    /// The name for messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BootDevice => "boot override",
            Self::VirtualMedia => "virtual media",
            Self::DataDrive => "drive for data images",
            Self::Events => "event subscriptions",
            Self::SecureBoot => "Secure Boot",
            Self::Bios => "BIOS settings",
            Self::Firmware => "firmware inventory",
            Self::Hardware => "hardware inventory",
            Self::Logs => "log",
            Self::Diagnostics => "diagnosis",
            Self::LocationIndicator => "locating light",
        }
    }

    /// Advice for a BMC that lacks it.
    const fn advice(self) -> &'static str {
        match self {
            Self::VirtualMedia | Self::DataDrive => "check that virtual media are licensed and switched on at the BMC",
            Self::Hardware => "set spec.inspectionMode to agent: then a system that is booted on the machine looks",
            Self::LocationIndicator => "find the server by its serial number, or look for a newer firmware of the BMC",
            Self::BootDevice
            | Self::Events
            | Self::SecureBoot
            | Self::Bios
            | Self::Firmware
            | Self::Logs
            | Self::Diagnostics => "look for a newer firmware of the BMC, and check its licence",
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A capability that a BMC lacks: what was looked for, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the BMC shows no {capability}: {looked_for}")]
pub struct Lacking {
    /// The capability.
    pub capability: Capability,
    /// What was looked for, and where.
    pub looked_for: String,
    /// What to do.
    pub advice: Cow<'static, str>,
}

impl Lacking {
    /// Looked for in vain.
    #[must_use]
    pub fn new(capability: Capability, looked_for: impl Into<String>) -> Self {
        Self { capability, looked_for: looked_for.into(), advice: Cow::Borrowed(capability.advice()) }
    }

    /// The protocol has no such thing, or it is not spoken here.
    #[must_use]
    pub fn unspoken(capability: Capability) -> Self {
        let advice = "if the BMC speaks another protocol as well, name that one in spec.bmc.address";
        Self {
            advice: Cow::Borrowed(advice),
            ..Self::new(capability, "there is none in its protocol, as it is spoken here")
        }
    }

    /// The error of an operation that needs it.
    #[must_use]
    pub fn keeps_from(self, attempted: impl Into<String>) -> BmcError {
        BmcError::new(ErrorKind::Unsupported, attempted, self.to_string()).advise(self.advice)
    }
}

impl From<Lacking> for BmcError {
    fn from(lacking: Lacking) -> Self {
        let attempted = format!("use the BMC's {}", lacking.capability);
        lacking.keeps_from(attempted)
    }
}

/// The capabilities that this BMC has, and those that it lacks.
#[must_use]
pub fn capabilities(bmc: &dyn Bmc) -> (Vec<Capability>, Vec<Lacking>) {
    let asked = Capability::ALL.map(|capability| {
        let lacking = match capability {
            Capability::BootDevice => bmc.boot_device().err(),
            Capability::VirtualMedia => bmc.virtual_media().err(),
            Capability::DataDrive => bmc.data_drive().err(),
            Capability::Events => bmc.events().err(),
            Capability::SecureBoot => bmc.secure_boot().err(),
            Capability::Bios => bmc.bios().err(),
            Capability::Firmware => bmc.firmware().err(),
            Capability::Hardware => bmc.hardware().err(),
            Capability::Logs => bmc.logs().err(),
            Capability::Diagnostics => bmc.diagnostics().err(),
            Capability::LocationIndicator => bmc.location_indicator().err(),
        };
        (capability, lacking)
    });
    let has = asked.iter().filter(|(_, lacking)| lacking.is_none()).map(|(capability, _)| *capability).collect();
    (has, asked.into_iter().filter_map(|(_, lacking)| lacking).collect())
}
