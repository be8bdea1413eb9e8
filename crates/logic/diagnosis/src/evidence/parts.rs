//! The machine's parts.

use serde::{Deserialize, Serialize};
use terms::HealthLevel;

use super::Message;

/// What a part is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PartKind {
    /// The whole computer.
    #[default]
    System,
    /// A CPU, or a GPU that is shown as a processor.
    Processor,
    /// A memory module.
    Memory,
    /// A disk.
    Drive,
    /// A storage controller.
    StorageController,
    /// A logical disk.
    Volume,
    /// A port of a network card.
    NetworkPort,
    /// A power supply.
    PowerSupply,
    /// A fan.
    Fan,
    /// A temperature sensor.
    Temperature,
    /// A chassis.
    Chassis,
    /// The BMC.
    Manager,
    /// A card.
    PcieDevice,
    /// None of these, or of a later version.
    #[serde(other)]
    Other,
}

/// One part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Where it is, in the words that stand on the machine: `DIMM.Socket.A1`, `Bay 3`, `PS2`; of a sensor its name.
    pub slot: String,
    /// Its name or model.
    pub name: Option<String>,
    /// Part number.
    pub part_number: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// `Status.Health`; `None` if the BMC says nothing of it.
    pub health: Option<HealthLevel>,
    /// `Status.State`, in the BMC's word: `Enabled`, `Absent`, `UnavailableOffline`.
    pub state: Option<String>,
    /// `Status.Conditions`.
    pub conditions: Vec<Message>,
    /// Of a network port: `Up` or `Down`, in the BMC's word (`LinkStatus`, `LinkState`).
    pub link: Option<String>,
    /// Of a network port: its MAC address, lower case.
    pub mac: Option<String>,
    /// Of a drive: `FailurePredicted`.
    pub failure_predicted: Option<bool>,
    /// Of a drive: `PredictedMediaLifeLeftPercent`.
    pub life_left_percent: Option<u8>,
    /// Of memory and processors: errors that were corrected, since the BMC counts (`CurrentPeriod`, or else `LifeTime`).
    pub correctable_errors: Option<u64>,
    /// Of memory and processors: errors that could not be corrected.
    pub uncorrectable_errors: Option<u64>,
    /// Of a processor: whether it is slowed down (`Throttled`).
    pub throttled: Option<bool>,
    /// Of a drive that an array has not taken in: `Foreign`, `Unconfigured`, as the vendor says it; of a volume its `RAIDType`.
    pub raid_state: Option<String>,
    /// Of a power supply: whether its input has voltage; `LineInputStatus` `Normal` or `InRange` is `true`.
    pub input_good: Option<bool>,
    /// Of a sensor: what it reads.
    pub reading: Option<f64>,
    /// Of a sensor: the threshold beyond which it is critical.
    pub critical_at: Option<f64>,
    /// Of a card or port: lanes or speed that it has, where that is less than it could have: `x4 of x8`.
    pub degraded_link: Option<String>,
}

/// What has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Change {
    /// It was there, and is not.
    #[default]
    Missing,
    /// It was not there, and is.
    New,
    /// There is another in its place.
    Replaced,
    /// Of another version, and this one does not know it.
    #[serde(other)]
    Other,
}

/// How the machine differs from what its HardwareData says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Difference {
    /// Of which kind of part.
    pub kind: PartKind,
    /// What has changed.
    pub change: Change,
    /// Where it is, or its name.
    pub slot: String,
    /// Serial number, or MAC address of a network port.
    pub serial: Option<String>,
    /// What HardwareData says.
    pub was: String,
    /// What was found.
    pub is: String,
}
