//! Power, the way from the reset to the operating system, and the virtual drives that a machine starts from.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Power (schemas ComputerSystem, Chassis, EnvironmentMetrics). Supplies are parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerFacts {
    /// `PowerState`, in the BMC's word.
    pub state: Option<String>,
    /// Reset types that the BMC says it takes.
    pub allowable_resets: Vec<String>,
    /// `PowerRestorePolicy`.
    pub restore_policy: Option<String>,
    /// State of the chassis' intrusion sensor (`Normal`, `HardwareIntrusion`, `TamperingDetected`).
    pub intrusion: Option<String>,
    /// Limit of power.
    pub cap: Option<PowerCap>,
    /// Why the BMC does not let it come on, in its words (vendors' own fields).
    pub blocked: Option<String>,
    /// The last orders of this server, oldest first.
    pub orders: Vec<PowerOrder>,
    /// `Status.Health` of the redundancy of supplies, in the BMC's word.
    pub redundancy: Option<String>,
}

/// Limit of power.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerCap {
    /// Watts.
    pub limit_watts: Option<u32>,
    /// Watts that are drawn.
    pub drawn_watts: Option<u32>,
    /// What happens beyond it (`NoAction`, `HardPowerOff`, `LogEventOnly`).
    pub exception: Option<String>,
}

/// An order of this server about power.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PowerOrder {
    /// `ResetType` that was sent.
    pub reset: String,
    /// When.
    pub at: Option<Timestamp>,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    /// Seconds for which the power has not followed; `None` if it has, or nobody has looked.
    pub not_followed_seconds: Option<u64>,
}

/// How far it has come in starting (schema ComputerSystem).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Boot {
    /// `BootProgress`; `None` if the BMC shows none.
    pub progress: Option<BootProgress>,
    /// The vendor's word for it: HPE's `PostState`, for instance.
    pub post_state: Option<String>,
    /// What it is to boot next; `None` if the BMC shows none.
    pub boot_override: Option<BootOverride>,
    /// What this server had asked for last, if it has: target, as `UsbCd`.
    pub wanted_target: Option<String>,
    /// `LastResetTime`, by the BMC's clock.
    pub last_reset: Option<Timestamp>,
    /// Names of what it can boot, in order; `None` if the BMC does not show it.
    pub options: Option<Vec<String>>,
    /// Whether Secure Boot is on.
    pub secure_boot: Option<bool>,
}

/// `BootProgress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BootProgress {
    /// `LastState`, in the BMC's word: `MemoryInitializationStarted`.
    pub last_state: String,
    /// `OemLastState`.
    pub oem_last_state: Option<String>,
    /// `LastStateTime`, by the BMC's clock.
    pub at: Option<Timestamp>,
    /// Seconds for which the server has seen this state unchanged.
    pub unchanged_seconds: Option<u64>,
}

/// `Boot.BootSourceOverride…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BootOverride {
    /// `BootSourceOverrideTarget`.
    pub target: Option<String>,
    /// `BootSourceOverrideEnabled`.
    pub enabled: Option<String>,
    /// `BootSourceOverrideMode`.
    pub mode: Option<String>,
}

/// Virtual drives (schema VirtualMedia).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Media {
    /// All that take CDs or USB sticks.
    pub slots: Vec<Slot>,
}

/// One virtual drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slot {
    /// Its id.
    pub id: String,
    /// `Inserted`.
    pub inserted: Option<bool>,
    /// `ConnectedVia`.
    pub connected_via: Option<String>,
    /// Host and port of the image: addresses of media are secrets.
    pub image_host: Option<String>,
    /// Whether what is in it is of this server.
    pub ours: Option<bool>,
    /// `TransferProtocolType`.
    pub transfer: Option<String>,
    /// `WriteProtected`.
    pub write_protected: Option<bool>,
    /// What the BMC has answered to the last insertion, or says of the drive, without addresses.
    pub message: Option<String>,
}
