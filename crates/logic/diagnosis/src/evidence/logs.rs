//! What the BMC has written down and works at, and the BMC itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use terms::HealthLevel;

/// A message (DSP0266, `@Message.ExtendedInfo`, `Status.Conditions`, messages of tasks).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    /// `MessageId`, as written: `Base.1.8.InsufficientPrivilege`, `MEM0001`.
    pub id: String,
    /// `MessageArgs`.
    pub args: Vec<String>,
    /// `Message`.
    pub text: String,
    /// `MessageSeverity` or `Severity`, in the BMC's word.
    pub severity: Option<String>,
    /// `Resolution`.
    pub resolution: Option<String>,
}

/// The BMC's logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Logs {
    /// Entries, in any order.
    pub entries: Vec<LogEntry>,
    /// Texts of messages whose entries name only their id, by this id.
    pub registry: BTreeMap<String, RegistryText>,
}

/// What a message registry says of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryText {
    /// `Message`, with `%1` for its arguments.
    pub text: String,
    /// `Severity`.
    pub severity: Option<String>,
    /// `Resolution`.
    pub resolution: Option<String>,
}

/// One entry of a log (schema LogEntry).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogEntry {
    /// The log: `Sel`, `Lclog`, `IML`.
    pub log: String,
    /// `Id` in that log.
    pub id: String,
    /// `Created`, or `EventTimestamp`; `None` if it is no time. It is by the BMC's clock, which may be wrong.
    pub created: Option<Timestamp>,
    /// The same, as written.
    pub written: String,
    /// `Severity`, or the vendor's word.
    pub severity: Option<String>,
    /// `MessageId`, as written.
    pub message_id: Option<String>,
    /// `MessageArgs`.
    pub args: Vec<String>,
    /// `Message`, without secret addresses.
    pub text: String,
    /// `Resolution`, or the vendor's recommended action.
    pub resolution: Option<String>,
    /// `SensorType`: `Memory`, `Power Supply / Converter`.
    pub sensor_type: Option<String>,
    /// The part that it names: last segment of `Links.OriginOfCondition`, or what the vendor says.
    pub component: Option<String>,
    /// `Resolved`, or the vendor's `Repaired`: it is over.
    pub resolved: Option<bool>,
}

/// What a task is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskKind {
    /// An update of firmware.
    Firmware,
    /// Settings of the firmware.
    Bios,
    /// Logical disks.
    Raid,
    /// A virtual drive.
    VirtualMedia,
    /// Something else.
    #[default]
    #[serde(other)]
    Other,
}

/// A task or a vendor's job (schemas Task, Job).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// What it is about.
    pub kind: TaskKind,
    /// `Name`.
    pub name: String,
    /// `TaskState` or `JobState`, in the BMC's word.
    pub state: Option<String>,
    /// `TaskStatus`.
    pub health: Option<HealthLevel>,
    /// `PercentComplete`.
    pub percent: Option<u8>,
    /// `StartTime`, by the BMC's clock.
    pub started: Option<Timestamp>,
    /// `EndTime`, by the BMC's clock.
    pub ended: Option<Timestamp>,
    /// `Messages`.
    pub messages: Vec<Message>,
}

/// The BMC itself (schema Manager).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manager {
    /// `Model`.
    pub model: Option<String>,
    /// `FirmwareVersion`.
    pub firmware: Option<String>,
    /// `Status.Health`.
    pub health: Option<HealthLevel>,
    /// `Status.State`, in the BMC's word.
    pub state: Option<String>,
    /// Its clock minus the server's, seconds; `None` if it shows none.
    pub clock_skew_seconds: Option<i64>,
    /// Logs that take no more entries: `OverWritePolicy` `NeverOverWrites`, and as many entries as `MaxNumberOfRecords`.
    pub full_logs: Vec<String>,
    /// When it started last, if it says so.
    pub last_reset: Option<Timestamp>,
}
